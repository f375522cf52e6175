/* agent/helper.h - a child of the agent that works with a user's rights: file operations, sweeping.
 *
 * It lives in the cgroup /user/files, so its memory counts as user code's and a fork bomb cannot
 * keep it from starting.
 */
#ifndef CL_AGENT_HELPER_H
#define CL_AGENT_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent/person.h"
#include "base/err.h"
#include "base/util.h"

/* Runs in the child, with the rights of its user; must not return. */
typedef void helper_fn(void *arg);

struct helper_job {
    int cgroup_fd, userns_fd; /* borrowed: the agent's */
    const struct person *who;
    int keep[2]; /* fds that the child keeps; -1 = none; all others are closed in it */
    helper_fn *fn;
    void *arg;
};

int helper_spawn(const struct helper_job *job, pid_t *ret_pid, int *ret_pidfd,
                 struct cl_err *err) CL_MUST;
/* Reap without waiting; true once it is gone, and *pid is 0, *pidfd closed. */
bool helper_reap(pid_t *pid, int *pidfd);
/* Close every fd but those. */
void helper_close_all_but(const int *keep, size_t n);

#endif
