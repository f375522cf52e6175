/* trail/rules_file.h: rules that change while somebody uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "trail/rules_file.h"

#define RULES(name) \
    "{\"rules\":[{\"name\":\"" name \
    "\",\"severity\":\"low\",\"event\":\"net.dns\",\"what\":\"w\"}]}"

static char dir[] = "/tmp/rules.XXXXXX", path[64];

static void put(const char *text)
{
    assert_int_equal(cl_file_write(path, text, strlen(text), 0600, NULL), 0);
}

static void expect(struct rules_file *f, const char *name, const char *why)
{
    struct cl_err err;
    struct rules *rules = rules_file_now(f, &err);
    assert_non_null(rules);
    assert_int_equal(rules_count(rules), 1);
    assert_string_equal(rules_at(rules, 0)->name, name);
    if (!why)
        assert_int_equal(err.code, CL_OK);
    else if (!strstr(err.text, why))
        fail_msg("'%s', not '%s'", err.text, why);
    rules_free(rules);
}

static void test_what_changes_is_read_again(void **state)
{
    (void)state;
    struct rules_file *f;
    put(RULES("one"));
    assert_int_equal(rules_file_open(path, &f, NULL), 0);
    expect(f, "one", NULL);
    put(RULES("two")); /* as long, and at once: times of files would not tell */
    expect(f, "two", NULL);
    rules_file_free(f);
}

static void test_what_is_wrong_changes_nothing_and_is_told_once(void **state)
{
    (void)state;
    struct rules_file *f;
    put(RULES("one"));
    assert_int_equal(rules_file_open(path, &f, NULL), 0);
    put("{\"rules\": [");
    expect(f, "one", "line 1");
    expect(f, "one", NULL);
    put(RULES("No"));
    expect(f, "one", "rule 'No'");
    assert_int_equal(unlink(path), 0);
    expect(f, "one", path);
    expect(f, "one", NULL);
    put(RULES("two"));
    expect(f, "two", NULL);
    put("{\"rules\": [");
    expect(f, "two", "line 1"); /* it was good in between */
    rules_file_free(f);
}

static void test_who_holds_some_keeps_them(void **state)
{
    (void)state;
    struct cl_err err;
    struct rules_file *f;
    put(RULES("one"));
    assert_int_equal(rules_file_open(path, &f, NULL), 0);
    struct rules *held = rules_file_now(f, &err);
    put(RULES("two"));
    expect(f, "two", NULL);
    rules_file_free(f);
    assert_string_equal(rules_at(held, 0)->name, "one");
    rules_free(held);
}

static void test_the_first_must_be_good(void **state)
{
    (void)state;
    struct rules_file *f = NULL;
    struct cl_err err = {0};
    put("no");
    assert_int_equal(rules_file_open(path, &f, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rules_file_open(path, &f, &err), -1);
    assert_null(f);
}

static void test_no_file_is_no_rules(void **state)
{
    (void)state;
    struct rules_file *f;
    struct cl_err err;
    assert_int_equal(rules_file_open("", &f, NULL), 0);
    assert_null(rules_file_now(f, &err));
    assert_int_equal(err.code, CL_OK);
    rules_file_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_changes_is_read_again),
        cmocka_unit_test(test_what_is_wrong_changes_nothing_and_is_told_once),
        cmocka_unit_test(test_who_holds_some_keeps_them),
        cmocka_unit_test(test_the_first_must_be_good),
        cmocka_unit_test(test_no_file_is_no_rules),
    };
    if (!mkdtemp(dir))
        return 1;
    (void)snprintf(path, sizeof path, "%s/rules.json", dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return rmdir(dir) == 0 ? failed : 1;
}
