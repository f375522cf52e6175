/* tests/unit/scheduler/test_cell_notes.c - what is kept of what the cell of a call says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "scheduler/cell_notes.h"

#define OUTCOME(name) CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_##name

static struct cell_notes notes;

static int begin(void **state)
{
    (void)state;
    notes_init(&notes);
    return 0;
}

static int end(void **state)
{
    (void)state;
    notes_fini(&notes);
    return 0;
}

static void take(const Cloche__V1__RunCodeResponse *m)
{
    struct cl_err err = {0};
    if (notes_take(&notes, m, &err) < 0)
        fail_msg("%s", err.text);
}

static void take_result(const char *mime_type, const void *bytes, size_t n)
{
    Cloche__V1__RunCodeResponse m = CLOCHE__V1__RUN_CODE_RESPONSE__INIT;
    Cloche__V1__CellResult result = CLOCHE__V1__CELL_RESULT__INIT;
    Cloche__V1__MimeData form = CLOCHE__V1__MIME_DATA__INIT, *forms[] = {&form};
    form.mime_type = (char *)(uintptr_t)mime_type;
    form.data.data = (uint8_t *)(uintptr_t)bytes;
    form.data.len = n;
    result.data = forms;
    result.n_data = 1;
    m.event_case = CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT;
    m.result = &result;
    take(&m);
}

static void take_text(const char *kind, const char *text)
{
    char mime[64];
    (void)snprintf(mime, sizeof mime, "application/x-cloche-%s", kind);
    take_result(mime, text, strlen(text));
}

static void take_output(Cloche__V1__Stream stream, const void *bytes, size_t n)
{
    Cloche__V1__RunCodeResponse m = CLOCHE__V1__RUN_CODE_RESPONSE__INIT;
    Cloche__V1__Output output = CLOCHE__V1__OUTPUT__INIT;
    output.stream = stream;
    output.data.data = (uint8_t *)(uintptr_t)bytes;
    output.data.len = n;
    m.event_case = CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_OUTPUT;
    m.output = &output;
    take(&m);
}

static void take_end(Cloche__V1__CellOutcome outcome)
{
    static char words[] = "its words";
    Cloche__V1__RunCodeResponse m = CLOCHE__V1__RUN_CODE_RESPONSE__INIT;
    Cloche__V1__CellEnded ended = CLOCHE__V1__CELL_ENDED__INIT;
    ended.outcome = outcome;
    ended.message = words;
    m.event_case = CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED;
    m.ended = &ended;
    take(&m);
}

static void expect(Cloche__V1__CellOutcome outcome, const char *message)
{
    const char *said;
    assert_int_equal(notes_outcome(&notes, &said), outcome);
    assert_non_null(strstr(said, message));
}

static void test_a_result_is_what_was_returned(void **state)
{
    (void)state;
    take_result("text/plain", "other", 5);
    take_text("result", "{\"a\": [1e300, 12345678901234567890, \"\\u0000\"]}");
    take_end(OUTCOME(OK));
    expect(OUTCOME(OK), "its words");
    assert_string_equal(notes.told[NOTE_RESULT],
                        "{\"a\": [1e300, 12345678901234567890, \"\\u0000\"]}");
    assert_null(notes_error(&notes));
}

static void test_what_is_no_json_is_no_result(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {{"", 0},
                {"{", 1},
                {"NaN", 3},
                {"1 2", 3},
                {"\"\xff\"", 3},
                {"1\0", 2},
                {"\"\xed\xa0\x80\"", 5},
                {"1e999", 5}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        notes_next(&notes);
        take_result("application/x-cloche-result", rows[i].bytes, rows[i].n);
        take_end(OUTCOME(OK));
        expect(OUTCOME(FAILED), "not JSON");
        assert_null(notes.told[NOTE_RESULT]);
    }
}

static void test_a_result_has_a_length(void **state)
{
    (void)state;
    char *text = cl_zalloc(NOTES_RESULT_MAX + 1);
    assert_non_null(text);
    memset(text, '1', NOTES_RESULT_MAX + 1);
    text[0] = text[NOTES_RESULT_MAX - 1] = '"';
    take_result("application/x-cloche-result", text, NOTES_RESULT_MAX);
    assert_non_null(notes.told[NOTE_RESULT]);
    text[NOTES_RESULT_MAX - 1] = '1';
    text[NOTES_RESULT_MAX] = '"';
    take_result("application/x-cloche-result", text, NOTES_RESULT_MAX + 1);
    take_end(OUTCOME(OK));
    expect(OUTCOME(FAILED), "1 MiB");
    cl_free(text);
}

static void test_the_last_of_several_counts(void **state)
{
    (void)state;
    take_text("result", "1");
    take_text("result", "2");
    take_end(OUTCOME(OK));
    expect(OUTCOME(OK), "");
    assert_string_equal(notes.told[NOTE_RESULT], "2");
}

static void test_an_error_is_one_whatever_else_was_shown(void **state)
{
    (void)state;
    take_text("result", "1");
    take_text("error", "ValueError");
    take_text("value", "no");
    take_end(OUTCOME(OK));
    expect(OUTCOME(ERROR), "");
    assert_string_equal(notes_error(&notes)->name, "ValueError");
    assert_string_equal(notes_error(&notes)->value, "no");
    assert_string_equal(notes_error(&notes)->traceback, "");
}

static void test_without_a_result_it_failed(void **state)
{
    (void)state;
    expect(OUTCOME(FAILED), "");
    take_text("found", "1");
    take_text("nothing that is known", "1");
    take_end(OUTCOME(OK));
    expect(OUTCOME(FAILED), "without a result");
}

static void test_how_the_cell_ended_goes_before(void **state)
{
    (void)state;
    take_text("result", "1");
    take_end(OUTCOME(TIMED_OUT));
    take_end(OUTCOME(OK)); /* a second end is none */
    expect(OUTCOME(TIMED_OUT), "its words");
}

static void test_the_beginning_of_the_output_is_kept(void **state)
{
    (void)state;
    static const char some[NOTES_OUTPUT_MAX] = "some";
    take_output(CLOCHE__V1__STREAM__STREAM_STDERR, "no", 2);
    take_output(CLOCHE__V1__STREAM__STREAM_STDOUT, "first", 5);
    notes_next(&notes); /* of the cell before, too */
    for (int i = 0; i < 3; i++)
        take_output(CLOCHE__V1__STREAM__STREAM_STDOUT, some, sizeof some);
    assert_int_equal(notes.out[0].len, NOTES_OUTPUT_MAX);
    assert_memory_equal(notes.out[0].data, "firstsome", 9);
    assert_int_equal(notes.out[1].len, 2);
}

static void test_the_next_cell_knows_nothing_of_it(void **state)
{
    (void)state;
    take_text("result", "1");
    take_text("refused", "x");
    take_end(OUTCOME(OK));
    notes_next(&notes);
    for (size_t i = 0; i < NOTE_NR; i++)
        assert_null(notes.told[i]);
    take_end(OUTCOME(OK));
    expect(OUTCOME(FAILED), "without a result");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_result_is_what_was_returned, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_no_json_is_no_result, begin, end),
        cmocka_unit_test_setup_teardown(test_a_result_has_a_length, begin, end),
        cmocka_unit_test_setup_teardown(test_the_last_of_several_counts, begin, end),
        cmocka_unit_test_setup_teardown(test_an_error_is_one_whatever_else_was_shown, begin, end),
        cmocka_unit_test_setup_teardown(test_without_a_result_it_failed, begin, end),
        cmocka_unit_test_setup_teardown(test_how_the_cell_ended_goes_before, begin, end),
        cmocka_unit_test_setup_teardown(test_the_beginning_of_the_output_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_the_next_cell_knows_nothing_of_it, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
