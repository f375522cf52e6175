/* tests/unit/e2b/test_pause.c - what the SDKs say about pausing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/pause.h"
#include "mcp/json.h"

static json_t *object(const char *text)
{
    json_t *v = NULL;
    assert_int_equal(mcp_json_parse(text, strlen(text), &v, NULL), 0);
    return v;
}

static void test_states_of_a_list(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned want;
    } rows[] = {{"running", E2B_RUNNING},
                {"paused", E2B_PAUSED},
                {"running,paused", E2B_ANY_STATE},
                {"paused,running", E2B_ANY_STATE},
                {"paused,paused", E2B_PAUSED}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        unsigned states = 0;
        assert_int_equal(e2b_states_read(rows[i].text, &states, NULL), 0);
        assert_int_equal(states, rows[i].want);
    }
    static const char *const bad[] = {"",       ",",         "running,",     ",paused",
                                      "paus",   "pausedx",   "Running",      "running paused",
                                      "killed", "paused,,a", "runningpaused"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        unsigned states = 77;
        struct cl_err err = {0};
        assert_int_equal(e2b_states_read(bad[i], &states, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_int_equal(states, 77);
    }
}

static void wish(const char *text, enum cl_code code, bool pauses, bool resumes)
{
    struct cl_err err = {0};
    struct e2b_auto_pause got = {false, false};
    json_t *body = object(text);
    int rc = e2b_auto_pause_read(body, &got, &err);
    if ((rc == 0) != (code == CL_OK) || err.code != code || got.pauses != pauses ||
        got.resumes != resumes)
        fail_msg("%s: %d, %s", text, (int)err.code, err.text);
    json_decref(body);
}

static void test_a_new_sandbox_may_pause_when_its_time_is_over(void **state)
{
    (void)state;
    wish("{}", CL_OK, false, false);
    wish("{\"autoPause\":false}", CL_OK, false, false);
    wish("{\"autoPause\":null,\"autoPauseMemory\":null,\"autoResume\":null}", CL_OK, false, false);
    wish("{\"autoPause\":true}", CL_OK, true, false);
    wish("{\"autoPause\":true,\"autoPauseMemory\":true}", CL_OK, true, false);
    wish("{\"autoPause\":true,\"autoResume\":{\"enabled\":false}}", CL_OK, true, false);
    wish("{\"autoPause\":true,\"autoPauseMemory\":false}", CL_E_UNIMPL, false, false);
    wish("{\"autoPause\":true,\"autoResume\":{\"enabled\":true}}", CL_OK, true, true);
    wish("{\"autoResume\":{\"enabled\":true}}", CL_E_INVALID, false, false);
    wish("{\"autoPause\":false,\"autoResume\":{\"enabled\":true}}", CL_E_INVALID, false, false);
    wish("{\"autoPause\":\"yes\"}", CL_E_INVALID, false, false);
    wish("{\"autoPause\":1}", CL_E_INVALID, false, false);
    wish("{\"autoPause\":true,\"autoResume\":{\"enabled\":\"x\"}}", CL_E_INVALID, false, false);
    struct e2b_auto_pause got = {true, true};
    assert_int_equal(e2b_auto_pause_read(NULL, &got, NULL), 0);
    assert_false(got.pauses || got.resumes);
}

static void test_a_pause_keeps_the_memory(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum cl_code code;
    } rows[] = {{"{}", CL_OK},
                {"{\"memory\":true}", CL_OK},
                {"{\"memory\":null,\"timeout\":30}", CL_OK},
                {"{\"requireHealthyGuest\":false}", CL_OK},
                {"{\"memory\":false}", CL_E_UNIMPL},
                {"{\"requireHealthyGuest\":true}", CL_E_UNIMPL},
                {"{\"memory\":\"no\"}", CL_E_INVALID}};
    assert_int_equal(e2b_pause_check(NULL, NULL), 0);
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct cl_err err = {0};
        json_t *body = object(rows[i].text);
        int rc = e2b_pause_check(body, &err);
        if ((rc == 0) != (rows[i].code == CL_OK) || err.code != rows[i].code)
            fail_msg("%s: %d, %s", rows[i].text, (int)err.code, err.text);
        json_decref(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_of_a_list),
        cmocka_unit_test(test_a_new_sandbox_may_pause_when_its_time_is_over),
        cmocka_unit_test(test_a_pause_keeps_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
