/* tests/unit/gateway/test_port_head.c - what is passed on of a head, and what stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/port_head.h"

#define ID "0123456789abcdefghjkmnpqrs"
#define SECRET "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop"
#define LINK "clp_" ID "_" SECRET

static struct port_message *message(enum port_side side, const char *text)
{
    struct port_message *m = NULL;
    size_t used;
    assert_int_equal(port_message_new(side, &m, NULL), 0);
    assert_int_equal(port_message_feed(m, text, strlen(text), &used), PORT_HEAD);
    return m;
}

static void check(enum port_side side, const char *text, const char *want)
{
    const struct port_via via = {.peer = "192.0.2.1"};
    struct port_message *m = message(side, text);
    struct cl_buf out;
    cl_buf_init(&out, PORT_HEAD_OUT);
    if (side == PORT_REQUEST)
        assert_int_equal(port_head_request(m, &via, &out, NULL), 0);
    else
        assert_int_equal(port_head_answer(m, false, &out, NULL), 0);
    assert_int_equal(cl_buf_append(&out, "", 1, NULL), 0);
    assert_string_equal((char *)out.data, want);
    cl_buf_fini(&out);
    port_message_free(m);
}

#define VIA "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n\r\n"
#define CLOSE "Connection: close\r\n"
/* Fields of a request that come out as `kept`. */
#define ASK(fields, kept) \
    check(PORT_REQUEST, "GET /p HTTP/1.1\r\nHost: a\r\n" fields "\r\n", \
          "GET /p HTTP/1.1\r\nHost: a\r\n" kept CLOSE VIA)
#define TARGET(target, kept) \
    check(PORT_REQUEST, "GET " target " HTTP/1.1\r\nHost: a\r\n\r\n", \
          "GET " kept " HTTP/1.1\r\nHost: a\r\n" CLOSE VIA)
#define ANSWER(fields, kept) \
    check(PORT_ANSWER, "HTTP/1.1 200 Fine\r\n" fields "\r\n", \
          "HTTP/1.1 200 Fine\r\n" kept CLOSE "\r\n")

static void test_fields_of_a_request(void **state)
{
    (void)state;
    ASK("", "");
    ASK("B: 1\r\nA: 2\r\nB:3\r\n", "B: 1\r\nA: 2\r\nB: 3\r\n");
    ASK("Authorization: Basic eDp5\r\nX-API-Key: k\r\n",
        "Authorization: Basic eDp5\r\nX-API-Key: k\r\n");
    ASK("Connection: keep-alive, X-Mine\r\nx-mine: 1\r\nKeep-Alive: timeout=5\r\nX-Yours: 2\r\n",
        "X-Yours: 2\r\n");
    ASK("Connection: a\r\nConnection: b\r\na: 1\r\nb: 2\r\nc: 3\r\n", "c: 3\r\n");
    ASK("Proxy-Authorization: x\r\nProxy-Connection: close\r\nTE: trailers\r\nTrailer: T\r\n",
        "Trailer: T\r\n");
    ASK("E2b-Traffic-Access-Token: secret\r\nE2B_Traffic_Access_Token: secret\r\n", "");
    ASK("X-Forwarded-For: 1.1.1.1\r\nx-forwarded-host: evil\r\nX_Forwarded_Proto: https\r\n"
        "Forwarded: for=1.1.1.1\r\nX-Real-IP: 1.1.1.1\r\nX-Forwarded-Port: 1\r\n",
        "");
    ASK("Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\n");
    ASK("Content-Length: 5\r\nExpect: 100-continue\r\n",
        "Content-Length: 5\r\nExpect: 100-continue\r\n");
    check(PORT_REQUEST, "M-SEARCH / HTTP/1.0\r\nHost: a\r\n\r\n",
          "M-SEARCH / HTTP/1.0\r\nHost: a\r\n" CLOSE VIA);
}

static void test_upgrades(void **state)
{
    (void)state;
    check(PORT_REQUEST,
          "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
          "Sec-WebSocket-Key: k\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\n"
          "Upgrade: websocket\r\n" VIA);
    ASK("Upgrade: websocket\r\n", "");
    ASK("Connection: Upgrade\r\n", "");
    ASK("Connection: Upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n", "");
    check(PORT_REQUEST,
          "GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
          "GET / HTTP/1.0\r\nHost: a\r\n" CLOSE VIA);
    check(PORT_ANSWER,
          "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\nA: b\r\n"
          "Content-Length: 3\r\n\r\n",
          "HTTP/1.1 101 Switching\r\nA: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
}

static void test_our_cookie_stays(void **state)
{
    (void)state;
    ASK("Cookie: " PORT_COOKIE "=" LINK "\r\n", "");
    ASK("Cookie: a=b; " PORT_COOKIE "=" LINK "; c=\"d e\"\r\n", "Cookie: a=b; c=\"d e\"\r\n");
    ASK("cookie: " PORT_COOKIE_TLS "=x;a=b\r\n", "Cookie: a=b\r\n");
    ASK("Cookie: " PORT_COOKIE " = x; a=b\r\nCookie: " PORT_COOKIE "=y\r\nCookie: c\r\n",
        "Cookie: a=b\r\nCookie: c\r\n");
    ASK("Cookie: x" PORT_COOKIE "=1; " PORT_COOKIE "x=2; =3\r\n",
        "Cookie: x" PORT_COOKIE "=1; " PORT_COOKIE "x=2; =3\r\n");
}

static void test_our_parameter_stays(void **state)
{
    (void)state;
    TARGET("/?", "/?");
    TARGET("/a?b&c=d&&e", "/a?b&c=d&&e");
    TARGET("/?" PORT_COOKIE "=x", "/");
    TARGET("/a?" PORT_COOKIE "=x&b=c", "/a?b=c");
    TARGET("/a?b=c&" PORT_COOKIE "=x&d=" PORT_COOKIE "=y&" PORT_COOKIE "=z",
           "/a?b=c&d=" PORT_COOKIE "=y");
    TARGET("/a?x" PORT_COOKIE "=x", "/a?x" PORT_COOKIE "=x");
    TARGET("/" PORT_COOKIE "=x?a", "/" PORT_COOKIE "=x?a");
    struct port_message *m =
        message(PORT_REQUEST, "GET /a?b&" PORT_COOKIE "=first&" PORT_COOKIE "=2 HTTP/1.1\r\n"
                              "Host: a\r\n\r\n");
    size_t n = 0;
    const char *value = port_head_parameter(m, &n);
    assert_int_equal(n, 5);
    assert_memory_equal(value, "first", 5);
    port_message_free(m);
}

static void test_only_a_link_of_the_sandbox_counts_as_its_cookie(void **state)
{
    (void)state;
    struct port_message *m =
        message(PORT_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nCookie: " PORT_COOKIE
                              "=clp_1123456789abcdefghjkmnpqrs_" SECRET "; " PORT_COOKIE
                              "=; " PORT_COOKIE "\r\nCookie: " PORT_COOKIE "=" LINK "\r\n\r\n");
    const char *link = port_head_cookie(m, PORT_COOKIE, "sbx_" ID);
    assert_non_null(link);
    assert_memory_equal(link, LINK, sizeof LINK - 1);
    assert_null(port_head_cookie(m, PORT_COOKIE_TLS, "sbx_" ID));
    assert_null(port_head_cookie(m, PORT_COOKIE, "sbx_2123456789abcdefghjkmnpqrs"));
    port_message_free(m);
}

static void test_fields_of_an_answer(void **state)
{
    (void)state;
    ANSWER("Content-Length: 5\r\nServer: s\r\n", "Content-Length: 5\r\nServer: s\r\n");
    ANSWER("Connection: keep-alive, x\r\nKeep-Alive: timeout=5\r\nX: 1\r\nProxy-Authenticate: y\r\n"
           "Upgrade: h2c\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\n");
    ANSWER("Set-Cookie: a=b; Path=/; Domain=.example.org; Secure\r\nSet-Cookie: domain=x\r\n"
           "set-cookie: c=d;DOMAIN = localhost;domain\r\n",
           "Set-Cookie: a=b; Path=/; Secure\r\nSet-Cookie: domain=x\r\nSet-Cookie: c=d\r\n");
    check(PORT_ANSWER, "HTTP/1.0 404\r\n\r\n", "HTTP/1.1 404 \r\n" CLOSE "\r\n");
    check(PORT_ANSWER,
          "HTTP/1.1 103 Early\r\nLink: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\n",
          "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n");
    check(PORT_ANSWER, "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n",
          "HTTP/1.1 204 No\r\n" CLOSE "\r\n");
    check(PORT_ANSWER, "HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n",
          "HTTP/1.1 304 Same\r\nContent-Length: 9\r\n" CLOSE "\r\n");
}

static void test_an_address_with_a_link_is_told_to_no_other_site(void **state)
{
    (void)state;
    struct port_message *m =
        message(PORT_ANSWER, "HTTP/1.1 200 OK\r\nReferrer-Policy: unsafe-url\r\n"
                             "X: 1\r\n\r\n");
    struct cl_buf out;
    cl_buf_init(&out, PORT_HEAD_OUT);
    assert_int_equal(port_head_answer(m, true, &out, NULL), 0);
    assert_int_equal(cl_buf_append(&out, "", 1, NULL), 0);
    assert_string_equal(out.data,
                        "HTTP/1.1 200 OK\r\nX: 1\r\nReferrer-Policy: same-origin\r\n" CLOSE "\r\n");
    cl_buf_fini(&out);
    port_message_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_a_request),
        cmocka_unit_test(test_upgrades),
        cmocka_unit_test(test_our_cookie_stays),
        cmocka_unit_test(test_our_parameter_stays),
        cmocka_unit_test(test_only_a_link_of_the_sandbox_counts_as_its_cookie),
        cmocka_unit_test(test_fields_of_an_answer),
        cmocka_unit_test(test_an_address_with_a_link_is_told_to_no_other_site),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
