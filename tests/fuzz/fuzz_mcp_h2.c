/* tests/fuzz/fuzz_mcp_h2.c - a connection of the gateway under a hostile HTTP/2 peer: frames, flow
 * control, fields, bodies, uploads, streams that end early.  The scheduler behind it never answers,
 * so that calls are made, wait, and are left.
 *
 * Input: records (h2_peer.h); 0xfd lets time pass, so that waiting calls become event streams and
 * ticks come, 0xfc drains the connection.
 * Fails when a connection outlives its peer, or a call its connection; the connection itself
 * asserts that it counts its bytes right.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "gateway/http2_priv.h"
#include "rpc/server.h"
#include "tests/fuzz/h2_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TURNS_MAX = 20000, METADATA = 100 * 1024 };

static struct cl_loop *loop;
static struct mcp_server *mcp;
static struct e2b_server *e2b;
static struct http_server *server;
static struct sockaddr_in address = {.sin_family = AF_INET};

/* A scheduler that is reached and never answers: HOST:PORT. */
static void start_silence(char *name, size_t size)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
        abort();
    (void)snprintf(name, size, "127.0.0.1:%u", ntohs(sa.sin_port));
}

static void start_server(void)
{
    char scheduler[32];
    static char metadata[METADATA]; /* more than a window of 64 KiB */
    struct rpc_channel *channel;
    struct rpc_pool *pool;
    struct metrics *metrics;
    uint16_t port;
    start_silence(scheduler, sizeof scheduler);
    memset(metadata, 'm', sizeof metadata - 1);
    if (cl_loop_new(&loop, NULL) < 0 || metrics_new(&metrics, NULL) < 0 ||
        rpc_channel_new(loop, scheduler, NULL, &channel, NULL) < 0 ||
        rpc_pool_new(loop, scheduler, NULL, RPC_STREAMS_MAX, &pool, NULL) < 0)
        abort();
    struct mcp_server_conf conf = {.loop = loop,
                                   .channel = channel,
                                   .metrics = metrics,
                                   .template_name = "t",
                                   .ttl_ns = CL_NS_PER_S};
    if (mcp_server_new(&conf, &mcp, NULL) < 0)
        abort();
    struct e2b_server_conf of_e2b = {.loop = loop, .pool = pool, .template_name = "t"};
    if (e2b_server_new(&of_e2b, &e2b, NULL) < 0)
        abort();
    struct http_conf http = {
        .loop = loop,
        .mcp = mcp,
        .e2b = e2b,
        .metrics = metrics,
        .endpoint = {.hosts = "*", .origins = "", .has_metadata = true, .has_e2b = true},
        .metadata = metadata};
    if (http_server_new(&http, &server, NULL) < 0 ||
        http_server_listen(server, "127.0.0.1:0", &port, NULL) < 0)
        abort();
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static int connect_to_server(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct linger none = {.l_onoff = 1}; /* no TIME_WAIT: ports are few */
    struct pollfd connected = {.fd = fd, .events = POLLOUT};
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
        (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS))
        abort();
    while (poll(&connected, 1, -1) < 0) {
        if (errno != EINTR) /* libFuzzer's alarm, which would end a connect() that waits */
            abort();
    }
    if (connected.revents != POLLOUT)
        abort();
    return fd;
}

/* What timers would do, had we the time to wait for them. */
static void fire(struct cl_timer *t)
{
    if (cl_timer_is_armed(t))
        t->fn(t->arg);
}

static void pass_time(struct http_conn *k)
{
    if (k->engine == &http2_engine) {
        struct http2 *h = k->state;
        CL_LIST_FOREACH (it, &h->streams)
            fire(&CL_LIST_ENTRY(it, struct http2_stream, link)->exchange.timer);
    }
    fire(&k->timer);
}

static void own_record(uint8_t type)
{
    CL_LIST_FOREACH (it, &server->conns) {
        struct http_conn *k = CL_LIST_ENTRY(it, struct http_conn, link);
        if (type == RECORD_A)
            pass_time(k);
        else
            http_conn_drain(k);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!server)
        start_server();
    int fd = connect_to_server();
    cl_loop_turn(loop, CL_NS_PER_MS); /* accept */
    send_records(loop, fd, data, n, own_record);
    for (int turns = 0; turns < 4; turns++) {
        cl_loop_turn(loop, 0);
        (void)read_answers(fd);
    }
    cl_closep(&fd);
    for (int turns = 0;
         http_server_connections(server) + mcp_server_calls(mcp) + e2b_server_calls(e2b) > 0;
         turns++) {
        if (turns == TURNS_MAX)
            abort();
        cl_loop_turn(loop, turns < 16 ? 0 : CL_NS_PER_MS);
    }
    return 0;
}
