/* agent/helper.c - see agent/helper.h. */
#include "agent/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"

enum { KEEP_MAX = 4 };

void helper_close_all_but(const int *keep, size_t n)
{
    int sorted[KEEP_MAX];
    CL_ASSERT(n <= KEEP_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t k = i;
        for (; k > 0 && sorted[k - 1] > keep[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = keep[i];
    }
    unsigned from = 0;
    for (size_t i = 0; i < n; i++) {
        if (sorted[i] < 0)
            continue;
        if ((unsigned)sorted[i] > from)
            (void)close_range(from, (unsigned)sorted[i] - 1, 0);
        from = (unsigned)sorted[i] + 1;
    }
    (void)close_range(from, ~0u, 0);
}

_Noreturn static void run(const struct helper_job *job)
{
    int keep[] = {job->keep[0], job->keep[1], job->userns_fd};
    helper_close_all_but(keep, CL_COUNT(keep));
    int adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0) {
        (void)!write(adj, "0", 1); /* the agent's own -1000 was inherited */
        (void)close(adj);
    }
    (void)signal(SIGPIPE, SIG_DFL); /* who writes for nobody may stop */
    (void)umask(0);
    if (person_become(job->who, job->userns_fd) < 0)
        _exit(1);
    (void)close(job->userns_fd);
    job->fn(job->arg);
    _exit(0);
}

int helper_spawn(const struct helper_job *job, pid_t *ret_pid, int *ret_pidfd, struct cl_err *err)
{
    int pidfd = -1;
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (unsigned)job->cgroup_fd,
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        return cl_fail(err, CL_E_SYS, errno, "start a helper");
    if (pid == 0)
        run(job);
    *ret_pid = (pid_t)pid;
    *ret_pidfd = pidfd;
    return 0;
}

bool helper_reap(pid_t *pid, int *pidfd)
{
    siginfo_t info = {0};
    if (*pid == 0)
        return true;
    if (waitid(P_PIDFD, (id_t)*pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return false;
    *pid = 0;
    cl_closep(pidfd);
    return true;
}
