/* tests/unit/net/test_control.c - a grant and an event are held against their words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "net/control.h"

static struct net_grant grant(void)
{
    struct net_grant g = {
        .version = NET_CONTROL_VERSION, .n_rules = 3, .n_private = 1, .n_servers = 1};
    assert_int_equal(net_rule_parse("demo.org", &g.rules[0], NULL), 0);
    assert_int_equal(net_rule_parse("10.0.0.0/8:1-9", &g.rules[1], NULL), 0);
    assert_int_equal(net_rule_parse("public", &g.rules[2], NULL), 0);
    assert_int_equal(net_range_parse("10.0.0.0/8", &g.private_ranges[0], NULL), 0);
    g.servers[0] = 0x7f000035;
    return g;
}

static void refused(const struct net_grant *g)
{
    struct cl_err err = {0};
    assert_int_equal(net_grant_check(g, sizeof *g, &err), -1);
    assert_int_equal(err.code, CL_E_PEER);
}

static void test_a_grant_is_checked_field_by_field(void **state)
{
    (void)state;
    struct net_grant g = grant();
    struct cl_err err = {0};
    assert_int_equal(net_grant_check(&g, sizeof g, &err), 0);
    assert_int_equal(net_grant_check(&g, sizeof g - 1, &err), -1);
    assert_int_equal(err.code, CL_E_PEER);
    assert_int_equal(net_grant_check(&g, 0, NULL), -1);
#define REFUSED(change) \
    do { \
        g = grant(); \
        change; \
        refused(&g); \
    } while (0)
    REFUSED(g.version++);
    REFUSED(g.n_rules = NET_RULES_MAX + 1);
    REFUSED(g.n_private = NET_RANGES_MAX + 1);
    REFUSED(g.n_servers = NET_SERVERS_MAX + 1);
    REFUSED(g.n_servers = 2);
    REFUSED(g.n_rules = 4);
    REFUSED(g.rules[0].protocol = 1);
    REFUSED(g.rules[0].target = 0);
    REFUSED(g.rules[0].target = 9);
    REFUSED(g.rules[0].port_first = 0);
    REFUSED(g.rules[0].port_first = 444);
    REFUSED(g.rules[0].name[0] = 'P');
    REFUSED(g.rules[0].name[0] = '\0');
    REFUSED(memset(g.rules[0].name, 'a', sizeof g.rules[0].name));
    REFUSED(g.rules[1].range.first = g.rules[1].range.last + 1);
    REFUSED(g.private_ranges[0].last = 0);
    REFUSED(g.past.sent = g.egress_bytes + 1);
    REFUSED(g.past.number = UINT64_MAX);
    REFUSED(g.past.received = UINT64_MAX);
    REFUSED(g.past.flow = UINT32_MAX);
#undef REFUSED
    g = grant();
    g.n_rules = g.n_private = g.n_servers = 0;
    assert_int_equal(net_grant_check(&g, sizeof g, NULL), 0);
}

static struct net_event event(enum net_event_kind kind)
{
    struct net_event e = {.kind = kind, .number = 7, .rule = NET_NO_RULE};
    switch (kind) {
    case NET_EVENT_DNS:
        (void)snprintf(e.name, sizeof e.name, "demo.org");
        e.rule = 0;
        e.n_addresses = 1;
        e.addresses[0] = 0x01020304;
        break;
    case NET_EVENT_OPEN:
    case NET_EVENT_CLOSE:
        e.flow = 1;
        e.address = 0x01020304;
        e.port = 443;
        e.protocol = NET_TCP;
        e.rule = 0;
        e.end = kind == NET_EVENT_CLOSE ? NET_END_RESET : NET_END_NONE;
        break;
    case NET_EVENT_DENIED:
        e.address = 0x01020304;
        e.protocol = 1;
        (void)snprintf(e.reason, sizeof e.reason, "no");
        break;
    case NET_EVENT_TOTALS:
    case NET_EVENT_KINDS_END:
        break;
    }
    return e;
}

static void test_each_kind_of_event_is_taken(void **state)
{
    (void)state;
    struct cl_err err = {0};
    for (int kind = NET_EVENT_DNS; kind < NET_EVENT_KINDS_END; kind++) {
        struct net_event e = event((enum net_event_kind)kind);
        if (net_event_check(&e, sizeof e, &err) < 0)
            fail_msg("kind %d: %s", kind, err.text);
        assert_int_equal(net_event_check(&e, sizeof e - 1, &err), -1);
        assert_int_equal(err.code, CL_E_PEER);
    }
    struct net_event e = event(NET_EVENT_TOTALS);
    e.number = 0;
    assert_int_equal(net_event_check(&e, sizeof e, NULL), 0);
    e = event(NET_EVENT_DNS);
    e.name[0] = '\0';
    e.is_denied = 1;
    assert_int_equal(net_event_check(&e, sizeof e, NULL), 0);
}

static void test_an_event_is_checked_field_by_field(void **state)
{
    (void)state;
    struct net_event e;
#define REFUSED(kind, change) \
    do { \
        e = event(kind); \
        change; \
        assert_int_equal(net_event_check(&e, sizeof e, NULL), -1); \
    } while (0)
    REFUSED(NET_EVENT_KINDS_END, (void)0);
    REFUSED(NET_EVENT_DNS, e.kind = 0);
    REFUSED(NET_EVENT_DNS, e.kind = 99);
    REFUSED(NET_EVENT_DNS, e.number = 0);
    REFUSED(NET_EVENT_DNS, e.is_denied = 2);
    REFUSED(NET_EVENT_DNS, e.rcode = 16);
    REFUSED(NET_EVENT_DNS, e.n_addresses = NET_ADDRESSES_MAX + 1);
    REFUSED(NET_EVENT_DNS, e.name[0] = '\0');
    REFUSED(NET_EVENT_DNS, e.name[0] = '\n');
    REFUSED(NET_EVENT_DNS, e.address = 1);
    REFUSED(NET_EVENT_DNS, e.flow = 1);
    REFUSED(NET_EVENT_DNS, e.end = NET_END_IDLE);
    REFUSED(NET_EVENT_DNS, memset(e.name, 'a', sizeof e.name));
    REFUSED(NET_EVENT_OPEN, e.flow = 0);
    REFUSED(NET_EVENT_OPEN, e.address = 0);
    REFUSED(NET_EVENT_OPEN, e.port = 0);
    REFUSED(NET_EVENT_OPEN, e.protocol = 1);
    REFUSED(NET_EVENT_OPEN, e.rule = NET_NO_RULE);
    REFUSED(NET_EVENT_OPEN, e.rule = NET_RULES_MAX);
    REFUSED(NET_EVENT_OPEN, e.end = NET_END_CLOSED);
    REFUSED(NET_EVENT_OPEN, e.qtype = 1);
    REFUSED(NET_EVENT_CLOSE, e.end = NET_END_NONE);
    REFUSED(NET_EVENT_CLOSE, e.end = NET_END_STOPPED + 1);
    REFUSED(NET_EVENT_CLOSE, e.n_addresses = 1);
    REFUSED(NET_EVENT_DENIED, e.reason[0] = '\0');
    REFUSED(NET_EVENT_DENIED, e.reason[0] = '\033');
    REFUSED(NET_EVENT_DENIED, memset(e.reason, 'a', sizeof e.reason));
    REFUSED(NET_EVENT_DENIED, e.flow = 1);
    REFUSED(NET_EVENT_DENIED, e.is_denied = 1);
    REFUSED(NET_EVENT_TOTALS, e.address = 1);
    REFUSED(NET_EVENT_TOTALS, e.name[0] = 'a');
    REFUSED(NET_EVENT_TOTALS, e.rcode = 1);
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_grant_is_checked_field_by_field),
        cmocka_unit_test(test_each_kind_of_event_is_taken),
        cmocka_unit_test(test_an_event_is_checked_field_by_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
