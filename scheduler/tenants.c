/* scheduler/tenants.c - the tenants that this process has met: limits, weight, use of the queue. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "scheduler/sched_priv.h"

enum { TENANT_FRESH_MS = 1000 };

/* Unpack a row of the books over the cached tenant (or a new one). */
int tenant_cache(struct sched *s, const struct books_tenant *row, struct tenant **ret_tenant,
                 struct cl_err *err)
{
    struct tenant_limits limits;
    limits_default(&limits);
    /* The blob: packed limits, then the guest separation as text. */
    size_t text_at = row->blob_n;
    const char *blob = row->blob;
    const char *mark = blob ? memrchr(blob, '|', row->blob_n) : NULL;
    if (mark)
        text_at = (size_t)(mark - blob);
    if (blob && limits_unpack(row->blob, text_at, &limits, err) < 0)
        return cl_wrap(err, "tenant '%s'", row->name);
    struct tenant *t = cl_map_get(s->tenants, row->name);
    if (!t) {
        t = cl_zalloc(sizeof *t);
        if (!t || cl_map_put(s->tenants, row->name, t, err) < 0) {
            cl_free(t);
            return cl_fail(err, CL_E_NOMEM, 0, "tenant");
        }
        (void)snprintf(t->name, sizeof t->name, "%s", row->name);
    }
    t->limits = limits;
    t->created_ms = row->created_ms;
    t->loaded_ns = cl_now_ns();
    int n = mark ? (int)(row->blob_n - text_at - 1) : 0;
    (void)snprintf(t->guest_separation, sizeof t->guest_separation, "%.*s", n,
                   mark ? mark + 1 : "");
    if (fairq_tenant_set(s->queue, t->name, (uint32_t)limits.weight, (size_t)limits.queue_max,
                         err) < 0)
        return -1;
    *ret_tenant = t;
    return 0;
}

Cloche__V1__GuestSeparation tenant_separation(const struct tenant *t)
{
    return strcmp(t->guest_separation, "shared-ok") == 0
               ? CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED
               : CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_ISOLATED;
}

struct loading {
    struct sched *s;
    tenant_fn *fn;
    void *arg;
};

static void on_tenant(const struct books_tenant *rows, size_t n, const char *next,
                      const struct cl_err *err, void *arg)
{
    (void)next;
    struct loading *l = arg;
    struct cl_err bad = {0};
    struct tenant *t = NULL;
    if (n == 1 && tenant_cache(l->s, &rows[0], &t, &bad) < 0)
        err = &bad;
    else if (n == 0 && !err) {
        (void)cl_fail(&bad, CL_E_NOTFOUND, 0, "no such tenant");
        err = &bad;
    }
    l->fn(l->arg, t, err);
    cl_free(l);
}

void tenant_get(struct sched *s, const char *name, tenant_fn *fn, void *arg)
{
    struct cl_err err = {0};
    struct tenant *t = cl_map_get(s->tenants, name);
    if (t && cl_now_ns() - t->loaded_ns < TENANT_FRESH_MS * CL_NS_PER_MS) {
        fn(arg, t, NULL);
        return;
    }
    struct loading *l = cl_zalloc(sizeof *l);
    if (!l)
        (void)cl_fail(&err, CL_E_NOMEM, 0, "tenant");
    else
        *l = (struct loading){s, fn, arg};
    if (!l || books_tenant_get(s->books, name, on_tenant, l, &err) < 0) {
        cl_free(l);
        fn(arg, NULL, &err);
    }
}
