/* tests/unit/cli/test_capture.c - output kept for `run --json`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/capture.h"
#include "cli/follow.h"

static json_t *captured(const char *data, size_t n)
{
    struct capture c;
    struct follow_result r = {.exit_code = 3, .attempt = 2};
    capture_init(&c);
    capture_add(&c, 0, data, n);
    json_t *j = capture_json(&c, &r, "job");
    capture_fini(&c);
    return j;
}

static void test_text_is_kept(void **state)
{
    (void)state;
    json_t *j = captured("a\nb", 3);
    assert_string_equal(json_string_value(json_object_get(j, "stdout")), "a\nb");
    assert_string_equal(json_string_value(json_object_get(j, "stderr")), "");
    assert_int_equal(json_integer_value(json_object_get(j, "exit_code")), 3);
    assert_int_equal(json_integer_value(json_object_get(j, "attempt")), 2);
    json_decref(j);
}

static void test_bad_bytes_are_replaced_one_by_one(void **state)
{
    (void)state;
    json_t *j = captured("x\xff\xfe\xc3\xa4y", 6);
    assert_string_equal(json_string_value(json_object_get(j, "stdout")),
                        "x\xef\xbf\xbd\xef\xbf\xbd\xc3\xa4y");
    json_decref(j);
    j = captured("\xe2\x82", 2); /* cut inside a character */
    assert_string_equal(json_string_value(json_object_get(j, "stdout")),
                        "\xef\xbf\xbd\xef\xbf\xbd");
    json_decref(j);
}

static void test_nul_survives(void **state)
{
    (void)state;
    json_t *j = captured("a\0b", 3);
    assert_int_equal(json_string_length(json_object_get(j, "stdout")), 3);
    json_decref(j);
}

static void test_a_result_says_its_totals(void **state)
{
    (void)state;
    uint8_t sum[32] = {0xab};
    Cloche__V1__StreamTotal total = CLOCHE__V1__STREAM_TOTAL__INIT;
    Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
    total.bytes = 10;
    total.kept_bytes = 4;
    total.truncated = true;
    total.sha256 = (ProtobufCBinaryData){sizeof sum, sum};
    r.outcome = CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT;
    r.stdout = &total;
    json_t *j = result_json(&r);
    const json_t *t = json_object_get(j, "stdout_total");
    assert_int_equal(json_integer_value(json_object_get(j, "exit_code")), 124);
    assert_string_equal(json_string_value(json_object_get(j, "outcome")), "timed-out");
    assert_true(json_is_true(json_object_get(t, "truncated")));
    assert_memory_equal(json_string_value(json_object_get(t, "sha256")), "ab00", 4);
    assert_true(json_is_null(json_object_get(j, "stderr_total")));
    json_decref(j);
    j = result_json(NULL);
    assert_true(json_is_null(j));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_kept),
        cmocka_unit_test(test_bad_bytes_are_replaced_one_by_one),
        cmocka_unit_test(test_nul_survives),
        cmocka_unit_test(test_a_result_says_its_totals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
