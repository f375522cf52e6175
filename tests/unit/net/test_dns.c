/* tests/unit/net/test_dns.c - the guest's questions, and their answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/dns.h"

struct packet {
    size_t n;
    uint8_t bytes[600];
};

/* A question with the name on the wire, its zero at the end not counted in n. */
static struct packet question(const char *name, size_t n, uint8_t qtype)
{
    static const uint8_t head[] = {0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0};
    struct packet p = {.n = sizeof head + n + 5};
    memcpy(p.bytes, head, sizeof head);
    memcpy(p.bytes + sizeof head, name, n);
    p.bytes[sizeof head + n + 2] = qtype;
    p.bytes[sizeof head + n + 4] = 1;
    return p;
}

#define QUESTION(name) question(name, sizeof(name) - 1, 1)
#define DEMO "\4DeMo\3oRg"

static void test_a_question_is_read_and_its_case_kept(void **state)
{
    (void)state;
    struct net_dns_query q;
    struct packet p = QUESTION(DEMO);
    assert_true(net_dns_parse(p.bytes, p.n, &q));
    assert_string_equal(q.name, "demo.org");
    assert_int_equal(q.id, 0x1234);
    assert_int_equal(q.qtype, 1);
    assert_true(q.wants_recursion);
    assert_int_equal(q.question_bytes, 14);
    assert_memory_equal(q.question, p.bytes + 12, 14);
    p = question(DEMO, sizeof DEMO - 1, 28);
    p.bytes[2] = 0;
    assert_true(net_dns_parse(p.bytes, p.n, &q));
    assert_int_equal(q.qtype, 28);
    assert_false(q.wants_recursion);
}

static void test_edns_is_not_looked_at(void **state)
{
    (void)state;
    static const uint8_t opt[] = {0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0};
    struct net_dns_query q;
    struct packet p = QUESTION(DEMO);
    p.bytes[11] = 1;
    memcpy(p.bytes + p.n, opt, sizeof opt);
    assert_true(net_dns_parse(p.bytes, p.n + sizeof opt, &q));
    assert_int_equal(q.question_bytes, 14);
}

static void test_what_is_no_question_is_refused(void **state)
{
    (void)state;
    struct net_dns_query q = {.id = 77};
    struct packet p;
#define REFUSED(change) \
    do { \
        p = QUESTION(DEMO); \
        change; \
        assert_false(net_dns_parse(p.bytes, p.n, &q)); \
    } while (0)
    REFUSED(p.bytes[2] |= 0x80);   /* an answer */
    REFUSED(p.bytes[2] |= 0x08);   /* another opcode */
    REFUSED(p.bytes[5] = 0);       /* no question */
    REFUSED(p.bytes[5] = 2);       /* two */
    REFUSED(p.bytes[7] = 1);       /* with an answer */
    REFUSED(p.bytes[9] = 1);       /* with an authority */
    REFUSED(p.bytes[p.n - 1] = 3); /* of class CHAOS */
    REFUSED(p.bytes[12] = 0xc0);   /* a pointer */
    REFUSED(p.bytes[12] = 0x40);   /* a label of no kind */
    REFUSED(p.bytes[12] = 63);     /* a label longer than the packet */
    for (size_t n = 0; n < 26; n++)
        REFUSED(p.n = n);
#undef REFUSED
    assert_int_equal(q.id, 77);
}

/* A name of `total` bytes on the wire, with its root. */
static struct packet of_bytes(size_t total)
{
    char name[300] = {0};
    size_t at = 0, left = total - 1;
    while (left > 0) {
        size_t label = CL_MIN(left - 1, 50);
        if (left - 1 - label == 1)
            label--; /* no label of no letters */
        name[at] = (char)label;
        memset(name + at + 1, 'a', label);
        at += label + 1;
        left -= label + 1;
    }
    return question(name, total - 1, 1);
}

static void test_the_longest_name_fits_and_a_longer_one_is_refused(void **state)
{
    (void)state;
    struct net_dns_query q;
    struct packet p = of_bytes(255);
    assert_true(net_dns_parse(p.bytes, p.n, &q));
    assert_int_equal(strlen(q.name), NET_NAME_MAX);
    assert_int_equal(q.question_bytes, NET_DNS_QUESTION_MAX);
    p = of_bytes(256);
    assert_false(net_dns_parse(p.bytes, p.n, &q));
    struct net_dns_answer a = {.n_records = NET_DNS_RECORDS_MAX};
    uint8_t out[NET_DNS_BYTES_MAX];
    assert_int_equal(net_dns_build(&q, &a, out), 12 + 259 + 8 * 16);
}

static void test_names_of_no_host_can_be_answered(void **state)
{
    (void)state;
    static const struct {
        const char *wire;
        size_t n;
    } rows[] = {{"", 0},           {"\3a.b\3org", 8},       {"\2a\0\3org", 7},
                {"\2a \3org", 7},  {"\1-\3org", 6},         {"\1a\0011", 4},
                {"\2a\n\3org", 7}, {"\3\xc3\xa9x\3org", 8}, {"\0011\0012\0013\0014", 8}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct net_dns_query q;
        struct packet p = question(rows[i].wire, rows[i].n, 1);
        assert_true(net_dns_parse(p.bytes, p.n, &q));
        assert_string_equal(q.name, "");
    }
}

static void test_an_answer_repeats_the_question(void **state)
{
    (void)state;
    struct net_dns_query q;
    struct packet p = QUESTION(DEMO);
    uint8_t out[NET_DNS_BYTES_MAX];
    assert_true(net_dns_parse(p.bytes, p.n, &q));
    struct net_dns_answer a = {.rcode = NET_DNS_NOERROR,
                               .n_records = 2,
                               .records = {{0x01020304, 300}, {0x05060708, 0x01000002}}};
    static const uint8_t want[] = {
        0x12, 0x34, 0x81, 0x80, 0, 1, 0,    2,  0, 0, 0, 0, 4, 'D', 'e', 'M', 'o', 3, 'o', 'R',
        'g',  0,    0,    1,    0, 1, 0xc0, 12, 0, 1, 0, 1, 0, 0,   1,   44,  0,   4, 1,   2,
        3,    4,    0xc0, 12,   0, 1, 0,    1,  1, 0, 0, 2, 0, 4,   5,   6,   7,   8};
    assert_int_equal(net_dns_build(&q, &a, out), sizeof want);
    assert_memory_equal(out, want, sizeof want);
    a = (struct net_dns_answer){.rcode = NET_DNS_NXDOMAIN};
    assert_int_equal(net_dns_build(&q, &a, out), 26);
    assert_int_equal(out[3], 0x83);
    assert_int_equal(out[7], 0);
    q.wants_recursion = false;
    (void)net_dns_build(&q, &a, out);
    assert_int_equal(out[2], 0x80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_question_is_read_and_its_case_kept),
        cmocka_unit_test(test_edns_is_not_looked_at),
        cmocka_unit_test(test_what_is_no_question_is_refused),
        cmocka_unit_test(test_the_longest_name_fits_and_a_longer_one_is_refused),
        cmocka_unit_test(test_names_of_no_host_can_be_answered),
        cmocka_unit_test(test_an_answer_repeats_the_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
