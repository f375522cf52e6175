/* tests/unit/gateway/test_http2.c - requests out of HTTP/2's fields; which protocol is it? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "gateway/http2.h"

static void field(struct http2_request *r, const char *name, const char *value)
{
    http2_request_field(r, name, strlen(name), value, strlen(value));
}

static void begin(struct http2_request *r)
{
    http2_request_init(r);
    field(r, ":method", "POST");
    field(r, ":scheme", "https");
    field(r, ":authority", "a.org");
    field(r, ":path", "/mcp?x=/y");
}

/* Status of a request with one more field, or two. */
static int with(const char *name, const char *value, const char *name2, const char *value2)
{
    struct http2_request r;
    begin(&r);
    field(&r, name, value);
    if (name2)
        field(&r, name2, value2);
    int status = http2_request_head_done(&r);
    if (status == 0)
        status = http2_request_gather(&r);
    http2_request_fini(&r);
    return status;
}

static void test_fields_path_and_body(void **state)
{
    (void)state;
    struct http2_request r;
    begin(&r);
    field(&r, "accept", "a/b");
    field(&r, "x-other", "y");
    field(&r, "mcp-session-id", "s1");
    field(&r, "content-length", "3");
    assert_int_equal(http2_request_head_done(&r), 0);
    assert_false(r.request.wants_continue);
    assert_int_equal(http2_request_body(&r, "ab", 2), 0);
    assert_int_equal(http2_request_body(&r, "c", 1), 0);
    const struct http_request *q = http2_request_done(&r);
    assert_int_equal(q->verb, VERB_POST);
    assert_string_equal(q->path, "/mcp");
    assert_string_equal(q->query, "x=/y");
    assert_string_equal(q->fields[FIELD_HOST], "a.org");
    assert_string_equal(q->fields[FIELD_ACCEPT], "a/b");
    assert_string_equal(q->fields[FIELD_MCP_SESSION], "s1");
    assert_null(q->fields[FIELD_ORIGIN]);
    assert_int_equal(q->n, 3);
    assert_memory_equal(q->body, "abc", 3);
    assert_true(q->keep_alive);
    assert_false(q->is_1_0);
    http2_request_fini(&r);
}

static void test_what_is_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    assert_int_equal(with("accept", "a", "accept", "b"), 0);
    assert_int_equal(with("authorization", "a", "authorization", "a"), 400);
    assert_int_equal(with("mcp-name", "a", "mcp-name", "b"), 400);
    assert_int_equal(with("host", "A.org", NULL, NULL), 0);
    assert_int_equal(with("host", "b.org", NULL, NULL), 400);
    assert_int_equal(with("host", "a.org.b", NULL, NULL), 400);
    assert_int_equal(with("host", "a.org", "host", "a.org"), 400);
    assert_int_equal(with(":authority", "b.org", NULL, NULL), 400);
    assert_int_equal(with("mcp-name", "a\x01", NULL, NULL), 400);
    assert_int_equal(with(":method", "CONNECT", NULL, NULL), 400);
    assert_int_equal(with(":path", "*", NULL, NULL), 400);
    assert_int_equal(with(":path", "", NULL, NULL), 414);
    assert_int_equal(with("content-length", "-1", NULL, NULL), 400);
    assert_int_equal(with("content-length", "8388608", NULL, NULL), 0);
    assert_int_equal(with("content-length", "8388609", NULL, NULL), 413);
    assert_int_equal(with("content-length", "99999999999999999999999999", NULL, NULL), 413);
}

/* Of several traces none is meant, and the request is served all the same. */
static void test_a_trace_that_comes_again_is_none(void **state)
{
    (void)state;
    static const char *const said[] = {"a", "", ""};
    struct http2_request r;
    for (size_t n = 0; n < CL_COUNT(said); n++) {
        begin(&r);
        for (size_t i = 0; i <= n; i++)
            field(&r, "traceparent", "a");
        assert_int_equal(http2_request_head_done(&r), 0);
        assert_string_equal(r.request.fields[FIELD_TRACEPARENT], said[n]);
        http2_request_fini(&r);
    }
}

static void test_a_value_holds_no_nul(void **state)
{
    (void)state;
    struct http2_request r;
    begin(&r);
    http2_request_field(&r, "mcp-name", 8, "a\0b", 3);
    assert_int_equal(http2_request_head_done(&r), 400);
    http2_request_fini(&r);
}

static void test_without_authority_host_counts(void **state)
{
    (void)state;
    struct http2_request r;
    http2_request_init(&r);
    field(&r, ":method", "GET");
    field(&r, ":path", "/x");
    field(&r, "host", "h");
    field(&r, "expect", "100-Continue");
    assert_int_equal(http2_request_head_done(&r), 0);
    assert_true(r.request.wants_continue);
    assert_string_equal(http2_request_done(&r)->fields[FIELD_HOST], "h");
    assert_int_equal(http2_request_done(&r)->verb, VERB_GET);
    http2_request_fini(&r);
    http2_request_init(&r);
    field(&r, ":method", "GET");
    assert_int_equal(http2_request_head_done(&r), 400); /* no path */
    http2_request_fini(&r);
}

static void test_the_head_has_limits(void **state)
{
    (void)state;
    struct http2_request r;
    static char large[HTTP_HEAD_MAX + 2];
    memset(large, 'a', HTTP_HEAD_MAX + 1);
    assert_int_equal(with("x", large, NULL, NULL), 431);
    large[0] = '/';
    assert_int_equal(with(":path", large, NULL, NULL), 414);
    for (int n = HTTP_FIELDS_MAX; n <= HTTP_FIELDS_MAX + 1; n++) {
        begin(&r);
        for (int i = 0; i < n; i++)
            field(&r, "x", "y");
        assert_int_equal(http2_request_head_done(&r), n > HTTP_FIELDS_MAX ? 431 : 0);
        if (n == HTTP_FIELDS_MAX) { /* a trailer counts as well */
            http2_request_trailer(&r, 1, 1);
            assert_int_equal(r.status, 431);
        }
        http2_request_fini(&r);
    }
    begin(&r);
    http2_request_bad_field(&r);
    field(&r, "mcp-name", "a"); /* is looked at no more */
    assert_int_equal(http2_request_head_done(&r), 400);
    assert_null(r.request.fields[FIELD_MCP_NAME]);
    http2_request_fini(&r);
}

static void test_the_body_has_a_limit(void **state)
{
    (void)state;
    static const char piece[64 * 1024];
    struct http2_request r;
    begin(&r);
    assert_int_equal(http2_request_head_done(&r), 0);
    for (size_t sum = 0; sum < HTTP_BODY_MAX; sum += sizeof piece)
        assert_int_equal(http2_request_body(&r, piece, sizeof piece), 0);
    assert_int_equal(r.body.len, HTTP_BODY_MAX);
    assert_int_equal(http2_request_body(&r, piece, 1), 413);
    http2_request_drop_body(&r);
    assert_int_equal(r.body.len, 0);
    assert_int_equal(http2_request_body(&r, piece, 1), 413);
    assert_int_equal(r.body.len, 0);
    http2_request_fini(&r);
}

static void test_the_first_bytes_say_which_protocol(void **state)
{
    (void)state;
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for (size_t n = 0; n < HTTP2_PREFACE; n++)
        assert_int_equal(http2_sniff(preface, n), SNIFF_MORE);
    assert_int_equal(http2_sniff(preface, HTTP2_PREFACE), SNIFF_HTTP2);
    assert_int_equal(http2_sniff("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", 28), SNIFF_HTTP2);
    assert_int_equal(http2_sniff("PO", 2), SNIFF_HTTP1);
    assert_int_equal(http2_sniff("GET /mcp", 8), SNIFF_HTTP1);
    assert_int_equal(http2_sniff("PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", 24), SNIFF_HTTP1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_path_and_body),
        cmocka_unit_test(test_what_is_read_in_two_ways_is_refused),
        cmocka_unit_test(test_a_trace_that_comes_again_is_none),
        cmocka_unit_test(test_a_value_holds_no_nul),
        cmocka_unit_test(test_without_authority_host_counts),
        cmocka_unit_test(test_the_head_has_limits),
        cmocka_unit_test(test_the_body_has_a_limit),
        cmocka_unit_test(test_the_first_bytes_say_which_protocol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
