/* trail/newest.c - see trail/newest.h. */
#include "trail/newest.h"

#include <stdio.h>
#include <string.h>

#include "audit/verify.h"
#include "base/mem.h"

struct kept {
    char *line; /* owned */
    size_t n;
    char ts[CL_RFC3339_LEN];
};

struct newest {
    char dir[AUDIT_PATH];
    struct walk_filter filter;
    struct walk *walk; /* owned: of this pass */
    struct kept *ring; /* owned: `cap` of them, the oldest at `first` */
    size_t first, count, cap, bytes;
};

static struct kept *at(const struct newest *n, size_t i)
{
    return &n->ring[(n->first + i) % n->cap];
}

static void drop_oldest(struct newest *n)
{
    struct kept *k = at(n, 0);
    n->bytes -= k->n;
    cl_free(k->line);
    *k = (struct kept){0};
    n->first = (n->first + 1) % n->cap;
    n->count--;
}

static void drop_all(struct newest *n)
{
    while (n->count > 0)
        drop_oldest(n);
}

static int keep(void *arg, const struct audit_record *r, const char *line, size_t len,
                struct cl_err *err)
{
    struct newest *n = arg;
    while (n->count == n->cap || (n->count > 0 && n->bytes + len > NEWEST_BYTES))
        drop_oldest(n);
    char *copy = cl_strndup(line, len);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "record");
    struct kept *k = at(n, n->count);
    *k = (struct kept){.line = copy, .n = len};
    (void)snprintf(k->ts, sizeof k->ts, "%s", r->ts);
    n->count++;
    n->bytes += len;
    return 0;
}

/* Older than the horizon there may be some of another stream that were not read. */
static bool is_enough(const struct newest *n)
{
    const char *horizon = walk_horizon(n->walk);
    return !horizon[0] || (n->count > 0 && strcmp(at(n, 0)->ts, horizon) >= 0 &&
                           (n->count == n->cap || n->bytes > NEWEST_BYTES / 2));
}

static int begin_pass(struct newest *n, struct cl_err *err)
{
    drop_all(n);
    walk_free(CL_STEAL(&n->walk));
    return walk_new(n->dir, &n->filter, &n->walk, err);
}

int newest_step(struct newest *n, size_t bytes, struct cl_err *err)
{
    int more = walk_step(n->walk, bytes, keep, n, err);
    if (more != 0 || is_enough(n))
        return more;
    n->filter.tail_bytes *= 4;
    return begin_pass(n, err) < 0 ? -1 : 1;
}

int newest_tell(struct newest *n, size_t bytes, walk_fn *fn, void *arg, struct cl_err *err)
{
    for (size_t told = 0; n->count > 0; drop_oldest(n)) {
        struct audit_record r;
        const struct kept *k = at(n, 0);
        if (told >= bytes)
            return 1;
        if (audit_record_parse(k->line, k->n, &r, err) < 0 || fn(arg, &r, k->line, k->n, err) < 0)
            return -1;
        told += k->n;
    }
    return 0;
}

struct walk *newest_take_walk(struct newest *n)
{
    return CL_STEAL(&n->walk);
}

int newest_new(const char *dir, const struct walk_filter *filter, size_t count,
               struct newest **ret_newest, struct cl_err *err)
{
    CL_AUTO(newest_freep) struct newest *n = NULL;
    if (count == 0 || count > NEWEST_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the newest %zu records; 1 to %d at once", count,
                       NEWEST_MAX);
    n = cl_zalloc(sizeof *n);
    if (!n || !(n->ring = cl_zalloc_array(count, sizeof *n->ring)))
        return cl_fail(err, CL_E_NOMEM, 0, "the newest records");
    (void)snprintf(n->dir, sizeof n->dir, "%s", dir);
    n->cap = count;
    n->filter = *filter;
    n->filter.tail_bytes = NEWEST_TAIL;
    if (begin_pass(n, err) < 0)
        return -1;
    *ret_newest = CL_STEAL(&n);
    return 0;
}

void newest_free(struct newest *n)
{
    if (!n)
        return;
    if (n->ring)
        drop_all(n);
    cl_free(n->ring);
    walk_free(n->walk);
    cl_free(n);
}
