/* rpc/conn_h2.c - the HTTP/2 half of a connection: nghttp2's callbacks, keep-alive and drain; see
 * rpc/conn_priv.h.
 *
 * Thread:  its loop's.
 * Source:  RFC 9113.
 */
#include <string.h>

#include "base/clock.h"
#include "rpc/call_priv.h"
#include "rpc/conn_priv.h"
#include "rpc/server.h"

enum { HEADER_LIST_MAX = RPC_METADATA_MAX };

#define FLUSH_NS (5 * CL_NS_PER_S)      /* last words and FIN */
#define DRAIN_STEP_NS (5 * CL_NS_PER_S) /* the second GOAWAY comes at the latest then */
#define IDLE_NS (15 * 60 * CL_NS_PER_S) /* no calls: say goodbye, the fd is wanted */
#define STALL_NS (60 * CL_NS_PER_S)     /* a finished call whose reader takes nothing */

const struct conn_patience conn_patience_usual = {
    .handshake_ns = 10 * CL_NS_PER_S,
    .ping_after_ns = 60 * CL_NS_PER_S,
    .ping_wait_ns = 20 * CL_NS_PER_S,
};

static const uint8_t ping_alive[8] = "cl-alive";
static const uint8_t ping_drain[8] = "cl-drain";

void conn_expel(struct rpc_conn *conn, uint32_t h2_error, const char *text)
{
    if (conn->state == CONN_CLOSED || conn->state == CONN_FLUSHING)
        return;
    uint8_t frame[H2_GOAWAY_MAX];
    size_t n =
        h2_goaway(frame, nghttp2_session_get_last_proc_stream_id(conn->session), h2_error, text);
    (void)cl_fail(&conn->why, CL_E_PEER, 0, "%s", text);
    conn_set_state(conn, CONN_FLUSHING);
    conn_io_write(conn, frame, n);
    conn_kick(conn);
}

/* The guard's verdict on what came. */
static void heed(struct rpc_conn *conn, const char *offence)
{
    if (offence)
        conn_expel(conn, NGHTTP2_ENHANCE_YOUR_CALM, offence);
}

/* Continue nghttp2's work unless the connection ended inside the callback. */
static int go_on(const struct rpc_conn *conn)
{
    bool over = conn->state == CONN_CLOSED || conn->state == CONN_FLUSHING;
    return over ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- frames
 * --------------------------------------------------------------------------------------- */

static struct rpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;
    if (!conn->role->is_server || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct rpc_call *call = conn->role->begin(conn, frame->hd.stream_id);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    (void)flags;
    struct rpc_conn *conn = arg;
    struct rpc_call *call = call_of(session, frame->hd.stream_id);
    if (call)
        conn->role->header(call, (const char *)name, name_len, (const char *)value, value_len);
    return go_on(conn);
}

static void on_pong(struct rpc_conn *conn, const nghttp2_ping *ping)
{
    if (!(ping->hd.flags & NGHTTP2_FLAG_ACK))
        return;
    conn->ping_ns = 0;
    if (memcmp(ping->opaque_data, ping_drain, sizeof ping_drain) == 0)
        conn->drain_acked = true;
}

static void on_settings(struct rpc_conn *conn, const nghttp2_settings *settings)
{
    if ((settings->hd.flags & NGHTTP2_FLAG_ACK) || conn->state != CONN_GREETING)
        return;
    conn_set_state(conn, CONN_OPEN);
    conn->idle_ns = conn->state_ns;
    conn->role->conn_up(conn);
}

static void on_stream_frame(struct rpc_conn *conn, struct rpc_call *call,
                            const nghttp2_frame *frame)
{
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS) {
        bool trailers = frame->headers.cat == NGHTTP2_HCAT_HEADERS;
        conn->role->headers(call, trailers, end);
        return;
    }
    if (end)
        call->in_eof = true;
    call_take(call);
}

/* The second step of the graceful end: every stream that will come has come. */
static void drain_second_step(struct rpc_conn *conn)
{
    if (!conn->drain_sent)
        return;
    conn->drain_sent = false;
    (void)nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(conn->session),
                                NGHTTP2_NO_ERROR, NULL, 0);
    conn_kick(conn);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;
    struct rpc_call *call = call_of(session, frame->hd.stream_id);
    heed(conn, h2_guard_frame(&conn->guard, frame));
    if (go_on(conn) != 0)
        return go_on(conn);
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS:
        if (call)
            on_stream_frame(conn, call, frame);
        break;
    case NGHTTP2_PING:
        on_pong(conn, &frame->ping);
        if (conn->drain_acked)
            drain_second_step(conn);
        break;
    case NGHTTP2_SETTINGS:
        on_settings(conn, &frame->settings);
        break;
    case NGHTTP2_GOAWAY:
        if (conn->state == CONN_OPEN)
            conn_set_state(conn, CONN_GOING);
        conn->role->conn_going(conn);
        break;
    default:
        break;
    }
    return go_on(conn);
}

static int on_bad_frame(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
    (void)session, (void)frame, (void)error;
    struct rpc_conn *conn = arg;
    heed(conn, h2_guard_bad_frame(&conn->guard));
    return go_on(conn);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t n, void *arg)
{
    (void)flags;
    struct rpc_conn *conn = arg;
    struct rpc_call *call = call_of(session, stream_id);
    if (call)
        call_data(call, data, n);
    else
        (void)nghttp2_session_consume(session, stream_id, n);
    return go_on(conn);
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *arg)
{
    struct rpc_conn *conn = arg;
    struct rpc_call *call = call_of(session, stream_id);
    if (!call)
        return 0;
    (void)nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    conn_unlink_call(call);
    call->stream_id = -1;
    conn->role->closed(call, error);
    return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    h2_guard_forgive_pings(&conn->guard);
    struct rpc_call *call = call_of(session, frame->hd.stream_id);
    if (!call)
        return 0;
    if (!conn->role->is_server) {
        call->cli.sent = true;
        return 0;
    }
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    call->trailers_sent = true;
    if (!call->in_eof) /* answered before the request ended: the rest is not wanted */
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

/* --- the session
 * ---------------------------------------------------------------------------------- */

static int make_session(struct rpc_conn *conn, nghttp2_session_callbacks *cbs,
                        nghttp2_option *option)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(cbs, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cbs, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cbs, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cbs, on_bad_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cbs, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cbs, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cbs, on_frame_sent);
    nghttp2_option_set_no_auto_window_update(option, 1);
    h2_guard_set_options(option);
    return conn->role->is_server ? nghttp2_session_server_new2(&conn->session, cbs, conn, option)
                                 : nghttp2_session_client_new2(&conn->session, cbs, conn, option);
}

int conn_h2_start(struct rpc_conn *conn, struct cl_err *err)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, RPC_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, CONN_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_MAX},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
    };
    conn->guard.is_server = conn->role->is_server;
    nghttp2_session_callbacks *cbs = NULL;
    nghttp2_option *option = NULL;
    bool ok = nghttp2_session_callbacks_new(&cbs) == 0 && nghttp2_option_new(&option) == 0 &&
              make_session(conn, cbs, option) == 0;
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cbs);
    size_t n = CL_COUNT(settings) - (conn->role->is_server ? 1 : 0); /* push is the client's word */
    if (!ok || nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings, n) != 0 ||
        nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW) !=
            0)
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP/2 session");
    conn_kick(conn);
    return 0;
}

void conn_h2_receive(struct rpc_conn *conn, const uint8_t *data, size_t n)
{
    conn->receiving = true;
    ssize_t rc = nghttp2_session_mem_recv(conn->session, data, n);
    conn->receiving = false;
    if (rc >= 0 || conn->state == CONN_CLOSED || conn->state == CONN_FLUSHING)
        return;
    conn_expel(conn, h2_guard_error_of((int)rc), nghttp2_strerror((int)rc));
}

void conn_drain(struct rpc_conn *conn)
{
    if (conn->state == CONN_OPENING || conn->state == CONN_GREETING) {
        conn_close(conn, &(struct cl_err){.code = CL_E_UNAVAILABLE, .text = "shutting down"});
        return;
    }
    if (conn->state != CONN_OPEN || conn->drain_sent)
        return;
    conn_set_state(conn, CONN_GOING);
    conn->drain_sent = true;
    (void)nghttp2_submit_shutdown_notice(conn->session);
    (void)nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, ping_drain);
    conn_kick(conn);
}

/* --- calls on it
 * ------------------------------------------------------------------------------------ */

void conn_link_call(struct rpc_conn *conn, struct rpc_call *call)
{
    call->conn = conn;
    call->peer = &conn->peer;
    cl_list_push(&conn->calls, &call->link);
    conn->n_calls++;
}

void conn_unlink_call(struct rpc_call *call)
{
    struct rpc_conn *conn = call->conn;
    if (!conn)
        return;
    cl_list_unlink(&call->link);
    if (--conn->n_calls == 0)
        conn->idle_ns = cl_now_ns();
    conn->in_bytes -= call->in.len;
    call->conn = NULL;
}

/* --- time
 * ------------------------------------------------------------------------------------------- */

/* A callback earlier in this tick may have set a stamp past the tick's own time. */
static uint64_t since(uint64_t now_ns, uint64_t stamp_ns)
{
    return now_ns > stamp_ns ? now_ns - stamp_ns : 0;
}

/* Close it from the work queue: whoever walks the list of connections is not disturbed, even when a
 * handler that hears of it frees the server. */
static void doom(struct rpc_conn *conn, const struct cl_err *why)
{
    conn->why = *why;
    conn->doomed = true;
    conn_kick(conn);
}

static void tick_calls(struct rpc_conn *conn, uint64_t now_ns)
{
    CL_LIST_FOREACH (it, &conn->calls) {
        struct rpc_call *call = CL_LIST_ENTRY(it, struct rpc_call, link);
        if (call->finish_ns != 0 && since(now_ns, call->finish_ns) > STALL_NS)
            call_reset(call, NGHTTP2_CANCEL);
    }
}

/* Clients that have no call here may be slow to answer: gRPC's C core looks at the connections that
 * nobody waits for every 5 s, and then at one of them.  They are sent away in time anyway. */
static bool wants_answers(const struct rpc_conn *conn)
{
    return !conn->role->is_server || conn->n_calls > 0;
}

static void tick_open(struct rpc_conn *conn, uint64_t now_ns)
{
    bool asks = wants_answers(conn);
    /* Whoever sends lives: its answer may wait behind what it sends. */
    if (asks && conn->ping_ns != 0 &&
        since(now_ns, CL_MAX(conn->ping_ns, conn->heard_ns)) > conn->patience->ping_wait_ns) {
        struct cl_err err;
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "%s does not answer pings", conn->peer.address);
        doom(conn, &err);
        return;
    }
    if (conn->role->is_server && conn->n_calls == 0 && since(now_ns, conn->idle_ns) > IDLE_NS)
        conn_drain(conn);
    if (asks && conn->ping_ns == 0 &&
        since(now_ns, conn->heard_ns) > conn->patience->ping_after_ns) {
        conn->ping_ns = now_ns;
        (void)nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, ping_alive);
        conn_kick(conn);
    }
    tick_calls(conn, now_ns);
}

void conn_tick(struct rpc_conn *conn, uint64_t now_ns)
{
    struct cl_err err;
    uint64_t age = since(now_ns, conn->state_ns);
    switch (conn->state) {
    case CONN_OPENING:
    case CONN_GREETING:
        if (since(now_ns, conn->begun_ns) <= conn->patience->handshake_ns)
            return;
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "%s: no HTTP/2 greeting in time",
                      conn->peer.address);
        doom(conn, &err);
        return;
    case CONN_GOING:
        if (age > DRAIN_STEP_NS)
            drain_second_step(conn);
        CL_FALLTHROUGH;
    case CONN_OPEN:
        tick_open(conn, now_ns);
        return;
    case CONN_FLUSHING:
        if (age <= FLUSH_NS)
            return;
        if (conn->why.code == CL_OK)
            (void)cl_fail(&conn->why, CL_E_UNAVAILABLE, 0, "%s: closed", conn->peer.address);
        err = conn->why;
        doom(conn, &err);
        return;
    case CONN_CLOSED:
        return;
    }
}
