/* worker/guard_main.c - cloche-guard: parent of one VM, and its end when the lease runs out.
 *
 * Usage: cloche-guard CONTROL_FD UID GID FLAGS CGROUP[:CGROUP…] -- COMMAND…
 *   FLAGS   letters: n namespaces, u a user namespace, c change uid, k /dev/kvm,
 *           b bare (COMMAND is a static program that opens no file); "-" for none
 * Owns:    the VM's process and its cgroups' members.
 * Never allocates after start, never reads a byte that the guest could have written.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "worker/guard.h"
#include "worker/guard_seccomp.h"
#include "worker/jail.h"

enum { GUARD_NOFILE = 64 };

struct guard {
    struct jail jail;
    int control; /* owned; -1 once the worker is gone */
    int timer;   /* owned */
    int vm_fd;   /* owned: pidfd */
    pid_t vm, self;
    enum guard_cause cause;
};

static void tell(struct guard *g, enum guard_message_type type, uint32_t detail, uint64_t value)
{
    struct guard_message m = {.type = type, .detail = detail, .value = value};
    if (g->control >= 0 && send(g->control, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno != EAGAIN)
        g->control = -1; /* the worker is gone; its restarted self reads our state file */
}

static void arm(struct guard *g, uint64_t deadline_ns)
{
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(deadline_ns / CL_NS_PER_S),
                                         .tv_nsec = (long)(deadline_ns % CL_NS_PER_S)}};
    if (timerfd_settime(g->timer, TFD_TIMER_ABSTIME, &at, NULL) < 0)
        g->cause = GUARD_CAUSE_DEADLINE; /* a deadline we cannot keep has passed */
}

/* A file of a cgroup.  open() of some libraries makes a call more than this one. */
static int open_in(const char *cgroup, const char *name, int flags)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", cgroup, name);
    return openat(AT_FDCWD, path, flags | O_CLOEXEC);
}

/* `procs` is the kernel's: a number a line. */
static void kill_each(const struct guard *g, int procs)
{
    char text[4096];
    pid_t pid = 0;
    for (ssize_t n; (n = read(procs, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = pid * 10 + (text[i] - '0');
                continue;
            }
            if (pid > 1 && pid != g->self)
                (void)kill(pid, SIGKILL);
            pid = 0;
        }
    }
}

/* Everything in the cgroups, also what left the process group. */
static void kill_cgroups(const struct guard *g)
{
    for (int i = 0; i < g->jail.n_cgroups; i++) {
        CL_AUTO(cl_closep) int all = open_in(g->jail.cgroups[i], "cgroup.kill", O_WRONLY);
        if (all >= 0 && write(all, "1", 1) == 1)
            continue;
        CL_AUTO(cl_closep) int procs = open_in(g->jail.cgroups[i], "cgroup.procs", O_RDONLY);
        if (procs >= 0)
            kill_each(g, procs);
    }
}

static void kill_vm(struct guard *g, enum guard_cause cause)
{
    if (g->cause)
        return;
    g->cause = cause;
    (void)kill(g->vm, SIGKILL);
    (void)kill(-g->vm, SIGKILL);
    kill_cgroups(g);
}

static void on_control(struct guard *g)
{
    struct guard_message m;
    ssize_t n = recv(g->control, &m, sizeof m, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof m) {
        g->control = -1; /* the VM lives on until its deadline */
        return;
    }
    if (m.type == GUARD_DEADLINE)
        arm(g, m.value);
    else
        kill_vm(g, GUARD_CAUSE_KILLED); /* GUARD_KILL, or a worker that we do not understand */
}

static volatile sig_atomic_t asked_to_end;

static void on_term(int signo)
{
    (void)signo;
    asked_to_end = 1;
}

/* The first deadline is the order to start: by then a state file names us, so that a worker's
 * successor finds the VM.  A worker that dies before has none. */
static bool is_ordered(struct guard *g)
{
    struct guard_message m;
    ssize_t n;
    do
        n = recv(g->control, &m, sizeof m, 0);
    while (n < 0 && errno == EINTR && !asked_to_end);
    if (n != (ssize_t)sizeof m || m.type != GUARD_DEADLINE)
        return false;
    arm(g, m.value);
    return true;
}

/* Wait for the VM's end; returns its wait status. */
static int watch(struct guard *g)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = g->vm_fd, .events = POLLIN},
                               {.fd = g->timer, .events = POLLIN},
                               {.fd = g->control, .events = POLLIN}};
        int n = poll(fds, CL_COUNT(fds), -1);
        if (asked_to_end)
            kill_vm(g, GUARD_CAUSE_KILLED);
        if (n < 0)
            continue;
        int status;
        if (fds[0].revents && waitpid(g->vm, &status, WNOHANG) == g->vm)
            return status;
        if (fds[1].revents)
            kill_vm(g, GUARD_CAUSE_DEADLINE);
        if (fds[1].revents && g->cause) {
            struct itimerspec off = {0};
            (void)timerfd_settime(g->timer, 0, &off, NULL);
        }
        if (fds[2].revents)
            on_control(g);
    }
}

/* A bare jail has no path to its program, so that is opened before and started by its fd. */
static void start_program(const struct guard *g, int program, char **command)
{
    char *env[] = {NULL};
    if (g->jail.bare)
        (void)syscall(SYS_execveat, program, "", command, env, AT_EMPTY_PATH);
    else
        (void)execve(command[0], command, env);
}

static _Noreturn void run_vm(const struct guard *g, char **command)
{
    struct cl_err err = {0};
    int program = open(command[0], O_PATH | O_CLOEXEC);
    (void)setpgid(0, 0);
    if (jail_enter(&g->jail, &err) == 0) {
        start_program(g, program, command);
        (void)cl_fail(&err, CL_E_SYS, errno, "exec '%s'", command[0]);
    }
    (void)dprintf(STDERR_FILENO, "cloche-guard: %s\n", err.text);
    _exit(125);
}

static pid_t spawn(const struct guard *g, char **command)
{
    pid_t pid =
        (pid_t)syscall(SYS_clone, jail_clone_flags(&g->jail) | SIGCHLD, NULL, NULL, NULL, 0);
    if (pid == 0)
        run_vm(g, command);
    return pid;
}

static int parse_number(const char *s, unsigned *ret)
{
    char *end;
    unsigned long v = strtoul(s, &end, 10);
    *ret = (unsigned)v;
    return end == s || *end || v > UINT_MAX ? -1 : 0;
}

static int parse(struct guard *g, int argc, char **argv, char ***ret_command)
{
    unsigned control, uid, gid;
    if (argc < 8 || strcmp(argv[6], "--") != 0 || parse_number(argv[1], &control) < 0 ||
        parse_number(argv[2], &uid) < 0 || parse_number(argv[3], &gid) < 0)
        return -1;
    g->control = (int)control;
    g->jail = (struct jail){
        .uid = uid,
        .gid = gid,
        .namespaces = strchr(argv[4], 'n'),
        .in_user_namespace = strchr(argv[4], 'u'),
        .change_uid = strchr(argv[4], 'c'),
        .kvm = strchr(argv[4], 'k'),
        .bare = strchr(argv[4], 'b'),
        .nofile = GUARD_NOFILE,
    };
    for (char *at = argv[5]; *at && g->jail.n_cgroups < JAIL_CGROUPS_MAX;) {
        g->jail.cgroups[g->jail.n_cgroups++] = at;
        at += strcspn(at, ":");
        if (*at)
            *at++ = '\0';
    }
    *ret_command = argv + 7;
    return 0;
}

int main(int argc, char **argv)
{
    struct guard g = {.control = -1, .timer = -1, .vm_fd = -1, .self = getpid()};
    char **command;
    if (parse(&g, argc, argv, &command) < 0) {
        (void)fprintf(stderr, "usage: cloche-guard CONTROL_FD UID GID FLAGS CGROUPS -- COMMAND...\n"
                              "started by cloche-worker, not by hand\n");
        return 2;
    }
    (void)setsid();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    struct sigaction term = {.sa_handler = on_term};
    (void)sigaction(SIGTERM, &term, NULL);
    (void)fcntl(g.control, F_SETFD, FD_CLOEXEC);
    g.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (g.timer < 0)
        return 125;
    if (!is_ordered(&g)) {
        tell(&g, GUARD_ENDED, GUARD_CAUSE_KILLED, 0);
        return 0;
    }
    g.vm = spawn(&g, command);
    g.vm_fd = g.vm > 0 ? (int)syscall(SYS_pidfd_open, g.vm, 0) : -1;
    if (g.vm_fd < 0) {
        tell(&g, GUARD_ENDED, GUARD_CAUSE_SETUP, (uint64_t)errno);
        return 125;
    }
    /* What the VM inherited is not ours to hold. */
    for (int fd = 3; fd < (int)GUARD_NOFILE * 4; fd++) {
        if (fd != g.control && fd != g.timer && fd != g.vm_fd)
            (void)close(fd);
    }
    int rc = cl_filter_enter(&guard_filters[0]);
    if (rc < 0) {
        (void)dprintf(STDERR_FILENO, "cloche-guard: seccomp: %s\n", strerror(-rc));
        kill_vm(&g, GUARD_CAUSE_SETUP);
    }
    tell(&g, GUARD_STARTED, 0, (uint64_t)g.vm);
    int status = watch(&g);
    kill_cgroups(&g);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    tell(&g, GUARD_ENDED, g.cause ? g.cause : GUARD_CAUSE_EXITED, (uint64_t)status);
    _exit(0); /* what libraries do at an exit is more than the filter allows */
}
