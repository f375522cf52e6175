/* scheduler/creation.h - a sandbox or a snapshot that a call makes, until it is there: RUNNING, or,
 * of a snapshot, whole.
 *
 * Owns:    itself; its maker's from creation_new() to creation_drop().  Borrows the unit, which it
 *          follows.
 * Thread:  the loop's.  A client that leaves ends what it asked for, unless somebody else asked for
 *          it by the same idempotency key; by that key the next one is made.
 */
#ifndef CL_SCHEDULER_CREATION_H
#define CL_SCHEDULER_CREATION_H

#include "scheduler/submit.h"

/* Once: it is there, or, with err, it is not and will not be. */
typedef void creation_fn(void *arg, struct unit *u, const struct cl_err *err);
typedef void creation_reply_fn(struct api_call *a, const struct unit *u);

struct creation {
    struct follower f;  /* first */
    int refs;           /* its maker's, and its submission's */
    struct api_call *a; /* held */
    creation_fn *fn;    /* NULL once it was told, or dropped */
    void *arg;
    creation_reply_fn *reply; /* of creation_call() */
    /* For the maker to fill: what submit_spec.spec points to; borrowed from the request or what it
     * is a copy of, which is there until creation_submit() returns. */
    Cloche__V1__JobSpec spec;
    Cloche__V1__Resources resources; /* of a copy: its origin's */
    struct cl_timer kick;
    bool replayed; /* an earlier call with its idempotency key asked for the unit */
    bool dropped;
};

/* NULL when it failed, and so did the call. */
struct creation *creation_new(struct api_call *a, creation_fn *fn, void *arg);
/* As of `of`, but for what only one unit can have: labels, names, time to live.  Its sizes, not
 * what its spec left open: that would be what the template has now. */
void creation_copy_spec(struct creation *c, const struct unit *of);
void creation_submit(struct creation *c, struct submit_spec *spec);
/* Its maker is done with it; `leaves`: and wants what it made no more.  NULL = nothing. */
void creation_drop(struct creation *c, bool leaves);

/* One that is all that its call does, and the call's state: it is answered by `reply`, or fails. */
struct creation *creation_call(struct api_call *a, creation_reply_fn *reply);
/* on_gone of such a method. */
void creation_gone(struct api_call *a, const struct cl_err *why);

#endif
