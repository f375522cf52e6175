/* tests/unit/cli/test_output.c - tables for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/output.h"

static const struct out_col cols[] = {{"id", "ID"}, {"n", "COUNT"}, {"argv", "COMMAND"}};

static char *table(json_t *rows)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    out_table(f, rows, cols, CL_COUNT(cols));
    assert_int_equal(fclose(f), 0);
    json_decref(rows);
    return text;
}

static void test_columns_are_aligned(void **state)
{
    (void)state;
    char *text = table(json_pack("[{s:s,s:i,s:[s,s]},{s:s,s:i,s:[s]}]", "id", "a", "n", 12345678,
                                 "argv", "ls", "-l", "id", "longer", "n", 1, "argv", "true"));
    assert_string_equal(text, "ID      COUNT     COMMAND\n"
                              "a       12345678  ls -l\n"
                              "longer  1         true\n");
    free(text);
}

static void test_what_is_absent_is_a_dash(void **state)
{
    (void)state;
    char *text = table(json_pack("[{s:n,s:s}]", "id", "n", ""));
    assert_string_equal(text, "ID  COUNT  COMMAND\n-   -      -\n");
    free(text);
}

static void test_an_empty_list_has_its_titles(void **state)
{
    (void)state;
    char *text = table(json_array());
    assert_string_equal(text, "ID  COUNT  COMMAND\n");
    free(text);
}

static void test_control_characters_do_not_reach_the_terminal(void **state)
{
    (void)state;
    char *text = table(json_pack("[{s:s,s:b}]", "id", "\033[2J\n", "n", 1));
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "?[2J?"));
    assert_non_null(strstr(text, "yes"));
    free(text);
}

static void test_umlauts_count_as_one_column(void **state)
{
    (void)state;
    char *text = table(json_pack("[{s:s,s:i},{s:s,s:i}]", "id", "\xc3\xa4\xc3\xb6\xc3\xbc", "n", 1,
                                 "id", "abc", "n", 2));
    assert_non_null(strstr(text, "\xc3\xa4\xc3\xb6\xc3\xbc  1 "));
    assert_non_null(strstr(text, "abc  2 "));
    free(text);
}

static void test_a_long_list_is_cut(void **state)
{
    (void)state;
    json_t *argv = json_array();
    for (int i = 0; i < 1000; i++)
        assert_int_equal(json_array_append_new(argv, json_string("word")), 0);
    char *text = table(json_pack("[{s:s,s:i,s:o}]", "id", "a", "n", 1, "argv", argv));
    assert_true(strlen(text) < 700);
    free(text);
}

static void test_bad_utf8_becomes_text(void **state)
{
    (void)state;
    json_t *v = out_string("a\xff");
    assert_string_equal(json_string_value(v), "a?");
    json_decref(v);
    v = out_string(NULL);
    assert_string_equal(json_string_value(v), "");
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_aligned),
        cmocka_unit_test(test_what_is_absent_is_a_dash),
        cmocka_unit_test(test_an_empty_list_has_its_titles),
        cmocka_unit_test(test_control_characters_do_not_reach_the_terminal),
        cmocka_unit_test(test_umlauts_count_as_one_column),
        cmocka_unit_test(test_a_long_list_is_cut),
        cmocka_unit_test(test_bad_utf8_becomes_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
