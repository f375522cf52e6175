/* observability/traceparent: what the W3C's text calls a context, and what it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "observability/traceparent.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void test_a_context_is_read(void **state)
{
    (void)state;
    char out[TRACEPARENT_TEXT];
    assert_true(traceparent_read("00-" TRACE "-" SPAN "-01", out));
    assert_string_equal(out, "00-" TRACE "-" SPAN "-01");
    assert_memory_equal(out + TRACEPARENT_TRACE, TRACE, TRACE_ID_HEX);
    assert_memory_equal(out + TRACEPARENT_SPAN, SPAN, SPAN_ID_HEX);
}

static void test_later_versions_are_read_as_the_first(void **state)
{
    (void)state;
    char out[TRACEPARENT_TEXT];
    assert_true(traceparent_read("cc-" TRACE "-" SPAN "-01", out));
    assert_string_equal(out, "00-" TRACE "-" SPAN "-01");
    assert_true(traceparent_read("01-" TRACE "-" SPAN "-00-what-will-be", out));
    assert_string_equal(out, "00-" TRACE "-" SPAN "-00");
}

static void test_what_is_none_is_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {
        NULL,
        "",
        "0",
        "00",
        "00-",
        "00-" TRACE,
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-",
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-011",
        "00-" TRACE "-" SPAN "-01-more",
        "01-" TRACE "-" SPAN "-01.more",
        "ff-" TRACE "-" SPAN "-01",
        "00_" TRACE "-" SPAN "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-00f067aa0ba902bg-01",
        " 00-" TRACE "-" SPAN "-01",
    };
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        char out[TRACEPARENT_TEXT] = "before";
        assert_false(traceparent_read(bad[i], out));
        assert_string_equal(out, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_context_is_read),
        cmocka_unit_test(test_later_versions_are_read_as_the_first),
        cmocka_unit_test(test_what_is_none_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
