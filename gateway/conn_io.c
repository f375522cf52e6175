/* gateway/conn_io.c - a connection of the gateway: its socket, and which protocol it speaks; see
 * gateway/http_priv.h.
 *
 * TLS says it by ALPN: h2, or HTTP/1.1 for everybody else.  In plain text a client with prior
 * knowledge begins with HTTP/2's preface (RFC 9113 section 3.3), which is no HTTP/1.1 request.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "gateway/http2.h"
#include "gateway/http_priv.h"
#include "rpc/tls.h"

enum { READ_AHEAD = 64 * 1024 };

struct evbuffer *http_conn_in(const struct http_conn *k)
{
    return bufferevent_get_input(k->bev);
}

struct evbuffer *http_conn_out(const struct http_conn *k)
{
    return bufferevent_get_output(k->bev);
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void destroy(void *obj)
{
    struct http_conn *k = obj;
    if (k->state)
        k->engine->free(k);
    k->state = k->past_state;
    if (k->state)
        k->past->free(k);
    cl_timer_fini(&k->timer);
    bufferevent_free(k->bev);
    cl_free(k);
}

void http_conn_close(struct http_conn *k)
{
    if (k->gone)
        return;
    k->gone = true;
    cl_timer_stop(&k->timer);
    (void)bufferevent_disable(k->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(k->bev, NULL, NULL, NULL, NULL);
    cl_list_unlink(&k->link);
    k->server->n_conns--;
    metrics_set(k->server->conf.metrics, METRIC_HTTP_CONNECTIONS, NULL, NULL, k->server->n_conns);
    if (k->state)
        k->engine->leave(k);
    cl_loop_bury(k->server->conf.loop, &k->grave, destroy, k);
}

void http_conn_fin(struct http_conn *k)
{
    SSL *ssl = k->server->conf.tls ? bufferevent_openssl_get_ssl(k->bev) : NULL;
    if (ssl)
        (void)SSL_shutdown(ssl);
    (void)shutdown(bufferevent_getfd(k->bev), SHUT_WR);
}

void http_conn_drain(struct http_conn *k)
{
    if (k->engine)
        k->engine->drain(k);
    else
        http_conn_close(k);
}

/* --- which protocol ----------------------------------------------------------------------------
 */

static void choose(struct http_conn *k, const struct engine *engine)
{
    k->engine = engine;
    if (engine->open(k, NULL) < 0)
        http_conn_close(k);
}

void http_conn_pass(struct http_conn *k, const struct engine *engine)
{
    CL_ASSERT(!k->past);
    k->past = k->engine;
    k->past_state = k->state;
    k->state = NULL;
    choose(k, engine);
    if (!k->gone)
        engine->readable(k);
}

static void sniff(struct http_conn *k)
{
    uint8_t begin[HTTP2_PREFACE];
    ev_ssize_t n = evbuffer_copyout(http_conn_in(k), begin, sizeof begin);
    switch (http2_sniff(begin, (size_t)CL_MAX(n, 0))) {
    case SNIFF_HTTP2:
        choose(k, &http2_engine);
        break;
    case SNIFF_HTTP1:
        choose(k, &http1_engine);
        break;
    case SNIFF_MORE:
        break;
    }
}

/* --- events -------------------------------------------------------------------------------------
 */

static void on_readable(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct http_conn *k = arg;
    if (!k->engine)
        sniff(k);
    if (k->engine && !k->gone)
        k->engine->readable(k);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct http_conn *k = arg;
    if (k->engine)
        k->engine->written(k);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct http_conn *k = arg;
    bool half = (what & BEV_EVENT_EOF) && k->engine && k->engine->eof && k->engine->eof(k);
    if (!(what & BEV_EVENT_CONNECTED) && !half)
        http_conn_close(k);
    else if (!k->engine)
        choose(k, tls_is_h2(bufferevent_openssl_get_ssl(bev)) ? &http2_engine : &http1_engine);
}

static void on_timer(void *arg)
{
    struct http_conn *k = arg;
    if (k->engine)
        k->engine->timer(k);
    else
        http_conn_close(k);
}

/* --- the beginning ------------------------------------------------------------------------------
 */

static struct bufferevent *wrap(struct http_server *s, int fd)
{
    struct event_base *base = cl_loop_base(s->conf.loop);
    int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    if (!s->conf.tls)
        return bufferevent_socket_new(base, fd, options);
    SSL *ssl = SSL_new(s->conf.tls);
    if (!ssl)
        return NULL;
    struct bufferevent *bev =
        bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, options);
    if (!bev)
        SSL_free(ssl);
    return bev;
}

int http_conn_new(struct http_server *s, int fd, struct cl_err *err)
{
    static const struct timeval write_limit = {HTTP_WRITE_S, 0};
    int on = 1;
    struct http_conn *k = cl_zalloc(sizeof *k);
    if (!k || cl_timer_init(&k->timer, s->conf.loop, on_timer, k, err) < 0)
        goto out_free;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    k->bev = wrap(s, fd);
    if (!k->bev)
        goto out_free;
    k->server = s;
    cl_list_push(&s->conns, &k->link);
    s->n_conns++;
    metrics_set(s->conf.metrics, METRIC_HTTP_CONNECTIONS, NULL, NULL, s->n_conns);
    bufferevent_setcb(k->bev, on_readable, on_written, on_event, k);
    bufferevent_setwatermark(k->bev, EV_READ, 0, READ_AHEAD);
    bufferevent_set_timeouts(k->bev, NULL, &write_limit);
    cl_timer_start(&k->timer, HTTP_REQUEST_S * CL_NS_PER_S);
    if (bufferevent_enable(k->bev, EV_READ | EV_WRITE) < 0)
        http_conn_close(k); /* which closes the fd, as later ends do */
    return 0;

out_free:
    if (k)
        cl_timer_fini(&k->timer);
    cl_free(k);
    return cl_fail(err, CL_E_NOMEM, 0, "connection");
}
