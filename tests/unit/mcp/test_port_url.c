/* tests/unit/mcp/test_port_url.c - addresses of ports of a sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mcp/port_url.h"

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
        char url[PORT_URL_MAX];
        struct cl_err err = {0};
        int rc = port_url(rows[i].domain, link, 80, url, &err);
        assert_int_equal(rc, rows[i].url ? 0 : -1);
        if (rc == 0)
            assert_string_equal(url, rows[i].url);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_hold_the_link_where_it_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
