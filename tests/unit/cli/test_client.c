/* tests/unit/cli/test_client.c - which endpoints a command takes, with TLS or without; nothing is
 * connected to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/client.h"
#include "rpc/targets.h"

static int open_at(const char *endpoint, struct cl_err *err)
{
    struct cli_opts o = {
        .state_dir = "/nonexistent/state", .run_dir = "/nonexistent", .keyless = true};
    struct client *c = NULL;
    assert_int_equal(setenv("CLOCHE_ENDPOINT", endpoint, 1), 0);
    *err = (struct cl_err){0};
    int rc = client_open(&o, &c, err);
    if (rc == 0)
        assert_string_equal(rpc_channel_target(client_channel(c)), "unix:/a");
    client_free(c);
    return rc;
}

static void refuse(const char *endpoint, const char *why)
{
    struct cl_err err;
    assert_int_equal(open_at(endpoint, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
}

static void test_lists_on_this_host_are_plain(void **state)
{
    (void)state;
    struct cl_err err;
    assert_int_equal(open_at("unix:/a", &err), 0);
    assert_int_equal(open_at("unix:/a,unix:/b", &err), 0);
    assert_int_equal(open_at("unix:/a,127.0.0.1:7001,[::1]:7001", &err), 0);
}

static void test_others_want_a_ca(void **state)
{
    (void)state;
    refuse("192.0.2.1:7443", "set CLOCHE_CA");
    refuse("192.0.2.1:7443,192.0.2.2:7443", "set CLOCHE_CA");
}

static void test_this_host_and_others_are_not_mixed(void **state)
{
    (void)state;
    refuse("unix:/a,192.0.2.1:7443", "'192.0.2.1:7443' is on another host");
    refuse("192.0.2.1:7443,192.0.2.2:7443,127.0.0.1:7443", "'192.0.2.1:7443' is on another host");
    assert_int_equal(setenv("CLOCHE_INSECURE", "1", 1), 0);
    refuse("unix:/a,192.0.2.1:7443", "'192.0.2.1:7443' is on another host");
    assert_int_equal(unsetenv("CLOCHE_INSECURE"), 0);
}

static void test_a_bad_list_is_refused_in_words(void **state)
{
    (void)state;
    char longer[TARGETS_TEXT + 1];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    refuse("unix:/a,,unix:/b", "CLOCHE_ENDPOINT: targets 'unix:/a,,unix:/b': number 2 is empty");
    refuse("unix:/1,unix:/2,unix:/3,unix:/4,unix:/5,unix:/6,unix:/7,unix:/8,unix:/9",
           "one more than 8");
    refuse(longer, "CLOCHE_ENDPOINT is longer than");
}

int main(void)
{
    (void)unsetenv("CLOCHE_CA");
    (void)unsetenv("CLOCHE_INSECURE");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_on_this_host_are_plain),
        cmocka_unit_test(test_others_want_a_ca),
        cmocka_unit_test(test_this_host_and_others_are_not_mixed),
        cmocka_unit_test(test_a_bad_list_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
