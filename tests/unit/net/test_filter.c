/* tests/unit/net/test_filter.c - what passes, what does not, and what is told of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "net/filter.h"
#include "tests/unit/net/hello_bytes.h"

#define START (1000 * CL_NS_PER_S)

enum {
    SERVER = 0x08080808,
    OTHER = 0x01020304,
    PRIVATE = 0x0a000005,
    HOST = 0x0a000001,
    HOST_PUBLIC = 0x09090909,
    SYN = NET_TCP_SYN,
    ACK = NET_TCP_ACK,
    FIN = NET_TCP_FIN,
    RST = NET_TCP_RST,
};

/* A filter, and what it told. */
static struct bench {
    struct net_filter *f;
    struct net_event last;
    size_t n, n_kind[NET_EVENT_KINDS_END];
    uint64_t number;
    uint64_t now_ns;
} b;

static void hear(void *user, const struct net_event *e)
{
    struct cl_err err = {0};
    assert_ptr_equal(user, &b);
    if (net_event_check(e, sizeof *e, &err) < 0)
        fail_msg("event %u: %s", e->kind, err.text);
    if (e->kind == NET_EVENT_TOTALS)
        assert_int_equal(e->number, b.number);
    else
        assert_int_equal(e->number, ++b.number);
    b.last = *e;
    b.n++;
    b.n_kind[e->kind]++;
}

static void begin(const char *const *rules, size_t n, uint64_t egress_bytes)
{
    static const uint32_t own[] = {HOST, HOST_PUBLIC};
    struct net_grant g = {.version = NET_CONTROL_VERSION,
                          .n_private = 1,
                          .n_servers = 1,
                          .servers = {0x7f000001},
                          .egress_bytes = egress_bytes};
    struct cl_err err = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(net_rule_parse(rules[i], &g.rules[g.n_rules++], NULL), 0);
    assert_int_equal(net_range_parse("10.0.0.0/8", &g.private_ranges[0], NULL), 0);
    assert_int_equal(net_grant_check(&g, sizeof g, &err), 0);
    net_filter_free(b.f);
    b = (struct bench){.now_ns = START};
    assert_int_equal(net_filter_new(&g, hear, &b, &b.f, &err), 0);
    assert_int_equal(net_filter_set_own_addresses(b.f, own, CL_COUNT(own), &err), 0);
}

#define BEGIN(...) \
    do { \
        static const char *const rules_[] = {__VA_ARGS__}; \
        begin(rules_, CL_COUNT(rules_), UINT64_MAX); \
    } while (0)

static int end(void **state)
{
    (void)state;
    net_filter_free(b.f);
    b.f = NULL;
    return 0;
}

static struct net_frame tcp(uint32_t to, uint16_t port, uint8_t flags)
{
    return (struct net_frame){.kind = NET_FRAME_TCP,
                              .protocol = NET_TCP,
                              .flags = flags,
                              .bytes = 40,
                              .from = NET_GUEST,
                              .to = to,
                              .from_port = 40000,
                              .to_port = port};
}

static struct net_frame udp(uint32_t to, uint16_t port)
{
    return (struct net_frame){.kind = NET_FRAME_UDP,
                              .protocol = NET_UDP,
                              .bytes = 100,
                              .from = NET_GUEST,
                              .to = to,
                              .from_port = 40000,
                              .to_port = port};
}

static struct net_frame back(struct net_frame f)
{
    struct net_frame r = f;
    r.from = f.to;
    r.to = f.from;
    r.from_port = f.to_port;
    r.to_port = f.from_port;
    return r;
}

static enum net_verdict out(struct net_frame f)
{
    return net_filter_from_guest(b.f, &f, NULL, b.now_ns);
}

static enum net_verdict in(struct net_frame f)
{
    struct net_frame r = back(f);
    return net_filter_to_guest(b.f, &r, b.now_ns);
}

static struct net_dns_query query(const char *name, uint16_t qtype)
{
    struct net_dns_query q = {.qtype = qtype};
    (void)snprintf(q.name, sizeof q.name, "%s", name);
    return q;
}

static bool ask(const char *name, uint16_t qtype, struct net_dns_answer *a)
{
    struct net_dns_query q = query(name, qtype);
    struct net_frame f = udp(NET_DNS, 53);
    return net_filter_question(b.f, &q, &f, b.now_ns, a);
}

/* Ask and be told `address`; returns how many of it the guest is told. */
static size_t resolve(const char *name, uint32_t address, uint32_t ttl_s)
{
    struct net_dns_query q = query(name, NET_DNS_TYPE_A);
    struct net_dns_answer a, found = {.n_records = 1, .records = {{address, ttl_s}}};
    assert_true(ask(name, NET_DNS_TYPE_A, &a));
    net_filter_resolved(b.f, &q, &found, b.now_ns - 5000, b.now_ns, &a);
    return a.n_records;
}

static void denied(enum net_verdict got, enum net_verdict want, const char *reason)
{
    assert_int_equal(got, want);
    assert_int_equal(b.last.kind, NET_EVENT_DENIED);
    assert_string_equal(b.last.reason, reason);
    b.last.kind = 0;
}

static void test_a_flow_is_told_at_its_begin_and_end_with_every_byte(void **state)
{
    (void)state;
    BEGIN("203.0.114.0/24", "8.8.8.8:53", "8.8.8.8");
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS);
    assert_int_equal(b.last.kind, NET_EVENT_OPEN);
    assert_true(b.last.flow == 1 && b.last.address == SERVER && b.last.port == 443 &&
                b.last.guest_port == 40000 && b.last.rule == 2 && b.last.protocol == NET_TCP);
    assert_int_equal(in(tcp(SERVER, 443, SYN | ACK)), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 443, ACK)), NET_PASS);
    b.now_ns += CL_NS_PER_S;
    assert_int_equal(out(tcp(SERVER, 443, FIN | ACK)), NET_PASS);
    assert_int_equal(in(tcp(SERVER, 443, FIN | ACK)), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 443, ACK)), NET_PASS); /* the last one counts too */
    assert_int_equal(b.n, 1);
    b.now_ns += NET_LINGER_NS;
    net_filter_tick(b.f, b.now_ns);
    assert_int_equal(b.n_kind[NET_EVENT_CLOSE], 1);
    assert_int_equal(b.n_kind[NET_EVENT_TOTALS], 1);
    assert_true(b.last.sent == 160 && b.last.received == 80 && b.last.number == 2);
    net_filter_tick(b.f, b.now_ns);
    assert_int_equal(b.n_kind[NET_EVENT_TOTALS], 1);
    assert_int_equal(net_filter_flows(b.f), 0);
}

static void test_the_close_says_how_and_how_long(void **state)
{
    (void)state;
    BEGIN("8.8.8.8:*");
    assert_int_equal(out(tcp(SERVER, 1, SYN)), NET_PASS);
    b.now_ns += 7000;
    assert_int_equal(in(tcp(SERVER, 1, RST | ACK)), NET_PASS);
    assert_true(b.last.kind == NET_EVENT_CLOSE && b.last.end == NET_END_RESET &&
                b.last.duration_us == 7 && b.last.sent == 40 && b.last.received == 40);
    assert_int_equal(out(tcp(SERVER, 2, SYN)), NET_PASS);
    assert_int_equal(in(tcp(SERVER, 2, SYN | ACK)), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 2, RST)), NET_PASS);
    assert_true(b.last.flow == 2 && b.last.end == NET_END_RESET);
    assert_int_equal(out(tcp(SERVER, 3, SYN)), NET_PASS);
    net_filter_stop(b.f);
    assert_int_equal(b.n_kind[NET_EVENT_CLOSE], 3);
    assert_int_equal(b.last.kind, NET_EVENT_TOTALS);
    assert_true(b.last.number == 6 && b.last.sent == 160 && b.last.received == 80);
}

static void test_a_port_that_is_used_again_is_another_flow(void **state)
{
    (void)state;
    BEGIN("8.8.8.8");
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS); /* again: nothing came back */
    assert_int_equal(b.n, 1);
    assert_int_equal(out(tcp(SERVER, 443, FIN | ACK)), NET_PASS);
    assert_int_equal(in(tcp(SERVER, 443, FIN | ACK)), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS);
    assert_int_equal(b.n, 3);
    assert_true(b.last.kind == NET_EVENT_OPEN && b.last.flow == 2);
}

static void test_idle_flows_end(void **state)
{
    (void)state;
    BEGIN("8.8.8.8:*", "8.8.8.8:*/udp");
    assert_int_equal(out(tcp(SERVER, 1, SYN)), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 2, SYN)), NET_PASS);
    assert_int_equal(in(tcp(SERVER, 2, SYN | ACK)), NET_PASS);
    assert_int_equal(out(udp(SERVER, 3)), NET_PASS);
    static const struct {
        uint64_t at_ns;
        size_t left;
    } rows[] = {{NET_UDP_IDLE_NS - 1, 3}, {NET_UDP_IDLE_NS, 2},     {NET_TCP_OPENING_NS - 1, 2},
                {NET_TCP_OPENING_NS, 1},  {NET_TCP_IDLE_NS - 1, 1}, {NET_TCP_IDLE_NS, 0}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        net_filter_tick(b.f, START + rows[i].at_ns);
        assert_int_equal(net_filter_flows(b.f), rows[i].left);
    }
    assert_int_equal(b.n_kind[NET_EVENT_CLOSE], 3);
}

static void test_what_no_rule_allows_is_refused_and_told_once(void **state)
{
    (void)state;
    BEGIN("8.8.8.8");
    denied(out(tcp(OTHER, 443, SYN)), NET_RESET, "no rule allows it");
    assert_true(b.last.address == OTHER && b.last.port == 443 && b.last.guest_port == 40000 &&
                b.last.protocol == NET_TCP && b.last.rule == NET_NO_RULE);
    assert_int_equal(out(tcp(OTHER, 443, SYN)), NET_RESET);
    assert_int_equal(b.n, 1);
    denied(out(tcp(SERVER, 80, SYN)), NET_RESET, "no rule allows it");
    denied(out(udp(SERVER, 443)), NET_PROHIBITED, "no rule allows it");
    b.now_ns += NET_DENIED_AGAIN_NS;
    denied(out(tcp(OTHER, 443, SYN)), NET_RESET, "no rule allows it");
    struct net_frame ping = {.kind = NET_FRAME_OTHER, .protocol = 1, .bytes = 84, .to = SERVER};
    denied(out(ping), NET_DROP, "it is neither TCP nor UDP");
    assert_int_equal(b.n, 5);
    net_filter_stop(b.f);
    assert_int_equal(b.last.sent, 0);
}

static void test_what_is_of_no_flow_is_reset_without_a_word(void **state)
{
    (void)state;
    BEGIN("8.8.8.8");
    static const uint8_t flags[] = {ACK, FIN, RST, SYN | ACK, SYN | FIN, SYN | RST, 0};
    for (size_t i = 0; i < CL_COUNT(flags); i++)
        assert_int_equal(out(tcp(SERVER, 443, flags[i])), NET_RESET);
    assert_int_equal(in(tcp(SERVER, 443, ACK)), NET_DROP);
    assert_int_equal(in(udp(SERVER, 443)), NET_DROP);
    assert_int_equal(b.n, 0);
}

static void test_the_link_offers_names_only(void **state)
{
    (void)state;
    BEGIN("0.0.0.0/0:*", "0.0.0.0/0:*/udp");
    struct net_frame arp = {.kind = NET_FRAME_ARP, .to = NET_GATEWAY};
    assert_int_equal(out(arp), NET_PASS);
    assert_int_equal(in(arp), NET_PASS);
    arp.to = SERVER;
    assert_int_equal(out(arp), NET_DROP);
    assert_int_equal(out(udp(NET_DNS, 53)), NET_QUESTION);
    denied(out(udp(NET_DNS, 54)), NET_PROHIBITED, "the link has no such service");
    denied(out(udp(NET_GATEWAY, 53)), NET_PROHIBITED, "the link has no such service");
    denied(out(udp(NET_GATEWAY, 67)), NET_PROHIBITED, "the link has no such service");
    denied(out(tcp(NET_DNS, 53, SYN)), NET_RESET, "the link has no such service");
    denied(out(tcp(NET_LINK + 7, 1, SYN)), NET_RESET, "the link has no such service");
    struct net_frame ping = {.kind = NET_FRAME_OTHER, .protocol = 1, .to = NET_GATEWAY};
    denied(out(ping), NET_DROP, "the link has no such service");
}

static void test_no_rule_opens_what_is_never_reached(void **state)
{
    (void)state;
    static const char *const rules[] = {"0.0.0.0/0:*", "public"};
    static const uint32_t never[] = {0,          1,          0x7f000001, 0x7fffffff, 0xa9fea9fe,
                                     0xe0000001, 0xefffffff, 0xf0000000, 0xffffffff};
    begin(rules, CL_COUNT(rules), UINT64_MAX);
    struct net_grant g = {.version = NET_CONTROL_VERSION,
                          .n_rules = 1,
                          .n_private = 1,
                          .private_ranges = {{0, UINT32_MAX}},
                          .egress_bytes = UINT64_MAX};
    static const uint32_t own[] = {HOST};
    assert_int_equal(net_rule_parse(rules[0], &g.rules[0], NULL), 0);
    net_filter_free(b.f);
    assert_int_equal(net_filter_new(&g, hear, &b, &b.f, NULL), 0);
    assert_int_equal(net_filter_set_own_addresses(b.f, own, 1, NULL), 0);
    for (size_t i = 0; i < CL_COUNT(never); i++)
        denied(out(tcp(never[i], 80, SYN)), NET_RESET, "no guest reaches such an address");
    denied(out(tcp(HOST, 80, SYN)), NET_RESET, "it is an address of this host");
    assert_int_equal(out(tcp(0xc0000008, 80, SYN)), NET_PASS); /* behind the link */
    assert_int_equal(net_filter_set_own_addresses(b.f, own, NET_OWN_ADDRESSES_MAX + 1, NULL), -1);
}

/* Of a VM that was at rest: the budget, the numbers and the sums are those of both processes. */
static void test_it_counts_on_from_its_past(void **state)
{
    (void)state;
    struct net_grant g = {.version = NET_CONTROL_VERSION,
                          .n_rules = 1,
                          .egress_bytes = 1000,
                          .past = {.number = 7, .sent = 900, .received = 50, .flow = 3}};
    assert_int_equal(net_rule_parse("8.8.8.8", &g.rules[0], NULL), 0);
    assert_int_equal(net_grant_check(&g, sizeof g, NULL), 0);
    b = (struct bench){.now_ns = START, .number = 7};
    assert_int_equal(net_filter_new(&g, hear, &b, &b.f, NULL), 0);
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS);
    assert_int_equal(b.last.flow, 4);
    assert_int_equal(out(tcp(SERVER, 443, ACK)), NET_PASS);
    denied(out(tcp(SERVER, 443, ACK)), NET_RESET, "the egress budget is used up");
    assert_int_equal(in(tcp(SERVER, 443, ACK)), NET_PASS);
    net_filter_stop(b.f);
    assert_int_equal(b.last.kind, NET_EVENT_TOTALS);
    assert_true(b.last.sent == 980 && b.last.received == 90 && b.last.number == b.number);
}

static void test_private_addresses_need_a_grant_and_a_rule(void **state)
{
    (void)state;
    BEGIN("0.0.0.0/0:80", "public:81");
    assert_int_equal(out(tcp(PRIVATE, 80, SYN)), NET_PASS);
    denied(out(tcp(PRIVATE, 81, SYN)), NET_RESET, "no rule allows it");
    denied(out(tcp(0xc0a80001, 80, SYN)), NET_RESET, "its address is not public");
    denied(out(tcp(HOST, 80, SYN)), NET_RESET, "it is an address of this host");
    denied(out(tcp(HOST_PUBLIC, 81, SYN)), NET_RESET, "it is an address of this host");
    assert_int_equal(out(tcp(OTHER, 81, SYN)), NET_PASS);
}

static void test_a_name_opens_the_addresses_that_it_led_to(void **state)
{
    (void)state;
    BEGIN("db:5432", "demo.org");
    denied(out(tcp(OTHER, 443, SYN)), NET_RESET, "no rule allows it");
    assert_int_equal(resolve("demo.org", OTHER, 300), 1);
    assert_true(b.last.kind == NET_EVENT_DNS && !b.last.is_denied && b.last.rule == 1 &&
                b.last.n_addresses == 1 && b.last.addresses[0] == OTHER &&
                b.last.duration_us == 5 && b.last.qtype == 1 && b.last.rcode == 0);
    assert_int_equal(out(tcp(OTHER, 443, SYN)), NET_PASS);
    assert_string_equal(b.last.name, "demo.org");
    assert_int_equal(b.last.rule, 1);
    denied(out(tcp(OTHER, 5432, SYN)), NET_RESET, "no rule allows it");
    assert_string_equal(b.last.name, "demo.org");
    assert_int_equal(resolve("db", OTHER, 1), 1); /* the same address under both */
    assert_int_equal(out(tcp(OTHER, 5432, SYN)), NET_PASS);
    assert_int_equal(b.last.rule, 0);
    assert_int_equal(resolve("db", PRIVATE, 1), 1); /* granted as private */
    assert_int_equal(out(tcp(PRIVATE, 5432, SYN)), NET_PASS);
}

static void test_a_name_is_forgotten_unless_a_flow_uses_it(void **state)
{
    (void)state;
    BEGIN("demo.org");
    assert_int_equal(resolve("demo.org", OTHER, 1), 1);
    assert_int_equal(resolve("demo.org", SERVER, 3600), 1);
    b.now_ns += NET_PIN_NS - 1;
    assert_int_equal(out(tcp(OTHER, 443, SYN)), NET_PASS);
    assert_int_equal(in(tcp(OTHER, 443, SYN | ACK)), NET_PASS);
    net_filter_tick(b.f, b.now_ns);
    b.now_ns += NET_PIN_NS - 1;
    struct net_frame second = tcp(OTHER, 443, SYN);
    second.from_port++;
    assert_int_equal(out(second), NET_PASS);
    assert_int_equal(in(second), NET_PASS);
    second.flags = RST;
    assert_int_equal(out(second), NET_PASS);
    second.flags = SYN;
    assert_int_equal(out(tcp(OTHER, 443, RST)), NET_PASS);
    b.now_ns += 1;
    denied(out(second), NET_RESET, "no rule allows it");
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS); /* its own time is longer */
}

static void test_addresses_that_cannot_be_reached_are_not_told(void **state)
{
    (void)state;
    BEGIN("evil.org:*", "public:80");
    static const uint32_t inside[] = {0x7f000001, HOST, 0xc0a80001, 0xa9fea9fe, NET_GATEWAY, 0};
    for (size_t i = 0; i < CL_COUNT(inside); i++) {
        assert_int_equal(resolve("evil.org", inside[i], 60), 0);
        assert_true(b.last.is_denied && b.last.rcode == 0 && b.last.n_addresses == 0);
        assert_string_equal(b.last.reason, "its addresses are not public");
        assert_int_equal(out(tcp(inside[i], 80, SYN)), NET_RESET);
    }
    assert_int_equal(resolve("other.org", PRIVATE, 60), 0); /* `public` leads to none */
    assert_int_equal(resolve("evil.org", PRIVATE, 60), 1);
    assert_int_equal(out(tcp(PRIVATE, 80, SYN)), NET_PASS);
    assert_int_equal(b.last.rule, 0);
    struct net_dns_query q = query("evil.org", 1);
    struct net_dns_answer a,
        found = {.n_records = 3, .records = {{HOST, 1}, {SERVER, 2}, {0x7f000001, 3}}};
    assert_true(ask("evil.org", 1, &a));
    net_filter_resolved(b.f, &q, &found, b.now_ns, b.now_ns, &a);
    assert_true(a.n_records == 1 && a.records[0].address == SERVER && a.records[0].ttl_s == 2);
    assert_false(b.last.is_denied);
}

static void test_a_name_under_public_opens_no_more_than_public(void **state)
{
    (void)state;
    BEGIN("public:80");
    assert_int_equal(resolve("any.org", OTHER, 60), 1);
    assert_int_equal(out(tcp(OTHER, 80, SYN)), NET_PASS);
    assert_string_equal(b.last.name, "any.org");
    denied(out(tcp(OTHER, 81, SYN)), NET_RESET, "no rule allows it");
    denied(out(tcp(PRIVATE, 80, SYN)), NET_RESET, "no rule allows it");
}

static void test_questions_that_do_not_leave(void **state)
{
    (void)state;
    struct net_dns_answer a = {.n_records = 9};
    BEGIN("demo.org", "*.a.org", "1.2.3.4");
    assert_false(ask("evil.org", 1, &a));
    assert_true(a.rcode == NET_DNS_NXDOMAIN && a.n_records == 0);
    assert_true(b.last.kind == NET_EVENT_DNS && b.last.is_denied && b.last.rcode == 3);
    assert_string_equal(b.last.name, "evil.org");
    assert_string_equal(b.last.reason, "no rule covers the name");
    assert_false(ask("a.org", 1, &a));
    assert_int_equal(a.rcode, NET_DNS_NXDOMAIN);
    assert_false(ask("", 1, &a));
    assert_int_equal(a.rcode, NET_DNS_NXDOMAIN);
    assert_string_equal(b.last.reason, "it is no host name");
    static const uint16_t types[] = {0, 2, 5, 15, 16, 28, 33, 65, 255};
    for (size_t i = 0; i < CL_COUNT(types); i++) {
        assert_false(ask("x.a.org", types[i], &a));
        assert_true(a.rcode == NET_DNS_NOERROR && a.n_records == 0);
        assert_true(!b.last.is_denied && b.last.qtype == types[i] && b.last.rule == 1);
    }
    net_filter_stop(b.f);
    assert_int_equal(b.last.sent, 0);
}

static void test_without_servers_no_name_has_addresses(void **state)
{
    (void)state;
    struct net_dns_answer a;
    struct net_grant g = {.version = NET_CONTROL_VERSION, .n_rules = 1, .egress_bytes = UINT64_MAX};
    BEGIN("public");
    net_filter_free(b.f);
    assert_int_equal(net_rule_parse("public", &g.rules[0], NULL), 0);
    assert_int_equal(net_filter_new(&g, hear, &b, &b.f, NULL), 0);
    assert_false(ask("a.org", 1, &a));
    assert_int_equal(a.rcode, NET_DNS_SERVFAIL);
    assert_true(!b.last.is_denied && b.last.rcode == NET_DNS_SERVFAIL);
}

static void test_a_failed_look_up_is_passed_on(void **state)
{
    (void)state;
    BEGIN("demo.org");
    struct net_dns_query q = query("demo.org", 1);
    struct net_dns_answer a, found = {.rcode = NET_DNS_SERVFAIL};
    assert_true(ask("demo.org", 1, &a));
    net_filter_resolved(b.f, &q, &found, b.now_ns, b.now_ns, &a);
    assert_true(a.rcode == NET_DNS_SERVFAIL && a.n_records == 0);
    assert_true(!b.last.is_denied && b.last.rcode == NET_DNS_SERVFAIL);
}

static void test_questions_have_a_rate_and_a_number(void **state)
{
    (void)state;
    struct net_dns_answer a;
    BEGIN("*.a.org");
    for (int i = 0; i < 100; i++)
        assert_int_equal(resolve("x.a.org", OTHER, 60), 1);
    assert_false(ask("x.a.org", 1, &a));
    assert_int_equal(a.rcode, NET_DNS_SERVFAIL);
    assert_true(b.last.is_denied);
    assert_string_equal(b.last.reason, "too many questions");
    b.now_ns += 50 * CL_NS_PER_MS;
    assert_true(ask("x.a.org", 1, &a));
    assert_false(ask("x.a.org", 1, &a));
    b.now_ns += 60 * CL_NS_PER_S;
    for (int i = 1; i < NET_QUESTIONS_MAX; i++)
        assert_true(ask("x.a.org", 1, &a));
    assert_false(ask("x.a.org", 1, &a));
    assert_string_equal(b.last.reason, "too many questions");
}

static void test_flows_have_a_rate_and_a_number(void **state)
{
    (void)state;
    BEGIN("8.8.8.8:*");
    uint16_t port = 1;
    for (; port <= 400; port++)
        assert_int_equal(out(tcp(SERVER, port, SYN)), NET_PASS);
    denied(out(tcp(SERVER, port, SYN)), NET_RESET, "too many new flows");
    b.now_ns += 10 * CL_NS_PER_S;
    for (; port <= NET_FLOWS_MAX; port++)
        assert_int_equal(out(tcp(SERVER, port, SYN)), NET_PASS);
    denied(out(tcp(SERVER, port, SYN)), NET_RESET, "too many flows");
    assert_int_equal(net_filter_flows(b.f), NET_FLOWS_MAX);
    for (uint16_t i = 1; i <= NET_FLOWS_MAX; i++)
        assert_int_equal(out(tcp(SERVER, i, RST)), NET_PASS);
    assert_int_equal(net_filter_flows(b.f), 0);
    b.now_ns += 10 * CL_NS_PER_S;
    assert_int_equal(out(tcp(SERVER, port, SYN)), NET_PASS);
}

static void test_the_budget_ends_everything(void **state)
{
    (void)state;
    static const char *const rules[] = {"8.8.8.8", "8.8.8.8:*/udp", "public:1"};
    struct net_dns_answer a;
    begin(rules, CL_COUNT(rules), 240);
    assert_int_equal(out(tcp(SERVER, 443, SYN)), NET_PASS);
    assert_true(ask("a.org", 1, &a));                       /* 100 more */
    assert_int_equal(out(tcp(OTHER, 443, SYN)), NET_RESET); /* denied: costs nothing */
    assert_int_equal(out(udp(SERVER, 9)), NET_PASS);
    assert_int_equal(b.n_kind[NET_EVENT_OPEN], 2);
    denied(out(tcp(SERVER, 443, ACK)), NET_RESET, "the egress budget is used up");
    assert_int_equal(out(tcp(SERVER, 443, ACK)), NET_RESET);
    assert_int_equal(out(udp(SERVER, 9)), NET_DROP);
    assert_int_equal(out(udp(NET_DNS, 53)), NET_DROP);
    assert_int_equal(out(tcp(OTHER, 444, SYN)), NET_RESET);
    assert_int_equal(b.n_kind[NET_EVENT_DENIED], 2);
    assert_int_equal(in(tcp(SERVER, 443, ACK)), NET_PASS);
    net_filter_tick(b.f, b.now_ns);
    assert_true(b.last.sent == 240 && b.last.received == 40);
    begin(rules, CL_COUNT(rules), 0);
    denied(out(tcp(SERVER, 443, SYN)), NET_RESET, "the egress budget is used up");
    assert_int_equal(b.n, 1);
}

static void test_a_guest_that_is_told_no_too_often_waits(void **state)
{
    (void)state;
    BEGIN("8.8.8.8");
    for (uint16_t port = 1; port <= 400; port++)
        assert_int_equal(out(tcp(OTHER, port, SYN)), NET_RESET);
    assert_int_equal(net_filter_paused_until_ns(b.f), 0);
    assert_int_equal(out(tcp(OTHER, 401, SYN)), NET_RESET);
    assert_int_equal(b.n, 401); /* told all the same */
    assert_true(net_filter_paused_until_ns(b.f) > b.now_ns);
    assert_true(net_filter_paused_until_ns(b.f) <= b.now_ns + 10 * CL_NS_PER_MS);
}

static void test_the_oldest_name_gives_way(void **state)
{
    (void)state;
    BEGIN("*.a.org:*");
    for (uint32_t i = 0; i <= NET_PINS_MAX; i++) {
        b.now_ns += 50 * CL_NS_PER_MS;
        assert_int_equal(resolve("x.a.org", 0x08000000 + i, 3600), 1);
    }
    denied(out(tcp(0x08000000, 1, SYN)), NET_RESET, "no rule allows it");
    assert_int_equal(out(tcp(0x08000001, 1, SYN)), NET_PASS);
    assert_int_equal(out(tcp(0x08000000 + NET_PINS_MAX, 1, SYN)), NET_PASS);
}

/* One by name alone, one by name and by address, one where nobody looks for names. */
static void begin_named(void)
{
    BEGIN("a.org", "*.b.org:*", "1.2.3.4");
    assert_int_equal(resolve("a.org", SERVER, 60), 1);
    assert_int_equal(resolve("x.b.org", SERVER, 60), 1);
    assert_int_equal(resolve("x.b.org", OTHER, 60), 1);
}

static enum net_verdict say_at(uint32_t to, uint16_t port, uint32_t seq, const void *bytes,
                               size_t n)
{
    struct net_frame f = tcp(to, port, ACK);
    f.seq = seq;
    f.payload_bytes = (uint16_t)n;
    f.bytes = (uint16_t)(40 + n);
    return net_filter_from_guest(b.f, &f, bytes, b.now_ns);
}

static void open_at(uint32_t to, uint16_t port, uint32_t seq)
{
    struct net_frame f = tcp(to, port, SYN);
    f.seq = seq;
    assert_int_equal(net_filter_from_guest(b.f, &f, NULL, b.now_ns), NET_PASS);
}

static void test_tls_must_ask_for_a_name_of_a_rule(void **state)
{
    (void)state;
    begin_named();
    struct hello_bytes good = hello_for("A.org"), other = hello_for("evil.org"),
                       none = hello_for(NULL), below = hello_for("y.b.org");
    open_at(SERVER, 443, 99);
    assert_int_equal(say_at(SERVER, 443, 100, good.at, good.n), NET_PASS);
    assert_int_equal(say_at(SERVER, 443, 100 + (uint32_t)good.n, other.at, other.n), NET_PASS);
    assert_int_equal(out(tcp(SERVER, 443, RST)), NET_PASS);
    assert_int_equal(b.last.kind, NET_EVENT_CLOSE);
    assert_string_equal(b.last.name, "a.org"); /* what it asked for, whatever else is there */
    open_at(SERVER, 443, 0xffffffff);
    assert_int_equal(say_at(SERVER, 443, 0, other.at, other.n), NET_HANG_UP);
    assert_int_equal(b.last.kind, NET_EVENT_CLOSE);
    assert_int_equal(b.last.end, NET_END_RESET);
    assert_int_equal(b.last.sent, 40); /* no byte of it */
    assert_int_equal(b.n_kind[NET_EVENT_DENIED], 1);
    assert_int_equal(net_filter_flows(b.f), 0);
    assert_int_equal(say_at(SERVER, 443, 0, other.at, other.n), NET_RESET); /* it is no flow now */
    open_at(SERVER, 443, 5);
    assert_int_equal(say_at(SERVER, 443, 6, none.at, none.n), NET_HANG_UP);
    open_at(SERVER, 443, 5);
    assert_int_equal(say_at(SERVER, 443, 6, below.at, below.n), NET_PASS);
    open_at(SERVER, 8443, 5); /* a.org's rule is for port 443 */
    assert_int_equal(say_at(SERVER, 8443, 6, good.at, good.n), NET_HANG_UP);
}

static void test_who_is_allowed_by_address_may_ask_for_anybody(void **state)
{
    (void)state;
    begin_named();
    struct hello_bytes other = hello_for("evil.org");
    open_at(OTHER, 443, 5);
    assert_int_equal(say_at(OTHER, 443, 6, other.at, other.n), NET_PASS);
    open_at(OTHER, 8443, 5); /* there only by name */
    assert_int_equal(say_at(OTHER, 8443, 6, other.at, other.n), NET_HANG_UP);
    open_at(SERVER, 443, 5);
    assert_int_equal(say_at(SERVER, 443, 6, "GET / HTTP/1.1\r\n", 16), NET_PASS);
    assert_int_equal(say_at(SERVER, 443, 22, other.at, other.n), NET_PASS); /* it is no hello */
}

static void test_a_hello_in_pieces_is_put_together(void **state)
{
    (void)state;
    begin_named();
    struct hello_bytes good = hello_for("a.org"), other = hello_for("evil.org");
    for (size_t cut = 1; cut < good.n; cut++) {
        open_at(SERVER, 443, 10);
        assert_int_equal(say_at(SERVER, 443, 11, good.at, cut), NET_PASS);
        assert_int_equal(say_at(SERVER, 443, 11 + (uint32_t)cut, good.at + cut, good.n - cut),
                         NET_PASS);
        assert_int_equal(out(tcp(SERVER, 443, RST)), NET_PASS);
        b.now_ns += CL_NS_PER_S;
    }
    open_at(SERVER, 443, 10);
    for (size_t i = 0; i + 1 < other.n; i++)
        assert_int_equal(say_at(SERVER, 443, 11 + (uint32_t)i, other.at + i, 1), NET_PASS);
    assert_int_equal(say_at(SERVER, 443, 10 + (uint32_t)other.n, other.at + other.n - 1, 1),
                     NET_HANG_UP);
}

static void test_bytes_out_of_turn_wait(void **state)
{
    (void)state;
    begin_named();
    struct hello_bytes good = hello_for("a.org"), other = hello_for("b.org");
    open_at(SERVER, 443, 10);
    assert_int_equal(say_at(SERVER, 443, 21, good.at + 10, 20), NET_DROP); /* ahead */
    assert_int_equal(say_at(SERVER, 443, 11, good.at, 30), NET_PASS);
    assert_int_equal(say_at(SERVER, 443, 11, good.at, 30), NET_PASS); /* once more */
    assert_int_equal(say_at(SERVER, 443, 21, good.at + 10, 20), NET_PASS);
    assert_int_equal(say_at(SERVER, 443, 11, other.at, 30), NET_PASS); /* the same so far */
    uint8_t changed[30];
    memcpy(changed, good.at, sizeof changed);
    changed[29] ^= 1;
    assert_int_equal(say_at(SERVER, 443, 11, changed, 30), NET_DROP); /* another version */
    assert_int_equal(say_at(SERVER, 443, 31, good.at + 20, good.n - 20),
                     NET_DROP);                                      /* over the edge */
    assert_int_equal(say_at(SERVER, 443, 10, good.at, 5), NET_DROP); /* before its begin */
    assert_int_equal(say_at(SERVER, 443, 41, good.at + 30, good.n - 30), NET_PASS);
    struct net_frame f = tcp(SERVER, 443, SYN); /* data in a SYN */
    f.from_port = 40001;
    f.payload_bytes = 5;
    assert_int_equal(net_filter_from_guest(b.f, &f, other.at, b.now_ns), NET_DROP);
}

static void test_a_hello_without_end_is_none(void **state)
{
    (void)state;
    begin_named();
    static uint8_t much[9000];
    open_at(SERVER, 443, 10);
    memcpy(much, "\x16\x03\x01\x40\x00\x01\x00\x3f\x00", 9);
    assert_int_equal(say_at(SERVER, 443, 11, much, 8000), NET_PASS);
    memset(much, 0, sizeof much);
    assert_int_equal(say_at(SERVER, 443, 8011, much, 8000), NET_PASS);
    assert_int_equal(say_at(SERVER, 443, 16011, much, 8000), NET_HANG_UP);
}

static void test_new_survives_a_failed_allocation(void **state)
{
    (void)state;
    struct net_grant g = {.version = NET_CONTROL_VERSION};
    struct net_filter *f = NULL;
    struct cl_err err = {0};
    cl_test_fail_alloc(0);
    assert_int_equal(net_filter_new(&g, hear, NULL, &f, &err), -1);
    cl_test_fail_alloc(-1);
    assert_true(err.code == CL_E_NOMEM && f == NULL);
    net_filter_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_flow_is_told_at_its_begin_and_end_with_every_byte, end),
        cmocka_unit_test_teardown(test_the_close_says_how_and_how_long, end),
        cmocka_unit_test_teardown(test_a_port_that_is_used_again_is_another_flow, end),
        cmocka_unit_test_teardown(test_idle_flows_end, end),
        cmocka_unit_test_teardown(test_what_no_rule_allows_is_refused_and_told_once, end),
        cmocka_unit_test_teardown(test_what_is_of_no_flow_is_reset_without_a_word, end),
        cmocka_unit_test_teardown(test_the_link_offers_names_only, end),
        cmocka_unit_test_teardown(test_no_rule_opens_what_is_never_reached, end),
        cmocka_unit_test_teardown(test_private_addresses_need_a_grant_and_a_rule, end),
        cmocka_unit_test_teardown(test_a_name_opens_the_addresses_that_it_led_to, end),
        cmocka_unit_test_teardown(test_a_name_is_forgotten_unless_a_flow_uses_it, end),
        cmocka_unit_test_teardown(test_addresses_that_cannot_be_reached_are_not_told, end),
        cmocka_unit_test_teardown(test_a_name_under_public_opens_no_more_than_public, end),
        cmocka_unit_test_teardown(test_questions_that_do_not_leave, end),
        cmocka_unit_test_teardown(test_without_servers_no_name_has_addresses, end),
        cmocka_unit_test_teardown(test_a_failed_look_up_is_passed_on, end),
        cmocka_unit_test_teardown(test_questions_have_a_rate_and_a_number, end),
        cmocka_unit_test_teardown(test_flows_have_a_rate_and_a_number, end),
        cmocka_unit_test_teardown(test_the_budget_ends_everything, end),
        cmocka_unit_test_teardown(test_a_guest_that_is_told_no_too_often_waits, end),
        cmocka_unit_test_teardown(test_the_oldest_name_gives_way, end),
        cmocka_unit_test_teardown(test_it_counts_on_from_its_past, end),
        cmocka_unit_test(test_tls_must_ask_for_a_name_of_a_rule),
        cmocka_unit_test(test_who_is_allowed_by_address_may_ask_for_anybody),
        cmocka_unit_test(test_a_hello_in_pieces_is_put_together),
        cmocka_unit_test(test_bytes_out_of_turn_wait),
        cmocka_unit_test(test_a_hello_without_end_is_none),
        cmocka_unit_test(test_new_survives_a_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
