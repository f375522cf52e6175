/* scheduler/scheduler.h - the process cloche-scheduler, put together.
 *
 * Owns:    the servers, the books' connection, the audit producer and all soft state.
 * Thread:  its loop.
 */
#ifndef CL_SCHEDULER_SCHEDULER_H
#define CL_SCHEDULER_SCHEDULER_H

#include "base/loop.h"
#include "scheduler/options.h"

struct sched;

/* Options must outlive it. */
int sched_new(struct cl_loop *loop, const struct sched_options *options, struct sched **ret_sched,
              struct cl_err *err) CL_MUST;
/* SIGHUP: load the certificates again; new connections use them.  On an error nothing changes. */
int sched_reload(struct sched *s, struct cl_err *err) CL_MUST;
/* Stop accepting, let calls finish that nobody can go on with elsewhere, let another lead; done
 * runs then, or after nine seconds. */
void sched_stop(struct sched *s, void (*done)(void *arg), void *arg);
/* Did the loop end because this scheduler could not go on?  -1 says why. */
int sched_check(const struct sched *s, struct cl_err *err) CL_MUST;
void sched_free(struct sched *s);

#endif
