/* agent/exec.c - see agent/exec.h. */
#include "agent/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pump.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    /* After the command's end: a pipe holds at most 1 MiB (fs.pipe-max-size).  Whoever else
     * holds the other end, by passing fds between execs, cannot keep this one alive with it. */
    EXEC_DRAIN_MAX = 1024 * 1024 + GUEST_DATA_MAX,
    EXEC_TURN_MAX = 4 * GUEST_DATA_MAX, /* bytes of one outlet in one turn: others want theirs */
    EXEC_REMOVE_RETRY_MS = 10,
};
#define EXEC_STDIN_DEFAULT CL_GIB

enum exec_state { EXEC_STARTING = 1, EXEC_RUNNING, EXEC_DRAINING, EXEC_ENDED };

struct exec {
    uint64_t stream;
    enum exec_state state;
    struct room room;
    int pty; /* owned; -1 without a terminal */
    struct inlet in;
    struct outlet out[2];
    uint64_t drained[2]; /* bytes sent since the end, against EXEC_DRAIN_MAX */
    uint64_t stdin_max, started_ns, deadline_ns, wall_ns;
    struct exec_report exited;
    Cloche__V1__GuestEnd end;
    int32_t exit_code, signal;
    char error[160];
};

uint64_t exec_stream(const struct exec *exec)
{
    return exec->stream;
}

uint64_t exec_cgroup(const struct exec *exec)
{
    return exec->room.cgroup_id;
}

bool exec_is_gone(const struct exec *exec)
{
    return exec->state == EXEC_ENDED && exec->room.pid == 0 && exec->room.cgroup_fd < 0;
}

void exec_free(struct exec *exec)
{
    if (!exec)
        return;
    inlet_fini(&exec->in);
    for (size_t i = 0; i < CL_COUNT(exec->out); i++)
        outlet_fini(&exec->out[i]);
    room_fini(&exec->room);
    cl_closep(&exec->pty);
    cl_free(exec);
}
CL_DEFINE_AUTO(struct exec, exec_free)

/* --- start ------------------------------------------------------------------------------------ */

static int make_pipes(struct exec *exec, const struct person *who, bool no_stdin, int theirs[3],
                      struct cl_err *err)
{
    static const Cloche__V1__GuestChannel channels[] = {
        CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDOUT,
        CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDERR,
    };
    int ours = -1;
    if (no_stdin)
        theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    else if (room_pipe(who, true, &ours, &theirs[0], err) < 0)
        return -1;
    if (theirs[0] < 0)
        return cl_fail(err, CL_E_SYS, errno, "open /dev/null");
    exec->in.fd = ours;
    for (int i = 0; i < 2; i++) {
        if (room_pipe(who, false, &ours, &theirs[i + 1], err) < 0)
            return -1;
        outlet_init(&exec->out[i], ours, channels[i]);
    }
    return 0;
}

static int set_size(int pty, uint32_t rows, uint32_t columns)
{
    struct winsize size = {
        .ws_row = (unsigned short)CL_MIN(rows, (uint32_t)UINT16_MAX),
        .ws_col = (unsigned short)CL_MIN(columns, (uint32_t)UINT16_MAX),
    };
    return ioctl(pty, TIOCSWINSZ, &size);
}

static int make_pty(struct exec *exec, const struct person *who,
                    const Cloche__V1__GuestResize *size, int theirs[3], struct cl_err *err)
{
    exec->pty = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    int unlock = 0;
    if (exec->pty < 0 || ioctl(exec->pty, TIOCSPTLCK, &unlock) < 0)
        return cl_fail(err, CL_E_SYS, errno, "open a terminal");
    theirs[0] = ioctl(exec->pty, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (theirs[0] < 0 ||
        fchown(theirs[0], AGENT_ID_BASE + who->id, AGENT_ID_BASE + AGENT_TTY_GID) < 0 ||
        set_size(exec->pty, size->rows ? size->rows : 24, size->columns ? size->columns : 80) < 0)
        return cl_fail(err, CL_E_SYS, errno, "prepare the terminal");
    int reader = fcntl(exec->pty, F_DUPFD_CLOEXEC, 3);
    if (reader < 0)
        return cl_fail(err, CL_E_SYS, errno, "prepare the terminal");
    exec->in.fd = exec->pty;
    exec->in.is_pty = true;
    outlet_init(&exec->out[0], reader, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDOUT);
    return 0;
}

static int launch(struct exec *exec, const Cloche__V1__GuestExec *req, const struct exec_env *env,
                  struct cl_err *err)
{
    const struct person *who = env->who;
    struct room_start start = {.env = env, .frames = -1, .is_pty = req->pty != NULL};
    CL_AUTO(cl_closep) int in = -1, out = -1, error = -1;
    int theirs[3] = {-1, -1, -1};
    if (tier_get(req->seccomp, &start.tier, err) < 0)
        return -1;
    int rc = req->pty ? make_pty(exec, who, req->pty, theirs, err)
                      : make_pipes(exec, who, req->no_stdin, theirs, err);
    start.stdio[0] = in = theirs[0];
    start.stdio[1] = out = theirs[1];
    start.stdio[2] = error = theirs[2];
    if (req->pty)
        start.stdio[1] = start.stdio[2] = in;
    return rc < 0 ? -1 : room_launch(&exec->room, &start, err);
}

int exec_start(const struct room_world *world, uint64_t stream, const Cloche__V1__GuestExec *req,
               struct exec **ret_exec, struct cl_err *err)
{
    CL_AUTO(exec_freep) struct exec *exec = cl_zalloc(sizeof *exec);
    if (!exec)
        return cl_fail(err, CL_E_NOMEM, 0, "exec");
    *exec = (struct exec){.stream = stream,
                          .state = EXEC_STARTING,
                          .room = {.pidfd = -1, .ctl = -1, .cgroup_fd = -1},
                          .pty = -1,
                          .started_ns = cl_now_ns(),
                          .deadline_ns = UINT64_MAX};
    inlet_init(&exec->in, -1);
    for (size_t i = 0; i < CL_COUNT(exec->out); i++)
        outlet_init(&exec->out[i], -1, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_UNSPECIFIED);
    exec->stdin_max = req->stdin_max_bytes ? req->stdin_max_bytes : EXEC_STDIN_DEFAULT;
    if (req->timeout_ns > 0 && req->timeout_ns < UINT64_MAX - exec->started_ns)
        exec->deadline_ns = exec->started_ns + req->timeout_ns;

    CL_AUTO(exec_env_freep) struct exec_env *env = NULL;
    const struct person *who = person_find(world->people, req->user);
    if (!who)
        return cl_fail(err, CL_E_INVALID, 0, "user %d", (int)req->user);
    if (room_open(&exec->room, world, stream, who, err) < 0 ||
        exec_env_new(req, world->people, exec->room.tmpdir, &env, err) < 0 ||
        launch(exec, req, env, err) < 0)
        return -1;
    *ret_exec = CL_STEAL(&exec);
    return 0;
}

/* --- life ------------------------------------------------------------------------------------- */

int exec_stdin(struct exec *exec, const Cloche__V1__GuestData *data, struct cl_err *err)
{
    uint64_t total = exec->in.total + data->bytes.len;
    if (total > exec->stdin_max && exec->end == CLOCHE__V1__GUEST_END__GUEST_END_UNSPECIFIED) {
        exec->end = CLOCHE__V1__GUEST_END__GUEST_END_FAILED;
        (void)snprintf(exec->error, sizeof exec->error, "more than %" PRIu64 " bytes of stdin",
                       exec->stdin_max);
        exec_kill(exec);
    }
    if (total > exec->stdin_max)
        return 0;
    return inlet_push(&exec->in, data->bytes.data, data->bytes.len, data->eof, err);
}

void exec_signal(struct exec *exec, int signo)
{
    if (exec->state < EXEC_DRAINING)
        room_signal(&exec->room, signo);
}

void exec_resize(struct exec *exec, uint32_t rows, uint32_t columns)
{
    if (exec->pty >= 0)
        (void)set_size(exec->pty, rows, columns);
}

void exec_kill(struct exec *exec)
{
    room_kill(&exec->room);
}

struct room *exec_room(struct exec *exec)
{
    return exec->state < EXEC_DRAINING ? &exec->room : NULL;
}

/* execve's errno as a shell would tell it. */
static void note_failure(struct exec *exec, enum exec_step step, int error)
{
    static const char *const texts[] = {
        [EXEC_STEP_NAMESPACES] = "make namespaces",
        [EXEC_STEP_FORK] = "fork",
        [EXEC_STEP_TERMINAL] = "set up stdio",
        [EXEC_STEP_PERSON] = "change user",
        [EXEC_STEP_CWD] = "change to the working folder",
        [EXEC_STEP_FILTER] = "set the system call filter",
        [EXEC_STEP_COMMAND] = "run the command",
    };
    const char *text = (size_t)step < CL_COUNT(texts) && texts[step] ? texts[step] : "start";
    (void)snprintf(exec->error, sizeof exec->error, "%s: %s", text, strerror(error));
    exec->end = CLOCHE__V1__GUEST_END__GUEST_END_FAILED;
    if (step == EXEC_STEP_COMMAND) {
        bool missing = error == ENOENT || error == ENOTDIR;
        exec->end = missing ? CLOCHE__V1__GUEST_END__GUEST_END_NOT_FOUND
                            : CLOCHE__V1__GUEST_END__GUEST_END_NOT_EXECUTABLE;
        exec->exit_code = missing ? 127 : 126;
    }
}

static int send_started(struct exec *exec, struct gate *gate, struct chan *chan, int32_t pid,
                        struct cl_err *err)
{
    exec->state = EXEC_RUNNING;
    if (!gate_find(gate, exec->stream))
        return 0;
    Cloche__V1__GuestExecStarted body;
    cloche__v1__guest_exec_started__init(&body);
    body.pid = pid;
    GUEST_FRAME(frame, exec->stream, EXEC_STARTED, exec_started, &body);
    return chan_send(chan, &frame, err);
}

static int take_reports(struct exec *exec, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct exec_report report;
    while (room_next_report(&exec->room, &report)) {
        if (report.kind == EXEC_REPORT_STARTED && send_started(exec, gate, chan, report.a, err) < 0)
            return -1;
        if (report.kind == EXEC_REPORT_FAILED &&
            exec->end == CLOCHE__V1__GUEST_END__GUEST_END_UNSPECIFIED)
            note_failure(exec, (enum exec_step)report.a, report.b);
        if (report.kind == EXEC_REPORT_EXITED)
            exec->exited = report;
    }
    return 0;
}

/* All processes are gone: what was the end? */
static void note_end(struct exec *exec)
{
    exec->state = EXEC_DRAINING;
    exec->wall_ns = cl_now_ns() - exec->started_ns;
    int status = exec->exited.a;
    bool killed = exec->exited.kind == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (exec->end != CLOCHE__V1__GUEST_END__GUEST_END_UNSPECIFIED) {
        if (exec->end == CLOCHE__V1__GUEST_END__GUEST_END_TIMED_OUT)
            exec->signal = SIGKILL;
    } else if (killed && room_had_oom(&exec->room)) {
        exec->end = CLOCHE__V1__GUEST_END__GUEST_END_OOM_KILLED;
        exec->signal = SIGKILL;
    } else if (killed || WIFSIGNALED(status)) {
        exec->end = CLOCHE__V1__GUEST_END__GUEST_END_SIGNALED;
        exec->signal = killed ? SIGKILL : WTERMSIG(status);
    } else {
        exec->end = CLOCHE__V1__GUEST_END__GUEST_END_EXITED;
        exec->exit_code = WEXITSTATUS(status);
    }
}

static int send_ended(struct exec *exec, struct chan *chan, struct cl_err *err)
{
    Cloche__V1__GuestExecEnded body;
    cloche__v1__guest_exec_ended__init(&body);
    uint64_t group_cpu_ns = cgroup_cpu_ns(exec->room.cgroup_fd);
    uint64_t group_peak = cgroup_peak_bytes(exec->room.cgroup_fd);
    body.end = exec->end;
    body.exit_code = exec->exit_code;
    body.signal = exec->signal;
    body.error = exec->error;
    body.cpu_ns = group_cpu_ns ? group_cpu_ns : exec->exited.cpu_ns;
    body.wall_ns = exec->wall_ns;
    body.peak_memory_bytes = group_peak ? group_peak : exec->exited.peak_bytes;
    GUEST_FRAME(frame, exec->stream, EXEC_ENDED, exec_ended, &body);
    return chan_send(chan, &frame, err);
}

/* Send what is left in the pipes, what its processes did, then the end.  Without a stream nobody
 * wants it. */
static int drain(struct exec *exec, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = gate_find(gate, exec->stream);
    for (size_t i = 0; stream && i < CL_COUNT(exec->out); i++) {
        struct outlet *out = &exec->out[i];
        uint64_t before = out->total;
        bool dry = false;
        if (outlet_turn(out, stream, chan, EXEC_TURN_MAX, &dry, err) < 0)
            return -1;
        exec->drained[i] += out->total - before;
        if (!dry && exec->drained[i] < EXEC_DRAIN_MAX)
            return 0;
        if (outlet_end(out, stream, chan, err) < 0)
            return -1;
    }
    if (sensor_tell_end(exec->room.world->sensor, chan, exec->room.cgroup_id, err) < 0 ||
        (stream && send_ended(exec, chan, err) < 0))
        return -1;
    gate_close(gate, exec->stream);
    inlet_fini(&exec->in);
    for (size_t i = 0; i < CL_COUNT(exec->out); i++)
        outlet_fini(&exec->out[i]);
    exec->state = EXEC_ENDED;
    return 0;
}

static int move_data(struct exec *exec, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = gate_find(gate, exec->stream);
    for (size_t i = 0; i < CL_COUNT(exec->out); i++) {
        bool dry;
        if (outlet_turn(&exec->out[i], stream, chan, EXEC_TURN_MAX, &dry, err) < 0)
            return -1;
    }
    return inlet_turn(&exec->in, stream, chan, err);
}

int exec_turn(struct exec *exec, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    if (cl_now_ns() >= exec->deadline_ns && exec->state < EXEC_DRAINING) {
        if (exec->end == CLOCHE__V1__GUEST_END__GUEST_END_UNSPECIFIED)
            exec->end = CLOCHE__V1__GUEST_END__GUEST_END_TIMED_OUT;
        exec->deadline_ns = UINT64_MAX;
        exec_kill(exec);
    }
    if (exec->state < EXEC_DRAINING) {
        (void)room_reap(&exec->room); /* first: reports outlive their sender */
        if (take_reports(exec, gate, chan, err) < 0)
            return -1;
        if (exec->state == EXEC_RUNNING && move_data(exec, gate, chan, err) < 0)
            return -1;
        if (exec->room.pid == 0)
            note_end(exec);
    }
    if (exec->state == EXEC_DRAINING && drain(exec, gate, chan, err) < 0)
        return -1;
    if (exec->state == EXEC_ENDED)
        (void)room_bury(&exec->room);
    return 0;
}

void exec_wait(const struct exec *exec, struct gate *gate, const struct chan *chan,
               struct waits *waits)
{
    const struct gate_stream *stream = gate_find(gate, exec->stream);
    if (exec->room.pidfd >= 0)
        waits_add(waits, exec->room.pidfd, POLLIN);
    if (exec->state == EXEC_ENDED) {
        if (exec->room.cgroup_fd >= 0)
            waits_until(waits, cl_now_ns() + EXEC_REMOVE_RETRY_MS * CL_NS_PER_MS);
        return;
    }
    waits_until(waits, exec->deadline_ns);
    if (exec->state == EXEC_STARTING)
        waits_add(waits, exec->room.ctl, POLLIN);
    if (exec->state == EXEC_RUNNING && inlet_wants_write(&exec->in))
        waits_add(waits, exec->in.fd, POLLOUT);
    for (size_t i = 0; exec->state >= EXEC_RUNNING && i < CL_COUNT(exec->out); i++)
        if (outlet_wants_read(&exec->out[i], stream, chan))
            waits_add(waits, exec->out[i].fd, POLLIN);
}
