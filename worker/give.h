/* worker/give.h - a kept sandbox that this worker gives to another one.
 *
 *   give_new() ─ record ─► `missing` ─ file, data ..., end ─► `moved`: nothing of it stays
 *       └───────────────────────┴──────────────────────┴─ give_free(): it stays
 *
 * Until `moved` it is this worker's, and rests: it is not resumed meanwhile.
 *
 * Owns:    the record, the file that is read.
 * Borrows: the unit, which its owner holds.
 * Thread:  the worker loop.  A piece is read when it is asked for.
 */
#ifndef CL_WORKER_GIVE_H
#define CL_WORKER_GIVE_H

#include "worker/unit.h"

struct give;

/* STATE when it is not paused or its lease is another, UNAVAILABLE when it does not outlive this
 * worker or is being moved already. */
int give_new(struct unit *u, const Cloche__V1__RelayGive *what, struct give **ret_give,
             struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void give_free(struct give *give);
/* What the scheduler says. */
int give_told(struct give *give, const Cloche__V1__RelayResponse *m, struct cl_err *err) CL_MUST;
/* 1: *ret_piece is to be sent, and lives until the next call.  0: nothing, until more is told. */
int give_next(struct give *give, Cloche__V1__MovePiece *ret_piece, struct cl_err *err) CL_MUST;
/* The other worker has it, and nothing of it is here any more. */
bool give_is_over(const struct give *give);

#endif
