/* scheduler/lead.h - does this scheduler lead, or stand by for the one that does?
 *
 *   STANDING_BY ─► LEADING ─► OVER: it resigned, or another leads; the process ends
 *
 * Of the schedulers of a group (--lead-group) on one Redis one leads.  The others have bound their
 * addresses and do not listen: who connects is refused and tries the next address of its list.
 * What makes it safe is in redis/books_lead.h: the books refuse what a deposed one says.  The other
 * half is speed: a leader that resigns is followed at the next look, one that has died on this host
 * is seen to be dead (base/proc.h), and any other is followed when its time runs out (--lead-ttl).
 *
 * Owns:    a struct lead, one a scheduler.
 * Thread:  the loop's.
 */
#ifndef CL_SCHEDULER_LEAD_H
#define CL_SCHEDULER_LEAD_H

#include "scheduler/sched_priv.h"

int lead_new(struct sched *s, struct lead **ret_lead, struct cl_err *err) CL_MUST;
void lead_free(struct lead *lead);
/* Ask the books at once: they can be asked again, or say that our term is over. */
void lead_look(struct lead *lead);
bool lead_is_ours(const struct lead *lead);
/* Let another lead; done runs when the books know, or cannot be told. */
void lead_resign(struct lead *lead, void (*done)(void *arg), void *arg);

/* sched_io.c: the term has begun, or goes on after an absence of the books: read them. */
void sched_begin(struct sched *s);
/* They are read: serve.  Not before: who asks for a unit would hear that there is none. */
void sched_serve(struct sched *s);
/* Nothing that this process says counts any more: end it. */
void sched_fail(struct sched *s, const struct cl_err *why);

#endif
