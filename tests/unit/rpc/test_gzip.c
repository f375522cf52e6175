/* tests/unit/rpc/test_gzip.c - gzip of messages, and bombs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <string.h>

#include "rpc/gzip.h"

enum { BIG = 1024 * 1024 };

static void test_round_trip_also_exactly_at_the_limit(void **state)
{
    (void)state;
    static uint8_t in[BIG];
    struct cl_buf z, out;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * i >> 7);
    for (size_t n = 0; n <= sizeof in; n = n * 3 + 1) {
        cl_buf_init(&z, 4 * BIG);
        cl_buf_init(&out, n);
        assert_int_equal(gzip_deflate(in, n, &z, NULL), 0);
        assert_int_equal(gzip_inflate(z.data, z.len, &out, NULL), 0);
        assert_int_equal(out.len, n);
        assert_true(n == 0 || memcmp(in, out.data, n) == 0);
        cl_buf_fini(&z);
        cl_buf_fini(&out);
    }
}

static void test_a_bomb_stops_at_the_limit(void **state)
{
    (void)state;
    static uint8_t zeros[BIG];
    struct cl_buf z, out;
    struct cl_err err;
    cl_buf_init(&z, 2 * BIG);
    cl_buf_init(&out, BIG - 1);
    assert_int_equal(gzip_deflate(zeros, sizeof zeros, &z, NULL), 0);
    assert_int_equal(gzip_inflate(z.data, z.len, &out, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_true(out.len <= BIG - 1);
    cl_buf_fini(&z);
    cl_buf_fini(&out);
}

static void test_cut_and_trailing_bytes_are_refused(void **state)
{
    (void)state;
    struct cl_buf z;
    struct cl_err err;
    cl_buf_init(&z, 4096);
    assert_int_equal(gzip_deflate((const uint8_t *)"hello hello", 11, &z, NULL), 0);
    for (size_t n = 0; n < z.len; n++) {
        struct cl_buf out;
        cl_buf_init(&out, 100);
        assert_int_equal(gzip_inflate(z.data, n, &out, &err), -1);
        assert_int_equal(err.code, CL_E_PEER);
        cl_buf_fini(&out);
    }
    struct cl_buf out;
    cl_buf_init(&out, 100);
    assert_int_equal(cl_buf_append(&z, "x", 1, NULL), 0);
    assert_int_equal(gzip_inflate(z.data, z.len, &out, &err), -1);
    cl_buf_fini(&out);
    cl_buf_fini(&z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_also_exactly_at_the_limit),
        cmocka_unit_test(test_a_bomb_stops_at_the_limit),
        cmocka_unit_test(test_cut_and_trailing_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
