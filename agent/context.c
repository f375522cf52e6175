/* agent/context.c - see agent/context.h. */
#include "agent/context.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/language.h"
#include "agent/pump.h"
#include "agent/text.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/own.h"
#include "proto/code_frame.h"
#include "proto/unpack.h"

enum {
    TURN_MAX = 4 * GUEST_DATA_MAX, /* bytes of one outlet in one turn: others want theirs */
    BLOCK_MAX = GUEST_DATA_MAX,
    INTERRUPT_EVERY_MS = 1000,
    INTERRUPTS_MAX = 5,
    SEED_BYTES = 32,
    /* From the runner closing its socket, which a dying process does too, to calling it a breach.
     */
    FAREWELL_MS = 1000,
    BURY_RETRY_MS = 10,
};

enum stop { STOP_NONE, STOP_INTERRUPT, STOP_TIMEOUT };

/* ENDING: killed, or found dead; what it left behind is being cleared away. */
enum life { LIFE_DEAD, LIFE_ALIVE, LIFE_ENDING };

struct cell {
    bool runs;
    bool waits; /* for the interpreter that is launched next */
    bool fresh;
    bool begun;      /* the runner says that it has the code */
    uint64_t stream; /* 0 = nobody listens */
    uint64_t started_ns, deadline_ns;
    enum stop stop;
    int signals; /* sent */
    uint64_t next_signal_ns;
    uint64_t ahead[2]; /* bytes still in the pipes that were written before the block */
};

struct context {
    char id[CONTEXT_ID_MAX];
    const struct language *language;
    const struct room_world *world; /* borrowed */
    uint64_t serial;
    struct cl_buf spec; /* packed GuestExec */
    char *cwd;          /* owned */
    struct room room;
    enum life life;
    bool ready, killed, wants_launch, deleted;
    uint64_t farewell_ns; /* when its silence is a breach; UINT64_MAX = it has not closed */
    int frames;           /* owned: our end of the runner's fd 3; -1 = none */
    struct cl_buf in;
    struct code_reader reader;
    uint8_t block[BLOCK_MAX]; /* read off `frames`, not dealt with */
    size_t block_len, block_at;
    struct outlet out[2];
    struct cl_buf late[2];
    struct cell cell;
    uint32_t count;
    uint64_t op_stream; /* waits for READY; 0 = none */
    struct exec_report exited;
    int fail_errno; /* why it could not start */
    char error[160];
};

static const Cloche__V1__GuestChannel out_channels[] = {
    CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDOUT,
    CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDERR,
};

struct room *context_room(struct context *c)
{
    return c->life == LIFE_ALIVE ? &c->room : NULL;
}

uint64_t context_cgroup(const struct context *c)
{
    return c->room.cgroup_id;
}

const char *context_id(const struct context *c)
{
    return c->id;
}

bool context_is_deleted(const struct context *c)
{
    return c->deleted;
}

bool context_is_gone(const struct context *c)
{
    return c->deleted && c->life == LIFE_DEAD;
}

static Cloche__V1__GuestContextState state_of(const struct context *c)
{
    if (c->cell.runs)
        return CLOCHE__V1__GUEST_CONTEXT_STATE__GUEST_CONTEXT_STATE_BUSY;
    if (c->wants_launch || (c->life == LIFE_ALIVE && !c->ready))
        return CLOCHE__V1__GUEST_CONTEXT_STATE__GUEST_CONTEXT_STATE_STARTING;
    return c->life == LIFE_ALIVE ? CLOCHE__V1__GUEST_CONTEXT_STATE__GUEST_CONTEXT_STATE_IDLE
                                 : CLOCHE__V1__GUEST_CONTEXT_STATE__GUEST_CONTEXT_STATE_DEAD;
}

void context_describe(const struct context *c, Cloche__V1__GuestContext *out)
{
    cloche__v1__guest_context__init(out);
    out->id = (char *)(uintptr_t)c->id;
    out->language = c->language->id;
    out->cwd = c->cwd;
    out->state = state_of(c);
    out->execution_count = c->count;
}

/* --- the interpreter's process ---------------------------------------------------------------- */

static void close_pipes(struct context *c)
{
    for (size_t i = 0; i < CL_COUNT(c->out); i++)
        outlet_fini(&c->out[i]);
    cl_closep(&c->frames);
}

void context_free(struct context *c)
{
    if (!c)
        return;
    close_pipes(c);
    room_fini(&c->room);
    for (size_t i = 0; i < CL_COUNT(c->late); i++)
        cl_buf_fini(&c->late[i]);
    cl_buf_fini(&c->in);
    cl_buf_fini(&c->spec);
    cl_free(c->cwd);
    cl_free(c);
}
CL_DEFINE_AUTO(struct context, context_free)

static int make_pipes(struct context *c, int theirs[4], struct cl_err *err)
{
    int ours = -1, pair[2];
    theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (theirs[0] < 0)
        return cl_fail(err, CL_E_SYS, errno, "open /dev/null");
    for (int i = 0; i < 2; i++) {
        if (room_pipe(c->room.who, false, &ours, &theirs[i + 1], err) < 0)
            return -1;
        outlet_init(&c->out[i], ours, out_channels[i]);
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return cl_fail(err, CL_E_SYS, errno, "socketpair");
    c->frames = pair[0];
    theirs[3] = pair[1];
    if (fcntl(c->frames, F_SETFL, O_NONBLOCK) < 0)
        return cl_fail(err, CL_E_SYS, errno, "prepare a socket");
    return 0;
}

static int launch_in(struct context *c, const Cloche__V1__GuestExec *spec, struct cl_err *err)
{
    CL_AUTO(exec_env_freep) struct exec_env *env = NULL;
    struct room_start start = {.frames = -1};
    CL_AUTO(cl_closep) int in = -1, out = -1, error = -1, frames = -1;
    int theirs[4] = {-1, -1, -1, -1};
    const struct people *people = c->world->people;
    if (room_open(&c->room, c->world, c->serial, person_find(people, spec->user), err) < 0 ||
        exec_env_new(spec, people, c->room.tmpdir, &env, err) < 0 ||
        tier_get(spec->seccomp, &start.tier, err) < 0)
        return -1;
    int rc = make_pipes(c, theirs, err);
    start.env = env;
    start.stdio[0] = in = theirs[0];
    start.stdio[1] = out = theirs[1];
    start.stdio[2] = error = theirs[2];
    start.frames = frames = theirs[3];
    return rc < 0 ? -1 : room_launch(&c->room, &start, err);
}

static void note_failure(struct context *c, int error, const char *text)
{
    c->fail_errno = error;
    (void)snprintf(c->error, sizeof c->error, "%s", text);
    text_repair(c->error);
}

/* A failure is told when the room is found empty, as if the interpreter had ended at once. */
static void launch(struct context *c)
{
    struct cl_err err = {0};
    struct cl_arena *arena = NULL;
    const ProtobufCMessage *spec = NULL;
    c->wants_launch = c->ready = c->killed = false;
    c->life = LIFE_ALIVE;
    c->farewell_ns = UINT64_MAX;
    if (!c->cell.waits)
        c->count = 0;
    c->cell.waits = false;
    c->fail_errno = 0;
    c->error[0] = '\0';
    c->exited = (struct exec_report){0};
    c->reader = (struct code_reader){0};
    c->block_len = c->block_at = 0;
    if (cl_arena_new(GUEST_ARENA_FACTOR * CONTEXT_SPEC_MAX, &arena, &err) < 0 ||
        pb_unpack(&cloche__v1__guest_exec__descriptor, c->spec.data, c->spec.len, arena, &spec,
                  &err) < 0 ||
        launch_in(c, (const Cloche__V1__GuestExec *)spec, &err) < 0)
        note_failure(c, err.sys ? err.sys : EINVAL, err.text);
    cl_arena_free(arena);
}

static int keep_spec(struct context *c, const struct context_spec *spec, struct cl_err *err)
{
    Cloche__V1__GuestExec exec = CLOCHE__V1__GUEST_EXEC__INIT;
    exec.argv = (char **)(uintptr_t)c->language->argv;
    while (c->language->argv[exec.n_argv])
        exec.n_argv++;
    exec.env = spec->env;
    exec.n_env = spec->n_env;
    exec.cwd = c->cwd;
    exec.user = CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    exec.seccomp = CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_STANDARD;
    size_t n = cloche__v1__guest_exec__get_packed_size(&exec);
    if (cl_buf_reserve(&c->spec, n, err) < 0)
        return cl_wrap(err, "environment");
    c->spec.len = cloche__v1__guest_exec__pack(&exec, c->spec.data);
    return 0;
}

static bool is_id(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n < CONTEXT_ID_MAX && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

int context_new(const struct room_world *world, const struct context_spec *spec,
                struct context **ret_context, struct cl_err *err)
{
    const struct language *language = language_find(spec->language);
    if (strlen(spec->cwd) > CONTEXT_CWD_MAX)
        return cl_fail(err, CL_E_TOOBIG, E2BIG, "cwd: at most %d bytes", CONTEXT_CWD_MAX);
    if (!is_id(spec->id) || !language)
        return cl_fail(err, CL_E_INVALID, EINVAL, "context '%.40s', language %d", spec->id,
                       (int)spec->language);
    CL_AUTO(context_freep) struct context *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, ENOMEM, "context");
    *c = (struct context){.language = language,
                          .world = world,
                          .serial = spec->serial,
                          .room = {.pidfd = -1, .ctl = -1, .cgroup_fd = -1},
                          .frames = -1,
                          .cwd = cl_strdup(spec->cwd)};
    (void)snprintf(c->id, sizeof c->id, "%s", spec->id);
    cl_buf_init(&c->spec, CONTEXT_SPEC_MAX);
    cl_buf_init(&c->in, CONTEXT_IN_MAX);
    for (size_t i = 0; i < CL_COUNT(c->out); i++) {
        outlet_init(&c->out[i], -1, out_channels[i]);
        cl_buf_init(&c->late[i], CONTEXT_LATE_MAX);
    }
    if (!c->cwd)
        return cl_fail(err, CL_E_NOMEM, ENOMEM, "context");
    if (keep_spec(c, spec, err) < 0)
        return -1;
    c->wants_launch = true;
    *ret_context = CL_STEAL(&c);
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

static int send_ready(struct context *c, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    uint64_t id = c->op_stream;
    c->op_stream = 0;
    if (id == 0 || !gate_find(gate, id))
        return 0;
    Cloche__V1__GuestContextResult body;
    Cloche__V1__GuestContext row, *rows[] = {&row};
    cloche__v1__guest_context_result__init(&body);
    context_describe(c, &row);
    body.contexts = rows;
    body.n_contexts = CL_COUNT(rows);
    body.error_number = c->fail_errno;
    body.error = c->error;
    GUEST_FRAME(frame, id, CONTEXT_RESULT, context_result, &body);
    gate_close(gate, id);
    return chan_send(chan, &frame, err);
}

static int send_cell_ended(struct gate *gate, struct chan *chan, uint64_t stream,
                           Cloche__V1__GuestCellEnded *body, struct cl_err *err)
{
    if (stream == 0 || !gate_find(gate, stream))
        return 0;
    GUEST_FRAME(frame, stream, CELL_ENDED, cell_ended, body);
    gate_close(gate, stream);
    return chan_send(chan, &frame, err);
}

static int refuse_cell(uint64_t stream, int error, const char *why, struct gate *gate,
                       struct chan *chan, struct cl_err *err)
{
    Cloche__V1__GuestCellEnded body = CLOCHE__V1__GUEST_CELL_ENDED__INIT;
    body.end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_REFUSED;
    body.error_number = error;
    body.error = (char *)(uintptr_t)why;
    return send_cell_ended(gate, chan, stream, &body, err);
}

/* Tell the cell's stream how it went; `body` has end, and what belongs to it. */
static int answer_cell(struct context *c, Cloche__V1__GuestCellEnded *body, struct gate *gate,
                       struct chan *chan, struct cl_err *err)
{
    uint64_t stream = c->cell.stream;
    c->cell.stream = 0;
    body->execution_count = c->count;
    body->wall_ns = cl_now_ns() - c->cell.started_ns;
    body->state = state_of(c);
    if (sensor_tell_of(c->world->sensor, chan, c->room.cgroup_id, err) < 0)
        return -1;
    return send_cell_ended(gate, chan, stream, body, err);
}

/* --- cells ------------------------------------------------------------------------------------ */

/* All of it or nothing.  An interpreter that reads no more keeps what came before. */
static int queue_code(struct context *c, const Cloche__V1__GuestCell *cell, struct cl_err *err)
{
    uint32_t count = c->life == LIFE_ALIVE ? c->count : 0;
    size_t before = c->in.len, n = strlen(cell->code);
    if (cell_env_write(cell, &c->in, err) == 0 &&
        cl_buf_printf(&c->in, err, "%s %" PRIu32 " %zu\n", cell->warm_up ? "warm" : "run",
                      count + !cell->warm_up, n) == 0 &&
        cl_buf_append(&c->in, cell->code, n, err) == 0)
        return 0;
    c->in.len = before;
    return -1;
}

static int send_started(struct context *c, struct chan *chan, struct cl_err *err)
{
    Cloche__V1__GuestCellStarted body = CLOCHE__V1__GUEST_CELL_STARTED__INIT;
    body.language = c->language->id;
    body.execution_count = c->count;
    body.fresh = c->cell.fresh;
    GUEST_FRAME(frame, c->cell.stream, CELL_STARTED, cell_started, &body);
    return chan_send(chan, &frame, err);
}

int context_run(struct context *c, uint64_t stream, const Cloche__V1__GuestCell *cell,
                struct gate *gate, struct chan *chan, struct cl_err *err)
{
    const char *why;
    if (c->cell.runs)
        return refuse_cell(stream, EBUSY, "the context runs another cell", gate, chan, err);
    if (strlen(cell->code) > CONTEXT_CODE_MAX)
        return refuse_cell(stream, E2BIG, "more than 1 MiB of code", gate, chan, err);
    int bad = cell_env_check(cell, c->language->id, &why);
    if (bad)
        return refuse_cell(stream, bad, why, gate, chan, err);
    if (queue_code(c, cell, NULL) < 0)
        return refuse_cell(stream, EBUSY, "the interpreter takes no code", gate, chan, err);
    bool waits = c->life != LIFE_ALIVE;
    if (waits) {
        c->wants_launch = true;
        c->count = 0;
    }
    c->count += !cell->warm_up;
    c->cell = (struct cell){.runs = true,
                            .waits = waits,
                            .fresh = waits,
                            .stream = stream,
                            .started_ns = cl_now_ns(),
                            .deadline_ns = UINT64_MAX};
    if (cell->timeout_ns > 0 && cell->timeout_ns < UINT64_MAX - c->cell.started_ns)
        c->cell.deadline_ns = c->cell.started_ns + cell->timeout_ns;
    return send_started(c, chan, err);
}

static void stop_cell(struct context *c, enum stop why)
{
    if (!c->cell.runs || c->cell.stop != STOP_NONE)
        return;
    c->cell.stop = why;
    c->cell.next_signal_ns = cl_now_ns();
    c->cell.deadline_ns = UINT64_MAX;
}

void context_reset(struct context *c, uint64_t stream)
{
    if (stream == c->op_stream)
        c->op_stream = 0;
    if (stream != c->cell.stream || stream == 0)
        return;
    c->cell.stream = 0;
    stop_cell(c, STOP_INTERRUPT);
}

bool context_interrupt(struct context *c)
{
    stop_cell(c, STOP_INTERRUPT);
    return c->cell.runs;
}

/* An interpreter that is still starting gets it when it takes the code. */
static bool wants_interrupt(const struct context *c)
{
    return c->life == LIFE_ALIVE && c->ready && c->cell.runs && c->cell.stop != STOP_NONE &&
           c->cell.signals <= INTERRUPTS_MAX;
}

/* While the runner still reads the code it would lose its place in the lines, or the interrupt.
 * The runner alone first: its own way of ending a cell leaves child processes in the background in
 * peace.  What does not help within a second (a child in the foreground) goes to the whole group.
 */
static int press_interrupt(struct context *c, struct gate *gate, struct chan *chan,
                           struct cl_err *err)
{
    struct cell *cell = &c->cell;
    uint64_t now_ns = cl_now_ns();
    if (!wants_interrupt(c) || now_ns < cell->next_signal_ns)
        return 0;
    cell->next_signal_ns = now_ns + INTERRUPT_EVERY_MS * CL_NS_PER_MS;
    if (cell->signals++ < INTERRUPTS_MAX) {
        if (cell->begun && cell->signals == 1 && !c->language->group)
            room_signal_command(&c->room, SIGINT);
        else if (cell->begun)
            room_signal(&c->room, SIGINT);
        return 0;
    }
    Cloche__V1__GuestCellEnded body = CLOCHE__V1__GUEST_CELL_ENDED__INIT;
    body.end = cell->stop == STOP_TIMEOUT ? CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_TIMED_OUT
                                          : CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_INTERRUPTED;
    body.error = (char *)(uintptr_t) "the code ignores its interrupt and still runs";
    return answer_cell(c, &body, gate, chan, err);
}

/* --- what the runner says --------------------------------------------------------------------- */

static void kill_interpreter(struct context *c)
{
    if (c->life != LIFE_ALIVE)
        return;
    c->life = LIFE_ENDING;
    c->killed = true;
    c->block_len = c->block_at = 0;
    cl_buf_clear(&c->in);
    room_kill(&c->room);
}

/* It broke the protocol: nothing that it says means anything any more. */
static void give_up(struct context *c, const char *why)
{
    note_failure(c, EPROTO, why);
    kill_interpreter(c);
}

/* An interrupt that overtook the code counts from here; what says it twice gains nothing. */
static void begin_cell(struct context *c)
{
    if (!c->cell.runs || c->cell.begun)
        return;
    c->cell.begun = true;
    c->cell.signals = 0;
    c->cell.next_signal_ns = cl_now_ns();
}

static int end_cell(struct context *c, const struct code_piece *piece, struct gate *gate,
                    struct chan *chan, struct cl_err *err)
{
    Cloche__V1__GuestCellEnded body = CLOCHE__V1__GUEST_CELL_ENDED__INIT;
    body.end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_OK;
    if (piece->outcome == CODE_FAILED)
        body.end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_ERROR;
    if (piece->outcome == CODE_INTERRUPTED)
        body.end = c->cell.stop == STOP_TIMEOUT
                       ? CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_TIMED_OUT
                       : CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_INTERRUPTED;
    body.exit_code = piece->status;
    c->cell.runs = false;
    return answer_cell(c, &body, gate, chan, err);
}

static int send_event(const struct context *c, struct gate_stream *stream, struct chan *chan,
                      const uint8_t *data, size_t n, struct cl_err *err)
{
    if (!stream || n == 0)
        return 0;
    CL_ASSERT(n <= stream->send_credit); /* has_credit() was asked for the whole block */
    Cloche__V1__GuestData body = CLOCHE__V1__GUEST_DATA__INIT;
    body.channel = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_EVENTS;
    body.bytes.data = (uint8_t *)(uintptr_t)data;
    body.bytes.len = n;
    stream->send_credit -= (uint32_t)n;
    GUEST_FRAME(frame, c->cell.stream, DATA, data, &body);
    return chan_send(chan, &frame, err);
}

static int take_piece(struct context *c, const struct code_piece *piece, struct gate *gate,
                      struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = gate_find(gate, c->cell.stream);
    switch (piece->head->kind) {
    case CODE_READY:
        c->ready = true;
        return send_ready(c, gate, chan, err);
    case CODE_RESULT:
    case CODE_ERROR:
        if (piece->first) {
            uint8_t head[CODE_FRAME_HEAD];
            code_head_write(piece->head, head);
            if (send_event(c, stream, chan, head, sizeof head, err) < 0)
                return -1;
        }
        return send_event(c, stream, chan, piece->data, piece->n, err);
    case CODE_BEGUN:
        begin_cell(c);
        return 0;
    case CODE_ENDED:
        return c->cell.runs ? end_cell(c, piece, gate, chan, err) : 0;
    }
    return 0;
}

static int take_block(struct context *c, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    while (c->block_at < c->block_len && c->life == LIFE_ALIVE) {
        struct cl_err breach = {0};
        struct code_piece piece;
        size_t used;
        if (code_reader_next(&c->reader, c->block + c->block_at, c->block_len - c->block_at, &used,
                             &piece, &breach) < 0) {
            give_up(c, breach.text);
            break;
        }
        c->block_at += used;
        if (piece.head && take_piece(c, &piece, gate, chan, err) < 0)
            return -1;
    }
    c->block_at = c->block_len = 0;
    return 0;
}

/* Half a head may be held back, so a block can become a little more than it was. */
static bool wants_frames(const struct context *c, const struct gate_stream *stream,
                         const struct chan *chan)
{
    if (c->frames < 0 || c->block_len > 0)
        return false;
    return !stream || (stream->send_credit > 2 * CODE_FRAME_HEAD && chan_has_room_for_data(chan));
}

static void count_ahead(struct context *c)
{
    for (size_t i = 0; i < CL_COUNT(c->out); i++) {
        int bytes = 0;
        if (c->out[i].fd >= 0)
            (void)ioctl(c->out[i].fd, FIONREAD, &bytes); /* it is a pipe: cannot fail */
        c->cell.ahead[i] = (uint64_t)bytes;
    }
}

/* A runner writes, flushes, sends a frame, and may wait until that is taken before it writes again:
 * so what is in the pipes between the sight of the frame and its taking was written before it. */
static void read_block(struct context *c, const struct gate_stream *stream)
{
    size_t want = sizeof c->block;
    if (stream)
        want = CL_MIN(want, (size_t)stream->send_credit - CODE_FRAME_HEAD);
    ssize_t n = recv(c->frames, c->block, want, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0) {
        count_ahead(c);
        n = recv(c->frames, c->block, (size_t)n, MSG_DONTWAIT);
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        cl_closep(&c->frames);
        c->farewell_ns = cl_now_ns() + FAREWELL_MS * CL_NS_PER_MS;
    }
    if (n <= 0)
        return;
    c->block_len = (size_t)n;
}

static bool may_move(const struct context *c, size_t which)
{
    return c->block_len == 0 || c->cell.ahead[which] > 0;
}

/* --- output ----------------------------------------------------------------------------------- */

/* Nobody listens: keep a little for the next cell, drop the rest.  A reset cell's is all dropped.
 */
static void read_late(struct context *c, int which)
{
    uint8_t data[4096];
    struct outlet *out = &c->out[which];
    for (size_t moved = 0; out->fd >= 0 && moved < TURN_MAX;) {
        ssize_t n = read(out->fd, data, sizeof data);
        if (n == 0)
            cl_closep(&out->fd);
        if (n <= 0)
            return;
        moved += (size_t)n;
        size_t room = c->late[which].max - c->late[which].len;
        if (!c->cell.runs && room > 0)
            (void)!cl_buf_append(&c->late[which], data, CL_MIN((size_t)n, room), NULL);
    }
}

static int send_late(struct context *c, int which, struct gate_stream *stream, struct chan *chan,
                     struct cl_err *err)
{
    struct cl_buf *late = &c->late[which];
    if (late->len == 0 || stream->send_credit < late->len)
        return 0;
    Cloche__V1__GuestData body = CLOCHE__V1__GUEST_DATA__INIT;
    body.channel = out_channels[which];
    body.bytes.data = late->data;
    body.bytes.len = late->len;
    stream->send_credit -= (uint32_t)late->len;
    GUEST_FRAME(frame, stream->id, DATA, data, &body);
    int rc = chan_send(chan, &frame, err);
    cl_buf_fini(late);
    cl_buf_init(late, CONTEXT_LATE_MAX);
    return rc;
}
_Static_assert((int)CONTEXT_LATE_MAX <= (int)GUEST_DATA_MAX, "what is late fits one frame");

/* With a block at hand what came before it, no more; else what there is.  *ret_dry: it has been
 * sent. */
static int move_output(struct context *c, struct gate_stream *stream, struct chan *chan,
                       bool *ret_dry, struct cl_err *err)
{
    *ret_dry = true;
    for (int i = 0; i < 2; i++) {
        struct outlet *out = &c->out[i];
        if (!stream) {
            read_late(c, i);
            continue;
        }
        if (send_late(c, i, stream, chan, err) < 0)
            return -1;
        if (!may_move(c, (size_t)i))
            continue;
        uint64_t before = out->total, *ahead = &c->cell.ahead[i];
        uint64_t max = c->block_len > 0 ? CL_MIN(*ahead, (uint64_t)TURN_MAX) : TURN_MAX;
        bool dry;
        if (outlet_turn(out, stream, chan, max, &dry, err) < 0)
            return -1;
        *ahead -= CL_MIN(*ahead, out->total - before);
        *ret_dry &= dry || (c->block_len > 0 && *ahead == 0);
    }
    return 0;
}

static void write_in(struct context *c)
{
    while (c->frames >= 0 && c->in.len > 0) {
        ssize_t n = send(c->frames, c->in.data, c->in.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* EPIPE too: its end is noticed elsewhere */
        cl_buf_consume(&c->in, (size_t)n);
    }
}

/* Output may have used the credit that was there when the block was read. */
static bool has_credit(const struct context *c, const struct gate_stream *stream)
{
    return !stream || stream->send_credit >= c->block_len - c->block_at + CODE_FRAME_HEAD;
}

static int talk(struct context *c, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = gate_find(gate, c->cell.stream);
    bool dry = true;
    write_in(c);
    if (wants_frames(c, stream, chan))
        read_block(c, stream);
    if (move_output(c, stream, chan, &dry, err) < 0)
        return -1;
    return c->block_len > 0 && dry && has_credit(c, stream) ? take_block(c, gate, chan, err) : 0;
}

/* --- end and restart -------------------------------------------------------------------------- */

int context_await_ready(struct context *c, uint64_t stream)
{
    if (c->op_stream != 0)
        return -EBUSY;
    c->op_stream = stream;
    return 0;
}

void context_restart(struct context *c)
{
    kill_interpreter(c);
    c->wants_launch = true;
}

void context_delete(struct context *c)
{
    kill_interpreter(c);
    c->wants_launch = c->cell.waits = false;
    c->deleted = true;
}

void context_reseed(struct context *c)
{
    uint8_t noise[SEED_BYTES];
    char hex[2 * SEED_BYTES + 1];
    if (c->life != LIFE_ALIVE)
        return;
    cl_random(noise, sizeof noise);
    cl_hex(noise, sizeof noise, hex);
    (void)!cl_buf_printf(&c->in, NULL, "seed %s\n", hex); /* full only behind code: not parked */
    write_in(c);
}

static void take_reports(struct context *c)
{
    struct exec_report report;
    while (room_next_report(&c->room, &report)) {
        if (report.kind == EXEC_REPORT_EXITED)
            c->exited = report;
        if (report.kind != EXEC_REPORT_FAILED)
            continue;
        char text[160];
        bool missing = report.a == EXEC_STEP_COMMAND && report.b == ENOENT;
        (void)snprintf(text, sizeof text, missing ? "this template has no %s" : "start %s: %s",
                       c->language->argv[0], strerror(report.b));
        note_failure(c, missing ? ENOEXEC : report.b, text);
    }
}

/* How the interpreter ended, told to the cell that ran in it. */
static void fill_end(const struct context *c, Cloche__V1__GuestCellEnded *body)
{
    int status = c->exited.a;
    bool killed = c->exited.kind == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    body->error = (char *)(uintptr_t)c->error;
    body->error_number = c->fail_errno;
    if (c->fail_errno == EPROTO) {
        body->end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_FAILED;
    } else if (c->killed) {
        body->end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_RESTARTED;
    } else if (c->fail_errno) {
        body->end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_REFUSED;
    } else if (killed && room_had_oom(&c->room)) {
        body->end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_OOM_KILLED;
        body->signal = SIGKILL;
    } else {
        body->end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_EXITED;
        body->signal = killed ? SIGKILL : WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        body->exit_code = body->signal ? 0 : WEXITSTATUS(status);
    }
}

static int tell_end(struct context *c, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    Cloche__V1__GuestCellEnded body = CLOCHE__V1__GUEST_CELL_ENDED__INIT;
    if (!c->cell.runs || c->cell.waits)
        return 0;
    fill_end(c, &body);
    c->cell.runs = false;
    return answer_cell(c, &body, gate, chan, err);
}

static void note_death(struct context *c)
{
    c->life = LIFE_ENDING;
    cl_buf_clear(&c->in);
    if (!c->ready && c->fail_errno == 0) {
        char text[96];
        (void)snprintf(text, sizeof text, "%s ended while it started", c->language->argv[0]);
        note_failure(c, ENOEXEC, text);
    }
}

/* All its processes are dead: send what is left in the pipes, tell the end, clear away. */
static int take_leave(struct context *c, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = c->cell.waits ? NULL : gate_find(gate, c->cell.stream);
    bool dry;
    if (move_output(c, stream, chan, &dry, err) < 0)
        return -1;
    if (stream && !dry)
        return 0;
    close_pipes(c);
    if (sensor_tell_end(c->world->sensor, chan, c->room.cgroup_id, err) < 0 ||
        tell_end(c, gate, chan, err) < 0)
        return -1;
    if (!room_bury(&c->room))
        return 0;
    room_fini(&c->room);
    c->life = LIFE_DEAD;
    if (c->wants_launch)
        return 0;
    if (c->deleted)
        note_failure(c, ECANCELED, "the context was deleted");
    return send_ready(c, gate, chan, err);
}

int context_turn(struct context *c, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    uint64_t now_ns = cl_now_ns();
    if (c->life == LIFE_DEAD && c->wants_launch && !c->deleted)
        launch(c);
    if (c->life == LIFE_DEAD)
        return 0;
    if (now_ns >= c->cell.deadline_ns)
        stop_cell(c, STOP_TIMEOUT);
    bool dead = room_reap(&c->room); /* first: what it wrote outlives it */
    if (c->life == LIFE_ALIVE) {
        take_reports(c);
        if (press_interrupt(c, gate, chan, err) < 0 || talk(c, gate, chan, err) < 0)
            return -1;
        if (now_ns >= c->farewell_ns && !dead)
            give_up(c, "the interpreter closed its frames");
    }
    /* A whole turn after its death at the earliest: its last frames have been read then. */
    if (c->life == LIFE_ALIVE && dead && c->block_len == 0 && c->frames < 0)
        note_death(c);
    return c->life == LIFE_ENDING && dead ? take_leave(c, gate, chan, err) : 0;
}

void context_wait(const struct context *c, struct gate *gate, const struct chan *chan,
                  struct waits *waits)
{
    const struct gate_stream *stream = gate_find(gate, c->cell.stream);
    if (c->life == LIFE_DEAD && c->wants_launch)
        waits_until(waits, 0);
    if (c->life == LIFE_DEAD)
        return;
    if (c->room.pidfd >= 0)
        waits_add(waits, c->room.pidfd, POLLIN);
    else
        waits_until(waits, cl_now_ns() + BURY_RETRY_MS * CL_NS_PER_MS);
    for (size_t i = 0; i < CL_COUNT(c->out); i++)
        if (c->out[i].fd >= 0 && may_move(c, i) &&
            (!stream || outlet_wants_read(&c->out[i], stream, chan)))
            waits_add(waits, c->out[i].fd, POLLIN);
    if (c->life == LIFE_ENDING)
        return;
    if (c->cell.runs)
        waits_until(waits, c->cell.deadline_ns);
    if (wants_interrupt(c))
        waits_until(waits, c->cell.next_signal_ns);
    if (c->farewell_ns != UINT64_MAX)
        waits_until(waits, c->farewell_ns);
    short events = wants_frames(c, stream, chan) ? POLLIN : 0;
    if (c->in.len > 0)
        events |= POLLOUT;
    if (c->frames >= 0 && events)
        waits_add(waits, c->frames, events);
}
