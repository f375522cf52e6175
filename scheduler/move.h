/* scheduler/move.h - a paused sandbox goes from its worker to another one.
 *
 *   Relay{take} ─► Relay{give} ─► pieces ─► taken ─► the books ─► both hear `moved` ─► done
 *        └──────────────┴───────────┴─────────┴──────────┴─► failed: it is where it was
 *
 * Nothing of it is at two places in the books: its lease there, with a new fence, is noted in one
 * step (redis/books.h), and until then the worker that gives is the one.  What became of the other
 * end each worker finds out by itself, if nobody tells it: by the lease that it asks for.
 *
 * Owns:    a move, from move_begin() until both of its relays are over.
 * Borrows: the unit, until move_abandon().
 * Limit:   what waits of one here is what two calls may queue (rpc/): a taker that is full stops
 *          the giver.
 * Thread:  the loop's.
 */
#ifndef CL_SCHEDULER_MOVE_H
#define CL_SCHEDULER_MOVE_H

#include "scheduler/sched_priv.h"

struct move;

/* why NULL: it is on the other worker now, which can be asked to resume it.  Once, and never inside
 * move_begin(). */
typedef void move_done_fn(void *arg, const struct cl_err *why);

/* u: PAUSED and kept, and nobody changes that before `done`. */
int move_begin(struct unit *u, struct worker *to, move_done_fn *done, void *arg,
               struct move **ret_move, struct cl_err *err) CL_MUST;
/* The unit has ended; `done` does not come any more. */
void move_abandon(struct move *m);
/* Of a unit that has `moving`: nobody knows whose it is, so its worker's word on its end counts
 * once the books have answered. */
void move_note_end(struct move *m, const Cloche__V1__UnitEnded *ended);

/* units.c: what a worker is told of a unit, at first or when it takes one; borrows from the unit.
 */
struct assignment {
    Cloche__V1__Assign m;
    Cloche__V1__Resources resources;
    Cloche__V1__NetworkGrant grant;
};
void unit_assignment(const struct unit *u, struct assignment *o);
/* units.c: vCPUs and memory that it has or, a snapshot, that its copies have; the disk it asked
 * for.
 */
void unit_sizes(const struct unit *u, Cloche__V1__Resources *ret);

#endif
