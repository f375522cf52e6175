/* Frames of the guest protocol, as the worker takes them off the channel. */
#include <stddef.h>
#include <stdint.h>

#include "proto/guest_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size > 0) {
        struct cl_err err = {0};
        struct cl_arena *arena;
        const Cloche__V1__GuestFrame *frame;
        size_t used;
        if (cl_arena_new(GUEST_ARENA_FACTOR * GUEST_FRAME_MAX, &arena, &err) < 0)
            return 0;
        int rc = guest_frame_parse(data, size, GUEST_FRAME_MAX, arena, &frame, &used, &err);
        CL_ASSERT(used <= size && (rc == 0) == (err.code == CL_OK));
        if (rc == 0 && frame) {
            struct cl_buf again;
            cl_buf_init(&again, 2 * (size_t)GUEST_FRAME_MAX);
            int packed = guest_frame_pack(&again, frame, GUEST_FRAME_MAX,
                                          &err); /* may grow past the limit by unknown fields */
            CL_ASSERT(packed == 0 || err.code == CL_E_TOOBIG);
            cl_buf_fini(&again);
        }
        cl_arena_free(arena);
        if (rc < 0 || used == 0)
            return 0;
        data += used;
        size -= used;
    }
    return 0;
}
