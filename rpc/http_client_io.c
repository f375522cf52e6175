/* rpc/http_client_io.c - see rpc/http_client.h. */
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/http.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/mem.h"
#include "rpc/http_client.h"
#include "rpc/tls.h"

enum { HEADERS_MAX = 16384, HTTP_PORT = 80, HTTPS_PORT = 443, TARGET = 1024, WAIT_MAX_S = 3600 };

struct http_client {
    struct cl_loop *loop;
    char *url;                      /* owned */
    struct evhttp_uri *uri;         /* owned */
    struct evdns_base *dns;         /* owned */
    SSL_CTX *tls;                   /* owned; NULL for http */
    struct evhttp_connection *conn; /* owned; of the request under way */
    struct cl_timer bury;
    http_said_fn *fn;
    void *arg;
};

bool http_client_is_busy(const struct http_client *c)
{
    return c->conn != NULL;
}

/* --- one request --------------------------------------------------------------------------------
 */

static void on_bury(void *arg)
{
    struct http_client *c = arg;
    if (c->conn)
        evhttp_connection_free(c->conn);
    c->conn = NULL;
}

static unsigned retry_after(struct evhttp_request *req)
{
    const char *text = evhttp_find_header(evhttp_request_get_input_headers(req), "Retry-After");
    unsigned long s = text ? strtoul(text, NULL, 10) : 0;
    return (unsigned)CL_MIN(s, (unsigned long)WAIT_MAX_S);
}

static void on_answer(struct evhttp_request *req, void *arg)
{
    struct http_client *c = arg;
    struct cl_err err = {0};
    int status = req ? evhttp_request_get_response_code(req) : 0;
    cl_timer_start(&c->bury, 0); /* the connection is not freed inside its own callback */
    if (!status) {
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0,
                      "'%.200s' does not answer, or not as its certificate should", c->url);
        c->fn(c->arg, NULL, &err);
        return;
    }
    struct evbuffer *body = evhttp_request_get_input_buffer(req);
    struct http_said said = {.status = status,
                             .n = evbuffer_get_length(body),
                             .body = (const char *)evbuffer_pullup(body, -1),
                             .retry_after_s = retry_after(req)};
    c->fn(c->arg, &said, NULL);
}

static struct bufferevent *new_tls(struct http_client *c, struct cl_err *err)
{
    SSL *ssl = SSL_new(c->tls);
    if (!ssl || tls_expect_host(ssl, evhttp_uri_get_host(c->uri), err) < 0) {
        SSL_free(ssl);
        return NULL;
    }
    struct bufferevent *bev =
        bufferevent_openssl_socket_new(cl_loop_base(c->loop), -1, ssl, BUFFEREVENT_SSL_CONNECTING,
                                       BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1); /* the length says where it ends */
    return bev;
}

static int connect_it(struct http_client *c, const struct http_ask *ask, struct cl_err *err)
{
    int port = evhttp_uri_get_port(c->uri);
    struct bufferevent *bev = c->tls ? new_tls(c, err) : NULL;
    if (c->tls && !bev)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS to '%.200s'", c->url);
    if (port < 0)
        port = c->tls ? HTTPS_PORT : HTTP_PORT;
    c->conn = evhttp_connection_base_bufferevent_new(cl_loop_base(c->loop), c->dns, bev,
                                                     evhttp_uri_get_host(c->uri), (uint16_t)port);
    if (!c->conn)
        return cl_fail(err, CL_E_NOMEM, 0, "connection to '%.200s'", c->url);
    evhttp_connection_set_timeout(c->conn, (int)ask->limit_s);
    evhttp_connection_set_max_headers_size(c->conn, HEADERS_MAX);
    evhttp_connection_set_max_body_size(c->conn, (ev_ssize_t)ask->answer_max);
    return 0;
}

static int fill(struct http_client *c, struct evhttp_request *req, const struct http_ask *ask)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(req);
    if (evhttp_add_header(headers, "Host", evhttp_uri_get_host(c->uri)) < 0 ||
        evhttp_add_header(headers, "Connection", "close") < 0)
        return -1;
    for (size_t i = 0; i < ask->n_headers; i++)
        if (evhttp_add_header(headers, ask->headers[i].name, ask->headers[i].value) < 0)
            return -1;
    return ask->body ? evbuffer_add(evhttp_request_get_output_buffer(req), ask->body, ask->n) : 0;
}

static int send_it(struct http_client *c, const struct http_ask *ask, struct cl_err *err)
{
    char target[TARGET];
    const char *path = evhttp_uri_get_path(c->uri), *query = evhttp_uri_get_query(c->uri);
    struct evhttp_request *req = evhttp_request_new(on_answer, c);
    (void)snprintf(target, sizeof target, "%s%s%s", path && path[0] ? path : "/", query ? "?" : "",
                   query ? query : "");
    if (!req || fill(c, req, ask) < 0) {
        if (req)
            evhttp_request_free(req);
        return cl_fail(err, CL_E_NOMEM, 0, "request to '%.200s'", c->url);
    }
    enum evhttp_cmd_type verb = ask->body ? EVHTTP_REQ_POST : EVHTTP_REQ_GET;
    return evhttp_make_request(c->conn, req, verb, target) == 0 /* it owns the request */
               ? 0
               : cl_fail(err, CL_E_UNAVAILABLE, 0, "'%.200s' cannot be reached", c->url);
}

int http_client_ask(struct http_client *c, const struct http_ask *ask, http_said_fn *fn, void *arg,
                    struct cl_err *err)
{
    CL_ASSERT(!c->conn);
    c->fn = fn;
    c->arg = arg;
    if (connect_it(c, ask, err) == 0 && send_it(c, ask, err) == 0)
        return 0;
    cl_timer_start(&c->bury, 0);
    return -1;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int open_tls(struct http_client *c, const char *ca, struct cl_err *err)
{
    c->tls = SSL_CTX_new(TLS_client_method());
    if (!c->tls)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS");
    (void)SSL_CTX_set_min_proto_version(c->tls, TLS1_2_VERSION);
    SSL_CTX_set_verify(c->tls, SSL_VERIFY_PEER, NULL);
    int ok = ca[0] ? SSL_CTX_load_verify_locations(c->tls, ca, NULL)
                   : SSL_CTX_set_default_verify_paths(c->tls);
    return ok == 1 ? 0
                   : cl_fail(err, CL_E_INVALID, 0, "'%s' holds no certificates (PEM)",
                             ca[0] ? ca : "the system's CA folder");
}

static int open_place(struct http_client *c, const struct http_client_conf *conf,
                      struct cl_err *err)
{
    char place[300];
    c->url = cl_strdup(conf->url);
    c->uri = c->url ? evhttp_uri_parse(c->url) : NULL;
    const char *scheme = c->uri ? evhttp_uri_get_scheme(c->uri) : NULL;
    const char *host = c->uri ? evhttp_uri_get_host(c->uri) : NULL;
    bool is_https = scheme && strcmp(scheme, "https") == 0;
    if (!scheme || !host || !host[0])
        return cl_fail(err, CL_E_INVALID, 0, "'%.200s' is no URL: want https://HOST[:PORT]/PATH",
                       conf->url);
    if (!is_https && strcmp(scheme, "http") != 0)
        return cl_fail(err, CL_E_INVALID, 0, "'%.200s' is neither http nor https; use https",
                       conf->url);
    if (is_https)
        return open_tls(c, conf->ca, err);
    (void)snprintf(place, sizeof place, "%s:1", host);
    if (conf->only_loopback && !cl_is_loopback(place))
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%.200s': whoever can change what it says on its way is believed; use "
                       "https",
                       conf->url);
    return 0;
}

int http_client_new(struct cl_loop *loop, const struct http_client_conf *conf,
                    struct http_client **ret_client, struct cl_err *err)
{
    CL_AUTO(http_client_freep) struct http_client *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP client");
    c->loop = loop;
    if (cl_timer_init(&c->bury, loop, on_bury, c, err) < 0 || open_place(c, conf, err) < 0)
        return -1;
    c->dns = evdns_base_new(cl_loop_base(loop),
                            EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (!c->dns)
        c->dns = evdns_base_new(cl_loop_base(loop), 0); /* no resolv.conf: addresses still work */
    *ret_client = CL_STEAL(&c);
    return 0;
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    cl_timer_fini(&c->bury);
    if (c->conn)
        evhttp_connection_free(c->conn);
    if (c->dns)
        evdns_base_free(c->dns, 0);
    if (c->uri)
        evhttp_uri_free(c->uri);
    SSL_CTX_free(c->tls);
    cl_free(c->url);
    cl_free(c);
}
