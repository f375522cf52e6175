/* e2b/server.h - E2B's API in front of one scheduler: what an HTTP listener feeds requests to, so
 * that E2B's own SDKs work unmodified (E2B_API_URL and E2B_SANDBOX_URL name the gateway).
 *
 * Three surfaces on one port: the control plane (/sandboxes), envd of each sandbox (Connect RPCs in
 * JSON, /files), and the code interpreter (/execute, /contexts).  Each request is one or a few gRPC
 * calls with the caller's own credential; nothing is remembered here between two requests but the
 * watchers of folders that a client polls.
 *
 * Owns:    the calls in flight, the watchers.
 * Borrows: the loop, the pool.
 * Thread:  the loop's.
 * Source:  github.com/e2b-dev/E2B, spec/openapi.yml and spec/envd; the SDKs e2b 2.63 (Python) and
 *          2.51 (JavaScript); connectrpc.com/docs/protocol.
 */
#ifndef CL_E2B_SERVER_H
#define CL_E2B_SERVER_H

#include "base/loop.h"
#include "e2b/token.h"
#include "rpc/pool.h"
#include "web/answer.h"

enum {
    E2B_CALLS_MAX = 1024,   /* in flight: memory of their streams */
    E2B_CALLS_OF_KEY = 256, /* so that one key cannot take all of them */
    E2B_UPLOADS_MAX = 512,  /* of the calls: memory of what the scheduler has not taken yet */
    E2B_CREDENTIAL_MAX = 4096,
};

struct e2b_server;
struct e2b_server_conf {
    struct cl_loop *loop;
    struct rpc_pool *pool;
    uint8_t secret[E2B_SECRET];
    const char *template_name; /* what E2B calls "base" */
    bool is_https;             /* clients reach us so */
    const char *build_net;     /* what builds of templates may reach: rules with commas; "" */
    const char *ports;         /* names PORT-SANDBOX behind it lead to ports; NULL = none does */
};

int e2b_server_new(const struct e2b_server_conf *conf, struct e2b_server **ret_server,
                   struct cl_err *err) CL_MUST;
/* Calls in flight end without an answer.  NULL is a no-op. */
void e2b_server_free(struct e2b_server *s);
size_t e2b_server_calls(const struct e2b_server *s);

/* Is there anything of E2B's at this path? */
bool e2b_serves(const char *path);

/* --- one request ------------------------------------------------------------------------------ */

enum e2b_verb { E2B_GET, E2B_POST, E2B_PUT, E2B_DELETE, E2B_OTHER_VERB };

/* All texts borrowed until the end of the answer, or until the transport leaves; NULL = absent. */
struct e2b_request {
    enum e2b_verb verb;
    const char *path;
    const char *query;         /* behind the '?', as it came */
    const char *host;          /* the gateway's, as the client knows it */
    const char *api_key;       /* X-API-Key */
    const char *authorization; /* a bearer; of envd: Basic, whose name is the user in the guest */
    const char *access_token;  /* X-Access-Token, or E2B-Traffic-Access-Token */
    const char *sandbox_id, *sandbox_port;   /* E2b-Sandbox-Id, -Port */
    const char *connect_timeout, *keepalive; /* Connect-Timeout-Ms, Keepalive-Ping-Interval */
    const char *content_type, *content_encoding;
    const char *idempotency_key;
    const char *traceparent; /* passed on when it is one */
    const char *body;        /* whole; of an upload NULL: e2b_call_body() hands it over */
    size_t n;
    bool can_stream;
};

struct e2b_call;
/* TOOBIG when too many are in flight. */
int e2b_call_new(struct e2b_server *s, const struct e2b_request *in,
                 const struct web_transport *transport, void *arg, struct e2b_call **ret_call,
                 struct cl_err *err) CL_MUST;
/* Go; the answer may come before this returns. */
void e2b_call_run(struct e2b_call *c);
/* The client is gone.  Commands that it started go on, as E2B's do. */
void e2b_call_leave(struct e2b_call *c);

/* --- uploads ---------------------------------------------------------------------------------- */

/* Does such a request hand its body over as it comes?  Its call begins with the head. */
bool e2b_streams_body(enum e2b_verb verb, const char *path);
/* Not while the scheduler is asked, or has not taken what there was. */
bool e2b_call_wants_body(const struct e2b_call *c);
/* Only while it is wanted.  How many of the bytes it took; the answer may come before this returns.
 */
size_t e2b_call_body(struct e2b_call *c, const void *data, size_t n);
/* That was all; likewise.  A call that never hears this changes nothing of the file it is at. */
void e2b_call_body_end(struct e2b_call *c);

#endif
