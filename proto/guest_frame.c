/* proto/guest_frame.c - see proto/guest_frame.h. */
#include "proto/guest_frame.h"

#include "proto/unpack.h"

int guest_frame_pack(struct cl_buf *buf, const Cloche__V1__GuestFrame *frame, size_t max,
                     struct cl_err *err)
{
    size_t n = cloche__v1__guest_frame__get_packed_size(frame);
    if (n == 0 || n > max)
        return cl_fail(err, CL_E_TOOBIG, 0, "guest frame of %zu bytes, at most %zu", n, max);
    if (cl_buf_reserve(buf, GUEST_FRAME_HEADER + n, err) < 0)
        return -1;
    uint8_t *at = buf->data + buf->len;
    for (int i = 0; i < GUEST_FRAME_HEADER; i++)
        at[i] = (uint8_t)(n >> (8 * i));
    (void)cloche__v1__guest_frame__pack(frame, at + GUEST_FRAME_HEADER);
    buf->len += GUEST_FRAME_HEADER + n;
    return 0;
}

int guest_frame_parse(const uint8_t *data, size_t n, size_t max, struct cl_arena *arena,
                      const Cloche__V1__GuestFrame **ret_frame, size_t *ret_used,
                      struct cl_err *err)
{
    *ret_frame = NULL;
    *ret_used = 0;
    if (n < GUEST_FRAME_HEADER)
        return 0;
    size_t len =
        (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 | (size_t)data[3] << 24;
    if (len == 0 || len > max)
        return cl_fail(err, CL_E_PEER, 0, "guest frame of %zu bytes, allowed 1 to %zu", len, max);
    if (n - GUEST_FRAME_HEADER < len)
        return 0;
    const ProtobufCMessage *msg;
    if (pb_unpack(&cloche__v1__guest_frame__descriptor, data + GUEST_FRAME_HEADER, len, arena, &msg,
                  err) < 0) {
        if (err && err->code != CL_E_NOMEM)
            err->code = CL_E_PEER;
        return cl_wrap(err, "guest frame");
    }
    const Cloche__V1__GuestFrame *frame = (const Cloche__V1__GuestFrame *)msg;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY__NOT_SET)
        return cl_fail(err, CL_E_PEER, 0, "guest frame without a body");
    *ret_frame = frame;
    *ret_used = GUEST_FRAME_HEADER + len;
    return 0;
}
