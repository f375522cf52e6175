/* gateway/http2_io.c - HTTP/2 on a connection: nghttp2's session, drain and time limits; a stream's
 * own part is stream_io.c.  See gateway/http2_priv.h.
 *
 *   OPEN --drain, idle--> DRAINING --no stream left--> FLUSHING --FIN seen, or FLUSH_NS--> closed
 *     +------------ flood, broken protocol -------------->+
 *
 * Draining: GOAWAY with the highest id and a PING; when the PING comes back every stream that was
 * on its way has come, and GOAWAY says the real id (RFC 9113 section 6.8).
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/http2_priv.h"

#define TICK_NS (1 * CL_NS_PER_S)
#define DRAIN_STEP_NS (1 * CL_NS_PER_S) /* the second GOAWAY comes at the latest then */
#define FLUSH_NS (5 * CL_NS_PER_S)      /* last words and FIN */

static const uint8_t ping_drain[8] = "cl-drain";

static uint64_t since(uint64_t now_ns, uint64_t stamp_ns)
{
    return now_ns > stamp_ns ? now_ns - stamp_ns : 0;
}

static void set_state(struct http2 *h, enum http2_state state)
{
    h->state = state;
    h->state_ns = cl_now_ns();
}

static bool is_over(const struct http2 *h)
{
    return h->conn->gone || h->state == HTTP2_FLUSHING;
}

/* Continue nghttp2's work unless the connection ended inside the callback. */
static int go_on(const struct http2 *h)
{
    return is_over(h) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* Deferred: a session must not be written inside its own callbacks. */
void http2_kick(struct http2 *h)
{
    if (!h->conn->gone)
        bufferevent_trigger(h->conn->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
}

static void leave_streams(struct http2 *h)
{
    CL_LIST_FOREACH (it, &h->streams)
        exchange_leave(&CL_LIST_ENTRY(it, struct http2_stream, link)->exchange);
}

/* The peer must go: say why, flush, close. */
static void expel(struct http2 *h, uint32_t h2_error, const char *text)
{
    uint8_t frame[H2_GOAWAY_MAX];
    if (is_over(h))
        return;
    size_t n =
        h2_goaway(frame, nghttp2_session_get_last_proc_stream_id(h->session), h2_error, text);
    set_state(h, HTTP2_FLUSHING);
    (void)bufferevent_write(h->conn->bev, frame, n);
    leave_streams(h);
    http2_kick(h);
}

static void heed(struct http2 *h, const char *offence)
{
    if (offence)
        expel(h, NGHTTP2_ENHANCE_YOUR_CALM, offence);
}

/* --- drain --------------------------------------------------------------------------------------
 */

static void drain_second_step(struct http2 *h)
{
    if (h->drain_done)
        return;
    h->drain_done = true;
    (void)nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(h->session),
                                NGHTTP2_NO_ERROR, NULL, 0);
    http2_kick(h);
}

static void begin_drain(struct http2 *h)
{
    if (h->state != HTTP2_OPEN)
        return;
    set_state(h, HTTP2_DRAINING);
    (void)nghttp2_submit_shutdown_notice(h->session);
    (void)nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, ping_drain);
    http2_kick(h);
}

/* --- frames -------------------------------------------------------------------------------------
 */

static struct http2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct http2_stream *s = http2_stream_new(h, frame->hd.stream_id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t n, const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
    (void)flags;
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    if (s && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        http2_request_field(&s->request, (const char *)name, n, (const char *)value, value_n);
    else if (s)
        http2_request_trailer(&s->request, n, value_n);
    return go_on(arg);
}

/* nghttp2 would go on without the field. */
static int on_bad_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                         size_t n, const uint8_t *value, size_t value_n, uint8_t flags, void *arg)
{
    (void)name, (void)n, (void)value, (void)value_n, (void)flags;
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    if (s)
        http2_request_bad_field(&s->request);
    return go_on(arg);
}

static void on_stream_frame(struct http2_stream *s, const nghttp2_frame *frame)
{
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        http2_stream_head(s, end);
    if (end)
        http2_stream_complete(s);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    heed(h, h2_guard_frame(&h->guard, frame));
    if (is_over(h))
        return go_on(h);
    if (s && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS))
        on_stream_frame(s, frame);
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) &&
        h->state == HTTP2_DRAINING &&
        memcmp(frame->ping.opaque_data, ping_drain, sizeof ping_drain) == 0)
        drain_second_step(h);
    return go_on(h);
}

static int on_bad_frame(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
    (void)session, (void)frame, (void)error;
    struct http2 *h = arg;
    heed(h, h2_guard_bad_frame(&h->guard));
    return go_on(h);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *arg)
{
    (void)flags;
    struct http2_stream *s = stream_of(session, id);
    (void)nghttp2_session_consume_connection(session, n);
    if (s)
        http2_stream_body(s, data, n);
    return go_on(arg);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
    (void)error, (void)arg;
    struct http2_stream *s = stream_of(session, id);
    if (!s)
        return 0;
    (void)nghttp2_session_set_stream_user_data(session, id, NULL);
    http2_stream_close(s);
    return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct http2 *h = arg;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    h2_guard_forgive_pings(&h->guard);
    struct http2_stream *s = stream_of(session, frame->hd.stream_id);
    if (s && !s->complete && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        /* answered before the request ended: the rest is not wanted (RFC 9113 section 8.1) */
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

/* --- bytes --------------------------------------------------------------------------------------
 */

static void readable(struct http_conn *k)
{
    struct http2 *h = k->state;
    struct evbuffer *in = http_conn_in(k);
    size_t n;
    while (!k->gone && (n = evbuffer_get_contiguous_space(in)) > 0) {
        const uint8_t *data = evbuffer_pullup(in, (ev_ssize_t)n);
        ssize_t rc = is_over(h) ? 0 : nghttp2_session_mem_recv(h->session, data, n);
        (void)evbuffer_drain(in, n);
        if (rc < 0)
            expel(h, h2_guard_error_of((int)rc), nghttp2_strerror((int)rc));
    }
    http2_kick(h);
}

/* Move frames from the session to the socket's buffer, until the high-water mark. */
static int pump(struct http2 *h)
{
    struct evbuffer *out = http_conn_out(h->conn);
    while (evbuffer_get_length(out) < HTTP2_OUT_HIGH) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(h->session, &data);
        if (n < 0 || evbuffer_add(out, data, (size_t)n) < 0)
            return -1;
        if (n == 0)
            break;
    }
    return 0;
}

/* A peer that sends but does not read makes answers pile up inside nghttp2: stop listening to it.
 */
static void set_reading(struct http2 *h)
{
    struct bufferevent *bev = h->conn->bev;
    bool choked = evbuffer_get_length(http_conn_out(h->conn)) >= HTTP2_OUT_LOW &&
                  nghttp2_session_get_outbound_queue_size(h->session) > HTTP2_QUEUE_MAX;
    bool reading = (bufferevent_get_enabled(bev) & EV_READ) != 0;
    if (choked && reading)
        (void)bufferevent_disable(bev, EV_READ);
    else if (!choked && !reading)
        (void)bufferevent_enable(bev, EV_READ);
}

/* The peer has all we will say: say FIN, wait for its own, so that no reset overtakes our words. */
static void finish_flushing(struct http2 *h)
{
    if (h->fin_sent)
        return;
    h->fin_sent = true;
    http_conn_fin(h->conn);
}

static void written(struct http_conn *k)
{
    struct http2 *h = k->state;
    if (!is_over(h) && pump(h) < 0) {
        http_conn_close(k);
        return;
    }
    if (!is_over(h) && !nghttp2_session_want_read(h->session) &&
        !nghttp2_session_want_write(h->session))
        set_state(h, HTTP2_FLUSHING);
    if (h->state == HTTP2_FLUSHING && evbuffer_get_length(http_conn_out(k)) == 0)
        finish_flushing(h);
    else
        set_reading(h);
}

/* --- time ---------------------------------------------------------------------------------------
 */

static void tick_open(struct http2 *h, uint64_t now_ns)
{
    uint64_t limit_s = h->had_streams ? HTTP_IDLE_S : HTTP_REQUEST_S;
    if (h->n_streams == 0 && since(now_ns, h->idle_ns) > limit_s * CL_NS_PER_S)
        begin_drain(h);
    CL_LIST_FOREACH (it, &h->streams)
        http2_stream_tick(CL_LIST_ENTRY(it, struct http2_stream, link), now_ns);
}

static void tick(struct http_conn *k)
{
    struct http2 *h = k->state;
    uint64_t now = cl_now_ns(), age = since(now, h->state_ns);
    switch (h->state) {
    case HTTP2_DRAINING:
        if (age > DRAIN_STEP_NS)
            drain_second_step(h);
        CL_FALLTHROUGH;
    case HTTP2_OPEN:
        tick_open(h, now);
        break;
    case HTTP2_FLUSHING:
        if (age > FLUSH_NS)
            http_conn_close(k);
        break;
    }
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int make_session(struct http2 *h, nghttp2_session_callbacks *cbs, nghttp2_option *option)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(cbs, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cbs, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cbs, on_bad_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cbs, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cbs, on_bad_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cbs, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cbs, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cbs, on_frame_sent);
    nghttp2_option_set_no_auto_window_update(option, 1);
    h2_guard_set_options(option);
    return nghttp2_session_server_new2(&h->session, cbs, h, option);
}

static int submit_settings(struct http2 *h)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_HEAD_MAX},
    };
    int rc = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, CL_COUNT(settings));
    return rc ? rc
              : nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                      HTTP2_WINDOW);
}

static int start_session(struct http2 *h)
{
    nghttp2_session_callbacks *cbs = NULL;
    nghttp2_option *option = NULL;
    bool ok = nghttp2_session_callbacks_new(&cbs) == 0 && nghttp2_option_new(&option) == 0 &&
              make_session(h, cbs, option) == 0 && submit_settings(h) == 0;
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cbs);
    return ok ? 0 : -1;
}

static int start(struct http_conn *k, struct cl_err *err)
{
    struct http2 *h = cl_zalloc(sizeof *h);
    if (!h)
        return cl_fail(err, CL_E_NOMEM, 0, "connection");
    k->state = h;
    h->conn = k;
    h->guard.is_server = true;
    h->idle_ns = cl_now_ns();
    cl_list_init(&h->streams);
    set_state(h, HTTP2_OPEN);
    if (start_session(h) < 0)
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP/2 session");
    bufferevent_setwatermark(k->bev, EV_WRITE, HTTP2_OUT_LOW, 0);
    cl_timer_every(&k->timer, TICK_NS);
    http2_kick(h);
    return 0;
}

static void drain(struct http_conn *k)
{
    begin_drain(k->state);
}

static void leave(struct http_conn *k)
{
    struct http2 *h = k->state;
    CL_LIST_FOREACH (it, &h->streams)
        http2_stream_close(CL_LIST_ENTRY(it, struct http2_stream, link));
}

static void destroy(struct http_conn *k)
{
    struct http2 *h = k->state;
    CL_ASSERT(h->n_streams == 0 && h->body_bytes == 0 && h->out_bytes == 0);
    nghttp2_session_del(h->session);
    cl_free(h);
}

const struct engine http2_engine = {.open = start,
                                    .readable = readable,
                                    .written = written,
                                    .timer = tick,
                                    .drain = drain,
                                    .leave = leave,
                                    .free = destroy};
