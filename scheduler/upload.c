/* scheduler/upload.c - see scheduler/stream.h: bytes of clients towards a process or a file. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "scheduler/relays.h"
#include "scheduler/stream.h"
#include "scheduler/validate.h"

enum { PENDING_MAX = RPC_MESSAGE_MAX + RPC_OUT_HIGH };

enum upload_kind { UPLOAD_STDIN_JOB = 1, UPLOAD_STDIN_EXEC, UPLOAD_FILE };

struct upload {
    struct follower f;  /* first */
    struct api_call *a; /* held */
    enum upload_kind kind;
    char exec_id[CL_ID_MAX], user[8];
    char *path; /* owned: of a file */
    uint32_t mode;
    struct relay *relay;
    struct cl_buf pending; /* until the relay takes it */
    bool eof, eof_sent, half_closed, finished, known;
    uint64_t bytes, max;
    struct cl_timer kick;
};

static void kick(struct upload *up)
{
    cl_timer_start(&up->kick, 0);
}

static void fail(struct upload *up, const struct cl_err *err)
{
    up->finished = true;
    api_fail(up->a, err);
}

static void reply(struct upload *up, const Cloche__V1__RelayDone *done)
{
    Cloche__V1__WriteStdinResponse job = CLOCHE__V1__WRITE_STDIN_RESPONSE__INIT;
    Cloche__V1__ExecServiceWriteStdinResponse exec =
        CLOCHE__V1__EXEC_SERVICE_WRITE_STDIN_RESPONSE__INIT;
    Cloche__V1__WriteResponse file = CLOCHE__V1__WRITE_RESPONSE__INIT;
    up->finished = true;
    job.bytes = exec.bytes = file.bytes = done ? done->bytes : up->bytes;
    if (done)
        file.sha256 = done->sha256;
    const ProtobufCMessage *m = up->kind == UPLOAD_STDIN_JOB    ? &job.base
                                : up->kind == UPLOAD_STDIN_EXEC ? &exec.base
                                                                : &file.base;
    if (up->kind == UPLOAD_FILE && done && up->f.unit) {
        char hex[65] = "";
        struct cl_err err = {0};
        if (done->sha256.len == 32)
            cl_hex(done->sha256.data, 32, hex);
        const struct audit_field fields[] = {AUDIT_NUM("bytes", up->bytes),
                                             AUDIT_STR("path", up->path), AUDIT_STR("sha256", hex),
                                             AUDIT_STR("unit", up->f.unit->id)};
        if (audit_emit(up->a->s->audit, up->a->p.tenant, AUDIT_FILE_WRITE, fields, CL_COUNT(fields),
                       NULL, NULL, &err) < 0) {
            api_fail(up->a, &err);
            return;
        }
    }
    api_reply(up->a, m);
}

/* --- the relay ---------------------------------------------------------------------------------
 */

static void push(struct upload *up)
{
    struct cl_err err = {0};
    if (up->finished || !up->a->call || !up->relay || relay_is_full(up->relay))
        return;
    if ((up->pending.len > 0 || (up->eof && !up->eof_sent))) {
        enum { PIECE = 65536 };
        size_t n = CL_MIN(up->pending.len, (size_t)PIECE);
        bool last = up->eof && n == up->pending.len;
        if (relay_send(up->relay, up->pending.data, n, last, &err) < 0) {
            fail(up, &err);
            return;
        }
        cl_buf_consume(&up->pending, n);
        up->eof_sent = last;
        if (up->pending.len > 0 || (up->eof && !up->eof_sent))
            kick(up);
    }
    rpc_call_pause(up->a->call, up->pending.len > 0);
    if (up->pending.len == 0 && up->half_closed && !up->eof) {
        if (up->kind == UPLOAD_FILE) { /* without commit nothing changes */
            (void)cl_fail(&err, CL_E_INVALID, 0,
                          "the stream ended without commit; the file is as it was");
            fail(up, &err);
        } else {
            reply(up, NULL);
        }
    }
}

static void on_relay_message(void *arg, const Cloche__V1__RelayRequest *m)
{
    struct upload *up = arg;
    if (!up->finished && m->done && m->done->code == 0)
        reply(up, m->done);
}

static void on_relay_drain(void *arg)
{
    kick(arg);
}

static void on_relay_end(void *arg, const struct cl_err *why)
{
    struct upload *up = arg;
    up->relay = NULL;
    if (!up->finished && why)
        fail(up, why);
}

static void open_relay(struct upload *up, struct worker *w)
{
    static const struct relay_events events = {on_relay_message, on_relay_drain, on_relay_end};
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayStdin in = CLOCHE__V1__RELAY_STDIN__INIT;
    Cloche__V1__RelayWrite write = CLOCHE__V1__RELAY_WRITE__INIT;
    struct cl_err err = {0};
    open.unit_id = up->f.unit->id;
    if (up->kind == UPLOAD_FILE) {
        write.path = up->path;
        write.mode = up->mode;
        write.user = up->user;
        open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_WRITE;
        open.write = &write;
    } else {
        in.exec_id = up->exec_id;
        open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_STDIN;
        open.stdin = &in;
    }
    if (relay_open(w, &open, &events, up, &up->relay, &err) < 0)
        fail(up, &err);
}

static void step(struct upload *up)
{
    struct unit *u = up->f.unit;
    struct cl_err err = {0};
    if (up->finished || !up->a->call || !up->known)
        return;
    if (!up->relay && u && (u->phase == PHASE_ENDED || u->phase == PHASE_SETTLING)) {
        (void)cl_fail(&err, CL_E_STATE, 0, "'%s' has ended", u->id);
        fail(up, &err);
        return;
    }
    struct worker *w = u ? unit_worker(u) : NULL;
    if (!up->relay && u && u->phase == PHASE_RUNNING && w)
        open_relay(up, w);
    push(up);
}

static void on_kick(void *arg)
{
    step(arg);
}

static void on_change(struct follower *f)
{
    kick((struct upload *)(void *)f);
}
_Static_assert(offsetof(struct upload, f) == 0, "on_change() relies on it");

/* --- the call ----------------------------------------------------------------------------------
 */

static void begin(struct api_call *a, enum upload_kind kind)
{
    struct cl_err err = {0};
    struct upload *up = cl_zalloc(sizeof *up);
    if (!up || cl_timer_init(&up->kick, a->s->loop, on_kick, up, &err) < 0) {
        cl_free(up);
        api_fail_with(a, CL_E_NOMEM, "upload");
        return;
    }
    up->a = a;
    up->kind = kind;
    up->f.on_change = on_change;
    cl_list_init(&up->f.link);
    cl_buf_init(&up->pending, PENDING_MAX);
    api_hold(a);
    a->state = up;
}

void upload_stdin_job(struct api_call *a)
{
    begin(a, UPLOAD_STDIN_JOB);
}

void upload_stdin_exec(struct api_call *a)
{
    begin(a, UPLOAD_STDIN_EXEC);
}

void upload_file(struct api_call *a)
{
    begin(a, UPLOAD_FILE);
}

/* The first message names what it is for. */
static bool introduce(struct upload *up, const char *unit_id, const char *exec_id)
{
    if (up->known)
        return true;
    enum books_kind kind = up->kind == UPLOAD_STDIN_JOB ? BOOKS_JOB : BOOKS_SANDBOX;
    struct unit *u = api_unit(up->a, unit_id, kind, NULL);
    if (!u) {
        up->finished = true;
        return false;
    }
    (void)snprintf(up->exec_id, sizeof up->exec_id, "%.39s", exec_id);
    unit_follow(u, &up->f);
    up->max = up->kind == UPLOAD_FILE ? u->tenant->limits.file_bytes : UINT64_MAX;
    up->known = true;
    return true;
}

static void take(struct upload *up, const void *data, size_t n, bool eof)
{
    struct cl_err err = {0};
    if (up->eof) {
        (void)cl_fail(&err, CL_E_INVALID, 0, "bytes after the end");
        fail(up, &err);
        return;
    }
    up->eof = eof;
    up->bytes += n;
    if (validate_file_bytes(up->bytes, up->max, &err) < 0 ||
        cl_buf_append(&up->pending, data, n, &err) < 0) {
        fail(up, &err);
        return;
    }
    rpc_call_pause(up->a->call, up->pending.len > 0);
    step(up);
}

void upload_bytes(struct api_call *a, const char *unit_id, const char *exec_id, const void *data,
                  size_t n, bool eof)
{
    struct upload *up = a->state;
    if (up && introduce(up, unit_id, exec_id))
        take(up, data, n, eof);
}

void upload_file_bytes(struct api_call *a, const Cloche__V1__WriteRequest *m)
{
    struct upload *up = a->state;
    struct cl_err err = {0};
    if (!up)
        return;
    if (!up->known) {
        if (validate_path(m->path, &err) < 0 || validate_user(m->user, &err) < 0 ||
            (m->mode > 07777 && cl_fail(&err, CL_E_INVALID, 0, "mode: at most 07777") < 0)) {
            fail(up, &err);
            return;
        }
        up->path = cl_strdup(m->path);
        up->mode = m->mode;
        (void)snprintf(up->user, sizeof up->user, "%s", m->user);
        if (!up->path) {
            (void)cl_fail(&err, CL_E_NOMEM, 0, "path");
            fail(up, &err);
            return;
        }
    }
    if (introduce(up, m->sandbox_id, ""))
        take(up, m->data.data, m->data.len, m->commit);
}

void upload_half_close(struct api_call *a)
{
    struct upload *up = a->state;
    if (!up)
        return;
    up->half_closed = true;
    if (!up->known) {
        up->finished = true;
        api_fail_with(a, CL_E_INVALID, "the stream ended before its first message");
        return;
    }
    kick(up);
}

void upload_gone(struct api_call *a, const struct cl_err *why)
{
    (void)why;
    struct upload *up = a->state;
    if (!up)
        return;
    a->state = NULL;
    unit_unfollow(&up->f);
    if (up->relay)
        relay_drop(up->relay);
    cl_buf_fini(&up->pending);
    cl_timer_fini(&up->kick);
    cl_free(up->path);
    api_release(up->a);
    cl_free(up);
}
