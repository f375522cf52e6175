/* web/server.h - Cloche's services over plain HTTP, and the dashboard that a browser makes of them:
 * what an HTTP listener feeds requests to.
 *
 * POST /cloche.v1.SERVICE/METHOD with one message, as JSON or protobuf, is one gRPC call with the
 * caller's own credential.  That is the Connect protocol, or gRPC-Web; a method that streams its
 * answers also streams them as lines of JSON, for clients without a library.
 *
 * Owns:    the calls in flight.
 * Borrows: the loop, the pool, the texts of its configuration.
 * Thread:  the loop's.
 * Source:  connectrpc.com/docs/protocol; grpc/doc/PROTOCOL-WEB.md.
 */
#ifndef CL_WEB_SERVER_H
#define CL_WEB_SERVER_H

#include "base/loop.h"
#include "rpc/pool.h"
#include "web/answer.h"

enum {
    WEB_CALLS_MAX = 1024,      /* in flight: memory of their streams */
    WEB_CALLS_OF_KEY = 256,    /* so that one key cannot take all of them */
    WEB_MESSAGES_MAX = 1024,   /* of one request: work of a loop that others wait for */
    WEB_OUT_HIGH = 256 * 1024, /* of a stream: above it the scheduler is not read */
    WEB_ANSWER_S = 60,         /* for one answer, unless the client says */
    WEB_STREAM_S = 24 * 3600,  /* the longest that anything may take */
};

struct web_server;
struct web_server_conf {
    struct cl_loop *loop;
    struct rpc_pool *pool;
    const char *ports; /* where ports of sandboxes are, as mcp/port_url.h wants it; "" = nowhere */
};
int web_server_new(const struct web_server_conf *conf, struct web_server **ret_server,
                   struct cl_err *err) CL_MUST;
/* Calls in flight end without an answer.  NULL is a no-op. */
void web_server_free(struct web_server *s);
size_t web_server_calls(const struct web_server *s);

/* Is there anything of this at the path? */
bool web_serves(const char *path);

/* All texts borrowed until the end of the answer, or until the transport leaves; NULL = absent. */
struct web_request {
    bool is_post, is_get;
    const char *path;
    const char *authorization;
    const char *content_type, *content_encoding;
    const char *connect_timeout; /* Connect-Timeout-Ms */
    const char *grpc_timeout;    /* of gRPC-Web */
    const char *traceparent;     /* passed on when it is one */
    const char *body;
    size_t n;
    bool can_stream;
};

struct web_call;
/* TOOBIG when too many are in flight. */
int web_call_new(struct web_server *s, const struct web_request *in,
                 const struct web_transport *transport, void *arg, struct web_call **ret_call,
                 struct cl_err *err) CL_MUST;
/* Go; the answer may come before this returns. */
void web_call_run(struct web_call *c);
/* The client is gone: so is its gRPC call. */
void web_call_leave(struct web_call *c);

#endif
