/* tests/unit/web/test_grpcweb.c - gRPC-Web's status and its text form. */
#include "web/grpcweb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_the_status(void **state)
{
    (void)state;
    struct cl_err why = {0};
    struct cl_buf out;
    cl_buf_init(&out, 4096);
    assert_int_equal(grpcweb_status(NULL, &out, NULL), 0);
    assert_int_equal(out.len, 15);
    assert_memory_equal(out.data, "grpc-status:0\r\n", 15);
    cl_buf_clear(&out);
    (void)cl_fail(&why, CL_E_NOTFOUND, 0, "no such\r\njob: \xc3\xbc");
    assert_int_equal(grpcweb_status(&why, &out, NULL), 0);
    static const char begin[] = "grpc-status:5\r\ngrpc-message:no such%0D%0Ajob: %C3%BC\r\n"
                                "grpc-status-details-bin:";
    assert_true(out.len > sizeof begin);
    assert_memory_equal(out.data, begin, sizeof begin - 1);
    assert_memory_equal(out.data + out.len - 2, "\r\n", 2);
    cl_buf_fini(&out);
}

static void test_text_there_and_back(void **state)
{
    (void)state;
    for (size_t n = 0; n < 9; n++) {
        struct cl_buf text, back;
        cl_buf_init(&text, 4096);
        cl_buf_init(&back, 4096);
        assert_int_equal(grpcweb_text_write("\0abc\xff\x80xyz", n, &text, NULL), 0);
        assert_int_equal(text.len, (n + 2) / 3 * 4);
        assert_int_equal(grpcweb_text_write("more", 4, &text, NULL), 0); /* another piece */
        assert_int_equal(grpcweb_text_read((const char *)text.data, text.len, &back, NULL), 0);
        assert_int_equal(back.len, n + 4);
        assert_memory_equal(back.data, "\0abc\xff\x80xyz", n);
        assert_memory_equal(back.data + n, "more", 4);
        cl_buf_fini(&text);
        cl_buf_fini(&back);
    }
}

static void test_what_is_no_text(void **state)
{
    (void)state;
    static const char *const bad[] = {"A",    "AA",   "AAA",   "AAAAA", "AA=A",     "A===",
                                      "====", "=AAA", "AA==A", "AA A",  "AAAA\nAA", "AA.A"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_buf out;
        struct cl_err err = {0};
        cl_buf_init(&out, 4096);
        assert_int_equal(grpcweb_text_read(bad[i], strlen(bad[i]), &out, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        cl_buf_fini(&out);
    }
}

static void test_it_is_bounded(void **state)
{
    (void)state;
    struct cl_buf out;
    struct cl_err err = {0};
    cl_buf_init(&out, 8);
    assert_int_equal(grpcweb_text_read("AAAAAAAAAAAAAAAA", 16, &out, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    cl_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_status),
        cmocka_unit_test(test_text_there_and_back),
        cmocka_unit_test(test_what_is_no_text),
        cmocka_unit_test(test_it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
