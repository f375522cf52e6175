/* tests/unit/agent/test_text.c - agent/text.h. */
#include "agent/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"

static void test_valid_text_is_kept(void **state)
{
    (void)state;
    char out[64];
    text_escape("name \xc3\xa9 \xf0\x9f\x94\x94", out, sizeof out);
    assert_string_equal(out, "name \xc3\xa9 \xf0\x9f\x94\x94");
}

static void test_bad_bytes_are_written_out(void **state)
{
    (void)state;
    char out[64];
    text_escape("a\xff\xc3", out, sizeof out);
    assert_string_equal(out, "a\\xff\\xc3");
}

static void test_a_cut_never_splits_a_character(void **state)
{
    (void)state;
    for (size_t size = 1; size < 40; size++) {
        char out[40];
        text_escape("\xf0\x9f\x94\x94\xf0\x9f\x94\x94\xff\xff\xc3\xa9\xc3\xa9 abc", out, size);
        assert_true(strlen(out) < size);
        assert_true(cl_utf8_is_valid(out, strlen(out)));
    }
}

static void test_repair_makes_any_bytes_valid(void **state)
{
    (void)state;
    for (unsigned a = 1; a < 256; a++)
        for (unsigned b = 1; b < 256; b++) {
            char s[] = {'x', (char)a, (char)b, 'y', '\0'};
            text_repair(s);
            assert_true(cl_utf8_is_valid(s, strlen(s)));
            assert_int_equal(strlen(s), 4);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_text_is_kept),
        cmocka_unit_test(test_bad_bytes_are_written_out),
        cmocka_unit_test(test_a_cut_never_splits_a_character),
        cmocka_unit_test(test_repair_makes_any_bytes_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
