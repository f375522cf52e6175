/* agent/exec_init.c - see agent/exec_init.h. */
#include "agent/exec_init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/helper.h"
#include "base/util.h"

enum { OPEN_FILES_SOFT = 1024, OPEN_FILES_HARD = 65536, FRAMES_FD = 3 };

struct start_failure {
    int32_t step, error;
};

static void report(const struct exec_plan *plan, struct exec_report report)
{
    (void)send(plan->ctl, &report, sizeof report, MSG_NOSIGNAL);
}

_Noreturn static void fail_start(int fd, enum exec_step step, int error)
{
    struct start_failure failure = {.step = (int32_t)step, .error = error};
    (void)!write(fd, &failure, sizeof failure);
    _exit(127);
}

/* --- the command ------------------------------------------------------------------------------ */

/* The exec resets what the agent handles, but not what it ignores. */
static void reset_signals(void)
{
    (void)signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void set_limits(void)
{
    struct rlimit core = {0, 0}, files = {OPEN_FILES_SOFT, OPEN_FILES_HARD};
    (void)setrlimit(RLIMIT_CORE, &core);
    (void)setrlimit(RLIMIT_NOFILE, &files);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "0", 1); /* the agent's own -1000 was inherited */
        (void)close(fd);
    }
}

/* Everything else from 3 on closes at the exec.  *fail_fd moves when it is in the way. */
static int pass_frames(const struct exec_plan *plan, int *fail_fd)
{
    if (plan->frames < 0)
        return close_range(FRAMES_FD, ~0u, CLOSE_RANGE_CLOEXEC);
    if (*fail_fd == FRAMES_FD)
        *fail_fd = fcntl(*fail_fd, F_DUPFD_CLOEXEC, FRAMES_FD + 1);
    int rc =
        plan->frames == FRAMES_FD ? fcntl(FRAMES_FD, F_SETFD, 0) : dup2(plan->frames, FRAMES_FD);
    return rc < 0 ? -1 : close_range(FRAMES_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC);
}

struct command {
    const struct exec_plan *plan;
    int fail_fd; /* for a struct start_failure; closes at the exec */
};

_Noreturn static void run_command(const struct exec_plan *plan, int fail_fd)
{
    (void)setsid();
    for (int fd = 0; fd <= 2; fd++)
        if (dup2(plan->stdio[fd], fd) < 0)
            fail_start(fail_fd, EXEC_STEP_TERMINAL, errno);
    if (plan->is_pty && ioctl(0, TIOCSCTTY, 0) < 0)
        fail_start(fail_fd, EXEC_STEP_TERMINAL, errno);
    set_limits();
    reset_signals();
    (void)sched_setscheduler(0, SCHED_OTHER, &(const struct sched_param){0});
    (void)umask(022);
    int rc = person_become(plan->who, plan->userns_fd);
    if (rc < 0)
        fail_start(fail_fd, EXEC_STEP_PERSON, -rc);
    (void)mkdir(plan->tmpdir, 0700); /* when /tmp is spoilt, programs find out by themselves */
    if (chdir(plan->cwd) < 0)
        fail_start(fail_fd, EXEC_STEP_CWD, errno);
    if (pass_frames(plan, &fail_fd) < 0)
        fail_start(fail_fd, EXEC_STEP_TERMINAL, errno);
    rc = tier_apply(plan->tier);
    if (rc < 0)
        fail_start(fail_fd, EXEC_STEP_FILTER, -rc);
    environ = plan->envp;
    (void)execvp(plan->argv[0], plan->argv); /* looks along the PATH that was just set */
    fail_start(fail_fd, EXEC_STEP_COMMAND, errno);
}

static int begin_command(void *arg)
{
    const struct command *command = arg;
    run_command(command->plan, command->fail_fd);
}

/* In this process' memory, and this process waits until the exec: no page tables are copied, and
 * no page is written a second time.  Nothing but memory is shared. */
static pid_t start_command(struct command *command)
{
    static _Alignas(16) char stack[64 * 1024];
    return clone(begin_command, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, command);
}

/* --- process 1 -------------------------------------------------------------------------------- */

static uint64_t timeval_ns(struct timeval t)
{
    return (uint64_t)t.tv_sec * CL_NS_PER_S + (uint64_t)t.tv_usec * CL_NS_PER_US;
}

/* Reap all that ended; when the command is among them report it and end everything. */
static void reap(const struct exec_plan *plan, pid_t command)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return;
        if (pid != command)
            continue;
        struct rusage usage;
        (void)getrusage(RUSAGE_CHILDREN, &usage);
        report(plan, (struct exec_report){
                         .kind = EXEC_REPORT_EXITED,
                         .a = status,
                         .cpu_ns = timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime),
                         .peak_bytes = (uint64_t)usage.ru_maxrss * CL_KIB,
                     });
        _exit(0);
    }
}

static void pass_signal(const struct exec_plan *plan, pid_t command)
{
    int32_t signo;
    ssize_t n = recv(plan->ctl, &signo, sizeof signo, MSG_DONTWAIT);
    if (n == 0)
        _exit(0); /* the agent gave this exec up */
    if (n != (ssize_t)sizeof signo)
        return;
    if (signo > 0 && signo < NSIG)
        (void)kill(-command, signo);
    if (signo < 0 && signo > -NSIG)
        (void)kill(command, -signo);
}

_Noreturn static void serve(const struct exec_plan *plan, pid_t command, int signal_fd)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                           {.fd = plan->ctl, .events = POLLIN}};
    for (;;) {
        reap(plan, command);
        (void)poll(fds, CL_COUNT(fds), -1);
        struct signalfd_siginfo info;
        if (fds[0].revents)
            (void)!read(signal_fd, &info, sizeof info);
        if (fds[1].revents)
            pass_signal(plan, command);
    }
}

/* What the agent's mounts show of processes must be those of this namespace. */
static int mount_own_proc(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || umount2("/proc", MNT_DETACH) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -errno;
    return 0;
}

_Noreturn static void give_up(const struct exec_plan *plan, enum exec_step step, int error)
{
    report(plan, (struct exec_report){.kind = EXEC_REPORT_FAILED, .a = (int32_t)step, .b = error});
    _exit(0);
}

_Noreturn void exec_init_run(const struct exec_plan *plan)
{
    (void)prctl(PR_SET_NAME, "exec-init");
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    int rc = mount_own_proc();
    if (rc < 0)
        give_up(plan, EXEC_STEP_NAMESPACES, -rc);
    int fail[2];
    int signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0 || pipe2(fail, O_CLOEXEC) < 0)
        give_up(plan, EXEC_STEP_FORK, errno);
    struct command start = {.plan = plan, .fail_fd = fail[1]};
    pid_t command = start_command(&start);
    if (command < 0)
        give_up(plan, EXEC_STEP_FORK, errno);
    (void)close(fail[1]);
    struct start_failure failure;
    if (read(fail[0], &failure, sizeof failure) == (ssize_t)sizeof failure)
        give_up(plan, (enum exec_step)failure.step, failure.error);
    int keep[] = {plan->ctl, signal_fd}; /* init does not exec, so O_CLOEXEC is no help */
    helper_close_all_but(keep, CL_COUNT(keep));
    report(plan, (struct exec_report){.kind = EXEC_REPORT_STARTED, .a = command});
    serve(plan, command, signal_fd);
}
