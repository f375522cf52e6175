/* worker/guard_seccomp.c - see worker/guard_seccomp.h. */
#include "worker/guard_seccomp.h"

static const struct cl_filter_row rows[] = {
    CL_CALL(poll, "waits for the VM, the deadline, the worker"),
    CL_CALL(restart_syscall, "a stopped and continued wait"),
    CL_CALL(recvfrom, "messages of the worker"),
    CL_CALL(sendto, "messages to the worker"),
    CL_CALL(timerfd_settime, "a new deadline"),
    CL_CALL(wait4, "reaps the VM and what it left"),
    CL_CALL(kill, "ends the VM and its cgroup"),
    CL_CALL(openat, "cgroup.kill, cgroup.procs"),
    CL_CALL(read, "cgroup.procs"),
    CL_CALL(write, "cgroup.kill"),
    CL_CALL(close, "cgroup files"),
    CL_CALL(rt_sigreturn, "SIGTERM asks for the end"),
    CL_CALL(exit_group, "the end"),
};

const struct cl_filter_profile guard_profiles[1] = {{"cloche-guard", rows, CL_COUNT(rows)}};
