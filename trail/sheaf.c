/* trail/sheaf.c - see trail/sheaf.h. */
#include "trail/sheaf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct kept {
    char ts[CL_RFC3339_LEN];
    size_t order; /* of keeping */
    char *line;   /* owned */
    size_t n;
};

struct sheaf {
    struct kept *kept; /* owned */
    size_t n, cap, max;
};

int sheaf_new(size_t max, struct sheaf **ret_sheaf, struct cl_err *err)
{
    struct sheaf *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "records");
    s->max = max;
    *ret_sheaf = s;
    return 0;
}

void sheaf_free(struct sheaf *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        cl_free(s->kept[i].line);
    cl_free(s->kept);
    cl_free(s);
}

int sheaf_keep(void *sheaf, const struct audit_record *r, const char *line, size_t n,
               struct cl_err *err)
{
    struct sheaf *s = sheaf;
    if (s->n >= s->max)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %zu records\nask for a part of the time",
                       s->max);
    char *copy = cl_strndup(line, n);
    if (!copy || cl_grow(&s->kept, &s->cap, s->n + 1, s->max, sizeof *s->kept, NULL) < 0) {
        cl_free(copy);
        return cl_fail(err, CL_E_NOMEM, 0, "records");
    }
    struct kept *k = &s->kept[s->n];
    *k = (struct kept){.order = s->n++, .line = copy, .n = n};
    (void)snprintf(k->ts, sizeof k->ts, "%s", r->ts);
    return 0;
}

size_t sheaf_count(const struct sheaf *s)
{
    return s->n;
}

static int by_time(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    int d = strcmp(x->ts, y->ts);
    return d != 0 ? d : (x->order > y->order) - (x->order < y->order);
}

int sheaf_tell(struct sheaf *s, walk_fn *fn, void *arg, struct cl_err *err)
{
    int rc = 0;
    if (s->n > 1)
        qsort(s->kept, s->n, sizeof *s->kept, by_time);
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        struct audit_record r;
        const struct kept *k = &s->kept[i];
        rc = audit_record_parse(k->line, k->n, &r, err);
        if (rc == 0)
            rc = fn(arg, &r, k->line, k->n, err);
    }
    return rc;
}
