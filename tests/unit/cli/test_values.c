/* tests/unit/cli/test_values.c - the small languages of the command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/values.h"

static void test_pairs_split_at_the_first_equals_sign(void **state)
{
    (void)state;
    char name[VALUE_NAME];
    const char *value = NULL;
    assert_int_equal(value_pair("A=b=c", name, &value, NULL), 0);
    assert_string_equal(name, "A");
    assert_string_equal(value, "b=c");
    assert_int_equal(value_pair("A=", name, &value, NULL), 0);
    assert_string_equal(value, "");
    assert_int_equal(value_pair("A", name, &value, NULL), -1);
    assert_int_equal(value_pair("=x", name, &value, NULL), -1);
}

static void test_a_name_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char text[VALUE_NAME + 8], name[VALUE_NAME];
    const char *value = NULL;
    memset(text, 'a', sizeof text);
    text[VALUE_NAME] = '=';
    text[sizeof text - 1] = '\0';
    assert_int_equal(value_pair(text, name, &value, NULL), -1);
}

static void test_places(void **state)
{
    (void)state;
    struct value_place p;
    assert_int_equal(value_place("sbx_01m7zpnazk39wapn3f0q7gks6b:/tmp/x", &p, NULL), 0);
    assert_string_equal(p.sandbox, "sbx_01m7zpnazk39wapn3f0q7gks6b");
    assert_string_equal(p.path, "/tmp/x");
    assert_int_equal(value_place("sbx_01m7zpnazk39wapn3f0q7gks6b:", &p, NULL), 0);
    assert_string_equal(p.path, ".");
    assert_int_equal(value_place("a:b", &p, NULL), 0);
    assert_string_equal(p.sandbox, "");
    assert_string_equal(p.path, "a:b");
    assert_int_equal(value_place("./sbx_x", &p, NULL), 0);
    assert_string_equal(p.sandbox, "");
    assert_int_equal(value_place("sbx_short:/x", &p, NULL), -1);
    assert_int_equal(value_place("", &p, NULL), -1);
}

static void test_rates(void **state)
{
    (void)state;
    uint64_t us = 0;
    assert_int_equal(value_rate("10/s", &us, NULL), 0);
    assert_int_equal(us, 100000);
    assert_int_equal(value_rate("6/m", &us, NULL), 0);
    assert_int_equal(us, 10000000);
    assert_int_equal(value_rate("1/h", &us, NULL), 0);
    assert_int_equal(us, UINT64_C(3600000000));
    static const char *const bad[] = {"", "10", "0/s", "x/s", "10/d", "/s", "2000000/s", "-1/s"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(value_rate(bad[i], &us, NULL), -1);
}

static void test_times(void **state)
{
    (void)state;
    uint64_t at, now = UINT64_C(1767225600) * CL_NS_PER_S; /* 2026-01-01 */
    assert_int_equal(value_time("2026-01-02", now, &at, NULL), 0);
    assert_int_equal(at, cl_rfc3339_ns("2026-01-02T00:00:00.000000Z"));
    assert_int_equal(value_time("2026-01-02T03:04:05Z", now, &at, NULL), 0);
    assert_int_equal(at, cl_rfc3339_ns("2026-01-02T03:04:05.000000Z"));
    assert_int_equal(value_time("1h", now, &at, NULL), 0);
    assert_int_equal(at, cl_rfc3339_ns("2025-12-31T23:00:00.000000Z"));
    assert_int_equal(value_time("yesterday", now, &at, NULL), -1);
    assert_int_equal(value_time("2026-01-02T99", now, &at, NULL), -1);
}

static void test_sizes_and_ages_for_people(void **state)
{
    (void)state;
    char out[VALUE_TEXT];
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},        {1023, "1023 B"},          {1024, "1 KiB"},
                 {1536, "1.5 KiB"}, {512 * CL_MIB, "512 MiB"}, {3 * CL_GIB, "3 GiB"}};
    for (size_t i = 0; i < CL_COUNT(sizes); i++) {
        cl_text_bytes(sizes[i].bytes, out);
        assert_string_equal(out, sizes[i].text);
    }
    static const struct {
        uint64_t s;
        const char *text;
    } ages[] = {{0, "0 s"},        {59, "59 s"},  {119, "119 s"}, {120, "2 min"},
                {7199, "119 min"}, {7200, "2 h"}, {172800, "2 d"}};
    for (size_t i = 0; i < CL_COUNT(ages); i++) {
        value_age_text(ages[i].s * CL_NS_PER_S, out);
        assert_string_equal(out, ages[i].text);
    }
}

static void test_short_times_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } times[] = {{0, "0.0 us"},    {49, "0.0 us"},     {50, "0.1 us"},         {999, "1.0 us"},
                 {5749, "5.7 us"}, {23950, "24.0 us"}, {9999999, "10000.0 us"}};
    char out[VALUE_TEXT];
    for (size_t i = 0; i < CL_COUNT(times); i++) {
        value_us_text(times[i].ns, out);
        assert_string_equal(out, times[i].text);
    }
}

static void test_exit_codes_are_those_of_the_contract(void **state)
{
    (void)state;
    static const struct {
        Cloche__V1__Outcome outcome;
        int exit_code, signal, want;
    } rows[] = {
        {CLOCHE__V1__OUTCOME__OUTCOME_EXITED, 0, 0, 0},
        {CLOCHE__V1__OUTCOME__OUTCOME_EXITED, 42, 0, 42},
        {CLOCHE__V1__OUTCOME__OUTCOME_SIGNALED, 0, 9, 137},
        {CLOCHE__V1__OUTCOME__OUTCOME_SIGNALED, 0, 15, 143},
        {CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT, 0, 9, 124},
        {CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED, 0, 9, 137},
        {CLOCHE__V1__OUTCOME__OUTCOME_NOT_FOUND, 127, 0, 127},
        {CLOCHE__V1__OUTCOME__OUTCOME_NOT_EXECUTABLE, 126, 0, 126},
        {CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED, 0, 0, 130},
        {CLOCHE__V1__OUTCOME__OUTCOME_FAILED, 0, 0, 125},
        {CLOCHE__V1__OUTCOME__OUTCOME_UNSPECIFIED, 0, 0, 125},
        {(Cloche__V1__Outcome)77, 0, 0, 125},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
        r.outcome = rows[i].outcome;
        r.exit_code = rows[i].exit_code;
        r.signal = rows[i].signal;
        assert_int_equal(value_exit_code(&r), rows[i].want);
    }
}

static void test_what_happens_to_idle_sandboxes(void **state)
{
    (void)state;
    struct value_idle idle = {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, true};
    assert_int_equal(value_idle(NULL, &idle, NULL), 0);
    assert_int_equal(idle.action, CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_UNSPECIFIED);
    assert_false(idle.wakes);
    assert_string_equal(value_idle_name((int)idle.action, idle.wakes), "end");
    static const struct {
        const char *word;
        int action;
        bool wakes;
    } rows[] = {{"end", CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_END, false},
                {"pause", CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, true},
                {"pause-until-resumed", CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, false}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(value_idle(rows[i].word, &idle, NULL), 0);
        assert_int_equal(idle.action, rows[i].action);
        assert_int_equal(idle.wakes, rows[i].wakes);
        assert_string_equal(value_idle_name((int)idle.action, idle.wakes), rows[i].word);
    }
    static const char *const bad[] = {"", "Pause", "pauses", "pause-until", "kill"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_err err = {0};
        assert_int_equal(value_idle(bad[i], &idle, &err), -1);
        assert_non_null(strstr(err.text, "want end, pause or pause-until-resumed"));
        assert_int_equal(idle.action, CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE);
    }
}

static void test_names_of_unknown_numbers(void **state)
{
    (void)state;
    assert_string_equal(value_state(3), "running");
    assert_string_equal(value_state(4), "paused");
    assert_string_equal(value_state(99), "unknown");
    assert_string_equal(value_idle_name(99, false), "unknown");
    assert_string_equal(value_outcome(-1), "unknown");
    assert_string_equal(value_reason(1), "worker-lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_split_at_the_first_equals_sign),
        cmocka_unit_test(test_short_times_for_people),
        cmocka_unit_test(test_a_name_that_is_too_long_is_refused),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_sizes_and_ages_for_people),
        cmocka_unit_test(test_exit_codes_are_those_of_the_contract),
        cmocka_unit_test(test_what_happens_to_idle_sandboxes),
        cmocka_unit_test(test_names_of_unknown_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
