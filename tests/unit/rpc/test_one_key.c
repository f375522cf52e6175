/* tests/unit/rpc/test_one_key.c - rpc/one_key.h. */
#include "rpc/one_key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_the_nth_key(void **state)
{
    (void)state;
    char out[RPC_KEY], longest[RPC_KEY + 1];
    static const struct {
        const char *key;
        uint64_t n;
        const char *want;
    } rows[] = {{NULL, 1, ""}, {NULL, 64, ""},  {"", 2, ""},
                {"k", 1, "k"}, {"k", 2, "k.2"}, {"k", 64, "k.64"}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(rpc_nth_key(rows[i].key, rows[i].n, out, NULL), 0);
        assert_string_equal(out, rows[i].want);
    }
    memset(longest, 'k', sizeof longest);
    longest[RPC_KEY - 1] = '\0';
    assert_int_equal(rpc_nth_key(longest, 1, out, NULL), 0);
    assert_string_equal(out, longest);
    struct cl_err err = {0};
    assert_int_equal(rpc_nth_key(longest, 2, out, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_non_null(strstr(err.text, "at most 253 bytes"));
    longest[RPC_KEY - 3] = '\0';
    assert_int_equal(rpc_nth_key(longest, 9, out, NULL), 0);
    assert_int_equal(rpc_nth_key(longest, 10, out, NULL), -1);
    assert_int_equal(rpc_nth_key("k", UINT64_MAX, out, NULL), 0);
    assert_string_equal(out, "k.18446744073709551615");
}

static void test_one_key_is_one_word(void **state)
{
    (void)state;
    char a[RPC_WORD], again[RPC_WORD], b[RPC_WORD];
    rpc_word("a", a);
    rpc_word("a", again);
    rpc_word("b", b);
    assert_string_equal(a, "ca978112ca1bbdcafac231b39a23dc4d"); /* of SHA-256("a") */
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
}

static void test_no_key_is_a_new_word_each_time(void **state)
{
    (void)state;
    char one[RPC_WORD], two[RPC_WORD], three[RPC_WORD];
    rpc_word(NULL, one);
    rpc_word(NULL, two);
    rpc_word("", three);
    assert_int_equal(strlen(one), RPC_WORD - 1);
    assert_string_not_equal(one, two);
    assert_string_not_equal(two, three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nth_key),
        cmocka_unit_test(test_one_key_is_one_word),
        cmocka_unit_test(test_no_key_is_a_new_word_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
