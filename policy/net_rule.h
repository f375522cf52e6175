/* policy/net_rule.h - what of the network a VM may reach: one rule, its text, and what it covers.
 *
 *     rule   = target [":" ports] ["/" protocol]
 *     target = "public" | name | "*." name | IPv4 | IPv4 "/" prefix
 *     ports  = port | port "-" port | "*"        without: 443, of `public` every port
 *     protocol = "tcp" | "udp"                   without: tcp
 *
 * "example.org", "*.example.net:443", "203.0.113.0/24:5432", "198.51.100.7:53/udp",
 * "public:80-443".
 *
 * A rule by name covers the addresses that the name has when the guest asks for it; "*.example.org"
 * covers every name below example.org, not itself.  `public` covers what the IANA's registry of
 * special-purpose addresses (RFC 6890) leaves to the internet, under any name.
 *
 * Owns:    nothing; plain values that may be sent to another process of the same build.
 * Thread:  any.
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_POLICY_NET_RULE_H
#define CL_POLICY_NET_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    NET_NAME_MAX = 253,      /* RFC 1035 §2.3.4, as text without the last dot */
    NET_RULE_TEXT_MAX = 287, /* the longest name with a range of ports and a protocol */
    NET_RULES_MAX = 32,      /* of one VM: each packet that opens a flow is held against all */
    NET_PORT_DEFAULT = 443,
};

enum net_target {
    NET_TARGET_PUBLIC = 1,
    NET_TARGET_NAME,  /* this name */
    NET_TARGET_BELOW, /* every name below it */
    NET_TARGET_RANGE, /* addresses */
};

enum net_protocol { NET_TCP = 6, NET_UDP = 17 }; /* the IANA's numbers */

/* Addresses, host byte order. */
struct net_range {
    uint32_t first, last;
};

struct net_rule {
    uint8_t target;   /* enum net_target */
    uint8_t protocol; /* enum net_protocol */
    uint16_t port_first, port_last;
    struct net_range range;      /* of NET_TARGET_RANGE */
    char name[NET_NAME_MAX + 1]; /* lower case, no last dot; without the "*." */
};

/* INVALID, and what is wrong with it. */
int net_rule_parse(const char *text, struct net_rule *ret_rule, struct cl_err *err) CL_MUST;
/* "10.0.0.0/8" or one address; INVALID else, also when bits behind the prefix are set. */
int net_range_parse(const char *text, struct net_range *ret_range, struct cl_err *err) CL_MUST;
/* Does it allow to ask for this name (lower case, no last dot)? */
bool net_rule_covers_name(const struct net_rule *rule, const char *name);
/* Does it allow to send to this address, whatever its name is? */
bool net_rule_covers_address(const struct net_rule *rule, uint32_t address);
bool net_rule_covers_port(const struct net_rule *rule, uint8_t protocol, uint16_t port);
/* Is this lower case text a host name: letters, digits, hyphens and underscores in labels of 1 to
 * 63 (RFC 1123 §2.1; underscores for what DNS has besides hosts)? */
bool net_name_is_valid(const char *name);
bool net_range_has(const struct net_range *range, uint32_t address);
/* Left to the internet by the IANA's IPv4 Special-Purpose Address Registry, and not multicast. */
bool net_address_is_public(uint32_t address);

#endif
