/* tests/fuzz/fuzz_unpack.c - pb_unpack() on any bytes: the first byte picks the type; what unpacks
 * must pack again. */
#include <stdint.h>
#include <stdlib.h>

#include "proto/unpack.h"
#include "rpc/proto/details.pb-c.h"
#include "rpc/proto/reflection.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &cloche__rpc__status__descriptor,
        &cloche__rpc__error_info__descriptor,
        &cloche__rpc__retry_info__descriptor,
        &grpc__reflection__v1__server_reflection_request__descriptor,
        &grpc__reflection__v1__server_reflection_response__descriptor,
    };
    struct cl_arena *arena;
    const ProtobufCMessage *msg;
    struct cl_err err;
    if (n == 0 || cl_arena_new(256 * 1024, &arena, NULL) < 0)
        return 0;
    if (pb_unpack(types[data[0] % CL_COUNT(types)], data + 1, n - 1, arena, &msg, &err) == 0) {
        size_t size = protobuf_c_message_get_packed_size(msg);
        uint8_t *out = malloc(size + 1);
        if (!out || protobuf_c_message_pack(msg, out) != size)
            abort();
        free(out);
    }
    cl_arena_free(arena);
    return 0;
}
