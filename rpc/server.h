/* rpc/server.h - a gRPC server on HTTP/2: h2c with prior knowledge on unix sockets and loopback,
 * TLS 1.3 with ALPN h2 elsewhere.
 *
 * Owns:    its listeners, connections and calls.
 * Borrows: the method tables and service pointers (must outlive it), the SSL_CTX.
 * Thread:  its loop's.
 * Limits:  RPC_CONNECTIONS_MAX connections (more are refused at accept: without it a client could
 *          hold every fd); 100 concurrent streams each; floods of RST_STREAM, CONTINUATION, PING
 *          and SETTINGS end the connection with ENHANCE_YOUR_CALM.  A connection with calls that is
 *          silent for 60 s, and for 20 s after a PING, is lost; one without calls is not asked, and
 *          is sent away after 15 min.
 */
#ifndef CL_RPC_SERVER_H
#define CL_RPC_SERVER_H

#include <openssl/types.h>

#include "base/loop.h"
#include "rpc/call.h"

enum {
    RPC_CONNECTIONS_MAX = 4096,
    RPC_STREAMS_MAX = 100,
    RPC_BACKLOG = 512, /* connections that wait to be accepted */
};

struct rpc_server;

/* Told once a call, when it ends: for metrics and access logs.  grpc_status is final. */
typedef void rpc_observe_fn(void *arg, const struct rpc_call *call, int grpc_status,
                            uint64_t duration_ns);

int rpc_server_new(struct cl_loop *loop, struct rpc_server **ret_server,
                   struct cl_err *err) CL_MUST;
/* Closes all connections; every open call gets its on_end.  NULL is a no-op. */
void rpc_server_free(struct rpc_server *server);
void rpc_server_observe(struct rpc_server *server, rpc_observe_fn *fn, void *arg);

/* Serve `methods` (static) with `service` as their argument.  Methods of listeners other than
 * `listener` answer UNIMPLEMENTED; listener -1 = every one. */
int rpc_server_add(struct rpc_server *server, const struct rpc_method *methods, size_t n_methods,
                   void *service, int listener, struct cl_err *err) CL_MUST;
/* Take over a listening, non-blocking fd.  tls == NULL: h2c; else a reference is
 * taken.  `tag` shows in rpc_peer.listener. */
int rpc_server_listen(struct rpc_server *server, int fd, SSL_CTX *tls, int tag,
                      struct cl_err *err) CL_MUST;

/* As rpc_server_listen(), of a socket that is bound only: who connects is refused until
 * rpc_server_open(), which listens on all of these.  The queue of each: RPC_BACKLOG. */
int rpc_server_prepare(struct rpc_server *server, int fd, SSL_CTX *tls, int tag,
                       struct cl_err *err) CL_MUST;
int rpc_server_open(struct rpc_server *server, struct cl_err *err) CL_MUST;

/* New connections of the TLS listeners with this tag use `tls` from now on (a reference is taken);
 * open ones go on under the old one. */
void rpc_server_set_tls(struct rpc_server *server, int tag, SSL_CTX *tls);

/* grpc.health.v1: "" is the whole server.  Watchers are told. */
void rpc_server_set_health(struct rpc_server *server, const char *service, bool serving);
/* Serve grpc.reflection.v1 and v1alpha from a FileDescriptorSet (borrowed, static). */
int rpc_server_set_reflection(struct rpc_server *server, const void *descriptor_set, size_t n,
                              struct cl_err *err) CL_MUST;

/* Stop accepting, send the two-step GOAWAY, let calls finish; `done` runs when none is left but
 * those of methods that last. */
void rpc_server_drain(struct rpc_server *server, void (*done)(void *arg), void *arg);
size_t rpc_server_open_calls(const struct rpc_server *server);

#endif
