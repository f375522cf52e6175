/* worker/relay_io.c - see worker/relay.h. */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "proto/copy.h"
#include "proto/guest_frame.h"
#include "worker/cell.h"
#include "worker/dial.h"
#include "worker/file_watch.h"
#include "worker/give.h"
#include "worker/relay.h"
#include "worker/take.h"

struct relay {
    struct cl_loop *loop;        /* borrowed */
    struct units *units;         /* borrowed */
    Cloche__V1__OpenRelay *what; /* owned */
    struct rpc_call *call;       /* ours until its on_end */
    struct unit *unit;           /* held; NULL once a connection does */
    struct exec *exec;           /* of the unit; held */
    struct unit_waiter unit_waiter;
    struct spool_waiter spool_waiter;
    struct cl_timer kick;       /* pumps outside of every callback */
    uint64_t at[SPOOL_STREAMS]; /* attach: next offset to send */
    bool done;
    struct guest_stream *file; /* read, write: until on_close */
    struct cell *cell;         /* owned */
    struct dial *dial;         /* owned */
    struct file_watch *watch;  /* owned */
    struct give *give;         /* owned */
    struct take *take;         /* owned */
    EVP_MD_CTX *digest;        /* owned: of a file's bytes */
    uint64_t bytes;
    struct cl_buf pending; /* towards the guest, what did not fit */
    bool pending_eof, committed;
    bool eof_waits;    /* stdin's, alone */
    size_t unconsumed; /* read: sent to the scheduler, not credited to the guest yet */
};

enum {
    PENDING_MAX = 4 * RPC_OUT_HIGH,
    PIECES_PER_TURN = 16, /* of a sandbox that is given: a MiB, then the loop gets its turn */
};

/* --- answers -------------------------------------------------------------------------------- */

static int send_request(struct relay *r, Cloche__V1__RelayRequest *m, struct cl_err *err)
{
    return rpc_call_send(r->call, &m->base, err);
}

static void finish(struct relay *r, const struct cl_err *why)
{
    if (r->done || !r->call)
        return;
    r->done = true;
    uint8_t digest[32] = {0};
    Cloche__V1__RelayDone done = CLOCHE__V1__RELAY_DONE__INIT;
    done.code = why ? (uint32_t)cl_err_info(why->code)->grpc : 0;
    done.message = why ? (char *)(uintptr_t)why->text : (char *)(uintptr_t) "";
    done.bytes = r->bytes;
    if (!why && r->digest && EVP_DigestFinal_ex(r->digest, digest, NULL) == 1) {
        done.sha256.data = digest;
        done.sha256.len = sizeof digest;
    }
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    m.done = &done;
    if (send_request(r, &m, NULL) == 0)
        rpc_call_close_send(r->call);
    else
        rpc_call_cancel(r->call);
    /* What still comes is dropped; a call that is paused would not hear its end. */
    rpc_call_pause(r->call, false);
}

/* The caller waits while there is no room for what it sends. */
static void pace(struct relay *r, bool is_full)
{
    rpc_call_pause(r->call, is_full && !r->done);
}

static void finish_with(struct relay *r, enum cl_code code, const char *text)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, code, 0, "%s", text);
    finish(r, &why);
}

/* Who follows a command of a sandbox that has gone to another worker follows it there. */
static bool finish_given(struct relay *r)
{
    struct cl_err why = {0};
    if (!r->unit || !r->unit->is_given)
        return false;
    (void)unit_fail_given(&why);
    finish(r, &why);
    return true;
}

/* --- attach: from the spool to the caller ----------------------------------------------------- */

/* Send one piece of a stream; 1 = sent, 0 = nothing there. */
static int send_piece(struct relay *r, enum spool_stream stream, struct cl_err *err)
{
    uint8_t bytes[RELAY_CHUNK];
    size_t n;
    if (spool_read(exec_spool(r->exec), stream, r->at[stream], bytes, sizeof bytes, &n, err) < 0)
        return -1;
    if (n == 0)
        return 0;
    Cloche__V1__Output out = CLOCHE__V1__OUTPUT__INIT;
    out.stream = stream == SPOOL_STDOUT ? CLOCHE__V1__STREAM__STREAM_STDOUT
                                        : CLOCHE__V1__STREAM__STREAM_STDERR;
    out.offset = r->at[stream];
    out.data.data = bytes;
    out.data.len = n;
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    m.output = &out;
    if (send_request(r, &m, err) < 0)
        return -1;
    r->at[stream] += n;
    return 1;
}

static void send_ended(struct relay *r)
{
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    m.ended = (Cloche__V1__ExecResult *)(uintptr_t)exec_result(r->exec);
    r->done = true;
    if (send_request(r, &m, NULL) == 0)
        rpc_call_close_send(r->call);
    else
        rpc_call_cancel(r->call);
}

static void pump_attach(struct relay *r)
{
    struct cl_err err = {0};
    bool more = true;
    if (finish_given(r))
        return;
    while (more && !rpc_call_is_full(r->call)) {
        int out = send_piece(r, SPOOL_STDOUT, &err);
        int errs = out < 0 ? -1 : send_piece(r, SPOOL_STDERR, &err);
        if (errs < 0) {
            finish(r, &err);
            return;
        }
        more = out > 0 || errs > 0;
    }
    if (more)
        return; /* on_drain goes on */
    if (!exec_is_running(r->exec))
        send_ended(r);
    else if (r->what->attach->no_follow)
        finish(r, NULL);
}

static void on_spool(void *arg)
{
    struct relay *r = arg;
    cl_timer_start(&r->kick, 0);
}

static void begin_attach(struct relay *r)
{
    const Cloche__V1__RelayAttach *a = r->what->attach;
    r->exec = unit_find_exec(r->unit, a->exec_id);
    if (!r->exec) {
        if (!a->exec_id[0] && unit_is_live(r->unit) && !a->no_follow)
            return; /* the job's process is still to come: on_unit tries again */
        finish_with(r, CL_E_NOTFOUND,
                    a->exec_id[0] ? "no such exec in this sandbox" : "the job never started");
        return;
    }
    exec_hold(r->exec);
    cl_list_unlink(&r->unit_waiter.link);
    r->at[SPOOL_STDOUT] = a->stdout_offset;
    r->at[SPOOL_STDERR] = a->stderr_offset;
    r->spool_waiter = (struct spool_waiter){.fn = on_spool, .arg = r};
    spool_wait(exec_spool(r->exec), &r->spool_waiter);
    pump_attach(r);
}

/* --- stdin and files: from the caller to the guest -------------------------------------------- */

static size_t push(struct relay *r, const void *data, size_t n, bool eof)
{
    if (r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_STDIN)
        return exec_write_stdin(r->exec, data, n, eof);
    return r->file ? guest_stream_write(r->file, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_FILE,
                                        data, n, eof)
                   : n;
}

/* The process has ended, or goes away: answer how much it was given, whatever else the client would
 * send. */
static bool finish_unread(struct relay *r)
{
    bool is_given = r->unit && r->unit->is_given;
    if (r->what->what_case != CLOCHE__V1__OPEN_RELAY__WHAT_STDIN ||
        (exec_is_running(r->exec) && !is_given))
        return false;
    r->bytes -= r->pending.len;
    if (!finish_given(r))
        finish(r, NULL);
    return true;
}

/* An end of stdin that came alone is not said to be taken as long as that could be lost. */
static bool put_off_eof(struct relay *r)
{
    r->eof_waits =
        r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_STDIN && !exec_takes_stdin(r->exec);
    return r->eof_waits;
}

static void drain_pending(struct relay *r)
{
    if (r->done || !r->call || finish_unread(r))
        return;
    if (r->eof_waits && put_off_eof(r))
        return;
    const void *data = r->pending.len > 0 ? (const void *)r->pending.data : "";
    if (r->pending.len > 0 || (r->pending_eof && !r->committed))
        cl_buf_consume(&r->pending, push(r, data, r->pending.len, r->pending_eof));
    pace(r, r->pending.len > 0);
    if (r->pending.len > 0 || !r->pending_eof)
        return;
    r->committed = true;
    if (r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_STDIN)
        finish(r, NULL);
}

static void on_room(void *arg)
{
    struct relay *r = arg;
    cl_timer_start(&r->kick, 0);
}

static void take_bytes(struct relay *r, const Cloche__V1__RelayResponse *m)
{
    struct cl_err err = {0};
    size_t n = m->data.len;
    if (finish_unread(r))
        return;
    r->bytes += n;
    if (r->digest)
        (void)EVP_DigestUpdate(r->digest, m->data.data, n);
    r->pending_eof = m->eof;
    if (n == 0 && m->eof && r->pending.len == 0 && put_off_eof(r))
        return;
    size_t taken = r->pending.len == 0 ? push(r, m->data.data, n, m->eof) : 0;
    if (taken < n && cl_buf_append(&r->pending, m->data.data + taken, n - taken, &err) < 0) {
        finish(r, &err);
        return;
    }
    if (taken == n && m->eof && r->pending.len == 0)
        r->committed = true;
    if (r->committed && r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_STDIN)
        finish(r, NULL);
    else
        pace(r, r->pending.len > 0);
}

static void begin_stdin(struct relay *r)
{
    r->exec = unit_find_exec(r->unit, r->what->stdin->exec_id);
    if (!r->exec && !r->what->stdin->exec_id[0] && unit_is_live(r->unit)) {
        pace(r, true);
        return;
    }
    if (!r->exec) {
        finish_with(r, CL_E_NOTFOUND, "no such exec in this sandbox");
        return;
    }
    exec_hold(r->exec);
    cl_list_unlink(&r->unit_waiter.link);
    pace(r, false);
    exec_set_stdin_room(r->exec, on_room, r);
}

/* --- files ------------------------------------------------------------------------------------ */

/* Bytes that the scheduler's connection has taken are credited to the guest. */
static void credit(struct relay *r)
{
    if (!r->file || r->unconsumed == 0 || rpc_call_is_full(r->call))
        return;
    size_t n = r->unconsumed;
    r->unconsumed = 0;
    guest_stream_consume(r->file, n);
}

static void file_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct relay *r = arg;
    struct cl_err err = {0};
    if (r->done || !r->call)
        return;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA) {
        const Cloche__V1__GuestData *d = frame->data;
        Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
        m.data.data = d->bytes.data;
        m.data.len = d->bytes.len;
        r->bytes += d->bytes.len;
        (void)EVP_DigestUpdate(r->digest, d->bytes.data, d->bytes.len);
        if (d->bytes.len > 0 && send_request(r, &m, &err) < 0)
            finish(r, &err);
        r->unconsumed += d->bytes.len;
        credit(r);
        return;
    }
    if (frame->body_case != CLOCHE__V1__GUEST_FRAME__BODY_FILE_RESULT)
        return;
    const Cloche__V1__GuestFileResult *res = frame->file_result;
    if (res->error_number == 0) {
        Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
        m.size = res->size;
        if (res->size > 0 && send_request(r, &m, &err) < 0)
            finish(r, &err);
        else
            finish(r, NULL);
        return;
    }
    (void)cl_fail(&err, cl_code_from_errno(res->error_number), 0, "%.200s", res->error);
    finish(r, &err);
}

static void file_close(void *arg, const struct cl_err *why)
{
    struct relay *r = arg;
    r->file = NULL;
    if (!r->done && r->call)
        finish_with(r, CL_E_UNAVAILABLE, why ? why->text : "the guest ended the transfer");
}

static void begin_file(struct relay *r)
{
    static const struct guest_stream_events events = {file_frame, on_room, file_close};
    struct cl_err err = {0};
    if (unit_check_runs(r->unit, &err) < 0) {
        finish(r, &err);
        return;
    }
    Cloche__V1__GuestFileOp op = CLOCHE__V1__GUEST_FILE_OP__INIT;
    const char *user;
    if (r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_READ) {
        op.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_READ;
        op.path = r->what->read->path;
        op.offset = r->what->read->offset;
        op.length = r->what->read->length;
        user = r->what->read->user;
    } else {
        op.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WRITE;
        op.path = r->what->write->path;
        op.mode = r->what->write->mode;
        user = r->what->write->user;
    }
    op.user = strcmp(user, "root") == 0 ? CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT
                                        : CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    r->digest = EVP_MD_CTX_new();
    if (!r->digest || EVP_DigestInit_ex(r->digest, EVP_sha256(), NULL) != 1) {
        finish_with(r, CL_E_NOMEM, "digest");
        return;
    }
    cl_list_unlink(&r->unit_waiter.link);
    GUEST_FRAME(frame, 0, FILE_OP, file_op, &op);
    if (guest_open(machine_guest(r->unit->machine), &frame, &events, r, &r->file, &err) < 0)
        finish(r, &err);
}

static bool watch_changes(void *arg, Cloche__V1__FileServiceWatchResponse *changes)
{
    struct relay *r = arg;
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    m.changes = changes;
    return r->call && !rpc_call_is_full(r->call) && send_request(r, &m, NULL) == 0;
}

static void watch_end(void *arg, const struct cl_err *why)
{
    finish(arg, why);
}

static void begin_watch(struct relay *r)
{
    static const struct file_watch_events events = {watch_changes, watch_end};
    struct cl_err err = {0};
    cl_list_unlink(&r->unit_waiter.link);
    if (file_watch_start(r->unit, r->what->watch, &events, r, &r->watch, &err) < 0)
        finish(r, &err);
}

/* --- cells ------------------------------------------------------------------------------------ */

static void cell_event(void *arg, const Cloche__V1__RunCodeResponse *event)
{
    struct relay *r = arg;
    struct cl_err err = {0};
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    if (r->done || !r->call)
        return;
    m.cell = (Cloche__V1__RunCodeResponse *)(uintptr_t)event;
    bool last = event->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED;
    if (last) /* the audit log has what a cell did before its end */
        r->units->events.on_order(r->units->arg, r->call);
    if (send_request(r, &m, &err) < 0) {
        finish(r, &err);
        return;
    }
    r->done = last;
    if (last)
        rpc_call_close_send(r->call);
    else if (rpc_call_is_full(r->call))
        cell_pause(r->cell, true);
}

static void cell_refused(void *arg, const struct cl_err *why)
{
    finish(arg, why);
}

static void begin_cell(struct relay *r)
{
    static const struct cell_events events = {cell_event, cell_refused};
    struct cl_err err = {0};
    cl_list_unlink(&r->unit_waiter.link);
    if (cell_start(r->unit, r->what->cell, &events, r, &r->cell, &err) < 0)
        finish(r, &err);
}

/* --- connections ------------------------------------------------------------------------------ */

static void dial_event(void *arg, Cloche__V1__RelayRequest *event)
{
    struct relay *r = arg;
    struct cl_err err = {0};
    if (r->done || !r->call)
        return;
    r->bytes += event->data.len;
    if (send_request(r, event, &err) < 0)
        finish(r, &err);
    else if (rpc_call_is_full(r->call))
        dial_pause(r->dial, true);
}

static void dial_end(void *arg, const struct cl_err *why)
{
    finish(arg, why);
}

static void pump_dial(struct relay *r)
{
    dial_flush(r->dial);
    pace(r, dial_is_full(r->dial));
}

static void take_for_dial(struct relay *r, const Cloche__V1__RelayResponse *m)
{
    struct cl_err err = {0};
    if (dial_write(r->dial, m->data.data, m->data.len, m->eof, &err) < 0)
        finish(r, &err);
    else
        pace(r, dial_is_full(r->dial));
}

static void begin_dial(struct relay *r)
{
    static const struct dial_events events = {dial_event, on_room, dial_end};
    struct cl_err err = {0};
    cl_list_unlink(&r->unit_waiter.link);
    if (dial_start(r->unit, r->what->dial->port, &events, r, &r->dial, &err) < 0) {
        finish(r, &err);
        return;
    }
    unit_release(r->unit); /* the connection holds it, as no use of it */
    r->unit = NULL;
}

/* --- moves ------------------------------------------------------------------------------------ */

/* It is over at once, however long its other end takes to go: the sandbox may go on, and files of
 * one that did not come are gone. */
static void end_move(struct relay *r, const struct cl_err *why)
{
    finish(r, why);
    give_free(r->give);
    take_free(r->take);
    r->give = NULL;
    r->take = NULL;
}

/* 1: sent. */
static int send_move(struct relay *r, struct cl_err *err)
{
    Cloche__V1__MovePiece piece;
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    int rc = give_next(r->give, &piece, err);
    m.move = &piece;
    return rc <= 0 ? rc : send_request(r, &m, err) < 0 ? -1 : 1;
}

static void pump_give(struct relay *r)
{
    struct cl_err err = {0};
    int rc = 1;
    for (int i = 0; i < PIECES_PER_TURN && rc > 0 && !rpc_call_is_full(r->call); i++)
        rc = send_move(r, &err);
    if (rc < 0)
        end_move(r, &err);
    else if (give_is_over(r->give))
        end_move(r, NULL);
    else if (rc > 0 && !rpc_call_is_full(r->call))
        cl_timer_start(&r->kick, 0);
}

static void begin_give(struct relay *r)
{
    struct cl_err err = {0};
    if (give_new(r->unit, r->what->give, &r->give, &err) < 0)
        finish(r, &err);
    else
        pump_give(r);
}

static void tell_give(struct relay *r, const Cloche__V1__RelayResponse *m)
{
    struct cl_err err = {0};
    if (give_told(r->give, m, &err) < 0)
        end_move(r, &err);
    else
        cl_timer_start(&r->kick, 0);
}

static void begin_take(struct relay *r)
{
    const struct unit_waiter wake = {.fn = on_room, .arg = r};
    struct cl_err err = {0};
    if (take_new(r->units, r->what, &wake, &r->take, &err) < 0)
        finish(r, &err);
}

static void watch_unit(struct relay *r, struct unit *u);

static void tell_take(struct relay *r, const Cloche__V1__RelayResponse *m)
{
    struct cl_err err = {0};
    Cloche__V1__RelayRequest answer;
    int rc = take_told(r->take, m, &answer, &err);
    if (!r->unit && take_unit(r->take))
        watch_unit(r, take_unit(r->take));
    if (rc > 0)
        rc = send_request(r, &answer, &err);
    if (rc < 0)
        end_move(r, &err);
    else if (take_is_over(r->take))
        end_move(r, NULL);
}

/* It has waited long enough, or its unit is otherwise than before. */
static void check_take(struct relay *r)
{
    struct cl_err why = {0};
    Cloche__V1__RelayRequest answer;
    int rc = take_go_on(r->take, &answer, &why);
    if (rc > 0)
        rc = send_request(r, &answer, &why);
    if (rc == 0 && r->unit && !unit_is_paused(r->unit))
        rc = cl_fail(&why, CL_E_STATE, 0, "the sandbox ended: %.200s", r->unit->message);
    if (rc < 0)
        end_move(r, &why);
}

/* --- life ------------------------------------------------------------------------------------- */

static void begin(struct relay *r)
{
    switch ((int)r->what->what_case) {
    case CLOCHE__V1__OPEN_RELAY__WHAT_ATTACH:
        begin_attach(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_STDIN:
        begin_stdin(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_READ:
    case CLOCHE__V1__OPEN_RELAY__WHAT_WRITE:
        begin_file(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_WATCH:
        begin_watch(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_CELL:
        begin_cell(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_DIAL:
        begin_dial(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_GIVE:
        begin_give(r);
        break;
    case CLOCHE__V1__OPEN_RELAY__WHAT_TAKE:
        begin_take(r);
        break;
    default:
        finish_with(r, CL_E_UNIMPL, "this worker does not know that relay");
        break;
    }
}

static void on_kick(void *arg)
{
    struct relay *r = arg;
    if (r->done || !r->call)
        return;
    bool waits = !r->exec && !r->file && !r->digest && !r->cell && !r->dial && !r->watch &&
                 !r->give && !r->take;
    if (waits)
        begin(r);
    else if (r->give)
        pump_give(r);
    else if (r->take)
        check_take(r);
    else if (r->dial)
        pump_dial(r);
    else if (r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_ATTACH)
        pump_attach(r);
    else if (!r->cell && !r->watch)
        drain_pending(r);
}

static void on_unit(void *arg)
{
    struct relay *r = arg;
    cl_timer_start(&r->kick, 0);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call;
    struct relay *r = arg;
    if (!r->done && r->give)
        tell_give(r, (const Cloche__V1__RelayResponse *)msg);
    else if (!r->done && r->take)
        tell_take(r, (const Cloche__V1__RelayResponse *)msg);
    else if (!r->done && r->dial)
        take_for_dial(r, (const Cloche__V1__RelayResponse *)msg);
    else if (!r->done && (r->exec || r->file))
        take_bytes(r, (const Cloche__V1__RelayResponse *)msg);
}

static void on_drain(struct rpc_call *call, void *arg)
{
    (void)call;
    struct relay *r = arg;
    credit(r);
    if (r->cell)
        cell_pause(r->cell, false);
    if (r->dial)
        dial_pause(r->dial, false);
    if (r->watch)
        file_watch_go_on(r->watch);
    cl_timer_start(&r->kick, 0);
}

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call, (void)status;
    struct relay *r = arg;
    r->call = NULL;
    if (r->exec && r->what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_STDIN)
        exec_set_stdin_room(r->exec, NULL, NULL);
    cl_list_unlink(&r->unit_waiter.link);
    cl_list_unlink(&r->spool_waiter.link);
    if (r->exec)
        exec_release(r->exec);
    if (r->file)
        guest_stream_forget(r->file, "the client left");
    cell_free(r->cell);
    dial_free(r->dial);
    file_watch_free(r->watch);
    give_free(r->give);
    take_free(r->take);
    if (r->unit)
        unit_release(r->unit);
    EVP_MD_CTX_free(r->digest);
    cl_buf_fini(&r->pending);
    cl_timer_fini(&r->kick);
    pb_free(&r->what->base);
    cl_free(r);
}

static void watch_unit(struct relay *r, struct unit *u)
{
    r->unit = u;
    unit_hold(u);
    r->unit_waiter = (struct unit_waiter){.fn = on_unit, .arg = r};
    unit_wait(u, &r->unit_waiter);
}

int relay_open(struct cl_loop *loop, struct rpc_channel *channel, struct units *units,
               const Cloche__V1__OpenRelay *what, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_message, on_drain, on_end};
    struct relay *r = cl_zalloc(sizeof *r);
    ProtobufCMessage *copy = NULL;
    if (!r || pb_copy(&what->base, &copy, err) < 0) {
        cl_free(r);
        return cl_fail(err, CL_E_NOMEM, 0, "relay");
    }
    *r = (struct relay){.loop = loop, .units = units, .what = (Cloche__V1__OpenRelay *)copy};
    cl_list_init(&r->unit_waiter.link);
    cl_list_init(&r->spool_waiter.link);
    cl_buf_init(&r->pending, PENDING_MAX);
    struct rpc_call_spec spec = {.path = "/cloche.v1.WorkerService/Relay",
                                 .out = &cloche__v1__relay_response__descriptor,
                                 .fail_fast = true};
    if (cl_timer_init(&r->kick, loop, on_kick, r, err) < 0 ||
        rpc_channel_call(channel, &spec, &events, r, &r->call, err) < 0) {
        cl_timer_fini(&r->kick);
        pb_free(copy);
        cl_free(r);
        return -1;
    }
    Cloche__V1__RelayRequest hello = CLOCHE__V1__RELAY_REQUEST__INIT;
    hello.relay_id = r->what->relay_id;
    if (send_request(r, &hello, NULL) < 0) {
        rpc_call_cancel(r->call);
        return 0;
    }
    bool is_to_come = what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_TAKE;
    struct unit *u = is_to_come ? NULL : units_find(units, what->unit_id);
    if (u)
        watch_unit(r, u);
    if (u || is_to_come)
        begin(r);
    else if (what->what_case == CLOCHE__V1__OPEN_RELAY__WHAT_GIVE)
        finish_with(r, CL_E_NOTFOUND, "the sandbox is not on this worker");
    else
        finish_with(r, CL_E_DATALOSS, "its output is not on this worker any more");
    return 0;
}
