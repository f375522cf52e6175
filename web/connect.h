/* web/connect.h - the Connect protocol's bytes: envelopes and errors.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  connectrpc.com/docs/protocol.
 */
#ifndef CL_WEB_CONNECT_H
#define CL_WEB_CONNECT_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { CONNECT_HEAD = 5, CONNECT_END = 2 };

/* The first message of what is left of a request, which is not empty; *rest and *n move behind it.
 * INVALID unless it is whole, not compressed. */
int connect_next(const char **rest, size_t *n, const char **ret_message, size_t *ret_n,
                 struct cl_err *err) CL_MUST;
/* The one message of a request to a method that streams its answers alone; INVALID unless it is
 * exactly one. */
int connect_open(const char *body, size_t n, const char **ret_message, size_t *ret_n,
                 struct cl_err *err) CL_MUST;
void connect_head(uint8_t head[static CONNECT_HEAD], uint8_t flags, uint32_t n);
/* "not_found": the name of our code. */
const char *connect_code(enum cl_code code);
/* The HTTP status of an error of a method with one answer. */
int connect_http(enum cl_code code);
/* {"code": ..., "message": ..., "details": [...]}: ErrorInfo, and RetryInfo and QuotaFailure where
 * rpc/details.h has them. */
json_t *connect_error(const struct cl_err *err);

#endif
