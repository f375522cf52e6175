/* gateway/http2_priv.h - an HTTP/2 connection and its streams.
 *
 * Owns:    the session; the streams, each until nghttp2 closes it or the connection goes.
 * Thread:  the loop's.
 */
#ifndef CL_GATEWAY_HTTP2_PRIV_H
#define CL_GATEWAY_HTTP2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "gateway/http2.h"
#include "gateway/http_priv.h"
#include "rpc/h2_guard.h"

enum {
    HTTP2_STREAMS_MAX = 100,             /* calls at once, from one connection */
    HTTP2_STREAM_WINDOW = 256 * 1024,    /* and so much of an upload waits for the scheduler */
    HTTP2_WINDOW = 4 * 1024 * 1024,      /* what may be on its way to us */
    HTTP2_BODIES_MAX = 16 * 1024 * 1024, /* held for all streams: else 100 bodies of 8 MiB */
    HTTP2_OUT_HIGH = 256 * 1024,         /* bytes in the socket's output buffer; above it we wait */
    HTTP2_OUT_LOW = 64 * 1024,
    HTTP2_QUEUE_MAX = 1000, /* frames a peer that does not read may make us queue */
};

enum http2_state { HTTP2_OPEN, HTTP2_DRAINING, HTTP2_FLUSHING };

struct http2 {
    struct http_conn *conn;   /* borrowed: its owner */
    nghttp2_session *session; /* owned */
    struct cl_list streams;   /* struct http2_stream.link */
    size_t n_streams;
    size_t body_bytes; /* of requests, all streams; of uploads what waits */
    size_t out_bytes;  /* of answers that nghttp2 has not taken, all streams */
    struct h2_guard guard;
    enum http2_state state;
    uint64_t state_ns; /* when the state began */
    uint64_t idle_ns;  /* since when there is no stream */
    bool had_streams;
    bool drain_done; /* the second GOAWAY is said */
    bool fin_sent;
};

struct http2_stream {
    struct http2 *owner; /* borrowed: outlives it */
    struct cl_list link;
    struct cl_grave grave;
    int32_t id;
    struct http2_request request;
    struct exchange exchange;
    struct evbuffer *out; /* owned: what nghttp2 has not taken yet */
    uint64_t begun_ns;
    uint64_t moved_ns; /* when nghttp2 last took something, or there was nothing to take */
    uint64_t fed_ns;   /* of an upload: when its body last came, or was not wanted */
    bool streams;      /* an upload */
    bool complete;     /* the request has ended */
    bool answered;     /* the head of an answer is said */
    bool ended;        /* and its last byte is in `out` */
    bool reset;        /* by us, for its time limit */
};

/* NULL: out of memory. */
struct http2_stream *http2_stream_new(struct http2 *h, int32_t id);
/* What the client sends: head, DATA, END_STREAM. */
void http2_stream_head(struct http2_stream *s, bool end);
void http2_stream_body(struct http2_stream *s, const uint8_t *data, size_t n);
void http2_stream_complete(struct http2_stream *s);
/* Time limits. */
void http2_stream_tick(struct http2_stream *s, uint64_t now_ns);
/* It is gone, whoever ended it: leave the call.  The memory goes at the end of the turn. */
void http2_stream_close(struct http2_stream *s);

/* Write what there is, later in this turn. */
void http2_kick(struct http2 *h);

#endif
