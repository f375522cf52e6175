/* tests/unit/e2b/test_labels.c - names of metadata as keys of labels, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/id.h"
#include "e2b/labels.h"

static void test_back_and_forth(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "userId", "a-b", "0", "\xc3\xbc /%", "M-", "-", "m-x"};
    char key[E2B_LABEL_KEY], name[E2B_LABEL_KEY];
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        assert_int_equal(e2b_label_key(names[i], key, NULL), 0);
        assert_true(cl_name_is_valid(key));
        assert_true(e2b_label_name(key, name));
        assert_string_equal(name, names[i]);
    }
    assert_int_equal(e2b_label_key("userId", key, NULL), 0);
    assert_string_equal(key, "m-user-49d");
}

static void test_limits(void **state)
{
    (void)state;
    char key[E2B_LABEL_KEY], name[80] = "", back[E2B_LABEL_KEY];
    struct cl_err err = {0};
    memset(name, 'a', 61);
    assert_int_equal(e2b_label_key(name, key, NULL), 0);
    assert_true(cl_name_is_valid(key));
    assert_true(e2b_label_name(key, back));
    name[61] = 'a';
    assert_int_equal(e2b_label_key(name, key, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(e2b_label_key("", key, NULL), -1);
}

static void test_other_labels(void **state)
{
    (void)state;
    static const char *const others[] = {"m", "m-", "app", "m-a-", "m-a-4", "m-a-zz", "m-a-00"};
    char name[E2B_LABEL_KEY];
    for (size_t i = 0; i < CL_COUNT(others); i++)
        assert_false(e2b_label_name(others[i], name));
}

static void test_a_fork_has_those_of_this_api(void **state)
{
    (void)state;
    static const char *const ours[] = {"m-a", "m-user-49d", E2B_LABEL_PRIVATE, "e2b-template",
                                       "e2b-env-a"},
                             *const others[] = {"app", "mcp-owner",     "m-",
                                                "e2b", "e2b-traffic-x", E2B_LABEL_BUILD};
    for (size_t i = 0; i < CL_COUNT(ours); i++)
        assert_true(e2b_label_goes_on(ours[i]));
    for (size_t i = 0; i < CL_COUNT(others); i++)
        assert_false(e2b_label_goes_on(others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_and_forth),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_other_labels),
        cmocka_unit_test(test_a_fork_has_those_of_this_api),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
