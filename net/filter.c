/* net/filter.c - see net/filter.h. */
#include "net/filter.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "net/hello.h"
#include "policy/quota.h"

enum {
    BUCKETS = 1024, /* a chain is NET_FLOWS_MAX long at worst, so the hash needs no secret */
    NONE = -1,
    DNS_PORT = 53,
    /* Rates, as GCRA: microseconds between two, and how many at once. */
    ASK_US = 50000,
    ASK_BURST = 100,
    FLOW_US = 10000,
    FLOW_BURST = 400,
    TELL_US = 10000,
    TELL_BURST = 400,
};

static const char no_rule[] = "no rule allows it";

_Static_assert(NET_RULES_MAX <= 32, "a set of rules is a bit mask");

struct flow_key {
    uint32_t address;
    uint16_t port, guest_port;
    uint8_t protocol; /* 0 = a free slot */
};

enum flow_state {
    FLOW_OPENING = 1, /* of TCP: nothing came back yet */
    FLOW_OPEN,
    FLOW_LINGERING, /* of TCP: FIN from both */
};

/* What a guest has said so far on a flow that is still to show its name. */
struct opening {
    size_t n;
    uint8_t bytes[NET_HELLO_MAX];
};

struct flow {
    struct flow_key key;
    enum flow_state state;
    bool fin_sent, fin_received;
    uint16_t rule;
    int next; /* slot of the next of its bucket, or of the free ones */
    uint32_t number;
    uint64_t opened_ns, last_ns;
    uint64_t sent, received;
    bool awaits_hello;           /* of TCP, allowed by name alone */
    uint32_t next_seq;           /* while it does: of the guest's next byte */
    struct opening *opening;     /* owned; NULL = nothing is kept */
    char name[NET_NAME_MAX + 1]; /* that its TLS asked for; "" = none */
};

/* An address that the guest was told for a name. */
struct pin {
    uint32_t address; /* 0 = free */
    uint32_t rules;   /* bit mask: rules by name that cover names of it */
    uint64_t until_ns, told_ns;
    char name[NET_NAME_MAX + 1]; /* the last one */
};

struct denial {
    struct flow_key key; /* without the guest's port */
    const char *reason;  /* static; NULL = none yet */
    uint64_t told_ns;
};

struct net_filter {
    struct net_grant grant;
    net_tell_fn *tell;
    void *user; /* borrowed: tell's */
    uint32_t own[NET_OWN_ADDRESSES_MAX];
    size_t n_own;
    struct flow flows[NET_FLOWS_MAX];
    int buckets[BUCKETS];
    int free_slot; /* the first of the free ones, NONE = full */
    size_t n_flows;
    uint32_t last_flow;
    struct pin pins[NET_PINS_MAX];
    struct denial denials[NET_DENIALS_MAX];
    size_t next_denial;
    size_t n_asking; /* questions that net_filter_resolved() is to come for */
    uint64_t ask_tat_us, flow_tat_us, tell_tat_us;
    uint64_t paused_until_ns;
    uint64_t number;         /* of the newest event */
    uint64_t sent, received; /* bytes */
    struct net_event totals; /* as they were told */
    bool used_up;            /* the egress budget */
};

int net_filter_new(const struct net_grant *grant, net_tell_fn *tell, void *user,
                   struct net_filter **ret_filter, struct cl_err *err)
{
    struct net_filter *f = cl_zalloc(sizeof *f);
    if (!f)
        return cl_fail(err, CL_E_NOMEM, 0, "net filter");
    f->grant = *grant;
    f->number = grant->past.number;
    f->sent = grant->past.sent;
    f->received = grant->past.received;
    f->last_flow = (uint32_t)grant->past.flow;
    f->tell = tell;
    f->user = user;
    for (int i = 0; i < BUCKETS; i++)
        f->buckets[i] = NONE;
    for (int i = 0; i < NET_FLOWS_MAX; i++)
        f->flows[i].next = i + 1 < NET_FLOWS_MAX ? i + 1 : NONE;
    *ret_filter = f;
    return 0;
}

void net_filter_free(struct net_filter *f)
{
    for (size_t i = 0; f && i < NET_FLOWS_MAX; i++)
        cl_free(f->flows[i].opening);
    cl_free(f);
}

int net_filter_set_own_addresses(struct net_filter *f, const uint32_t *addresses, size_t n,
                                 struct cl_err *err)
{
    if (n > NET_OWN_ADDRESSES_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "this host has %zu addresses, more than %d", n,
                       NET_OWN_ADDRESSES_MAX);
    memcpy(f->own, addresses, n * sizeof *addresses);
    f->n_own = n;
    return 0;
}

uint64_t net_filter_paused_until_ns(const struct net_filter *f)
{
    return f->paused_until_ns;
}

size_t net_filter_flows(const struct net_filter *f)
{
    return f->n_flows;
}

/* ---- what is told ---- */

static void tell(struct net_filter *f, struct net_event *e)
{
    e->number = ++f->number;
    f->tell(f->user, e);
}

/* As tell(), of what a guest can cause as fast as it can send. */
static void tell_paced(struct net_filter *f, struct net_event *e, uint64_t now_ns)
{
    uint64_t retry_us;
    if (!gcra_step(&f->tell_tat_us, now_ns / CL_NS_PER_US, TELL_US, TELL_BURST, &retry_us))
        f->paused_until_ns = now_ns + retry_us * CL_NS_PER_US;
    tell(f, e);
}

static void tell_totals(struct net_filter *f)
{
    f->totals = (struct net_event){
        .kind = NET_EVENT_TOTALS,
        .number = f->number,
        .sent = f->sent,
        .received = f->received,
        .rule = NET_NO_RULE,
    };
    f->tell(f->user, &f->totals);
}

static bool keys_match(const struct flow_key *a, const struct flow_key *b)
{
    return a->address == b->address && a->port == b->port && a->guest_port == b->guest_port &&
           a->protocol == b->protocol;
}

static bool was_told(struct net_filter *f, const struct flow_key *key, const char *reason,
                     uint64_t now_ns)
{
    struct denial d = {.key = *key, .reason = reason, .told_ns = now_ns};
    d.key.guest_port = 0;
    for (size_t i = 0; i < NET_DENIALS_MAX; i++) {
        const struct denial *old = &f->denials[i];
        if (old->reason == reason && keys_match(&old->key, &d.key) &&
            now_ns - old->told_ns < NET_DENIED_AGAIN_NS)
            return true;
    }
    f->denials[f->next_denial] = d;
    f->next_denial = (f->next_denial + 1) % NET_DENIALS_MAX;
    return false;
}

static const struct pin *find_pin(const struct net_filter *f, uint32_t address, uint64_t now_ns)
{
    for (size_t i = 0; i < NET_PINS_MAX; i++) {
        if (f->pins[i].address == address && f->pins[i].until_ns > now_ns)
            return &f->pins[i];
    }
    return NULL;
}

static void copy_name(char to[static NET_NAME_MAX + 1], const struct pin *pin)
{
    if (pin)
        memcpy(to, pin->name, sizeof pin->name);
}

static void tell_denied(struct net_filter *f, const struct flow_key *key, const char *reason,
                        uint64_t now_ns)
{
    if (was_told(f, key, reason, now_ns))
        return;
    struct net_event e = {
        .kind = NET_EVENT_DENIED,
        .address = key->address,
        .port = key->port,
        .guest_port = key->guest_port,
        .protocol = key->protocol,
        .rule = NET_NO_RULE,
    };
    copy_name(e.name, find_pin(f, key->address, now_ns));
    (void)snprintf(e.reason, sizeof e.reason, "%s", reason);
    tell_paced(f, &e, now_ns);
}

/* ---- flows ---- */

static struct flow_key key_of(const struct net_frame *frame, bool by_guest)
{
    struct flow_key key = {
        .address = by_guest ? frame->to : frame->from,
        .port = by_guest ? frame->to_port : frame->from_port,
        .guest_port = by_guest ? frame->from_port : frame->to_port,
        .protocol = frame->protocol,
    };
    return key;
}

static int *bucket_of(struct net_filter *f, const struct flow_key *key)
{
    uint32_t h = key->address * UINT32_C(0x9e3779b1);
    h ^= ((uint32_t)key->port << 16 | key->guest_port) * UINT32_C(0x85ebca6b);
    h = (h ^ key->protocol) * UINT32_C(0xc2b2ae35);
    return &f->buckets[h >> 22];
}

_Static_assert(BUCKETS == 1 << 10, "as many as the hash has bits");

static struct flow *find_flow(struct net_filter *f, const struct flow_key *key)
{
    for (int i = *bucket_of(f, key); i != NONE; i = f->flows[i].next) {
        if (keys_match(&f->flows[i].key, key))
            return &f->flows[i];
    }
    return NULL;
}

static void unlink_flow(struct net_filter *f, struct flow *flow)
{
    int slot = (int)(flow - f->flows);
    int *at = bucket_of(f, &flow->key);
    while (*at != slot)
        at = &f->flows[*at].next;
    *at = flow->next;
    cl_free(flow->opening);
    *flow = (struct flow){.next = f->free_slot};
    f->free_slot = slot;
    f->n_flows--;
}

static struct net_event event_of(const struct flow *flow, enum net_event_kind kind)
{
    return (struct net_event){
        .kind = kind,
        .flow = flow->number,
        .sent = flow->sent,
        .received = flow->received,
        .address = flow->key.address,
        .port = flow->key.port,
        .guest_port = flow->key.guest_port,
        .protocol = flow->key.protocol,
        .rule = flow->rule,
    };
}

static void close_flow(struct net_filter *f, struct flow *flow, enum net_end end)
{
    struct net_event e = event_of(flow, NET_EVENT_CLOSE);
    e.end = (uint8_t)end;
    e.duration_us = (flow->last_ns - flow->opened_ns) / CL_NS_PER_US;
    memcpy(e.name, flow->name, sizeof flow->name);
    unlink_flow(f, flow);
    tell(f, &e);
}

static struct flow *open_flow(struct net_filter *f, const struct flow_key *key, uint16_t rule,
                              uint64_t now_ns)
{
    struct flow *flow = &f->flows[f->free_slot];
    int *bucket = bucket_of(f, key);
    int slot = f->free_slot;
    f->free_slot = flow->next;
    *flow = (struct flow){
        .key = *key,
        .state = key->protocol == NET_TCP ? FLOW_OPENING : FLOW_OPEN,
        .rule = rule,
        .next = *bucket,
        .number = ++f->last_flow,
        .opened_ns = now_ns,
        .last_ns = now_ns,
    };
    *bucket = slot;
    f->n_flows++;
    struct net_event e = event_of(flow, NET_EVENT_OPEN);
    copy_name(e.name, find_pin(f, key->address, now_ns));
    tell(f, &e);
    return flow;
}

/* A packet of `flow`, after its bytes were counted: what it says of the flow's state. */
static void step_flow(struct net_filter *f, struct flow *flow, const struct net_frame *frame,
                      bool by_guest, uint64_t now_ns)
{
    flow->last_ns = now_ns;
    if (flow->key.protocol != NET_TCP)
        return;
    if (frame->flags & NET_TCP_RST) {
        close_flow(f, flow, flow->state == FLOW_LINGERING ? NET_END_CLOSED : NET_END_RESET);
        return;
    }
    if (!by_guest && flow->state == FLOW_OPENING)
        flow->state = FLOW_OPEN;
    if (frame->flags & NET_TCP_FIN && by_guest)
        flow->fin_sent = true;
    if (frame->flags & NET_TCP_FIN && !by_guest)
        flow->fin_received = true;
    if (flow->fin_sent && flow->fin_received)
        flow->state = FLOW_LINGERING;
}

/* ---- what is allowed ---- */

static bool is_of_link(uint32_t address)
{
    return (address ^ NET_LINK) >> (32 - NET_LINK_BITS) == 0;
}

/* What no grant opens: this network, loopback, link-local, multicast and above, the link. */
static bool is_never_reached(uint32_t address)
{
    return address >> 24 == 0 || address >> 24 == 127 || address >> 16 == 0xa9fe ||
           address >= 0xe0000000 || is_of_link(address);
}

static bool is_own(const struct net_filter *f, uint32_t address)
{
    for (size_t i = 0; i < f->n_own; i++) {
        if (f->own[i] == address)
            return true;
    }
    return false;
}

static bool is_granted_private(const struct net_filter *f, uint32_t address)
{
    for (uint32_t i = 0; i < f->grant.n_private; i++) {
        if (net_range_has(&f->grant.private_ranges[i], address))
            return true;
    }
    return false;
}

/* Why no rule could lead there; NULL when one may. */
static const char *why_unreachable(const struct net_filter *f, uint32_t address)
{
    if (is_never_reached(address))
        return "no guest reaches such an address";
    if (is_own(f, address))
        return "it is an address of this host";
    if (!net_address_is_public(address) && !is_granted_private(f, address))
        return "its address is not public";
    return NULL;
}

/* The rule by which the guest may send to `key`, or NET_NO_RULE. */
static uint16_t rule_for(const struct net_filter *f, const struct flow_key *key, uint64_t now_ns)
{
    const struct pin *pin = find_pin(f, key->address, now_ns);
    uint32_t by_name = pin ? pin->rules : 0;
    for (uint32_t i = 0; i < f->grant.n_rules; i++) {
        const struct net_rule *rule = &f->grant.rules[i];
        if (net_rule_covers_port(rule, key->protocol, key->port) &&
            (by_name >> i & 1 || net_rule_covers_address(rule, key->address)))
            return (uint16_t)i;
    }
    return NET_NO_RULE;
}

static const char *why_denied(const struct net_filter *f, const struct flow_key *key,
                              uint64_t now_ns, uint16_t *ret_rule)
{
    const char *why = why_unreachable(f, key->address);
    *ret_rule = why ? NET_NO_RULE : rule_for(f, key, now_ns);
    return !why && *ret_rule == NET_NO_RULE ? no_rule : why;
}

/* By its address, whatever name it goes by? */
static bool is_allowed_by_address(const struct net_filter *f, const struct flow_key *key)
{
    for (uint32_t i = 0; i < f->grant.n_rules; i++) {
        const struct net_rule *rule = &f->grant.rules[i];
        if (net_rule_covers_port(rule, key->protocol, key->port) &&
            net_rule_covers_address(rule, key->address))
            return true;
    }
    return false;
}

static bool is_name_allowed(const struct net_filter *f, const struct flow_key *key,
                            const char *name)
{
    for (uint32_t i = 0; i < f->grant.n_rules; i++) {
        const struct net_rule *rule = &f->grant.rules[i];
        if (net_rule_covers_port(rule, key->protocol, key->port) &&
            net_rule_covers_name(rule, name))
            return true;
    }
    return false;
}

/* ---- how a flow begins ---- */

enum heard {
    HEARD_FINE = 1,
    HEARD_OUT_OF_TURN, /* not the next bytes: TCP sends again what is dropped */
    HEARD_WRONG,
};

static void stop_listening(struct flow *flow)
{
    flow->awaits_hello = false;
    cl_free(flow->opening);
    flow->opening = NULL;
}

/* Bytes that came before pass if they are the same: the stack may not have had them.  Of two
 * versions it has the one that was looked at. */
static enum heard hear_again(const struct flow *flow, uint32_t behind, const uint8_t *payload,
                             size_t n)
{
    const struct opening *o = flow->opening;
    if (!o || behind > o->n || n > behind)
        return HEARD_OUT_OF_TURN;
    return memcmp(o->bytes + (o->n - behind), payload, n) == 0 ? HEARD_FINE : HEARD_OUT_OF_TURN;
}

/* More than one segment: keep them.  Short of memory the guest tries again. */
static enum heard keep_opening(struct flow *flow, const uint8_t *payload, size_t n)
{
    if (!flow->opening)
        flow->opening = cl_zalloc(sizeof *flow->opening);
    if (!flow->opening)
        return HEARD_OUT_OF_TURN;
    if (n > sizeof flow->opening->bytes - flow->opening->n)
        return HEARD_WRONG;
    memcpy(flow->opening->bytes + flow->opening->n, payload, n);
    flow->opening->n += n;
    flow->next_seq += (uint32_t)n;
    return HEARD_FINE;
}

/* A segment of a flow that awaits its hello. */
static enum heard hear(const struct net_filter *f, struct flow *flow, const struct net_frame *frame,
                       const uint8_t *payload)
{
    const uint8_t *bytes = payload;
    size_t n = frame->payload_bytes;
    if (frame->seq != flow->next_seq)
        return hear_again(flow, flow->next_seq - frame->seq, payload, n);
    if (flow->opening) {
        enum heard kept = keep_opening(flow, payload, n);
        if (kept != HEARD_FINE)
            return kept;
        bytes = flow->opening->bytes;
        n = flow->opening->n;
    }
    switch (net_hello_parse(bytes, n, flow->name)) {
    case NET_HELLO_MORE:
        return flow->opening ? HEARD_FINE : keep_opening(flow, payload, n);
    case NET_HELLO_NOT_TLS:
        stop_listening(flow);
        return HEARD_FINE;
    case NET_HELLO_NAME:
        if (!is_name_allowed(f, &flow->key, flow->name))
            return HEARD_WRONG;
        stop_listening(flow);
        return HEARD_FINE;
    case NET_HELLO_NO_NAME:
        break;
    }
    return HEARD_WRONG;
}

static bool is_to_be_heard(const struct flow *flow, const struct net_frame *frame)
{
    return flow->awaits_hello && frame->payload_bytes > 0;
}

/* ---- frames of the guest ---- */

static enum net_verdict refuse(const struct net_frame *frame)
{
    switch (frame->kind) {
    case NET_FRAME_TCP:
        return NET_RESET;
    case NET_FRAME_UDP:
        return NET_PROHIBITED;
    case NET_FRAME_ARP:
    case NET_FRAME_OTHER:
        break;
    }
    return NET_DROP;
}

static enum net_verdict deny(struct net_filter *f, const struct net_frame *frame,
                             const char *reason, uint64_t now_ns)
{
    struct flow_key key = key_of(frame, true);
    tell_denied(f, &key, reason, now_ns);
    return refuse(frame);
}

/* What is left of the budget goes to packets that fit; the first that does not ends it. */
static bool fits_budget(struct net_filter *f, const struct net_frame *frame, uint64_t now_ns)
{
    if (!f->used_up && frame->bytes <= f->grant.egress_bytes - f->sent)
        return true;
    struct flow_key key = key_of(frame, true);
    if (!f->used_up) {
        f->used_up = true;
        tell_denied(f, &key, "the egress budget is used up", now_ns);
    }
    return false;
}

static enum net_verdict after_budget(const struct net_frame *frame)
{
    return frame->kind == NET_FRAME_TCP ? NET_RESET : NET_DROP;
}

/* Why there is to be no flow to `key`; NULL with *ret_rule when there may be one. */
static const char *why_no_flow(struct net_filter *f, const struct flow_key *key, uint64_t now_ns,
                               uint16_t *ret_rule)
{
    uint64_t retry_us;
    const char *why = why_denied(f, key, now_ns, ret_rule);
    if (why)
        return why;
    if (f->free_slot == NONE)
        return "too many flows";
    if (!gcra_step(&f->flow_tat_us, now_ns / CL_NS_PER_US, FLOW_US, FLOW_BURST, &retry_us))
        return "too many new flows";
    return NULL;
}

static bool is_first_of_flow(const struct net_frame *frame)
{
    return frame->kind == NET_FRAME_UDP ||
           (frame->flags & (NET_TCP_SYN | NET_TCP_ACK | NET_TCP_RST | NET_TCP_FIN)) == NET_TCP_SYN;
}

/* Its TLS asks for nobody whom a rule names. */
static enum net_verdict hang_up(struct net_filter *f, struct flow *flow, uint64_t now_ns)
{
    struct net_event e = {
        .kind = NET_EVENT_DENIED,
        .address = flow->key.address,
        .port = flow->key.port,
        .guest_port = flow->key.guest_port,
        .protocol = flow->key.protocol,
        .rule = NET_NO_RULE,
    };
    const char *reason = flow->name[0] ? "its TLS asks for a name that no rule covers"
                                       : "its TLS names no host, and rules by name let it here";
    memcpy(e.name, flow->name, sizeof flow->name);
    (void)snprintf(e.reason, sizeof e.reason, "%s", reason);
    tell_paced(f, &e, now_ns);
    close_flow(f, flow, NET_END_RESET);
    return NET_HANG_UP;
}

static void listen_to(struct net_filter *f, struct flow *flow, const struct net_frame *frame)
{
    flow->awaits_hello = frame->kind == NET_FRAME_TCP && !is_allowed_by_address(f, &flow->key);
    flow->next_seq = frame->seq + 1;
}

static enum net_verdict send_on_flow(struct net_filter *f, const struct net_frame *frame,
                                     const uint8_t *payload, uint64_t now_ns)
{
    struct flow_key key = key_of(frame, true);
    struct flow *flow = find_flow(f, &key);
    uint16_t rule = NET_NO_RULE;
    if (flow && flow->state == FLOW_LINGERING && is_first_of_flow(frame)) {
        close_flow(f, flow, NET_END_CLOSED); /* the guest uses its port again */
        flow = NULL;
    }
    if (!flow && !is_first_of_flow(frame))
        return NET_RESET;
    const char *why = flow ? NULL : why_no_flow(f, &key, now_ns, &rule);
    if (why)
        return deny(f, frame, why, now_ns);
    if (!fits_budget(f, frame, now_ns))
        return after_budget(frame);
    if (!flow) {
        flow = open_flow(f, &key, rule, now_ns);
        listen_to(f, flow, frame);
    }
    if (is_to_be_heard(flow, frame)) {
        enum heard heard =
            is_first_of_flow(frame) ? HEARD_OUT_OF_TURN : hear(f, flow, frame, payload);
        if (heard != HEARD_FINE)
            return heard == HEARD_WRONG ? hang_up(f, flow, now_ns) : NET_DROP;
    }
    f->sent += frame->bytes;
    flow->sent += frame->bytes;
    step_flow(f, flow, frame, true, now_ns);
    return NET_PASS;
}

static enum net_verdict to_link(struct net_filter *f, const struct net_frame *frame,
                                uint64_t now_ns)
{
    if (frame->to == NET_DNS && frame->kind == NET_FRAME_UDP && frame->to_port == DNS_PORT)
        return NET_QUESTION;
    return deny(f, frame, "the link has no such service", now_ns);
}

enum net_verdict net_filter_from_guest(struct net_filter *f, const struct net_frame *frame,
                                       const uint8_t *payload, uint64_t now_ns)
{
    if (frame->kind == NET_FRAME_ARP)
        return is_of_link(frame->to) ? NET_PASS : NET_DROP;
    if (f->used_up)
        return after_budget(frame);
    if (is_of_link(frame->to))
        return to_link(f, frame, now_ns);
    if (frame->kind == NET_FRAME_OTHER)
        return deny(f, frame, "it is neither TCP nor UDP", now_ns);
    return send_on_flow(f, frame, payload, now_ns);
}

enum net_verdict net_filter_to_guest(struct net_filter *f, const struct net_frame *frame,
                                     uint64_t now_ns)
{
    if (frame->kind == NET_FRAME_TCP || frame->kind == NET_FRAME_UDP) {
        struct flow_key key = key_of(frame, false);
        struct flow *flow = find_flow(f, &key);
        if (!flow)
            return NET_DROP;
        flow->received += frame->bytes;
        f->received += frame->bytes;
        step_flow(f, flow, frame, false, now_ns);
        return NET_PASS;
    }
    f->received += frame->bytes;
    return NET_PASS;
}

/* ---- names ---- */

static uint32_t rules_by_name(const struct net_filter *f, const char *name, bool with_public)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < f->grant.n_rules; i++) {
        const struct net_rule *rule = &f->grant.rules[i];
        if ((with_public || rule->target != NET_TARGET_PUBLIC) && net_rule_covers_name(rule, name))
            rules |= UINT32_C(1) << i;
    }
    return rules;
}

static struct net_event event_of_query(const struct net_filter *f,
                                       const struct net_dns_query *query)
{
    uint32_t rules = query->name[0] ? rules_by_name(f, query->name, true) : 0;
    struct net_event e = {
        .kind = NET_EVENT_DNS,
        .qtype = query->qtype,
        .protocol = NET_UDP,
        .port = DNS_PORT,
        .rule = rules ? (uint16_t)__builtin_ctz(rules) : NET_NO_RULE,
    };
    memcpy(e.name, query->name, sizeof query->name);
    return e;
}

/* What a question was answered with; `reason` is NULL when that is no refusal. */
static void tell_answer(struct net_filter *f, struct net_event *e, enum net_dns_rcode rcode,
                        const char *reason, uint64_t now_ns)
{
    e->rcode = (uint8_t)rcode;
    e->is_denied = reason != NULL;
    (void)snprintf(e->reason, sizeof e->reason, "%s", reason ? reason : "");
    tell_paced(f, e, now_ns);
}

/* May it leave this host?  The rcode and reason when not. */
static bool may_ask(struct net_filter *f, uint64_t now_ns, enum net_dns_rcode *ret_rcode,
                    const char **ret_reason)
{
    uint64_t retry_us;
    *ret_rcode = NET_DNS_SERVFAIL;
    *ret_reason = NULL;
    if (f->grant.n_servers == 0)
        return false;
    if (f->n_asking < NET_QUESTIONS_MAX &&
        gcra_step(&f->ask_tat_us, now_ns / CL_NS_PER_US, ASK_US, ASK_BURST, &retry_us))
        return true;
    *ret_reason = "too many questions";
    return false;
}

bool net_filter_question(struct net_filter *f, const struct net_dns_query *query,
                         const struct net_frame *frame, uint64_t now_ns,
                         struct net_dns_answer *ret_answer)
{
    struct net_event e = event_of_query(f, query);
    enum net_dns_rcode rcode = NET_DNS_NXDOMAIN;
    const char *reason = NULL;
    if (!query->name[0])
        reason = "it is no host name";
    else if (e.rule == NET_NO_RULE)
        reason = "no rule covers the name";
    else if (query->qtype != NET_DNS_TYPE_A)
        rcode = NET_DNS_NOERROR; /* other records would be a way for data */
    else if (!fits_budget(f, frame, now_ns))
        rcode = NET_DNS_SERVFAIL;
    else if (may_ask(f, now_ns, &rcode, &reason)) {
        f->sent += frame->bytes;
        f->n_asking++;
        return true;
    }
    tell_answer(f, &e, rcode, reason, now_ns);
    *ret_answer = (struct net_dns_answer){.rcode = rcode};
    return false;
}

/* The slot for an address: its own, a free or stale one, or that which was told longest ago. */
static struct pin *slot_for(struct net_filter *f, uint32_t address, uint64_t now_ns)
{
    struct pin *best = &f->pins[0];
    for (size_t i = 0; i < NET_PINS_MAX; i++) {
        struct pin *p = &f->pins[i];
        if (p->until_ns <= now_ns)
            *p = (struct pin){0};
        if (p->address == address)
            return p;
        if (p->told_ns < best->told_ns)
            best = p;
    }
    *best = (struct pin){0};
    return best;
}

static void pin_address(struct net_filter *f, const struct net_dns_record *record,
                        const char name[static NET_NAME_MAX + 1], uint64_t now_ns)
{
    struct pin *p = slot_for(f, record->address, now_ns);
    uint64_t until_ns = now_ns + CL_MAX(record->ttl_s * CL_NS_PER_S, NET_PIN_NS);
    p->address = record->address;
    p->rules |= rules_by_name(f, name, false);
    p->until_ns = CL_MAX(p->until_ns, until_ns);
    p->told_ns = now_ns;
    memcpy(p->name, name, sizeof p->name);
}

/* Could a flow to it be allowed, for what the guest asked?  A name that only `public` covers leads
 * to no private address. */
static bool leads_somewhere(const struct net_filter *f, uint32_t address, const char *name)
{
    return !why_unreachable(f, address) &&
           (net_address_is_public(address) || rules_by_name(f, name, false));
}

void net_filter_resolved(struct net_filter *f, const struct net_dns_query *query,
                         const struct net_dns_answer *found, uint64_t asked_ns, uint64_t now_ns,
                         struct net_dns_answer *ret_answer)
{
    struct net_dns_answer a = {.rcode = found->rcode};
    struct net_event e = event_of_query(f, query);
    CL_ASSERT(f->n_asking > 0 && found->n_records <= NET_DNS_RECORDS_MAX);
    f->n_asking--;
    for (size_t i = 0; i < found->n_records; i++) {
        const struct net_dns_record *r = &found->records[i];
        if (!leads_somewhere(f, r->address, query->name))
            continue;
        pin_address(f, r, query->name, now_ns);
        a.records[a.n_records++] = *r;
        if (e.n_addresses < NET_ADDRESSES_MAX)
            e.addresses[e.n_addresses++] = r->address;
    }
    e.duration_us = (now_ns - asked_ns) / CL_NS_PER_US;
    bool none_left = found->n_records > 0 && a.n_records == 0;
    tell_answer(f, &e, a.rcode, none_left ? "its addresses are not public" : NULL, now_ns);
    *ret_answer = a;
}

/* ---- time ---- */

/* NET_END_NONE = not yet. */
static enum net_end end_by_time(const struct flow *flow, uint64_t now_ns)
{
    uint64_t quiet_ns = now_ns - flow->last_ns;
    if (flow->key.protocol == NET_UDP)
        return quiet_ns >= NET_UDP_IDLE_NS ? NET_END_IDLE : NET_END_NONE;
    switch (flow->state) {
    case FLOW_OPENING:
        return quiet_ns >= NET_TCP_OPENING_NS ? NET_END_IDLE : NET_END_NONE;
    case FLOW_OPEN:
        return quiet_ns >= NET_TCP_IDLE_NS ? NET_END_IDLE : NET_END_NONE;
    case FLOW_LINGERING:
        return quiet_ns >= NET_LINGER_NS ? NET_END_CLOSED : NET_END_NONE;
    }
    return NET_END_NONE;
}

/* While a flow uses it, the guest goes on by the name. */
static void refresh_pin(struct net_filter *f, uint32_t address, uint64_t now_ns)
{
    for (size_t i = 0; i < NET_PINS_MAX; i++) {
        struct pin *p = &f->pins[i];
        if (p->address == address && p->until_ns > now_ns)
            p->until_ns = CL_MAX(p->until_ns, now_ns + NET_PIN_NS);
    }
}

void net_filter_tick(struct net_filter *f, uint64_t now_ns)
{
    for (size_t i = 0; i < NET_FLOWS_MAX; i++) {
        struct flow *flow = &f->flows[i];
        if (!flow->key.protocol)
            continue;
        enum net_end end = end_by_time(flow, now_ns);
        if (end != NET_END_NONE)
            close_flow(f, flow, end);
        else
            refresh_pin(f, flow->key.address, now_ns);
    }
    if (f->totals.sent != f->sent || f->totals.received != f->received ||
        f->totals.number != f->number)
        tell_totals(f);
}

void net_filter_stop(struct net_filter *f)
{
    for (size_t i = 0; i < NET_FLOWS_MAX; i++) {
        struct flow *flow = &f->flows[i];
        if (flow->key.protocol)
            close_flow(f, flow, flow->state == FLOW_LINGERING ? NET_END_CLOSED : NET_END_STOPPED);
    }
    tell_totals(f);
}
