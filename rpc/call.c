/* rpc/call.c - what both roles of a call share: messages in, messages out, its end; see
 * rpc/call_priv.h.
 *
 * Thread:  its loop's.
 */
#include "rpc/call.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "proto/unpack.h"
#include "rpc/call_priv.h"
#include "rpc/grpc_wire.h"
#include "rpc/gzip.h"

/* --- header lists -------------------------------------------------------------------------------
 */

static void nvs_put(struct nvs *nvs, const char *name, const char *value, uint8_t flags)
{
    CL_ASSERT(nvs->n < NVS_MAX);
    nghttp2_nv *nv = &nvs->v[nvs->n++];
    nv->name = (uint8_t *)(uintptr_t)name; /* nghttp2 only reads them */
    nv->value = (uint8_t *)(uintptr_t)value;
    nv->namelen = strlen(name);
    nv->valuelen = strlen(value);
    nv->flags = flags;
}

void nvs_add(struct nvs *nvs, const char *name, const char *value)
{
    nvs_put(nvs, name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME);
}

void nvs_add_once(struct nvs *nvs, const char *name, const char *value)
{
    nvs_put(nvs, name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX);
}

void nvs_add_metadata(struct nvs *nvs, const struct metadata *md)
{
    struct metadata_pair p;
    for (size_t at = 0; metadata_next(md, &at, &p);) {
        bool secret = strcmp(p.name, "authorization") == 0;
        nvs_put(nvs, p.name, p.value, secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE);
    }
}

enum call_encoding call_encoding_of(const char *value, size_t n)
{
    if (n == 8 && memcmp(value, "identity", 8) == 0)
        return ENCODING_IDENTITY;
    return n == 4 && memcmp(value, "gzip", 4) == 0 ? ENCODING_GZIP : ENCODING_OTHER;
}

bool call_store_header(struct rpc_call *call, const char *name, size_t name_len, const char *value,
                       size_t value_len, struct cl_err *err)
{
    struct metadata_pair pair = {name, value, name_len, value_len};
    return metadata_add_received(&call->received, pair, err) == 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static void let_followers_go(struct rpc_call *call)
{
    while (!cl_list_empty(&call->followers)) {
        struct rpc_call *next = CL_LIST_ENTRY(call->followers.next, struct rpc_call, turn);
        cl_list_unlink(&next->turn);
        call_todo(next, CALL_WORK_GO);
    }
}

static void run_work(void *obj)
{
    struct rpc_call *call = obj;
    unsigned todo = call->work_todo;
    call->work_todo = 0;
    if (todo & CALL_WORK_END)
        call_end(call, &call->why);
    if ((todo & CALL_WORK_TAKE) && !call->ended)
        call_take(call);
    if ((todo & CALL_WORK_DRAIN) && !call->ended && !call->out_done)
        call->role->drain(call);
    if (todo & CALL_WORK_GO)
        call_resume(call);
    call_bury_if_dead(call);
}

void call_init(struct rpc_call *call, const struct call_role *role, struct rpc_work *work)
{
    static const struct rpc_peer nobody = {.uid = (uid_t)-1};
    call->path = "?";
    call->peer = &nobody;
    call->role = role;
    call->work = work;
    call->stream_id = -1;
    call->start_ns = cl_now_ns();
    call->max_message = RPC_MESSAGE_MAX;
    cl_list_init(&call->link);
    cl_list_init(&call->followers);
    cl_list_init(&call->turn);
    rpc_work_item_init(&call->work_item, run_work, call);
    metadata_init(&call->received);
    metadata_init(&call->headers);
    metadata_init(&call->trailers);
    cl_buf_init(&call->in, CONN_IN_MAX);
}

void call_free(struct rpc_call *call)
{
    let_followers_go(call);
    cl_list_unlink(&call->turn);
    rpc_work_del(&call->work_item);
    cl_timer_fini(&call->timer);
    metadata_fini(&call->received);
    metadata_fini(&call->headers);
    metadata_fini(&call->trailers);
    cl_buf_fini(&call->in);
    outq_fini(&call->out);
    cl_free(call->own_path);
    cl_free(call);
}

static void call_destroy(void *obj)
{
    call_free(obj);
}

void call_bury_if_dead(struct rpc_call *call)
{
    if (!call->ended || call->stream_id >= 0 || call->conn || call->buried)
        return;
    call->buried = true;
    cl_list_unlink(&call->link);
    cl_list_unlink(&call->turn);
    rpc_work_del(&call->work_item);
    cl_timer_stop(&call->timer);
    cl_loop_bury(rpc_work_loop(call->work), &call->grave, call_destroy, call);
}

void call_end(struct rpc_call *call, const struct cl_err *why)
{
    if (call->ended)
        return;
    call->ended = true;
    cl_timer_stop(&call->timer);
    call_drop_input(call);
    let_followers_go(call);
    call->role->end(call, why);
}

static void on_deadline(void *arg)
{
    struct rpc_call *call = arg;
    call->role->expired(call);
    call_bury_if_dead(call);
}

int call_arm_deadline(struct rpc_call *call, struct cl_err *err)
{
    if (call->deadline_ns == 0)
        return 0;
    uint64_t now = cl_now_ns();
    if (cl_timer_init(&call->timer, rpc_work_loop(call->work), on_deadline, call, err) < 0)
        return -1;
    cl_timer_start(&call->timer, call->deadline_ns > now ? call->deadline_ns - now : 0);
    return 0;
}

void call_todo(struct rpc_call *call, unsigned what)
{
    call->work_todo |= what;
    rpc_work_add(call->work, RPC_WORK_CALL, &call->work_item);
}

void call_reset(struct rpc_call *call, uint32_t h2_error)
{
    if (!call->conn || call->stream_id < 0)
        return;
    (void)nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                    h2_error);
    conn_kick(call->conn);
}

/* --- in -----------------------------------------------------------------------------------------
 */

static void give_back_window(struct rpc_call *call, size_t n)
{
    if (call->conn && call->stream_id >= 0 && n > 0) {
        (void)nghttp2_session_consume_stream(call->conn->session, call->stream_id, n);
        if (!call->conn->receiving)
            conn_kick(call->conn);
    }
}

void call_drop_input(struct rpc_call *call)
{
    if (call->conn)
        call->conn->in_bytes -= call->in.len;
    call->in.len = 0;
    give_back_window(call, call->in_held);
    call->in_held = 0;
}

/* The prefix is checked as soon as it is here, so nothing over the limit is ever kept. */
void call_data(struct rpc_call *call, const uint8_t *data, size_t n)
{
    struct rpc_conn *conn = call->conn;
    struct cl_err err;
    (void)nghttp2_session_consume_connection(conn->session, n);
    if (call->ended || call->status_set || call->plain_http) {
        give_back_window(call, n);
        if (call->plain_http)
            call->srv.plain_in += n;
        if (call->plain_http && call->srv.plain_in > CALL_PLAIN_MAX)
            call->role->refuse(call, NULL);
        return;
    }
    int rc = n > CONN_IN_MAX - conn->in_bytes
                 ? cl_fail(&err, CL_E_QUOTA, 0, "too many half-received messages on a connection")
                 : cl_buf_append(&call->in, data, n, &err);
    if (rc < 0) {
        call->role->refuse(call, &err);
        give_back_window(call, n);
        return;
    }
    conn->in_bytes += n;
    if (call->paused)
        call->in_held += n;
    else
        give_back_window(call, n);
}

static int unpack_and_tell(struct rpc_call *call, const uint8_t *data, size_t n, struct cl_err *err)
{
    struct cl_arena *arena;
    const ProtobufCMessage *msg;
    if (cl_arena_new(CL_MAX(call->max_message, (size_t)CL_MIB) * PB_ARENA_FACTOR, &arena, err) < 0)
        return -1;
    int rc = pb_unpack(call->type_in, data, n, arena, &msg, err);
    if (rc == 0)
        call->role->message(call, msg);
    cl_arena_free(arena);
    return rc;
}

static int tell_message(struct rpc_call *call, struct gw_prefix prefix, const uint8_t *data,
                        struct cl_err *err)
{
    call->compressed = prefix.compressed;
    if (!prefix.compressed)
        return unpack_and_tell(call, data, prefix.len, err);
    if (call->in_encoding != ENCODING_GZIP)
        return cl_fail(err, CL_E_PEER, 0, "compressed message without grpc-encoding");
    struct cl_buf plain;
    cl_buf_init(&plain, call->max_message);
    int rc = gzip_inflate(data, prefix.len, &plain, err);
    if (rc == 0)
        rc = unpack_and_tell(call, plain.data, plain.len, err);
    cl_buf_fini(&plain);
    return rc;
}

/* One message from in[*off..]: 1 = told, 0 = not complete (or must wait), -1 = refused. */
static int take_one(struct rpc_call *call, size_t *off, struct cl_err *err)
{
    struct gw_prefix prefix;
    size_t n = call->in.len - *off;
    if (n < GW_PREFIX)
        return 0;
    const uint8_t *data = call->in.data + *off;
    if (gw_prefix_read(data, &prefix, err) < 0)
        return -1;
    if (prefix.len > call->max_message)
        return cl_fail(err, CL_E_TOOBIG, 0, "message of %u bytes, at most %zu", prefix.len,
                       call->max_message);
    if (n - GW_PREFIX < prefix.len)
        return 0;
    size_t used = GW_PREFIX + prefix.len;
    if (call->in_one && n > used)
        return cl_fail(err, CL_E_UNIMPL, 0, "more than one request message");
    if (call->in_one && !call->in_eof)
        return 0;
    *off += used;
    if (tell_message(call, prefix, data + GW_PREFIX, err) < 0)
        return -1;
    return 1;
}

static void take_eof(struct rpc_call *call)
{
    if (!call->in_eof || call->in_eof_told || call->paused || call->ended || call->status_set)
        return;
    if (call->in.len > 0) {
        struct cl_err err;
        (void)cl_fail(&err, CL_E_PEER, 0, "the last message is cut short");
        call->role->refuse(call, &err);
        return;
    }
    call->in_eof_told = true;
    call->role->eof(call);
}

void call_take(struct rpc_call *call)
{
    struct cl_err err;
    size_t off = 0;
    int rc = 1;
    if (call->taking || call->ended)
        return;
    call->taking = true;
    while (rc > 0 && !call->paused && !call->ended && !call->status_set)
        rc = take_one(call, &off, &err);
    call->taking = false;
    size_t done = CL_MIN(off, call->in.len); /* the end of the call emptied it */
    if (call->conn)
        call->conn->in_bytes -= done;
    cl_buf_consume(&call->in, done);
    if (call->in.len == 0 && call->in.cap > CALL_IN_KEEP)
        cl_buf_fini(&call->in);
    if (rc < 0 && !call->ended)
        call->role->refuse(call, &err);
    if (!call->paused && call->in_held > 0) {
        size_t held = call->in_held;
        call->in_held = 0;
        give_back_window(call, held);
    }
    take_eof(call);
    call_bury_if_dead(call);
}

void rpc_call_pause(struct rpc_call *call, bool paused)
{
    if (call->paused && !paused)
        call_todo(call, CALL_WORK_TAKE);
    call->paused = paused;
}

/* --- out ----------------------------------------------------------------------------------------
 */

ssize_t call_read_out(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t n,
                      uint32_t *flags, nghttp2_data_source *source, void *conn)
{
    (void)session, (void)stream_id, (void)conn;
    struct rpc_call *call = source->ptr;
    if (!cl_list_empty(&call->turn)) {
        call->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t taken = outq_take(&call->out, buf, n);
    if (call->out.bytes == 0)
        let_followers_go(call);
    if (call->full_told && call->out.bytes < RPC_OUT_HIGH / 2) {
        call->full_told = false;
        call_todo(call, CALL_WORK_DRAIN);
    }
    if (call->out.bytes == 0 && call->out_done) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (call->role->send_trailers && !call->plain_http) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            call->role->send_trailers(call);
        }
        return (ssize_t)taken;
    }
    if (taken > 0)
        return (ssize_t)taken;
    call->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
}

void call_resume(struct rpc_call *call)
{
    if (!call->conn || call->stream_id < 0)
        return;
    if (call->deferred) {
        call->deferred = false;
        (void)nghttp2_session_resume_data(call->conn->session, call->stream_id);
    }
    conn_kick(call->conn);
}

int rpc_call_send(struct rpc_call *call, const ProtobufCMessage *msg, struct cl_err *err)
{
    struct cl_err why;
    if (call->out_done || call->ended)
        return cl_fail(err, CL_E_STATE, 0, "%s: the sending side is closed", call->path);
    if (outq_push(&call->out, msg, call->out_gzip && call->peer_gzip, &why) < 0) {
        if (err)
            *err = why;
        call->role->refuse(call, &why);
        return -1;
    }
    if (call->out.bytes > RPC_OUT_HIGH)
        call->full_told = true;
    if (call->role->send_headers)
        call->role->send_headers(call);
    call_resume(call);
    return 0;
}

bool rpc_call_is_full(const struct rpc_call *call)
{
    return call->out.bytes > RPC_OUT_HIGH;
}

size_t rpc_call_queued(const struct rpc_call *call)
{
    return call->out.bytes;
}

void rpc_call_after(struct rpc_call *call, struct rpc_call *first)
{
    if (first->out.bytes == 0 || first->ended || call->ended)
        return;
    CL_ASSERT(call != first && call->work == first->work);
    cl_list_unlink(&call->turn);
    cl_list_push(&first->followers, &call->turn);
}

void rpc_call_compress(struct rpc_call *call, bool on)
{
    call->out_gzip = on;
}

bool rpc_call_was_compressed(const struct rpc_call *call)
{
    return call->compressed;
}

/* --- what it is ---------------------------------------------------------------------------------
 */

void rpc_call_set_user(struct rpc_call *call, void *user)
{
    call->user = user;
}

void *rpc_call_user(const struct rpc_call *call)
{
    return call->user;
}

const char *rpc_call_path(const struct rpc_call *call)
{
    return call->path;
}

const struct rpc_peer *rpc_call_peer(const struct rpc_call *call)
{
    return call->peer;
}

uint64_t rpc_call_deadline_ns(const struct rpc_call *call)
{
    return call->deadline_ns;
}

const char *rpc_call_metadata(const struct rpc_call *call, const char *name)
{
    return metadata_get(&call->received, name, NULL);
}

const char *rpc_call_metadata_bytes(const struct rpc_call *call, const char *name, size_t *ret_n)
{
    return metadata_get(&call->received, name, ret_n);
}
