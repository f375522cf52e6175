/* net/frame.c - see net/frame.h. */
#include "net/frame.h"

#include <string.h>

#include "base/err.h"
#include "net/control.h"

enum {
    ETHER_BYTES = 14,
    ETHER_IPV4 = 0x0800,
    ETHER_ARP = 0x0806,
    ARP_BYTES = 28,
    IP_BYTES = 20, /* without options: with them is a fault */
    IP_DONT_FRAGMENT = 0x4000,
    IP_MORE_FRAGMENTS = 0x2000,
    IP_OFFSET = 0x1fff,
    IP_TTL = 64,
    IP_ICMP = 1,
    TCP_BYTES = 20,
    UDP_BYTES = 8,
    ICMP_BYTES = 8,
    ICMP_UNREACHABLE = 3,
    ICMP_PROHIBITED = 13,
    ICMP_QUOTED = IP_BYTES + 8, /* RFC 792: the header and 64 bits */
    MAC_BYTES = 6,
};

static const uint8_t guest_mac[MAC_BYTES] = NET_GUEST_MAC;
/* As the stack gives it to its own address. */
static const uint8_t gateway_mac[MAC_BYTES] = {0x52, 0x55, 192, 0, 0, 1};

const char *net_frame_fault_text(enum net_frame_fault fault)
{
    static const char *const texts[NET_FRAME_FAULTS_END] = {
        [NET_FRAME_FINE] = "fine",
        [NET_FRAME_SHORT] = "it is cut short, or too long",
        [NET_FRAME_MAC] = "its hardware address is not the guest's",
        [NET_FRAME_TYPE] = "it is neither IPv4 nor ARP",
        [NET_FRAME_BAD_ARP] = "its ARP is malformed",
        [NET_FRAME_OPTIONS] = "it has IPv4 options",
        [NET_FRAME_LENGTH] = "its length is not that of its packet",
        [NET_FRAME_FRAGMENT] = "it is a fragment",
        [NET_FRAME_ADDRESS] = "its address is not the guest's",
        [NET_FRAME_CHECKSUM] = "a checksum is wrong",
        [NET_FRAME_BAD_TCP] = "its TCP header is malformed",
        [NET_FRAME_BAD_UDP] = "its UDP header is malformed",
    };
    CL_ASSERT(fault < NET_FRAME_FAULTS_END);
    return texts[fault];
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void put16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v & 0xffff);
}

/* RFC 1071, not yet folded: of less than 64 KiB. */
static uint32_t add_words(uint32_t sum, const uint8_t *p, size_t n)
{
    for (; n > 1; p += 2, n -= 2)
        sum += get16(p);
    return n ? sum + (uint32_t)(p[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Of a TCP or UDP segment of n bytes behind the IPv4 header (RFC 9293 §3.1); 0 = right, where the
 * sum is in it. */
static uint16_t segment_sum(const uint8_t *ip, size_t n)
{
    uint32_t sum = add_words(0, ip + 12, 8) + ip[9] + (uint32_t)n;
    return fold(add_words(sum, ip + IP_BYTES, n));
}

/* RFC 826: of Ethernet and IPv4, a question or an answer.  A probe has no address yet (RFC 5227).
 */
static enum net_frame_fault parse_arp(const uint8_t *arp, size_t n, bool by_guest,
                                      struct net_frame *f)
{
    static const uint8_t head[] = {0, 1, 8, 0, MAC_BYTES, 4, 0};
    if (n < ARP_BYTES)
        return NET_FRAME_SHORT;
    if (memcmp(arp, head, sizeof head) != 0 || (arp[7] != 1 && arp[7] != 2))
        return NET_FRAME_BAD_ARP;
    if (by_guest && memcmp(arp + 8, guest_mac, MAC_BYTES) != 0)
        return NET_FRAME_MAC;
    f->kind = NET_FRAME_ARP;
    f->from = get32(arp + 14);
    f->to = get32(arp + 24);
    return by_guest && f->from != NET_GUEST && f->from != 0 ? NET_FRAME_ADDRESS : NET_FRAME_FINE;
}

static enum net_frame_fault parse_tcp(const uint8_t *ip, struct net_frame *f)
{
    const uint8_t *tcp = ip + IP_BYTES;
    size_t n = f->bytes - (size_t)IP_BYTES;
    size_t head = n < TCP_BYTES ? 0 : (size_t)(tcp[12] >> 4) * 4;
    if (head < TCP_BYTES || head > n)
        return NET_FRAME_BAD_TCP;
    f->kind = NET_FRAME_TCP;
    f->from_port = get16(tcp);
    f->to_port = get16(tcp + 2);
    f->seq = get32(tcp + 4);
    f->ack = get32(tcp + 8);
    f->flags = tcp[13];
    f->payload_at = (uint16_t)(ETHER_BYTES + IP_BYTES + head);
    f->payload_bytes = (uint16_t)(n - head);
    return f->from_port && f->to_port ? NET_FRAME_FINE : NET_FRAME_BAD_TCP;
}

static enum net_frame_fault parse_udp(const uint8_t *ip, struct net_frame *f)
{
    const uint8_t *udp = ip + IP_BYTES;
    size_t n = f->bytes - (size_t)IP_BYTES;
    if (n < UDP_BYTES || get16(udp + 4) != n)
        return NET_FRAME_BAD_UDP;
    f->kind = NET_FRAME_UDP;
    f->from_port = get16(udp);
    f->to_port = get16(udp + 2);
    f->payload_at = ETHER_BYTES + IP_BYTES + UDP_BYTES;
    f->payload_bytes = (uint16_t)(n - UDP_BYTES);
    return f->from_port && f->to_port ? NET_FRAME_FINE : NET_FRAME_BAD_UDP;
}

static enum net_frame_fault parse_segment(const uint8_t *ip, struct net_frame *f)
{
    if (f->protocol == NET_TCP)
        return parse_tcp(ip, f);
    if (f->protocol == NET_UDP)
        return parse_udp(ip, f);
    f->kind = NET_FRAME_OTHER;
    return NET_FRAME_FINE;
}

/* RFC 791 §3.1; n bytes from the header on, padding behind the packet allowed. */
static enum net_frame_fault parse_ip(const uint8_t *ip, size_t n, struct net_frame *f)
{
    if (n < IP_BYTES)
        return NET_FRAME_SHORT;
    if (ip[0] >> 4 != 4)
        return NET_FRAME_TYPE;
    if (ip[0] != 0x45)
        return NET_FRAME_OPTIONS;
    f->bytes = get16(ip + 2);
    if (f->bytes < IP_BYTES || f->bytes > n)
        return NET_FRAME_LENGTH;
    f->protocol = ip[9];
    f->from = get32(ip + 12);
    f->to = get32(ip + 16);
    return NET_FRAME_FINE;
}

static enum net_frame_fault check_sums(const uint8_t *ip, const struct net_frame *f)
{
    bool without = f->kind == NET_FRAME_OTHER ||
                   (f->kind == NET_FRAME_UDP && get16(ip + IP_BYTES + 6) == 0); /* RFC 768 */
    return without || segment_sum(ip, f->bytes - (size_t)IP_BYTES) == 0 ? NET_FRAME_FINE
                                                                        : NET_FRAME_CHECKSUM;
}

static enum net_frame_fault parse_guest_ip(const uint8_t *ip, size_t n, struct net_frame *f)
{
    enum net_frame_fault fault = parse_ip(ip, n, f);
    if (fault != NET_FRAME_FINE)
        return fault;
    if (f->from != NET_GUEST)
        return NET_FRAME_ADDRESS;
    if (get16(ip + 6) & ~IP_DONT_FRAGMENT)
        return NET_FRAME_FRAGMENT;
    if (fold(add_words(0, ip, IP_BYTES)) != 0)
        return NET_FRAME_CHECKSUM;
    fault = parse_segment(ip, f);
    return fault == NET_FRAME_FINE ? check_sums(ip, f) : fault;
}

enum net_frame_fault net_frame_from_guest(const uint8_t *bytes, size_t n,
                                          struct net_frame *ret_frame)
{
    struct net_frame f = {0};
    enum net_frame_fault fault = NET_FRAME_TYPE;
    if (n < ETHER_BYTES || n > NET_FRAME_BYTES_MAX)
        return NET_FRAME_SHORT;
    if (memcmp(bytes + MAC_BYTES, guest_mac, MAC_BYTES) != 0)
        return NET_FRAME_MAC;
    uint16_t type = get16(bytes + 12);
    if (type == ETHER_ARP)
        fault = parse_arp(bytes + ETHER_BYTES, n - ETHER_BYTES, true, &f);
    else if (type == ETHER_IPV4)
        fault = parse_guest_ip(bytes + ETHER_BYTES, n - ETHER_BYTES, &f);
    if (fault == NET_FRAME_FINE)
        *ret_frame = f;
    return fault;
}

static enum net_frame_fault parse_stack_ip(const uint8_t *ip, size_t n, struct net_frame *f)
{
    enum net_frame_fault fault = parse_ip(ip, n, f);
    if (fault != NET_FRAME_FINE)
        return fault;
    if (f->to != NET_GUEST)
        return NET_FRAME_ADDRESS;
    if ((get16(ip + 6) & (IP_MORE_FRAGMENTS | IP_OFFSET)) == 0)
        return parse_segment(ip, f);
    f->kind = NET_FRAME_OTHER;
    return NET_FRAME_FINE;
}

enum net_frame_fault net_frame_to_guest(const uint8_t *bytes, size_t n, struct net_frame *ret_frame)
{
    struct net_frame f = {0};
    enum net_frame_fault fault = NET_FRAME_TYPE;
    if (n < ETHER_BYTES || n > NET_FRAME_BYTES_MAX)
        return NET_FRAME_SHORT;
    uint16_t type = get16(bytes + 12);
    if (type == ETHER_ARP)
        fault = parse_arp(bytes + ETHER_BYTES, n - ETHER_BYTES, false, &f);
    else if (type == ETHER_IPV4)
        fault = parse_stack_ip(bytes + ETHER_BYTES, n - ETHER_BYTES, &f);
    if (fault == NET_FRAME_FINE)
        *ret_frame = f;
    return fault;
}

/* Ethernet and IPv4 headers to the guest, before n bytes; returns where those begin. */
static uint8_t *put_head(uint8_t *out, uint8_t protocol, uint32_t from, size_t n)
{
    uint8_t *ip = out + ETHER_BYTES;
    memcpy(out, guest_mac, MAC_BYTES);
    memcpy(out + MAC_BYTES, gateway_mac, MAC_BYTES);
    put16(out + 12, ETHER_IPV4);
    memset(ip, 0, IP_BYTES + n);
    ip[0] = 0x45;
    put16(ip + 2, IP_BYTES + n);
    put16(ip + 6, IP_DONT_FRAGMENT);
    ip[8] = IP_TTL;
    ip[9] = protocol;
    put32(ip + 12, from);
    put32(ip + 16, NET_GUEST);
    put16(ip + 10, fold(add_words(0, ip, IP_BYTES)));
    return ip + IP_BYTES;
}

/* How much of the sequence the segment takes (RFC 9293 §3.4). */
static uint32_t segment_length(const struct net_frame *f)
{
    return (uint32_t)f->payload_bytes + !!(f->flags & NET_TCP_SYN) + !!(f->flags & NET_TCP_FIN);
}

size_t net_frame_build_reset(const struct net_frame *to, uint8_t out[static NET_FRAME_BUILT_MAX])
{
    CL_ASSERT(to->kind == NET_FRAME_TCP);
    if (to->flags & NET_TCP_RST)
        return 0;
    bool has_ack = to->flags & NET_TCP_ACK;
    uint8_t *tcp = put_head(out, NET_TCP, to->to, TCP_BYTES);
    put16(tcp, to->to_port);
    put16(tcp + 2, to->from_port);
    put32(tcp + 4, has_ack ? to->ack : 0);
    put32(tcp + 8, has_ack ? 0 : to->seq + segment_length(to));
    tcp[12] = TCP_BYTES / 4 << 4;
    tcp[13] = has_ack ? NET_TCP_RST : NET_TCP_RST | NET_TCP_ACK;
    put16(tcp + 16, segment_sum(out + ETHER_BYTES, TCP_BYTES));
    return ETHER_BYTES + IP_BYTES + TCP_BYTES;
}

size_t net_frame_build_hang_up(const uint8_t *bytes, const struct net_frame *from,
                               uint8_t out[static NET_FRAME_BUILT_MAX])
{
    CL_ASSERT(from->kind == NET_FRAME_TCP);
    uint8_t *ip = out + ETHER_BYTES, *tcp = ip + IP_BYTES;
    memcpy(out, bytes, ETHER_BYTES + IP_BYTES);
    put16(ip + 2, IP_BYTES + TCP_BYTES);
    put16(ip + 10, 0);
    put16(ip + 10, fold(add_words(0, ip, IP_BYTES)));
    memset(tcp, 0, TCP_BYTES);
    put16(tcp, from->from_port);
    put16(tcp + 2, from->to_port);
    put32(tcp + 4, from->seq);
    put32(tcp + 8, from->ack);
    tcp[12] = TCP_BYTES / 4 << 4;
    tcp[13] = NET_TCP_RST | NET_TCP_ACK;
    put16(tcp + 16, segment_sum(ip, TCP_BYTES));
    return ETHER_BYTES + IP_BYTES + TCP_BYTES;
}

size_t net_frame_build_prohibited(const uint8_t *bytes, const struct net_frame *to,
                                  uint8_t out[static NET_FRAME_BUILT_MAX])
{
    CL_ASSERT(to->bytes >= ICMP_QUOTED);
    uint8_t *icmp = put_head(out, IP_ICMP, NET_GATEWAY, ICMP_BYTES + ICMP_QUOTED);
    icmp[0] = ICMP_UNREACHABLE;
    icmp[1] = ICMP_PROHIBITED;
    memcpy(icmp + ICMP_BYTES, bytes + ETHER_BYTES, ICMP_QUOTED);
    put16(icmp + 2, fold(add_words(0, icmp, ICMP_BYTES + ICMP_QUOTED)));
    return ETHER_BYTES + IP_BYTES + ICMP_BYTES + ICMP_QUOTED;
}

size_t net_frame_build_datagram(const struct net_frame *to, const uint8_t *payload, size_t n,
                                uint8_t out[static NET_FRAME_BUILT_MAX])
{
    CL_ASSERT(to->kind == NET_FRAME_UDP && n <= NET_FRAME_PAYLOAD_MAX);
    uint8_t *udp = put_head(out, NET_UDP, to->to, UDP_BYTES + n);
    put16(udp, to->to_port);
    put16(udp + 2, to->from_port);
    put16(udp + 4, UDP_BYTES + n);
    memcpy(udp + UDP_BYTES, payload, n);
    uint16_t sum = segment_sum(out + ETHER_BYTES, UDP_BYTES + n);
    put16(udp + 6, sum ? sum : 0xffff); /* RFC 768: 0 says that there is none */
    return ETHER_BYTES + IP_BYTES + UDP_BYTES + n;
}
