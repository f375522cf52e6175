/* scheduler/place.h - which worker a unit goes to, and what room that leaves; in workers.c.
 *
 * Owns:    nothing.  Room is soft state: a worker's report, and what was sent or promised since.
 * Thread:  the scheduler's loop.
 */
#ifndef CL_SCHEDULER_PLACE_H
#define CL_SCHEDULER_PLACE_H

#include "scheduler/sched_priv.h"

/* False when there are workers, and none whose guests are as separate as this tenant wants. */
bool worker_any_for(struct sched *s, const struct tenant *t);
/* Some worker gives its VMs network, or none is connected. */
bool worker_any_network(struct sched *s);
/* The best worker with room, or NULL.  need: BOOKS_DIM_NR numbers; egress means network. */
struct worker *worker_place(struct sched *s, const struct tenant *t, const char *template,
                            const uint64_t *need);
/* The same for a copy of the sandbox `of`: its worker, or NULL. */
struct worker *worker_place_fork(struct sched *s, const struct tenant *t, const char *of,
                                 const uint64_t *need);
/* Where a paused sandbox can move to: of the workers that could have it the one that suits it best
 * but `skip`; NULL = there are no more.  runs: with room for it to go on. */
struct worker *worker_place_move(const struct unit *u, bool runs, unsigned skip);
/* Whose warm VM a unit takes: its template's; "" = it is a copy, and takes none. */
const char *worker_warm_template(const Cloche__V1__UnitRecord *record);
/* Count room and a warm VM as used before the worker's next report says so, so that the next unit
 * does not see them; and count the room back when the unit did not get there.  An unknown worker is
 * a no-op. */
void worker_room_take(struct worker *w, const struct tenant *tenant, const char *template,
                      const uint64_t *need);
void worker_room_return(struct sched *s, const char *worker_id, const uint64_t *need);
/* Room that was taken for what is no unit yet. */
struct room_promise {
    struct cl_list link;
    const char *worker, *template; /* borrowed, as the others: while it is linked */
    const struct tenant *tenant;
    const uint64_t *need;
};
/* On top of a new report of its: what was promised or sent and is in no report yet. */
void worker_count_pending(struct worker *w);

#endif
