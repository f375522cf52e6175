/* rpc/conn_priv.h - one HTTP/2 connection, the same for both roles.
 *
 * Owns:    its bufferevent (with fd and SSL) and its nghttp2 session; the calls on it are linked,
 *          and told when it goes.
 * Borrows: the role's table, the owner (server or channel) and its work queue.
 * Thread:  its loop's.
 * Never frees a session inside a callback: conn_close() buries.  Every path ends in CONN_CLOSED.
 *
 *   OPENING --tcp, TLS--> GREETING --peer's SETTINGS--> OPEN --goaway--> GOING
 *      |                     |                           |                 | nothing left
 *      |                     +---- protocol broken ------+-----> FLUSHING <+
 *      +--------------- lost, refused, timed out -------+---------> CLOSED <-- flushed, FIN seen
 */
#ifndef CL_RPC_CONN_PRIV_H
#define CL_RPC_CONN_PRIV_H

#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <openssl/types.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "rpc/call.h"
#include "rpc/h2_guard.h"
#include "rpc/work.h"

enum {
    CONN_OUT_HIGH = 256 * 1024, /* bytes in the socket's output buffer; above it we wait */
    CONN_OUT_LOW = 64 * 1024,
    CONN_IN_MAX = 32 * 1024 * 1024,  /* half-received messages of all calls of a connection */
    CONN_STREAM_WINDOW = 512 * 1024, /* what a paused call may still be sent */
    CONN_WINDOW = 4 * 1024 * 1024,
    CONN_QUEUE_MAX = 1000, /* frames a peer that does not read may make us queue */
};

enum conn_state {
    CONN_OPENING,
    CONN_GREETING,
    CONN_OPEN,
    CONN_GOING,
    CONN_FLUSHING,
    CONN_CLOSED,
};

/* How long a peer may say nothing. */
struct conn_patience {
    uint64_t handshake_ns;  /* from the start to SETTINGS; a slow peer holds an fd no longer */
    uint64_t ping_after_ns; /* silence before we ask whether it lives */
    uint64_t ping_wait_ns;  /* and after that */
};

struct rpc_conn;
struct conn_io; /* the libevent half, in conn_io.c */

struct conn_role {
    bool is_server;
    /* A request's headers begin: make its call (server).  NULL refuses the stream. */
    struct rpc_call *(*begin)(struct rpc_conn *conn, int32_t stream_id);
    void (*header)(struct rpc_call *call, const char *name, size_t name_len, const char *value,
                   size_t value_len);
    /* A header block is complete. */
    void (*headers)(struct rpc_call *call, bool trailers, bool end_stream);
    /* The stream is gone, with this HTTP/2 error (0: it ended well). */
    void (*closed)(struct rpc_call *call, uint32_t h2_error);
    /* The connection is gone under the call. */
    void (*lost)(struct rpc_call *call, const struct cl_err *why);
    void (*conn_up)(struct rpc_conn *conn);
    /* The peer said GOAWAY; no new calls here. */
    void (*conn_going)(struct rpc_conn *conn);
    void (*conn_gone)(struct rpc_conn *conn, const struct cl_err *why);
};

struct rpc_conn {
    struct cl_loop *loop;                 /* borrowed: the owner's */
    struct rpc_work *work;                /* borrowed: the owner's */
    const struct conn_role *role;         /* borrowed: static */
    void *owner;                          /* borrowed: struct rpc_server or rpc_channel */
    const struct conn_patience *patience; /* borrowed: static */
    struct conn_io *io;                   /* owned */
    nghttp2_session *session;             /* owned; NULL until the transport is up */
    struct cl_list link;                  /* in the owner's list */
    struct cl_list calls;                 /* struct rpc_call.link, in the order they began */
    size_t n_calls;
    size_t in_bytes; /* received and not handed over, all calls */
    struct rpc_work_item work_item;
    struct cl_grave grave;
    struct rpc_peer peer;
    enum conn_state state;
    bool is_tls;
    bool receiving;               /* inside nghttp2_session_mem_recv */
    bool drain_sent, drain_acked; /* the two steps of a graceful GOAWAY */
    bool doomed;                  /* to be closed by the work queue, for `why` */
    uint64_t begun_ns;            /* when it was accepted, or begun to connect */
    uint64_t state_ns;            /* when the state began */
    uint64_t heard_ns;            /* last byte from the peer */
    uint64_t idle_ns;             /* since when it has no calls */
    uint64_t ping_ns;             /* unanswered PING sent then, or 0 */
    struct h2_guard guard;
    struct cl_err why; /* what ended it */
};

extern const struct conn_patience conn_patience_usual;

struct conn_spec {
    struct cl_loop *loop;
    struct rpc_work *work;
    const struct conn_role *role;
    void *owner;
    const struct conn_patience *patience; /* static; NULL = conn_patience_usual */
    int fd;                               /* accepted socket, taken over; or -1: connect to addr */
    const struct sockaddr_storage *addr;
    socklen_t addr_len;
    const char *name; /* of the peer at addr, in words about it; NULL = its address */
    SSL *ssl;         /* taken over; NULL = plain */
    int listener;
};

/* Start; takes over fd and ssl also when it fails. */
int conn_new(const struct conn_spec *spec, struct rpc_conn **ret_conn, struct cl_err *err) CL_MUST;
/* Drop it now.  Calls hear `lost`, the owner `conn_gone`; memory goes when the turn ends. */
void conn_close(struct rpc_conn *conn, const struct cl_err *why);
/* Write what there is, later in this turn. */
void conn_kick(struct rpc_conn *conn);
/* Say GOAWAY with this error and text, flush, then close. */
void conn_expel(struct rpc_conn *conn, uint32_t h2_error, const char *text);
/* Graceful: first GOAWAY now, the second a round trip later, close when no call is left. */
void conn_drain(struct rpc_conn *conn);
/* Bytes that the kernel has not taken yet. */
bool conn_has_output(const struct rpc_conn *conn);
/* Every few seconds: timeouts, keep-alive, stalled calls. */
void conn_tick(struct rpc_conn *conn, uint64_t now_ns);
/* Put the call on the connection's list, and take it off. */
void conn_link_call(struct rpc_conn *conn, struct rpc_call *call);
void conn_unlink_call(struct rpc_call *call);

/* --- the session half (conn_h2.c) calls the transport half (conn_io.c), and the reverse ---------
 */

/* The transport is up: make the session and send SETTINGS. */
int conn_h2_start(struct rpc_conn *conn, struct cl_err *err) CL_MUST;
/* Bytes from the peer. */
void conn_h2_receive(struct rpc_conn *conn, const uint8_t *data, size_t n);
void conn_set_state(struct rpc_conn *conn, enum conn_state state);
/* Append to the output now, at a frame boundary. */
void conn_io_write(struct rpc_conn *conn, const void *data, size_t n);

#endif
