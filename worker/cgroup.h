/* worker/cgroup.h - one cgroup per VM on the host, v2 or v1 (where that is what is mounted).
 *
 * Owns:    the folders it makes; an empty one is removed at fini.
 * Thread:  the worker loop (a few short writes).
 * Without the right to make cgroups (an ordinary user) n is 0: `doctor` says what that costs.
 */
#ifndef CL_WORKER_CGROUP_H
#define CL_WORKER_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"

enum { CGROUP_DIRS = 4, CGROUP_PATH = 256 };

/* Where this worker's cgroups live; found once. */
struct cgroup_root {
    bool v2;
    int n;
    char dirs[CGROUP_DIRS][CGROUP_PATH]; /* one a hierarchy, as /sys/fs/cgroup/memory/cloche/NAME */
};

struct cgroup_limits {
    uint64_t memory_bytes; /* guest RAM and the monitor's own */
    uint32_t pids;
    uint32_t cpus; /* whole CPUs */
};

struct cgroup {
    int n;
    char dirs[CGROUP_DIRS][CGROUP_PATH];
};

/* Find or make the root for `instance`.  Never fails: n == 0 says that there is none. */
void cgroup_root_open(const char *instance, struct cgroup_root *ret_root);
/* Remove those of VMs (vm-…) in which nothing is: a worker that was killed soon after its VM left
 * no other trace of them, and on a busy host the last process takes its time to go. */
void cgroup_root_sweep(const struct cgroup_root *root);
/* Sweep, and remove the root itself unless something is in it. */
void cgroup_root_close(const struct cgroup_root *root);
int cgroup_make(const struct cgroup_root *root, const char *name,
                const struct cgroup_limits *limits, struct cgroup *ret_cgroup,
                struct cl_err *err) CL_MUST;
/* Move a process into it; a VM without cgroups (n == 0) has nothing to join. */
int cgroup_join(const struct cgroup *cg, pid_t pid, struct cl_err *err) CL_MUST;
/* True when no process is left in it. */
bool cgroup_is_empty(const struct cgroup *cg);
/* Kill what is in it. */
void cgroup_kill(const struct cgroup *cg);
/* Remove it; false while something is still in it. */
bool cgroup_remove(const struct cgroup *cg);

#endif
