/* gateway/gateway_io.c - see gateway/gateway.h. */
#include "gateway/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "gateway/http_io.h"
#include "gateway/metadata.h"
#include "gateway/port_host.h"
#include "observability/log.h"
#include "rpc/server.h"
#include "rpc/tls.h"

#define DRAIN_LOOK_NS (50 * CL_NS_PER_MS)

struct gateway {
    struct cl_loop *loop;                  /* borrowed */
    const struct gateway_options *options; /* borrowed */
    struct metrics *metrics;               /* owned */
    struct metrics_server *metrics_server; /* owned; NULL = not served */
    struct rpc_pool *pool;                 /* owned */
    struct rpc_pool *ports;                /* owned; NULL = ports of sandboxes are not served */
    char ports_host[CL_CONF_STR];          /* the domain as clients write it, with its port */
    char ports_domain[PORT_DOMAIN_MAX];    /* without it */
    char ports_url[CL_CONF_STR + 8];       /* ports_host as mcp/port_url.h has it */
    uint8_t secret[MCP_SECRET];
    struct mcp_server *mcp;       /* owned */
    struct e2b_server *e2b;       /* owned; NULL = not served */
    struct web_server *web;       /* likewise */
    struct http_server *http;     /* owned */
    SSL_CTX *tls, *scheduler_tls; /* owned; NULL = plain */
    struct metadata metadata;     /* empty texts: no authorization server */
    struct cl_timer draining;
    uint64_t drain_until_ns;
    void (*done)(void *arg);
    void *done_arg;
};

/* --- parts --------------------------------------------------------------------------------------
 */

/* Ours, and whom of the scheduler to believe; NULL where the options name none. */
static int load_tls(const struct gateway_options *o, SSL_CTX **ret_tls, SSL_CTX **ret_scheduler_tls,
                    struct cl_err *err)
{
    struct tls_files ours = {.cert = o->tls_cert, .key = o->tls_key};
    struct tls_files scheduler = {.ca = o->scheduler_ca};
    SSL_CTX *tls = NULL, *scheduler_tls = NULL;
    if ((o->tls_cert[0] && tls_web_server_new(&ours, &tls, err) < 0) ||
        (o->scheduler_ca[0] && tls_client_new(&scheduler, &scheduler_tls, err) < 0)) {
        SSL_CTX_free(tls);
        return -1;
    }
    *ret_tls = tls;
    *ret_scheduler_tls = scheduler_tls;
    return 0;
}

int gateway_reload(struct gateway *g, struct cl_err *err)
{
    SSL_CTX *tls, *scheduler_tls;
    if (load_tls(g->options, &tls, &scheduler_tls, err) < 0)
        return -1;
    http_server_set_tls(g->http, tls);
    if (scheduler_tls)
        rpc_pool_set_tls(g->pool, scheduler_tls);
    if (scheduler_tls && g->ports)
        rpc_pool_set_tls(g->ports, scheduler_tls);
    SSL_CTX_free(g->tls);
    SSL_CTX_free(g->scheduler_tls);
    g->tls = tls;
    g->scheduler_tls = scheduler_tls;
    return 0;
}

static int read_secret(const char *path, uint8_t secret[static MCP_SECRET], struct cl_err *err)
{
    struct cl_buf bytes;
    struct stat st;
    if (!path[0] || (stat(path, &st) < 0 && errno == ENOENT)) {
        cl_random(secret, MCP_SECRET);
        return path[0] ? cl_file_write(path, secret, MCP_SECRET, 0600, err) : 0;
    }
    cl_buf_init(&bytes, MCP_SECRET);
    int rc = cl_file_read(AT_FDCWD, path, &bytes, err);
    if (rc == 0 && bytes.len != MCP_SECRET)
        rc = cl_fail(err, CL_E_INVALID, 0, "'%.200s' does not hold %d bytes", path, MCP_SECRET);
    if (rc == 0)
        memcpy(secret, bytes.data, MCP_SECRET);
    cl_buf_fini(&bytes);
    return rc;
}

static void on_state(void *arg, const struct cl_err *err)
{
    struct gateway *g = arg;
    if (err)
        log_event(LOG_DISCONNECTED, "peer='%s' text='%s'", g->options->scheduler, err->text);
    else
        log_event(LOG_CONNECTED, "peer='%s'", rpc_channel_target(rpc_pool_first(g->pool)));
}

/* As many as there can be calls in flight, with one more each that looks or ends something. */
enum { SCHEDULER_CALLS = 2 * (MCP_CALLS_MAX + E2B_CALLS_MAX) + WEB_CALLS_MAX };

/* A paused call holds up to its window of 512 KiB, and a connection 32 MiB for all of its own: with
 * so many places the calls of slow readers, spread evenly, never need more. */
enum { PORT_PLACES = 6 * RPC_STREAMS_MAX };

/* A pool of its own: what its clients do not read is not in the way of anybody else. */
static int open_ports(struct gateway *g, struct cl_err *err)
{
    gateway_ports_domain(g->options, g->ports_host);
    if (!port_domain_read(g->ports_host, g->ports_domain)) {
        g->ports_host[0] = g->ports_domain[0] = '\0';
        return 0;
    }
    return rpc_pool_new(g->loop, g->options->scheduler, g->scheduler_tls, PORT_PLACES, &g->ports,
                        err);
}

static int open_pool(struct gateway *g, struct cl_err *err)
{
    if (rpc_pool_new(g->loop, g->options->scheduler, g->scheduler_tls, SCHEDULER_CALLS, &g->pool,
                     err) < 0)
        return -1;
    rpc_channel_on_state(rpc_pool_first(g->pool), on_state, g);
    rpc_channel_connect(rpc_pool_first(g->pool));
    return 0;
}

static int open_metrics(struct gateway *g, struct cl_err *err)
{
    uint16_t port;
    if (metrics_new(&g->metrics, err) < 0)
        return -1;
    metrics_set(g->metrics, METRIC_BUILD_INFO, "gateway", CLOCHE_VERSION, 1);
    if (!g->options->metrics[0])
        return 0;
    return metrics_serve(g->loop, g->options->metrics, g->metrics, NULL, NULL, &g->metrics_server,
                         &port, err);
}

static int open_servers(struct gateway *g, const struct mcp_extra *extra, struct cl_err *err)
{
    struct mcp_server_conf conf = {.loop = g->loop,
                                   .pool = g->pool,
                                   .metrics = g->metrics,
                                   .template_name = g->options->template_name,
                                   .ttl_ns = g->options->ttl,
                                   .aliases = g->options->aliases,
                                   .challenge = g->metadata.challenge,
                                   .ports_domain = g->ports_url,
                                   .extra = extra};
    struct e2b_server_conf e2b = {.loop = g->loop,
                                  .pool = g->pool,
                                  .template_name = g->options->template_name,
                                  .build_net = g->options->build_net,
                                  .is_https = g->options->tls_cert[0] || g->options->resource[0],
                                  .ports = g->ports ? g->ports_host : NULL};
    struct web_server_conf web = {.loop = g->loop, .pool = g->pool, .ports = g->ports_url};
    _Static_assert((int)E2B_SECRET == (int)MCP_SECRET, "one secret for both");
    if (read_secret(g->options->secret_file, conf.secret, err) < 0 ||
        mcp_server_new(&conf, &g->mcp, err) < 0)
        return -1;
    memcpy(e2b.secret, conf.secret, sizeof e2b.secret);
    memcpy(g->secret, conf.secret, sizeof g->secret);
    if (g->options->e2b && e2b_server_new(&e2b, &g->e2b, err) < 0)
        return -1;
    return g->options->web ? web_server_new(&web, &g->web, err) : 0;
}

static int open_http(struct gateway *g, struct cl_err *err)
{
    uint16_t port;
    struct http_conf conf = {.loop = g->loop,
                             .mcp = g->mcp,
                             .e2b = g->e2b,
                             .web = g->web,
                             .metrics = g->metrics,
                             .endpoint = {.hosts = g->options->hosts,
                                          .origins = g->options->origins,
                                          .ports = g->ports ? g->ports_domain : NULL,
                                          .has_metadata = g->metadata.json[0] != '\0',
                                          .has_e2b = g->e2b != NULL,
                                          .has_web = g->web != NULL},
                             .metadata = g->metadata.json,
                             .tls = g->tls,
                             .ports = g->ports,
                             .secret = g->secret};
    if (http_server_new(&conf, &g->http, err) < 0 ||
        http_server_listen(g->http, g->options->listen, &port, err) < 0)
        return -1;
    if (g->ports && !g->options->ports_domain[0]) /* which may have been port 0 */
        (void)snprintf(g->ports_host, sizeof g->ports_host, "localhost:%u", port);
    if (g->ports)
        (void)snprintf(g->ports_url, sizeof g->ports_url, "%s%s", g->tls ? "https://" : "",
                       g->ports_host);
    log_event(LOG_LISTENING, "address='%s' port=%u", g->options->listen, port);
    return 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static void look_drained(void *arg)
{
    struct gateway *g = arg;
    bool busy = mcp_server_calls(g->mcp) > 0 || (g->e2b && e2b_server_calls(g->e2b) > 0) ||
                (g->web && web_server_calls(g->web) > 0) || http_server_connections(g->http) > 0;
    if (busy && cl_now_ns() < g->drain_until_ns)
        return;
    cl_timer_stop(&g->draining);
    g->done(g->done_arg);
}

int gateway_new(struct cl_loop *loop, const struct gateway_options *options,
                const struct mcp_extra *extra, struct gateway **ret_gateway, struct cl_err *err)
{
    struct gateway *g = cl_zalloc(sizeof *g);
    if (!g)
        return cl_fail(err, CL_E_NOMEM, 0, "gateway");
    g->loop = loop;
    g->options = options;
    if (options->authorization_servers[0] &&
        metadata_make(options->resource, options->authorization_servers, &g->metadata, err) < 0) {
        cl_free(g);
        return -1;
    }
    if (cl_timer_init(&g->draining, loop, look_drained, g, err) < 0 || open_metrics(g, err) < 0 ||
        load_tls(options, &g->tls, &g->scheduler_tls, err) < 0 || open_pool(g, err) < 0 ||
        open_ports(g, err) < 0 || open_servers(g, extra, err) < 0 || open_http(g, err) < 0) {
        gateway_free(g);
        return -1;
    }
    *ret_gateway = g;
    return 0;
}

void gateway_stop(struct gateway *g, void (*done)(void *arg), void *arg)
{
    g->done = done;
    g->done_arg = arg;
    g->drain_until_ns = cl_now_ns() + g->options->drain;
    http_server_drain(g->http);
    mcp_server_drain(g->mcp);
    cl_timer_every(&g->draining, DRAIN_LOOK_NS);
}

void gateway_free(struct gateway *g)
{
    if (!g)
        return;
    cl_timer_fini(&g->draining);
    http_server_free(g->http);
    mcp_server_free(g->mcp);
    e2b_server_free(g->e2b);
    web_server_free(g->web);
    rpc_pool_free(g->pool);
    rpc_pool_free(g->ports);
    metrics_server_free(g->metrics_server);
    metrics_free(g->metrics);
    SSL_CTX_free(g->tls);
    SSL_CTX_free(g->scheduler_tls);
    OPENSSL_cleanse(g->secret, sizeof g->secret);
    cl_free(g);
}
