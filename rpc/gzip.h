/* rpc/gzip.h - gzip of single messages, with a bound on what inflating may produce.
 *
 * Owns:    nothing; results are the caller's, from cl_zalloc.
 * Thread:  any.  Pure.
 */
#ifndef CL_RPC_GZIP_H
#define CL_RPC_GZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Compress into `out` (appended).  TOOBIG when the result does not fit it. */
int gzip_deflate(const uint8_t *in, size_t n, struct cl_buf *out, struct cl_err *err) CL_MUST;
/* Inflate one gzip member into `out`; out->max bounds the result: TOOBIG beyond it (a bomb costs
 * us no more than one plain message).  PEER when the data is not gzip or is cut. */
int gzip_inflate(const uint8_t *in, size_t n, struct cl_buf *out, struct cl_err *err) CL_MUST;

#endif
