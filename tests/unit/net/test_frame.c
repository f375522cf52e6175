/* tests/unit/net/test_frame.c - frames of the guest, and the answers that refuse them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/net/guest.h"

enum { SERVER = 0x01020304 };

static enum net_frame_fault parse(const struct raw *r, struct net_frame *f)
{
    return net_frame_from_guest(r->bytes, r->n, f);
}

static void test_tcp_is_read(void **state)
{
    (void)state;
    struct net_frame f;
    struct raw r = raw_tcp(SERVER, 443, NET_TCP_SYN, 5);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    assert_int_equal(f.kind, NET_FRAME_TCP);
    assert_int_equal(f.protocol, NET_TCP);
    assert_int_equal(f.flags, NET_TCP_SYN);
    assert_int_equal(f.bytes, 45);
    assert_int_equal(f.from, NET_GUEST);
    assert_int_equal(f.to, SERVER);
    assert_int_equal(f.from_port, 40000);
    assert_int_equal(f.to_port, 443);
    assert_int_equal(f.seq, 1000);
    assert_int_equal(f.ack, 2000);
    assert_int_equal(f.payload_at, 54);
    assert_int_equal(f.payload_bytes, 5);
}

static void test_udp_arp_and_others_are_read(void **state)
{
    (void)state;
    struct net_frame f;
    struct raw r = raw_udp(SERVER, 53, "abc", 3);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    assert_true(f.kind == NET_FRAME_UDP && f.to_port == 53 && f.payload_bytes == 3);
    assert_memory_equal(r.bytes + f.payload_at, "abc", 3);
    raw16(r.bytes + 40, 0); /* without a sum */
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    r = raw_arp(NET_GUEST, NET_GATEWAY);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    assert_true(f.kind == NET_FRAME_ARP && f.to == NET_GATEWAY && f.bytes == 0);
    r = raw_arp(0, NET_GUEST);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    raw_ip(&r, 1, SERVER, 8);
    raw_seal(&r);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    assert_true(f.kind == NET_FRAME_OTHER && f.protocol == 1 && f.bytes == 28);
}

static void test_padding_is_not_of_the_packet(void **state)
{
    (void)state;
    struct net_frame f;
    struct raw r = raw_udp(SERVER, 53, "abc", 3);
    r.n = 60;
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    assert_int_equal(f.bytes, 31);
}

static void test_every_cut_frame_is_refused(void **state)
{
    (void)state;
    const struct raw all[] = {raw_tcp(SERVER, 443, NET_TCP_SYN, 9), raw_udp(SERVER, 53, "abc", 3),
                              raw_arp(NET_GUEST, NET_GATEWAY)};
    for (size_t i = 0; i < CL_COUNT(all); i++) {
        for (size_t n = 0; n < all[i].n; n++) {
            uint8_t exact[128];
            struct net_frame f = {.seq = 77};
            memcpy(exact + sizeof exact - n, all[i].bytes, n);
            assert_int_not_equal(net_frame_from_guest(exact + sizeof exact - n, n, &f),
                                 NET_FRAME_FINE);
            assert_int_equal(f.seq, 77);
        }
    }
    struct raw r = raw_udp(SERVER, 53, "", 0);
    struct net_frame f;
    r.n = NET_FRAME_BYTES_MAX + 1;
    assert_int_equal(parse(&r, &f), NET_FRAME_SHORT);
}

static void test_what_does_not_agree_with_itself_is_refused(void **state)
{
    (void)state;
    struct net_frame f;
    struct raw r;
#define REFUSED(made, fault, change) \
    do { \
        r = made; \
        change; \
        raw_seal(&r); \
        assert_int_equal(parse(&r, &f), fault); \
    } while (0)
#define TCP raw_tcp(SERVER, 443, NET_TCP_SYN, 4)
#define UDP raw_udp(SERVER, 53, "abc", 3)
    REFUSED(TCP, NET_FRAME_FINE, (void)0);
    REFUSED(TCP, NET_FRAME_MAC, r.bytes[11]++);
    REFUSED(TCP, NET_FRAME_TYPE, raw16(r.bytes + 12, 0x86dd));
    REFUSED(TCP, NET_FRAME_TYPE, r.bytes[14] = 0x65);
    REFUSED(TCP, NET_FRAME_OPTIONS, r.bytes[14] = 0x46);
    REFUSED(TCP, NET_FRAME_OPTIONS, r.bytes[14] = 0x44);
    REFUSED(TCP, NET_FRAME_LENGTH, raw16(r.bytes + 16, 45));
    REFUSED(TCP, NET_FRAME_LENGTH, raw16(r.bytes + 16, 19));
    REFUSED(TCP, NET_FRAME_LENGTH, raw16(r.bytes + 16, 0));
    REFUSED(TCP, NET_FRAME_FINE, raw16(r.bytes + 20, 0x4000));
    REFUSED(TCP, NET_FRAME_FRAGMENT, raw16(r.bytes + 20, 0x2000));
    REFUSED(TCP, NET_FRAME_FRAGMENT, raw16(r.bytes + 20, 1));
    REFUSED(TCP, NET_FRAME_FRAGMENT, raw16(r.bytes + 20, 0x8000));
    REFUSED(TCP, NET_FRAME_ADDRESS, raw32(r.bytes + 26, NET_GATEWAY));
    REFUSED(TCP, NET_FRAME_ADDRESS, raw32(r.bytes + 26, 0));
    REFUSED(TCP, NET_FRAME_BAD_TCP, r.bytes[46] = 0x40);
    REFUSED(TCP, NET_FRAME_FINE, r.bytes[46] = 0x60);
    REFUSED(TCP, NET_FRAME_BAD_TCP, r.bytes[46] = 0x70);
    REFUSED(TCP, NET_FRAME_BAD_TCP, raw16(r.bytes + 36, 0));
    REFUSED(TCP, NET_FRAME_BAD_TCP, raw16(r.bytes + 16, 39));
    REFUSED(UDP, NET_FRAME_BAD_UDP, raw16(r.bytes + 38, 10));
    REFUSED(UDP, NET_FRAME_BAD_UDP, raw16(r.bytes + 38, 12));
    REFUSED(UDP, NET_FRAME_BAD_UDP, raw16(r.bytes + 34, 0));
    REFUSED(UDP, NET_FRAME_BAD_UDP, raw16(r.bytes + 16, 27));
#undef REFUSED
    r = TCP;
    r.bytes[54]++;
    assert_int_equal(parse(&r, &f), NET_FRAME_CHECKSUM);
    r = UDP;
    r.bytes[42]++;
    assert_int_equal(parse(&r, &f), NET_FRAME_CHECKSUM);
    r = UDP;
    r.bytes[22]--;
    assert_int_equal(parse(&r, &f), NET_FRAME_CHECKSUM);
#undef TCP
#undef UDP
}

static void test_arp_speaks_for_the_guest_only(void **state)
{
    (void)state;
    struct net_frame f;
    struct raw r = raw_arp(NET_GATEWAY, NET_GUEST);
    assert_int_equal(parse(&r, &f), NET_FRAME_ADDRESS);
    r = raw_arp(NET_GUEST, NET_GATEWAY);
    r.bytes[27]++;
    assert_int_equal(parse(&r, &f), NET_FRAME_MAC);
    for (size_t at = 14; at < 22; at++) {
        r = raw_arp(NET_GUEST, NET_GATEWAY);
        r.bytes[at] ^= 0x40;
        assert_int_equal(parse(&r, &f), NET_FRAME_BAD_ARP);
    }
}

/* A frame to the guest, looked at as if the guest had sent it: lengths and sums must be right. */
static void mirror(const uint8_t *bytes, size_t n, struct net_frame *f)
{
    static const uint8_t mac[] = NET_GUEST_MAC;
    struct raw r = {.n = n};
    memcpy(r.bytes, bytes, n);
    assert_memory_equal(bytes, mac, sizeof mac);
    memcpy(r.bytes + 6, mac, sizeof mac);
    memcpy(r.bytes + 26, bytes + 30, 4);
    memcpy(r.bytes + 30, bytes + 26, 4); /* the sums do not change with it */
    assert_int_equal(parse(&r, f), NET_FRAME_FINE);
}

static void test_a_reset_answers_as_the_standard_says(void **state)
{
    (void)state;
    struct net_frame f, a;
    uint8_t out[NET_FRAME_BUILT_MAX];
    struct raw r = raw_tcp(SERVER, 443, NET_TCP_SYN, 5);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    mirror(out, net_frame_build_reset(&f, out), &a);
    assert_int_equal(a.flags, NET_TCP_RST | NET_TCP_ACK);
    assert_true(a.seq == 0 && a.ack == 1006 && a.from_port == 443 && a.to_port == 40000);
    r = raw_tcp(SERVER, 443, NET_TCP_ACK | NET_TCP_FIN, 5);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    mirror(out, net_frame_build_reset(&f, out), &a);
    assert_int_equal(a.flags, NET_TCP_RST);
    assert_true(a.seq == 2000);
    r = raw_tcp(SERVER, 443, NET_TCP_RST, 0);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    assert_int_equal(net_frame_build_reset(&f, out), 0);
}

static void test_a_datagram_is_answered_and_refused(void **state)
{
    (void)state;
    struct net_frame f, a;
    uint8_t out[NET_FRAME_BUILT_MAX], payload[NET_FRAME_PAYLOAD_MAX] = {7};
    struct raw r = raw_udp(NET_DNS, 53, "abc", 3);
    assert_int_equal(parse(&r, &f), NET_FRAME_FINE);
    for (size_t n = 0; n <= sizeof payload; n++) {
        size_t built = net_frame_build_datagram(&f, payload, n, out);
        mirror(out, built, &a);
        assert_true(a.payload_bytes == n && a.from_port == 53 && a.to_port == 40000);
        assert_int_equal(net_frame_to_guest(out, built, &a), NET_FRAME_FINE);
        assert_true(a.from == NET_DNS && a.to == NET_GUEST);
    }
    size_t n = net_frame_build_prohibited(r.bytes, &f, out);
    mirror(out, n, &a);
    assert_int_equal(n, 14 + 20 + 8 + 28);
    assert_true(a.kind == NET_FRAME_OTHER && a.protocol == 1);
    assert_true(out[34] == 3 && out[35] == 13);
    assert_int_equal(raw_sum(0, out + 34, 36), 0);
    assert_memory_equal(out + 42, r.bytes + 14, 28);
}

static void test_what_the_stack_sends_is_read_for_counting(void **state)
{
    (void)state;
    struct net_frame f;
    struct raw r = raw_tcp(NET_GUEST, 40001, NET_TCP_SYN | NET_TCP_ACK, 0);
    raw32(r.bytes + 26, SERVER);
    assert_int_equal(net_frame_to_guest(r.bytes, r.n, &f), NET_FRAME_FINE);
    assert_true(f.kind == NET_FRAME_TCP && f.from == SERVER && f.to_port == 40001);
    raw16(r.bytes + 20, 0x2000);
    assert_int_equal(net_frame_to_guest(r.bytes, r.n, &f), NET_FRAME_FINE);
    assert_int_equal(f.kind, NET_FRAME_OTHER);
    raw32(r.bytes + 30, SERVER);
    assert_int_equal(net_frame_to_guest(r.bytes, r.n, &f), NET_FRAME_ADDRESS);
    r = raw_arp(NET_GATEWAY, NET_GUEST);
    r.bytes[27] = 9;
    assert_int_equal(net_frame_to_guest(r.bytes, r.n, &f), NET_FRAME_FINE);
    assert_int_equal(net_frame_to_guest(r.bytes, 13, &f), NET_FRAME_SHORT);
    raw16(r.bytes + 12, 0x86dd);
    assert_int_equal(net_frame_to_guest(r.bytes, r.n, &f), NET_FRAME_TYPE);
}

static void test_each_fault_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < NET_FRAME_FAULTS_END; i++)
        assert_non_null(net_frame_fault_text((enum net_frame_fault)i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp_is_read),
        cmocka_unit_test(test_udp_arp_and_others_are_read),
        cmocka_unit_test(test_padding_is_not_of_the_packet),
        cmocka_unit_test(test_every_cut_frame_is_refused),
        cmocka_unit_test(test_what_does_not_agree_with_itself_is_refused),
        cmocka_unit_test(test_arp_speaks_for_the_guest_only),
        cmocka_unit_test(test_a_reset_answers_as_the_standard_says),
        cmocka_unit_test(test_a_datagram_is_answered_and_refused),
        cmocka_unit_test(test_what_the_stack_sends_is_read_for_counting),
        cmocka_unit_test(test_each_fault_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
