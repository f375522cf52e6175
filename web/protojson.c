/* web/protojson.c - see web/protojson.h. */
#include "web/protojson.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "rpc/grpc_wire.h"

enum { NAME_MAX_BYTES = 64, WIRE_VARINT = 0, WIRE_BYTES = 2, VARINT_MAX = 10 };

/* "stdout_offset" -> "stdoutOffset". */
static const char *camel(const char *name, char out[static NAME_MAX_BYTES])
{
    size_t n = 0;
    for (bool up = false; *name && n + 1 < NAME_MAX_BYTES; name++) {
        if (*name == '_') {
            up = true;
            continue;
        }
        out[n++] = (char)(up && *name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name);
        up = false;
    }
    out[n] = '\0';
    return out;
}

static bool is_oneof(const ProtobufCFieldDescriptor *f)
{
    return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

/* --- reading: JSON to wire bytes ----------------------------------------------------------------
 */

static int put_varint(struct cl_buf *out, uint64_t v, struct cl_err *err)
{
    uint8_t bytes[VARINT_MAX];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    return cl_buf_append(out, bytes, n, err);
}

static int put_key(struct cl_buf *out, const ProtobufCFieldDescriptor *f, unsigned wire,
                   struct cl_err *err)
{
    return put_varint(out, (uint64_t)f->id << 3 | wire, err);
}

static int put_bytes(struct cl_buf *out, const ProtobufCFieldDescriptor *f, const void *data,
                     size_t n, struct cl_err *err)
{
    if (put_key(out, f, WIRE_BYTES, err) < 0 || put_varint(out, n, err) < 0)
        return -1;
    return cl_buf_append(out, data, n, err);
}

static int put_number(struct cl_buf *out, const ProtobufCFieldDescriptor *f, uint64_t v,
                      struct cl_err *err)
{
    return put_key(out, f, WIRE_VARINT, err) < 0 ? -1 : put_varint(out, v, err);
}

static int expected(struct cl_err *err, const char *what)
{
    return cl_fail(err, CL_E_INVALID, 0, "expected %s", what);
}

/* A number, or a text of one, without sign or with one. */
static bool digits_of(const json_t *v, char out[static 24])
{
    if (json_is_integer(v)) {
        (void)snprintf(out, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return true;
    }
    const char *s = json_string_value(v);
    size_t n = s ? json_string_length(v) : 0;
    if (n == 0 || n >= 24 || s[0] == '+' ||
        strspn(s + (s[0] == '-'), "0123456789") + (s[0] == '-') != n)
        return false;
    memcpy(out, s, n + 1);
    return true;
}

static int read_unsigned(const json_t *v, uint64_t max, uint64_t *ret, struct cl_err *err)
{
    char digits[24], *end;
    errno = 0;
    uint64_t u = digits_of(v, digits) && digits[0] != '-' ? strtoull(digits, &end, 10) : max;
    if (!digits_of(v, digits) || digits[0] == '-' || errno || u > max)
        return cl_fail(err, CL_E_INVALID, 0, "expected an integer from 0 to %" PRIu64, max);
    *ret = u;
    return 0;
}

/* Wire bytes of a negative one are those of 64 bits. */
static int read_signed(const json_t *v, int64_t min, int64_t max, uint64_t *ret, struct cl_err *err)
{
    char digits[24], *end;
    bool is = digits_of(v, digits) && strcmp(digits, "-") != 0;
    errno = 0;
    int64_t i = is ? strtoll(digits, &end, 10) : 0;
    if (!is || errno || i < min || i > max)
        return cl_fail(err, CL_E_INVALID, 0, "expected an integer from %" PRId64 " to %" PRId64,
                       min, max);
    *ret = (uint64_t)i;
    return 0;
}

static int read_enum(const json_t *v, const ProtobufCEnumDescriptor *type, uint64_t *ret,
                     struct cl_err *err)
{
    const char *name = json_string_value(v);
    if (!name)
        return read_signed(v, INT32_MIN, INT32_MAX, ret, err);
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value_by_name(type, name);
    if (!value)
        return cl_fail(err, CL_E_INVALID, 0, "'%.40s' is no %s", name, type->short_name);
    *ret = (uint64_t)(int64_t)value->value;
    return 0;
}

/* base64 or base64url, with or without padding. */
static int read_bytes(const json_t *v, const ProtobufCFieldDescriptor *f, struct cl_buf *out,
                      struct cl_err *err)
{
    size_t n = json_string_length(v);
    CL_AUTO(cl_freep) uint8_t *bytes = cl_zalloc(n + 3);
    if (!bytes)
        return cl_fail(err, CL_E_NOMEM, 0, "bytes");
    if (!json_is_string(v) ||
        !gw_base64_decode((const uint8_t *)json_string_value(v), n, bytes, &n))
        return expected(err, "base64");
    return put_bytes(out, f, bytes, n, err);
}

static int read_message(const json_t *v, const ProtobufCFieldDescriptor *f, struct cl_buf *out,
                        struct cl_err *err)
{
    struct cl_buf inner;
    cl_buf_init(&inner, out->max);
    int rc = protojson_read(v, f->descriptor, &inner, err);
    if (rc == 0)
        rc = put_bytes(out, f, inner.data, inner.len, err);
    cl_buf_fini(&inner);
    return rc;
}

/* The switches over types are by number: our messages have none of the others (protojson_can()). */
static int read_value(const json_t *v, const ProtobufCFieldDescriptor *f, struct cl_buf *out,
                      struct cl_err *err)
{
    uint64_t number = 0;
    int rc = 0;
    switch ((int)f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return read_message(v, f, out, err);
    case PROTOBUF_C_TYPE_STRING:
        return json_is_string(v)
                   ? put_bytes(out, f, json_string_value(v), json_string_length(v), err)
                   : expected(err, "a text");
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(v, f, out, err);
    case PROTOBUF_C_TYPE_BOOL:
        number = json_is_true(v);
        rc = json_is_boolean(v) ? 0 : expected(err, "true or false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        rc = read_enum(v, f->descriptor, &number, err);
        break;
    case PROTOBUF_C_TYPE_UINT32:
        rc = read_unsigned(v, UINT32_MAX, &number, err);
        break;
    case PROTOBUF_C_TYPE_UINT64:
        rc = read_unsigned(v, UINT64_MAX, &number, err);
        break;
    case PROTOBUF_C_TYPE_INT32:
        rc = read_signed(v, INT32_MIN, INT32_MAX, &number, err);
        break;
    case PROTOBUF_C_TYPE_INT64:
        rc = read_signed(v, INT64_MIN, INT64_MAX, &number, err);
        break;
    default:
        return cl_fail(err, CL_E_UNIMPL, 0, "no JSON for this type");
    }
    return rc < 0 ? -1 : put_number(out, f, number, err);
}

static int read_list(const json_t *v, const ProtobufCFieldDescriptor *f, struct cl_buf *out,
                     struct cl_err *err)
{
    size_t i;
    json_t *item;
    if (!json_is_array(v))
        return expected(err, "a list");
    json_array_foreach((json_t *)(uintptr_t)v, i, item)
    {
        if (read_value(item, f, out, err) < 0)
            return cl_wrap(err, "%zu", i);
    }
    return 0;
}

/* The member of a field, under either of its names; JSON's null is none. */
static int member_of(const json_t *object, const ProtobufCFieldDescriptor *f, const json_t **ret,
                     size_t *n_known, struct cl_err *err)
{
    char name[NAME_MAX_BYTES];
    const json_t *as_camel = json_object_get(object, camel(f->name, name));
    const json_t *as_is = strcmp(name, f->name) != 0 ? json_object_get(object, f->name) : NULL;
    const json_t *v = as_camel ? as_camel : as_is;
    if (as_camel && as_is)
        return cl_fail(err, CL_E_INVALID, 0, "%s: given twice", name);
    *n_known += v != NULL;
    *ret = json_is_null(v) ? NULL : v;
    return 0;
}

/* Is another one of the same oneof given, which comes before it in `type`? */
static bool is_second(const json_t *object, const ProtobufCMessageDescriptor *type, unsigned at)
{
    for (unsigned i = 0; i < at; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        const json_t *v = NULL;
        size_t n = 0;
        if (is_oneof(f) && f->quantifier_offset == type->fields[at].quantifier_offset &&
            member_of(object, f, &v, &n, NULL) == 0 && v)
            return true;
    }
    return false;
}

static int unknown(const json_t *object, const ProtobufCMessageDescriptor *type, struct cl_err *err)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, name, v)
    {
        bool known = false;
        char field[NAME_MAX_BYTES];
        for (unsigned i = 0; i < type->n_fields; i++)
            known |= strcmp(camel(type->fields[i].name, field), name) == 0 ||
                     strcmp(type->fields[i].name, name) == 0;
        if (!known)
            return cl_fail(err, CL_E_INVALID, 0, "%s has no field '%.60s'", type->short_name, name);
    }
    return expected(err, "other fields");
}

int protojson_read(const json_t *object, const ProtobufCMessageDescriptor *type, struct cl_buf *out,
                   struct cl_err *err)
{
    size_t n_known = 0;
    if (!json_is_object(object))
        return expected(err, "an object");
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        const json_t *v = NULL;
        char name[NAME_MAX_BYTES];
        if (member_of(object, f, &v, &n_known, err) < 0)
            return -1;
        if (!v)
            continue;
        if (is_oneof(f) && is_second(object, type, i))
            return cl_fail(err, CL_E_INVALID, 0, "%s: one of those that exclude it is given, too",
                           camel(f->name, name));
        int rc = f->label == PROTOBUF_C_LABEL_REPEATED ? read_list(v, f, out, err)
                                                       : read_value(v, f, out, err);
        if (rc < 0)
            return cl_wrap(err, "%s", camel(f->name, name));
    }
    return n_known == json_object_size(object) ? 0 : unknown(object, type, err);
}

/* --- writing: a message to JSON -----------------------------------------------------------------
 */

static json_t *decimal(bool is_negative, uint64_t v)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%s%" PRIu64, is_negative ? "-" : "", v);
    return json_stringn(text, (size_t)n);
}

static json_t *write_enum(const ProtobufCEnumDescriptor *type, int v)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(type, v);
    return value ? json_string(value->name) : json_integer(v);
}

/* Padded, as the mapping wants it. */
static json_t *write_bytes(const ProtobufCBinaryData *bytes)
{
    CL_AUTO(cl_freep) char *text = cl_zalloc(gw_base64_size(bytes->len) + 3);
    if (!text)
        return NULL;
    size_t n = gw_base64_encode(bytes->data, bytes->len, text);
    while (n % 4)
        text[n++] = '=';
    return json_stringn(text, n);
}

static json_t *write_value(const ProtobufCFieldDescriptor *f, const void *at)
{
    int64_t i;
    switch ((int)f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return protojson_write(*(const ProtobufCMessage *const *)at);
    case PROTOBUF_C_TYPE_STRING:
        return json_string(*(const char *const *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return write_bytes(at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return write_enum(f->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_UINT32:
        return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
        return decimal(false, *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_INT32:
        return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
        i = *(const int64_t *)at;
        return decimal(i < 0, i < 0 ? -(uint64_t)i : (uint64_t)i);
    default:
        return json_null();
    }
}

static bool is_default(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *msg)
{
    const char *at = (const char *)msg + f->offset;
    const void *quantifier = (const char *)msg + f->quantifier_offset;
    if (is_oneof(f))
        return *(const uint32_t *)quantifier != f->id;
    switch ((int)f->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return !*(const void *const *)at;
    case PROTOBUF_C_TYPE_STRING:
        return !*(const char *const *)at || !**(const char *const *)at;
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)at)->len == 0;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        return *(const uint64_t *)at == 0;
    default:
        return *(const uint32_t *)at == 0;
    }
}

/* How far one element of a repeated field is from the next. */
static size_t size_of(ProtobufCType type)
{
    switch ((int)type) {
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_STRING:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_INT32:
        return sizeof(uint32_t);
    default:
        return 0; /* none that protojson_can() */
    }
}

static json_t *write_list(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *msg)
{
    size_t n = *(const size_t *)(const void *)((const char *)msg + f->quantifier_offset);
    const char *items = *(const char *const *)(const void *)((const char *)msg + f->offset);
    json_t *list = n > 0 ? json_array() : NULL;
    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(list, write_value(f, items + i * size_of(f->type))) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *protojson_write(const ProtobufCMessage *msg)
{
    json_t *object = json_object();
    for (unsigned i = 0; object && i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];
        bool is_list = f->label == PROTOBUF_C_LABEL_REPEATED;
        const char *at = (const char *)msg + f->offset;
        char name[NAME_MAX_BYTES];
        if (is_list ? *(const size_t *)(const void *)((const char *)msg + f->quantifier_offset) == 0
                    : is_default(f, msg))
            continue;
        json_t *v = is_list ? write_list(f, msg) : write_value(f, at);
        if (json_object_set_new(object, camel(f->name, name), v) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

bool protojson_can(const ProtobufCMessageDescriptor *type)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        if (size_of(f->type) == 0 || strlen(f->name) >= NAME_MAX_BYTES ||
            f->label == PROTOBUF_C_LABEL_REQUIRED || f->label == PROTOBUF_C_LABEL_OPTIONAL)
            return false;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && !protojson_can(f->descriptor))
            return false;
    }
    return true;
}
