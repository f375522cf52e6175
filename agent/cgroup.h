/* agent/cgroup.h - the guest's control groups: what user code may take together.
 *
 *   /            the agent
 *   /user        memory.max = all but a reserve: the OOM killer looks for victims in here only
 *   /user/run    pids.max: a fork bomb meets it
 *   /user/run/exec-N   one exec: killed, measured and blamed as a whole
 *   /user/files  helpers of file streams; outside of run, so that a fork bomb cannot stop them
 *
 * The hierarchy is mounted nowhere: the agent holds it by fd, and user code cannot see it.
 */
#ifndef CL_AGENT_CGROUP_H
#define CL_AGENT_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/thrash.h"
#include "base/err.h"
#include "base/util.h"

enum {
    CGROUP_PIDS_DEFAULT = 256,
    CGROUP_AGENT_RESERVE = 32 * 1024 * 1024, /* 64 windows of stdin, the buffers, the kernel */
};

struct cgroups {
    int run_fd;   /* owned */
    int files_fd; /* owned */
    int user_fd;  /* owned */
};

int cgroups_open(struct cgroups *ret_groups, struct cl_err *err) CL_MUST;
int cgroups_limit_pids(const struct cgroups *groups, uint32_t pids, struct cl_err *err) CL_MUST;
/* Tasks of user code. */
uint32_t cgroups_count_pids(const struct cgroups *groups);
uint64_t cgroups_cpu_ns(const struct cgroups *groups);

/* Make exec-<id>; *ret_fd is its folder, for clone3() and the calls below. */
int cgroup_make(const struct cgroups *groups, uint64_t id, int *ret_fd, struct cl_err *err) CL_MUST;
/* The kernel's number for it; 0 = none. */
uint64_t cgroup_id(int fd);
/* Kill all its members, also those that left their session. */
void cgroup_kill(int fd);
/* False while members are still dying. */
bool cgroup_remove(const struct cgroups *groups, uint64_t id);
bool cgroup_had_oom(int fd);
uint64_t cgroup_cpu_ns(int fd);
uint64_t cgroup_peak_bytes(int fd);
uint64_t cgroup_anon_bytes(int fd);
/* What all user code has, as thrash_is_on() wants it. */
struct thrash_look cgroups_look(const struct cgroups *groups);
/* Its fd has POLLPRI, at most once in THRASH_WINDOW_US, when some task of user code stood still for
 * want of memory for THRASH_STALL_US of them.  Documentation/accounting/psi.rst. */
int cgroups_watch_pressure(const struct cgroups *groups, int *ret_fd, struct cl_err *err) CL_MUST;

#endif
