/* worker/fork.h - from a machine to a second one that was it until a moment ago.
 *
 *   (seed) ─► (disk) ─► (machine starts, or comes to rest) ─► answered
 *      └─────────┴───────────┴─ failed ─────────┘
 *
 * Owns:    what it has of the copy until it is answered.  Borrows the machine that is copied only
 * while a seed is made, and hears of its end. Thread:  the worker loop.  fn runs once, never inside
 * a call of this module.
 */
#ifndef CL_WORKER_FORK_H
#define CL_WORKER_FORK_H

#include "worker/machine.h"

struct fork;

/* A machine that is READY, to be claimed, or AT_REST; or NULL and why. */
typedef void fork_fn(void *arg, struct machine *machine, const struct cl_err *err);

struct fork_spec {
    struct machine *of; /* NULL: it is answered with why_not */
    struct cl_err why_not;
    const char *moment; /* as of struct machine_copy */
    bool rests;         /* it never runs */
    fork_fn *fn;
    void *arg;
};

int fork_start(struct cl_loop *loop, const struct fork_spec *spec, struct fork **ret_fork,
               struct cl_err *err) CL_MUST;
/* It is not answered any more. */
void fork_cancel(struct fork *f);

#endif
