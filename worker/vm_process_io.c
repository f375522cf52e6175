/* worker/vm_process_io.c - see worker/vm_process.h. */
#include "worker/vm_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/own.h"

/* --- fds ------------------------------------------------------------------------------------ */

void vm_fds_init(struct vm_fds *fds)
{
    for (int i = 0; i < VM_FDS; i++)
        fds->at[i] = -1;
}

void vm_fds_close(struct vm_fds *fds)
{
    for (int i = 0; i < VM_FDS; i++)
        cl_closep(&fds->at[i]);
}

int vm_pair(int type, int *ret_near, int *ret_far, struct cl_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
        return cl_fail(err, CL_E_SYS, errno, "socketpair");
    *ret_near = pair[0];
    *ret_far = pair[1];
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
        return cl_fail(err, CL_E_SYS, errno, "fcntl");
    return 0;
}

bool vm_send(int to, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
    union {
        char bytes[CMSG_SPACE(VM_FDS * sizeof(int))];
        struct cmsghdr align;
    } rights = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    CL_ASSERT(n_fds <= VM_FDS);
    if (n_fds > 0) {
        h.msg_control = rights.bytes;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    errno = 0; /* a part of it sent is no error that anybody named */
    return sendmsg(to, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

int vm_reopen(int fd, int flags, int *ret_fd, struct cl_err *err)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int fresh = open(path, flags | O_CLOEXEC);
    if (fresh < 0)
        return cl_fail(err, CL_E_SYS, errno, "reopen a template's file");
    *ret_fd = fresh;
    return 0;
}

/* --- last words ----------------------------------------------------------------------------- */

static void read_errs(struct vm_process *p)
{
    char bytes[1024];
    ssize_t n;
    while ((n = read(p->errs, bytes, sizeof bytes)) > 0) {
        size_t len = (size_t)n;
        size_t drop = p->tail_len + len > VM_TAIL ? p->tail_len + len - VM_TAIL : 0;
        memmove(p->tail, p->tail + drop, p->tail_len - drop);
        p->tail_len -= drop;
        memcpy(p->tail + p->tail_len, bytes, len);
        p->tail_len += len;
    }
    if (n == 0)
        cl_fd_watch_set(&p->errs_watch, false);
}

static void on_errs(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    read_errs(arg);
}

/* The last lines of stderr, printable, for an error's text. */
static void describe_tail(struct vm_process *p, char *out, size_t size)
{
    read_errs(p);
    size_t keep = CL_MIN(p->tail_len, size - 1);
    const char *from = p->tail + p->tail_len - keep;
    for (size_t i = 0; i < keep; i++)
        out[i] = from[i] >= ' ' && from[i] < 0x7f ? from[i] : ' ';
    out[keep] = '\0';
}

static void describe_end(struct vm_process *p, struct cl_err *why)
{
    char tail[240];
    describe_tail(p, tail, sizeof tail);
    const char *colon = tail[0] ? ": " : "";
    int status = (int)p->ended.value;
    if (p->ended.detail == GUARD_CAUSE_DEADLINE)
        (void)cl_fail(why, CL_E_DEADLINE, 0, "its lease ran out");
    else if (p->why.code != CL_OK &&
             (p->why.code != CL_E_CANCELLED || p->ended.detail != GUARD_CAUSE_EXITED))
        (void)cl_fail(why, p->why.code, 0, "%s%s%s", p->why.text, colon, tail);
    else if (p->ended.type != GUARD_ENDED)
        (void)cl_fail(why, CL_E_SYS, 0, "its guardian died");
    else if (p->ended.detail == GUARD_CAUSE_SETUP)
        (void)cl_fail(why, CL_E_SYS, status, "its guardian could not start it");
    else if (WIFSIGNALED(status)) /* nobody but the kernel has a reason to send SIGKILL */
        (void)cl_fail(why, CL_E_GUEST, 0, "%s died by signal %d%s%s%s", p->what, WTERMSIG(status),
                      WTERMSIG(status) == SIGKILL ? ", as when memory runs out" : "", colon, tail);
    else
        (void)cl_fail(why, CL_E_GUEST, 0, "%s ended with status %d%s%s", p->what,
                      WEXITSTATUS(status), colon, tail);
}

/* --- events of the guardian ----------------------------------------------------------------- */

static void on_guard_end(pid_t pid, int status, void *arg)
{
    (void)pid, (void)status;
    struct vm_process *p = arg;
    struct guard_message m;
    while (recv(p->control, &m, sizeof m, MSG_DONTWAIT) == (ssize_t)sizeof m)
        p->ended = m;
    p->has_ended = true;
    struct cl_err why = {0};
    describe_end(p, &why);
    p->events.on_end(p->arg, &why);
}

static void on_control(int fd, int what, void *arg)
{
    (void)what;
    struct vm_process *p = arg;
    struct guard_message m;
    ssize_t n = recv(fd, &m, sizeof m, MSG_DONTWAIT);
    if (n == 0) {
        cl_fd_watch_set(&p->control_watch, false);
        return;
    }
    if (n != (ssize_t)sizeof m)
        return;
    p->ended = m;
    if (m.type != GUARD_STARTED)
        return;
    p->pid = (pid_t)m.value;
    p->events.on_started(p->arg);
}

/* --- start ---------------------------------------------------------------------------------- */

int vm_process_open(struct vm_process *p, struct vm_fds *fds, struct cl_err *err)
{
    p->control = p->errs = -1;
    p->guard = (struct cl_child){.pidfd = -1};
    if (vm_pair(SOCK_SEQPACKET, &p->control, &fds->at[VM_FD_CONTROL], err) < 0 ||
        vm_pair(SOCK_STREAM, &p->errs, &fds->at[STDERR_FILENO], err) < 0 ||
        cl_fd_watch_init(&p->control_watch, p->loop, p->control, CL_READ, on_control, p, err) < 0)
        return -1;
    return cl_fd_watch_init(&p->errs_watch, p->loop, p->errs, CL_READ, on_errs, p, err);
}

/* Move every far end above the fixed numbers first, so that no dup2 overwrites a source. */
static int file_actions(struct vm_fds *far, posix_spawn_file_actions_t *actions, struct cl_err *err)
{
    int rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    for (int i = 0; rc == 0 && i < VM_FDS; i++) {
        if (far->at[i] < 0 && i > STDERR_FILENO)
            rc = posix_spawn_file_actions_addclose(actions, i);
        if (far->at[i] < 0)
            continue;
        int high = fcntl(far->at[i], F_DUPFD_CLOEXEC, VM_FDS + 1);
        if (high < 0)
            return cl_fail(err, CL_E_SYS, errno, "move an fd");
        (void)close(far->at[i]);
        far->at[i] = high;
        rc = posix_spawn_file_actions_adddup2(actions, high, i);
    }
    if (rc == 0) /* whatever else this process has open is none of the VM's business */
        rc = posix_spawn_file_actions_addclosefrom_np(actions, VM_FDS);
    return rc == 0 ? 0 : cl_fail(err, CL_E_SYS, rc, "prepare the guardian's fds");
}

enum { GUARD_HEAD = 7 };

struct guard_args {
    char control[16], uid[16], gid[16], flags[8];
    char *argv[GUARD_HEAD + VM_ARGS_MAX + 1]; /* borrowed */
};

static void make_guard_args(const struct vm_command *c, struct guard_args *a)
{
    const struct vm_spec *spec = c->spec;
    (void)snprintf(a->control, sizeof a->control, "%d", VM_FD_CONTROL);
    (void)snprintf(a->uid, sizeof a->uid, "%u", spec->uid ? spec->uid : getuid());
    (void)snprintf(a->gid, sizeof a->gid, "%u", spec->uid ? c->host->gid : getgid());
    (void)snprintf(a->flags, sizeof a->flags, "%s%s%s%s-", c->host->namespaces ? "n" : "",
                   c->host->namespaces && !c->host->is_root ? "u" : "", spec->uid ? "c" : "",
                   c->jail);
    char *head[GUARD_HEAD] = {(char *)(uintptr_t)c->host->guard,
                              a->control,
                              a->uid,
                              a->gid,
                              a->flags,
                              (char *)(uintptr_t)(spec->cgroups ? spec->cgroups : ""),
                              (char *)(uintptr_t) "--"};
    memcpy(a->argv, head, sizeof head);
    int n = 0;
    for (; c->argv[n]; n++) {
        CL_ASSERT(n < VM_ARGS_MAX);
        a->argv[GUARD_HEAD + n] = c->argv[n];
    }
    a->argv[GUARD_HEAD + n] = NULL;
}

int vm_process_spawn(struct vm_process *p, const struct vm_command *command, struct vm_fds *fds,
                     struct cl_err *err)
{
    struct guard_args args;
    make_guard_args(command, &args);
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return cl_fail(err, CL_E_NOMEM, 0, "spawn");
    const char *guard = command->host->guard;
    char *env[] = {NULL};
    int rc = file_actions(fds, &actions, err);
    int spawned = rc == 0 ? posix_spawn(&p->guard_pid, guard, &actions, NULL, args.argv, env) : 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    if (spawned != 0) {
        p->guard_pid = 0;
        rc = cl_fail(err, CL_E_SYS, spawned, "start '%s'", guard);
    }
    return rc < 0 ? -1 : cl_child_watch(&p->guard, p->loop, p->guard_pid, on_guard_end, p, err);
}

/* --- verbs ---------------------------------------------------------------------------------- */

static void tell_guard(struct vm_process *p, enum guard_message_type type, uint64_t value)
{
    struct guard_message m = {.type = type, .value = value};
    if (p->control >= 0 && send(p->control, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno != EAGAIN)
        (void)kill(p->guard_pid, SIGTERM);
}

void vm_process_kill(struct vm_process *p, enum cl_code code, const char *why)
{
    if (p->has_ended)
        return;
    if (p->why.code == CL_OK)
        (void)cl_fail(&p->why, code, 0, "%s", why);
    tell_guard(p, GUARD_KILL, 0);
}

void vm_process_set_deadline(struct vm_process *p, uint64_t deadline_ns)
{
    tell_guard(p, GUARD_DEADLINE, deadline_ns);
}

/* /proc/PID/stat counts ticks of 10 ms, and most units take less. */
uint64_t vm_process_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
        return 0;
    return (uint64_t)used.tv_sec * CL_NS_PER_S + (uint64_t)used.tv_nsec;
}

/* Whoever has no right to trace the process may still know this. */
static uint64_t read_rss(pid_t pid)
{
    char path[64];
    unsigned long long pages = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%*u %llu", &pages) != 1)
        return 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

int vm_process_stats(const struct vm_process *p, struct vm_stats *ret_stats, struct cl_err *err)
{
    if (p->pid <= 0)
        return cl_fail(err, CL_E_STATE, 0, "the VM has not started");
    struct vm_stats s = {.cpu_ns = vm_process_cpu_ns(p->pid), .rss_bytes = read_rss(p->pid)};
    char path[64], line[256];
    (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)p->pid);
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    unsigned long long kib;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "Rss: %llu", &kib) == 1)
            s.rss_bytes = kib * CL_KIB;
        else if (sscanf(line, "Pss: %llu", &kib) == 1)
            s.pss_bytes = kib * CL_KIB;
    }
    *ret_stats = s;
    return 0;
}

void vm_process_fini(struct vm_process *p)
{
    if (p->guard_pid > 0 && !p->has_ended)
        (void)kill(p->guard_pid, SIGTERM);
    cl_fd_watch_fini(&p->control_watch);
    cl_fd_watch_fini(&p->errs_watch);
    cl_child_fini(&p->guard);
    cl_closep(&p->control);
    cl_closep(&p->errs);
}
