/* worker/worker.h - the process cloche-worker, put together.
 *
 * Owns:    everything below: probe, driver, pool, units, session.
 * Thread:  its loop.
 */
#ifndef CL_WORKER_WORKER_H
#define CL_WORKER_WORKER_H

#include "base/loop.h"
#include "worker/options.h"

struct worker;

/* Options must outlive it.  Kills what an earlier worker left behind before it says Hello. */
int worker_new(struct cl_loop *loop, const struct worker_options *options,
               struct worker **ret_worker, struct cl_err *err) CL_MUST;
/* The options may have changed, and the certificate's files: take them over. */
int worker_reload(struct worker *w, struct cl_err *err) CL_MUST;
/* Take no more work, end every VM; `done` runs when all are gone. */
void worker_stop(struct worker *w, void (*done)(void *arg), void *arg);
void worker_free(struct worker *w);

#endif
