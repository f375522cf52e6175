/* net/control.h - what the worker and a VM's cloche-net say to each other.
 *
 * One message is one datagram of a SOCK_SEQPACKET socket, of exactly the size of its struct.  The
 * worker sends one struct net_grant, and later shuts its side down: "say what is left, and end".
 * cloche-net sends struct net_event; it waits when the socket is full, so that no event is lost
 * while it lives, and meanwhile takes nothing from its guest.
 *
 * The worker takes cloche-net's words for those of the guest (net_event_check): user code's bytes
 * go through it.
 *
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_NET_CONTROL_H
#define CL_NET_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/net_rule.h"

/* The link of every guest: 192.0.0.0/29, which the IANA keeps for such (RFC 7335), so that no
 * address that anybody could want to reach is hidden by it. */
enum {
    NET_CONTROL_VERSION = 2,
    NET_LINK = 0xc0000000U, /* 192.0.0.0 */
    NET_LINK_BITS = 29,
    NET_LINK_MTU = 9000,        /* as the card has it (vmm/net.h), and QEMU's is told */
    NET_GATEWAY = NET_LINK + 1, /* 192.0.0.1 */
    NET_GUEST = NET_LINK + 2,   /* 192.0.0.2 */
    NET_DNS = NET_LINK + 3,     /* 192.0.0.3 */
    NET_RANGES_MAX = 16,
    NET_SERVERS_MAX = 3,   /* as many as resolv.conf(5) has */
    NET_ADDRESSES_MAX = 4, /* of an answer, that an event tells */
    NET_REASON_MAX = 63,
};

#define NET_GUEST_MAC \
    { \
        0x02, 0xc1, 0x0c, 0x4e, 0x00, 0x02 \
    }

/* What an earlier process of the same VM has told, before the VM was put to rest: its successor
 * counts on from there. */
struct net_past {
    uint64_t number, sent, received; /* as in the newest events */
    uint64_t flow;
};

/* What one VM may reach. */
struct net_grant {
    uint32_t version; /* NET_CONTROL_VERSION: both are of one build */
    uint32_t n_rules, n_private, n_servers;
    uint64_t egress_bytes; /* IPv4 packets of the guest, headers and all; then nothing leaves */
    struct net_past past;
    struct net_range
        private_ranges[NET_RANGES_MAX]; /* not public, yet rules and names may lead there */
    uint32_t servers[NET_SERVERS_MAX]; /* resolvers, host byte order; none: no name has addresses */
    struct net_rule rules[NET_RULES_MAX];
};

enum net_event_kind {
    NET_EVENT_DNS = 1, /* a name was asked for */
    NET_EVENT_OPEN,    /* the first packet of a flow that is allowed */
    NET_EVENT_CLOSE,   /* of each flow that was opened: what went over it */
    NET_EVENT_DENIED,  /* a packet or a name that no rule allows */
    NET_EVENT_TOTALS,  /* once a second when they changed, and last of all */
    NET_EVENT_KINDS_END,
};

enum net_end { /* how a flow ended */
               NET_END_NONE = 0,
               NET_END_CLOSED = 1, /* FIN from both */
               NET_END_RESET,      /* RST from either */
               NET_END_IDLE,       /* nothing for so long that it is forgotten */
               NET_END_STOPPED,    /* the VM ended before it */
};

struct net_event {
    uint32_t kind;     /* enum net_event_kind */
    uint32_t flow;     /* of OPEN and CLOSE: which, from 1 */
    uint64_t number;   /* 1, 2, ... over all kinds but TOTALS; there: the newest one */
    uint64_t sent;     /* bytes of IPv4 packets from the guest: of the flow; of TOTALS: that left */
    uint64_t received; /* to the guest */
    uint64_t duration_us; /* of CLOSE; of DNS: until the answer */
    uint32_t address;     /* host byte order; 0 = none: DNS, or DENIED by name */
    uint16_t port, guest_port;
    uint8_t protocol;  /* the IANA's number; 0 = none */
    uint8_t end;       /* of CLOSE: enum net_end */
    uint8_t is_denied; /* of DNS */
    uint8_t rcode;     /* of DNS: what the guest was told (RFC 1035 §4.1.1) */
    uint16_t qtype;    /* of DNS */
    uint16_t rule;     /* index of the rule that allowed it; NET_NO_RULE = none */
    uint32_t n_addresses;
    uint32_t addresses[NET_ADDRESSES_MAX]; /* of DNS: those that the guest was told */
    char name[NET_NAME_MAX + 1];     /* that was asked for; of OPEN and DENIED: by which the guest
                                        knows the address; "" = none */
    char reason[NET_REASON_MAX + 1]; /* of what is denied */
};

enum { NET_NO_RULE = 0xffff };

/* Both check every field: PEER, and which is wrong. */
int net_grant_check(const struct net_grant *grant, size_t n, struct cl_err *err) CL_MUST;
int net_event_check(const struct net_event *event, size_t n, struct cl_err *err) CL_MUST;

#endif
