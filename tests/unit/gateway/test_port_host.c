/* tests/unit/gateway/test_port_host.c - which names lead to a port of a sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/port_host.h"

#define ID "0123456789abcdefghjkmnpqrs"
#define SECRET "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop"
#define DOMAIN "box.example.org"

static bool parse(const char *host, struct port_host *ret)
{
    return port_host_parse(host, strlen(host), DOMAIN, ret);
}

static void test_names_that_lead_to_a_port(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        uint16_t port;
        const char *secret;
    } rows[] = {{"1-sbx_" ID "." DOMAIN, 1, ""},
                {"65535-sbx_" ID "." DOMAIN, 65535, ""},
                {"3000-sbx-" ID "." DOMAIN, 3000, ""},
                {"3000-SBX_0123456789ABCDEFGHJKMNPQRS.BOX.EXAMPLE.ORG", 3000, ""},
                {"3000-sbx_" ID "." DOMAIN ":8443", 3000, ""},
                {"3000-sbx_" ID "." SECRET "." DOMAIN, 3000, SECRET},
                {"3000-sbx-" ID ".ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABCDEFGHIJKLMNOP." DOMAIN
                 ":1",
                 3000, SECRET}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct port_host h;
        assert_true(parse(rows[i].host, &h));
        assert_int_equal(h.port, rows[i].port);
        assert_string_equal(h.sandbox, "sbx_" ID);
        assert_string_equal(h.secret, rows[i].secret);
    }
}

static void test_names_that_lead_nowhere(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        ":",
        DOMAIN,
        "." DOMAIN,
        "0-sbx_" ID "." DOMAIN,
        "65536-sbx_" ID "." DOMAIN,
        "080-sbx_" ID "." DOMAIN,
        "100000-sbx_" ID "." DOMAIN,
        "-sbx_" ID "." DOMAIN,
        "+1-sbx_" ID "." DOMAIN,
        "80-sbx." ID "." DOMAIN,
        "80_sbx_" ID "." DOMAIN,
        "80-job_" ID "." DOMAIN,
        "80-sbx_" ID "x." DOMAIN,
        "80-sbx_i123456789abcdefghjkmnpqrs." DOMAIN, /* no Crockford */
        "80-sbx_" ID "." SECRET "x." DOMAIN,
        "80-sbx_" ID "." SECRET "." SECRET "." DOMAIN,
        "80-sbx_" ID ".abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmno_." DOMAIN,
        "80-sbx_" ID ".." DOMAIN,
        "80-sbx_" ID "." DOMAIN ".",
        "80-sbx_" ID "." DOMAIN ":",
        "80-sbx_" ID "." DOMAIN ":x",
        "80-sbx_" ID "." DOMAIN ":80:80",
        "80-sbx_" ID "." DOMAIN "@evil.org",
        "80-sbx_" ID "x" DOMAIN,
        "80-sbx_" ID ".evil.org",
        "80-sbx_" ID "." DOMAIN " ",
        "a.80-sbx_" ID "." DOMAIN,
        "[::1]",
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct port_host h;
        if (parse(rows[i], &h))
            fail_msg("'%s' leads to %s", rows[i], h.sandbox);
    }
    struct port_host h;
    static const char with_nul[] = "80-sbx_" ID "." DOMAIN "\0:80";
    assert_false(port_host_parse(with_nul, sizeof with_nul - 1, DOMAIN, &h));
    assert_false(port_host_parse(with_nul, strlen(with_nul), "", &h));
    assert_false(port_host_parse(with_nul, strlen(with_nul), "example.org", &h));
    char longer[400];
    memset(longer, '1', sizeof longer);
    assert_false(port_host_parse(longer, sizeof longer, DOMAIN, &h));
}

#define HOST "Host: 80-sbx_" ID "." DOMAIN

static void test_the_first_host_of_a_request_decides(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        enum port_sniff want;
    } rows[] = {
        {"", PORT_SNIFF_MORE},
        {"\r\n\r\n", PORT_SNIFF_MORE},
        {"GET / HTTP/1.1\r\n", PORT_SNIFF_MORE},
        {"GET / HTTP/1.1\r\n" HOST, PORT_SNIFF_MORE},
        {"GET / HTTP/1.1\r\n" HOST "\r\n", PORT_SNIFF_YES},
        {"\r\nGET / HTTP/1.1\r\nA: b\r\n" HOST ":80 \t\r\n", PORT_SNIFF_YES},
        {"GET / HTTP/1.1\nhOsT:80-sbx_" ID "." DOMAIN "\n", PORT_SNIFF_YES},
        {"GET / HTTP/1.1\r\nHost: a\r\n" HOST "\r\n", PORT_SNIFF_NO},
        {"GET / HTTP/1.1\r\nX: y\r\n " HOST "\r\n\r\n", PORT_SNIFF_NO},
        {"GET / HTTP/1.1\r\n\r\n" HOST "\r\n", PORT_SNIFF_NO},
        {"GET / HTTP/1.1\r\nHost:\r\n", PORT_SNIFF_NO},
        {"G", PORT_SNIFF_MORE},
        {"M-SEARCH ", PORT_SNIFF_MORE},
        {"\r\n\x16", PORT_SNIFF_NO},
        {"\x16\x03\x01", PORT_SNIFF_NO}, /* TLS where there is none */
        {" GET", PORT_SNIFF_NO},
        {"GET\r\n" HOST "\r\n", PORT_SNIFF_NO},
        {"AAAAAAAAAAAAAAAAAAAAA", PORT_SNIFF_NO},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        size_t n = strlen(rows[i].bytes), at = 0;
        assert_int_equal(port_sniff(rows[i].bytes, n, DOMAIN, &at), rows[i].want);
        enum port_sniff last = PORT_SNIFF_MORE; /* a byte at a time */
        for (size_t seen = at = 0; seen <= n && last == PORT_SNIFF_MORE; seen++)
            last = port_sniff(rows[i].bytes, seen, DOMAIN, &at);
        assert_int_equal(last, rows[i].want);
    }
}

static void test_a_link_names_its_sandbox(void **state)
{
    (void)state;
    static const char good[] = "clp_" ID "_" SECRET;
    assert_true(port_link_names(good, sizeof good - 1, "sbx_" ID));
    assert_false(port_link_names(good, sizeof good - 2, "sbx_" ID));
    assert_false(port_link_names(good, sizeof good - 1, "sbx_1123456789abcdefghjkmnpqrs"));
    assert_false(port_link_names("clk_" ID "_" SECRET, sizeof good - 1, "sbx_" ID));
    assert_false(port_link_names("clp_" ID "-" SECRET, sizeof good - 1, "sbx_" ID));
    assert_false(port_link_names("", 0, "sbx_" ID));
}

static void test_the_domain_is_a_name(void **state)
{
    (void)state;
    char domain[PORT_DOMAIN_MAX];
    assert_true(port_domain_read("Box.Example.ORG:443", domain));
    assert_string_equal(domain, "box.example.org");
    assert_true(port_domain_read("localhost", domain));
    static const char *const bad[] = {"",   ":80",  "a:",  "a:b", ".a",
                                      "a.", "a..b", "a b", "*.a", "a/b"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_false(port_domain_read(bad[i], domain));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_that_lead_to_a_port),
        cmocka_unit_test(test_names_that_lead_nowhere),
        cmocka_unit_test(test_the_first_host_of_a_request_decides),
        cmocka_unit_test(test_a_link_names_its_sandbox),
        cmocka_unit_test(test_the_domain_is_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
