/* tests/unit/gateway/test_port_message.c - messages that are passed on: what is one, where it ends,
 * in any pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/mem.h"
#include "gateway/port_message.h"

struct result {
    enum port_step step;
    size_t used;
    int status;
    bool had_head;
};

enum way { AS_IT_IS, TO_HEAD, WITH_EOF };

static struct result run(enum port_side side, const char *bytes, size_t n, size_t piece,
                         enum way way)
{
    struct port_message *m = NULL;
    struct result r = {.step = PORT_MORE};
    assert_int_equal(port_message_new(side, &m, NULL), 0);
    if (way == TO_HEAD)
        port_message_expect_none(m);
    while (r.step == PORT_MORE || r.step == PORT_HEAD) {
        size_t used, left = CL_MIN(piece, n - r.used);
        bool is_last = left == 0 && r.step != PORT_HEAD;
        r.step = port_message_feed(m, bytes + r.used, left, &used);
        assert_true(used <= left);
        r.used += used;
        r.had_head |= r.step == PORT_HEAD;
        if (is_last && r.step == PORT_MORE)
            break;
    }
    if (way == WITH_EOF && r.step == PORT_MORE)
        r.step = port_message_eof(m);
    r.status = port_message_status(m);
    port_message_free(m);
    return r;
}

/* used: how much of the bytes is the message's; 0 = all of it, and more is wanted. */
static void expect(enum port_side side, const char *bytes, size_t n, enum way way, int status,
                   size_t used)
{
    for (size_t piece = 1; piece <= n; piece += piece < 8 ? 1 : n) {
        struct result r = run(side, bytes, n, piece, way);
        enum port_step want = status ? PORT_BAD : used ? PORT_DONE : PORT_MORE;
        if (r.step != want || r.status != status || (used && !status && r.used != used))
            fail_msg("%.70s... in pieces of %zu: step %d, status %d, used %zu, want %d, %d, %zu",
                     bytes, piece, (int)r.step, r.status, r.used, (int)want, status, used);
    }
}

#define L(text) (sizeof(text) - 1)
#define ASK(text, status, used) expect(PORT_REQUEST, text, L(text), AS_IT_IS, status, used)
#define ANSWER(text, status, used) expect(PORT_ANSWER, text, L(text), AS_IT_IS, status, used)
#define HEAD "GET /a?b=c HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"

static void test_a_request_ends_where_it_says(void **state)
{
    (void)state;
    ASK(HEAD "\r\n", 0, L(HEAD "\r\n"));
    ASK("\r\n" HEAD "\r\nGET", 0, L("\r\n" HEAD "\r\n"));
    ASK(HEAD "\r\n" HEAD "\r\n", 0, L(HEAD "\r\n"));
    ASK(POST "Content-Length: 3\r\n\r\nabcdef", 0, L(POST "Content-Length: 3\r\n\r\nabc"));
    ASK(POST "Content-Length: 0\r\n\r\nabc", 0, L(POST "Content-Length: 0\r\n\r\n"));
    ASK(POST "Content-Length: 3\r\n\r\nab", 0, 0);
#define CHUNKS "2;a=b\r\nab\r\n0\r\nT: u\r\n\r\n"
    ASK(POST "Transfer-Encoding: chunked\r\n\r\n" CHUNKS "x", 0,
        L(POST "Transfer-Encoding: chunked\r\n\r\n" CHUNKS));
    ASK("GET / HTTP/1.0\r\nHost: a\r\n\r\n", 0, L("GET / HTTP/1.0\r\nHost: a\r\n\r\n"));
    ASK("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 0, L("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"));
    /* bytes of another protocol are not the message's */
    ASK(HEAD "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01", 0,
        L(HEAD "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
    ASK(POST "Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nabc", 0,
        L(POST "Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nab"));
    ASK(POST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", 0, 0);
}

static void test_a_request_that_can_be_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    ASK("GET / HTTP/1.1\r\n\r\n", 400, 0);
    ASK(HEAD "Host: a\r\n\r\n", 400, 0);
    ASK(HEAD "hoSt: b\r\n\r\n", 400, 0);
    ASK(HEAD "Host : a\r\n\r\n", 400, 0);
    ASK(HEAD " Host: a\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\r\n b\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\r\n\tb\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\nY: b\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\rY: b\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\r\n\n", 400, 0);
    ASK("GET / HTTP/1.1\nHost: a\n\n", 400, 0);
    ASK(HEAD "X: a\0b\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\x01\r\n\r\n", 400, 0);
    ASK(HEAD "X: a\x7f\r\n\r\n", 400, 0);
    ASK(HEAD "X\x01: a\r\n\r\n", 400, 0);
    ASK(HEAD "X Y: a\r\n\r\n", 400, 0);
    ASK(HEAD ": a\r\n\r\n", 400, 0);
    ASK(HEAD "X\r\n\r\n", 400, 0);
    ASK(POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: 1, 1\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: +1\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: 0x1\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: -1\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: 1 1\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: 99999999999999999999\r\n\r\na", 400, 0);
    ASK(POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, 0);
    ASK(POST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 400, 0);
    ASK(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0);
    ASK(POST "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0);
    ASK("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0);
    ASK(POST "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400, 0);
    ASK(POST "Transfer-Encoding: chunked\r\n\r\n1\nab", 400, 0);
    ASK(POST "Transfer-Encoding: chunked\r\n\r\n1\r\nabc", 400, 0);
    ASK(POST "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", 400, 0);
    ASK(POST "Connection: Content-Length\r\nContent-Length: 1\r\n\r\na", 400, 0);
    ASK(POST "Connection: x, transfer-encoding\r\n\r\n", 400, 0);
    ASK(POST "Connection: Host\r\n\r\n", 400, 0);
    ASK("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0);
    ASK("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0);
    ASK("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0);
    ASK("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 400, 0);
    ASK("GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0);
    ASK("GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0);
    ASK("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, 0);
    ASK("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505, 0);
    ASK("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, 0);
    ASK("\x16\x03\x01", 400, 0);
}

static void test_codings_besides_chunked_are_not_served(void **state)
{
    (void)state;
    static const char *const rows[] = {"gzip, chunked", "xchunked", "chunked;q=1"};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        char text[200];
        int n = snprintf(text, sizeof text, POST "Transfer-Encoding: %s\r\n\r\n", rows[i]);
        struct result r = run(PORT_REQUEST, text, (size_t)n, (size_t)n, AS_IT_IS);
        assert_int_equal(r.step, PORT_BAD);
        n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n",
                     rows[i]);
        r = run(PORT_ANSWER, text, (size_t)n, (size_t)n, AS_IT_IS);
        assert_int_equal(r.step, PORT_BAD);
        assert_int_equal(r.status, 502);
    }
}

#define OK "HTTP/1.1 200 OK\r\n"

static void test_an_answer_ends_where_it_says(void **state)
{
    (void)state;
    ANSWER(OK "Content-Length: 2\r\n\r\nabHTTP/1.1 200 OK", 0, L(OK "Content-Length: 2\r\n\r\nab"));
    ANSWER(OK "Transfer-Encoding: chunked\r\n\r\n" CHUNKS "x", 0,
           L(OK "Transfer-Encoding: chunked\r\n\r\n" CHUNKS));
    ANSWER(OK "\r\nabc", 0, 0);
    expect(PORT_ANSWER, OK "\r\nabc", L(OK "\r\nabc"), WITH_EOF, 0, L(OK "\r\nabc"));
    ANSWER("HTTP/1.0 200 OK\r\n\r\nabc", 0, 0);
    ANSWER("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\nx", 0,
           L("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"));
    ANSWER("HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\nx", 0,
           L("HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n"));
    ANSWER("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\nx", 0,
           L("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n"));
    ANSWER("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nx", 0,
           L("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"));
    ANSWER("HTTP/1.1 100 Continue\r\n\r\n" OK, 0, L("HTTP/1.1 100 Continue\r\n\r\n"));
    ANSWER("HTTP/1.1 103 Early\r\nContent-Length: 3\r\n\r\nabc", 0,
           L("HTTP/1.1 103 Early\r\nContent-Length: 3\r\n\r\n"));
    ANSWER("HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n\x81", 0,
           L("HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"));
    expect(PORT_ANSWER, OK "Content-Length: 5\r\n\r\nabc", L(OK "Content-Length: 5\r\n\r\nabc"),
           TO_HEAD, 0, L(OK "Content-Length: 5\r\n\r\n"));
    expect(PORT_ANSWER, OK "\r\n", L(OK "\r\n"), TO_HEAD, 0, L(OK "\r\n"));
}

static void test_a_hostile_answer_is_refused(void **state)
{
    (void)state;
    ANSWER(OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502, 0);
    ANSWER(OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, 0);
    ANSWER("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502, 0);
    ANSWER(OK "X: a\n\r\n", 502, 0);
    ANSWER(OK "X: a\r\n b\r\n\r\n", 502, 0);
    ANSWER("HTTP/1.1 200 OK\nX: a\n\n", 502, 0);
    ANSWER("HTTP/1.1 200 O\x01K\r\n\r\n", 502, 0);
    ANSWER("HTTP/1.1 099 OK\r\n\r\n", 502, 0);
    ANSWER("HTTP/1.1 600 OK\r\n\r\n", 502, 0);
    ANSWER("HTTP/1.1 20 OK\r\n\r\n", 502, 0);
    ANSWER("HTTP/2.0 200 OK\r\n\r\n", 502, 0);
    ANSWER("SSH-2.0-OpenSSH\r\n", 502, 0);
    ANSWER("GET / HTTP/1.1\r\n\r\n", 502, 0);
    ANSWER(OK "Connection: content-length\r\nContent-Length: 1\r\n\r\na", 502, 0);
    expect(PORT_ANSWER, OK "Content-Length: 5\r\n\r\nabc", L(OK "Content-Length: 5\r\n\r\nabc"),
           WITH_EOF, 502, 0);
    expect(PORT_ANSWER, OK "Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
           L(OK "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"), WITH_EOF, 502, 0);
    expect(PORT_ANSWER, OK "X: y\r\n", L(OK "X: y\r\n"), WITH_EOF, 502, 0);
}

static void test_heads_have_limits(void **state)
{
    (void)state;
    static char text[PORT_ANSWER_HEAD + 4096];
    int n = snprintf(text, sizeof text, HEAD "X: ");
    memset(text + n, 'a', PORT_REQUEST_HEAD);
    expect(PORT_REQUEST, text, (size_t)n + PORT_REQUEST_HEAD, AS_IT_IS, 431, 0);
    memset(text + n, ' ', PORT_REQUEST_HEAD); /* what is not kept counts, too */
    expect(PORT_REQUEST, text, (size_t)n + PORT_REQUEST_HEAD, AS_IT_IS, 431, 0);
    n = snprintf(text, sizeof text, OK "X: ");
    memset(text + n, 'a', PORT_ANSWER_HEAD);
    struct result r = run(PORT_ANSWER, text, (size_t)n + PORT_ANSWER_HEAD, 4096, AS_IT_IS);
    assert_int_equal(r.status, 502);
    n = snprintf(text, sizeof text, HEAD);
    for (int i = 0; i < PORT_REQUEST_FIELDS - 1; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "x%d: y\r\n", i);
    (void)snprintf(text + n, sizeof text - (size_t)n, "\r\n");
    expect(PORT_REQUEST, text, (size_t)n + 2, AS_IT_IS, 0, (size_t)n + 2);
    (void)snprintf(text + n, sizeof text - (size_t)n, "x: y\r\n\r\n");
    expect(PORT_REQUEST, text, (size_t)n + 8, AS_IT_IS, 431, 0);
    n = snprintf(text, sizeof text, HEAD "Connection: ");
    memset(text + n, 'a', 1025);
    (void)snprintf(text + n + 1025, 8, "\r\n\r\n");
    expect(PORT_REQUEST, text, (size_t)n + 1029, AS_IT_IS, 400, 0);
}

static void test_facts_of_a_head(void **state)
{
    (void)state;
    static const char text[] =
        "PUT /x?y HTTP/1.0\r\nHost: a:80\r\nX:  b \t\r\nEmpty:\r\nConnection: a, Foo ,b\r\n\r\n";
    struct port_message *m = NULL;
    size_t used;
    assert_int_equal(port_message_new(PORT_REQUEST, &m, NULL), 0);
    assert_false(port_message_has_begun(m));
    assert_int_equal(port_message_feed(m, text, sizeof text - 1, &used), PORT_HEAD);
    assert_int_equal(used, sizeof text - 1);
    assert_string_equal(port_message_method(m), "PUT");
    assert_string_equal(port_message_target(m), "/x?y");
    assert_true(port_message_is_1_0(m));
    assert_int_equal(port_message_fields(m), 4);
    assert_string_equal(port_message_value(m, "host"), "a:80");
    assert_string_equal(port_message_value(m, "x"), "b");
    assert_string_equal(port_message_value(m, "empty"), "");
    assert_null(port_message_value(m, "y"));
    assert_true(port_message_lists(m, "connection", "FOO", 3));
    assert_false(port_message_lists(m, "connection", "fo", 2));
    port_message_free(m);
    port_message_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_ends_where_it_says),
        cmocka_unit_test(test_a_request_that_can_be_read_in_two_ways_is_refused),
        cmocka_unit_test(test_codings_besides_chunked_are_not_served),
        cmocka_unit_test(test_an_answer_ends_where_it_says),
        cmocka_unit_test(test_a_hostile_answer_is_refused),
        cmocka_unit_test(test_heads_have_limits),
        cmocka_unit_test(test_facts_of_a_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
