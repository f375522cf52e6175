/* proto/unpack.h - the only door from hostile bytes to a protobuf message.
 *
 * protobuf-c alone unpacks a 4 MiB message into 239 MiB and accepts bad UTF-8 and NUL in strings
 * (measured): here memory comes from an arena with a cap, repeated fields have a count limit, and
 * every string is checked against its descriptor.  Pure: no I/O, no log.
 */
#ifndef CL_PROTO_UNPACK_H
#define CL_PROTO_UNPACK_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

enum {
    PB_ARENA_FACTOR = 4,     /* default arena cap = factor * the method's message limit */
    PB_ELEMENTS_MAX = 65536, /* repeated elements in a whole message */
    PB_DEPTH_MAX = 16,       /* nesting; our message types are not recursive [gate] */
};

/* Unpack into the arena; *ret_msg dies with it.  INVALID names the field at fault; TOOBIG when
 * the arena cap or the element limit is reached. */
int pb_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t n,
              struct cl_arena *arena, const ProtobufCMessage **ret_msg, struct cl_err *err) CL_MUST;

#endif
