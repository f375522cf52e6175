/* tests/unit/scheduler/test_call_text.c - entries, arguments, and the cells that call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "scheduler/call_text.h"

static const int python = CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON,
                 javascript = CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT;

static void test_an_entry_is_a_name_with_dots(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "_", "add", "A9_", "json.dumps", "a._b.c1"};
    static const char *const bad[] = {"",     "1",   "a.",  ".a",  "a..b", "a.1", "a b",
                                      "a;b",  "a\n", "é",   "a-b", "a\"",  "a'",  "a()",
                                      "\x7f", "a/b", "a$b", "a\\", "a#"};
    char edge[CALL_ENTRY_MAX + 2];
    struct cl_err err = {0};
    for (size_t i = 0; i < CL_COUNT(good); i++)
        if (call_check_entry(good[i], &err) < 0)
            fail_msg("'%s': %s", good[i], err.text);
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        if (call_check_entry(bad[i], &err) == 0)
            fail_msg("'%s' is taken", bad[i]);
        assert_int_equal(err.code, CL_E_INVALID);
    }
    memset(edge, 'a', sizeof edge);
    edge[CALL_ENTRY_MAX] = '\0';
    assert_int_equal(call_check_entry(edge, &err), 0);
    edge[CALL_ENTRY_MAX] = 'a';
    edge[CALL_ENTRY_MAX + 1] = '\0';
    assert_int_equal(call_check_entry(edge, &err), -1);
}

static void test_the_entry_of_a_name_is_one(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"add", "add"}, {"resize-image.v2", "resize_image_v2"}, {"2nd", "_2nd"}, {"A_b", "A_b"}};
    char entry[CALL_ENTRY_MAX + 1];
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        call_entry_of_name(rows[i][0], entry);
        assert_string_equal(entry, rows[i][1]);
        assert_int_equal(call_check_entry(entry, NULL), 0);
    }
}

static void test_arguments_are_strict_json(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "[]",
                                       "{}",
                                       " [1, -2.5e3, \"x\", null, true, [{}]] ",
                                       "{\"a\": {\"a\": 1}}",
                                       "[123456789012345678901234567890]",
                                       "[\"\\u0000\\ud83c\\udffa\xf0\x9f\x8f\xba\"]"};
    static const char *const bad[] = {"1",
                                      "\"x\"",
                                      "null",
                                      " ",
                                      "[1",
                                      "[1]]",
                                      "[1] x",
                                      "[NaN]",
                                      "[1e999]",
                                      "[Infinity]",
                                      "[01]",
                                      "['a']",
                                      "[1,]",
                                      "{\"a\": 1, \"a\": 1}",
                                      "{a: 1}",
                                      "[\"\x01\"]",
                                      "[\"\n\"]",
                                      "[\"\xff\"]",
                                      "[\"\\ud800\"]",
                                      "{\"a\"}"};
    struct cl_err err = {0};
    for (size_t i = 0; i < CL_COUNT(good); i++)
        if (call_check_arguments(good[i], &err) < 0)
            fail_msg("%s: %s", good[i], err.text);
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        if (call_check_arguments(bad[i], &err) == 0)
            fail_msg("%s is taken", bad[i]);
        assert_int_equal(err.code, CL_E_INVALID);
    }
}

static void test_arguments_have_a_depth_and_a_length(void **state)
{
    (void)state;
    char *text = cl_zalloc(CALL_ARGUMENTS_MAX + 2);
    struct cl_err err = {0};
    assert_non_null(text);
    memset(text, '[', CALL_DEPTH + 1);
    memset(text + CALL_DEPTH + 1, ']', CALL_DEPTH + 1);
    assert_int_equal(call_check_arguments(text, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    text[2 * CALL_DEPTH + 1] = '\0';
    assert_int_equal(call_check_arguments(text + 1, &err), 0);
    memset(text, '[', CALL_ARGUMENTS_MAX); /* jansson's own bound holds the stack */
    assert_int_equal(call_check_arguments(text, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    memset(text, ' ', CALL_ARGUMENTS_MAX);
    memcpy(text, "[]", 2);
    assert_int_equal(call_check_arguments(text, &err), 0);
    text[CALL_ARGUMENTS_MAX] = ' ';
    assert_int_equal(call_check_arguments(text, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    cl_free(text);
}

/* The end of the cell, from `with` on. */
static void expect_end(int language, const char *entry, const char *arguments, const char *end)
{
    struct cl_buf out;
    struct cl_err err = {0};
    cl_buf_init(&out, CALL_TEXT_MAX);
    if (call_text((Cloche__V1__Language)language, entry, arguments, &out, &err) < 0)
        fail_msg("%s", err.text);
    size_t n = strlen(end);
    assert_true(out.len > n);
    assert_int_equal(out.data[out.len - 1], '\0');
    assert_string_equal((const char *)out.data + out.len - 1 - n, end);
    cl_buf_fini(&out);
}

static void test_a_cell_calls(void **state)
{
    (void)state;
    expect_end(python, "add", "[2, 3]", "\n__cloche_call__(\"add\", \"[2, 3]\")\n");
    expect_end(python, "a.b", NULL, "\n__cloche_call__(\"a.b\", None)\n");
    expect_end(python, "a", "", "\n__cloche_call__(\"a\", \"\")\n");
    expect_end(javascript, "add", "[2]",
               "(\n\"add\", () => typeof add === \"undefined\" ? undefined : add, "
               "\"[2]\")\n");
    expect_end(javascript, "a.b", NULL,
               "\"a.b\", () => typeof a === \"undefined\" ? undefined : a.b, null)\n");
}

static void test_what_is_in_the_arguments_stays_in_the_literal(void **state)
{
    (void)state;
    expect_end(python, "f", "[\"\\\"\"]", ", \"[\\\"\\\\\\\"\\\"]\")\n");
    expect_end(python, "f", "[\n1,\t2\r]", ", \"[\\n1,\\t2\\r]\")\n");
    expect_end(javascript, "f", "[\"'`${}\xe2\x80\xa8\"]", ", \"[\\\"'`${}\xe2\x80\xa8\\\"]\")\n");
}

static void test_the_longest_arguments_fit_a_cell(void **state)
{
    (void)state;
    struct cl_buf out;
    struct cl_err err = {0};
    char *text = cl_zalloc(CALL_ARGUMENTS_MAX + 1);
    assert_non_null(text);
    memset(text, '\t', CALL_ARGUMENTS_MAX - 2); /* each as long as can be */
    memcpy(text + CALL_ARGUMENTS_MAX - 2, "[]", 2);
    assert_int_equal(call_check_arguments(text, &err), 0);
    cl_buf_init(&out, CALL_TEXT_MAX);
    assert_int_equal(call_text((Cloche__V1__Language)python, "f", text, &out, &err), 0);
    cl_buf_clear(&out);
    assert_int_equal(call_text((Cloche__V1__Language)javascript, "f", text, &out, &err), 0);
    cl_buf_fini(&out);
    cl_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_entry_is_a_name_with_dots),
        cmocka_unit_test(test_the_entry_of_a_name_is_one),
        cmocka_unit_test(test_arguments_are_strict_json),
        cmocka_unit_test(test_arguments_have_a_depth_and_a_length),
        cmocka_unit_test(test_a_cell_calls),
        cmocka_unit_test(test_what_is_in_the_arguments_stays_in_the_literal),
        cmocka_unit_test(test_the_longest_arguments_fit_a_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
