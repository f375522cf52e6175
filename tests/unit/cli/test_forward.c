/* tests/unit/cli/test_forward.c - words of `sandbox forward`, addresses of `sandbox url`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/forward.h"

static void test_words_are_ports(void **state)
{
    (void)state;
    static const struct {
        const char *word, *address; /* NULL = refused */
        uint32_t port;
    } rows[] = {
        {"8000", "127.0.0.1:8000", 8000},
        {"9000:8000", "127.0.0.1:9000", 8000},
        {"0:8000", "127.0.0.1:0", 8000},
        {"0.0.0.0:9000:8000", "0.0.0.0:9000", 8000},
        {"[::1]:0:65535", "[::1]:0", 65535},
        {"", NULL, 0},
        {"0", NULL, 0},
        {"65536", NULL, 0},
        {"000008000", NULL, 0},
        {"-1", NULL, 0},
        {"8000:", NULL, 0},
        {":8000", NULL, 0},
        {"9000:0", NULL, 0},
        {"9000:http", NULL, 0},
        {"localhost:8000", NULL, 0}, /* which of the two would be local? */
        {":9000:8000", NULL, 0},
        {"a:b:c", NULL, 0},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct forward_port p;
        struct cl_err err = {0};
        int rc = forward_parse(rows[i].word, &p, &err);
        assert_int_equal(rc, rows[i].address ? 0 : -1);
        if (rc < 0) {
            assert_int_equal(err.code, CL_E_INVALID);
            continue;
        }
        assert_string_equal(p.address, rows[i].address);
        assert_int_equal(p.port, rows[i].port);
    }
}

static void test_addresses_hold_the_link_where_it_fits(void **state)
{
    (void)state;
    static const char link[] = "clp_01jabc_s3cr3t";
    static const struct {
        const char *domain, *url;
    } rows[] = {
        {"localhost:7780", "http://80-sbx-01jabc.s3cr3t.localhost:7780/"},
        {"http://a.org", "http://80-sbx-01jabc.s3cr3t.a.org/"},
        {"https://a.org", "https://80-sbx-01jabc.a.org/?cloche_link=clp_01jabc_s3cr3t"},
        {"a.org:8443", "https://80-sbx-01jabc.a.org:8443/?cloche_link=clp_01jabc_s3cr3t"},
        {"localhosts.org", "https://80-sbx-01jabc.localhosts.org/?cloche_link=clp_01jabc_s3cr3t"},
        {"", NULL},
        {"a.org/x", NULL},
        {"a b", NULL},
        {"ftp://a.org", NULL},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        char url[FORWARD_URL];
        struct cl_err err = {0};
        int rc = forward_url(rows[i].domain, link, 80, url, &err);
        assert_int_equal(rc, rows[i].url ? 0 : -1);
        if (rc == 0)
            assert_string_equal(url, rows[i].url);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_ports),
        cmocka_unit_test(test_addresses_hold_the_link_where_it_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
