/* net/control.c - see net/control.h. */
#include "net/control.h"

#include <string.h>

/* Both run the same build, so padding and order of the structs are theirs. */
_Static_assert(sizeof(struct net_event) < 1024, "an event stays far below a socket's buffer");

enum { RCODE_MAX = 15 };

/* Printable ASCII to its NUL, within n bytes. */
static bool is_text(const char *text, size_t n)
{
    size_t len = strnlen(text, n);
    for (size_t i = 0; i < len; i++) {
        if (text[i] < ' ' || text[i] > '~')
            return false;
    }
    return len < n;
}

static bool is_name(const char name[static NET_NAME_MAX + 1])
{
    return memchr(name, '\0', NET_NAME_MAX + 1) && net_name_is_valid(name);
}

static bool range_is_valid(const struct net_range *range)
{
    return range->first <= range->last;
}

static bool target_is_valid(const struct net_rule *rule)
{
    switch ((enum net_target)rule->target) {
    case NET_TARGET_PUBLIC:
        return true;
    case NET_TARGET_NAME:
    case NET_TARGET_BELOW:
        return is_name(rule->name);
    case NET_TARGET_RANGE:
        return range_is_valid(&rule->range);
    }
    return false;
}

static bool rule_is_valid(const struct net_rule *rule)
{
    return (rule->protocol == NET_TCP || rule->protocol == NET_UDP) && rule->port_first > 0 &&
           rule->port_first <= rule->port_last && target_is_valid(rule);
}

/* Of a few 2^53, as all that is counted here: sums do not overflow. */
static bool past_is_valid(const struct net_grant *grant)
{
    const uint64_t max = UINT64_C(1) << 53;
    const struct net_past *p = &grant->past;
    return p->sent <= grant->egress_bytes && p->received <= max && p->number <= max &&
           p->flow < UINT32_MAX / 2;
}

static int check_lists(const struct net_grant *grant, struct cl_err *err)
{
    for (uint32_t i = 0; i < grant->n_rules; i++) {
        if (!rule_is_valid(&grant->rules[i]))
            return cl_fail(err, CL_E_PEER, 0, "grant: rule %u", i);
    }
    for (uint32_t i = 0; i < grant->n_private; i++) {
        if (!range_is_valid(&grant->private_ranges[i]))
            return cl_fail(err, CL_E_PEER, 0, "grant: private range %u", i);
    }
    for (uint32_t i = 0; i < grant->n_servers; i++) {
        if (grant->servers[i] == 0)
            return cl_fail(err, CL_E_PEER, 0, "grant: server %u", i);
    }
    return 0;
}

int net_grant_check(const struct net_grant *grant, size_t n, struct cl_err *err)
{
    if (n != sizeof *grant)
        return cl_fail(err, CL_E_PEER, 0, "grant: %zu bytes, not %zu", n, sizeof *grant);
    if (grant->version != NET_CONTROL_VERSION)
        return cl_fail(err, CL_E_PEER, 0, "grant: version %u, not %d", grant->version,
                       NET_CONTROL_VERSION);
    if (grant->n_rules > NET_RULES_MAX || grant->n_private > NET_RANGES_MAX ||
        grant->n_servers > NET_SERVERS_MAX)
        return cl_fail(err, CL_E_PEER, 0, "grant: %u rules, %u private ranges, %u servers",
                       grant->n_rules, grant->n_private, grant->n_servers);
    if (!past_is_valid(grant))
        return cl_fail(err, CL_E_PEER, 0, "grant: a past that cannot be");
    return check_lists(grant, err);
}

static bool dns_is_valid(const struct net_event *e)
{
    bool has_name = is_name(e->name);
    return e->is_denied <= 1 && e->rcode <= RCODE_MAX && e->n_addresses <= NET_ADDRESSES_MAX &&
           (has_name || (e->is_denied && !e->name[0])) && e->address == 0 && e->flow == 0 &&
           e->end == NET_END_NONE;
}

static bool flow_is_valid(const struct net_event *e)
{
    bool ended = e->kind == NET_EVENT_CLOSE;
    return e->flow > 0 && e->address != 0 && e->port > 0 &&
           (e->protocol == NET_TCP || e->protocol == NET_UDP) &&
           (ended ? e->end >= NET_END_CLOSED && e->end <= NET_END_STOPPED
                  : e->end == NET_END_NONE && e->rule != NET_NO_RULE);
}

static bool kind_is_valid(const struct net_event *e)
{
    switch ((enum net_event_kind)e->kind) {
    case NET_EVENT_DNS:
        return dns_is_valid(e);
    case NET_EVENT_OPEN:
    case NET_EVENT_CLOSE:
        return flow_is_valid(e);
    case NET_EVENT_DENIED:
        return e->flow == 0 && e->end == NET_END_NONE && e->reason[0];
    case NET_EVENT_TOTALS:
        return e->flow == 0 && e->end == NET_END_NONE && e->address == 0 && !e->name[0];
    case NET_EVENT_KINDS_END:
        return false;
    }
    return false;
}

static bool is_only_of_dns(const struct net_event *e)
{
    return e->is_denied || e->rcode || e->qtype || e->n_addresses;
}

int net_event_check(const struct net_event *event, size_t n, struct cl_err *err)
{
    const struct net_event *e = event;
    if (n != sizeof *event)
        return cl_fail(err, CL_E_PEER, 0, "net event: %zu bytes, not %zu", n, sizeof *event);
    if (!is_text(e->reason, sizeof e->reason))
        return cl_fail(err, CL_E_PEER, 0, "net event: reason");
    if (e->name[0] && !is_name(e->name))
        return cl_fail(err, CL_E_PEER, 0, "net event: name");
    if (e->rule >= NET_RULES_MAX && e->rule != NET_NO_RULE)
        return cl_fail(err, CL_E_PEER, 0, "net event: rule %u", e->rule);
    if (e->kind != NET_EVENT_TOTALS && e->number == 0)
        return cl_fail(err, CL_E_PEER, 0, "net event: no number");
    if (e->kind != NET_EVENT_DNS && is_only_of_dns(e))
        return cl_fail(err, CL_E_PEER, 0, "net event: kind %u with an answer", e->kind);
    if (!kind_is_valid(e))
        return cl_fail(err, CL_E_PEER, 0, "net event: kind %u", e->kind);
    return 0;
}
