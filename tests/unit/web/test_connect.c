/* tests/unit/web/test_connect.c - envelopes and errors of the Connect protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "web/connect.h"

static void test_one_envelope(void **state)
{
    (void)state;
    const char *message;
    size_t n;
    assert_int_equal(connect_open("\0\0\0\0\2{}", 7, &message, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_memory_equal(message, "{}", 2);
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"", 0},
               {"\0\0\0\0", 4},
               {"\0\0\0\0\3{}", 7},
               {"\0\0\0\0\1{}", 7},
               {"\1\0\0\0\2{}", 7},
               {"\2\0\0\0\2{}", 7},
               {"\0\xff\xff\xff\xff{}", 7}};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_err err = {0};
        assert_int_equal(connect_open(bad[i].bytes, bad[i].n, &message, &n, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
}

static void test_a_head(void **state)
{
    (void)state;
    uint8_t head[CONNECT_HEAD];
    connect_head(head, CONNECT_END, 0x01020304);
    assert_memory_equal(head, "\2\1\2\3\4", CONNECT_HEAD);
}

static void test_errors_have_connects_names(void **state)
{
    (void)state;
    static const struct {
        enum cl_code code;
        const char *name;
        int http;
    } rows[] = {
        {CL_E_NOTFOUND, "not_found", 404},        {CL_E_EXISTS, "already_exists", 409},
        {CL_E_INVALID, "invalid_argument", 400},  {CL_E_UNAUTH, "unauthenticated", 401},
        {CL_E_DENIED, "permission_denied", 403},  {CL_E_QUOTA, "resource_exhausted", 429},
        {CL_E_STATE, "failed_precondition", 400}, {CL_E_UNIMPL, "unimplemented", 501},
        {CL_E_UNAVAILABLE, "unavailable", 503},   {CL_E_DEADLINE, "deadline_exceeded", 504}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_string_equal(connect_code(rows[i].code), rows[i].name);
        assert_int_equal(connect_http(rows[i].code), rows[i].http);
    }
    struct cl_err err = {.code = CL_E_NOTFOUND, .text = "no \"such\""};
    json_t *o = connect_error(&err);
    assert_string_equal(json_string_value(json_object_get(o, "code")), "not_found");
    assert_string_equal(json_string_value(json_object_get(o, "message")), "no \"such\"");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_envelope),
        cmocka_unit_test(test_a_head),
        cmocka_unit_test(test_errors_have_connects_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
