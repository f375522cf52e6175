/* gateway/http2.h - one HTTP/2 request out of its fields and DATA, into the same struct
 * http_request as HTTP/1.1's, within the same limits.
 *
 * nghttp2 has decoded the fields and checked their order (RFC 9113 section 8.3); here is what only
 * we can check.
 * Owns:    the text and the body of the request, until http2_request_fini().
 * Thread:  its connection's.  Pure.
 * Source:  RFC 9113 sections 3.4, 8.1 and 8.3.
 */
#ifndef CL_GATEWAY_HTTP2_H
#define CL_GATEWAY_HTTP2_H

#include "gateway/http.h"

/* --- which protocol does a plaintext connection speak? ---------------------------------------- */

enum { HTTP2_PREFACE = 24 };
enum http2_sniff { SNIFF_MORE, SNIFF_HTTP2, SNIFF_HTTP1 };
/* From its first bytes; 24 are always enough. */
enum http2_sniff http2_sniff(const void *data, size_t n);

/* --- a request -------------------------------------------------------------------------------- */

struct http2_request {
    struct http_request request;
    struct cl_buf head;          /* known values, each with a NUL */
    struct cl_buf body;          /* HTTP_BODY_MAX; of one that is streamed: what is not consumed */
    size_t head_bytes, n_fields; /* of everything, known or not, trailers too */
    size_t at[FIELD_NR];         /* where a value begins in head; SIZE_MAX = absent */
    size_t query_at;             /* likewise */
    int status;                  /* 0, or what to answer with: 400, 413, 414 or 431 */
    bool has_authority;          /* FIELD_HOST came from :authority */
    bool has_host;
    bool is_long; /* over HTTP_BODY_MAX, by its content-length */
};

void http2_request_init(struct http2_request *r);
/* A field of the head; ignored once there is a status. */
void http2_request_field(struct http2_request *r, const char *name, size_t n, const char *value,
                         size_t value_n);
/* A field of the trailer: counted, not looked at. */
void http2_request_trailer(struct http2_request *r, size_t n, size_t value_n);
/* A field that nghttp2 would leave out, because its syntax is wrong. */
void http2_request_bad_field(struct http2_request *r);
/* The head is complete; 0, or the status to refuse with. */
int http2_request_head_done(struct http2_request *r);
/* The body is gathered, unless it is streamed: 0, or the status to refuse with. */
int http2_request_gather(struct http2_request *r);
/* 0, or the status to refuse with. */
int http2_request_body(struct http2_request *r, const void *data, size_t n);
/* The request, once its last byte came; borrowed until the fini. */
const struct http_request *http2_request_done(struct http2_request *r);
/* The body is not wanted (any more). */
void http2_request_drop_body(struct http2_request *r);
void http2_request_fini(struct http2_request *r);

#endif
