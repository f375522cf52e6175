/* worker/cell_io.c - see worker/cell.h. */
#include "worker/cell.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "proto/code_frame.h"
#include "proto/guest_frame.h"
#include "proto/unpack.h"
#include "worker/guest_env.h"

enum { STREAMS = 2, DIGEST = 32, EVENT_MAX = CODE_FRAME_HEAD + CODE_RESULT_MAX };

struct cell {
    struct unit *unit; /* borrowed */
    struct cell_events on;
    void *arg;
    struct guest_stream *stream; /* until on_close */
    char id[CL_ID_MAX];
    struct cl_timer limit;
    uint64_t rested_ns; /* that the limit was put off by */
    uint64_t left;      /* of the output that is sent */
    uint64_t timeout_ns, started_ns;
    struct {
        uint64_t bytes, sent;
        EVP_MD_CTX *digest; /* owned */
    } out[STREAMS];
    struct cl_buf event; /* a frame of the interpreter until it is whole */
    uint64_t result_bytes;
    uint32_t results_dropped, count;
    size_t unconsumed; /* taken, not credited to the guest yet */
    bool paused, over;
};

static void emit(struct cell *c, Cloche__V1__RunCodeResponse__EventCase what, void *body)
{
    Cloche__V1__RunCodeResponse m = CLOCHE__V1__RUN_CODE_RESPONSE__INIT;
    m.event_case = what;
    m.started = body; /* all members are pointers at one place */
    c->on.on_event(c->arg, &m);
}

#define EMIT(cell, CASE, body) emit(cell, CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_##CASE, body)

/* --- the end -------------------------------------------------------------------------------- */

struct totals {
    Cloche__V1__StreamTotal row[STREAMS];
    uint8_t digest[STREAMS][DIGEST];
};

static void fill_totals(const struct cell *c, struct totals *t)
{
    for (int i = 0; i < STREAMS; i++) {
        cloche__v1__stream_total__init(&t->row[i]);
        t->row[i].bytes = c->out[i].bytes;
        t->row[i].kept_bytes = c->out[i].sent;
        t->row[i].truncated = c->out[i].sent < c->out[i].bytes;
        if (EVP_DigestFinal_ex(c->out[i].digest, t->digest[i], NULL) != 1)
            continue;
        t->row[i].sha256.data = t->digest[i];
        t->row[i].sha256.len = DIGEST;
    }
}

/* `ended` has the outcome and what belongs to it. */
static void finish(struct cell *c, Cloche__V1__CellEnded *ended)
{
    struct totals t;
    if (c->over)
        return;
    c->over = true;
    cl_timer_stop(&c->limit);
    fill_totals(c, &t);
    ended->stdout = &t.row[0];
    ended->stderr = &t.row[1];
    ended->result_bytes = c->result_bytes;
    ended->results_dropped = c->results_dropped;
    ended->execution_count = c->count;
    ended->wall_ns = cl_now_ns() - c->started_ns;
    EMIT(c, ENDED, ended);
}

static void fail(struct cell *c, Cloche__V1__Reason reason, const char *text)
{
    Cloche__V1__CellEnded ended = CLOCHE__V1__CELL_ENDED__INIT;
    ended.outcome = CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_FAILED;
    ended.reason = reason;
    ended.message = (char *)(uintptr_t)text;
    finish(c, &ended);
}

int cell_refusal(int error, const char *text, const char *id, struct cl_err *err)
{
    switch (error) {
    case ENOENT:
        return cl_fail(err, CL_E_NOTFOUND, 0, "no code context '%.40s' in this sandbox", id);
    case EEXIST:
        return cl_fail(err, CL_E_EXISTS, 0, "code context '%.40s' exists", id);
    case EBUSY:
        return cl_fail(err, CL_E_STATE, 0,
                       "context '%.40s': %.120s; wait, interrupt it, or take another context", id,
                       text);
    case ENOEXEC:
        return cl_fail(err, CL_E_STATE, 0,
                       "%.120s: templates `python` and `code` have Python, `code` has node too",
                       text);
    case EDQUOT:
        return cl_fail(err, CL_E_TOOBIG, 0,
                       "the sandbox has %.60s already; delete one (limit `contexts`)", text);
    case E2BIG:
        return cl_fail(err, CL_E_TOOBIG, 0, "%.120s", text);
    case EAGAIN:
        return cl_fail(err, CL_E_TOOBIG, 0, "%.120s in this sandbox", text);
    default:
        return cl_fail(err, cl_code_from_errno(error), 0, "code context '%.40s': %.160s", id, text);
    }
}

/* The agent's numbers are those of code.proto, but for REFUSED; what it may make up is FAILED. */
static void take_end(struct cell *c, const Cloche__V1__GuestCellEnded *e)
{
    struct cl_err why = {0};
    Cloche__V1__CellEnded ended = CLOCHE__V1__CELL_ENDED__INIT;
    if (e->end == CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_REFUSED) {
        c->over = true;
        (void)cell_refusal(e->error_number, e->error, c->id, &why);
        c->on.on_refused(c->arg, &why);
        return;
    }
    bool known = (int)e->end >= CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_OK &&
                 (int)e->end <= CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_FAILED;
    bool state = (int)e->state >= CLOCHE__V1__GUEST_CONTEXT_STATE__GUEST_CONTEXT_STATE_STARTING &&
                 (int)e->state <= CLOCHE__V1__GUEST_CONTEXT_STATE__GUEST_CONTEXT_STATE_DEAD;
    ended.outcome =
        known ? (Cloche__V1__CellOutcome)e->end : CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_FAILED;
    ended.message = e->error;
    ended.exit_code = e->exit_code;
    ended.signal = e->signal;
    ended.context_state = state ? (Cloche__V1__ContextState)e->state
                                : CLOCHE__V1__CONTEXT_STATE__CONTEXT_STATE_UNSPECIFIED;
    finish(c, &ended);
}

/* --- output and results ---------------------------------------------------------------------- */

static void take_output(struct cell *c, int which, const ProtobufCBinaryData *data)
{
    Cloche__V1__Output o = CLOCHE__V1__OUTPUT__INIT;
    size_t n = (size_t)CL_MIN((uint64_t)data->len, c->left);
    (void)EVP_DigestUpdate(c->out[which].digest, data->data, data->len);
    c->out[which].bytes += data->len;
    if (n == 0)
        return;
    o.stream = which ? CLOCHE__V1__STREAM__STREAM_STDERR : CLOCHE__V1__STREAM__STREAM_STDOUT;
    o.offset = c->out[which].sent;
    o.data.data = data->data;
    o.data.len = n;
    c->out[which].sent += n;
    c->left -= n;
    EMIT(c, OUTPUT, &o);
}

static int show(struct cell *c, enum code_frame_kind kind, const uint8_t *data, size_t n,
                struct cl_err *err)
{
    struct cl_arena *arena;
    const ProtobufCMessage *m;
    const ProtobufCMessageDescriptor *type = kind == CODE_RESULT
                                                 ? &cloche__v1__cell_result__descriptor
                                                 : &cloche__v1__cell_error__descriptor;
    if (cl_arena_new((size_t)PB_ARENA_FACTOR * EVENT_MAX, &arena, err) < 0)
        return -1;
    int rc = pb_unpack(type, data, n, arena, &m, err);
    if (rc == 0 && kind == CODE_RESULT) {
        Cloche__V1__CellResult r = *(const Cloche__V1__CellResult *)m;
        r.execution_count = c->count; /* it knows no better than we do */
        c->left -= n;
        c->result_bytes += n;
        EMIT(c, RESULT, &r);
    } else if (rc == 0) {
        EMIT(c, ERROR, (void *)(uintptr_t)m);
    }
    cl_arena_free(arena);
    return rc;
}

/* One whole frame off c->event; 1 = there was one. */
static int take_event(struct cell *c, struct cl_err *err)
{
    struct code_head head;
    if (c->event.len < CODE_FRAME_HEAD)
        return 0;
    if (code_head_parse(c->event.data, &head, err) < 0)
        return -1;
    if (head.kind != CODE_RESULT && head.kind != CODE_ERROR)
        return cl_fail(err, CL_E_PEER, 0, "a frame of kind %d among the results", (int)head.kind);
    if (c->event.len - CODE_FRAME_HEAD < head.len)
        return 0;
    int rc = 1;
    if (head.kind == CODE_RESULT && head.len > c->left)
        c->results_dropped++;
    else
        rc = show(c, head.kind, c->event.data + CODE_FRAME_HEAD, head.len, err) < 0 ? -1 : 1;
    cl_buf_consume(&c->event, CODE_FRAME_HEAD + (size_t)head.len);
    return rc;
}

static void take_events(struct cell *c, const ProtobufCBinaryData *data)
{
    struct cl_err err = {0};
    int rc = cl_buf_append(&c->event, data->data, data->len, &err) < 0 ? -1 : 1;
    while (rc == 1 && !c->over)
        rc = take_event(c, &err);
    if (rc == 0)
        return;
    if (!c->over)
        fail(c, CLOCHE__V1__REASON__REASON_UNSPECIFIED, err.text);
    if (c->stream)
        guest_stream_reset(c->stream, "its results cannot be read");
}

/* --- events of the guest ---------------------------------------------------------------------- */

static void credit(struct cell *c)
{
    if (c->paused || !c->stream || c->unconsumed == 0)
        return;
    size_t n = c->unconsumed;
    c->unconsumed = 0;
    guest_stream_consume(c->stream, n);
}

static void take_data(struct cell *c, const Cloche__V1__GuestData *d)
{
    c->unconsumed += d->bytes.len;
    if (d->bytes.len > 0 && !c->over) {
        if (d->channel == CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_EVENTS)
            take_events(c, &d->bytes);
        else
            take_output(c, d->channel == CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDERR,
                        &d->bytes);
    }
    credit(c);
}

static void take_started(struct cell *c, const Cloche__V1__GuestCellStarted *s)
{
    Cloche__V1__CellStarted started = CLOCHE__V1__CELL_STARTED__INIT;
    started.context_id = c->id;
    started.language = (int)s->language >= CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON &&
                               (int)s->language <= CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT
                           ? (Cloche__V1__Language)s->language
                           : CLOCHE__V1__LANGUAGE__LANGUAGE_UNSPECIFIED;
    started.execution_count = c->count = s->execution_count;
    started.fresh = s->fresh;
    EMIT(c, STARTED, &started);
}

static void on_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct cell *c = arg;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA)
        take_data(c, frame->data);
    else if (c->over)
        return;
    else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_CELL_STARTED)
        take_started(c, frame->cell_started);
    else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_CELL_ENDED)
        take_end(c, frame->cell_ended);
}

static void on_room(void *arg)
{
    (void)arg;
}

static void on_close(void *arg, const struct cl_err *why)
{
    struct cell *c = arg;
    c->stream = NULL;
    Cloche__V1__Reason reason =
        c->unit->reason ? c->unit->reason : CLOCHE__V1__REASON__REASON_VM_DIED;
    fail(c, reason, why ? why->text : "the agent gave the cell up");
}

static void on_limit(void *arg)
{
    struct cell *c = arg;
    uint64_t rested = c->stream ? guest_stream_rested_ns(c->stream) - c->rested_ns : 0;
    if (rested > 0) {
        c->rested_ns += rested;
        cl_timer_start(&c->limit, rested);
        return;
    }
    Cloche__V1__CellEnded ended = CLOCHE__V1__CELL_ENDED__INIT;
    ended.outcome = CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_TIMED_OUT;
    ended.message = (char *)(uintptr_t) "the guest did not end the cell at its limit";
    finish(c, &ended);
    if (c->stream)
        guest_stream_reset(c->stream, "time limit");
}

/* --- life ------------------------------------------------------------------------------------ */

void cell_pause(struct cell *cell, bool paused)
{
    cell->paused = paused;
    credit(cell);
}

void cell_free(struct cell *cell)
{
    if (!cell)
        return;
    if (cell->stream)
        guest_stream_forget(cell->stream, "the client left");
    for (int i = 0; i < STREAMS; i++)
        EVP_MD_CTX_free(cell->out[i].digest);
    cl_buf_fini(&cell->event);
    cl_timer_fini(&cell->limit);
    cl_free(cell);
}

static int make_digests(struct cell *c, struct cl_err *err)
{
    for (int i = 0; i < STREAMS; i++) {
        c->out[i].digest = EVP_MD_CTX_new();
        if (!c->out[i].digest || EVP_DigestInit_ex(c->out[i].digest, EVP_sha256(), NULL) != 1)
            return cl_fail(err, CL_E_NOMEM, 0, "digest");
    }
    return 0;
}

static int open_stream(struct cell *c, const Cloche__V1__RelayCell *what, struct cl_err *err)
{
    static const struct guest_stream_events events = {on_frame, on_room, on_close};
    Cloche__V1__GuestCell cell = CLOCHE__V1__GUEST_CELL__INIT;
    struct guest_env env;
    if (guest_env_init(&env, what->n_env, err) < 0)
        return -1;
    guest_env_add_all(&env, what->env, what->n_env);
    cell.id = what->context_id;
    cell.language = (Cloche__V1__GuestLanguage)what->language; /* the same numbers */
    cell.code = what->code;
    cell.timeout_ns = what->timeout_ns;
    cell.contexts_max = what->contexts_max;
    cell.env = env.list;
    cell.n_env = env.n;
    GUEST_FRAME(frame, 0, CELL, cell, &cell);
    int rc = guest_open(machine_guest(c->unit->machine), &frame, &events, c, &c->stream, err);
    guest_env_fini(&env);
    return rc;
}

int cell_start(struct unit *u, const Cloche__V1__RelayCell *what, const struct cell_events *events,
               void *arg, struct cell **ret_cell, struct cl_err *err)
{
    if (unit_begin_code(u, err) < 0)
        return -1;
    if (what->n_env > 0 && !machine_takes_cell_env(u->machine))
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "the template's agent is older than variables of one cell: build the "
                       "template again");
    struct cell *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "cell");
    *c = (struct cell){.unit = u,
                       .on = *events,
                       .arg = arg,
                       .left = what->output_max_bytes,
                       .started_ns = cl_now_ns()};
    (void)snprintf(c->id, sizeof c->id, "%.40s", what->context_id);
    cl_buf_init(&c->event, EVENT_MAX + GUEST_DATA_MAX);
    if (cl_timer_init(&c->limit, u->units->loop, on_limit, c, err) < 0 ||
        make_digests(c, err) < 0 || open_stream(c, what, err) < 0) {
        cell_free(c);
        return -1;
    }
    c->rested_ns = guest_stream_rested_ns(c->stream);
    cl_timer_start(&c->limit, what->timeout_ns + CELL_TIMEOUT_GRACE_S * CL_NS_PER_S);
    *ret_cell = c;
    return 0;
}
