/* A guest, its servers, its resolver and the clock in any order: what is told adds up, and nothing
 * passes to where no rule leads. */
#include <stdint.h>
#include <string.h>

#include "net/filter.h"
#include "tests/fuzz/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUDGET = 20000, OWN = 0x0a000001 };

static const uint32_t addresses[] = {0x08080808, 0x08080809, 0x0a000002,  OWN,        0x7f000001,
                                     0xc0a80001, NET_DNS,    NET_GATEWAY, 0xe0000001, 0x01020304};
static const char *const names[] = {"a.org", "x.b.org", "y.b.org", "c.org", "", "localhost"};

struct world {
    struct net_filter *f; /* owned */
    uint64_t now_ns, number, sent, received;
    uint64_t closed_sent, closed_received, of_queries;
    size_t open;
    struct net_event totals;
};

static void hear(void *user, const struct net_event *e)
{
    struct world *w = user;
    CL_ASSERT(net_event_check(e, sizeof *e, NULL) == 0);
    if (e->kind == NET_EVENT_TOTALS) {
        CL_ASSERT(e->number == w->number && e->sent <= BUDGET);
        w->totals = *e;
        return;
    }
    CL_ASSERT(e->number == ++w->number);
    w->open += e->kind == NET_EVENT_OPEN;
    w->open -= e->kind == NET_EVENT_CLOSE;
    if (e->kind == NET_EVENT_CLOSE) {
        w->closed_sent += e->sent;
        w->closed_received += e->received;
    }
}

static const struct net_grant *the_grant(void)
{
    static struct net_grant g = {.version = NET_CONTROL_VERSION,
                                 .n_private = 1,
                                 .n_servers = 1,
                                 .servers = {1},
                                 .egress_bytes = BUDGET};
    static const char *const rules[] = {"8.8.8.8:1-9", "a.org:1-9", "*.b.org:*/udp", "public:7"};
    if (g.n_rules > 0)
        return &g;
    for (size_t i = 0; i < CL_COUNT(rules); i++)
        CL_ASSERT(net_rule_parse(rules[i], &g.rules[g.n_rules++], NULL) == 0);
    CL_ASSERT(net_range_parse("10.0.0.0/8", &g.private_ranges[0], NULL) == 0);
    return &g;
}

static struct net_frame any_frame(struct fuzz_in *in)
{
    uint32_t how = fuzz_get(in, 1);
    struct net_frame f = {.kind = (enum net_frame_kind)(1 + how % 4),
                          .from = NET_GUEST,
                          .to = addresses[fuzz_get(in, 1) % CL_COUNT(addresses)],
                          .from_port = (uint16_t)(1 + (how >> 2) % 3),
                          .to_port = (uint16_t)(1 + (how >> 4)),
                          .flags = (uint8_t)fuzz_get(in, 1)};
    f.protocol = f.kind == NET_FRAME_TCP ? NET_TCP : f.kind == NET_FRAME_UDP ? NET_UDP : 1;
    f.bytes = (uint16_t)(f.kind == NET_FRAME_ARP ? 0 : 40 + fuzz_get(in, 1));
    return f;
}

static void guest_sends(struct world *w, struct fuzz_in *in)
{
    struct net_frame f = any_frame(in);
    uint8_t payload[8];
    f.payload_bytes =
        (uint16_t)(f.kind == NET_FRAME_TCP ? fuzz_get(in, 1) % (sizeof payload + 1) : 0);
    f.seq = f.payload_bytes ? fuzz_get(in, 1) : 0;
    for (size_t i = 0; i < f.payload_bytes; i++)
        payload[i] = (uint8_t)fuzz_get(in, 1);
    if (net_filter_from_guest(w->f, &f, payload, w->now_ns) != NET_PASS || f.kind == NET_FRAME_ARP)
        return;
    CL_ASSERT(f.kind == NET_FRAME_TCP || f.kind == NET_FRAME_UDP);
    CL_ASSERT(net_address_is_public(f.to) || f.to == 0x0a000002);
    CL_ASSERT(w->sent + f.bytes <= BUDGET);
    w->sent += f.bytes;
}

static void server_sends(struct world *w, struct fuzz_in *in)
{
    struct net_frame f = any_frame(in), r = f;
    r.from = f.to;
    r.to = f.from;
    r.from_port = f.to_port;
    r.to_port = f.from_port;
    if (net_filter_to_guest(w->f, &r, w->now_ns) == NET_PASS)
        w->received += r.bytes;
}

static void check_told(const struct net_dns_answer *a)
{
    for (size_t i = 0; i < a->n_records; i++)
        CL_ASSERT(net_address_is_public(a->records[i].address) ||
                  a->records[i].address == 0x0a000002);
}

static void guest_asks(struct world *w, struct fuzz_in *in)
{
    struct net_dns_query q = {.qtype = (uint16_t)(fuzz_get(in, 1) % 3)};
    struct net_frame f = {.kind = NET_FRAME_UDP,
                          .protocol = NET_UDP,
                          .bytes = 60,
                          .to = NET_DNS,
                          .from = NET_GUEST,
                          .to_port = 53,
                          .from_port = 1};
    struct net_dns_answer a, found = {.rcode = NET_DNS_NOERROR};
    const char *name = names[fuzz_get(in, 1) % CL_COUNT(names)];
    memcpy(q.name, name, strlen(name));
    if (net_filter_from_guest(w->f, &f, NULL, w->now_ns) != NET_QUESTION ||
        !net_filter_question(w->f, &q, &f, w->now_ns, &a))
        return;
    CL_ASSERT(q.qtype == NET_DNS_TYPE_A && q.name[0]);
    w->sent += f.bytes;
    w->of_queries += f.bytes;
    for (found.n_records = fuzz_get(in, 1) % 3; a.n_records < found.n_records; a.n_records++)
        found.records[a.n_records] = (struct net_dns_record){
            addresses[fuzz_get(in, 1) % CL_COUNT(addresses)], fuzz_get(in, 2)};
    net_filter_resolved(w->f, &q, &found, w->now_ns, w->now_ns, &a);
    check_told(&a);
}

static void step(struct world *w, struct fuzz_in *in)
{
    static const uint64_t leaps_ns[] = {CL_NS_PER_MS,     CL_NS_PER_S,       3 * CL_NS_PER_S,
                                        61 * CL_NS_PER_S, 601 * CL_NS_PER_S, 7201 * CL_NS_PER_S};
    switch (fuzz_get(in, 1) % 5) {
    case 0:
    case 1:
        guest_sends(w, in);
        break;
    case 2:
        server_sends(w, in);
        break;
    case 3:
        guest_asks(w, in);
        break;
    default:
        w->now_ns += leaps_ns[fuzz_get(in, 1) % CL_COUNT(leaps_ns)];
        net_filter_tick(w->f, w->now_ns);
        break;
    }
    CL_ASSERT(net_filter_flows(w->f) == w->open);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t own[] = {OWN};
    struct fuzz_in in = {data, size};
    struct world w = {.now_ns = 100 * CL_NS_PER_S};
    if (net_filter_new(the_grant(), hear, &w, &w.f, NULL) < 0)
        return 0;
    CL_ASSERT(net_filter_set_own_addresses(w.f, own, 1, NULL) == 0);
    while (in.left > 0)
        step(&w, &in);
    net_filter_stop(w.f);
    CL_ASSERT(w.open == 0 && net_filter_flows(w.f) == 0);
    CL_ASSERT(w.totals.sent == w.sent && w.closed_sent + w.of_queries == w.sent);
    CL_ASSERT(w.totals.received == w.received && w.closed_received <= w.received);
    net_filter_free(w.f);
    return 0;
}
