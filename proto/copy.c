/* proto/copy.c - see proto/copy.h. */
#include "proto/copy.h"

#include "base/mem.h"
#include "base/own.h"

int pb_copy(const ProtobufCMessage *msg, ProtobufCMessage **ret_copy, struct cl_err *err)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    CL_AUTO(cl_freep) uint8_t *bytes = cl_zalloc(n);
    if (!bytes)
        return cl_fail(err, CL_E_NOMEM, 0, "copy a message of %zu bytes", n);
    (void)protobuf_c_message_pack(msg, bytes);
    ProtobufCMessage *copy = protobuf_c_message_unpack(msg->descriptor, NULL, n, bytes);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "copy a message of %zu bytes", n);
    *ret_copy = copy;
    return 0;
}

void pb_free(ProtobufCMessage *msg)
{
    protobuf_c_message_free_unpacked(msg, NULL);
}
