/* tests/unit/policy/test_net_rule.c - rules of the network: their text, and what they cover. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policy/net_rule.h"

static uint32_t address(const char *text)
{
    struct net_range range;
    assert_int_equal(net_range_parse(text, &range, NULL), 0);
    assert_int_equal(range.first, range.last);
    return range.first;
}

static struct net_rule rule(const char *text)
{
    struct net_rule r;
    struct cl_err err = {0};
    if (net_rule_parse(text, &r, &err) < 0)
        fail_msg("'%s': %s", text, err.text);
    return r;
}

static void test_each_form_of_the_grammar_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        int target, protocol, first, last;
    } rows[] = {
        {"demo.org", "demo.org", NET_TARGET_NAME, NET_TCP, 443, 443},
        {"DeMo.Org.", "demo.org", NET_TARGET_NAME, NET_TCP, 443, 443},
        {"*.example.net:443", "example.net", NET_TARGET_BELOW, NET_TCP, 443, 443},
        {"*.Example.ORG.:8000-9000/TCP", "example.org", NET_TARGET_BELOW, NET_TCP, 8000, 9000},
        {"public.", "public", NET_TARGET_NAME, NET_TCP, 443, 443},
        {"db:5432", "db", NET_TARGET_NAME, NET_TCP, 5432, 5432},
        {"_sip.example.org:*/udp", "_sip.example.org", NET_TARGET_NAME, NET_UDP, 1, 65535},
        {"1.2.3.4.example", "1.2.3.4.example", NET_TARGET_NAME, NET_TCP, 443, 443},
        {"public", "", NET_TARGET_PUBLIC, NET_TCP, 1, 65535},
        {"PUBLIC/udp", "", NET_TARGET_PUBLIC, NET_UDP, 1, 65535},
        {"public:80-443", "", NET_TARGET_PUBLIC, NET_TCP, 80, 443},
        {"public:80", "", NET_TARGET_PUBLIC, NET_TCP, 80, 80},
        {"203.0.113.0/24:5432", "", NET_TARGET_RANGE, NET_TCP, 5432, 5432},
        {"203.0.113.0/24/udp", "", NET_TARGET_RANGE, NET_UDP, 443, 443},
        {"203.0.113.0/24:53/udp", "", NET_TARGET_RANGE, NET_UDP, 53, 53},
        {"198.51.100.7:53/udp", "", NET_TARGET_RANGE, NET_UDP, 53, 53},
        {"198.51.100.7", "", NET_TARGET_RANGE, NET_TCP, 443, 443},
        {"10.0.0.1:1-65535", "", NET_TARGET_RANGE, NET_TCP, 1, 65535},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct net_rule r = rule(rows[i].text);
        if (r.target != rows[i].target || r.protocol != rows[i].protocol ||
            r.port_first != rows[i].first || r.port_last != rows[i].last ||
            strcmp(r.name, rows[i].name) != 0)
            fail_msg("'%s' is read as target %d protocol %d ports %d-%d name '%s'", rows[i].text,
                     r.target, r.protocol, r.port_first, r.port_last, r.name);
    }
}

static void test_what_is_no_rule_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        "/",
        "*",
        "*.",
        "*.*",
        "a..b",
        ".a",
        "..",
        "-a.org",
        "a-.org",
        "a b",
        "a:b:c",
        "*.a.*",
        "x*.org",
        "exämple.org",
        "a.org:",
        "a.org:0",
        "a.org:65536",
        "a.org:99999",
        "a.org:443443",
        "a.org:9-8",
        "a.org:1-",
        "a.org:-1",
        "a.org:1-2-3",
        "a.org:0-5",
        "a.org:+1",
        "a.org: 1",
        "a.org:01",
        "a.org/",
        "a.org/icmp",
        "a.org/tcp/udp",
        "a.org:80/24",
        "1.2.3.999",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.4/33",
        "1.2.3.4/",
        "1.2.3.4/24",
        "1.2.3.04",
        "0x7f.1",
        "1.2.3.4/032",
        "1.2.3.4/-1",
        "12345",
        "a.123",
        "*.1.2.3.4",
        "1.2.3.4/24:80/tcp",
        "localhost",
        "LOCALHOST.",
        "a.localhost:80",
        "*.localhost",
        "a.org\n",
        "[::1]:80",
        "http://a.org",
        "a.org:80/tcp ",
    };
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct net_rule r = {.target = 77};
        struct cl_err err = {0};
        int rc = net_rule_parse(bad[i], &r, &err);
        if (rc == 0)
            fail_msg("'%s' is taken", bad[i]);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_true(err.text[0] != '\0');
        assert_int_equal(r.target, 77);
        assert_int_equal(net_rule_parse(bad[i], &r, NULL), -1);
    }
}

/* n characters in labels of 50. */
static void long_name(char *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(i % 51 == 50 ? '.' : 'a');
    out[n] = '\0';
}

static void test_names_and_rules_keep_their_lengths(void **state)
{
    (void)state;
    char name[400], text[400];
    struct net_rule r;
    long_name(name, NET_NAME_MAX);
    assert_true(net_name_is_valid(name));
    (void)snprintf(text, sizeof text, "*.%s.:10000-65535/udp", name);
    assert_true(strlen(text) <= NET_RULE_TEXT_MAX);
    assert_int_equal(net_rule_parse(text, &r, NULL), 0);
    assert_string_equal(r.name, name);
    long_name(name, NET_NAME_MAX + 1);
    assert_false(net_name_is_valid(name));
    assert_int_equal(net_rule_parse(name, &r, NULL), -1);
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(net_rule_parse(text, &r, NULL), -1);
    text[64] = '\0';
    assert_false(net_name_is_valid(text));
    text[63] = '\0';
    assert_true(net_name_is_valid(text));
}

static void test_a_name_has_a_letter_at_its_end_and_is_lower_case(void **state)
{
    (void)state;
    assert_true(net_name_is_valid("a"));
    assert_true(net_name_is_valid("4.a4"));
    assert_true(net_name_is_valid("xn--mnchen-3ya.de"));
    assert_true(net_name_is_valid("_dmarc.a.org"));
    static const char *const bad[] = {"",    ".",    "a.",  ".a", "A.org", "a.4", "1",
                                      "a b", "a..b", "*.a", "-a", "a-",    "a.-b"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_false(net_name_is_valid(bad[i]));
}

static void test_names_are_covered_whole_labels_at_a_time(void **state)
{
    (void)state;
    struct net_rule one = rule("example.org"), below = rule("*.example.org"), all = rule("public"),
                    range = rule("0.0.0.0/0:*");
    assert_true(net_rule_covers_name(&one, "example.org"));
    assert_false(net_rule_covers_name(&one, "a.example.org"));
    assert_false(net_rule_covers_name(&one, "example.or"));
    assert_true(net_rule_covers_name(&below, "a.example.org"));
    assert_true(net_rule_covers_name(&below, "b.a.example.org"));
    assert_false(net_rule_covers_name(&below, "example.org"));
    assert_false(net_rule_covers_name(&below, "badexample.org"));
    assert_false(net_rule_covers_name(&below, "a.example.org.evil.net"));
    assert_true(net_rule_covers_name(&all, "anything.at.all"));
    assert_false(net_rule_covers_name(&all, "localhost"));
    assert_false(net_rule_covers_name(&all, "a.localhost"));
    assert_true(net_rule_covers_name(&all, "alocalhost"));
    assert_false(net_rule_covers_name(&range, "example.org"));
}

static void test_addresses_are_covered_by_ranges_and_by_public_only(void **state)
{
    (void)state;
    struct net_rule one = rule("example.org"), below = rule("*.example.org"), all = rule("public"),
                    range = rule("10.1.0.0/16"), host = rule("10.2.0.9");
    assert_false(net_rule_covers_address(&one, address("8.8.8.8")));
    assert_false(net_rule_covers_address(&below, address("8.8.8.8")));
    assert_true(net_rule_covers_address(&all, address("8.8.8.8")));
    assert_false(net_rule_covers_address(&all, address("10.1.0.1")));
    assert_true(net_rule_covers_address(&range, address("10.1.0.0")));
    assert_true(net_rule_covers_address(&range, address("10.1.255.255")));
    assert_false(net_rule_covers_address(&range, address("10.2.0.0")));
    assert_false(net_rule_covers_address(&range, address("10.0.255.255")));
    assert_true(net_rule_covers_address(&host, address("10.2.0.9")));
    assert_false(net_rule_covers_address(&host, address("10.2.0.8")));
}

static void test_ports_are_covered_by_protocol(void **state)
{
    (void)state;
    struct net_rule r = rule("a.org:80-443");
    assert_true(net_rule_covers_port(&r, NET_TCP, 80));
    assert_true(net_rule_covers_port(&r, NET_TCP, 443));
    assert_false(net_rule_covers_port(&r, NET_TCP, 79));
    assert_false(net_rule_covers_port(&r, NET_TCP, 444));
    assert_false(net_rule_covers_port(&r, NET_UDP, 80));
    r = rule("a.org:*");
    assert_false(net_rule_covers_port(&r, NET_TCP, 0));
}

static void test_ranges_have_their_edges(void **state)
{
    (void)state;
    struct net_range all, none = {.first = 5, .last = 4};
    assert_int_equal(net_range_parse("0.0.0.0/0", &all, NULL), 0);
    assert_true(all.first == 0 && all.last == UINT32_MAX);
    assert_int_equal(net_range_parse("10.0.0.0/8", &all, NULL), 0);
    assert_true(all.first == 0x0a000000 && all.last == 0x0affffff);
    assert_false(net_range_has(&none, 4) || net_range_has(&none, 5));
    assert_int_equal(net_range_parse("255.255.255.255", &all, NULL), 0);
    assert_int_equal(net_range_parse("10.0.0.1/8", &all, NULL), -1);
    assert_int_equal(net_range_parse("0.0.0.1/0", &all, NULL), -1);
    assert_int_equal(net_range_parse("", &all, NULL), -1);
}

/* First and last address of each block, and their neighbours. */
static void test_special_blocks_are_not_public_and_their_neighbours_are(void **state)
{
    (void)state;
    static const struct {
        const char *first, *last;
        bool open_below, open_above;
    } blocks[] = {
        {"0.0.0.0", "0.255.255.255", false, true},
        {"10.0.0.0", "10.255.255.255", true, true},
        {"100.64.0.0", "100.127.255.255", true, true},
        {"127.0.0.0", "127.255.255.255", true, true},
        {"169.254.0.0", "169.254.255.255", true, true},
        {"172.16.0.0", "172.31.255.255", true, true},
        {"192.0.0.0", "192.0.0.255", true, true},
        {"192.0.2.0", "192.0.2.255", true, true},
        {"192.88.99.0", "192.88.99.255", true, true},
        {"192.168.0.0", "192.168.255.255", true, true},
        {"198.18.0.0", "198.19.255.255", true, true},
        {"198.51.100.0", "198.51.100.255", true, true},
        {"203.0.113.0", "203.0.113.255", true, true},
        {"224.0.0.0", "239.255.255.255", true, false},
        {"240.0.0.0", "255.255.255.255", false, false},
    };
    for (size_t i = 0; i < CL_COUNT(blocks); i++) {
        uint32_t first = address(blocks[i].first), last = address(blocks[i].last);
        assert_false(net_address_is_public(first));
        assert_false(net_address_is_public(first + (last - first) / 2));
        assert_false(net_address_is_public(last));
        assert_true(net_address_is_public(first - 1) == blocks[i].open_below);
        assert_true(net_address_is_public(last + 1) == blocks[i].open_above);
    }
    assert_true(net_address_is_public(address("192.31.196.1")));
    assert_true(net_address_is_public(address("192.52.193.1")));
    assert_true(net_address_is_public(address("192.175.48.1")));
    assert_true(net_address_is_public(address("1.1.1.1")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_form_of_the_grammar_is_read),
        cmocka_unit_test(test_what_is_no_rule_is_refused),
        cmocka_unit_test(test_names_and_rules_keep_their_lengths),
        cmocka_unit_test(test_a_name_has_a_letter_at_its_end_and_is_lower_case),
        cmocka_unit_test(test_names_are_covered_whole_labels_at_a_time),
        cmocka_unit_test(test_addresses_are_covered_by_ranges_and_by_public_only),
        cmocka_unit_test(test_ports_are_covered_by_protocol),
        cmocka_unit_test(test_ranges_have_their_edges),
        cmocka_unit_test(test_special_blocks_are_not_public_and_their_neighbours_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
