/* worker/stop.h - what becomes of a worker's units when it is stopped.
 *
 *   a sandbox that runs ─► paused, a few at a time ─► its scheduler knows ─► left to the next
 * worker └─ not to be paused, or not in time ─► ended, as jobs are
 *
 * Owns:    its timer, and a struct for each pause under way.  Borrows the units and the session.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_STOP_H
#define CL_WORKER_STOP_H

#include "worker/session.h"

enum {
    STOP_PAUSE_S =
        20,          /* all pauses together; without it a guest could keep its worker from ending */
    STOP_TELL_S = 5, /* for the scheduler's answer */
    STOP_AT_ONCE = 4, /* pauses: each may hold a copy of its sandbox's memory */
};

struct stop {
    struct cl_loop *loop;
    struct units *units;
    struct session *session;
    bool pauses; /* the sandboxes that run */
    /* The VMs may still be about to go. */
    void (*done)(void *arg);
    void *arg;
    struct cl_timer tick;
    uint64_t began_ns, told_ns;
    unsigned n_pausing;
};

/* All but the last four are the caller's to fill in.  It lives until stop_fini(). */
int stop_begin(struct stop *stop, struct cl_err *err) CL_MUST;
void stop_fini(struct stop *stop);

#endif
