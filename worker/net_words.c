/* worker/net_words.c - see worker/net_words.h. */
#include "worker/net_words.h"

#include <stdio.h>
#include <string.h>

int net_words_grant(const Cloche__V1__NetworkGrant *grant, const struct vm_net_settings *settings,
                    struct net_grant *ret_grant, struct cl_err *err)
{
    struct net_grant g = {.version = NET_CONTROL_VERSION,
                          .egress_bytes = grant->egress_bytes,
                          .n_private = settings->n_private,
                          .n_servers = settings->n_servers};
    memcpy(g.private_ranges, settings->private_ranges, sizeof g.private_ranges);
    memcpy(g.servers, settings->servers, sizeof g.servers);
    for (; g.n_rules < grant->n_allow; g.n_rules++) {
        if (g.n_rules == NET_RULES_MAX)
            return cl_fail(err, CL_E_TOOBIG, 0, "more than %d rules", NET_RULES_MAX);
        if (net_rule_parse(grant->allow[g.n_rules], &g.rules[g.n_rules], err) < 0)
            return -1;
    }
    *ret_grant = g;
    return 0;
}

static void print_address(uint32_t address, char out[static INET_ADDRSTRLEN])
{
    struct in_addr in = {.s_addr = htonl(address)};
    CL_ASSERT(inet_ntop(AF_INET, &in, out, INET_ADDRSTRLEN));
}

static void print_protocol(uint8_t protocol, char *out, size_t size)
{
    if (protocol == NET_TCP || protocol == NET_UDP)
        (void)snprintf(out, size, "%s", protocol == NET_TCP ? "tcp" : "udp");
    else if (protocol)
        (void)snprintf(out, size, "%u", protocol);
}

static void add_addresses(const struct net_event *e, struct net_words_row *o)
{
    o->m.addresses = o->addresses;
    for (uint32_t i = 0; i < e->n_addresses; i++) {
        print_address(e->addresses[i], o->text[i]);
        o->addresses[o->m.n_addresses++] = o->text[i];
    }
}

void net_words_event(const struct net_event *e, const Cloche__V1__NetworkGrant *grant,
                     struct net_words_row *o)
{
    static const Cloche__V1__NetworkEventKind kinds[NET_EVENT_KINDS_END] = {
        [NET_EVENT_DNS] = CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_DNS,
        [NET_EVENT_OPEN] = CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_OPEN,
        [NET_EVENT_CLOSE] = CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_CLOSE,
        [NET_EVENT_DENIED] = CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_DENIED,
    };
    static const char *const ends[] = {"", "closed", "reset", "idle", "stopped"}; /* enum net_end */
    *o = (struct net_words_row){.address = ""};
    cloche__v1__network_event__init(&o->m);
    o->m.kind = kinds[e->kind];
    o->m.number = e->number;
    o->m.flow = e->flow;
    o->m.name = (char *)(uintptr_t)e->name;
    o->m.reason = (char *)(uintptr_t)e->reason;
    o->m.address = o->address;
    o->m.protocol = o->protocol;
    if (e->address)
        print_address(e->address, o->address);
    print_protocol(e->protocol, o->protocol, sizeof o->protocol);
    o->m.port = e->port;
    o->m.guest_port = e->guest_port;
    o->m.sent = e->sent;
    o->m.received = e->received;
    o->m.duration_us = e->duration_us;
    o->m.end = (char *)(uintptr_t)ends[e->end];
    if (e->rule < grant->n_allow)
        o->m.rule = grant->allow[e->rule];
    o->m.qtype = e->qtype;
    o->m.rcode = e->rcode;
    add_addresses(e, o);
}
