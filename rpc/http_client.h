/* rpc/http_client.h - HTTP/1.1 requests to one place that the operator named: a token issuer's
 * keys, a collector of traces.
 *
 * Owns:    the connection of the request under way, the TLS context, the resolver.
 * Limits:  one request at a time; an answer of `answer_max` bytes, its head of 16 KiB, `limit_s`
 *          in all.
 * Thread:  the loop's.
 * With https the server's certificate and name are checked.  Redirects are not followed: this place
 * and no other.  An answer comes in a later turn of the loop, and the next request may be made in
 * one after that (http_client_is_busy()).
 */
#ifndef CL_RPC_HTTP_CLIENT_H
#define CL_RPC_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"

struct http_client;

struct http_client_conf {
    const char *url;    /* http[s]://HOST[:PORT][/PATH][?QUERY]; copied */
    const char *ca;     /* PEM file of whom to believe; "" = the system's */
    bool only_loopback; /* http:// to another host is refused */
};
/* INVALID for what is no such URL, and for a `ca` without certificates. */
int http_client_new(struct cl_loop *loop, const struct http_client_conf *conf,
                    struct http_client **ret_client, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Who waits is not told. */
void http_client_free(struct http_client *c);
CL_DEFINE_AUTO(struct http_client, http_client_free)

struct http_header {
    const char *name, *value;
};
struct http_ask {
    const char *body; /* NULL = GET, else POST; copied */
    size_t n;
    const struct http_header *headers; /* besides Host, Connection and Content-Length; copied */
    size_t n_headers;
    size_t answer_max;
    unsigned limit_s;
};
struct http_said {
    int status;
    const char *body;
    size_t n;
    unsigned retry_after_s; /* of its Retry-After, in seconds; 0 = none, or a date */
};
/* What was said, or UNAVAILABLE why nothing was; both live until it returns. */
typedef void http_said_fn(void *arg, const struct http_said *said, const struct cl_err *err);
/* fn is called once, unless this fails. */
int http_client_ask(struct http_client *c, const struct http_ask *ask, http_said_fn *fn, void *arg,
                    struct cl_err *err) CL_MUST;
bool http_client_is_busy(const struct http_client *c);

#endif
