/* e2b/page.c - see e2b/page.h. */
#include "e2b/page.h"

#include <stdio.h>

#include "base/conf.h"
#include "e2b/route.h"

enum { LIMIT_DEFAULT = 100 };

int e2b_page_read(const char *query, struct e2b_page *ret, struct cl_err *err)
{
    char limit[16] = "";
    uint64_t n = LIMIT_DEFAULT;
    *ret = (struct e2b_page){.found = json_array()};
    if (e2b_query_get(query, "nextToken", ret->token, sizeof ret->token) < 0 ||
        e2b_query_get(query, "limit", limit, sizeof limit) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "the query is malformed");
    if (limit[0] && (cl_parse_u64(limit, &n, NULL) < 0 || n < 1 || n > E2B_PAGE_MAX))
        return cl_fail(err, CL_E_INVALID, 0, "limit: want a number from 1 to %d", E2B_PAGE_MAX);
    ret->limit = (size_t)n;
    return ret->found ? 0 : cl_fail(err, CL_E_NOMEM, 0, "list");
}

void e2b_page_fini(struct e2b_page *p)
{
    json_decref(p->found);
    p->found = NULL;
}

uint32_t e2b_page_room(const struct e2b_page *p)
{
    size_t n = json_array_size(p->found);
    return (uint32_t)(n < p->limit ? p->limit - n : 0);
}

void e2b_page_add(struct e2b_page *p, json_t *entry)
{
    (void)json_array_append_new(p->found, entry);
}

bool e2b_page_goes_on(struct e2b_page *p, const char *next)
{
    (void)snprintf(p->token, sizeof p->token, "%s", next);
    p->asked++;
    return p->token[0] && e2b_page_room(p) > 0 && p->asked < E2B_PAGE_ASKS;
}
