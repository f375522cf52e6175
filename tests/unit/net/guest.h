/* tests/unit/net/guest.h - frames as a guest makes them, with the right sums. */
#ifndef CL_TESTS_UNIT_NET_GUEST_H
#define CL_TESTS_UNIT_NET_GUEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "net/control.h"
#include "net/frame.h"

struct raw {
    size_t n;
    uint8_t bytes[NET_FRAME_BYTES_MAX + 64];
};

static inline void raw16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void raw32(uint8_t *p, uint32_t v)
{
    raw16(p, v >> 16);
    raw16(p + 2, v & 0xffff);
}

static inline uint16_t raw_sum(uint64_t sum, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum += i % 2 ? p[i] : (uint64_t)p[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Put the sums right, of the lengths that the bytes say, as far as they lie within the frame. */
static inline void raw_seal(struct raw *r)
{
    uint8_t *ip = r->bytes + 14;
    size_t total = (size_t)ip[2] << 8 | ip[3];
    size_t at = ip[9] == NET_TCP ? 16 : 6;
    if (r->n < 34)
        return;
    raw16(ip + 10, 0);
    raw16(ip + 10, raw_sum(0, ip, 20));
    if ((ip[9] != NET_TCP && ip[9] != NET_UDP) || total < 20 + at + 2 || total > r->n - 14)
        return;
    raw16(ip + 20 + at, 0);
    uint64_t pseudo = (uint64_t)(uint16_t)~raw_sum(0, ip + 12, 8) + ip[9] + total - 20;
    uint16_t sum = raw_sum(pseudo, ip + 20, total - 20);
    raw16(ip + 20 + at, ip[9] == NET_UDP && sum == 0 ? 0xffff : sum);
}

static inline void raw_ip(struct raw *r, uint8_t protocol, uint32_t to, size_t n)
{
    static const uint8_t mac[] = NET_GUEST_MAC;
    memset(r, 0, sizeof *r);
    memcpy(r->bytes + 6, mac, sizeof mac);
    raw16(r->bytes + 12, 0x0800);
    r->bytes[14] = 0x45;
    raw16(r->bytes + 16, 20 + n);
    r->bytes[22] = 64;
    r->bytes[23] = protocol;
    raw32(r->bytes + 26, NET_GUEST);
    raw32(r->bytes + 30, to);
    r->n = 34 + n;
}

static inline struct raw raw_tcp(uint32_t to, uint16_t port, uint8_t flags, size_t payload)
{
    struct raw r;
    raw_ip(&r, NET_TCP, to, 20 + payload);
    raw16(r.bytes + 34, 40000);
    raw16(r.bytes + 36, port);
    raw32(r.bytes + 38, 1000);
    raw32(r.bytes + 42, 2000);
    r.bytes[46] = 0x50;
    r.bytes[47] = flags;
    memset(r.bytes + 54, 'x', payload);
    raw_seal(&r);
    return r;
}

static inline struct raw raw_udp(uint32_t to, uint16_t port, const void *payload, size_t n)
{
    struct raw r;
    raw_ip(&r, NET_UDP, to, 8 + n);
    raw16(r.bytes + 34, 40000);
    raw16(r.bytes + 36, port);
    raw16(r.bytes + 38, 8 + n);
    memcpy(r.bytes + 42, payload, n);
    raw_seal(&r);
    return r;
}

static inline struct raw raw_arp(uint32_t from, uint32_t to)
{
    static const uint8_t mac[] = NET_GUEST_MAC, head[] = {8, 6, 0, 1, 8, 0, 6, 4, 0, 1};
    struct raw r = {.n = 42};
    memcpy(r.bytes + 6, mac, sizeof mac);
    memcpy(r.bytes + 12, head, sizeof head);
    memcpy(r.bytes + 22, mac, sizeof mac);
    raw32(r.bytes + 28, from);
    raw32(r.bytes + 38, to);
    return r;
}

#endif
