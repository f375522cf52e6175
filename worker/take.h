/* worker/take.h - a kept sandbox that this worker takes from another one.
 *
 *   take_new() ─ record ─► `missing` ─ file, data ..., end ─► `taken` ─ `moved` ─► it is ours
 *       └───────────────────────┴─ take_free(): nothing stays      └─ take_free(): the books decide
 *
 * What it consists of is written where a worker keeps such things, and the record last: what there
 * is of it before is swept away by the next start, as files that no record names.
 * Once it is taken the unit is PAUSED and tentative: it may be the other worker's still.  Without
 * `moved` its lease is asked for as any other's: that it holds makes it ours at once, that it does
 * not counts after TAKE_SETTLE_S only, when the books cannot be about to give it to us any more.
 *
 * Owns:    its record, the files until the unit does.
 * Borrows: the units, which it is known to.
 * Thread:  the worker loop.  A piece is written to the page cache when it comes; nothing is synced,
 *          as nothing is of what is paused here.
 */
#ifndef CL_WORKER_TAKE_H
#define CL_WORKER_TAKE_H

#include "worker/unit.h"

enum { TAKE_SETTLE_S = 30 }; /* longer than books are away while a scheduler is started anew */

struct take;

/* UNAVAILABLE or QUOTA when it cannot be here, STATE when something newer is.  wake: called when
 * one that has waited may go on, from inside of another's end: take_go_on(). */
int take_new(struct units *us, const Cloche__V1__OpenRelay *what, const struct unit_waiter *wake,
             struct take **ret_take, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void take_free(struct take *take);
/* What the scheduler says.  1: *ret_answer is to be sent, and lives until the next call.  What is
 * missing of it is not said while another one brings the memory that both were made of. */
int take_told(struct take *take, const Cloche__V1__RelayResponse *m,
              Cloche__V1__RelayRequest *ret_answer, struct cl_err *err) CL_MUST;
/* The same, of one that has waited; 0 of others, or when it waits on. */
int take_go_on(struct take *take, Cloche__V1__RelayRequest *ret_answer, struct cl_err *err) CL_MUST;
/* NULL before `taken` is to be said; from then on its owner holds it. */
struct unit *take_unit(const struct take *take);
/* It is this worker's. */
bool take_is_over(const struct take *take);

#endif
