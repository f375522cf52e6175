/* worker/net_words.h: what is told of networks keeps its meaning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "worker/net_words.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

static char *rules[NET_RULES_MAX + 1] = {TEXT("demo.org"), TEXT("203.0.113.0/24:53/udp")};

static Cloche__V1__NetworkGrant grant_of(size_t n)
{
    Cloche__V1__NetworkGrant g = CLOCHE__V1__NETWORK_GRANT__INIT;
    g.allow = rules;
    g.n_allow = n;
    g.egress_bytes = 1000;
    return g;
}

static void test_a_grant_becomes_rules(void **state)
{
    (void)state;
    const struct vm_net_settings s = {
        .private_ranges = {{1, 2}}, .n_private = 1, .servers = {0xc0000201}, .n_servers = 1};
    Cloche__V1__NetworkGrant from = grant_of(2);
    struct net_grant g;
    assert_int_equal(net_words_grant(&from, &s, &g, NULL), 0);
    assert_int_equal(net_grant_check(&g, sizeof g, NULL), 0);
    assert_int_equal(g.n_rules, 2);
    assert_string_equal(g.rules[0].name, "demo.org");
    assert_int_equal(g.rules[1].protocol, NET_UDP);
    assert_int_equal(g.egress_bytes, 1000);
    assert_int_equal(g.n_private, 1);
    assert_int_equal(g.servers[0], 0xc0000201);
}

static void test_what_the_scheduler_should_have_refused_is_refused(void **state)
{
    (void)state;
    const struct vm_net_settings s = {.binary = ""};
    struct cl_err err = {0};
    struct net_grant g;
    for (size_t i = 2; i <= NET_RULES_MAX; i++)
        rules[i] = TEXT("a.org");
    Cloche__V1__NetworkGrant from = grant_of(NET_RULES_MAX + 1);
    assert_int_equal(net_words_grant(&from, &s, &g, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    from.n_allow = 3;
    rules[2] = TEXT("no rule");
    err = (struct cl_err){0};
    assert_int_equal(net_words_grant(&from, &s, &g, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
}

static void test_a_flow_is_told(void **state)
{
    (void)state;
    const Cloche__V1__NetworkGrant grant = grant_of(2);
    const struct net_event e = {.kind = NET_EVENT_CLOSE,
                                .flow = 3,
                                .number = 9,
                                .sent = 10,
                                .received = 20,
                                .duration_us = 30,
                                .address = 0xc0000207,
                                .port = 443,
                                .guest_port = 50000,
                                .protocol = NET_TCP,
                                .end = NET_END_IDLE,
                                .rule = 0,
                                .name = "demo.org"};
    struct net_words_row row;
    net_words_event(&e, &grant, &row);
    assert_int_equal(row.m.kind, CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_CLOSE);
    assert_string_equal(row.m.address, "192.0.2.7");
    assert_string_equal(row.m.protocol, "tcp");
    assert_string_equal(row.m.end, "idle");
    assert_string_equal(row.m.rule, "demo.org");
    assert_string_equal(row.m.name, "demo.org");
    assert_true(row.m.flow == 3 && row.m.number == 9 && row.m.sent == 10 && row.m.received == 20 &&
                row.m.duration_us == 30 && row.m.port == 443 && row.m.guest_port == 50000);
}

static void test_an_answer_is_told(void **state)
{
    (void)state;
    const Cloche__V1__NetworkGrant grant = grant_of(2);
    const struct net_event e = {.kind = NET_EVENT_DNS,
                                .number = 1,
                                .qtype = 1,
                                .rcode = 3,
                                .is_denied = 1,
                                .rule = NET_NO_RULE,
                                .n_addresses = 2,
                                .addresses = {0xc0000201, 0xc0000202},
                                .name = "other.org",
                                .reason = "no rule covers the name"};
    struct net_words_row row;
    net_words_event(&e, &grant, &row);
    assert_int_equal(row.m.kind, CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_DNS);
    assert_int_equal(row.m.n_addresses, 2);
    assert_string_equal(row.m.addresses[1], "192.0.2.2");
    assert_string_equal(row.m.address, "");
    assert_string_equal(row.m.protocol, "");
    assert_string_equal(row.m.rule, "");
    assert_string_equal(row.m.reason, "no rule covers the name");
    assert_true(row.m.qtype == 1 && row.m.rcode == 3);
}

static void test_other_protocols_have_their_number(void **state)
{
    (void)state;
    const Cloche__V1__NetworkGrant grant = grant_of(2);
    const struct net_event e = {.kind = NET_EVENT_DENIED, .protocol = 1, .rule = NET_NO_RULE};
    struct net_words_row row;
    net_words_event(&e, &grant, &row);
    assert_string_equal(row.m.protocol, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_grant_becomes_rules),
        cmocka_unit_test(test_what_the_scheduler_should_have_refused_is_refused),
        cmocka_unit_test(test_a_flow_is_told),
        cmocka_unit_test(test_an_answer_is_told),
        cmocka_unit_test(test_other_protocols_have_their_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
