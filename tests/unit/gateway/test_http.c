/* tests/unit/gateway/test_http.c - requests out of bytes, in any pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/mem.h"
#include "gateway/http.h"

/* The last step, after feeding `text` in pieces. */
static enum http_step feed(struct http_parser *p, const char *text, size_t n, size_t piece)
{
    enum http_step step = STEP_MORE;
    size_t at = 0, used;
    while (at < n && step != STEP_DONE && step != STEP_BAD) {
        step = http_parser_feed(p, text + at, CL_MIN(piece, n - at), &used);
        at += used;
    }
    while (step == STEP_HEAD || step == STEP_CONTINUE)
        step = http_parser_feed(p, NULL, 0, &used);
    return step;
}

static void status(const char *text, size_t n, int want)
{
    for (size_t piece = 1; piece <= n; piece += piece < 8 ? 1 : n) {
        struct http_parser *p = NULL;
        assert_int_equal(http_parser_new(&p, NULL), 0);
        enum http_step step = feed(p, text, n, piece);
        if (want == 0 ? step != STEP_DONE : step != STEP_BAD || http_parser_status(p) != want)
            fail_msg("%.60s in pieces of %zu: step %d, status %d", text, piece, (int)step,
                     http_parser_status(p));
        http_parser_free(p);
    }
}
#define HEAD "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
#define STATUS(text, want) status(text, sizeof(text) - 1, want)

static void test_requests_and_what_is_none(void **state)
{
    (void)state;
    STATUS(HEAD "Content-Length: 2\r\n\r\n{}", 0);
    STATUS(HEAD "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n", 0);
    STATUS(HEAD
           "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 2\r\n\r\n{}",
           0);
    STATUS(HEAD "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400);
    STATUS(HEAD "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
    STATUS(HEAD "Transfer-Encoding: gzip\r\n\r\n", 400);
    STATUS(HEAD "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400);
    STATUS(HEAD "Content-Length: -1\r\n\r\n", 400);
    STATUS(HEAD "Content-Length: 8388609\r\n\r\n", 413);
    STATUS(HEAD "Host: localhost\r\n\r\n", 400);
    STATUS(HEAD "Authorization: a\r\nauthorization: b\r\n\r\n", 400);
    STATUS(HEAD "Mcp-Name: a\r\nmcp-name: b\r\n\r\n", 400);
    STATUS(HEAD "A b: c\r\n\r\n", 400);
    STATUS("POST /mcp HTTP/1.1\r\nAuthorization: a\r\n b\r\n\r\n", 0); /* obs-fold: a space */
    STATUS(HEAD "Mcp-Name: a\x01\r\n\r\n", 400);
    STATUS("POST http://localhost/mcp HTTP/1.1\r\n\r\n", 400);
    STATUS("CONNECT localhost:1 HTTP/1.1\r\n\r\n", 400);
    STATUS("GET /x HTTP/3.0\r\n\r\n", 505);
    STATUS("\x16\x03\x01", 400);
}

static void test_the_head_has_limits(void **state)
{
    (void)state;
    char text[HTTP_HEAD_MAX + 4096];
    int n = snprintf(text, sizeof text, HEAD "X: ");
    memset(text + n, 'a', HTTP_HEAD_MAX);
    status(text, (size_t)n + HTTP_HEAD_MAX, 431);
    n = snprintf(text, sizeof text, "GET /");
    memset(text + n, 'a', HTTP_HEAD_MAX);
    status(text, (size_t)n + HTTP_HEAD_MAX, 414);
    n = snprintf(text, sizeof text, HEAD);
    for (int i = 0; i < HTTP_FIELDS_MAX; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "x%d: y\r\n", i);
    status(text, (size_t)n, 431);
}

static void test_fields_path_and_body(void **state)
{
    (void)state;
    static const char text[] =
        "POST /mcp?a=/b HTTP/1.1\r\nHOST: h \r\nX-Other: y\r\nAccept: a/b\r\n"
        "mcp-session-id:\t s1 \r\nContent-Length: 3\r\n\r\nabcGET";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct http_parser *p = NULL;
        assert_int_equal(http_parser_new(&p, NULL), 0);
        assert_int_equal(feed(p, text, sizeof text - 1, piece), STEP_DONE);
        const struct http_request *r = http_parser_request(p);
        assert_int_equal(r->verb, VERB_POST);
        assert_string_equal(r->path, "/mcp");
        assert_string_equal(r->query, "a=/b");
        assert_string_equal(r->fields[FIELD_HOST], "h");
        assert_string_equal(r->fields[FIELD_ACCEPT], "a/b");
        assert_string_equal(r->fields[FIELD_MCP_SESSION], "s1");
        assert_null(r->fields[FIELD_ORIGIN]);
        assert_int_equal(r->n, 3);
        assert_memory_equal(r->body, "abc", 3);
        assert_true(r->keep_alive);
        http_parser_free(p);
    }
}

/* Of several traces none is meant, and the request is served all the same. */
static void test_a_trace_that_comes_again_is_none(void **state)
{
    (void)state;
    static const char *const said[] = {"a", "", ""};
    char text[256];
    int n = snprintf(text, sizeof text, HEAD);
    for (size_t i = 0; i < CL_COUNT(said); i++) {
        struct http_parser *p = NULL;
        n += snprintf(text + n, sizeof text - (size_t)n, "Traceparent: a\r\n");
        assert_int_equal(http_parser_new(&p, NULL), 0);
        assert_int_equal(feed(p, text, (size_t)n, 1), STEP_MORE);
        assert_int_equal(feed(p, "Mcp-Name: b\r\n\r\n", 16, 16), STEP_DONE);
        assert_string_equal(http_parser_request(p)->fields[FIELD_TRACEPARENT], said[i]);
        assert_string_equal(http_parser_request(p)->fields[FIELD_HOST], "localhost");
        assert_string_equal(http_parser_request(p)->fields[FIELD_MCP_NAME], "b");
        http_parser_free(p);
    }
}

/* Trailers come when the fields have been handed out: they are counted and nothing more. */
static void test_trailers_change_nothing(void **state)
{
    (void)state;
    char text[8192];
    struct http_parser *p = NULL;
    int n = snprintf(text, sizeof text,
                     HEAD "Mcp-Name: first\r\nTransfer-Encoding: chunked\r\n\r\n"
                          "1\r\n{\r\n0\r\nHost: evil.org\r\nMcp-Name: last\r\nX: ");
    memset(text + n, 'x', 4096); /* more than the head's first allocation */
    n += 4096;
    n += snprintf(text + n, sizeof text - (size_t)n, "\r\n\r\n");
    for (size_t piece = 1; piece <= (size_t)n; piece += piece < 8 ? 1 : (size_t)n) {
        assert_int_equal(http_parser_new(&p, NULL), 0);
        assert_int_equal(feed(p, text, (size_t)n, piece), STEP_DONE);
        const struct http_request *r = http_parser_request(p);
        assert_string_equal(r->fields[FIELD_HOST], "localhost");
        assert_string_equal(r->fields[FIELD_MCP_NAME], "first");
        http_parser_free(p);
    }
    STATUS(HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\x01\r\n\r\n", 400);
    n = snprintf(text, sizeof text, HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\n");
    for (int i = 0; i <= HTTP_FIELDS_MAX; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "a: b\r\n");
    status(text, (size_t)n, 431);
}

static void test_the_next_request_starts_clean(void **state)
{
    (void)state;
    static const char two[] = HEAD "Origin: o\r\nContent-Length: 1\r\n\r\nx"
                                   "GET /y HTTP/1.0\r\nHost: h\r\n\r\n";
    struct http_parser *p = NULL;
    size_t used;
    assert_int_equal(http_parser_new(&p, NULL), 0);
    assert_int_equal(http_parser_feed(p, two, sizeof two - 1, &used), STEP_HEAD);
    size_t at = used;
    assert_int_equal(http_parser_feed(p, two + at, sizeof two - 1 - at, &used), STEP_DONE);
    at += used;
    assert_true(http_parser_is_busy(p));
    http_parser_reset(p);
    assert_false(http_parser_is_busy(p));
    assert_int_equal(feed(p, two + at, sizeof two - 1 - at, sizeof two), STEP_DONE);
    const struct http_request *r = http_parser_request(p);
    assert_int_equal(r->verb, VERB_GET);
    assert_string_equal(r->path, "/y");
    assert_null(r->query);
    assert_null(r->fields[FIELD_ORIGIN]);
    assert_int_equal(r->n, 0);
    assert_true(r->is_1_0 && !r->keep_alive);
    http_parser_free(p);
}

static void test_a_client_that_waits_is_told_to_go_on(void **state)
{
    (void)state;
    static const char head[] = HEAD "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    struct http_parser *p = NULL;
    size_t used;
    assert_int_equal(http_parser_new(&p, NULL), 0);
    assert_int_equal(http_parser_feed(p, head, sizeof head - 1, &used), STEP_HEAD);
    size_t at = used; /* the last byte may be looked at again */
    assert_int_equal(http_parser_feed(p, head + at, sizeof head - 1 - at, &used), STEP_CONTINUE);
    assert_int_equal(used, 0);
    assert_int_equal(http_parser_feed(p, head + at, sizeof head - 1 - at, &used), STEP_MORE);
    assert_int_equal(http_parser_feed(p, "ab", 2, &used), STEP_DONE);
    http_parser_free(p);
}

/* One that is streamed: of any length, a piece at a time, and only the caller says "go on". */
static void stream(const char *text, size_t n, size_t piece, const char *want)
{
    struct http_parser *p = NULL;
    char body[64];
    size_t at = 0, used, body_n = 0;
    enum http_step step = STEP_MORE;
    assert_int_equal(http_parser_new(&p, NULL), 0);
    while (step != STEP_DONE) {
        step = http_parser_feed(p, text + at, CL_MIN(piece, n - at), &used);
        assert_true(step != STEP_BAD && step != STEP_CONTINUE);
        at += used;
        if (step == STEP_HEAD)
            http_parser_stream(p);
        struct cl_buf *got = http_parser_body(p);
        assert_true(got->len <= piece && got->len <= sizeof body - body_n);
        memcpy(body + body_n, got->data ? got->data : (const uint8_t *)"", got->len);
        body_n += got->len;
        cl_buf_consume(got, got->len);
        if (at == n && !want)
            break;
    }
    assert_true(!want || (step == STEP_DONE && body_n == strlen(want) && at == n));
    assert_true(!want || memcmp(body, want, body_n) == 0);
    assert_null(http_parser_request(p)->body);
    assert_string_equal(http_parser_request(p)->fields[FIELD_HOST], "localhost");
    http_parser_free(p);
}

static void test_a_body_is_streamed(void **state)
{
    (void)state;
    static const char counted[] = HEAD "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nabcde",
                      chunked[] = HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x\r\ncde\r\n"
                                       "0\r\nHost: evil.org\r\n\r\n",
                      empty[] = HEAD "Content-Length: 0\r\n\r\n", none[] = HEAD "\r\n",
                      large[] = HEAD "Content-Length: 17179869184\r\n\r\nabcde";
    for (size_t piece = 1; piece < sizeof chunked; piece++) {
        stream(counted, sizeof counted - 1, piece, "abcde");
        stream(chunked, sizeof chunked - 1, piece, "abcde");
        stream(empty, sizeof empty - 1, piece, "");
        stream(none, sizeof none - 1, piece, "");
        stream(large, sizeof large - 1, piece, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_and_what_is_none),
        cmocka_unit_test(test_the_head_has_limits),
        cmocka_unit_test(test_fields_path_and_body),
        cmocka_unit_test(test_a_trace_that_comes_again_is_none),
        cmocka_unit_test(test_trailers_change_nothing),
        cmocka_unit_test(test_the_next_request_starts_clean),
        cmocka_unit_test(test_a_client_that_waits_is_told_to_go_on),
        cmocka_unit_test(test_a_body_is_streamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
