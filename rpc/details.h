/* rpc/details.h - an error object to and from google.rpc.Status (grpc-status-details-bin).
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_RPC_DETAILS_H
#define CL_RPC_DETAILS_H

#include "base/buf.h"
#include "base/err.h"

/* Append the packed Status: ErrorInfo always, RetryInfo when retry_ms, QuotaFailure for RATE,
 * QUOTA and QUEUE. */
int details_encode(const struct cl_err *what, struct cl_buf *out, struct cl_err *err) CL_MUST;

/* Rebuild an error from what a server sent: `status` and `message` from the trailers, details may
 * be empty or hostile (then they are ignored). */
void details_decode(int status, const char *message, const uint8_t *details, size_t n,
                    struct cl_err *ret_err);

#endif
