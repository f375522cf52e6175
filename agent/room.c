/* agent/room.c - see agent/room.h. */
#include "agent/room.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/file_ops.h"
#include "agent/helper.h"
#include "base/own.h"

int room_pipe(const struct person *who, bool to_child, int *ret_ours, int *ret_theirs,
              struct cl_err *err)
{
    int fds[2];
    uid_t owner = AGENT_ID_BASE + who->id;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return cl_fail(err, CL_E_SYS, errno, "pipe");
    *ret_ours = fds[to_child];
    *ret_theirs = fds[!to_child];
    if (fchown(fds[0], owner, owner) < 0 || fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0)
        return cl_fail(err, CL_E_SYS, errno, "prepare a pipe");
    return 0;
}

int room_open(struct room *room, const struct room_world *world, uint64_t id,
              const struct person *who, struct cl_err *err)
{
    *room = (struct room){
        .id = id, .pidfd = -1, .ctl = -1, .cgroup_fd = -1, .world = world, .who = who};
    exec_env_tmpdir(room->tmpdir);
    if (cgroup_make(world->groups, id, &room->cgroup_fd, err) < 0)
        return -1;
    room->cgroup_id = cgroup_id(room->cgroup_fd);
    return 0;
}

/* A process in namespaces of its own, in the room's cgroup from its first instruction. */
static int clone_init(struct room *room, const struct exec_plan *plan, struct cl_err *err)
{
    struct clone_args args = {
        .flags =
            (uint64_t)(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWCGROUP | CLONE_PIDFD) |
            CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)&room->pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (unsigned)room->cgroup_fd,
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        return cl_fail(err, CL_E_SYS, errno, "start a process");
    if (pid == 0)
        exec_init_run(plan);
    room->pid = (pid_t)pid;
    return 0;
}

int room_launch(struct room *room, const struct room_start *start, struct cl_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cl_fail(err, CL_E_SYS, errno, "socketpair");
    room->ctl = pair[0];
    CL_AUTO(cl_closep) int ctl = pair[1];
    struct exec_plan plan = {
        .ctl = ctl,
        .stdio = {start->stdio[0], start->stdio[1], start->stdio[2]},
        .frames = start->frames,
        .is_pty = start->is_pty,
        .userns_fd = room->world->userns_fd,
        .who = room->who,
        .tier = start->tier,
        .argv = start->env->argv,
        .envp = start->env->envp,
        .cwd = start->env->cwd,
        .tmpdir = room->tmpdir,
    };
    return clone_init(room, &plan, err);
}

/* To the init of the room: a signal for the group, or its negative for the command alone. */
static void send_signal(const struct room *room, int signo, bool alone)
{
    int32_t message = alone ? -signo : signo;
    if (signo <= 0 || signo >= NSIG) /* the host's number, or none of ours */
        return;
    (void)send(room->ctl, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void room_signal(const struct room *room, int signo)
{
    send_signal(room, signo, false);
}

void room_signal_command(const struct room *room, int signo)
{
    send_signal(room, signo, true);
}

void room_kill(const struct room *room)
{
    if (room->cgroup_fd >= 0)
        cgroup_kill(room->cgroup_fd);
}

void room_starve(struct room *room)
{
    room->starved = true;
    room_kill(room);
}

struct room *room_larger(struct room *a, struct room *b)
{
    if (!a || !b)
        return a ? a : b;
    return cgroup_anon_bytes(a->cgroup_fd) >= cgroup_anon_bytes(b->cgroup_fd) ? a : b;
}

bool room_had_oom(const struct room *room)
{
    return room->starved || (room->cgroup_fd >= 0 && cgroup_had_oom(room->cgroup_fd));
}

bool room_reap(struct room *room)
{
    return helper_reap(&room->pid, &room->pidfd);
}

bool room_next_report(const struct room *room, struct exec_report *ret_report)
{
    return recv(room->ctl, ret_report, sizeof *ret_report, MSG_DONTWAIT) ==
           (ssize_t)sizeof *ret_report;
}

/* By a helper, since the tree is user code's and may be large. */
static void sweep(struct room *room)
{
    if (rmdir(room->tmpdir) == 0 || errno != ENOTEMPTY)
        return;
    struct helper_job job = {
        .cgroup_fd = room->world->groups->files_fd,
        .userns_fd = room->world->userns_fd,
        .who = room->who,
        .keep = {-1, -1},
        .fn = file_ops_sweep,
        .arg = room->tmpdir,
    };
    if (helper_spawn(&job, &room->pid, &room->pidfd, NULL) < 0)
        return; /* the folder stays in /tmp: the user's own, within the user's own bound */
}

bool room_bury(struct room *room)
{
    (void)room_reap(room);
    if (room->cgroup_fd >= 0) {
        cgroup_kill(room->cgroup_fd);
        if (!cgroup_remove(room->world->groups, room->id))
            return false;
        cl_closep(&room->cgroup_fd);
        sweep(room);
    }
    return room->pid == 0;
}

void room_fini(struct room *room)
{
    if (room->cgroup_fd >= 0)
        (void)cgroup_remove(room->world->groups, room->id);
    cl_closep(&room->pidfd);
    cl_closep(&room->ctl);
    cl_closep(&room->cgroup_fd);
}
