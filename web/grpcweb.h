/* web/grpcweb.h - gRPC-Web's bytes: the status behind the messages, and its text form.
 *
 * Messages are in envelopes as Connect's (web/connect.h).
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  grpc/doc/PROTOCOL-WEB.md.
 */
#ifndef CL_WEB_GRPCWEB_H
#define CL_WEB_GRPCWEB_H

#include "base/buf.h"

enum { GRPCWEB_TRAILER = 0x80 /* flag of the envelope with the status */ };

/* Append grpc-status, grpc-message and, where rpc/details.h has some, grpc-status-details-bin, a
 * line each; why == NULL is success. */
int grpcweb_status(const struct cl_err *why, struct cl_buf *out, struct cl_err *err) CL_MUST;

/* Append what base64 says, in one piece or several, each with its padding; INVALID. */
int grpcweb_text_read(const char *text, size_t n, struct cl_buf *out, struct cl_err *err) CL_MUST;
/* Append the bytes as one such piece. */
int grpcweb_text_write(const void *bytes, size_t n, struct cl_buf *out, struct cl_err *err) CL_MUST;

#endif
