/* tests/unit/mcp/test_capture.c - head and tail of a stream, as valid UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "mcp/capture.h"

static void shows(size_t cap, const char *bytes, size_t n, size_t piece, const char *want)
{
    struct mcp_capture c;
    assert_int_equal(mcp_capture_init(&c, cap, NULL), 0);
    for (size_t i = 0; i < n; i += piece)
        mcp_capture_add(&c, bytes + i, CL_MIN(piece, n - i));
    char *text = mcp_capture_text(&c);
    assert_int_equal(c.total, n);
    assert_string_equal(text, want);
    cl_free(text);
    mcp_capture_fini(&c);
}

static void test_what_fits_is_whole(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 12; piece++) {
        shows(10, "", 0, piece, "");
        shows(10, "0123456789", 10, piece, "0123456789");
        shows(10, "01234567ab\xc3\xa4", 8, piece, "01234567");
    }
}

static void test_the_middle_is_left_out(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 15; piece++)
        shows(10, "0123456789ABCDE", 15, piece, "01234\n[... 5 bytes left out ...]\nABCDE");
}

static void test_no_character_is_cut(void **state)
{
    (void)state;
    /* Head "abc\xe2\x82" and tail "\xac" "xyzw": both halves of the sign go. */
    shows(10, "abc\xe2\x82\xac...\xe2\x82\xacxyzw", 16, 4, "abc\n[... 6 bytes left out ...]\nxyzw");
}

static void test_bytes_that_are_none_are_replaced(void **state)
{
    (void)state;
    shows(20, "a\xff\0b\xc3", 5, 5,
          "a\xef\xbf\xbd\xef\xbf\xbd"
          "b\xef\xbf\xbd");
    shows(20, "\xed\xa0\x80", 3, 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

static void test_any_bytes_become_valid_text(void **state)
{
    (void)state;
    uint8_t bytes[200];
    srand(7);
    for (int round = 0; round < 2000; round++) {
        struct mcp_capture c;
        size_t n = (size_t)rand() % sizeof bytes;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)rand();
        assert_int_equal(mcp_capture_init(&c, 2 + (size_t)rand() % 64, NULL), 0);
        mcp_capture_add(&c, bytes, n);
        char *text = mcp_capture_text(&c);
        assert_true(cl_utf8_is_valid(text, strlen(text)));
        assert_int_equal(mcp_capture_is_cut(&c), n > c.head_cap + c.tail_cap);
        cl_free(text);
        mcp_capture_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_is_whole),
        cmocka_unit_test(test_the_middle_is_left_out),
        cmocka_unit_test(test_no_character_is_cut),
        cmocka_unit_test(test_bytes_that_are_none_are_replaced),
        cmocka_unit_test(test_any_bytes_become_valid_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
