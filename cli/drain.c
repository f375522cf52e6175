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

void drain_left(uint32_t jobs, uint32_t sandboxes, char out[static DRAIN_TEXT])
{
    const char *job = jobs == 1 ? "job" : "jobs", *box = sandboxes == 1 ? "sandbox" : "sandboxes";
    const char *be = (uint64_t)jobs + sandboxes == 1 ? "is" : "are";
    if (jobs == 0 && sandboxes == 0)
        (void)snprintf(out, DRAIN_TEXT, "nothing is left");
    else if (sandboxes == 0)
        (void)snprintf(out, DRAIN_TEXT, "%" PRIu32 " %s %s left", jobs, job, be);
    else if (jobs == 0)
        (void)snprintf(out, DRAIN_TEXT, "%" PRIu32 " %s %s left", sandboxes, box, be);
    else
        (void)snprintf(out, DRAIN_TEXT, "%" PRIu32 " %s and %" PRIu32 " %s are left", jobs, job,
                       sandboxes, box);
}

void drain_state(const Cloche__V1__Worker *w, char out[static DRAIN_TEXT])
{
    uint64_t left = (uint64_t)w->jobs + w->sandboxes;
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
        d->seen_ns = now_ns;
        return w->jobs == 0 && w->sandboxes == 0 ? DRAIN_EMPTY : DRAIN_GOES_ON;
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
    if (!d->counted || d->jobs != w->jobs || d->sandboxes != w->sandboxes) {
        d->counted = true;
        d->jobs = w->jobs;
        d->sandboxes = w->sandboxes;
        drain_left(w->jobs, w->sandboxes, out);
        return true;
    }
    if (strcmp(d->trouble, trouble) == 0)
        return false;
    memcpy(d->trouble, trouble, sizeof trouble);
    (void)snprintf(out, DRAIN_TEXT, "a sandbox could not be moved yet: %.250s", trouble);
    return trouble[0] != '\0';
}
