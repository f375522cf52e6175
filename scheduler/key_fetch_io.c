/* scheduler/key_fetch_io.c - see scheduler/key_fetch.h. */
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/http.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/mem.h"
#include "policy/jwks.h"
#include "rpc/tls.h"
#include "scheduler/key_fetch.h"

enum { HEADERS_MAX = 16384, HTTP_PORT = 80, HTTPS_PORT = 443, HTTP_OK_ = 200 };

struct key_fetch {
    struct cl_loop *loop;
    struct key_fetch_conf conf;
    struct evhttp_uri *uri;         /* owned */
    struct evdns_base *dns;         /* owned */
    SSL_CTX *tls;                   /* owned; NULL for http on loopback */
    struct evhttp_connection *conn; /* owned; of the fetch under way */
    struct cl_timer next, bury;
    uint64_t begun_ns; /* the newest fetch; 0 = none yet */
};

bool key_fetch_is_url(const char *text)
{
    return strstr(text, "://") != NULL;
}

/* --- one fetch ------------------------------------------------------------------------------ */

static void schedule(struct key_fetch *f, uint64_t seconds)
{
    cl_timer_start(&f->next, seconds * CL_NS_PER_S);
}

static void answer(struct key_fetch *f, const char *text, size_t n, const struct cl_err *err)
{
    int rc = f->conf.fn(f->conf.arg, text, n, err);
    schedule(f, err || rc < 0 ? FETCH_RETRY_S : FETCH_EVERY_S);
    cl_timer_start(&f->bury, 0); /* the connection is not freed inside its own callback */
}

static void on_bury(void *arg)
{
    struct key_fetch *f = arg;
    if (f->conn)
        evhttp_connection_free(f->conn);
    f->conn = NULL;
}

static void on_answer(struct evhttp_request *req, void *arg)
{
    struct key_fetch *f = arg;
    struct cl_err err = {0};
    int status = req ? evhttp_request_get_response_code(req) : 0;
    if (status != HTTP_OK_) {
        (void)(status ? cl_fail(&err, CL_E_UNAVAILABLE, 0, "'%.200s' answered with status %d",
                                f->conf.url, status)
                      : cl_fail(&err, CL_E_UNAVAILABLE, 0,
                                "'%.200s' does not answer, or not as its certificate should",
                                f->conf.url));
        answer(f, NULL, 0, &err);
        return;
    }
    struct evbuffer *body = evhttp_request_get_input_buffer(req);
    size_t n = evbuffer_get_length(body);
    answer(f, (const char *)evbuffer_pullup(body, -1), n, NULL);
}

static struct bufferevent *new_tls(struct key_fetch *f, const char *host, struct cl_err *err)
{
    SSL *ssl = SSL_new(f->tls);
    if (!ssl || tls_expect_host(ssl, host, err) < 0) {
        SSL_free(ssl);
        return NULL;
    }
    struct bufferevent *bev =
        bufferevent_openssl_socket_new(cl_loop_base(f->loop), -1, ssl, BUFFEREVENT_SSL_CONNECTING,
                                       BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1); /* the length says where it ends */
    return bev;
}

static int begin(struct key_fetch *f, struct cl_err *err)
{
    const char *host = evhttp_uri_get_host(f->uri), *path = evhttp_uri_get_path(f->uri);
    const char *query = evhttp_uri_get_query(f->uri);
    int port = evhttp_uri_get_port(f->uri);
    char target[1024];
    struct bufferevent *bev = f->tls ? new_tls(f, host, err) : NULL;
    if (f->tls && !bev)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS to '%.200s'", f->conf.url);
    if (port < 0)
        port = f->tls ? HTTPS_PORT : HTTP_PORT;
    f->conn = evhttp_connection_base_bufferevent_new(cl_loop_base(f->loop), f->dns, bev, host,
                                                     (uint16_t)port);
    struct evhttp_request *req = f->conn ? evhttp_request_new(on_answer, f) : NULL;
    if (!req)
        return cl_fail(err, CL_E_NOMEM, 0, "fetch of '%.200s'", f->conf.url);
    evhttp_connection_set_timeout(f->conn, FETCH_LIMIT_S);
    evhttp_connection_set_max_headers_size(f->conn, HEADERS_MAX);
    evhttp_connection_set_max_body_size(f->conn, JWKS_MAX);
    (void)snprintf(target, sizeof target, "%s%s%s", path && path[0] ? path : "/", query ? "?" : "",
                   query ? query : "");
    struct evkeyvalq *headers = evhttp_request_get_output_headers(req);
    if (evhttp_add_header(headers, "Host", host) < 0 ||
        evhttp_add_header(headers, "Accept", "application/json, application/jwk-set+json") < 0 ||
        evhttp_add_header(headers, "Connection", "close") < 0 ||
        evhttp_make_request(f->conn, req, EVHTTP_REQ_GET, target) < 0)
        return cl_fail(err, CL_E_NOMEM, 0, "fetch of '%.200s'", f->conf.url);
    return 0;
}

static void on_next(void *arg)
{
    struct key_fetch *f = arg;
    struct cl_err err = {0};
    if (f->conn) { /* the one before is being buried */
        schedule(f, 1);
        return;
    }
    f->begun_ns = cl_now_ns();
    if (begin(f, &err) < 0)
        answer(f, NULL, 0, &err);
}

void key_fetch_soon(struct key_fetch *f)
{
    uint64_t now = cl_now_ns(), ready = f->begun_ns + FETCH_GAP_S * CL_NS_PER_S;
    if (!f->conn)
        cl_timer_start(&f->next, ready > now ? ready - now : 0);
}

/* --- life ----------------------------------------------------------------------------------- */

static int open_tls(struct key_fetch *f, struct cl_err *err)
{
    f->tls = SSL_CTX_new(TLS_client_method());
    if (!f->tls)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS");
    (void)SSL_CTX_set_min_proto_version(f->tls, TLS1_2_VERSION);
    SSL_CTX_set_verify(f->tls, SSL_VERIFY_PEER, NULL);
    int ok = f->conf.ca[0] ? SSL_CTX_load_verify_locations(f->tls, f->conf.ca, NULL)
                           : SSL_CTX_set_default_verify_paths(f->tls);
    return ok == 1 ? 0
                   : cl_fail(err, CL_E_INVALID, 0, "'%s' holds no certificates (PEM)",
                             f->conf.ca[0] ? f->conf.ca : "the system's CA folder");
}

static int open_place(struct key_fetch *f, struct cl_err *err)
{
    char place[300];
    f->uri = evhttp_uri_parse(f->conf.url);
    const char *scheme = f->uri ? evhttp_uri_get_scheme(f->uri) : NULL;
    const char *host = f->uri ? evhttp_uri_get_host(f->uri) : NULL;
    if (!scheme || !host || !host[0])
        return cl_fail(err, CL_E_INVALID, 0, "'%.200s' is no URL", f->conf.url);
    if (strcmp(scheme, "https") == 0)
        return open_tls(f, err);
    (void)snprintf(place, sizeof place, "%s:1", host);
    if (strcmp(scheme, "http") != 0 || !cl_is_loopback(place))
        return cl_fail(
            err, CL_E_INVALID, 0,
            "'%.200s': whoever can change the keys on their way is every user; use https",
            f->conf.url);
    return 0;
}

int key_fetch_new(struct cl_loop *loop, const struct key_fetch_conf *conf,
                  struct key_fetch **ret_fetch, struct cl_err *err)
{
    struct key_fetch *f = cl_zalloc(sizeof *f);
    if (!f)
        return cl_fail(err, CL_E_NOMEM, 0, "key fetch");
    f->loop = loop;
    f->conf = *conf;
    if (cl_timer_init(&f->next, loop, on_next, f, err) < 0 ||
        cl_timer_init(&f->bury, loop, on_bury, f, err) < 0 || open_place(f, err) < 0) {
        key_fetch_free(f);
        return -1;
    }
    f->dns = evdns_base_new(cl_loop_base(loop),
                            EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (!f->dns)
        f->dns = evdns_base_new(cl_loop_base(loop), 0); /* no resolv.conf: addresses still work */
    schedule(f, 0);
    *ret_fetch = f;
    return 0;
}

void key_fetch_free(struct key_fetch *f)
{
    if (!f)
        return;
    cl_timer_fini(&f->next);
    cl_timer_fini(&f->bury);
    if (f->conn)
        evhttp_connection_free(f->conn);
    if (f->dns)
        evdns_base_free(f->dns, 0);
    if (f->uri)
        evhttp_uri_free(f->uri);
    SSL_CTX_free(f->tls);
    cl_free(f);
}
