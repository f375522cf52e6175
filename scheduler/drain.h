/* scheduler/drain.h - workers that are drained: what is on them goes to others.
 *
 * That a worker is drained it says itself (WorkerLoad.draining), and remembers: so each scheduler
 * moves the units that it has, and one that is started anew goes on with that.  Jobs come to their
 * end by themselves.
 *
 * Owns:    nothing.
 * Thread:  the loop's; a look every second, while there is such a worker.
 */
#ifndef CL_SCHEDULER_DRAIN_H
#define CL_SCHEDULER_DRAIN_H

#include "scheduler/sched_priv.h"

/* Some worker is drained: look at once what can go. */
void drain_soon(struct sched *s);
/* sched.moves: the same, and again in a second. */
void on_drain_look(void *sched);
/* A worker takes work, or has a template, that did not before: what waited for such a one, and lost
 * nothing by its last try, is tried at once. */
void drain_place_came(struct sched *s);
/* It could not be moved away from its worker, and what that has cost: so it is tried again soon, or
 * not so soon. */
enum drain_cost { DRAIN_COST_NOTHING, DRAIN_COST_BYTES, DRAIN_COST_PAUSE };
void drain_stuck(struct unit *u, const struct cl_err *why, enum drain_cost cost);

/* pause.c: pause a sandbox, if it runs, and move it to another worker; if it ran it goes on, there
 * or here.  drain_stuck() hears of what goes wrong, drain_soon() of the end. */
void unit_move_away(struct unit *u);
bool unit_is_moving_away(const struct unit *u);

#endif
