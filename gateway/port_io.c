/* gateway/port_io.c - a connection whose request is for a port of a sandbox; see
 * gateway/http_priv.h and docs/adr/0021-ports-through-the-agent.md.
 *
 *   HEAD --credential--> WAIT --head of the answer--> ANSWER --its end--> FLUSH --FIN--> LINGER
 *     |                    |  \--101--> TUNNEL --both ends---------------->|
 *     +-- refused, 302 ----+-- error, before the answer began ------------>|
 *
 * One request, one call of PortService.Connect, one connection: whatever the client sends behind
 * its request, and the guest behind its answer, is dropped.  An error behind the head of an answer
 * cuts the connection, so that nobody takes a part for the whole.  Bytes are held up to
 * PORT_OUT_HIGH for the client, RPC_OUT_HIGH for the guest, and what their windows allow; then the
 * other side is not read.  A client that half-closes before an upgrade has left, as for other
 * requests.
 */
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/http_priv.h"
#include "gateway/port_access.h"
#include "gateway/port_dial.h"
#include "gateway/port_head.h"

#define DRAIN_IDLE_NS CL_NS_PER_S /* a tunnel that is this quiet is idle */

enum port_state { AT_HEAD, AT_WAIT, AT_ANSWER, AT_TUNNEL, AT_FLUSH, AT_LINGER };

struct port {
    struct http_conn *conn;                /* borrowed: its owner */
    struct port_message *request, *answer; /* owned */
    struct port_dial *dial;                /* NULL = none (any more) */
    struct port_host host;
    enum port_state state;
    uint64_t moved_ns;              /* when a byte last moved, in either direction */
    bool is_head, upgrades, is_1_0; /* the request */
    bool request_done;              /* all of it is sent to the guest */
    bool client_eof, guest_eof;     /* of a tunnel */
    bool eof_sent, fin_sent;
    bool paused; /* the guest is not read */
};

static bool is_over(const struct port *p)
{
    return p->conn->gone || p->state == AT_FLUSH || p->state == AT_LINGER;
}

static struct evbuffer *out_of(const struct port *p)
{
    return http_conn_out(p->conn);
}

static void count(const struct port *p, int status)
{
    static const char *const classes[] = {"1xx", "2xx", "3xx", "4xx", "5xx"};
    metrics_add(p->conn->server->conf.metrics, METRIC_PORT_REQUESTS, classes[status / 100 - 1],
                NULL, 1);
}

/* --- ends ---------------------------------------------------------------------------------------
 */

static void forget_guest(struct port *p)
{
    p->dial = NULL;
    p->conn->server->n_ports--;
}

static void leave_guest(struct port *p)
{
    if (!p->dial)
        return;
    port_dial_leave(p->dial);
    forget_guest(p);
}

/* Is an end of this connection from now on a reset?  It is while an answer is on its way, whoever
 * ends it and why: the client must see that something is missing. */
static void be_abrupt(const struct port *p, bool abrupt)
{
    struct linger how = {.l_onoff = abrupt, .l_linger = 0};
    int fd = bufferevent_getfd(p->conn->bev);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &how, sizeof how);
}

/* Our last byte has left.  A close with bytes unread would be a reset, which can overtake the
 * answer (RFC 9112 section 9.6). */
static void flushed(struct port *p)
{
    p->state = AT_LINGER;
    be_abrupt(p, false);
    if (!p->fin_sent)
        http_conn_fin(p->conn);
    p->fin_sent = true;
    cl_timer_start(&p->conn->timer, HTTP_LINGER_S * CL_NS_PER_S);
    if (p->client_eof)
        http_conn_close(p->conn);
}

static void discard_input(struct port *p)
{
    struct evbuffer *in = http_conn_in(p->conn);
    (void)evbuffer_drain(in, evbuffer_get_length(in));
}

/* All that is to be said is written; the write timeout bounds how long it takes. */
static void finish(struct port *p)
{
    leave_guest(p);
    p->state = AT_FLUSH;
    cl_timer_stop(&p->conn->timer);
    discard_input(p);
    if (evbuffer_get_length(out_of(p)) == 0)
        flushed(p);
}

static void cut(struct port *p)
{
    be_abrupt(p, true);
    http_conn_close(p->conn);
}

/* --- our own answers ----------------------------------------------------------------------------
 */

static void say_head(struct port *p, int status)
{
    count(p, status);
    (void)evbuffer_add_printf(out_of(p),
                              "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\n"
                              "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n",
                              status, http_reason(status));
}

/* What a scheduler says may hold what a guest said. */
static void make_plain(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 && *text != '\n')
            *text = ' ';
    }
}

static void refuse_with(struct port *p, int status, uint64_t retry_s, const char *why)
{
    char text[2 * CL_ERR_TEXT];
    int n = snprintf(text, sizeof text, "%s\n", why);
    make_plain(text);
    say_head(p, status);
    if (status == 401)
        (void)evbuffer_add_printf(out_of(p), "WWW-Authenticate: Bearer realm=\"cloche\"\r\n");
    if (retry_s > 0)
        (void)evbuffer_add_printf(out_of(p), "Retry-After: %llu\r\n", (unsigned long long)retry_s);
    (void)evbuffer_add_printf(
        out_of(p), "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n", n);
    if (!p->is_head)
        (void)evbuffer_add(out_of(p), text, (size_t)n);
    finish(p);
}

static void refuse(struct port *p, int status, const char *why)
{
    refuse_with(p, status, status == 503 ? 1 : 0, why);
}

/* The scheduler's error as an answer of HTTP, by the table in base/errors.def but where a proxy has
 * a word of its own for it. */
static void refuse_error(struct port *p, const struct cl_err *err)
{
    char why[2 * CL_ERR_TEXT - 2];
    const struct cl_err_info *info = cl_err_info(err->code);
    uint64_t retry_s = info->retry ? CL_MAX((err->retry_ms + 999) / 1000, UINT64_C(1)) : 0;
    int status = info->http;
    if (err->code == CL_E_STATE) {
        (void)snprintf(why, sizeof why,
                       "nobody listens on port %u in the sandbox (%s)\nremedy: start a server "
                       "there; `ss -ltn` in the sandbox shows who listens",
                       p->host.port, err->text);
        refuse(p, 502, why);
        return;
    }
    if (err->code == CL_E_TOOBIG || err->code == CL_E_CANCELLED) {
        status = err->code == CL_E_TOOBIG ? 429 : 503;
        retry_s = 1;
    }
    bool is_link = err->code == CL_E_UNAUTH || err->code == CL_E_DENIED;
    (void)snprintf(why, sizeof why, "%s\nremedy: %s", err->text,
                   is_link ? "`cloche sandbox url SANDBOX PORT` makes a new link" : info->remedy);
    refuse_with(p, status, retry_s, why);
}

/* The same address without our parameter.  "//a" or "/\a" alone would be another host's. */
static void redirect(struct port *p, const char *link)
{
    bool tls = p->conn->server->conf.tls != NULL;
    struct cl_buf target;
    cl_buf_init(&target, PORT_REQUEST_HEAD);
    if (port_head_target(p->request, &target, NULL) < 0) {
        cl_buf_fini(&target);
        refuse(p, 503, "out of memory");
        return;
    }
    const char *to = (const char *)target.data;
    say_head(p, 302);
    (void)evbuffer_add_printf(
        out_of(p),
        "Location: %s%s\r\nSet-Cookie: %s=%s; HttpOnly; SameSite=Lax; Path=/%s"
        "\r\nContent-Length: 0\r\n\r\n",
        to[1] == '/' || to[1] == '\\' ? "/." : "", to, tls ? PORT_COOKIE_TLS : PORT_COOKIE, link,
        tls ? "; Secure" : "");
    cl_buf_fini(&target);
    finish(p);
}

/* --- the guest's answer -------------------------------------------------------------------------
 */

/* Stop reading the guest while the client does not read us. */
static void throttle(struct port *p)
{
    if (!p->dial || p->paused || evbuffer_get_length(out_of(p)) < PORT_OUT_HIGH)
        return;
    p->paused = true;
    port_dial_pause(p->dial, true);
}

static int say_answer_head(struct port *p)
{
    struct cl_buf head;
    cl_buf_init(&head, PORT_HEAD_OUT);
    int rc = port_head_answer(p->answer, p->host.secret[0], &head, NULL);
    if (rc == 0)
        rc = evbuffer_add(out_of(p), head.data, head.len);
    cl_buf_fini(&head);
    return rc;
}

/* One of 1xx: another head follows.  A client of HTTP/1.0 does not know them (RFC 9110 section
 * 15.2). */
static void take_interim(struct port *p)
{
    int rc = p->is_1_0 ? 0 : say_answer_head(p);
    port_message_free(p->answer);
    p->answer = NULL;
    if (rc < 0 || port_message_new(PORT_ANSWER, &p->answer, NULL) < 0) {
        refuse(p, 503, "out of memory");
        return;
    }
    if (p->is_head)
        port_message_expect_none(p->answer);
}

static void pump(struct port *p);

static void take_answer_head(struct port *p)
{
    int code = port_message_code(p->answer);
    bool is_tunnel = code == 101;
    if (code < 200 && !is_tunnel) {
        take_interim(p);
        return;
    }
    if (is_tunnel && (!p->upgrades || port_message_count(p->answer, "upgrade") != 1)) {
        refuse(p, 502, "the server in the sandbox changed the protocol without being asked to");
        return;
    }
    if (say_answer_head(p) < 0) {
        refuse(p, 503, "out of memory");
        return;
    }
    count(p, code);
    be_abrupt(p, true);
    p->state = is_tunnel ? AT_TUNNEL : AT_ANSWER;
}

/* Bytes must not be missing in the middle. */
static void pass_on(struct port *p, const uint8_t *data, size_t n)
{
    if (n > 0 && evbuffer_add(out_of(p), data, n) < 0)
        cut(p);
}

/* One step: how many of the bytes it took. */
static size_t take_answer(struct port *p, const uint8_t *data, size_t n)
{
    size_t used;
    bool in_body = p->state == AT_ANSWER;
    enum port_step step = port_message_feed(p->answer, data, n, &used);
    if (in_body && step != PORT_BAD)
        pass_on(p, data, used);
    if (is_over(p))
        return used;
    switch (step) {
    case PORT_MORE:
        break;
    case PORT_HEAD:
        take_answer_head(p);
        if (p->state == AT_ANSWER) /* a body of no bytes ends without one */
            (void)take_answer(p, data, 0);
        break;
    case PORT_DONE:
        finish(p);
        break;
    case PORT_BAD:
        if (in_body)
            cut(p);
        else
            refuse(p, 502, "the server in the sandbox does not answer in HTTP/1.1");
        break;
    }
    return used;
}

static void on_data(void *arg, const uint8_t *data, size_t n)
{
    struct port *p = arg;
    p->moved_ns = cl_now_ns();
    for (size_t used; n > 0 && !is_over(p); data += used, n -= used) {
        used = n;
        if (p->state == AT_TUNNEL)
            pass_on(p, data, n);
        else
            used = take_answer(p, data, n);
    }
    if (is_over(p))
        return;
    throttle(p);
    pump(p); /* a tunnel may have begun */
}

/* The other half goes on. */
static void tell_client_eof(struct port *p)
{
    if (!p->guest_eof || p->fin_sent || evbuffer_get_length(out_of(p)) > 0)
        return;
    p->fin_sent = true;
    http_conn_fin(p->conn);
}

static void refuse_silence(struct port *p)
{
    refuse(p, 502, "the server in the sandbox ended the connection without an answer");
}

static void on_guest_eof(void *arg)
{
    struct port *p = arg;
    p->guest_eof = true;
    if (p->state == AT_TUNNEL)
        tell_client_eof(p);
    else if (p->state == AT_WAIT)
        refuse_silence(p);
    else if (port_message_eof(p->answer) == PORT_DONE)
        finish(p);
    else
        cut(p);
}

/* A tunnel ends in order when both have said so. */
static void on_dial_end(void *arg, const struct cl_err *err)
{
    struct port *p = arg;
    bool was_connected = port_dial_is_connected(p->dial);
    forget_guest(p); /* it goes by itself now */
    if (p->state == AT_WAIT && err && !was_connected)
        refuse_error(p, err);
    else if (p->state == AT_WAIT && err)
        refuse_silence(p);
    else if (!err && p->state == AT_TUNNEL && p->guest_eof)
        finish(p);
    else if (!err && p->state != AT_TUNNEL)
        on_guest_eof(p);
    else
        cut(p);
}

/* --- the client's bytes -------------------------------------------------------------------------
 */

static int send_on(struct port *p, size_t n)
{
    struct evbuffer *in = http_conn_in(p->conn);
    int rc = n ? port_dial_send(p->dial, evbuffer_pullup(in, (ev_ssize_t)n), n, NULL) : 0;
    (void)evbuffer_drain(in, n);
    return rc;
}

/* The rest of the request, as far as the guest takes it. */
static void pump_request(struct port *p)
{
    struct evbuffer *in = http_conn_in(p->conn);
    size_t n, used;
    do {
        if (p->request_done || port_dial_is_full(p->dial))
            return;
        n = evbuffer_get_contiguous_space(in);
        enum port_step step =
            port_message_feed(p->request, n ? evbuffer_pullup(in, (ev_ssize_t)n) : NULL, n, &used);
        if (step == PORT_BAD && p->state == AT_WAIT) {
            refuse(p, port_message_status(p->request), "the body of the request is malformed");
            return;
        }
        if (step == PORT_BAD || send_on(p, used) < 0) {
            cut(p);
            return;
        }
        p->request_done = step == PORT_DONE;
    } while (n > 0);
}

static void pump_tunnel(struct port *p)
{
    struct evbuffer *in = http_conn_in(p->conn);
    size_t n;
    while (!port_dial_is_full(p->dial) && (n = evbuffer_get_contiguous_space(in)) > 0) {
        if (send_on(p, n) < 0) {
            cut(p);
            return;
        }
    }
    if (!p->client_eof || p->eof_sent || evbuffer_get_length(in) > 0)
        return;
    p->eof_sent = true;
    if (port_dial_send_eof(p->dial, NULL) < 0)
        cut(p);
}

static void pump(struct port *p)
{
    switch (p->state) {
    case AT_WAIT:
    case AT_ANSWER:
        pump_request(p);
        break;
    case AT_TUNNEL:
        pump_tunnel(p);
        break;
    case AT_FLUSH:
    case AT_LINGER:
        discard_input(p);
        break;
    case AT_HEAD:
        break;
    }
}

static void on_guest_drain(void *arg)
{
    struct port *p = arg;
    p->moved_ns = cl_now_ns();
    pump(p);
}

/* --- the request's head -------------------------------------------------------------------------
 */

static const struct port_dial_events events = {on_data, on_guest_eof, on_guest_drain, on_dial_end};

static void address_of(const struct port *p, char text[static INET6_ADDRSTRLEN])
{
    struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof ss;
    const void *address = NULL;
    (void)getpeername(bufferevent_getfd(p->conn->bev), (struct sockaddr *)&ss, &len);
    if (ss.ss_family == AF_INET)
        address = &((const struct sockaddr_in *)(const void *)&ss)->sin_addr;
    if (ss.ss_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)&ss)->sin6_addr;
    if (!address || !inet_ntop(ss.ss_family, address, text, INET6_ADDRSTRLEN))
        (void)snprintf(text, INET6_ADDRSTRLEN, "unknown"); /* RFC 7239 section 6.2 */
}

static int dial(struct port *p, const char *credential, struct cl_err *err)
{
    char peer[INET6_ADDRSTRLEN];
    struct http_server *s = p->conn->server;
    struct port_dial_spec spec = {.pool = s->conf.ports,
                                  .host = &p->host,
                                  .credential = credential,
                                  .events = &events,
                                  .arg = p};
    struct cl_buf head;
    address_of(p, peer);
    if (s->n_ports >= PORT_CONNECTIONS_MAX)
        return cl_fail(err, CL_E_QUEUE, 0, "more than %d connections into sandboxes",
                       PORT_CONNECTIONS_MAX);
    cl_buf_init(&head, PORT_HEAD_OUT);
    int rc =
        port_head_request(p->request, &(struct port_via){peer, s->conf.tls != NULL}, &head, err);
    if (rc == 0)
        rc = port_dial_new(&spec, head.data, head.len, &p->dial, err);
    cl_buf_fini(&head);
    s->n_ports += rc == 0;
    return rc;
}

/* The head is checked and leads to p->host. */
static void go(struct port *p, const struct port_access *access)
{
    struct cl_err err = {0};
    if (access->status == 302) {
        redirect(p, access->link);
    } else if (access->status) {
        refuse(p, access->status, access->text);
    } else if (dial(p, access->credential, &err) < 0) {
        refuse_error(p, &err);
    } else {
        p->state = AT_WAIT;
        p->moved_ns = cl_now_ns();
        cl_timer_start(&p->conn->timer, HTTP_IDLE_S * CL_NS_PER_S);
    }
}

static void take_request_head(struct port *p)
{
    const struct http_conf *conf = &p->conn->server->conf;
    const char *host = port_message_value(p->request, "host");
    struct port_access access;
    p->is_head = strcmp(port_message_method(p->request), "HEAD") == 0;
    p->is_1_0 = port_message_is_1_0(p->request);
    p->upgrades = port_head_upgrades(p->request);
    if (p->is_head)
        port_message_expect_none(p->answer);
    if (!port_host_parse(host, strlen(host), conf->endpoint.ports, &p->host)) {
        refuse(p, 400, "the HTTP request is malformed");
        return;
    }
    port_access_find(&(struct port_asked){.request = p->request,
                                          .host = &p->host,
                                          .domain = conf->endpoint.ports,
                                          .secret = conf->secret,
                                          .tls = conf->tls != NULL},
                     &access);
    go(p, &access);
    OPENSSL_cleanse(&access, sizeof access);
}

static void take_head(struct port *p)
{
    struct evbuffer *in = http_conn_in(p->conn);
    size_t n, used;
    while (p->state == AT_HEAD && (n = evbuffer_get_contiguous_space(in)) > 0) {
        enum port_step step =
            port_message_feed(p->request, evbuffer_pullup(in, (ev_ssize_t)n), n, &used);
        (void)evbuffer_drain(in, used);
        if (step == PORT_HEAD)
            take_request_head(p);
        else if (step == PORT_BAD)
            refuse(p, port_message_status(p->request),
                   "the HTTP request is malformed, can be read in two ways, or is too large");
    }
}

/* --- the engine ---------------------------------------------------------------------------------
 */

static void readable(struct http_conn *k)
{
    struct port *p = k->state;
    p->moved_ns = cl_now_ns();
    if (p->state == AT_HEAD)
        take_head(p);
    if (!k->gone)
        pump(p);
}

static void written(struct http_conn *k)
{
    struct port *p = k->state; /* a deferred call may be older than what was written since */
    size_t waits = evbuffer_get_length(out_of(p));
    p->moved_ns = cl_now_ns();
    if (p->state == AT_FLUSH && waits == 0)
        flushed(p);
    else if (p->state == AT_TUNNEL)
        tell_client_eof(p);
    if (p->dial && p->paused && waits <= PORT_OUT_LOW) {
        p->paused = false;
        port_dial_pause(p->dial, false);
    }
}

static void on_idle(struct port *p, uint64_t limit_ns)
{
    uint64_t quiet = cl_now_ns() - p->moved_ns;
    if (quiet < limit_ns)
        cl_timer_start(&p->conn->timer, limit_ns - quiet);
    else if (p->state == AT_WAIT)
        refuse(p, 504, "the server in the sandbox does not answer");
    else
        cut(p);
}

static void on_timer(struct http_conn *k)
{
    struct port *p = k->state;
    bool is_whole = p->state == AT_TUNNEL && !p->client_eof && !p->guest_eof;
    if (p->state == AT_HEAD || p->state == AT_LINGER)
        http_conn_close(k);
    else if (p->state != AT_FLUSH)
        on_idle(p, (is_whole ? PORT_TUNNEL_S : HTTP_IDLE_S) * CL_NS_PER_S);
}

/* Half of a TLS connection cannot be closed so that the other one goes on. */
static bool on_client_eof(struct http_conn *k)
{
    struct port *p = k->state;
    if (p->state != AT_TUNNEL || k->server->conf.tls)
        return false;
    p->client_eof = true;
    pump(p);
    return true;
}

static void drain(struct http_conn *k)
{
    struct port *p = k->state;
    bool is_quiet = cl_now_ns() - p->moved_ns >= DRAIN_IDLE_NS;
    if (p->state == AT_HEAD || p->state == AT_LINGER)
        http_conn_close(k);
    else if (p->state == AT_TUNNEL && is_quiet)
        finish(p);
}

static void leave(struct http_conn *k)
{
    leave_guest(k->state);
}

static void destroy(struct http_conn *k)
{
    struct port *p = k->state;
    port_message_free(p->request);
    port_message_free(p->answer);
    cl_free(p);
}

static int start(struct http_conn *k, struct cl_err *err)
{
    struct port *p = cl_zalloc(sizeof *p);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "connection");
    k->state = p;
    p->conn = k;
    p->moved_ns = cl_now_ns();
    bufferevent_setwatermark(k->bev, EV_WRITE, PORT_OUT_LOW, 0);
    return port_message_new(PORT_REQUEST, &p->request, err) < 0 ||
                   port_message_new(PORT_ANSWER, &p->answer, err) < 0
               ? -1
               : 0;
}

const struct engine port_engine = {.open = start,
                                   .readable = readable,
                                   .written = written,
                                   .timer = on_timer,
                                   .drain = drain,
                                   .eof = on_client_eof,
                                   .leave = leave,
                                   .free = destroy};
