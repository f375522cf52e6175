/* proto/unpack.c - see proto/unpack.h.
 *
 * Two passes.  The first walks the wire bytes by descriptor and allocates nothing: it bounds
 * depth and element counts and checks every string, so that what protobuf-c then unpacks cannot
 * surprise it or us.  The second is protobuf-c's, with the arena as its only memory.
 * Source: protobuf encoding (developers.google.com/protocol-buffers/docs/encoding).
 */
#include "proto/unpack.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "base/util.h"

enum {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5,
    VARINT_MAX = 10,       /* bytes of the longest varint */
    FIELD_MAX = 536870911, /* 2^29 - 1, the largest field number */
};

struct scan {
    size_t elements; /* repeated and unknown elements seen so far, in the whole message */
    struct cl_err *err;
};

struct span {
    const uint8_t *at;
    size_t n;
};

static int scan_message(struct scan *scan, const ProtobufCMessageDescriptor *type,
                        struct span bytes, int depth) CL_MUST;

/* The caller returns what this returns. */
static int bad_field(struct scan *scan, enum cl_code code, const ProtobufCMessageDescriptor *type,
                     const ProtobufCFieldDescriptor *field, const char *what)
{
    const char *name = field ? field->name : "?";
    (void)cl_fail(scan->err, code, 0, "%s.%s: %s", type->name, name, what);
    if (scan->err)
        (void)snprintf(scan->err->subject, sizeof scan->err->subject, "%s", name);
    return -1;
}

static bool take_varint(struct span *s, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (size_t i = 0; i < s->n && i < VARINT_MAX; i++) {
        value |= (uint64_t)(s->at[i] & 0x7f) << (7 * i);
        if (s->at[i] & 0x80)
            continue;
        *ret_value = value;
        s->at += i + 1;
        s->n -= i + 1;
        return true;
    }
    return false;
}

static bool take_bytes(struct span *s, uint64_t n, struct span *ret_bytes)
{
    if (n > s->n)
        return false;
    *ret_bytes = (struct span){s->at, (size_t)n};
    s->at += n;
    s->n -= (size_t)n;
    return true;
}

/* Take the value of one field; *ret_value is its bytes (without the length). */
static bool take_value(struct span *s, unsigned wire, struct span *ret_value)
{
    uint64_t n = 0;
    const uint8_t *start = s->at;
    switch (wire) {
    case WIRE_VARINT:
        if (!take_varint(s, &n))
            return false;
        *ret_value = (struct span){start, (size_t)(s->at - start)};
        return true;
    case WIRE_FIXED64:
        return take_bytes(s, 8, ret_value);
    case WIRE_FIXED32:
        return take_bytes(s, 4, ret_value);
    case WIRE_BYTES:
        return take_varint(s, &n) && take_bytes(s, n, ret_value);
    default: /* groups are not used by proto3 */
        return false;
    }
}

static unsigned native_wire(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
        return WIRE_VARINT;
    }
    return WIRE_VARINT;
}

/* Elements of a packed field. */
static size_t packed_count(unsigned wire, struct span value)
{
    if (wire == WIRE_FIXED32)
        return value.n / 4;
    if (wire == WIRE_FIXED64)
        return value.n / 8;
    size_t count = 0;
    for (size_t i = 0; i < value.n; i++)
        count += (value.at[i] & 0x80) == 0;
    return count;
}

static int add_elements(struct scan *scan, size_t n, const ProtobufCMessageDescriptor *type,
                        const ProtobufCFieldDescriptor *field)
{
    if (n > PB_ELEMENTS_MAX - scan->elements)
        return bad_field(scan, CL_E_TOOBIG, type, field, "more than 65536 elements in the message");
    scan->elements += n;
    return 0;
}

static int scan_field(struct scan *scan, const ProtobufCMessageDescriptor *type,
                      const ProtobufCFieldDescriptor *field, unsigned wire, struct span value)
{
    unsigned native = native_wire(field->type);
    bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
    bool packed = repeated && native != WIRE_BYTES && wire == WIRE_BYTES;
    if (wire != native && !packed)
        return bad_field(scan, CL_E_INVALID, type, field, "wrong wire type");
    if (repeated && add_elements(scan, packed ? packed_count(native, value) : 1, type, field) < 0)
        return -1;
    if (field->type != PROTOBUF_C_TYPE_STRING)
        return 0;
    if (value.n > 0 && memchr(value.at, 0, value.n))
        return bad_field(scan, CL_E_INVALID, type, field, "NUL in a string");
    if (!cl_utf8_is_valid((const char *)value.at, value.n))
        return bad_field(scan, CL_E_INVALID, type, field, "not UTF-8");
    return 0;
}

static int scan_message(struct scan *scan, const ProtobufCMessageDescriptor *type,
                        struct span bytes, int depth)
{
    if (depth > PB_DEPTH_MAX)
        return bad_field(scan, CL_E_INVALID, type, NULL, "nested deeper than 16 messages");
    while (bytes.n > 0) {
        uint64_t tag;
        struct span value;
        if (!take_varint(&bytes, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
            return bad_field(scan, CL_E_INVALID, type, NULL, "not a field tag");
        unsigned wire = (unsigned)(tag & 7);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (!take_value(&bytes, wire, &value))
            return bad_field(scan, CL_E_INVALID, type, field, "truncated or unknown encoding");
        if (!field) { /* from a newer peer: kept by protobuf-c, so it counts */
            if (add_elements(scan, 1, type, NULL) < 0)
                return -1;
            continue;
        }
        if (scan_field(scan, type, field, wire, value) < 0)
            return -1;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE &&
            scan_message(scan, field->descriptor, value, depth + 1) < 0)
            return -1;
    }
    return 0;
}

static void *arena_alloc(void *data, size_t n)
{
    struct cl_arena *arena = data;
    return cl_arena_alloc(arena, n);
}

static void arena_free(void *data, void *p)
{
    (void)data, (void)p; /* dies with the arena */
}

int pb_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t n,
              struct cl_arena *arena, const ProtobufCMessage **ret_msg, struct cl_err *err)
{
    static const uint8_t nothing[1] = {0};
    if (n == 0)
        data = nothing; /* protobuf-c and UBSan want a pointer */
    struct scan scan = {.err = err};
    if (scan_message(&scan, type, (struct span){data, n}, 1) < 0)
        return -1;
    ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};
    size_t before = cl_arena_used(arena);
    ProtobufCMessage *msg = protobuf_c_message_unpack(type, &allocator, n, data);
    if (msg) {
        *ret_msg = msg;
        return 0;
    }
    if (cl_arena_capped(arena))
        return cl_fail(err, CL_E_TOOBIG, 0, "%s: more memory to unpack than allowed", type->name);
    if (cl_arena_used(arena) == before)
        return cl_fail(err, CL_E_NOMEM, 0, "unpack %s", type->name);
    return cl_fail(err, CL_E_INVALID, 0, "%s: not a message of this type", type->name);
}
