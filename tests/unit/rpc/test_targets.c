/* tests/unit/rpc/test_targets.c - lists of addresses, and whose turn it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/targets.h"

static const struct cl_err refused = {.code = CL_E_UNAVAILABLE, .text = "refused"};

static struct targets three(void)
{
    struct targets t;
    struct cl_err err = {0};
    assert_int_equal(targets_read("unix:/a,127.0.0.1:1,[::1]:2", &t, &err), 0);
    assert_int_equal(t.n, 3);
    return t;
}

static void test_a_list_is_read_in_its_order(void **state)
{
    (void)state;
    struct targets t = three();
    assert_string_equal(targets_current(&t)->text, "unix:/a");
    assert_string_equal(t.list[0].host, "");
    assert_int_equal(t.list[0].addr.ss_family, AF_UNIX);
    assert_string_equal(t.list[1].host, "127.0.0.1");
    assert_int_equal(t.list[1].addr.ss_family, AF_INET);
    assert_string_equal(t.list[2].text, "[::1]:2");
    assert_string_equal(t.list[2].host, "::1");
    assert_int_equal(t.list[2].addr.ss_family, AF_INET6);
}

static void refuse(const char *list, const char *why)
{
    struct targets t;
    struct target_kinds kinds;
    struct cl_err err = {0};
    assert_int_equal(targets_read(list, &t, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
    if (strstr(why, "want HOST:PORT") || strstr(why, "no HOST:PORT") || strstr(why, "socket path"))
        return; /* not told by the text alone */
    err = (struct cl_err){0};
    assert_int_equal(target_kinds_read(list, &kinds, &err), -1);
    assert_non_null(strstr(err.text, why));
}

static void test_a_bad_list_is_refused_and_says_why(void **state)
{
    (void)state;
    char longer[2 * TARGET_TEXT];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    refuse("", "number 1 is empty");
    refuse(",unix:/a", "number 1 is empty");
    refuse("unix:/a,,unix:/b", "'unix:/a,,unix:/b': number 2 is empty");
    refuse("unix:/a,unix:/b,", "number 3 is empty");
    refuse("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4,127.0.0.1:5,127.0.0.1:6,127.0.0.1:7,"
           "127.0.0.1:8,127.0.0.1:9",
           "'127.0.0.1:9' is one more than 8");
    refuse(longer, "is too long: want at most 255 bytes");
    refuse("unix:/a,nothing", "'nothing' is no HOST:PORT");
    refuse("unix:/a,:7001", "':7001': want HOST:PORT");
    memcpy(longer, "unix:/", 6);
    longer[200] = '\0';
    refuse(longer, "unix socket path");
}

static void test_eight_are_not_too_many(void **state)
{
    (void)state;
    struct targets t;
    struct cl_err err = {0};
    assert_int_equal(
        targets_read("unix:/1,unix:/2,unix:/3,unix:/4,unix:/5,unix:/6,unix:/7,unix:/8", &t, &err),
        0);
    assert_int_equal(t.n, TARGETS_MAX);
    assert_string_equal(t.list[7].text, "unix:/8");
}

static void test_kinds_are_told_apart(void **state)
{
    (void)state;
    struct target_kinds k;
    struct cl_err err = {0};
    assert_int_equal(
        target_kinds_read("unix:/a,127.0.0.1:1,localhost:2,[::1]:3,a.example:4,b.example:5", &k,
                          &err),
        0);
    assert_int_equal(k.n_unix, 1);
    assert_int_equal(k.n_loopback, 3);
    assert_int_equal(k.n_remote, 2);
    assert_string_equal(k.remote, "a.example:4");
}

static void test_a_round_tries_each_once_and_names_all(void **state)
{
    (void)state;
    struct targets t = three();
    struct cl_err all = {0};
    struct cl_err long_one = {.code = CL_E_UNAVAILABLE,
                              .text = "connect to unix:/a: Connection refused"};
    for (int round = 0; round < 2; round++) {
        assert_true(targets_failed(&t, &long_one, &all));
        assert_string_equal(targets_current(&t)->text, "127.0.0.1:1");
        assert_true(targets_failed(&t, &refused, &all));
        assert_string_equal(targets_current(&t)->text, "[::1]:2");
        assert_false(targets_failed(&t, &refused, &all));
        assert_int_equal(all.code, CL_E_UNAVAILABLE);
        assert_string_equal(all.text, "connect to any of 3 targets: unix:/a: Connection refused; "
                                      "127.0.0.1:1: refused; [::1]:2: refused");
        assert_string_equal(targets_current(&t)->text, "unix:/a");
    }
}

static void test_long_reasons_leave_room_for_every_name(void **state)
{
    (void)state;
    struct targets t = three();
    struct cl_err why = {.code = CL_E_UNAVAILABLE}, all = {0};
    memset(why.text, 'y', sizeof why.text - 1);
    assert_true(targets_failed(&t, &why, &all));
    assert_true(targets_failed(&t, &why, &all));
    assert_false(targets_failed(&t, &why, &all));
    assert_non_null(strstr(all.text, "unix:/a: yyy"));
    assert_non_null(strstr(all.text, "127.0.0.1:1: yyy"));
    assert_non_null(strstr(all.text, "[::1]:2: yyy"));
    assert_in_range(strlen(all.text), 300, sizeof all.text - 1);
}

static void test_one_alone_keeps_its_own_words(void **state)
{
    (void)state;
    struct targets t;
    struct cl_err err = {0}, all = {0};
    assert_int_equal(targets_read("127.0.0.1:1", &t, &err), 0);
    targets_up(&t);
    targets_lost(&t, false);
    assert_false(targets_failed(&t, &refused, &all));
    assert_string_equal(all.text, "refused");
    assert_string_equal(targets_current(&t)->text, "127.0.0.1:1");
}

static void test_rounds_begin_with_what_worked_or_behind_what_was_lost(void **state)
{
    (void)state;
    struct targets t = three();
    struct cl_err all = {0};
    assert_true(targets_failed(&t, &refused, &all));
    targets_up(&t); /* the second works, */
    targets_lost(&t, true);
    assert_string_equal(targets_current(&t)->text, "[::1]:2");
    assert_true(targets_failed(&t, &refused, &all)); /* and what failed before it is no part of */
    assert_true(targets_failed(&t, &refused, &all)); /* the new round */
    assert_string_equal(targets_current(&t)->text, "127.0.0.1:1");
    assert_false(targets_failed(&t, &refused, &all));
    assert_string_equal(targets_current(&t)->text, "[::1]:2");
    targets_up(&t);
    targets_forget(&t);
    assert_string_equal(targets_current(&t)->text, "[::1]:2");
}

/* One that comes up for a moment is no end of the round: else it would go round without a pause. */
static void test_what_is_lost_at_once_counts_as_failed(void **state)
{
    (void)state;
    struct targets t = three();
    struct cl_err all = {0};
    for (size_t i = 0; i < 3; i++) {
        targets_up(&t);
        targets_lost(&t, false);
        assert_int_equal(targets_failed(&t, &refused, &all), i < 2);
    }
    assert_string_equal(targets_current(&t)->text, "unix:/a"); /* behind the third */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_is_read_in_its_order),
        cmocka_unit_test(test_a_bad_list_is_refused_and_says_why),
        cmocka_unit_test(test_eight_are_not_too_many),
        cmocka_unit_test(test_kinds_are_told_apart),
        cmocka_unit_test(test_a_round_tries_each_once_and_names_all),
        cmocka_unit_test(test_long_reasons_leave_room_for_every_name),
        cmocka_unit_test(test_one_alone_keeps_its_own_words),
        cmocka_unit_test(test_rounds_begin_with_what_worked_or_behind_what_was_lost),
        cmocka_unit_test(test_what_is_lost_at_once_counts_as_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
