/* worker/vm_net.h: what an operator says of networks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "worker/vm_net.h"

static void test_a_resolv_conf_is_read(void **state)
{
    (void)state;
    uint32_t servers[NET_SERVERS_MAX];
    assert_int_equal(vm_net_read_servers("", servers), 0);
    assert_int_equal(vm_net_read_servers("# nameserver 192.0.2.9\nsearch example.org\n"
                                         "nameserver 192.0.2.1\n"
                                         "nameserver\t192.0.2.2\nnameserver 2001:db8::1\n"
                                         "nameserver\n192.0.2.8\noptions ndots:1\n"
                                         "nameserver 192.0.2.3",
                                         servers),
                     3);
    assert_int_equal(servers[0], 0xc0000201);
    assert_int_equal(servers[1], 0xc0000202);
    assert_int_equal(servers[2], 0xc0000203);
    assert_int_equal(vm_net_read_servers("nameserver 192.0.2.1\nnameserver 192.0.2.1\n"
                                         "nameserver 192.0.2.1\nnameserver 192.0.2.4\n",
                                         servers),
                     3); /* no more than fit */
}

static void test_ranges_and_resolvers_are_read(void **state)
{
    (void)state;
    struct vm_net_settings s = {.binary = ""};
    assert_int_equal(
        vm_net_settings_read(&s, "10.1.0.0/16, 192.168.7.9", "192.0.2.1,192.0.2.2", NULL), 0);
    assert_int_equal(s.n_private, 2);
    assert_int_equal(s.private_ranges[0].last, 0x0a01ffff);
    assert_int_equal(s.private_ranges[1].first, 0xc0a80709);
    assert_int_equal(s.n_servers, 2);
    assert_int_equal(s.servers[1], 0xc0000202);
}

static void test_each_bad_word_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *ranges, *servers, *want;
    } bad[] = {
        {"10.0.0.1/8", "192.0.2.1", "net-private"},
        {"ten", "192.0.2.1", "net-private"},
        {"", "dns.example", "net-dns"},
        {"", "192.0.2.0/24", "net-dns"},
        {"", "192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4", "net-dns"},
    };
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct vm_net_settings s = {.binary = ""};
        struct cl_err err = {0};
        assert_int_equal(vm_net_settings_read(&s, bad[i].ranges, bad[i].servers, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_non_null(strstr(err.text, bad[i].want));
    }
}

static void test_a_list_is_never_cut(void **state)
{
    (void)state;
    char list[600] = "";
    struct vm_net_settings s = {.binary = ""};
    struct cl_err err = {0};
    memset(list, ' ', 505);
    (void)snprintf(list + 505, sizeof list - 505,
                   "128.0.0.0/16"); /* cut after 511 it would be a valid range, and a huge one */
    assert_int_equal(vm_net_settings_read(&s, list, "192.0.2.1", &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(s.n_private, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_resolv_conf_is_read),
        cmocka_unit_test(test_ranges_and_resolvers_are_read),
        cmocka_unit_test(test_each_bad_word_is_named),
        cmocka_unit_test(test_a_list_is_never_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
