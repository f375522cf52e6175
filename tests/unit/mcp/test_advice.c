/* tests/unit/mcp/test_advice.c - every error tells a model what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/util.h"
#include "mcp/advice.h"

static void test_every_code_says_what_why_and_what_to_do(void **state)
{
    (void)state;
    for (int code = CL_OK + 1; code < CL_E_NR; code++) {
        char text[MCP_ADVICE];
        struct cl_err err = {0};
        (void)cl_fail(&err, (enum cl_code)code, 0, "because");
        mcp_advice(&err, text);
        assert_non_null(strstr(text, ": because."));
        assert_int_equal(text[strlen(text) - 1], '.');
    }
}

static void test_a_wait_and_a_lost_sandbox_are_told(void **state)
{
    (void)state;
    char text[MCP_ADVICE];
    struct cl_err err = {.code = CL_E_RATE, .retry_ms = 1500, .text = "x"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "1.6 s"));
    err = (struct cl_err){.code = CL_E_NOTFOUND, .subject = "sandbox", .text = "x"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "without sandbox_id"));
}

static void test_of_snapshots_it_is_told_how_to_go_on(void **state)
{
    (void)state;
    char text[MCP_ADVICE];
    struct cl_err err = {.code = CL_E_NOTFOUND, .subject = "snapshot", .text = "no snapshot 'x'"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "no snapshot 'x'. It was deleted"));
    assert_non_null(strstr(text, "snapshot_list"));
    assert_null(strstr(text, "sandbox_id"));
    err = (struct cl_err){.code = CL_E_EXISTS, .subject = "snapshot", .text = "x"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "replace true"));
    err = (struct cl_err){.code = CL_E_EXISTS, .text = "x"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "exists already: x. Choose another name."));
    assert_null(strstr(text, "replace"));
    err = (struct cl_err){.code = CL_E_STATE, .subject = "snapshot", .text = "x"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "Change what the text names"));
    err = (struct cl_err){.code = CL_E_QUOTA, .subject = "disk_mib", .text = "x"};
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "snapshot_delete"));
}

static void test_of_a_paused_sandbox_the_way_on_is_told(void **state)
{
    (void)state;
    char text[MCP_ADVICE];
    struct cl_err err = {.code = CL_E_STATE, .text = "the sandbox is paused; resume it first"};
    assert_true(mcp_err_is_paused(&err));
    mcp_advice(&err, text);
    assert_non_null(strstr(text, "Call sandbox_resume"));
    err = (struct cl_err){.code = CL_E_STATE, .text = "'sbx_1' does not run yet"};
    assert_false(mcp_err_is_paused(&err));
    err = (struct cl_err){.code = CL_E_NOTFOUND, .text = "no file 'what is paused'"};
    assert_false(mcp_err_is_paused(&err));
    mcp_advice(&err, text);
    assert_null(strstr(text, "sandbox_resume"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_says_what_why_and_what_to_do),
        cmocka_unit_test(test_a_wait_and_a_lost_sandbox_are_told),
        cmocka_unit_test(test_of_snapshots_it_is_told_how_to_go_on),
        cmocka_unit_test(test_of_a_paused_sandbox_the_way_on_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
