/* gateway/http1_io.c - HTTP/1.1 on a connection; see gateway/http_priv.h.
 *
 *   READING --request--> BUSY --answer--> READING (or CLOSING, without keep-alive)
 *      \--head of an upload--> UPLOAD --answer--> likewise
 *   CLOSING --all is written--> closed, or LINGERING when there is more of the request
 *
 * The body of an upload is read as far as its call wants it; the rest waits in the socket.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <string.h>

#include "base/mem.h"
#include "gateway/http_priv.h"
#include "gateway/port_host.h"
#include "web/page.h"

enum http1_state { HTTP1_READING, HTTP1_UPLOAD, HTTP1_BUSY, HTTP1_CLOSING, HTTP1_LINGERING };

struct http1 {
    struct http_conn *conn;     /* borrowed: its owner */
    struct http_parser *parser; /* owned */
    struct exchange exchange;
    enum http1_state state;
    size_t sniffed; /* of the bytes that wait: no Host in them */
    bool begun;     /* bytes of the next request are there */
    bool in_head;   /* its head was the last step: the parser goes on without bytes */
    bool complete;  /* all of it was read */
    bool owes_continue;
    bool keep_alive;
    bool eof;
};

static struct http1 *of(struct exchange *x)
{
    return CL_CONTAINER(x, struct http1, exchange);
}

/* A close with bytes unread would be a reset, which can overtake the answer (RFC 9112 section 9.6).
 */
static void flushed(struct http1 *h)
{
    if (h->complete || h->eof) {
        http_conn_close(h->conn);
        return;
    }
    h->state = HTTP1_LINGERING;
    http_conn_fin(h->conn);
    cl_timer_start(&h->conn->timer, HTTP_LINGER_S * CL_NS_PER_S);
}

/* Close once what is queued has been written; the write timeout bounds that. */
static void close_when_written(struct http1 *h)
{
    h->state = HTTP1_CLOSING;
    cl_timer_stop(&h->conn->timer);
    if (h->complete)
        (void)bufferevent_disable(h->conn->bev, EV_READ);
    if (evbuffer_get_length(http_conn_out(h->conn)) == 0)
        flushed(h);
}

/* The next request. */
static void finished(struct http1 *h)
{
    if (!h->keep_alive || h->conn->server->draining) {
        close_when_written(h);
        return;
    }
    http_parser_reset(h->parser);
    h->state = HTTP1_READING;
    h->begun = h->complete = false;
    h->sniffed = 0;
    cl_timer_start(&h->conn->timer, HTTP_IDLE_S * CL_NS_PER_S);
    /* what came meanwhile */
    bufferevent_trigger(h->conn->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
}

/* --- writing ------------------------------------------------------------------------------------
 */

static void head(struct http1 *h, const struct answer *a)
{
    struct evbuffer *out = http_conn_out(h->conn);
    (void)evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\n", a->status,
                              http_reason(a->status));
    if (a->type)
        (void)evbuffer_add_printf(out, "Content-Type: %s\r\n", a->type);
    if (a->session)
        (void)evbuffer_add_printf(out, "Mcp-Session-Id: %s\r\n", a->session);
    if (a->next_token)
        (void)evbuffer_add_printf(out, "X-Next-Token: %s\r\n", a->next_token);
    if (a->authenticate)
        (void)evbuffer_add_printf(out, "WWW-Authenticate: %s\r\n", a->authenticate);
    if (a->is_page)
        (void)evbuffer_add_printf(out, "Content-Security-Policy: " WEB_PAGE_POLICY "\r\n"
                                       "X-Content-Type-Options: nosniff\r\n"
                                       "Referrer-Policy: no-referrer\r\n"
                                       "Cross-Origin-Opener-Policy: same-origin\r\n");
    if (a->status == 405)
        (void)evbuffer_add_printf(out, "Allow: %s\r\n", a->is_page ? "GET" : "POST, DELETE");
    if (a->origin)
        (void)evbuffer_add_printf(out,
                                  "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
                                  "Access-Control-Expose-Headers: " HTTP_MAY_READ "\r\n",
                                  a->origin);
    if (a->is_preflight)
        (void)evbuffer_add_printf(out, "Access-Control-Allow-Methods: " HTTP_MAY_CALL "\r\n"
                                       "Access-Control-Max-Age: " HTTP_MAY_FOR_S "\r\n");
    if (a->may_send)
        (void)evbuffer_add_printf(out, "Access-Control-Allow-Headers: %s\r\n", a->may_send);
    if (!h->keep_alive)
        (void)evbuffer_add_printf(out, "Connection: close\r\n");
}

static void say_answer(struct exchange *x, const struct answer *a)
{
    struct http1 *h = of(x);
    struct evbuffer *out = http_conn_out(h->conn);
    head(h, a);
    if (a->status != 204) /* RFC 9110 section 8.6 */
        (void)evbuffer_add_printf(out, "Content-Length: %zu\r\n", a->n);
    (void)evbuffer_add_printf(out, "\r\n");
    (void)evbuffer_add(out, a->data, a->n);
    finished(h);
}

static void say_stream(struct exchange *x, const char *type)
{
    head(of(x), &(struct answer){.status = 200, .type = type, .origin = x->origin});
    (void)evbuffer_add_printf(http_conn_out(of(x)->conn),
                              "X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n");
}

/* One chunk. */
static void say_pieces(struct exchange *x, struct iovec *pieces, int n)
{
    struct evbuffer *out = http_conn_out(of(x)->conn);
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += pieces[i].iov_len;
    (void)evbuffer_add_printf(out, "%zx\r\n", sum);
    (void)evbuffer_add_iovec(out, pieces, n);
    (void)evbuffer_add_printf(out, "\r\n");
}

static void say_end(struct exchange *x)
{
    (void)evbuffer_add_printf(http_conn_out(of(x)->conn), "0\r\n\r\n");
    finished(of(x));
}

/* Without the last chunk: RFC 9112 section 8. */
static void say_cut(struct exchange *x)
{
    close_when_written(of(x));
}

static size_t waiting(struct exchange *x)
{
    return evbuffer_get_length(http_conn_out(of(x)->conn));
}

static void feed(struct exchange *x);

static const struct exchange_wire wire = {.answer = say_answer,
                                          .begin_stream = say_stream,
                                          .send = say_pieces,
                                          .end_stream = say_end,
                                          .cut_stream = say_cut,
                                          .waiting = waiting,
                                          .feed = feed};

/* --- reading ------------------------------------------------------------------------------------
 */

static void say_continue(struct http1 *h)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    (void)bufferevent_write(h->conn->bev, go_on, sizeof go_on - 1);
}

static void take_head(struct http1 *h)
{
    const struct http_request *r = http_parser_request(h->parser);
    if (!exchange_streams(&h->exchange, r))
        return;
    http_parser_stream(h->parser);
    h->state = HTTP1_UPLOAD;
    h->keep_alive = false; /* until all of it was read */
    h->owes_continue = r->wants_continue;
    cl_timer_stop(&h->conn->timer);
    exchange_take(&h->exchange, r);
}

static void take_end(struct http1 *h)
{
    const struct http_request *r = http_parser_request(h->parser);
    h->complete = true;
    h->keep_alive = r->keep_alive && !r->is_1_0;
    if (h->state == HTTP1_UPLOAD)
        return;
    h->state = HTTP1_BUSY;
    cl_timer_stop(&h->conn->timer);
    exchange_take(&h->exchange, r);
}

static void refuse(struct http1 *h)
{
    exchange_leave(&h->exchange); /* of an upload */
    h->keep_alive = false;
    exchange_refuse(&h->exchange, http_parser_status(h->parser),
                    "the HTTP request is malformed or too large");
}

/* One step of the parser, with what there is. */
static void take_step(struct http1 *h)
{
    struct evbuffer *in = http_conn_in(h->conn);
    size_t used, n = evbuffer_get_contiguous_space(in);
    enum http_step step =
        http_parser_feed(h->parser, n ? evbuffer_pullup(in, (ev_ssize_t)n) : NULL, n, &used);
    (void)evbuffer_drain(in, used);
    h->in_head = step == STEP_HEAD || step == STEP_CONTINUE;
    switch (step) {
    case STEP_MORE:
        if (h->state == HTTP1_READING && !cl_timer_is_armed(&h->conn->timer))
            cl_timer_start(&h->conn->timer, HTTP_REQUEST_S * CL_NS_PER_S);
        break;
    case STEP_HEAD:
        take_head(h);
        break;
    case STEP_CONTINUE:
        say_continue(h);
        break;
    case STEP_DONE:
        take_end(h);
        break;
    case STEP_BAD:
        refuse(h);
        break;
    }
}

/* What was read of an upload's body; the client is late only while more is wanted. */
static void hand_on(struct http1 *h)
{
    struct cl_buf *body = http_parser_body(h->parser);
    size_t taken = exchange_feed(&h->exchange, body->data, body->len, h->complete);
    if (h->state != HTTP1_UPLOAD)
        return;
    cl_buf_consume(body, taken);
    bool wants = exchange_wants_body(&h->exchange);
    if (wants && h->owes_continue)
        say_continue(h);
    h->owes_continue = h->owes_continue && !wants;
    if (wants)
        cl_timer_start(&h->conn->timer, HTTP_UPLOAD_IDLE_S * CL_NS_PER_S);
    else
        cl_timer_stop(&h->conn->timer);
}

/* Is the next request for the parser?  Else for a port of a sandbox, which has one of its own, or
 * more bytes must say so.  A head that is longer than allowed is the parser's, to refuse it. */
static enum port_sniff sniff(struct http1 *h)
{
    struct evbuffer *in = http_conn_in(h->conn);
    size_t n = CL_MIN(evbuffer_get_length(in), (size_t)HTTP_HEAD_MAX);
    const char *domain = h->conn->server->conf.endpoint.ports;
    if (!domain || http_parser_is_busy(h->parser))
        return PORT_SNIFF_NO;
    enum port_sniff is = port_sniff(evbuffer_pullup(in, (ev_ssize_t)n), n, domain, &h->sniffed);
    return is == PORT_SNIFF_MORE && n == HTTP_HEAD_MAX ? PORT_SNIFF_NO : is;
}

/* Has the parser something to do? */
static bool goes_on(const struct http1 *h)
{
    bool reads = h->state == HTTP1_READING ||
                 (h->state == HTTP1_UPLOAD && !h->complete && exchange_wants_body(&h->exchange));
    return reads && (h->in_head || evbuffer_get_length(http_conn_in(h->conn)) > 0);
}

static void take_bytes(struct http1 *h)
{
    if (h->state == HTTP1_UPLOAD)
        hand_on(h);
    while (goes_on(h)) {
        enum port_sniff is = sniff(h);
        if (is == PORT_SNIFF_YES)
            http_conn_pass(h->conn, &port_engine);
        if (is != PORT_SNIFF_NO)
            return;
        take_step(h);
        if (h->state == HTTP1_UPLOAD)
            hand_on(h);
    }
}

static void feed(struct exchange *x)
{
    take_bytes(of(x));
}

static void readable(struct http_conn *k)
{
    struct http1 *h = k->state;
    if (h->state == HTTP1_CLOSING || h->state == HTTP1_LINGERING)
        (void)evbuffer_drain(http_conn_in(k), evbuffer_get_length(http_conn_in(k)));
    if (h->state == HTTP1_READING && !h->begun && evbuffer_get_length(http_conn_in(k)) > 0) {
        h->begun = true;
        cl_timer_start(&k->timer, HTTP_REQUEST_S * CL_NS_PER_S);
    }
    take_bytes(h);
}

static void written(struct http_conn *k)
{
    struct http1 *h = k->state; /* a deferred call may be older than what was written since */
    if (h->state == HTTP1_CLOSING && evbuffer_get_length(http_conn_out(k)) == 0)
        flushed(h);
}

/* Who has sent all may still wait for the answer, once there is one. */
static bool on_eof(struct http_conn *k)
{
    struct http1 *h = k->state;
    h->eof = true;
    return h->state == HTTP1_CLOSING;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static void destroy(struct http_conn *k)
{
    struct http1 *h = k->state;
    exchange_fini(&h->exchange);
    http_parser_free(h->parser);
    cl_free(h);
}

static int start(struct http_conn *k, struct cl_err *err)
{
    struct http1 *h = cl_zalloc(sizeof *h);
    if (!h)
        return cl_fail(err, CL_E_NOMEM, 0, "connection");
    h->conn = k;
    k->state = h;
    if (http_parser_new(&h->parser, err) < 0)
        return -1;
    return exchange_init(&h->exchange, k->server, &wire, err);
}

static void leave(struct http_conn *k)
{
    struct http1 *h = k->state;
    exchange_leave(&h->exchange);
}

static void drain(struct http_conn *k)
{
    struct http1 *h = k->state;
    if (h->state == HTTP1_READING || h->state == HTTP1_LINGERING)
        http_conn_close(k);
}

const struct engine http1_engine = {.open = start,
                                    .readable = readable,
                                    .written = written,
                                    .timer = http_conn_close,
                                    .drain = drain,
                                    .eof = on_eof,
                                    .leave = leave,
                                    .free = destroy};
