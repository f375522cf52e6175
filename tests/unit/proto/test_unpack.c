/* tests/unit/proto/test_unpack.c - the door from hostile bytes to messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <string.h>

#include "proto/unpack.h"
#include "rpc/proto/details.pb-c.h"
#include "rpc/proto/reflection.pb-c.h"

enum { ARENA = 1024 * 1024 };

static const ProtobufCMessageDescriptor *const status = &cloche__rpc__status__descriptor;

/* Unpack and tell the code; the message dies with the arena, so look at it in `look`. */
static enum cl_code unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t n,
                           size_t arena_bytes, struct cl_err *err,
                           void (*look)(const ProtobufCMessage *msg))
{
    struct cl_arena *arena;
    const ProtobufCMessage *msg = NULL;
    *err = (struct cl_err){0};
    assert_int_equal(cl_arena_new(arena_bytes, &arena, NULL), 0);
    int rc = pb_unpack(type, data, n, arena, &msg, err);
    if (rc == 0 && look)
        look(msg);
    cl_arena_free(arena);
    assert_true((rc == 0) == (err->code == CL_OK));
    return err->code;
}

static void look_at_status(const ProtobufCMessage *msg)
{
    const Cloche__Rpc__Status *s = (const Cloche__Rpc__Status *)msg;
    assert_int_equal(s->code, 5);
    assert_string_equal(s->message, "hi");
    assert_int_equal(s->n_details, 1);
    assert_string_equal(s->details[0]->type_url, "t");
    assert_int_equal(s->details[0]->value.len, 2);
}

static void test_a_good_message_is_unpacked(void **state)
{
    (void)state;
    struct cl_err err;
    static const char good[] = "\x08\x05\x12\x02hi\x1a\x07\x0a\x01t\x12\x02\x00\xff";
    assert_int_equal(unpack(status, good, sizeof good - 1, ARENA, &err, look_at_status), CL_OK);
}

static void test_no_bytes_are_an_empty_message(void **state)
{
    (void)state;
    struct cl_err err;
    assert_int_equal(unpack(status, NULL, 0, ARENA, &err, NULL), CL_OK);
}

static void test_bad_strings_name_their_field(void **state)
{
    (void)state;
    struct cl_err err;
    static const char nul[] = "\x12\x02h\x00", overlong[] = "\x12\x02\xc0\x80";
    assert_int_equal(unpack(status, nul, 4, ARENA, &err, NULL), CL_E_INVALID);
    assert_string_equal(err.subject, "message");
    assert_int_equal(unpack(status, overlong, 4, ARENA, &err, NULL), CL_E_INVALID);
    assert_non_null(strstr(err.text, "message"));
}

static void test_bad_strings_inside_are_found(void **state)
{
    (void)state;
    struct cl_err err;
    static const char inner[] = "\x1a\x03\x0a\x01\xff";
    assert_int_equal(unpack(status, inner, 5, ARENA, &err, NULL), CL_E_INVALID);
    assert_string_equal(err.subject, "type_url");
}

static void test_malformed_bytes_are_refused(void **state)
{
    (void)state;
    struct cl_err err;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"\x12\x05hi", 4},                                    /* length past the end */
        {"\x08", 1},                                          /* no value */
        {"\x00\x01", 2},                                      /* field 0 */
        {"\x12", 1},                                          /* no length */
        {"\x0b\x0c", 2},                                      /* a group */
        {"\x0d\x01\x02\x03\x04", 5},                          /* code as fixed32 */
        {"\x10\x01", 2},                                      /* message as varint */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11}, /* endless varint */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},     /* field number over 2^29 */
    };
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(unpack(status, bad[i].bytes, bad[i].n, ARENA, &err, NULL), CL_E_INVALID);
}

static void test_every_cut_of_a_good_message_is_survived(void **state)
{
    (void)state;
    struct cl_err err;
    static const char good[] = "\x08\x05\x12\x02hi\x1a\x07\x0a\x01t\x12\x02\x00\xff";
    for (size_t n = 0; n < sizeof good - 1; n++)
        (void)unpack(status, good, n, ARENA, &err, NULL);
}

static void test_unknown_fields_are_tolerated(void **state)
{
    (void)state;
    struct cl_err err;
    static const char newer[] = "\xa2\x06\x03xyz\x08\x05";
    assert_int_equal(unpack(status, newer, sizeof newer - 1, ARENA, &err, NULL), CL_OK);
}

static void test_too_many_elements_are_refused(void **state)
{
    (void)state;
    struct cl_err err;
    size_t n = (size_t)(PB_ELEMENTS_MAX + 1) * 2;
    uint8_t *many = calloc(1, n + 8);
    assert_non_null(many);
    for (size_t i = 0; i < n; i += 2)
        many[i] = 0x1a; /* an empty AnyDetail each */
    assert_int_equal(unpack(status, many, n - 2, 64 * CL_MIB, &err, NULL), CL_OK);
    assert_int_equal(unpack(status, many, n, 64 * CL_MIB, &err, NULL), CL_E_TOOBIG);
    for (size_t i = 0; i < n; i += 2)
        many[i] = 0x78; /* an unknown number each */
    assert_int_equal(unpack(status, many, n, 64 * CL_MIB, &err, NULL), CL_E_TOOBIG);
    free(many);
}

static void test_packed_elements_count(void **state)
{
    (void)state;
    struct cl_err err;
    enum { N = PB_ELEMENTS_MAX + 1 };
    static uint8_t packed[N + 4] = {0x12, 0x81, 0x80, 0x04}; /* length 65537 */
    const ProtobufCMessageDescriptor *type =
        &grpc__reflection__v1__extension_number_response__descriptor;
    assert_int_equal(unpack(type, packed, sizeof packed, 64 * CL_MIB, &err, NULL), CL_E_TOOBIG);
    static const char few[] = "\x12\x03\x01\x02\x03\x10\x04";
    assert_int_equal(unpack(type, few, 7, ARENA, &err, NULL), CL_OK);
}

static void test_the_arena_bounds_memory(void **state)
{
    (void)state;
    struct cl_err err;
    enum { N = 20000 };
    static uint8_t many[2 * N];
    for (size_t i = 0; i < sizeof many; i += 2)
        many[i] = 0x1a;
    assert_int_equal(unpack(status, many, sizeof many, 64 * 1024, &err, NULL), CL_E_TOOBIG);
}

static void test_every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct cl_err err;
    static const char good[] = "\x08\x05\x12\x02hi\x1a\x07\x0a\x01t\x12\x02\x00\xff";
    for (long nth = 1;; nth++) { /* 0 is the arena itself */
        cl_test_fail_alloc(nth);
        enum cl_code code = unpack(status, good, sizeof good - 1, ARENA, &err, NULL);
        bool hit = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        if (!hit) {
            assert_int_equal(code, CL_OK);
            break;
        }
        assert_int_equal(code, CL_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_message_is_unpacked),
        cmocka_unit_test(test_no_bytes_are_an_empty_message),
        cmocka_unit_test(test_bad_strings_name_their_field),
        cmocka_unit_test(test_bad_strings_inside_are_found),
        cmocka_unit_test(test_malformed_bytes_are_refused),
        cmocka_unit_test(test_every_cut_of_a_good_message_is_survived),
        cmocka_unit_test(test_unknown_fields_are_tolerated),
        cmocka_unit_test(test_too_many_elements_are_refused),
        cmocka_unit_test(test_packed_elements_count),
        cmocka_unit_test(test_the_arena_bounds_memory),
        cmocka_unit_test(test_every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
