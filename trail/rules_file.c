/* trail/rules_file.c - see trail/rules_file.h. */
#include "trail/rules_file.h"

#include <string.h>

#include "base/mem.h"

struct rules_file {
    char *path;        /* owned; NULL = no rules */
    struct rules *now; /* a reference */
    struct cl_err why; /* the newest that was told; its code is OK when the file is good */
};

int rules_file_open(const char *path, struct rules_file **ret_file, struct cl_err *err)
{
    CL_AUTO(rules_file_freep) struct rules_file *f = cl_zalloc(sizeof *f);
    if (!f || (path[0] && !(f->path = cl_strdup(path))))
        return cl_fail(err, CL_E_NOMEM, 0, "rules");
    if (rules_load(path, &f->now, err) < 0)
        return -1;
    *ret_file = CL_STEAL(&f);
    return 0;
}

void rules_file_free(struct rules_file *f)
{
    if (!f)
        return;
    rules_free(f->now);
    cl_free(f->path);
    cl_free(f);
}

static void take(struct rules_file *f, struct rules *rules)
{
    rules_free(f->now);
    f->now = rules;
    f->why = (struct cl_err){0};
}

struct rules *rules_file_now(struct rules_file *f, struct cl_err *ret_why)
{
    struct rules *fresh;
    struct cl_err why = {0};
    *ret_why = (struct cl_err){0};
    if (f->path && rules_load(f->path, &fresh, &why) == 0)
        take(f, fresh);
    else if (f->path && strcmp(why.text, f->why.text) != 0)
        *ret_why = f->why = why;
    return rules_share(f->now);
}
