/* cli/drain.c - see cli/drain.h. */
#include "cli/drain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

const Cloche__V1__Worker *drain_by_id(const Cloche__V1__ListWorkersResponse *list, const char *id)
{
    for (size_t i = 0; i < list->n_workers; i++) {
        if (strcmp(list->workers[i]->id, id) == 0)
            return list->workers[i];
    }
    return NULL;
}

int drain_find(const Cloche__V1__ListWorkersResponse *list, const char *name,
               const Cloche__V1__Worker **ret_worker, struct cl_err *err)
{
    const Cloche__V1__Worker *w = drain_by_id(list, name);
    char ids[DRAIN_TEXT / 2] = "";
    size_t n = 0, at = 0;
    if (w) {
        *ret_worker = w;
        return 0;
    }
    for (size_t i = 0; i < list->n_workers; i++) {
        if (strcmp(list->workers[i]->hostname, name) != 0)
            continue;
        w = list->workers[i];
        n++;
        int k = snprintf(ids + at, sizeof ids - at, " %s", w->id);
        at += k > 0 ? CL_MIN((size_t)k, sizeof ids - at - 1) : 0;
    }
    if (n == 0)
        return cl_fail(err, CL_E_NOTFOUND, 0,
                       "no worker '%.64s' is connected\n`cloche worker list` shows those that are",
                       name);
    if (n > 1)
        return cl_fail(err, CL_E_INVALID, 0, "%zu workers are on host '%.64s'\nname one of:%s", n,
                       name, ids);
    *ret_worker = w;
    return 0;
}

struct drain_counts drain_counts(const Cloche__V1__Worker *w)
{
    return (struct drain_counts){w->jobs, w->sandboxes, w->snapshots};
}

uint64_t drain_sum(const struct drain_counts *n)
{
    return (uint64_t)n->jobs + n->sandboxes + n->snapshots;
}

void drain_left(const struct drain_counts *n, char out[static DRAIN_TEXT])
{
    const struct {
        uint32_t n;
        const char *one, *many;
    } rows[] = {{n->jobs, "job", "jobs"},
                {n->sandboxes, "sandbox", "sandboxes"},
                {n->snapshots, "snapshot", "snapshots"}};
    size_t kinds = 0, said = 0, at = 0;
    for (size_t i = 0; i < CL_COUNT(rows); i++)
        kinds += rows[i].n > 0;
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (rows[i].n == 0)
            continue;
        const char *between = said == 0 ? "" : said + 1 == kinds ? " and " : ", ";
        int k = snprintf(out + at, DRAIN_TEXT - at, "%s%" PRIu32 " %s", between, rows[i].n,
                         rows[i].n == 1 ? rows[i].one : rows[i].many);
        at += k > 0 ? (size_t)k : 0;
        said++;
    }
    (void)snprintf(out + at, DRAIN_TEXT - at, "%s",
                   kinds == 0          ? "nothing is left"
                   : drain_sum(n) == 1 ? " is left"
                                       : " are left");
}

void drain_state(const Cloche__V1__Worker *w, char out[static DRAIN_TEXT])
{
    struct drain_counts n = drain_counts(w);
    uint64_t left = drain_sum(&n);
    if (!w->draining)
        (void)snprintf(out, DRAIN_TEXT, "%s", w->closed[0] ? w->closed : "open");
    else if (left == 0)
        (void)snprintf(out, DRAIN_TEXT, "drained");
    else
        (void)snprintf(out, DRAIN_TEXT, "draining, %" PRIu64 " left%s%s", left,
                       w->drain_trouble[0] ? ": " : "", w->drain_trouble);
}

enum drain_step drain_look(struct drain *d, const Cloche__V1__Worker *w, uint64_t now_ns)
{
    if (w && w->draining) {
        struct drain_counts n = drain_counts(w);
        d->seen_ns = now_ns;
        return drain_sum(&n) == 0 ? DRAIN_EMPTY : DRAIN_GOES_ON;
    }
    /* It may have started anew, and has not said yet what it has, or that it drains. */
    if (now_ns - d->seen_ns < DRAIN_PATIENCE_S * CL_NS_PER_S)
        return DRAIN_GOES_ON;
    return w ? DRAIN_UNDONE : DRAIN_GONE;
}

bool drain_news(struct drain *d, const Cloche__V1__Worker *w, char out[static DRAIN_TEXT])
{
    char trouble[DRAIN_TEXT];
    (void)snprintf(trouble, sizeof trouble, "%s", w->drain_trouble);
    struct drain_counts n = drain_counts(w);
    if (!d->counted || memcmp(&d->left, &n, sizeof n) != 0) {
        d->counted = true;
        d->left = n;
        drain_left(&n, out);
        return true;
    }
    if (strcmp(d->trouble, trouble) == 0)
        return false;
    memcpy(d->trouble, trouble, sizeof trouble);
    (void)snprintf(out, DRAIN_TEXT, "not all could be moved yet: %.250s", trouble);
    return trouble[0] != '\0';
}
