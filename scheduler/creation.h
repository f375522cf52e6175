/* scheduler/creation.h - a call that makes a sandbox or a snapshot, and is answered once that is
 * there: RUNNING, or, of a snapshot, whole.
 *
 * Owns:    itself; it is the call's state from creation_new() on.  Borrows the unit, which it
 *          follows.
 * Thread:  the loop's.  A client that leaves ends what it asked for, unless somebody else asked for
 *          it by the same idempotency key; by that key the next one is made.
 */
#ifndef CL_SCHEDULER_CREATION_H
#define CL_SCHEDULER_CREATION_H

#include "scheduler/submit.h"

struct creation {
    struct follower f;  /* first */
    struct api_call *a; /* held */
    void (*reply)(struct api_call *a, const struct unit *u);
    /* For the caller to fill: what submit_spec.spec points to; borrowed from the request or what it
     * is a copy of, which is there until creation_submit() returns. */
    Cloche__V1__JobSpec spec;
    Cloche__V1__Resources resources; /* of a copy: its origin's */
    struct cl_timer kick;
    bool replayed; /* an earlier call with its idempotency key asked for the unit */
};

/* NULL when it failed, and so did the call. */
struct creation *creation_new(struct api_call *a,
                              void (*reply)(struct api_call *a, const struct unit *u));
/* As of `of`, but for what only one unit can have: labels, names, time to live.  Its sizes, not
 * what its spec left open: that would be what the template has now. */
void creation_copy_spec(struct creation *c, const struct unit *of);
void creation_submit(struct creation *c, struct submit_spec *spec);
/* on_gone of its method. */
void creation_gone(struct api_call *a, const struct cl_err *why);

#endif
