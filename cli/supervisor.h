/* cli/supervisor.h - the parent of an instance's processes: starts them in order, starts those that
 * crash again, ends them in reverse order.
 *
 *   STARTING --all sockets accept--> RUNNING --SIGTERM--> STOPPING --no child left--> DONE
 *       |  a child crashes 3 times before it is up           ^  | 10 s: SIGKILL
 *       +-----------------------------------------------------+
 *
 * Owns:    the lock RUN/supervisor.lock (held as long as it lives), RUN/supervisor.json, the
 * children. Thread:  its loop's. Children carry a death signal, so they end with it even when it is
 * killed.
 */
#ifndef CL_CLI_SUPERVISOR_H
#define CL_CLI_SUPERVISOR_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/plan.h"

/* Run until stopped; the lock is taken by the caller.  `ready_fd` (or -1) gets lines: "say TEXT",
 * "ready"; the caller tells a failure. */
int supervisor_run(const struct plan *plan, int ready_fd, struct cl_err *err) CL_MUST;
/* Say on ready_fd why there is no supervisor. */
void supervisor_tell_failure(int ready_fd, const struct cl_err *err);

/* 0 and the lock's fd, or -1 with STATE when somebody holds it. */
int supervisor_lock(const char *run_dir, int *ret_fd, struct cl_err *err) CL_MUST;
/* Is there a supervisor? */
bool supervisor_is_running(const char *run_dir);
/* What it wrote down; NULL when there is nothing.  The caller drops the reference. */
json_t *supervisor_state(const char *run_dir);

#endif
