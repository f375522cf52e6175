/* gateway/stream_io.c - one HTTP/2 stream: a request, its exchange, and the answer that waits for
 * the client's window; see gateway/http2_priv.h. */
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/http2_priv.h"
#include "web/page.h"

enum { FIELDS_OUT_MAX = 20 };

static struct http2_stream *of(struct exchange *x)
{
    return CL_CONTAINER(x, struct http2_stream, exchange);
}

/* --- the answer ---------------------------------------------------------------------------------
 */

struct head {
    nghttp2_nv fields[FIELDS_OUT_MAX];
    size_t n;
};

/* name and value are copied by nghttp2 when the head is submitted. */
static void field(struct head *head, const char *name, const char *value)
{
    CL_ASSERT(head->n < FIELDS_OUT_MAX);
    head->fields[head->n++] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                                           .value = (uint8_t *)(uintptr_t)value,
                                           .namelen = strlen(name),
                                           .valuelen = strlen(value)};
}

static ssize_t take_out(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    (void)session, (void)id, (void)arg;
    struct http2_stream *s = source->ptr;
    int n = evbuffer_remove(s->out, to, room);
    if (n < 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s->owner->out_bytes -= (size_t)n;
    s->moved_ns = cl_now_ns();
    if (s->ended && evbuffer_get_length(s->out) == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (n == 0)
        return NGHTTP2_ERR_DEFERRED;
    return n;
}

static void submit(struct http2_stream *s, const struct head *head, bool has_body)
{
    nghttp2_data_provider body = {.source = {.ptr = s}, .read_callback = take_out};
    s->answered = true;
    s->moved_ns = cl_now_ns();
    (void)nghttp2_submit_response(s->owner->session, s->id, head->fields, head->n,
                                  has_body ? &body : NULL);
    http2_kick(s->owner);
}

static void add_out(struct http2_stream *s, struct iovec *pieces, int n)
{
    if (evbuffer_get_length(s->out) == 0)
        s->moved_ns = cl_now_ns();
    s->owner->out_bytes += evbuffer_add_iovec(s->out, pieces, n);
}

/* Nobody resumes what was not deferred; that is no error. */
static void resume(struct http2_stream *s)
{
    (void)nghttp2_session_resume_data(s->owner->session, s->id);
    http2_kick(s->owner);
}

static void say_reader(struct head *head, const char *origin)
{
    if (!origin)
        return;
    field(head, "access-control-allow-origin", origin);
    field(head, "vary", "Origin");
    field(head, "access-control-expose-headers", HTTP_MAY_READ);
}

static void say_answer(struct exchange *x, const struct answer *a)
{
    struct http2_stream *s = of(x);
    struct head head = {.n = 0};
    struct iovec piece = {(void *)(uintptr_t)a->data, a->n};
    char status[8], length[24];
    (void)snprintf(status, sizeof status, "%d", a->status);
    (void)snprintf(length, sizeof length, "%zu", a->n);
    field(&head, ":status", status);
    field(&head, "cache-control", "no-store");
    if (a->status != 204)
        field(&head, "content-length", length);
    if (a->type)
        field(&head, "content-type", a->type);
    if (a->session)
        field(&head, "mcp-session-id", a->session);
    if (a->next_token)
        field(&head, "x-next-token", a->next_token);
    if (a->authenticate)
        field(&head, "www-authenticate", a->authenticate);
    if (a->is_page) {
        field(&head, "content-security-policy", WEB_PAGE_POLICY);
        field(&head, "x-content-type-options", "nosniff");
        field(&head, "referrer-policy", "no-referrer");
        field(&head, "cross-origin-opener-policy", "same-origin");
    }
    if (a->status == 405)
        field(&head, "allow", a->is_page ? "GET" : "POST, DELETE");
    say_reader(&head, a->origin);
    if (a->is_preflight) {
        field(&head, "access-control-allow-methods", HTTP_MAY_CALL);
        field(&head, "access-control-max-age", HTTP_MAY_FOR_S);
    }
    if (a->may_send)
        field(&head, "access-control-allow-headers", a->may_send);
    s->ended = true;
    add_out(s, &piece, 1);
    submit(s, &head, a->n > 0);
}

static void say_stream(struct exchange *x, const char *type)
{
    struct head head = {.n = 0};
    field(&head, ":status", "200");
    field(&head, "cache-control", "no-store");
    field(&head, "content-type", type);
    field(&head, "x-accel-buffering", "no");
    say_reader(&head, x->origin);
    submit(of(x), &head, true);
}

static void say_pieces(struct exchange *x, struct iovec *pieces, int n)
{
    add_out(of(x), pieces, n);
    resume(of(x));
}

static void say_end(struct exchange *x)
{
    of(x)->ended = true;
    resume(of(x));
}

static void say_cut(struct exchange *x)
{
    struct http2_stream *s = of(x);
    (void)nghttp2_submit_rst_stream(s->owner->session, NGHTTP2_FLAG_NONE, s->id,
                                    NGHTTP2_INTERNAL_ERROR);
    http2_kick(s->owner);
}

/* Of all streams: a connection holds no more for being cut into streams. */
static size_t waiting(struct exchange *x)
{
    return of(x)->owner->out_bytes;
}

static void feed(struct exchange *x);

static const struct exchange_wire wire = {.answer = say_answer,
                                          .begin_stream = say_stream,
                                          .send = say_pieces,
                                          .end_stream = say_end,
                                          .cut_stream = say_cut,
                                          .waiting = waiting,
                                          .feed = feed};

/* --- the request --------------------------------------------------------------------------------
 */

static void drop_body(struct http2_stream *s)
{
    s->owner->body_bytes -= s->request.body.len;
    http2_request_drop_body(&s->request);
}

static void refuse(struct http2_stream *s, int status, const char *text)
{
    exchange_leave(&s->exchange); /* of an upload */
    drop_body(s);
    exchange_refuse(&s->exchange, status, text);
}

static void refuse_malformed(struct http2_stream *s, int status)
{
    refuse(s, status, "the HTTP request is malformed or too large");
}

/* A port of a sandbox has HTTP/1.1 alone, one connection a request; clients ask again so (RFC 9113
 * section 7). */
static void send_to_http1(struct http2_stream *s)
{
    s->answered = s->reset = true;
    (void)nghttp2_submit_rst_stream(s->owner->session, NGHTTP2_FLAG_NONE, s->id,
                                    NGHTTP2_HTTP_1_1_REQUIRED);
    http2_kick(s->owner);
}

static void say_continue(struct http2_stream *s)
{
    static const nghttp2_nv go_on = {.name = (uint8_t *)(uintptr_t) ":status",
                                     .value = (uint8_t *)(uintptr_t) "100",
                                     .namelen = 7,
                                     .valuelen = 3};
    if (!s->request.request.wants_continue || s->complete)
        return;
    s->request.request.wants_continue = false;
    (void)nghttp2_submit_headers(s->owner->session, NGHTTP2_FLAG_NONE, s->id, NULL, &go_on, 1,
                                 NULL);
}

/* Its window opens as far as an upload was handed on. */
static void hand_on(struct http2_stream *s)
{
    struct cl_buf *body = &s->request.body;
    if (exchange_wants_body(&s->exchange))
        say_continue(s);
    size_t taken = exchange_feed(&s->exchange, body->data, body->len, s->complete);
    cl_buf_consume(body, taken);
    s->owner->body_bytes -= taken;
    s->fed_ns = cl_now_ns();
    (void)nghttp2_session_consume_stream(s->owner->session, s->id, taken);
    http2_kick(s->owner);
}

static void feed(struct exchange *x)
{
    hand_on(of(x));
}

static void begin_upload(struct http2_stream *s)
{
    s->streams = true;
    exchange_take(&s->exchange, &s->request.request);
    hand_on(s);
}

static void begin_gathering(struct http2_stream *s)
{
    int status = http2_request_gather(&s->request);
    if (status)
        refuse_malformed(s, status);
    else
        say_continue(s);
}

void http2_stream_head(struct http2_stream *s, bool end)
{
    int status = http2_request_head_done(&s->request);
    if (end)
        s->request.request.wants_continue = false;
    if (status)
        refuse_malformed(s, status);
    else if (endpoint_is_port(&s->owner->conn->server->conf.endpoint, &s->request.request))
        send_to_http1(s);
    else if (exchange_streams(&s->exchange, &s->request.request))
        begin_upload(s);
    else
        begin_gathering(s);
}

/* The connection's window is no stream's: one that waits must not stop the others. */
void http2_stream_body(struct http2_stream *s, const uint8_t *data, size_t n)
{
    struct http2 *h = s->owner;
    if (s->answered)
        return;
    if (!s->streams && n + h->body_bytes > HTTP2_BODIES_MAX) {
        refuse(s, 503, "too many bytes at once: retry later");
        return;
    }
    size_t before = s->request.body.len;
    int status = http2_request_body(&s->request, data, n);
    h->body_bytes += s->request.body.len - before;
    if (status)
        refuse_malformed(s, status);
    else if (s->streams)
        hand_on(s);
    else
        (void)nghttp2_session_consume_stream(h->session, s->id, n);
}

void http2_stream_complete(struct http2_stream *s)
{
    s->complete = true;
    if (s->answered)
        return;
    if (s->request.status) /* its trailer was too long */
        refuse_malformed(s, s->request.status);
    else if (s->streams)
        hand_on(s);
    else
        exchange_take(&s->exchange, http2_request_done(&s->request));
}

/* --- time ---------------------------------------------------------------------------------------
 */

/* An upload may take its time while it goes on; what is not wanted need not come. */
static bool is_late(struct http2_stream *s, uint64_t now_ns)
{
    if (!s->streams)
        return now_ns > s->begun_ns + HTTP_REQUEST_S * CL_NS_PER_S;
    if (!exchange_wants_body(&s->exchange))
        s->fed_ns = now_ns;
    return now_ns > s->fed_ns + HTTP_UPLOAD_IDLE_S * CL_NS_PER_S;
}

void http2_stream_tick(struct http2_stream *s, uint64_t now_ns)
{
    bool slow_writer = !s->complete && is_late(s, now_ns);
    bool waits = evbuffer_get_length(s->out) > 0 || s->ended;
    bool slow_reader = waits && now_ns > s->moved_ns + HTTP_WRITE_S * CL_NS_PER_S;
    if (s->reset || (!slow_writer && !slow_reader))
        return;
    s->reset = true;
    (void)nghttp2_submit_rst_stream(s->owner->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
    http2_kick(s->owner);
}

/* --- life ---------------------------------------------------------------------------------------
 */

static void destroy(void *obj)
{
    struct http2_stream *s = obj;
    exchange_fini(&s->exchange);
    http2_request_fini(&s->request);
    if (s->out)
        evbuffer_free(s->out);
    cl_free(s);
}

struct http2_stream *http2_stream_new(struct http2 *h, int32_t id)
{
    struct http2_stream *s = cl_zalloc(sizeof *s);
    if (!s)
        return NULL;
    s->owner = h;
    s->id = id;
    s->begun_ns = s->moved_ns = cl_now_ns();
    s->out = evbuffer_new();
    http2_request_init(&s->request);
    if (exchange_init(&s->exchange, h->conn->server, &wire, NULL) < 0 || !s->out) {
        destroy(s);
        return NULL;
    }
    cl_list_push(&h->streams, &s->link);
    h->n_streams++;
    h->had_streams = true;
    return s;
}

void http2_stream_close(struct http2_stream *s)
{
    struct http2 *h = s->owner;
    cl_list_unlink(&s->link);
    if (--h->n_streams == 0)
        h->idle_ns = cl_now_ns();
    h->body_bytes -= s->request.body.len;
    h->out_bytes -= evbuffer_get_length(s->out);
    exchange_leave(&s->exchange);
    cl_loop_bury(h->conn->server->conf.loop, &s->grave, destroy, s);
}
