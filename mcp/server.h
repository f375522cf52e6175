/* mcp/server.h - an MCP server in front of one scheduler: what every transport (HTTP, stdio) feeds
 * messages to.
 *
 * It decides nothing about who may do what: each action is a gRPC call that carries the caller's
 * own credential.  What it adds is that handles (sandboxes) belong to the principal that made them.
 *
 * Owns:    the calls in flight, small caches (who a credential is, whose a sandbox is, the default
 *          sandbox of a session); none of them is needed for correctness, all are bounded.
 * Borrows: the loop, the channel, the metrics, `extra`.
 * Thread:  the loop's.
 * Source:  MCP 2026-07-28 and 2025-03-26 ... 2025-11-25.
 */
#ifndef CL_MCP_SERVER_H
#define CL_MCP_SERVER_H

#include "base/loop.h"
#include "mcp/message.h"
#include "mcp/session.h"
#include "observability/metrics.h"
#include "rpc/pool.h"

enum {
    MCP_CALLS_MAX = 1024,         /* in flight: memory of their results and streams */
    MCP_CALLS_OF_PRINCIPAL = 128, /* so that one key cannot take all of them */
    MCP_CREDENTIAL_MAX = 4096,    /* bytes of an Authorization header */
};

struct mcp_server;
struct mcp_extra; /* mcp/tool.h */

struct mcp_server_conf {
    struct cl_loop *loop;
    struct rpc_channel *channel; /* of stdio, whose credential it has; else NULL */
    struct rpc_pool *pool;       /* of those whose calls carry theirs; else NULL */
    struct metrics *metrics;     /* may be NULL */
    uint8_t secret[MCP_SECRET];
    const char *template_name; /* of sandboxes that calls make by themselves */
    uint64_t ttl_ns;           /* their idle life */
    bool aliases;              /* also tools by the names of other systems (mcp/alias.h) */
    /* Of the gateway that serves ports of sandboxes, as port_url() wants it; NULL = none is known.
     */
    const char *ports_domain;
    const char *challenge;         /* more parameters of WWW-Authenticate; NULL = none */
    const struct mcp_extra *extra; /* NULL in the product */
};

int mcp_server_new(const struct mcp_server_conf *conf, struct mcp_server **ret_server,
                   struct cl_err *err) CL_MUST;
/* Calls in flight end with an empty reply.  NULL is a no-op. */
void mcp_server_free(struct mcp_server *s);
/* What lasts by itself ends in order: streams of subscriptions/listen. */
void mcp_server_drain(struct mcp_server *s);
size_t mcp_server_calls(const struct mcp_server *s);
/* End the default sandbox of a process that speaks stdio; `done` runs when that was answered, or
 * at once when there is none. */
void mcp_server_close_stdio(struct mcp_server *s, void (*done)(void *arg), void *arg);

/* --- one message of a client ------------------------------------------------------------------ */

struct mcp_reply {
    int http;                 /* status */
    const json_t *body;       /* NULL = none; borrowed until the callback returns */
    const char *session;      /* a new session id, or NULL */
    const char *authenticate; /* value of WWW-Authenticate, or NULL */
};

/* How a transport answers.  `reply` comes exactly once, unless the transport leaves before; the
 * call is dead after it. */
struct mcp_transport {
    void (*reply)(void *arg, const struct mcp_reply *reply);
    void (*notify)(void *arg, const json_t *message);
};

struct mcp_incoming {
    const char *text; /* borrowed until the reply, or until the transport leaves */
    size_t n;
    const char *credential;            /* "Bearer ..."; NULL = none, or the channel's own (stdio) */
    const struct mcp_headers *headers; /* NULL = stdio; borrowed like text */
    bool ends_session;                 /* DELETE: no text */
    int http_refusal;      /* what HTTP finds wrong, said only to who may know; 0 = fine */
    const char *http_text; /* static; why */
};

struct mcp_call;
/* TOOBIG when too many are in flight. */
int mcp_call_new(struct mcp_server *s, const struct mcp_incoming *in,
                 const struct mcp_transport *transport, void *arg, struct mcp_call **ret_call,
                 struct cl_err *err) CL_MUST;
/* Go; the reply may come before this returns. */
void mcp_call_run(struct mcp_call *c);
/* The client is gone.  Modern: what it asked for is cancelled.  Legacy: it goes on to its end
 * (MCP 2025-11-25: a disconnection is no cancellation). */
void mcp_call_leave(struct mcp_call *c);

#endif
