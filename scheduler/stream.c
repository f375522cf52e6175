/* scheduler/stream.c - see scheduler/stream.h: output towards clients. */
#include "scheduler/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "proto/copy.h"
#include "scheduler/cancel.h"
#include "scheduler/relays.h"

enum { RETRY_MS = 200, LOST_WORKER_WAIT_S = 5 };

struct stream {
    struct follower f;  /* first: on_change gets it */
    struct api_call *a; /* held */
    struct stream_spec spec;
    char unit_id[CL_ID_MAX], exec_id[CL_ID_MAX];
    char worker_id[BOOKS_NAME];
    struct relay *relay;
    uint64_t at[2];    /* next offset of stdout and stderr */
    uint32_t attempt;  /* announced to the client; 0 = none */
    uint32_t followed; /* attempt that the offsets belong to */
    bool accepted, output_done, finished;
    Cloche__V1__TerminalRecord *terminal; /* owned: of a job that is only in the books */
    uint64_t alone_ns;                    /* since when its worker is away; 0 = it is there */
    struct cl_timer kick;
};

static void free_stream(struct stream *st)
{
    unit_unfollow(&st->f);
    if (st->relay)
        relay_drop(st->relay);
    if (st->terminal)
        pb_free(&st->terminal->base);
    cl_timer_fini(&st->kick);
    api_release(st->a);
    cl_free(st);
}

static void kick(struct stream *st, uint64_t ms)
{
    cl_timer_start(&st->kick, ms * CL_NS_PER_MS);
}

/* --- messages, each in the words of its method -------------------------------------------------
 */

static int send_output(struct stream *st, Cloche__V1__Output *o, struct cl_err *err)
{
    Cloche__V1__RunResponse run = CLOCHE__V1__RUN_RESPONSE__INIT;
    Cloche__V1__WatchResponse watch = CLOCHE__V1__WATCH_RESPONSE__INIT;
    Cloche__V1__AttachResponse attach = CLOCHE__V1__ATTACH_RESPONSE__INIT;
    run.event_case = CLOCHE__V1__RUN_RESPONSE__EVENT_OUTPUT;
    watch.event_case = CLOCHE__V1__WATCH_RESPONSE__EVENT_OUTPUT;
    attach.event_case = CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT;
    run.output = watch.output = attach.output = o;
    const ProtobufCMessage *m = st->spec.kind == STREAM_RUN     ? &run.base
                                : st->spec.kind == STREAM_WATCH ? &watch.base
                                                                : &attach.base;
    return rpc_call_send(st->a->call, m, err);
}

static int send_started(struct stream *st, uint32_t attempt, const char *worker_id,
                        const char *driver)
{
    if (st->spec.kind == STREAM_ATTACH)
        return 0; /* an exec has one attempt */
    Cloche__V1__JobStarted started = CLOCHE__V1__JOB_STARTED__INIT;
    Cloche__V1__RunResponse run = CLOCHE__V1__RUN_RESPONSE__INIT;
    Cloche__V1__WatchResponse watch = CLOCHE__V1__WATCH_RESPONSE__INIT;
    started.attempt = attempt;
    started.worker_id = (char *)(uintptr_t)worker_id;
    started.driver = (char *)(uintptr_t)driver;
    run.event_case = CLOCHE__V1__RUN_RESPONSE__EVENT_STARTED;
    watch.event_case = CLOCHE__V1__WATCH_RESPONSE__EVENT_STARTED;
    run.started = watch.started = &started;
    return rpc_call_send(st->a->call, st->spec.kind == STREAM_RUN ? &run.base : &watch.base, NULL);
}

static void finish(struct stream *st, const struct cl_err *err)
{
    if (st->finished)
        return;
    st->finished = true;
    st->a->replied = true;
    api_audit(st->a, err);
    if (st->a->call)
        rpc_call_finish(st->a->call, err);
}

static void send_job_ended(struct stream *st, const Cloche__V1__ExecResult *result,
                           const struct cl_err *err)
{
    Cloche__V1__JobEnded ended = CLOCHE__V1__JOB_ENDED__INIT;
    Cloche__V1__RunResponse run = CLOCHE__V1__RUN_RESPONSE__INIT;
    Cloche__V1__WatchResponse watch = CLOCHE__V1__WATCH_RESPONSE__INIT;
    ended.result = (Cloche__V1__ExecResult *)(uintptr_t)result;
    ended.audit_head = st->a->s->audit_head;
    run.event_case = CLOCHE__V1__RUN_RESPONSE__EVENT_ENDED;
    watch.event_case = CLOCHE__V1__WATCH_RESPONSE__EVENT_ENDED;
    run.ended = watch.ended = &ended;
    (void)!rpc_call_send(st->a->call, st->spec.kind == STREAM_RUN ? &run.base : &watch.base, NULL);
    finish(st, err);
}

/* --- the relay ---------------------------------------------------------------------------------
 */

static void on_relay_message(void *arg, const Cloche__V1__RelayRequest *m)
{
    struct stream *st = arg;
    struct cl_err err = {0};
    if (st->finished || !st->a->call)
        return;
    if (m->output) {
        int which = m->output->stream == CLOCHE__V1__STREAM__STREAM_STDERR;
        if (m->output->offset != st->at[which]) {
            (void)cl_fail(&err, CL_E_PEER, 0, "the worker sent output out of order");
            finish(st, &err);
            return;
        }
        st->at[which] += m->output->data.len;
        if (send_output(st, m->output, &err) < 0)
            finish(st, &err);
        else if (rpc_call_is_full(st->a->call))
            relay_pause(st->relay, true);
    }
    if (m->ended && st->spec.kind == STREAM_ATTACH) {
        Cloche__V1__AttachResponse attach = CLOCHE__V1__ATTACH_RESPONSE__INIT;
        attach.event_case = CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED;
        attach.ended = m->ended;
        (void)!rpc_call_send(st->a->call, &attach.base, NULL);
        finish(st, NULL);
    } else if (m->ended || (m->done && m->done->code == 0)) {
        st->output_done = true;
        kick(st, 0);
    }
}

static void on_relay_drain(void *arg)
{
    (void)arg;
}

static void on_relay_end(void *arg, const struct cl_err *why)
{
    struct stream *st = arg;
    st->relay = NULL;
    if (!why || st->finished)
        return;
    if (st->spec.kind == STREAM_ATTACH) {
        finish(st, why);
        return;
    }
    bool gone = why->code == CL_E_NOTFOUND || why->code == CL_E_DATALOSS;
    bool ended = st->terminal || (st->f.unit && st->f.unit->phase == PHASE_ENDED);
    if (gone && ended)
        st->worker_id[0] = '\0'; /* nothing to get there: the tail in the record is what is left */
    kick(st, RETRY_MS);
}

static bool open_relay(struct stream *st, struct worker *w)
{
    static const struct relay_events events = {on_relay_message, on_relay_drain, on_relay_end};
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayAttach attach = CLOCHE__V1__RELAY_ATTACH__INIT;
    struct cl_err err = {0};
    open.unit_id = st->unit_id;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_ATTACH;
    open.attach = &attach;
    attach.exec_id = st->exec_id;
    attach.attempt = st->followed;
    attach.stdout_offset = st->at[0];
    attach.stderr_offset = st->at[1];
    attach.no_follow = st->spec.no_follow;
    return relay_open(w, &open, &events, st, &st->relay, &err) == 0;
}

/* --- what is left when the worker's spool is not reachable --------------------------------------
 */

/* Send a stream's rest from the record's tail; false = a part before it is lost. */
static bool send_tail(struct stream *st, int which, const ProtobufCBinaryData *tail,
                      const Cloche__V1__StreamTotal *t)
{
    uint64_t kept = t ? t->kept_bytes : tail->len, from = kept - CL_MIN(kept, (uint64_t)tail->len);
    bool whole = st->at[which] >= from;
    uint64_t start = CL_MAX(st->at[which], from);
    if (start < kept) {
        Cloche__V1__Output o = CLOCHE__V1__OUTPUT__INIT;
        o.stream = which ? CLOCHE__V1__STREAM__STREAM_STDERR : CLOCHE__V1__STREAM__STREAM_STDOUT;
        o.offset = start;
        o.data.data = tail->data + (start - from);
        o.data.len = (size_t)(kept - start);
        (void)!send_output(st, &o, NULL);
    }
    return whole;
}

static void end_from_record(struct stream *st, const Cloche__V1__TerminalRecord *t)
{
    struct cl_err err = {0};
    const Cloche__V1__ExecResult *r = t->result;
    uint64_t out = st->at[0], errs = st->at[1];
    bool whole = send_tail(st, 0, &t->stdout_tail, r->stdout);
    whole = send_tail(st, 1, &t->stderr_tail, r->stderr) && whole;
    if (!whole)
        (void)cl_fail(&err, CL_E_DATALOSS, 0,
                      "output before the last 64 KiB is gone (stdout from byte %" PRIu64
                      ", stderr from byte %" PRIu64 "): its worker does not have it any more",
                      out, errs);
    send_job_ended(st, r, whole ? NULL : &err);
}

/* --- the steps ----------------------------------------------------------------------------------
 */

/* u is NULL for a job that ended before this call (an idempotency key that was used). */
static void send_accepted(struct stream *st, struct unit *u)
{
    Cloche__V1__JobAccepted accepted = CLOCHE__V1__JOB_ACCEPTED__INIT;
    Cloche__V1__RunResponse run = CLOCHE__V1__RUN_RESPONSE__INIT;
    accepted.job_id = st->unit_id;
    if (u)
        accepted.queue_position = (uint32_t)fairq_tenant_count(st->a->s->queue, u->tenant->name);
    run.event_case = CLOCHE__V1__RUN_RESPONSE__EVENT_ACCEPTED;
    run.accepted = &accepted;
    (void)!rpc_call_send(st->a->call, &run.base, NULL);
    st->accepted = true;
}

/* A new attempt starts at offset 0; what the old one wrote is history. */
static void step_attempt(struct stream *st, struct unit *u)
{
    if (u->phase < PHASE_RUNNING || u->attempt == st->attempt)
        return;
    bool resumed = st->attempt == 0 && (st->spec.attempt == 0 || st->spec.attempt == u->attempt);
    st->attempt = u->attempt;
    if (!resumed || st->followed != 0) {
        st->at[0] = st->at[1] = 0;
        st->output_done = false;
    }
    st->followed = u->attempt;
    (void)snprintf(st->worker_id, sizeof st->worker_id, "%s", u->worker_id);
    if (st->relay)
        relay_drop(st->relay);
    st->relay = NULL;
    (void)!send_started(st, u->attempt, u->worker_id, u->driver);
}

/* The worker that has the output; NULL when it is away (for good: *ret_lost). */
static struct worker *step_worker(struct stream *st, bool *ret_lost)
{
    struct worker *w = st->worker_id[0] ? cl_map_get(st->a->s->workers, st->worker_id) : NULL;
    *ret_lost = !st->worker_id[0];
    if (w) {
        st->alone_ns = 0;
        return w;
    }
    if (st->alone_ns == 0)
        st->alone_ns = cl_now_ns();
    *ret_lost = *ret_lost || cl_now_ns() - st->alone_ns > LOST_WORKER_WAIT_S * CL_NS_PER_S;
    return NULL;
}

static void step(struct stream *st)
{
    struct unit *u = st->f.unit;
    if (st->finished || !st->a->call)
        return;
    if (u && st->spec.kind == STREAM_RUN && !st->accepted)
        send_accepted(st, u);
    if (u && st->spec.kind != STREAM_ATTACH) /* a sandbox has one attempt, and nobody asks */
        step_attempt(st, u);
    const Cloche__V1__TerminalRecord *terminal =
        u ? (u->phase == PHASE_ENDED ? u->terminal : NULL) : st->terminal;
    if (terminal && st->output_done) {
        send_job_ended(st, terminal->result, NULL);
        return;
    }
    if (!terminal && st->spec.no_follow && (st->output_done || !u || u->phase < PHASE_RUNNING)) {
        finish(st, NULL);
        return;
    }
    bool has_output =
        st->spec.kind == STREAM_ATTACH || (u ? u->started || terminal : terminal != NULL);
    if (!has_output || st->output_done || st->relay)
        return; /* a change, the relay or the settlement brings us back */
    bool lost;
    struct worker *w = step_worker(st, &lost);
    if (w && open_relay(st, w))
        return;
    if (terminal && lost)
        end_from_record(st, terminal);
    else
        kick(st, RETRY_MS);
}

static void on_kick(void *arg)
{
    step(arg);
}

static void on_change(struct follower *f)
{
    kick((struct stream *)(void *)f, 0);
}
_Static_assert(offsetof(struct stream, f) == 0, "on_change() relies on it");

static struct stream *stream_new(struct api_call *a, const struct stream_spec *spec,
                                 struct cl_err *err)
{
    struct stream *st = cl_zalloc(sizeof *st);
    if (!st || cl_timer_init(&st->kick, a->s->loop, on_kick, st, err) < 0) {
        cl_free(st);
        (void)cl_fail(err, CL_E_NOMEM, 0, "stream");
        return NULL;
    }
    st->a = a;
    st->spec = *spec;
    st->f.on_change = on_change;
    st->at[0] = spec->offsets[0];
    st->at[1] = spec->offsets[1];
    cl_list_init(&st->f.link);
    (void)snprintf(st->exec_id, sizeof st->exec_id, "%s", spec->exec_id ? spec->exec_id : "");
    st->spec.exec_id = NULL;
    api_hold(a);
    a->state = st;
    return st;
}

void stream_start(struct api_call *a, struct unit *u, const struct stream_spec *spec)
{
    struct cl_err err = {0};
    struct stream *st = stream_new(a, spec, &err);
    if (!st) {
        api_fail(a, &err);
        return;
    }
    (void)snprintf(st->unit_id, sizeof st->unit_id, "%s", u ? u->id : a->object);
    if (u) {
        (void)snprintf(st->worker_id, sizeof st->worker_id, "%s", u->worker_id);
        unit_follow(u, &st->f);
    }
    kick(st, 0);
}

/* The first words about a job that is only in the books; its output and its end follow. */
static void start_ended(struct stream *st)
{
    const Cloche__V1__TerminalRecord *t = st->terminal;
    if (st->spec.kind == STREAM_RUN)
        send_accepted(st, NULL);
    if (!st->output_done)
        (void)!send_started(st, st->followed, t->worker_id, t->driver);
    kick(st, 0);
}

static void on_row(const struct books_unit *rows, size_t n, const char *next,
                   const struct cl_err *err, void *arg)
{
    (void)next;
    struct stream *st = arg;
    struct cl_err bad = {0};
    if (n == 1 && rows[0].kind == BOOKS_JOB && rows[0].terminal)
        st->terminal =
            cloche__v1__terminal_record__unpack(NULL, rows[0].terminal_n, rows[0].terminal);
    if (st->terminal && st->terminal->result) {
        (void)snprintf(st->worker_id, sizeof st->worker_id, "%s", st->terminal->worker_id);
        st->followed = rows[0].attempt;
        if (!st->terminal->result->stdout)
            st->output_done = true; /* it never ran */
        if (st->a->call)
            start_ended(st);
    } else if (st->a->call) {
        if (!err || err->code == CL_E_NOTFOUND)
            (void)cl_fail(&bad, CL_E_NOTFOUND, 0, "no job '%.40s'", st->unit_id);
        finish(st, bad.code ? &bad : err);
    }
    struct api_call *a = st->a;
    if (!a->call && a->state == st) {
        a->state = NULL;
        free_stream(st);
    }
    api_release(a);
}

void stream_start_ended(struct api_call *a, const char *job_id, const struct stream_spec *spec)
{
    struct cl_err err = {0};
    struct stream *st = stream_new(a, spec, &err);
    if (!st) {
        api_fail(a, &err);
        return;
    }
    (void)snprintf(st->unit_id, sizeof st->unit_id, "%.39s", job_id);
    api_hold(a); /* until on_row() */
    if (cl_id_is(job_id, "job") &&
        books_get(a->s->books, a->p.tenant, job_id, BOOKS_WITH_TERMINAL, on_row, st, &err) == 0)
        return;
    if (!err.code)
        (void)cl_fail(&err, CL_E_INVALID, 0, "'%.40s' is no job id", job_id);
    finish(st, &err);
    api_release(a);
}

void stream_drain(struct api_call *a)
{
    struct stream *st = a->state;
    if (st && st->relay)
        relay_pause(st->relay, false);
}

/* The worker knows whether the exec was started with kill_on_disconnect. */
static void tell_left(const struct stream *st, const struct unit *u)
{
    struct worker *w = unit_worker(u);
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExecLeftCommand left = CLOCHE__V1__EXEC_LEFT_COMMAND__INIT;
    left.exec_id = (char *)(uintptr_t)st->exec_id;
    cmd.unit_id = (char *)(uintptr_t)st->unit_id;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_LEFT;
    cmd.left = &left;
    if (w)
        (void)!worker_request(w, &cmd, NULL, NULL, NULL);
}

void stream_gone(struct api_call *a, const struct cl_err *why)
{
    struct stream *st = a->state;
    if (!st)
        return;
    struct unit *u = st->f.unit;
    api_audit(a, why);
    if (u && why && st->spec.kind == STREAM_RUN && st->spec.cancel_on_leave)
        cancel_abandoned(u);
    if (u && why && st->spec.kind == STREAM_ATTACH && !st->finished && !a->s->stopping)
        tell_left(st, u);
    bool waits_for_row = !u && !st->terminal && !st->finished;
    if (waits_for_row)
        return; /* on_row() frees it */
    a->state = NULL;
    free_stream(st);
}
