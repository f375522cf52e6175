/* proto/guest_frame.h - framing of the guest protocol: 4 bytes of little-endian length, then one
 * GuestFrame.  Pure: no I/O, no log.  Both the worker and the agent use it.
 *
 * Source: proto/cloche/v1/guest.proto, opening comment.
 */
#ifndef CL_PROTO_GUEST_FRAME_H
#define CL_PROTO_GUEST_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "cloche/v1/guest.pb-c.h"

enum {
    GUEST_PROTOCOL_MAJOR = 1,
    GUEST_PROTOCOL_MINOR = 2, /* 1: GuestClock; 2: GuestEvents */
    GUEST_FRAME_HEADER = 4,
    GUEST_FRAME_MAX = 65536,                 /* of the agent */
    GUEST_COMMAND_MAX = 1024 * 1024 + 65536, /* of the worker: an Exec carries argv and env */
    GUEST_DATA_MAX = 32768,                  /* bytes of one GuestData */
    GUEST_WINDOW_INITIAL = 262144,
    GUEST_ARENA_FACTOR = 4, /* arena for a frame, in frames */
};

/* Append one frame to buf.  TOOBIG when it would exceed max (one of the two above) or buf's limit.
 */
int guest_frame_pack(struct cl_buf *buf, const Cloche__V1__GuestFrame *frame, size_t max,
                     struct cl_err *err) CL_MUST;

/* Look at data[0..n): *ret_frame is NULL and *ret_used 0 when no whole frame is there yet;
 * otherwise the frame (in the arena) and how many bytes it took.  PEER on a malformed one: length
 * out of range, bad protobuf, or no body. */
int guest_frame_parse(const uint8_t *data, size_t n, size_t max, struct cl_arena *arena,
                      const Cloche__V1__GuestFrame **ret_frame, size_t *ret_used,
                      struct cl_err *err) CL_MUST;

/* A GuestFrame on the stack with its body set: GUEST_FRAME(f, 3, DATA, data, &data). */
#define GUEST_FRAME(var, stream_id, CASE, member, body_ptr) \
    Cloche__V1__GuestFrame var = CLOCHE__V1__GUEST_FRAME__INIT; \
    var.stream = (stream_id); \
    var.body_case = CLOCHE__V1__GUEST_FRAME__BODY_##CASE; \
    var.member = (body_ptr)

#endif
