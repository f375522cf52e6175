/* e2b/network.h - what `network` of a new sandbox says: what it may reach, and who may reach it.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml: SandboxNetworkConfig.
 */
#ifndef CL_E2B_NETWORK_H
#define CL_E2B_NETWORK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum {
    E2B_NETWORK_RULES = 32,      /* of NetworkGrant */
    E2B_NETWORK_RULE_TEXT = 288, /* policy/net_rule.h */
};

struct e2b_network {
    char text[E2B_NETWORK_RULES][E2B_NETWORK_RULE_TEXT]; /* rules of a NetworkGrant */
    size_t n;
    bool is_private; /* allowPublicTraffic is false: the URLs of its ports hold no link */
};

/* The object may be NULL.  UNIMPL: what has no meaning here, for a sandbox must neither reach more
 * than was meant nor be reached by more. */
int e2b_network_read(const json_t *network, struct e2b_network *ret, struct cl_err *err) CL_MUST;

#endif
