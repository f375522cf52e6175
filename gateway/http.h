/* gateway/http.h - one HTTP/1.1 request at a time, out of the bytes of a connection.
 *
 * llhttp parses, strictly; this collects what the gateway looks at, within limits, and refuses
 * what could be read in two ways: a header of ours that comes twice (but see http_again), a target
 * that is no path.
 * Owns:    the parser and the request's text and body, until the next http_parser_reset().
 * Thread:  its connection's.  Pure: bytes in, a request or a status out.
 * Source:  RFC 9112, RFC 9110.
 */
#ifndef CL_GATEWAY_HTTP_H
#define CL_GATEWAY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    HTTP_HEAD_MAX =
        16 * 1024, /* target, names and values: memory of a connection that says nothing */
    HTTP_FIELDS_MAX = 100,
    HTTP_BODY_MAX = 8 * 1024 * 1024, /* as MCP_JSON_MAX */
    HTTP_PATH_MAX = 256,
};

/* The header fields that we look at. */
enum http_field {
    FIELD_HOST,
    FIELD_ORIGIN,
    FIELD_AUTHORIZATION,
    FIELD_CONTENT_TYPE,
    FIELD_ACCEPT,
    FIELD_EXPECT,
    FIELD_MCP_VERSION,
    FIELD_MCP_METHOD,
    FIELD_MCP_NAME,
    FIELD_MCP_SESSION,
    FIELD_API_KEY,
    FIELD_ACCESS_TOKEN,
    FIELD_TRAFFIC_TOKEN,
    FIELD_SANDBOX_ID,
    FIELD_SANDBOX_PORT,
    FIELD_CONNECT_TIMEOUT,
    FIELD_GRPC_TIMEOUT,
    FIELD_KEEPALIVE,
    FIELD_CONTENT_ENCODING,
    FIELD_IDEMPOTENCY,
    FIELD_TRACEPARENT,
    FIELD_CORS_METHOD,
    FIELD_CORS_HEADERS,
    FIELD_NR
};

/* What a field means that comes again. */
enum http_again {
    AGAIN_LAST = 1, /* the last one counts */
    AGAIN_BAD,      /* 400: it is an attack on whoever reads the other one */
    AGAIN_NONE,     /* none of them does: the value is "" */
};

enum http_verb { VERB_OTHER, VERB_GET, VERB_POST, VERB_PUT, VERB_DELETE, VERB_OPTIONS };

struct http_request {
    enum http_verb verb;
    char path[HTTP_PATH_MAX];     /* without the query */
    const char *query;            /* borrowed from the parser; NULL = none */
    const char *fields[FIELD_NR]; /* borrowed from the parser; NULL = absent */
    const char *body;             /* borrowed likewise; NULL while it is streamed */
    size_t n;
    bool keep_alive;
    bool is_1_0;         /* no chunks */
    bool wants_continue; /* the client waits for 100 Continue before it sends the body */
};

/* What both versions of HTTP do alike.  Which field is this (FIELD_NR: none of ours), and what if
 * it comes again? */
enum http_field http_field_find(const char *name, size_t n, enum http_again *ret_again);
/* Has the value no control character but HTAB (RFC 9110 section 5.5)? */
bool http_value_is_clean(const char *at, size_t n);
/* The path of a target without its query; 0, or the status to answer with. */
int http_path_read(const char *target, size_t n, char path[static HTTP_PATH_MAX]);
/* The words behind a status that we answer with. */
const char *http_reason(int status);
/* What is behind its '?'; NULL = none. */
const char *http_query_find(const char *target, size_t n, size_t *ret_n);

enum http_step {
    STEP_MORE,     /* needs bytes */
    STEP_HEAD,     /* the head is there, in http_parser_request(): now http_parser_stream(), or the
                    * body is gathered */
    STEP_CONTINUE, /* it is, and the client waits for 100 Continue */
    STEP_DONE,     /* http_parser_request() is valid until the reset */
    STEP_BAD,      /* http_parser_status() says with what to answer; the connection must end */
};

struct http_parser;
int http_parser_new(struct http_parser **ret_parser, struct cl_err *err) CL_MUST;
void http_parser_free(struct http_parser *p);
/* Take bytes; *ret_used were looked at (fewer than n after STEP_DONE: the next request's).  After
 * STEP_HEAD and STEP_CONTINUE feed on, with 0 bytes if there are no more. */
enum http_step http_parser_feed(struct http_parser *p, const void *data, size_t n,
                                size_t *ret_used);
const struct http_request *http_parser_request(const struct http_parser *p);
/* The body may be of any length: whoever asked takes it from http_parser_body() while it comes, and
 * tells the client that waits to go on. */
void http_parser_stream(struct http_parser *p);
/* What came of it, and was not consumed. */
struct cl_buf *http_parser_body(struct http_parser *p);
/* 400, 413, 414, 431 or 505. */
int http_parser_status(const struct http_parser *p);
/* Has a request begun? */
bool http_parser_is_busy(const struct http_parser *p);
/* Ready for the next request of the connection. */
void http_parser_reset(struct http_parser *p);

#endif
