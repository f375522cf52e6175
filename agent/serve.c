/* agent/serve.c - see agent/serve.h. */
#include "agent/serve.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/cgroup.h"
#include "agent/chan.h"
#include "agent/clock.h"
#include "agent/contexts.h"
#include "agent/dial.h"
#include "agent/exec.h"
#include "agent/files.h"
#include "agent/gate.h"
#include "agent/identity.h"
#include "agent/language.h"
#include "agent/person.h"
#include "agent/scratch.h"
#include "agent/sensor.h"
#include "agent/stats.h"
#include "agent/text.h"
#include "agent/thrash.h"
#include "agent/waits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    FRAMES_PER_TURN = 32,  /* then others get their turn */
    HANG_UP_WAIT_MS = 20,  /* a port without a listener is always ready; do not spin */
    OPEN_FILES_MAX = 1024, /* 64 streams of at most 6 fds */
};

struct serve {
    struct chan chan;
    struct gate gate;
    struct cgroups groups;
    struct identity identity;
    struct room_world world;
    int scratch_fd;                        /* owned */
    uint64_t trim_ns, trim_at;             /* when it is trimmed next, and where */
    struct exec *execs[GATE_STREAMS_MAX];  /* owned */
    struct files *files[GATE_STREAMS_MAX]; /* owned */
    struct dial *dials[GATE_STREAMS_MAX];  /* owned */
    struct contexts contexts;
    struct sensor sensor;
    struct thrash thrash;
    int pressure_fd; /* owned; -1 = this kernel does not tell */
};

/* Why something of what an identity asks for is not told. */
struct unwatched {
    struct cl_err events, calls;
};

/* --- answers ---------------------------------------------------------------------------------- */

static int send_hello(struct serve *s, struct cl_err *err)
{
    static char pty[] = "pty", root[] = "userns-root", again[] = "identity-again";
    static char code[] = "code", watch[] = "watch", dial[] = "dial", hold[] = "hold";
    static char cell_env[] = "cell-env", calls[] = "calls";
    char *features[] = {pty, root, again, code, watch, dial, hold, cell_env, calls};
    char build[] = CLOCHE_VERSION "+" AGENT_SOURCE_DIGEST;
    Cloche__V1__GuestHello body;
    cloche__v1__guest_hello__init(&body);
    body.protocol_major = GUEST_PROTOCOL_MAJOR;
    body.protocol_minor_min = 0;
    body.protocol_minor_max = GUEST_PROTOCOL_MINOR;
    body.build = build;
    body.features = features;
    body.n_features = CL_COUNT(features);
    GUEST_FRAME(frame, 0, HELLO, hello, &body);
    return chan_send(&s->chan, &frame, err);
}

/* Without the sensor the guest is as useful; who asked for it hears why it is not there. */
static void begin_watch(struct serve *s, const Cloche__V1__GuestIdentity *id, struct unwatched *why,
                        Cloche__V1__GuestIdentityDone *body)
{
    uint64_t helpers = cgroup_id(s->groups.files_fd);
    body->watched = sensor_begin(&s->sensor, id->watch, helpers, &why->events) == 0 && id->watch;
    body->counted =
        sensor_count_calls(&s->sensor, id->count_calls, &why->calls) == 0 && id->count_calls;
    text_repair(why->events.text);
    text_repair(why->calls.text);
    body->unwatched = why->events.text;
    body->uncounted = why->calls.text;
}

static int take_identity(struct serve *s, const Cloche__V1__GuestIdentity *id, struct cl_err *err)
{
    struct cl_err failure = {0};
    struct unwatched unwatched = {0};
    Cloche__V1__GuestIdentityDone body;
    cloche__v1__guest_identity_done__init(&body);
    begin_watch(s, id, &unwatched, &body); /* first: nothing of this tenant has run */
    bool is_taken = identity_apply(&s->identity, id, &s->groups, s->scratch_fd, &failure) == 0;
    if (is_taken)
        s->gate.identified = true;
    text_repair(failure.text);
    body.error = failure.text;
    s->trim_ns = cl_now_ns() + SCRATCH_TRIM_S * CL_NS_PER_S; /* not just now */
    body.wall_clock_ns = cl_wall_ns();
    GUEST_FRAME(frame, 0, IDENTITY_DONE, identity_done, &body);
    if (chan_send(&s->chan, &frame, err) < 0 || chan_flush(&s->chan, err) < 0)
        return -1;
    if (is_taken)
        contexts_reseed(&s->contexts); /* the worker need not wait: a cell comes behind it */
    return 0;
}

static int send_exec_failure(struct serve *s, uint64_t stream, char *why, struct cl_err *err)
{
    Cloche__V1__GuestExecEnded body;
    cloche__v1__guest_exec_ended__init(&body);
    body.end = CLOCHE__V1__GUEST_END__GUEST_END_FAILED;
    text_repair(why);
    body.error = why;
    GUEST_FRAME(frame, stream, EXEC_ENDED, exec_ended, &body);
    gate_close(&s->gate, stream);
    return chan_send(&s->chan, &frame, err);
}

static int send_file_failure(struct serve *s, uint64_t stream, int error, char *why,
                             struct cl_err *err)
{
    Cloche__V1__GuestFileResult body;
    cloche__v1__guest_file_result__init(&body);
    body.error_number = error;
    text_repair(why);
    body.error = why;
    GUEST_FRAME(frame, stream, FILE_RESULT, file_result, &body);
    gate_close(&s->gate, stream);
    return chan_send(&s->chan, &frame, err);
}

static int send_stats(struct serve *s, struct cl_err *err)
{
    Cloche__V1__GuestStats body;
    cloche__v1__guest_stats__init(&body);
    stats_read(&s->groups, s->scratch_fd, &body);
    GUEST_FRAME(frame, 0, STATS, stats, &body);
    return chan_send(&s->chan, &frame, err);
}

static int send_pong(struct serve *s, uint64_t token, struct cl_err *err)
{
    Cloche__V1__GuestPong body;
    cloche__v1__guest_pong__init(&body);
    body.token = token;
    body.wall_clock_ns = cl_wall_ns();
    GUEST_FRAME(frame, 0, PONG, pong, &body);
    return chan_send(&s->chan, &frame, err);
}

/* Once in a while, of those in which anything happens; the worker asks every guest for the time.
 * True: there is more to do. */
static bool trim(struct serve *s)
{
    if (cl_now_ns() < s->trim_ns)
        return false;
    if (scratch_trim(s->scratch_fd, &s->trim_at))
        return true;
    s->trim_ns = cl_now_ns() + SCRATCH_TRIM_S * CL_NS_PER_S;
    return false;
}

/* The image of it, or its copy, is made next: of what is there. */
static void trim_all(struct serve *s)
{
    s->trim_ns = s->trim_at = 0;
    while (trim(s))
        continue;
}

static int hold(struct serve *s, struct cl_err *err)
{
    trim_all(s);
    Cloche__V1__GuestHeld body = CLOCHE__V1__GUEST_HELD__INIT;
    GUEST_FRAME(frame, 0, HELD, held, &body);
    if (chan_send(&s->chan, &frame, err) < 0)
        return -1;
    chan_hold(&s->chan);
    return 0;
}

/* Refused by the kernel: the next pong tells the worker that nothing has changed. */
static void shift_clock(int64_t lag_ns)
{
    struct cl_err failure = {0};
    if (clock_shift(lag_ns, &failure) < 0)
        (void)dprintf(STDERR_FILENO, "cloche-agent: %s\n", failure.text);
}

/* --- streams ---------------------------------------------------------------------------------- */

static char busy[] = "64 streams are open";

/* The user's root owns what is in /etc. */
static void note_rights(struct serve *s, Cloche__V1__GuestUser user)
{
    if (user != CLOCHE__V1__GUEST_USER__GUEST_USER_USER)
        identity_distrust(&s->identity);
}

static int start_exec(struct serve *s, const Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    struct cl_err failure = {0};
    for (size_t i = 0; i < CL_COUNT(s->execs); i++) {
        if (s->execs[i])
            continue;
        if (exec_start(&s->world, frame->stream, frame->exec, &s->execs[i], &failure) < 0)
            return send_exec_failure(s, frame->stream, failure.text, err);
        return 0;
    }
    return send_exec_failure(s, frame->stream, busy, err);
}

static int start_files(struct serve *s, const Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    struct files_world world = {
        .groups = &s->groups, .people = s->world.people, .userns_fd = s->world.userns_fd};
    struct cl_err failure = {0};
    for (size_t i = 0; i < CL_COUNT(s->files); i++) {
        if (s->files[i])
            continue;
        if (files_start(&world, frame->stream, frame->file_op, &s->files[i], &failure) < 0)
            return send_file_failure(s, frame->stream, failure.sys ? failure.sys : EINVAL,
                                     failure.text, err);
        return 0;
    }
    return send_file_failure(s, frame->stream, EAGAIN, busy, err);
}

static int start_dial(struct serve *s, const Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    struct cl_err failure = {0};
    for (size_t i = 0; i < CL_COUNT(s->dials); i++) {
        if (s->dials[i])
            continue;
        if (dial_start(frame->stream, frame->dial, &s->dials[i], &failure) < 0)
            return dial_hang_up(frame->stream, failure.sys, failure.text, &s->gate, &s->chan, err);
        return 0;
    }
    return dial_hang_up(frame->stream, EAGAIN, busy, &s->gate, &s->chan, err);
}

static int send_cell_refusal(struct serve *s, uint64_t stream, struct cl_err *err)
{
    Cloche__V1__GuestCellEnded body = CLOCHE__V1__GUEST_CELL_ENDED__INIT;
    body.end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_REFUSED;
    body.error_number = EAGAIN;
    body.error = busy;
    GUEST_FRAME(frame, stream, CELL_ENDED, cell_ended, &body);
    return chan_send(&s->chan, &frame, err);
}

static int send_context_refusal(struct serve *s, uint64_t stream, struct cl_err *err)
{
    Cloche__V1__GuestContextResult body = CLOCHE__V1__GUEST_CONTEXT_RESULT__INIT;
    body.error_number = EAGAIN;
    body.error = busy;
    GUEST_FRAME(frame, stream, CONTEXT_RESULT, context_result, &body);
    return chan_send(&s->chan, &frame, err);
}

static int refuse_stream(struct serve *s, const Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_EXEC)
        return send_exec_failure(s, frame->stream, busy, err);
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_CELL)
        return send_cell_refusal(s, frame->stream, err);
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_OP)
        return send_context_refusal(s, frame->stream, err);
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DIAL)
        return dial_hang_up(frame->stream, EAGAIN, busy, &s->gate, &s->chan, err);
    return send_file_failure(s, frame->stream, EAGAIN, busy, err);
}

static struct exec *find_exec(struct serve *s, uint64_t stream)
{
    for (size_t i = 0; i < CL_COUNT(s->execs); i++)
        if (s->execs[i] && exec_stream(s->execs[i]) == stream)
            return s->execs[i];
    return NULL;
}

static struct files *find_files(struct serve *s, uint64_t stream)
{
    for (size_t i = 0; i < CL_COUNT(s->files); i++)
        if (s->files[i] && files_stream(s->files[i]) == stream)
            return s->files[i];
    return NULL;
}

static struct dial *find_dial(struct serve *s, uint64_t stream)
{
    for (size_t i = 0; i < CL_COUNT(s->dials); i++)
        if (s->dials[i] && dial_stream(s->dials[i]) == stream)
            return s->dials[i];
    return NULL;
}

static int act_on_stream(struct serve *s, const Cloche__V1__GuestFrame *frame,
                         enum gate_action action, struct cl_err *err)
{
    struct exec *exec = find_exec(s, frame->stream);
    struct files *files = find_files(s, frame->stream);
    struct dial *dial = find_dial(s, frame->stream);
    if (action == GATE_DATA && exec)
        return exec_stdin(exec, frame->data, err);
    if (action == GATE_DATA && files)
        return files_data(files, frame->data, err);
    if (action == GATE_DATA && dial)
        return dial_data(dial, frame->data, err);
    if (action == GATE_SIGNAL && exec)
        exec_signal(exec, frame->signal->signal);
    if (action == GATE_RESIZE && exec)
        exec_resize(exec, frame->resize->rows, frame->resize->columns);
    if (action == GATE_RESET && exec)
        exec_kill(exec);
    if (action == GATE_RESET && files)
        files_abort(files);
    if (action == GATE_RESET && dial)
        dial_abort(dial);
    if (action == GATE_RESET)
        contexts_reset(&s->contexts, frame->stream);
    return 0;
}

static int act(struct serve *s, const Cloche__V1__GuestFrame *frame, enum gate_action action,
               struct cl_err *err)
{
    switch (action) {
    case GATE_IDENTITY:
        return take_identity(s, frame->identity, err);
    case GATE_EXEC:
        note_rights(s, frame->exec->user);
        return start_exec(s, frame, err);
    case GATE_FILE:
        note_rights(s, frame->file_op->user);
        return start_files(s, frame, err);
    case GATE_CONTEXT:
        return contexts_op(&s->contexts, frame->stream, frame->context_op, &s->gate, &s->chan, err);
    case GATE_CELL:
        return contexts_run(&s->contexts, frame->stream, frame->cell, &s->gate, &s->chan, err);
    case GATE_DIAL:
        return start_dial(s, frame, err);
    case GATE_BUSY:
        return refuse_stream(s, frame, err);
    case GATE_STATS:
        return send_stats(s, err);
    case GATE_PING:
        return send_pong(s, frame->ping->token, err);
    case GATE_CLOCK:
        shift_clock(frame->clock->lag_ns);
        break;
    case GATE_HOLD:
        return hold(s, err);
    case GATE_RELEASE:
        chan_release(&s->chan);
        break;
    case GATE_DATA:
    case GATE_SIGNAL:
    case GATE_RESIZE:
    case GATE_RESET:
        return act_on_stream(s, frame, action, err);
    case GATE_IGNORE:
    case GATE_CREDIT:
        break;
    }
    return 0;
}

/* --- loop ------------------------------------------------------------------------------------- */

/* *ret_more: there may be another frame in the buffer. */
static int take_frame(struct serve *s, bool *ret_more, struct cl_err *err)
{
    struct cl_arena *arena = NULL;
    const Cloche__V1__GuestFrame *frame = NULL;
    enum gate_action action;
    if (cl_arena_new(GUEST_ARENA_FACTOR * GUEST_COMMAND_MAX, &arena, err) < 0)
        return -1;
    int rc = chan_next(&s->chan, arena, &frame, err);
    if (rc == 0 && frame) {
        rc = gate_admit(&s->gate, frame, &action, err);
        if (rc == 0)
            rc = act(s, frame, action, err);
    }
    *ret_more = frame != NULL;
    cl_arena_free(arena);
    return rc;
}

/* *ret_left: frames may be left in the buffer for the next turn. */
static int take_frames(struct serve *s, bool *ret_left, struct cl_err *err)
{
    bool more = true;
    for (int i = 0; i < FRAMES_PER_TURN && more; i++) {
        if (!chan_has_room_for_replies(&s->chan)) {
            *ret_left = false; /* writing first; the port's POLLOUT wakes us */
            return 0;
        }
        if (take_frame(s, &more, err) < 0)
            return -1;
    }
    *ret_left = more;
    return 0;
}

static int turn_dials(struct serve *s, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(s->dials); i++) {
        if (!s->dials[i])
            continue;
        if (dial_turn(s->dials[i], &s->gate, &s->chan, err) < 0)
            return -1;
        if (dial_is_gone(s->dials[i])) {
            dial_free(s->dials[i]);
            s->dials[i] = NULL;
        }
    }
    return 0;
}

static int turn_streams(struct serve *s, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(s->execs); i++) {
        if (!s->execs[i])
            continue;
        if (exec_turn(s->execs[i], &s->gate, &s->chan, err) < 0)
            return -1;
        if (exec_is_gone(s->execs[i])) {
            exec_free(s->execs[i]);
            s->execs[i] = NULL;
        }
    }
    for (size_t i = 0; i < CL_COUNT(s->files); i++) {
        if (!s->files[i])
            continue;
        if (files_turn(s->files[i], &s->gate, &s->chan, err) < 0)
            return -1;
        if (files_is_gone(s->files[i])) {
            files_free(s->files[i]);
            s->files[i] = NULL;
        }
    }
    if (turn_dials(s, err) < 0 || contexts_turn(&s->contexts, &s->gate, &s->chan, err) < 0)
        return -1;
    return sensor_turn(&s->sensor, &s->chan, err);
}

/* Who holds the most memory ends, as the OOM killer would have it. */
static void relieve(struct serve *s)
{
    struct thrash_look look = cgroups_look(&s->groups);
    if (!thrash_is_on(&s->thrash, &look))
        return;
    struct room *largest = contexts_largest(&s->contexts);
    for (size_t i = 0; i < CL_COUNT(s->execs); i++)
        if (s->execs[i])
            largest = room_larger(largest, exec_room(s->execs[i]));
    if (largest)
        room_starve(largest);
}

static void wait_for_events(struct serve *s, bool left)
{
    struct waits waits = {.deadline_ns = UINT64_MAX};
    waits_add(&waits, s->pressure_fd, POLLPRI); /* the first */
    for (size_t i = 0; i < CL_COUNT(s->execs); i++)
        if (s->execs[i])
            exec_wait(s->execs[i], &s->gate, &s->chan, &waits);
    for (size_t i = 0; i < CL_COUNT(s->files); i++)
        if (s->files[i])
            files_wait(s->files[i], &s->gate, &s->chan, &waits);
    for (size_t i = 0; i < CL_COUNT(s->dials); i++)
        if (s->dials[i])
            dial_wait(s->dials[i], &s->gate, &s->chan, &waits);
    contexts_wait(&s->contexts, &s->gate, &s->chan, &waits);
    sensor_wait(&s->sensor, &s->chan, &waits);
    short events = 0;
    if (chan_has_room_for_replies(&s->chan))
        events |= POLLIN;
    if (chan_has_output(&s->chan))
        events |= POLLOUT;
    if (s->chan.hung_up)
        waits_until(&waits, cl_now_ns() + HANG_UP_WAIT_MS * CL_NS_PER_MS);
    else
        waits_add(&waits, s->chan.fd, events);
    uint64_t now_ns = cl_now_ns();
    int timeout_ms = -1;
    if (left || waits.deadline_ns <= now_ns)
        timeout_ms = 0;
    else if (waits.deadline_ns != UINT64_MAX)
        timeout_ms = (int)CL_MIN((waits.deadline_ns - now_ns) / CL_NS_PER_MS + 1, UINT64_C(60000));
    (void)poll(waits.fds, waits.n, timeout_ms);
    if (waits.fds[0].revents & POLLPRI)
        relieve(s);
}

static int turn(struct serve *s, struct cl_err *err)
{
    bool left;
    if (chan_fill(&s->chan, err) < 0 || take_frames(s, &left, err) < 0 ||
        turn_streams(s, err) < 0 || chan_flush(&s->chan, err) < 0)
        return -1;
    wait_for_events(s, trim(s) || left);
    return 0;
}

static struct sensor_owner owner_of(const void *arg, uint64_t cgroup)
{
    const struct serve *s = arg;
    for (size_t i = 0; i < CL_COUNT(s->execs); i++)
        if (s->execs[i] && exec_cgroup(s->execs[i]) == cgroup)
            return (struct sensor_owner){.stream = exec_stream(s->execs[i]), .context = ""};
    return (struct sensor_owner){.context = contexts_by_cgroup(&s->contexts, cgroup)};
}

/* Who writes to the agent, or changes what its helper watches, is not interrupted for each piece:
 * they run when that one rests, or at the next tick.  Commands do not inherit it. */
static void be_patient(void)
{
    (void)sched_setscheduler(0, SCHED_BATCH, &(const struct sched_param){0});
}

/* User code must not be able to take the agent down with it. */
static int harden(struct cl_err *err)
{
    struct rlimit files = {OPEN_FILES_MAX, OPEN_FILES_MAX};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    FILE *adj = fopen("/proc/self/oom_score_adj", "we");
    if (!adj || fputs("-1000", adj) < 0 || fclose(adj) != 0)
        return cl_fail(err, CL_E_SYS, errno, "leave the OOM killer's list");
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 || sigaction(SIGPIPE, &ignore, NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set limits");
    return 0;
}

/* Without it memory that is full is seen by the OOM killer alone. */
static void watch_pressure(struct serve *s)
{
    struct cl_err failure = {0};
    s->pressure_fd = -1;
    if (cgroups_watch_pressure(&s->groups, &s->pressure_fd, &failure) < 0)
        (void)dprintf(STDERR_FILENO, "cloche-agent: %s\n", failure.text);
}

int serve_run(struct boot *boot, struct cl_err *err)
{
    static struct serve s; /* the one object of the process; too large for a comfortable stack */
    s.world = (struct room_world){
        .groups = &s.groups, .people = boot->people, .userns_fd = -1, .sensor = &s.sensor};
    s.scratch_fd = cl_steal_fd(&boot->scratch_fd);
    chan_init(&s.chan, cl_steal_fd(&boot->chan_fd));
    gate_init(&s.gate);
    identity_init(&s.identity);
    contexts_init(&s.contexts, &s.world);
    sensor_init(&s.sensor, boot->sensor_us, owner_of, &s);
    if (harden(err) < 0 || language_install(err) < 0 || cgroups_open(&s.groups, err) < 0 ||
        person_namespace_open(&s.world.userns_fd, err) < 0 || send_hello(&s, err) < 0)
        return -1;
    watch_pressure(&s);
    be_patient();
    while (turn(&s, err) == 0)
        continue;
    return -1;
}
