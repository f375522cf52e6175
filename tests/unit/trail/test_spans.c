/* trail/spans: records become spans, in whose trace, with what in them; and what is left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "trail/span.h"
#include "trail/spans.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define OTHER "0af7651916cd43dd8448eb211c80319c"
#define SPAN "00f067aa0ba902b7"
#define CALLED "00-" TRACE "-" SPAN "-01"
#define UNIT "\"unit\":\"sbx_1\""
#define ADMIT(more) \
    { \
        "unit.admit", "{\"kind\":\"sandbox\",\"template\":\"python\",\"argv\":[]," more UNIT "}" \
    }
#define END \
    { \
        "unit.end", "{\"outcome\":\"CANCELLED\",\"reason\":\"REQUESTED\"," UNIT "}" \
    }

struct row {
    const char *event, *fields;
};

static struct spans *s;

static int set_up(void **state)
{
    (void)state;
    return spans_new(&s, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    spans_free(s);
    return 0;
}

/* A second passes with each. */
static void feed_from(const struct row *rows, size_t n, unsigned second)
{
    for (size_t i = 0; i < n; i++) {
        char ts[64];
        (void)snprintf(ts, sizeof ts, "2026-01-02T03:%02u:%02u.000000Z",
                       (second + (unsigned)i) / 60, (second + (unsigned)i) % 60);
        json_t *fields = json_loads(rows[i].fields, 0, NULL);
        assert_non_null(fields);
        const struct spans_record r = {"tenant/acme", ts, rows[i].event, fields};
        spans_feed(s, &r);
        json_decref(fields);
    }
}
#define FEED(rows) feed_from(rows, CL_COUNT(rows), 0)

/* What is done, as it is sent; borrowed from `sent`. */
static json_t *take(json_t **sent)
{
    json_t *scope = NULL;
    *sent = spans_take(s);
    assert_non_null(*sent);
    assert_int_equal(json_unpack(*sent, "{s:[{s:[o]}]}", "resourceSpans", "scopeSpans", &scope), 0);
    return json_object_get(scope, "spans");
}

static json_t *named(const json_t *spans, const char *name)
{
    size_t i;
    json_t *span;
    json_array_foreach(spans, i, span)
    {
        if (strcmp(json_string_value(json_object_get(span, "name")), name) == 0)
            return span;
    }
    fail_msg("no span '%s'", name);
    return NULL;
}

static const char *text(const json_t *of, const char *key)
{
    const char *is = json_string_value(json_object_get(of, key));
    return is ? is : "";
}

/* Its value, as JSON. */
static char *attribute(const json_t *of, const char *key)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(of, "attributes"), i, each)
    {
        if (strcmp(text(each, "key"), key) == 0)
            return json_dumps(json_object_get(each, "value"), JSON_COMPACT);
    }
    return strdup("");
}

static void has(const json_t *of, const char *key, const char *want)
{
    char *is = attribute(of, key);
    assert_string_equal(is, want);
    free(is);
}

static void test_a_sandbox_and_what_was_asked_of_it(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ADMIT("\"subject\":\"key/1\","),
        {"unit.dispatch", "{\"attempt\":1,\"worker\":\"wrk_1\"," UNIT "}"},
        {"unit.start", "{" UNIT "}"},
        {"vm.start", "{\"driver\":\"kvm\",\"guest_separation\":\"isolated\"," UNIT "}"},
        {"exec.start", "{\"argv\":[\"/bin/sh\",\"-c\",\"x\"],\"exec\":\"e1\",\"uid\":0," UNIT "}"},
        {"guest.exec", "{\"argv\":[\"ls\"],\"exec\":\"e1\",\"pid\":7,\"guest_ns\":1," UNIT "}"},
        {"exec.end", "{\"exec\":\"e1\",\"outcome\":\"EXITED\",\"exit\":3,\"signal\":0," UNIT "}"},
        END,
    };
    FEED(rows);
    json_t *sent, *spans = take(&sent);
    assert_int_equal(json_array_size(spans), 4);
    const json_t *unit = named(spans, "sandbox python"), *exec = named(spans, "exec sh");
    const json_t *queue = named(spans, "queue"), *start = named(spans, "start");
    assert_int_equal(strlen(text(unit, "traceId")), 32);
    assert_string_equal(text(unit, "parentSpanId"), "");
    const json_t *const inner[] = {exec, queue, start};
    for (size_t i = 0; i < CL_COUNT(inner); i++) {
        assert_string_equal(text(inner[i], "traceId"), text(unit, "traceId"));
        assert_string_equal(text(inner[i], "parentSpanId"), text(unit, "spanId"));
        assert_null(json_object_get(inner[i], "links"));
    }
    assert_string_equal(text(unit, "startTimeUnixNano"), "1767322800000000000");
    assert_string_equal(text(unit, "endTimeUnixNano"), "1767322807000000000");
    assert_string_equal(text(start, "startTimeUnixNano"), text(queue, "endTimeUnixNano"));
    has(unit, "cloche.tenant", "{\"stringValue\":\"acme\"}");
    has(unit, "cloche.driver", "{\"stringValue\":\"kvm\"}");
    has(exec, "process.exit.code", "{\"intValue\":\"3\"}");
    has(exec, "process.command_args",
        "{\"arrayValue\":{\"values\":[{\"stringValue\":\"/bin/sh\"},{\"stringValue\":\"-c\"},"
        "{\"stringValue\":\"x\"}]}}");
    const json_t *status = json_object_get(exec, "status");
    assert_int_equal(json_integer_value(json_object_get(status, "code")), 2);
    assert_string_equal(text(status, "message"), "exit code 3");
    assert_null(json_object_get(unit, "status"));
    const json_t *event = json_array_get(json_object_get(exec, "events"), 0);
    assert_string_equal(text(event, "name"), "guest.exec");
    has(event, "process.pid", "{\"intValue\":\"7\"}");
    has(event, "cloche.guest_ns", "");
    json_decref(sent);
    assert_null(spans_take(s));
    json_t *kept = spans_state(s);
    assert_int_equal(json_object_size(kept), 0);
    json_decref(kept);
}

static void test_a_callers_trace_goes_on(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ADMIT("\"trace\":\"" CALLED "\","),
        {"exec.start", "{\"argv\":[\"a\"],\"exec\":\"e1\"," UNIT "}"},
        {"exec.start",
         "{\"argv\":[\"b\"],\"exec\":\"e2\",\"trace\":\"00-" OTHER "-" SPAN "-01\"," UNIT "}"},
        {"code.run", "{\"cell\":\"c1\",\"context\":\"python\",\"trace\":\"no trace\"," UNIT "}"},
        END,
    };
    FEED(rows);
    json_t *sent, *spans = take(&sent);
    const json_t *unit = named(spans, "sandbox python"), *b = named(spans, "exec b");
    assert_string_equal(text(unit, "traceId"), TRACE);
    assert_string_equal(text(unit, "parentSpanId"), SPAN);
    assert_string_equal(text(named(spans, "exec a"), "traceId"), TRACE);
    assert_string_equal(text(named(spans, "code python"), "traceId"), TRACE);
    assert_string_equal(text(b, "traceId"), OTHER);
    assert_string_equal(text(b, "parentSpanId"), SPAN);
    const json_t *link = json_array_get(json_object_get(b, "links"), 0);
    assert_string_equal(text(link, "traceId"), TRACE);
    assert_string_equal(text(link, "spanId"), text(unit, "spanId"));
    json_decref(sent);
}

static void test_what_a_caller_does_not_sample_is_left_out(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ADMIT("\"trace\":\"00-" TRACE "-" SPAN "-00\","),
        {"exec.start", "{\"argv\":[\"a\"],\"exec\":\"e1\"," UNIT "}"},
        {"exec.start",
         "{\"argv\":[\"b\"],\"exec\":\"e2\",\"trace\":\"00-" OTHER "-" SPAN "-01\"," UNIT "}"},
        END,
    };
    FEED(rows);
    json_t *sent, *spans = take(&sent);
    assert_int_equal(json_array_size(spans), 1);
    assert_null(json_object_get(named(spans, "exec b"), "links"));
    json_decref(sent);
}

static void test_flows_ports_pauses_and_cells(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ADMIT(""),
        {"code.run", "{\"cell\":\"c1\",\"context\":\"python\"," UNIT "}"},
        {"guest.connect",
         "{\"address\":\"192.0.2.1\",\"port\":80,\"context\":\"python\"," UNIT "}"},
        {"net.dns", "{\"name\":\"example.org\",\"addresses\":[\"192.0.2.1\"]," UNIT "}"},
        {"net.open", "{\"flow\":1,\"name\":\"example.org\",\"address\":\"192.0.2.1\",\"port\":443,"
                     "\"protocol\":\"tcp\"," UNIT "}"},
        {"net.close", "{\"flow\":1,\"sent_bytes\":5,\"end\":\"closed\"," UNIT "}"},
        {"code.end", "{\"cell\":\"c1\",\"outcome\":\"error\"," UNIT "}"},
        {"port.open", "{\"connection\":\"conn_1\",\"port\":8000,\"link\":true," UNIT "}"},
        {"unit.pause", "{\"by\":\"key\"," UNIT "}"},
        {"unit.resume", "{\"by\":\"key\"," UNIT "}"},
        END,
    };
    FEED(rows);
    json_t *sent, *spans = take(&sent);
    const json_t *flow = named(spans, "tcp example.org"), *cell = named(spans, "code python");
    has(flow, "server.address", "{\"stringValue\":\"example.org\"}");
    has(flow, "cloche.sent_bytes", "{\"intValue\":\"5\"}");
    assert_int_equal(json_integer_value(json_object_get(flow, "kind")), 3);
    assert_string_equal(text(json_object_get(cell, "status"), "message"), "error");
    assert_null(json_object_get(cell, "context"));
    const json_t *event = json_array_get(json_object_get(cell, "events"), 0);
    assert_string_equal(text(event, "name"), "guest.connect");
    has(event, "network.peer.port", "{\"intValue\":\"80\"}");
    event = json_array_get(json_object_get(named(spans, "sandbox python"), "events"), 0);
    assert_string_equal(text(event, "name"), "net.dns");
    has(named(spans, "port 8000"), "cloche.end", "{\"stringValue\":\"with its unit\"}");
    assert_string_equal(text(named(spans, "paused"), "startTimeUnixNano"), "1767322808000000000");
    json_decref(sent);
}

static void test_a_second_attempt_waits_again(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ADMIT(""),
        {"unit.dispatch", "{\"attempt\":1," UNIT "}"},
        {"unit.requeue", "{\"attempt\":1,\"reason\":\"LOST\"," UNIT "}"},
        {"unit.dispatch", "{\"attempt\":2," UNIT "}"},
        {"unit.start", "{" UNIT "}"},
        {"unit.end", "{\"outcome\":\"TIMED_OUT\",\"reason\":\"TIMEOUT\"," UNIT "}"},
    };
    FEED(rows);
    json_t *sent, *spans = take(&sent);
    assert_int_equal(json_array_size(spans), 5);
    const json_t *first = named(spans, "start"), *status = json_object_get(first, "status");
    assert_string_equal(text(status, "message"), "LOST");
    const json_t *unit = named(spans, "sandbox python");
    assert_string_equal(text(json_object_get(unit, "status"), "message"), "TIMED_OUT TIMEOUT");
    const json_t *second = json_array_get(spans, 3);
    assert_string_equal(text(second, "name"), "start");
    assert_string_not_equal(text(second, "spanId"), text(first, "spanId"));
    json_decref(sent);
}

static void test_what_is_open_goes_on_elsewhere(void **state)
{
    (void)state;
    struct cl_err err = {0};
    static const struct row before[] = {
        ADMIT("\"trace\":\"" CALLED "\","),
        {"exec.start", "{\"argv\":[\"a\"],\"exec\":\"e1\"," UNIT "}"}};
    static const struct row after[] = {
        {"exec.end", "{\"exec\":\"e1\",\"outcome\":\"EXITED\"," UNIT "}"}, END};
    FEED(before);
    json_t *kept = spans_state(s);
    spans_free(s);
    assert_int_equal(spans_new(&s, NULL), 0);
    assert_int_equal(spans_restore(s, kept, &err), 0);
    feed_from(after, CL_COUNT(after), 60);
    json_t *sent, *spans = take(&sent);
    assert_string_equal(text(named(spans, "exec a"), "traceId"), TRACE);
    assert_string_equal(text(named(spans, "exec a"), "startTimeUnixNano"), "1767322801000000000");
    (void)json_object_set_new(json_object_get(json_object_get(kept, "sbx_1"), "self"), "events",
                              json_integer(1));
    assert_int_equal(spans_restore(s, kept, &err), -1);
    assert_int_equal(err.code, CL_E_DATALOSS);
    json_decref(sent);
    json_decref(kept);
}

static void test_of_what_began_before_there_is_none(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"guest.exec", "{\"argv\":[\"ls\"],\"exec\":\"e0\"," UNIT "}"},
        {"exec.end", "{\"exec\":\"e0\",\"outcome\":\"EXITED\"," UNIT "}"},
        {"quota.refused", "{\"dimension\":\"jobs\"," UNIT "}"},
        {"exec.start", "{\"argv\":[\"a\"],\"exec\":\"e1\"," UNIT "}"},
    };
    FEED(rows);
    assert_null(spans_take(s));
    spans_cut(s);
    json_t *sent, *spans = take(&sent);
    assert_int_equal(json_array_size(spans), 1);
    has(named(spans, "exec a"), "cloche.end", "{\"stringValue\":\"unfinished\"}");
    assert_int_equal(strlen(text(named(spans, "exec a"), "traceId")), 32);
    json_decref(sent);
}

static void test_other_streams_say_nothing(void **state)
{
    (void)state;
    json_t *fields = json_loads("{\"kind\":\"job\"," UNIT "}", 0, NULL);
    const struct spans_record host = {"host/a", "2026-01-02T03:04:05.000000Z", "unit.admit",
                                      fields},
                              odd = {"tenant/a", "yesterday", "unit.admit", fields};
    spans_feed(s, &host);
    spans_feed(s, &odd);
    spans_cut(s);
    assert_null(spans_take(s));
    json_decref(fields);
}

static void test_code_in_guests_does_not_decide_how_much_this_takes(void **state)
{
    (void)state;
    char fields[256];
    const struct row admit = ADMIT(""), end = END;
    feed_from(&admit, 1, 0);
    for (unsigned i = 0; i < SPAN_EVENTS + 10; i++) {
        const struct row event = {"guest.read", "{\"path\":\"/a\"," UNIT "}"};
        feed_from(&event, 1, 1);
    }
    for (unsigned i = 0; i < SPANS_OPEN + 10; i++) {
        (void)snprintf(fields, sizeof fields, "{\"argv\":[\"a\"],\"exec\":\"e%u\"," UNIT "}", i);
        const struct row exec = {"exec.start", fields};
        feed_from(&exec, 1, 2);
    }
    assert_int_equal(spans_left_out(s), 10 + 1); /* `queue` is one of the open ones */
    assert_false(spans_is_full(s));
    feed_from(&end, 1, 3);
    assert_true(spans_is_full(s));
    json_t *sent, *spans = take(&sent);
    const json_t *unit = named(spans, "sandbox python");
    assert_int_equal(json_array_size(spans), SPANS_OPEN + 1);
    assert_int_equal(json_array_size(json_object_get(unit, "events")), SPAN_EVENTS);
    assert_int_equal(json_integer_value(json_object_get(unit, "droppedEventsCount")), 10);
    json_decref(sent);
    for (unsigned i = 0; i < SPANS_UNITS + 10; i++) {
        (void)snprintf(fields, sizeof fields, "{\"kind\":\"job\",\"unit\":\"job_%u\"}", i);
        const struct row job = {"unit.admit", fields};
        feed_from(&job, 1, 4);
    }
    json_t *kept = spans_state(s);
    assert_int_equal(json_object_size(kept), SPANS_UNITS);
    assert_null(json_object_get(kept, "job_9"));
    assert_non_null(json_object_get(kept, "job_10"));
    json_decref(kept);
}

static void test_long_texts_do_not_either(void **state)
{
    (void)state;
    enum { WORDS = 30, JOBS = SPANS_BYTES / WORDS / SPAN_TEXT + 100 };
    char word[SPAN_TEXT + 1];
    memset(word, 'x', SPAN_TEXT);
    word[SPAN_TEXT] = '\0';
    json_t *argv = json_array();
    for (size_t i = 0; i < WORDS; i++)
        (void)json_array_append_new(argv, json_string(word));
    for (int i = 0; i < JOBS; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "job_%d", i);
        json_t *fields = json_pack("{s:s, s:O, s:s}", "kind", "job", "argv", argv, "unit", id);
        const struct spans_record r = {"tenant/a", "2026-01-02T03:04:05.000000Z", "unit.admit",
                                       fields};
        spans_feed(s, &r);
        json_decref(fields);
    }
    json_decref(argv);
    assert_true(spans_left_out(s) >= 50);
    size_t sent = 0, requests = 0;
    spans_cut(s);
    assert_true(spans_is_full(s));
    for (json_t *some; (some = spans_take(s)) != NULL; json_decref(some), requests++) {
        size_t n = json_dumpb(some, NULL, 0, JSON_COMPACT);
        assert_true(n < SPANS_TAKE_BYTES + 1000);
        sent += n;
    }
    assert_true(requests > SPANS_BYTES / SPANS_TAKE_BYTES - 1);
    assert_false(spans_is_full(s));
    assert_true(sent < SPANS_BYTES + SPANS_BYTES / 8);
}

static void test_texts_are_cut_between_characters(void **state)
{
    (void)state;
    char word[4 * SPAN_TEXT + 1] = "", fields[5 * SPAN_TEXT];
    for (size_t i = 0; i < SPAN_TEXT; i++)
        memcpy(word + 2 * i, "\xc3\xa4", 3);
    (void)snprintf(fields, sizeof fields, "{\"argv\":[\"x%s\"],\"exec\":\"e\"," UNIT "}", word);
    const struct row exec = {"exec.start", fields};
    feed_from(&exec, 1, 0);
    spans_cut(s);
    json_t *sent, *spans = take(&sent);
    json_t *span = json_array_get(spans, 0);
    assert_int_equal(strlen(text(span, "name")), strlen("exec x") + 98);
    char *args = attribute(span, "process.command_args");
    assert_true(strlen(args) < SPAN_TEXT + 100);
    free(args);
    json_decref(sent);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_sandbox_and_what_was_asked_of_it),
        TEST(test_a_callers_trace_goes_on),
        TEST(test_what_a_caller_does_not_sample_is_left_out),
        TEST(test_flows_ports_pauses_and_cells),
        TEST(test_a_second_attempt_waits_again),
        TEST(test_what_is_open_goes_on_elsewhere),
        TEST(test_of_what_began_before_there_is_none),
        TEST(test_other_streams_say_nothing),
        TEST(test_code_in_guests_does_not_decide_how_much_this_takes),
        TEST(test_long_texts_do_not_either),
        TEST(test_texts_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
