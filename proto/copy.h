/* proto/copy.h - deep copies of protobuf messages, on the heap.  Pure. */
#ifndef CL_PROTO_COPY_H
#define CL_PROTO_COPY_H

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "base/util.h"

/* The caller owns *ret_copy and frees it with pb_free(). */
int pb_copy(const ProtobufCMessage *msg, ProtobufCMessage **ret_copy, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void pb_free(ProtobufCMessage *msg);

#endif
