/* rpc/conn_io.c - the transport half of a connection: bufferevent, TLS, closing; see
 * rpc/conn_priv.h.
 *
 * Owns:    the bufferevent.
 * Thread:  its loop's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "rpc/call_priv.h"
#include "rpc/conn_priv.h"
#include "rpc/tls.h"

enum {
    READ_MAX = 64 * 1024, /* taken from a socket in one event: the connection's turn */
    GATHER = 16 * 1024,   /* small frames are joined to pieces of this size */
};

struct conn_io {
    struct bufferevent *bev; /* owned */
    bool fin_sent;
};

static struct evbuffer *output_of(const struct rpc_conn *conn)
{
    return bufferevent_get_output(conn->io->bev);
}

bool conn_has_output(const struct rpc_conn *conn)
{
    return evbuffer_get_length(output_of(conn)) > 0;
}

void conn_io_write(struct rpc_conn *conn, const void *data, size_t n)
{
    if (bufferevent_write(conn->io->bev, data, n) < 0)
        conn_close(conn, &(struct cl_err){.code = CL_E_NOMEM, .text = "output buffer"});
}

/* The peer has all we will say: say FIN, wait for its own. */
static void finish_flushing(struct rpc_conn *conn)
{
    if (conn->io->fin_sent)
        return;
    conn->io->fin_sent = true;
    SSL *ssl = conn->is_tls ? bufferevent_openssl_get_ssl(conn->io->bev) : NULL;
    if (ssl)
        (void)SSL_shutdown(ssl);
    (void)shutdown(bufferevent_getfd(conn->io->bev), SHUT_WR);
}

/* A peer that sends but does not read makes answers pile up inside nghttp2: stop listening to it.
 * Servers only: were both sides to do this, both could wait for ever. */
static void set_reading(struct rpc_conn *conn)
{
    if (!conn->role->is_server || conn->state == CONN_OPENING)
        return;
    bool choked = evbuffer_get_length(output_of(conn)) >= CONN_OUT_LOW &&
                  nghttp2_session_get_outbound_queue_size(conn->session) > CONN_QUEUE_MAX;
    bool reading = (bufferevent_get_enabled(conn->io->bev) & EV_READ) != 0;
    if (choked && reading)
        (void)bufferevent_disable(conn->io->bev, EV_READ);
    else if (!choked && !reading)
        (void)bufferevent_enable(conn->io->bev, EV_READ);
}

/* Move frames from the session to the socket's buffer, joined, until the high-water mark. */
static int pump(struct rpc_conn *conn)
{
    uint8_t gather[GATHER];
    size_t held = 0;
    while (evbuffer_get_length(output_of(conn)) + held < CONN_OUT_HIGH) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(conn->session, &data);
        if (n < 0)
            return -1;
        if (held > 0 && (n == 0 || (size_t)n > sizeof gather - held)) {
            if (bufferevent_write(conn->io->bev, gather, held) < 0)
                return -1;
            held = 0;
        }
        if (n == 0)
            return 0;
        if ((size_t)n > sizeof gather) {
            if (bufferevent_write(conn->io->bev, data, (size_t)n) < 0)
                return -1;
            continue;
        }
        memcpy(gather + held, data, (size_t)n);
        held += (size_t)n;
    }
    return held > 0 ? bufferevent_write(conn->io->bev, gather, held) : 0;
}

static void run_output(void *obj)
{
    struct rpc_conn *conn = obj;
    if (conn->doomed && conn->state != CONN_CLOSED) {
        struct cl_err why = conn->why;
        conn_close(conn, &why);
        return;
    }
    if (!conn->session || conn->state == CONN_CLOSED)
        return;
    if (conn->state != CONN_FLUSHING && pump(conn) < 0) {
        conn_close(conn, &(struct cl_err){.code = CL_E_NOMEM, .text = "HTTP/2 output"});
        return;
    }
    if (conn->state == CONN_CLOSED)
        return;
    if (conn->state != CONN_FLUSHING && !nghttp2_session_want_read(conn->session) &&
        !nghttp2_session_want_write(conn->session))
        conn_set_state(conn, CONN_FLUSHING);
    if (conn->state == CONN_FLUSHING && evbuffer_get_length(output_of(conn)) == 0) {
        finish_flushing(conn);
        return;
    }
    set_reading(conn);
}

void conn_kick(struct rpc_conn *conn)
{
    if (conn->state != CONN_CLOSED)
        rpc_work_add(conn->work, RPC_WORK_CONN, &conn->work_item);
}

/* --- bufferevent callbacks ----------------------------------------------------------------------
 */

static void on_read(struct bufferevent *bev, void *arg)
{
    struct rpc_conn *conn = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    conn->heard_ns = cl_now_ns();
    while (conn->state != CONN_CLOSED) {
        size_t n = evbuffer_get_contiguous_space(in);
        if (n == 0)
            break;
        const uint8_t *data = evbuffer_pullup(in, (ev_ssize_t)n);
        if (conn->session && conn->state != CONN_FLUSHING)
            conn_h2_receive(conn, data, n);
        (void)evbuffer_drain(in, n);
    }
    conn_kick(conn);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    (void)bev;
    run_output(arg);
}

static void transport_up(struct rpc_conn *conn)
{
    struct cl_err err;
    int on = 1;
    evutil_socket_t fd = bufferevent_getfd(conn->io->bev);
    if (!conn->peer.is_unix)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    SSL *ssl = conn->is_tls ? bufferevent_openssl_get_ssl(conn->io->bev) : NULL;
    if (ssl && tls_check_peer(ssl, conn->peer.worker_id, sizeof conn->peer.worker_id, &err) < 0) {
        conn_close(conn, &err);
        return;
    }
    conn_set_state(conn, CONN_GREETING);
    if (conn_h2_start(conn, &err) < 0)
        conn_close(conn, &err);
}

static void fail_transport(struct rpc_conn *conn, short what)
{
    struct cl_err err;
    int sys = EVUTIL_SOCKET_ERROR();
    unsigned long tls = conn->is_tls ? bufferevent_get_openssl_error(conn->io->bev) : 0;
    const char *when = conn->state == CONN_OPENING ? "connect to" : "connection with";
    if (tls != 0) {
        char text[160];
        ERR_error_string_n(tls, text, sizeof text);
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "%s %s: %s", when, conn->peer.address, text);
    } else if (what & BEV_EVENT_EOF) {
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "%s %s: closed by the peer", when,
                      conn->peer.address);
    } else {
        (void)cl_fail(&err, CL_E_UNAVAILABLE, sys, "%s %s", when, conn->peer.address);
    }
    if (conn->why.code != CL_OK) /* the reason was known before the end */
        err = conn->why;
    conn_close(conn, &err);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct rpc_conn *conn = arg;
    if (what & BEV_EVENT_CONNECTED)
        transport_up(conn);
    else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        fail_transport(conn, what);
}

/* --- life ---------------------------------------------------------------------------------------
 */

void conn_set_state(struct rpc_conn *conn, enum conn_state state)
{
    conn->state = state;
    conn->state_ns = cl_now_ns();
}

static void name_peer(struct rpc_peer *peer, const struct sockaddr_storage *sa, int fd)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (sa->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        (void)snprintf(peer->address, sizeof peer->address, "%s:%u", host, ntohs(in->sin_port));
    } else if (sa->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)sa;
        (void)inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        (void)snprintf(peer->address, sizeof peer->address, "[%s]:%u", host, ntohs(in->sin6_port));
    } else {
        struct ucred cred;
        socklen_t n = sizeof cred;
        (void)snprintf(peer->address, sizeof peer->address, "unix");
        peer->is_unix = true;
        if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0) {
            peer->uid = cred.uid;
            peer->pid = cred.pid;
        } else {
            peer->uid = (uid_t)-1; /* nobody: never root by omission */
        }
    }
}

static struct bufferevent *make_bufferevent(const struct conn_spec *spec)
{
    struct event_base *base = cl_loop_base(spec->loop);
    int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    struct bufferevent *bev;
    if (spec->ssl)
        bev = bufferevent_openssl_socket_new(
            base, spec->fd, spec->ssl,
            spec->fd < 0 ? BUFFEREVENT_SSL_CONNECTING : BUFFEREVENT_SSL_ACCEPTING, options);
    else
        bev = bufferevent_socket_new(base, spec->fd, options);
    if (!bev) {
        SSL_free(spec->ssl);
        if (spec->fd >= 0)
            (void)close(spec->fd);
        return NULL;
    }
    if (spec->ssl)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    (void)bufferevent_set_max_single_read(bev, READ_MAX);
    (void)bufferevent_set_max_single_write(bev, CONN_OUT_HIGH);
    bufferevent_setwatermark(bev, EV_WRITE, CONN_OUT_LOW, 0);
    return bev;
}

static void conn_destroy(void *obj)
{
    struct rpc_conn *conn = obj;
    CL_ASSERT(cl_list_empty(&conn->calls));
    nghttp2_session_del(conn->session);
    if (conn->io && conn->io->bev)
        bufferevent_free(conn->io->bev);
    cl_free(conn->io);
    cl_free(conn);
}

/* Begin: an accepted plain socket is up already, the others say so in on_event. */
static int conn_begin(struct rpc_conn *conn, const struct conn_spec *spec, struct cl_err *err)
{
    struct bufferevent *bev = conn->io->bev;
    bufferevent_setcb(bev, on_read, on_write, on_event, conn);
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof sa;
    if (spec->fd >= 0) {
        (void)getpeername(spec->fd, (struct sockaddr *)&sa, &n);
        name_peer(&conn->peer, &sa, spec->fd);
    } else {
        name_peer(&conn->peer, spec->addr, -1);
        if (spec->name)
            (void)snprintf(conn->peer.address, sizeof conn->peer.address, "%.63s", spec->name);
        memcpy(&sa, spec->addr, spec->addr_len);
        if (bufferevent_socket_connect(bev, (struct sockaddr *)&sa, (int)spec->addr_len) < 0)
            return cl_fail(err, CL_E_UNAVAILABLE, errno, "connect to %s", conn->peer.address);
        cl_fd_cloexec(bufferevent_getfd(bev));
    }
    if (bufferevent_enable(bev, EV_READ | EV_WRITE) < 0)
        return cl_fail(err, CL_E_NOMEM, 0, "watch a connection");
    if (spec->fd < 0 || spec->ssl)
        return 0;
    transport_up(conn);
    return 0;
}

int conn_new(const struct conn_spec *spec, struct rpc_conn **ret_conn, struct cl_err *err)
{
    struct bufferevent *bev = make_bufferevent(spec);
    if (!bev)
        return cl_fail(err, CL_E_NOMEM, 0, "connection");
    struct rpc_conn *conn = cl_zalloc(sizeof *conn);
    struct conn_io *io = cl_zalloc(sizeof *io);
    if (!conn || !io) {
        bufferevent_free(bev);
        cl_free(conn);
        cl_free(io);
        return cl_fail(err, CL_E_NOMEM, 0, "connection");
    }
    io->bev = bev;
    *conn = (struct rpc_conn){.loop = spec->loop,
                              .work = spec->work,
                              .role = spec->role,
                              .owner = spec->owner,
                              .patience = spec->patience ? spec->patience : &conn_patience_usual,
                              .io = io,
                              .is_tls = spec->ssl != NULL};
    cl_list_init(&conn->link);
    cl_list_init(&conn->calls);
    rpc_work_item_init(&conn->work_item, run_output, conn);
    conn->peer.listener = spec->listener;
    conn_set_state(conn, CONN_OPENING);
    conn->begun_ns = conn->heard_ns = conn->state_ns;
    if (conn_begin(conn, spec, err) < 0) {
        conn_destroy(conn);
        return -1;
    }
    if (conn->state == CONN_CLOSED) /* buried already */
        return cl_fail(err, conn->why.code, 0, "%s", conn->why.text);
    *ret_conn = conn;
    return 0;
}

void conn_close(struct rpc_conn *conn, const struct cl_err *why)
{
    if (conn->state == CONN_CLOSED)
        return;
    conn->why = *why;
    conn_set_state(conn, CONN_CLOSED);
    bufferevent_setcb(conn->io->bev, NULL, NULL, NULL, NULL);
    (void)bufferevent_disable(conn->io->bev, EV_READ | EV_WRITE);
    rpc_work_del(&conn->work_item);
    cl_loop_bury(conn->loop, &conn->grave, conn_destroy, conn);
    while (!cl_list_empty(&conn->calls)) {
        struct rpc_call *call = CL_LIST_ENTRY(conn->calls.next, struct rpc_call, link);
        conn_unlink_call(call);
        call->stream_id = -1;
        conn->role->lost(call, &conn->why);
    }
    bool adopted = !cl_list_empty(&conn->link); /* not when conn_new() itself fails */
    cl_list_unlink(&conn->link);
    if (adopted)
        conn->role->conn_gone(conn, &conn->why);
}
