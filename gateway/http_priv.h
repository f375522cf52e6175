/* gateway/http_priv.h - a connection, the two protocols that it may speak (engines), and the
 * exchange: one request and its answer, the same for both.
 *
 *   http_io.c      listener and server         http1_io.c   HTTP/1.1 (llhttp)
 *   conn_io.c      a connection: which one?    http2_io.c   HTTP/2 (nghttp2), many exchanges
 *   exchange_io.c  request -> MCP call -> answer or event stream
 *   api_io.c       request -> call of E2B's API, or of our own -> answer or stream
 *   port_io.c      request -> a port of a sandbox, which answers it itself
 *
 * Thread:  the loop's.
 */
#ifndef CL_GATEWAY_HTTP_PRIV_H
#define CL_GATEWAY_HTTP_PRIV_H

#include <sys/uio.h>

#include "gateway/http_io.h"

struct bufferevent;
struct evbuffer;
struct evconnlistener;

struct http_server {
    struct http_conf conf;
    struct evconnlistener *listener; /* owned; NULL = not (or no more) listening */
    struct cl_list conns;            /* struct http_conn.link */
    size_t n_conns;
    size_t n_ports; /* connections to guests */
    bool draining;
};

/* --- exchanges --------------------------------------------------------------------------------
 *
 *   IDLE --request--> WAITING --reply--> IDLE
 *                        | notification, or STREAM_AFTER_NS passed
 *                        v
 *                    STREAMING --reply (last event)--> IDLE
 *
 * When the client goes in WAITING or STREAMING, that is its leave (mcp_call_leave()).
 */

struct answer {
    int status;
    const char *type; /* NULL = no body */
    const char *data;
    size_t n;
    const char *session;      /* Mcp-Session-Id; NULL = none */
    const char *authenticate; /* WWW-Authenticate; NULL = none */
    const char *next_token;   /* X-Next-Token; NULL = none */
    bool is_page;             /* see struct web_reply */
    const char *origin;       /* whose pages may read it (the exchange fills it in); NULL = none */
    bool is_preflight;
    const char *may_send; /* of a preflight: the fields that it asked for; NULL = none */
};

/* What pages of other origins may read, do, and for how long they need not ask again. */
#define HTTP_MAY_READ "Mcp-Session-Id, WWW-Authenticate, X-Next-Token"
#define HTTP_MAY_CALL "GET, POST, PUT, DELETE"
#define HTTP_MAY_FOR_S "7200" /* browsers take no more */

struct exchange;
/* How a protocol says it.  The exchange is IDLE when `answer`, `end_stream` and `cut_stream` are
 * called, and is not touched after them. */
struct exchange_wire {
    void (*answer)(struct exchange *x, const struct answer *a);
    void (*begin_stream)(struct exchange *x, const char *type);
    void (*send)(struct exchange *x, struct iovec *pieces, int n);
    void (*end_stream)(struct exchange *x);
    /* So that the client knows that it has not all. */
    void (*cut_stream)(struct exchange *x);
    /* Bytes that wait for the client; progress above HTTP_STREAM_QUEUE is dropped. */
    size_t (*waiting)(struct exchange *x);
    /* The body of an upload is wanted (again): exchange_feed() what there is. */
    void (*feed)(struct exchange *x);
};

enum exchange_state { EXCHANGE_IDLE, EXCHANGE_WAITING, EXCHANGE_STREAMING };

struct exchange {
    struct http_server *server;       /* borrowed */
    const struct exchange_wire *wire; /* borrowed: static */
    struct mcp_call *call;            /* in flight; NULL = none */
    struct e2b_call *e2b;             /* likewise; its streams are of its own making */
    struct web_call *web;             /* likewise */
    struct mcp_headers headers;       /* borrowed from the request */
    const char *origin;               /* likewise: a page's, which may read what is said; or NULL */
    struct cl_timer timer;
    enum exchange_state state;
    bool takes_stream;
    bool is_fed; /* by the caller, further up */
};

int exchange_init(struct exchange *x, struct http_server *s, const struct exchange_wire *wire,
                  struct cl_err *err) CL_MUST;
/* Is it an upload, whose body is handed on as it comes?  Then exchange_take() it at its head. */
bool exchange_streams(const struct exchange *x, const struct http_request *r);
/* Answer the request, now or later; it must stay until the answer or the leave. */
void exchange_take(struct exchange *x, const struct http_request *r);
void exchange_refuse(struct exchange *x, int status, const char *text);
/* Of an upload: hand on what came of the body, as far as it is wanted: how many bytes were taken.
 * is_last: nothing comes behind them.  The exchange may be IDLE after it. */
size_t exchange_feed(struct exchange *x, const void *data, size_t n, bool is_last);
bool exchange_wants_body(const struct exchange *x);
/* api_io.c */
void exchange_take_e2b(struct exchange *x, const struct http_request *r);
void exchange_take_web(struct exchange *x, const struct http_request *r);
/* For api_io.c: the exchange's answer, and its streams. */
void exchange_answer(struct exchange *x, const struct answer *a);
void exchange_begin_raw(struct exchange *x, const char *type);
void exchange_end_raw(struct exchange *x);
void exchange_cut_raw(struct exchange *x);
/* The client is gone; nothing more is said.  May come twice. */
void exchange_leave(struct exchange *x);
void exchange_fini(struct exchange *x);

/* --- connections ------------------------------------------------------------------------------ */

struct http_conn {
    struct http_server *server; /* borrowed */
    struct cl_list link;
    struct cl_grave grave;
    struct bufferevent *bev;     /* owned */
    const struct engine *engine; /* borrowed: static; NULL until the protocol is known */
    void *state;                 /* owned: the engine's */
    const struct engine *past;   /* which passed the connection on; NULL = none did */
    void *past_state;            /* owned: that one's */
    struct cl_timer timer;       /* the engine's, once there is one; runs from the accept on */
    bool gone;
};

struct engine {
    int (*open)(struct http_conn *k, struct cl_err *err);
    void (*readable)(struct http_conn *k);
    void (*written)(struct http_conn *k);
    void (*timer)(struct http_conn *k);
    void (*drain)(struct http_conn *k);
    /* The client sends no more, but may still read: true = go on.  NULL: never. */
    bool (*eof)(struct http_conn *k);
    /* The connection is gone: leave the calls. */
    void (*leave)(struct http_conn *k);
    void (*free)(struct http_conn *k);
};

extern const struct engine http1_engine, http2_engine, port_engine;

int http_conn_new(struct http_server *s, int fd, struct cl_err *err) CL_MUST;
/* Close now; the memory goes at the end of the turn. */
void http_conn_close(struct http_conn *k);
void http_conn_drain(struct http_conn *k);
/* The rest of the connection, from the first byte that waits, is another engine's; the caller has
 * nothing open, and is the last of its turn.  Once in a connection's life. */
void http_conn_pass(struct http_conn *k, const struct engine *engine);
/* Say that we send no more: what was written has left. */
void http_conn_fin(struct http_conn *k);
struct evbuffer *http_conn_in(const struct http_conn *k);
struct evbuffer *http_conn_out(const struct http_conn *k);

#endif
