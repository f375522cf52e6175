/* scheduler/ends.h - the ends of units, until the audit log has them.
 *
 *   the books note an end ─► the log is told ─► it says that it has it ─► so do the books
 *
 * A scheduler that dies on the way leaves the end to the next one, which tells the log what the
 * books have: unit.end is there once at least, and has `recovered` where it may be there twice.
 *
 * Owns:    the names of the units on their way, each from its telling on.
 * Limit:   as many as the audit producer keeps, and ENDS_MAX that the books are to hear of; those
 *          beyond are told once more by the next scheduler.
 * Thread:  the loop's.
 */
#ifndef CL_SCHEDULER_ENDS_H
#define CL_SCHEDULER_ENDS_H

#include "scheduler/sched_priv.h"

struct ends;

/* It outlives the audit producer, and the books. */
int ends_new(struct sched *s, struct ends **ret_ends, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void ends_free(struct ends *ends);
/* The books have noted it: u->terminal. */
void ends_tell(struct unit *u);
/* They had when this process began. */
void ends_tell_recovered(struct sched *s, const struct books_unit *row);
/* What the log has by now the books hear of before any later call. */
void ends_flush(struct ends *ends);

/* As the log and the metrics have them; never NULL. */
const char *outcome_name(Cloche__V1__Outcome outcome);
const char *reason_name(Cloche__V1__Reason reason);

#endif
