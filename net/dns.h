/* net/dns.h - one question of the guest to its resolver, and the answer (RFC 1035).
 *
 * Exactly one question of class IN in a datagram, without compression; what follows it (EDNS) is
 * not looked at.  The name is folded to lower case; the answer repeats it as the guest wrote it.
 *
 * Owns:    nothing; the query holds a copy of its question.
 * Thread:  any.
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_NET_DNS_H
#define CL_NET_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "policy/net_rule.h"

enum {
    NET_DNS_BYTES_MAX = 512,    /* RFC 1035 §2.3.4: of an answer without EDNS */
    NET_DNS_QUESTION_MAX = 259, /* a name of 255, its type and its class */
    NET_DNS_RECORDS_MAX = 8, /* 12 + 259 + 8 * 16 fit; who has more addresses is reached by these */
    NET_DNS_TYPE_A = 1,
};

enum net_dns_rcode { /* RFC 1035 §4.1.1 */
                     NET_DNS_NOERROR = 0,
                     NET_DNS_SERVFAIL = 2,
                     NET_DNS_NXDOMAIN = 3,
};

struct net_dns_query {
    uint16_t id;
    uint16_t qtype;
    bool wants_recursion;
    char name[NET_NAME_MAX + 1]; /* "" = no host name: it can be answered, not looked up */
    uint16_t question_bytes;
    uint8_t question[NET_DNS_QUESTION_MAX]; /* as the guest wrote it */
};

struct net_dns_record {
    uint32_t address; /* host byte order */
    uint32_t ttl_s;
};

struct net_dns_answer {
    enum net_dns_rcode rcode;
    size_t n_records;
    struct net_dns_record records[NET_DNS_RECORDS_MAX];
};

/* False when it is no question that could be answered; *ret_query is written on true only. */
bool net_dns_parse(const uint8_t *bytes, size_t n, struct net_dns_query *ret_query) CL_MUST;
/* Returns the answer's bytes. */
size_t net_dns_build(const struct net_dns_query *query, const struct net_dns_answer *answer,
                     uint8_t out[static NET_DNS_BYTES_MAX]);

#endif
