/* agent/waits.h - what the loop sleeps for: the fds and the nearest deadline of one turn.
 *
 * Rebuilt every turn; nothing is owned.
 */
#ifndef CL_AGENT_WAITS_H
#define CL_AGENT_WAITS_H

#include <poll.h>
#include <stdint.h>

#include "agent/gate.h"
#include "base/err.h"

enum {
    WAITS_CONTEXTS = 16 * 6, /* CONTEXTS_MAX, the fds of each */
    WAITS_SENSOR = 2,        /* a ring each */
    /* Their directions; beside them there may be execs that were reset and have not ended. */
    WAITS_DIALS = GATE_STREAMS_MAX * 2,
    WAITS_MAX = 2 + GATE_STREAMS_MAX * 5 + WAITS_DIALS + WAITS_CONTEXTS + WAITS_SENSOR,
};

struct waits {
    struct pollfd fds[WAITS_MAX];
    size_t n;
    uint64_t deadline_ns; /* UINT64_MAX = none */
};

static inline void waits_add(struct waits *w, int fd, short events)
{
    CL_ASSERT(w->n < CL_COUNT(w->fds));
    w->fds[w->n++] = (struct pollfd){.fd = fd, .events = events};
}

static inline void waits_until(struct waits *w, uint64_t deadline_ns)
{
    w->deadline_ns = CL_MIN(w->deadline_ns, deadline_ns);
}

#endif
