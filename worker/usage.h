/* worker/usage.h - what a VM used over time: a bounded series of samples.  Pure.
 *
 * When it is full, neighbours among the older half are joined, again and again as it goes on: so it
 * always reaches back to the beginning, the newest are as fine as they came, and the older the
 * coarser.
 *
 * Owns:    its samples.
 * Thread:  the caller's.
 */
#ifndef CL_WORKER_USAGE_H
#define CL_WORKER_USAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    USAGE_MAX = 240,       /* without a limit: a sandbox that lives for a year fills memory */
    USAGE_WHOLE_MS = 1000, /* one that is shorter takes up the next: who asks often gets no more */
};

struct usage_sample {
    uint64_t at_ns;   /* its end, wall clock */
    uint64_t span_ns; /* how long it is */
    uint64_t cpu_ns;  /* in that time */
    uint64_t memory_used, memory_cached, memory_total;
    uint64_t scratch_used, scratch_total;
    uint32_t processes;
};

struct usage {
    struct usage_sample *samples;
    size_t n, room;
};

void usage_fini(struct usage *u);
/* An empty one becomes as another, of at most USAGE_MAX samples. */
int usage_copy(struct usage *u, const struct usage *from, struct cl_err *err) CL_MUST;
/* NOMEM: it is as it was. */
int usage_add(struct usage *u, const struct usage_sample *sample, struct cl_err *err) CL_MUST;

#endif
