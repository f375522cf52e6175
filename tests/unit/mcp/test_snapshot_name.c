/* tests/unit/mcp/test_snapshot_name.c - names of snapshots are their principal's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mcp/snapshot_name.h"

static const char alice[] = "acme/jwt:alice", bob[] = "acme/jwt:bob";
static const char longest[] = "a123456789.123456789-123456789_123456789012345";

static void test_the_scheduler_knows_each_with_its_owner(void **state)
{
    (void)state;
    static const char *const names[] = {"ready", "0", "a.b-c_d", longest};
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        char hers[MCP_SNAPSHOT_NAME], again[MCP_SNAPSHOT_NAME], his[MCP_SNAPSHOT_NAME],
            own[MCP_SNAPSHOT_NAME];
        size_t n = strlen(names[i]);
        assert_int_equal(mcp_snapshot_name(alice, names[i], hers, NULL), 0);
        assert_int_equal(mcp_snapshot_name(alice, names[i], again, NULL), 0);
        assert_int_equal(mcp_snapshot_name(bob, names[i], his, NULL), 0);
        assert_string_equal(hers, again);
        assert_string_not_equal(hers, his);
        assert_memory_equal(hers, names[i], n);
        assert_int_equal(hers[n], '.');
        assert_int_equal(strspn(hers + n + 1, "0123456789abcdef"), 16);
        assert_int_equal(strlen(hers), n + MCP_SNAPSHOT_OWNER);
        mcp_snapshot_own_name(alice, hers, own);
        assert_string_equal(own, names[i]);
        mcp_snapshot_own_name(bob, hers, own);
        assert_string_equal(own, hers);
    }
}

/* Snapshots outlive gateways and releases, and so must what their names are made of. */
static void test_a_name_is_the_same_for_ever(void **state)
{
    (void)state;
    char name[MCP_SNAPSHOT_NAME];
    assert_int_equal(mcp_snapshot_name(alice, "ready", name, NULL), 0);
    assert_string_equal(name, "ready.a06f4dde68f44560");
}

/* Whatever one calls his, it ends with himself. */
static void test_nobody_comes_to_the_name_of_another(void **state)
{
    (void)state;
    char hers[MCP_SNAPSHOT_NAME], his[MCP_SNAPSHOT_NAME];
    assert_int_equal(mcp_snapshot_name(alice, "ready", hers, NULL), 0);
    assert_int_equal(mcp_snapshot_name(bob, hers, his, NULL), 0);
    assert_string_not_equal(hers, his);
    assert_string_not_equal(hers + strlen("ready"), his + strlen(his) - MCP_SNAPSHOT_OWNER);
}

static void test_what_is_no_name_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      "Ready", "-x",  ".x",      "_x",
                                      "snp_x", "a b",   "a/b", "\303\244"};
    char name[MCP_SNAPSHOT_NAME] = "as before", over[sizeof longest + 1];
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_err err = {0};
        assert_int_equal(mcp_snapshot_name(alice, bad[i], name, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_string_equal(name, "as before");
    }
    assert_int_equal(strlen(longest), MCP_SNAPSHOT_OWN_NAME);
    memcpy(over, longest, sizeof longest);
    memcpy(over + sizeof longest - 1, "x", 2);
    assert_int_equal(mcp_snapshot_name(alice, over, name, NULL), -1);
}

static void test_a_name_of_elsewhere_is_shown_as_it_is(void **state)
{
    (void)state;
    static const char *const names[] = {
        "", "numpy-ready", "ready.0123456789abcdef",
        "x23456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        char shown[MCP_SNAPSHOT_NAME];
        mcp_snapshot_own_name(alice, names[i], shown);
        assert_string_equal(shown, names[i]);
    }
    char hers[MCP_SNAPSHOT_NAME], shown[MCP_SNAPSHOT_NAME];
    assert_int_equal(mcp_snapshot_name(alice, "x", hers, NULL), 0);
    mcp_snapshot_own_name(alice, hers + 1, shown); /* an owner without a name */
    assert_string_equal(shown, hers + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_scheduler_knows_each_with_its_owner),
        cmocka_unit_test(test_a_name_is_the_same_for_ever),
        cmocka_unit_test(test_nobody_comes_to_the_name_of_another),
        cmocka_unit_test(test_what_is_no_name_is_refused),
        cmocka_unit_test(test_a_name_of_elsewhere_is_shown_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
