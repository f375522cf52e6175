/* worker/guest_io.c - see worker/guest.h. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "proto/guest_frame.h"
#include "worker/guest.h"

enum {
    IN_MAX = 2 * (GUEST_FRAME_MAX + GUEST_FRAME_HEADER),
    READ_STEP = 65536,
    CONSUME_STEP = GUEST_WINDOW_INITIAL / 4, /* credit is given back in pieces of this size */
};

enum hold { HOLD_NONE, HOLD_ASKED, HOLD_HELD };

/* How far a connection's stream is; the worker's own direction is `sent_eof`. */
enum dial_state { DIAL_NONE, DIAL_CALLED, DIAL_CONNECTED, DIAL_AT_EOF };

struct guest_stream {
    struct cl_list link;
    struct guest *guest; /* borrowed: lives longer */
    uint64_t id;
    struct guest_stream_events events;
    void *arg;
    uint64_t send_credit; /* bytes that we may send */
    uint64_t recv_credit; /* bytes that the guest may send */
    uint64_t consumed;    /* taken, not given back yet */
    enum dial_state dial;
    bool is_file; /* a file operation */
    bool sent_eof;
    bool wants_room;
    bool closed;
    struct cl_err why;
};

struct guest {
    struct cl_loop *loop; /* borrowed */
    int fd;               /* borrowed */
    struct guest_events events;
    void *arg;
    struct cl_fd_watch in_watch, out_watch;
    struct cl_timer kick; /* runs what must not run inside a call: closes, breaks, room */
    struct cl_list streams;
    struct cl_list closed; /* waiting for their on_close */
    size_t n_streams;
    uint64_t next_id;
    struct cl_buf in, out;
    bool broken, told;
    uint64_t rested_ns, resting_since_ns; /* 0 = it is not */
    enum hold hold;
    unsigned held_late;        /* Held of holds that were given up */
    size_t hold_at;            /* nothing is sent behind so many bytes of `out` */
    struct guest_past past;    /* while it is held */
    struct guest_past unheard; /* of a copy: what nobody listens to */
    struct cl_err why;
};

static void break_guest(struct guest *g, const struct cl_err *why)
{
    if (g->broken)
        return;
    g->broken = true;
    g->why = *why;
    cl_fd_watch_set(&g->in_watch, false);
    cl_fd_watch_set(&g->out_watch, false);
    cl_timer_start(&g->kick, 0);
}

static void break_with(struct guest *g, enum cl_code code, int sys, const char *text)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, code, sys, "%s", text);
    break_guest(g, &why);
}

static void close_stream(struct guest_stream *s, const struct cl_err *why)
{
    if (s->closed)
        return;
    s->closed = true;
    if (why)
        s->why = *why;
    cl_list_unlink(&s->link);
    cl_list_push(&s->guest->closed, &s->link);
    cl_timer_start(&s->guest->kick, 0);
}

static void run_closes(struct guest *g)
{
    while (!cl_list_empty(&g->closed)) {
        struct guest_stream *s = CL_LIST_ENTRY(g->closed.next, struct guest_stream, link);
        cl_list_unlink(&s->link);
        g->n_streams--;
        s->events.on_close(s->arg, s->why.code ? &s->why : NULL);
        cl_free(s);
    }
}

/* What is queued for it now dies with this process, should another take it up. */
static bool is_still(const struct guest *g)
{
    return g->hold != HOLD_NONE || g->resting_since_ns > 0;
}

static void offer_room(struct guest *g)
{
    CL_LIST_FOREACH (node, &g->streams) {
        struct guest_stream *s = CL_LIST_ENTRY(node, struct guest_stream, link);
        if (s->wants_room && s->send_credit > 0 && g->out.len < GUEST_OUT_MAX / 2 && !g->broken &&
            !is_still(g)) {
            s->wants_room = false;
            s->events.on_room(s->arg);
        }
    }
}

static void on_kick(void *arg)
{
    struct guest *g = arg;
    if (g->broken) {
        CL_LIST_FOREACH (node, &g->streams)
            close_stream(CL_LIST_ENTRY(node, struct guest_stream, link), &g->why);
    }
    run_closes(g);
    offer_room(g);
    if (g->broken && !g->told) {
        g->told = true;
        g->events.on_broken(g->arg, &g->why); /* may free g */
    }
}

/* --- output --------------------------------------------------------------------------------- */

static size_t sendable(const struct guest *g)
{
    return g->hold == HOLD_NONE ? g->out.len : g->hold_at;
}

static void flush(struct guest *g)
{
    while (sendable(g) > 0 && !g->broken) {
        ssize_t n = send(g->fd, g->out.data, sendable(g), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            break_with(g, CL_E_GUEST, errno, "write to the agent");
            return;
        }
        cl_buf_consume(&g->out, (size_t)n);
        g->hold_at -= g->hold == HOLD_NONE ? 0 : (size_t)n;
    }
    cl_fd_watch_set(&g->out_watch, sendable(g) > 0 && !g->broken);
}

static void on_writable(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    struct guest *g = arg;
    flush(g);
    offer_room(g);
}

static int send_frame(struct guest *g, const Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    if (g->broken)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the agent is gone");
    if (guest_frame_pack(&g->out, frame, GUEST_COMMAND_MAX, err) < 0)
        return -1;
    flush(g);
    return 0;
}

/* --- input ---------------------------------------------------------------------------------- */

static struct guest_stream *find_stream(struct guest *g, uint64_t id)
{
    CL_LIST_FOREACH (node, &g->streams) {
        struct guest_stream *s = CL_LIST_ENTRY(node, struct guest_stream, link);
        if (s->id == id)
            return s;
    }
    return NULL;
}

/* --- held, and copied ----------------------------------------------------------------------- */

/* What is over the room no honest agent has open. */
static void past_add(struct guest_past *past, uint64_t id, bool ends)
{
    if (past->n < CL_COUNT(past->streams))
        past->streams[past->n++] = (struct guest_past_stream){.id = id, .ends = ends};
}

static struct guest_past_stream *past_find(struct guest_past *past, uint64_t id)
{
    for (size_t i = 0; i < past->n; i++)
        if (past->streams[i].id == id)
            return &past->streams[i];
    return NULL;
}

static void past_remember(struct guest *g)
{
    g->past = (struct guest_past){.next_stream = g->next_id};
    for (size_t i = 0; i < g->unheard.n; i++)
        past_add(&g->past, g->unheard.streams[i].id, false);
    CL_LIST_FOREACH (node, &g->streams) {
        const struct guest_stream *s = CL_LIST_ENTRY(node, struct guest_stream, link);
        past_add(&g->past, s->id, s->is_file || s->dial != DIAL_NONE);
    }
}

/* Nothing is on its way, and nothing that waits here counts yet.  No honest agent gives more than
 * it has room for. */
static void past_measure(struct guest *g)
{
    CL_LIST_FOREACH (node, &g->streams) {
        const struct guest_stream *s = CL_LIST_ENTRY(node, struct guest_stream, link);
        struct guest_past_stream *p = past_find(&g->past, s->id);
        if (!p)
            continue;
        p->send_credit = CL_MIN(s->send_credit, (uint64_t)GUEST_WINDOW_INITIAL);
        p->recv_credit = s->recv_credit;
        p->consumed = s->consumed;
    }
}

static void past_forget(struct guest_past *past, uint64_t id)
{
    struct guest_past_stream *s = past_find(past, id);
    if (s)
        *s = past->streams[--past->n];
}

static bool is_last_of_stream(const Cloche__V1__GuestFrame *f)
{
    switch ((int)f->body_case) { /* hostile: any value, and generated, so no exhaustive switch */
    case CLOCHE__V1__GUEST_FRAME__BODY_RESET:
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC_ENDED:
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL_ENDED:
    case CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_RESULT:
    case CLOCHE__V1__GUEST_FRAME__BODY_HUNG_UP:
        return true;
    case CLOCHE__V1__GUEST_FRAME__BODY_FILE_RESULT:
        return !f->file_result->more;
    default:
        return false;
    }
}

static int send_window(struct guest *g, uint64_t stream, uint64_t bytes)
{
    Cloche__V1__GuestWindow window = CLOCHE__V1__GUEST_WINDOW__INIT;
    window.bytes = (uint32_t)bytes;
    GUEST_FRAME(frame, stream, WINDOW, window, &window);
    return send_frame(g, &frame, NULL);
}

static int send_reset(struct guest *g, uint64_t stream, const char *reason)
{
    Cloche__V1__GuestReset body = CLOCHE__V1__GUEST_RESET__INIT;
    body.reason = (char *)(uintptr_t)reason;
    GUEST_FRAME(frame, stream, RESET, reset, &body);
    return send_frame(g, &frame, NULL);
}

/* Of a copy: on a stream that nobody here opened.  Whoever writes there must not stop for that. */
static void drain(struct guest *g, const Cloche__V1__GuestFrame *f)
{
    struct guest_past_stream *s = past_find(&g->unheard, f->stream);
    if (!s || f->body_case != CLOCHE__V1__GUEST_FRAME__BODY_DATA)
        return;
    s->consumed += f->data->bytes.len;
    if (s->consumed >= CONSUME_STEP && send_window(g, s->id, s->consumed) == 0)
        s->consumed = 0;
}

/* What came behind it would be of the channel of the VM that was copied, and of no copy's. */
static int on_held(struct guest *g, struct cl_err *err)
{
    if (g->held_late > 0) {
        g->held_late--;
        return 0;
    }
    if (g->hold != HOLD_ASKED)
        return cl_fail(err, CL_E_PEER, 0, "the agent holds, and nobody asked for that");
    g->hold = HOLD_HELD;
    past_measure(g);
    g->events.on_held(g->arg, &g->past);
    return 0;
}

int guest_hold(struct guest *guest, struct cl_err *err)
{
    Cloche__V1__GuestHold body = CLOCHE__V1__GUEST_HOLD__INIT;
    GUEST_FRAME(frame, 0, HOLD, hold, &body);
    CL_ASSERT(guest->hold == HOLD_NONE);
    if (guest->broken)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the agent is gone");
    if (guest_frame_pack(&guest->out, &frame, GUEST_COMMAND_MAX, err) < 0)
        return -1;
    guest->hold = HOLD_ASKED;
    guest->hold_at = guest->out.len;
    past_remember(guest);
    flush(guest);
    return 0;
}

/* In pieces; none while it is held: the agent would not know of them yet. */
static void give_credit(struct guest_stream *s)
{
    struct guest *g = s->guest;
    if (s->consumed < CONSUME_STEP || s->closed || g->hold != HOLD_NONE ||
        send_window(g, s->id, s->consumed) < 0)
        return;
    s->recv_credit += s->consumed;
    s->consumed = 0;
}

/* Its frame goes before what has queued up. */
int guest_release(struct guest *guest, struct cl_err *err)
{
    enum { FRAME_MAX = 16 };
    Cloche__V1__GuestRelease body = CLOCHE__V1__GUEST_RELEASE__INIT;
    GUEST_FRAME(frame, 0, RELEASE, release, &body);
    uint8_t bytes[FRAME_MAX];
    size_t before = guest->out.len;
    if (guest->broken)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the agent is gone");
    if (guest_frame_pack(&guest->out, &frame, GUEST_COMMAND_MAX, err) < 0)
        return -1;
    size_t n = guest->out.len - before, at = guest->hold == HOLD_NONE ? before : guest->hold_at;
    CL_ASSERT(n <= sizeof bytes);
    memcpy(bytes, guest->out.data + before, n);
    memmove(guest->out.data + at + n, guest->out.data + at, before - at);
    memcpy(guest->out.data + at, bytes, n);
    guest->held_late += guest->hold == HOLD_ASKED;
    guest->hold = HOLD_NONE;
    guest->past.n = 0;
    flush(guest);
    CL_LIST_FOREACH (node, &guest->streams)
        give_credit(CL_LIST_ENTRY(node, struct guest_stream, link));
    cl_timer_start(&guest->kick, 0);
    return 0;
}

void guest_take_up(struct guest *guest, const struct guest_past *past)
{
    CL_ASSERT(guest->hold == HOLD_NONE && guest->out.len == 0);
    guest->hold = HOLD_HELD;
    guest->hold_at = 0;
    guest->past = *past;
}

int guest_release_copy(struct guest *guest, const struct guest_past *past, struct cl_err *err)
{
    if (guest_release(guest, err) < 0)
        return -1;
    for (size_t i = 0; i < past->n; i++) {
        const struct guest_past_stream *s = &past->streams[i];
        if (find_stream(guest, s->id))
            continue; /* adopted */
        if (!s->ends)
            past_add(&guest->unheard, s->id, false);
        if ((s->ends ? send_reset(guest, s->id, "a copy has nobody who could go on with it")
                     : send_window(guest, s->id, GUEST_WINDOW_INITIAL)) < 0)
            return cl_fail(err, CL_E_UNAVAILABLE, 0, "the agent is gone");
    }
    return 0;
}

/* --- frames ----------------------------------------------------------------------------------- */

static int on_connection_frame(struct guest *g, const Cloche__V1__GuestFrame *f, struct cl_err *err)
{
    switch ((int)f->body_case) { /* hostile: any value, and generated, so no exhaustive switch */
    case CLOCHE__V1__GUEST_FRAME__BODY_HELLO:
        if (f->hello->protocol_major != GUEST_PROTOCOL_MAJOR)
            return cl_fail(
                err, CL_E_PEER, 0,
                "the agent speaks protocol %u, this worker %d: rebuild the template with "
                "`cloche template build`",
                f->hello->protocol_major, GUEST_PROTOCOL_MAJOR);
        g->events.on_hello(g->arg, f->hello);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY_DONE:
        g->events.on_identity(g->arg, f->identity_done);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_STATS:
        if (g->events.on_stats)
            g->events.on_stats(g->arg, f->stats);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_HELD:
        return on_held(g, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_PONG:
        if (g->events.on_pong)
            g->events.on_pong(g->arg, f->pong);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_EVENTS:
        if (g->events.on_watched)
            g->events.on_watched(g->arg, f->events);
        return 0;
    default:
        return cl_fail(err, CL_E_PEER, 0, "the agent sent a frame of kind %d on stream 0",
                       (int)f->body_case);
    }
}

static int on_data(struct guest_stream *s, const Cloche__V1__GuestData *data, struct cl_err *err)
{
    if (data->bytes.len > s->recv_credit)
        return cl_fail(err, CL_E_PEER, 0, "the agent sent more than its credit");
    s->recv_credit -= data->bytes.len;
    return 0;
}

/* Frames of a connection come on its stream only, and nothing else does. */
static bool has_place(const struct guest_stream *s, const Cloche__V1__GuestFrame *f)
{
    bool is_dial = s->dial != DIAL_NONE;
    switch ((int)f->body_case) { /* hostile: any value, and generated, so no exhaustive switch */
    case CLOCHE__V1__GUEST_FRAME__BODY_WINDOW:
    case CLOCHE__V1__GUEST_FRAME__BODY_RESET:
        return true;
    case CLOCHE__V1__GUEST_FRAME__BODY_DIALED:
        return s->dial == DIAL_CALLED;
    case CLOCHE__V1__GUEST_FRAME__BODY_DATA:
        if (f->data->channel == CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_SOCKET)
            return s->dial == DIAL_CONNECTED;
        return !is_dial;
    case CLOCHE__V1__GUEST_FRAME__BODY_HUNG_UP:
        return f->hung_up->error_number == 0 ? s->dial == DIAL_AT_EOF && s->sent_eof : is_dial;
    default:
        return !is_dial;
    }
}

static int on_stream_frame(struct guest *g, const Cloche__V1__GuestFrame *f, struct cl_err *err)
{
    struct guest_stream *s = find_stream(g, f->stream);
    if (!s)
        drain(g, f);
    if (is_last_of_stream(f)) {
        past_forget(&g->past, f->stream);
        past_forget(&g->unheard, f->stream);
    }
    if (!s) /* one that we reset; the agent had not heard yet */
        return f->stream < g->next_id ? 0 : cl_fail(err, CL_E_PEER, 0, "the agent opened a stream");
    if (!has_place(s, f))
        return cl_fail(err, CL_E_PEER, 0, "the agent sent a frame of kind %d out of place",
                       (int)f->body_case);
    switch ((int)f->body_case) { /* hostile: any value, and generated, so no exhaustive switch */
    case CLOCHE__V1__GUEST_FRAME__BODY_WINDOW:
        s->send_credit += f->window->bytes;
        if (s->wants_room) {
            s->wants_room = false;
            s->events.on_room(s->arg);
        }
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_RESET: {
        struct cl_err why = {0};
        (void)cl_fail(&why, CL_E_GUEST, 0, "the agent gave up: %.200s", f->reset->reason);
        close_stream(s, &why);
        return 0;
    }
    case CLOCHE__V1__GUEST_FRAME__BODY_DATA:
        if (on_data(s, f->data, err) < 0)
            return -1;
        if (s->dial != DIAL_NONE && f->data->eof)
            s->dial = DIAL_AT_EOF;
        s->events.on_frame(s->arg, f);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_DIALED:
        s->dial = DIAL_CONNECTED;
        CL_FALLTHROUGH;
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC_STARTED:
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL_STARTED:
        s->events.on_frame(s->arg, f);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC_ENDED:
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL_ENDED:
    case CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_RESULT:
    case CLOCHE__V1__GUEST_FRAME__BODY_HUNG_UP:
        s->events.on_frame(s->arg, f);
        close_stream(s, NULL);
        return 0;
    case CLOCHE__V1__GUEST_FRAME__BODY_FILE_RESULT:
        s->events.on_frame(s->arg, f);
        if (!f->file_result->more)
            close_stream(s, NULL);
        return 0;
    default:
        return cl_fail(err, CL_E_PEER, 0, "the agent sent a frame of kind %d on a stream",
                       (int)f->body_case);
    }
}

/* One frame off the input; 1 = there was one. */
static int take_frame(struct guest *g, struct cl_err *err)
{
    struct cl_arena *arena;
    if (cl_arena_new(GUEST_ARENA_FACTOR * GUEST_FRAME_MAX, &arena, err) < 0)
        return -1;
    const Cloche__V1__GuestFrame *frame;
    size_t used;
    int rc = guest_frame_parse(g->in.data, g->in.len, GUEST_FRAME_MAX, arena, &frame, &used, err);
    if (rc == 0 && frame) {
        if (g->hold == HOLD_HELD)
            rc = cl_fail(err, CL_E_PEER, 0, "the agent speaks while it is held");
        else
            rc = frame->stream == 0 ? on_connection_frame(g, frame, err)
                                    : on_stream_frame(g, frame, err);
        cl_buf_consume(&g->in, used);
        rc = rc < 0 ? -1 : 1;
    }
    cl_arena_free(arena);
    return rc;
}

static void on_readable(int fd, int what, void *arg)
{
    (void)what;
    struct guest *g = arg;
    struct cl_err err = {0};
    if (cl_buf_reserve(&g->in, CL_MIN((size_t)READ_STEP, IN_MAX - g->in.len), &err) < 0) {
        break_guest(g, &err);
        return;
    }
    ssize_t n = recv(fd, g->in.data + g->in.len, CL_MIN((size_t)READ_STEP, IN_MAX - g->in.len),
                     MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        break_with(g, CL_E_GUEST, n < 0 ? errno : 0, "the agent closed its channel");
        return;
    }
    g->in.len += (size_t)n;
    int rc = 1;
    while (rc == 1 && !g->broken)
        rc = take_frame(g, &err);
    if (rc < 0)
        break_guest(g, &err);
}

/* --- life ----------------------------------------------------------------------------------- */

int guest_new(struct cl_loop *loop, int fd, uint64_t first_stream,
              const struct guest_events *events, void *arg, struct guest **ret_guest,
              struct cl_err *err)
{
    struct guest *g = cl_zalloc(sizeof *g);
    if (!g)
        return cl_fail(err, CL_E_NOMEM, 0, "guest");
    *g = (struct guest){
        .loop = loop, .fd = fd, .events = *events, .arg = arg, .next_id = first_stream};
    cl_list_init(&g->streams);
    cl_list_init(&g->closed);
    cl_buf_init(&g->in, IN_MAX);
    cl_buf_init(&g->out, GUEST_OUT_MAX);
    if (cl_timer_init(&g->kick, loop, on_kick, g, err) < 0 ||
        cl_fd_watch_init(&g->in_watch, loop, fd, CL_READ, on_readable, g, err) < 0 ||
        cl_fd_watch_init(&g->out_watch, loop, fd, CL_WRITE, on_writable, g, err) < 0) {
        guest_free(g, err);
        return -1;
    }
    cl_fd_watch_set(&g->out_watch, false);
    *ret_guest = g;
    return 0;
}

void guest_set_resting(struct guest *guest, bool resting)
{
    uint64_t now = cl_now_ns();
    if (guest->resting_since_ns)
        guest->rested_ns += now - guest->resting_since_ns;
    guest->resting_since_ns = resting ? now : 0;
    if (!resting)
        cl_timer_start(&guest->kick, 0);
}

uint64_t guest_stream_rested_ns(const struct guest_stream *s)
{
    const struct guest *g = s->guest;
    return g->rested_ns + (g->resting_since_ns ? cl_now_ns() - g->resting_since_ns : 0);
}

bool guest_is_broken(const struct guest *g)
{
    return g->broken;
}

void guest_free(struct guest *guest, const struct cl_err *why)
{
    if (!guest)
        return;
    CL_LIST_FOREACH (node, &guest->streams)
        close_stream(CL_LIST_ENTRY(node, struct guest_stream, link),
                     guest->broken ? &guest->why : why);
    guest->broken = true; /* an on_close may try to open another one */
    run_closes(guest);
    cl_timer_fini(&guest->kick);
    cl_fd_watch_fini(&guest->in_watch);
    cl_fd_watch_fini(&guest->out_watch);
    cl_buf_fini(&guest->in);
    cl_buf_fini(&guest->out);
    cl_free(guest);
}

void guest_set_events(struct guest *guest, const struct guest_events *events, void *arg)
{
    guest->events = *events;
    guest->arg = arg;
}

int guest_identify(struct guest *guest, const Cloche__V1__GuestIdentity *identity,
                   struct cl_err *err)
{
    GUEST_FRAME(frame, 0, IDENTITY, identity, (Cloche__V1__GuestIdentity *)(uintptr_t)identity);
    return send_frame(guest, &frame, err);
}

int guest_ask_stats(struct guest *guest, struct cl_err *err)
{
    Cloche__V1__GuestStatsRequest ask = CLOCHE__V1__GUEST_STATS_REQUEST__INIT;
    GUEST_FRAME(frame, 0, STATS_REQUEST, stats_request, &ask);
    return send_frame(guest, &frame, err);
}

int guest_ping(struct guest *guest, uint64_t token, struct cl_err *err)
{
    Cloche__V1__GuestPing body = CLOCHE__V1__GUEST_PING__INIT;
    body.token = token;
    GUEST_FRAME(frame, 0, PING, ping, &body);
    return send_frame(guest, &frame, err);
}

int guest_shift_clock(struct guest *guest, int64_t lag_ns, struct cl_err *err)
{
    Cloche__V1__GuestClock body = CLOCHE__V1__GUEST_CLOCK__INIT;
    body.lag_ns = lag_ns;
    GUEST_FRAME(frame, 0, CLOCK, clock, &body);
    return send_frame(guest, &frame, err);
}

/* One more, not known to anybody yet. */
static int new_stream(struct guest *guest, const struct guest_stream *as,
                      struct guest_stream **ret_stream, struct cl_err *err)
{
    if (guest->n_streams >= GUEST_STREAMS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0,
                       "%d commands, cells, file transfers and connections run in this sandbox "
                       "already",
                       GUEST_STREAMS_MAX);
    struct guest_stream *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "stream");
    *s = *as;
    *ret_stream = s;
    return 0;
}

static void add_stream(struct guest *guest, struct guest_stream *s)
{
    guest->n_streams++;
    cl_list_push(&guest->streams, &s->link);
}

int guest_open(struct guest *guest, Cloche__V1__GuestFrame *frame,
               const struct guest_stream_events *events, void *arg,
               struct guest_stream **ret_stream, struct cl_err *err)
{
    const struct guest_stream as = {
        .guest = guest,
        .id = guest->next_id,
        .events = *events,
        .arg = arg,
        .dial = frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DIAL ? DIAL_CALLED : DIAL_NONE,
        .is_file = frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_FILE_OP,
        .send_credit = GUEST_WINDOW_INITIAL,
        .recv_credit = GUEST_WINDOW_INITIAL};
    struct guest_stream *s;
    if (new_stream(guest, &as, &s, err) < 0)
        return -1;
    frame->stream = s->id;
    if (send_frame(guest, frame, err) < 0) {
        cl_free(s);
        return -1;
    }
    guest->next_id++;
    add_stream(guest, s);
    *ret_stream = s;
    return 0;
}

int guest_adopt(struct guest *guest, uint64_t stream, const struct guest_stream_events *events,
                void *arg, struct guest_stream **ret_stream, struct cl_err *err)
{
    CL_ASSERT(guest->hold == HOLD_HELD);
    const struct guest_past_stream *p = past_find(&guest->past, stream);
    struct guest_stream *s;
    if (!p || p->ends || stream >= guest->next_id || find_stream(guest, stream))
        return cl_fail(err, CL_E_INVALID, 0, "stream %llu is not there to be taken over",
                       (unsigned long long)stream);
    const struct guest_stream as = {.guest = guest,
                                    .id = stream,
                                    .events = *events,
                                    .arg = arg,
                                    .send_credit = p->send_credit,
                                    .recv_credit = p->recv_credit,
                                    .consumed = p->consumed};
    if (new_stream(guest, &as, &s, err) < 0)
        return -1;
    add_stream(guest, s);
    *ret_stream = s;
    return 0;
}

uint64_t guest_stream_id(const struct guest_stream *s)
{
    return s->id;
}

bool guest_stream_takes(struct guest_stream *s)
{
    bool takes = s->closed || s->guest->broken || !is_still(s->guest);
    s->wants_room |= !takes;
    return takes;
}

size_t guest_stream_write(struct guest_stream *s, Cloche__V1__GuestChannel channel,
                          const void *data, size_t n, bool eof)
{
    const uint8_t *from = data;
    size_t done = 0;
    while (!s->closed && !s->guest->broken) {
        size_t step = CL_MIN(CL_MIN(n - done, (size_t)GUEST_DATA_MAX), (size_t)s->send_credit);
        bool full = s->guest->out.len > GUEST_OUT_MAX / 2 || is_still(s->guest);
        if (n > done && (step == 0 || full)) {
            s->wants_room = true;
            break;
        }
        Cloche__V1__GuestData piece = CLOCHE__V1__GUEST_DATA__INIT;
        piece.channel = channel;
        piece.bytes.data = (uint8_t *)(uintptr_t)(from + done);
        piece.bytes.len = step;
        piece.eof = eof && done + step == n;
        if (step == 0 && !piece.eof)
            break;
        GUEST_FRAME(frame, s->id, DATA, data, &piece);
        if (send_frame(s->guest, &frame, NULL) < 0)
            break;
        s->send_credit -= step;
        s->sent_eof = piece.eof;
        done += step;
        if (done == n)
            break;
    }
    return done;
}

void guest_stream_consume(struct guest_stream *s, size_t n)
{
    s->consumed += n;
    give_credit(s);
}

int guest_stream_signal(struct guest_stream *s, int signo, struct cl_err *err)
{
    Cloche__V1__GuestSignal body = CLOCHE__V1__GUEST_SIGNAL__INIT;
    body.signal = signo;
    GUEST_FRAME(frame, s->id, SIGNAL, signal, &body);
    return send_frame(s->guest, &frame, err);
}

int guest_stream_resize(struct guest_stream *s, uint32_t rows, uint32_t columns, struct cl_err *err)
{
    Cloche__V1__GuestResize body = CLOCHE__V1__GUEST_RESIZE__INIT;
    body.rows = rows;
    body.columns = columns;
    GUEST_FRAME(frame, s->id, RESIZE, resize, &body);
    return send_frame(s->guest, &frame, err);
}

void guest_stream_reset(struct guest_stream *s, const char *reason)
{
    if (s->closed)
        return;
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_CANCELLED, 0, "%s", reason);
    (void)!send_reset(s->guest, s->id, reason);
    close_stream(s, &why);
}

static void forgotten_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    (void)arg, (void)frame;
}

static void forgotten_room(void *arg)
{
    (void)arg;
}

static void forgotten_close(void *arg, const struct cl_err *why)
{
    (void)arg, (void)why;
}

void guest_stream_forget(struct guest_stream *s, const char *reason)
{
    static const struct guest_stream_events nobody = {forgotten_frame, forgotten_room,
                                                      forgotten_close};
    s->events = nobody;
    guest_stream_reset(s, reason);
}
