/* cli/pages.c - see cli/pages.h. */
#include "cli/pages.h"

json_t *pages_all(const struct cli_opts *o, const struct args *a, page_fn *fn, size_t max,
                  int *ret_code)
{
    struct cl_err err = {0};
    char token[VALUE_NAME] = "";
    CL_AUTO(client_freep) struct client *client = NULL;
    int rc = client_open(o, &client, &err);
    json_t *rows = json_array();
    do {
        if (rc == 0)
            rc = fn(o, a, client, token, rows, &err);
    } while (rc == 0 && token[0] && (max == 0 || json_array_size(rows) < max));
    if (rc == 0)
        return rows;
    json_decref(rows);
    *ret_code = cli_report(&err);
    return NULL;
}
