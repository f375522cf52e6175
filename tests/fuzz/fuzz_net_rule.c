/* The text of a rule, from whoever asks for a sandbox. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "policy/net_rule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const struct net_rule *r)
{
    char below[NET_NAME_MAX + 3];
    CL_ASSERT(net_name_is_valid(r->name));
    (void)snprintf(below, sizeof below, "x.%s", r->name);
    CL_ASSERT(net_rule_covers_name(r, r->name) == (r->target == NET_TARGET_NAME));
    CL_ASSERT(net_rule_covers_name(r, below) == (r->target == NET_TARGET_BELOW));
    CL_ASSERT(!net_rule_covers_address(r, 0x08080808));
}

static void check_rule(const struct net_rule *r)
{
    CL_ASSERT(r->protocol == NET_TCP || r->protocol == NET_UDP);
    CL_ASSERT(r->port_first >= 1 && r->port_first <= r->port_last);
    CL_ASSERT(net_rule_covers_port(r, r->protocol, r->port_last));
    CL_ASSERT(!net_rule_covers_port(r, r->protocol, 0));
    switch ((enum net_target)r->target) {
    case NET_TARGET_PUBLIC:
        CL_ASSERT(!r->name[0] && !net_rule_covers_address(r, 0x7f000001));
        return;
    case NET_TARGET_NAME:
    case NET_TARGET_BELOW:
        check_name(r);
        return;
    case NET_TARGET_RANGE:
        CL_ASSERT(!r->name[0] && r->range.first <= r->range.last);
        CL_ASSERT(net_rule_covers_address(r, r->range.first));
        return;
    }
    CL_ASSERT(false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cl_err err = {0};
    struct net_rule rule;
    struct net_range range;
    char text[1024];
    if (size >= sizeof text)
        return 0;
    (void)snprintf(text, sizeof text, "%.*s", (int)size, (const char *)data);
    if (net_rule_parse(text, &rule, &err) == 0)
        check_rule(&rule);
    else
        CL_ASSERT(err.code == CL_E_INVALID && err.text[0]);
    if (net_range_parse(text, &range, NULL) == 0)
        CL_ASSERT(net_range_has(&range, range.first) && net_range_has(&range, range.last));
    return 0;
}
