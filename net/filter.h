/* net/filter.h - what of a VM's frames may pass, and what is told of them.
 *
 * It knows the grant, the flows that are open, and which addresses the guest was told for which
 * name.  A destination is allowed when it can be reached at all (public or granted as private, no
 * address of this host, never loopback, link-local, multicast or the link itself) and a rule covers
 * it, its protocol and its port: by its address, or by a name that the guest asked for.
 *
 * A connection of TCP that only a rule by name allows, and that begins as TLS does, must ask for a
 * name that such a rule covers (net/hello.h); else it is reset on both sides.  Others are as their
 * address.
 *
 * Told is: each question; each flow's begin and end; each refusal, but the first only of those of
 * one protocol, address and port within NET_DENIED_AGAIN_NS, as a guest tries again.  A flow whose
 * two FINs were seen is told when NET_LINGER_NS pass without a packet, so that its last ones count.
 *
 * Owns:    the flows, the names and the counts; a copy of the grant.
 * Thread:  its owner's.
 * Does no I/O and reads no clock.  What is to be told goes to net_tell_fn, from within a call.
 */
#ifndef CL_NET_FILTER_H
#define CL_NET_FILTER_H

#include "base/own.h"
#include "net/control.h"
#include "net/dns.h"
#include "net/frame.h"

enum {
    /* Without it a guest could make us, and the stack below, hold any number of flows. */
    NET_FLOWS_MAX = 512,
    /* Addresses that names led to; the oldest gives way.  Without it: memory, as above. */
    NET_PINS_MAX = 1024,
    /* Questions on their way to a resolver. */
    NET_QUESTIONS_MAX = 64,
    NET_OWN_ADDRESSES_MAX = 64,
    NET_DENIALS_MAX = 64, /* remembered, so that they are told once */
};
#define NET_DENIED_AGAIN_NS (10 * CL_NS_PER_S)
#define NET_LINGER_NS (2 * CL_NS_PER_S)
#define NET_TCP_IDLE_NS (7200 * CL_NS_PER_S)
#define NET_TCP_OPENING_NS (120 * CL_NS_PER_S)
#define NET_UDP_IDLE_NS (60 * CL_NS_PER_S)
#define NET_PIN_NS \
    (600 * CL_NS_PER_S) /* at least: programs keep addresses longer than their TTL \
                         */

enum net_verdict {
    NET_PASS = 1,
    NET_DROP,
    NET_RESET,   /* drop, and answer with net_frame_build_reset() */
    NET_HANG_UP, /* the same, and net_frame_build_hang_up() for the stack, which knows the flow */
    NET_PROHIBITED, /* drop, and answer with net_frame_build_prohibited() */
    NET_QUESTION,   /* for net_dns_parse() and net_filter_question() */
};

/* Borrowed until the call returns. */
typedef void net_tell_fn(void *user, const struct net_event *event);

struct net_filter;

/* Fails with NOMEM only; the grant must have been checked.  `user` is tell's. */
int net_filter_new(const struct net_grant *grant, net_tell_fn *tell, void *user,
                   struct net_filter **ret_filter, struct cl_err *err) CL_MUST;
void net_filter_free(struct net_filter *f);
CL_DEFINE_AUTO(struct net_filter, net_filter_free)
/* The addresses of this host, which no guest reaches.  TOOBIG for more than NET_OWN_ADDRESSES_MAX.
 */
int net_filter_set_own_addresses(struct net_filter *f, const uint32_t *addresses, size_t n,
                                 struct cl_err *err) CL_MUST;

/* payload: frame->payload_bytes of it; NULL when there are none. */
enum net_verdict net_filter_from_guest(struct net_filter *f, const struct net_frame *frame,
                                       const uint8_t *payload, uint64_t now_ns) CL_MUST;
/* Of what the stack sends: PASS, or DROP for what belongs to no flow. */
enum net_verdict net_filter_to_guest(struct net_filter *f, const struct net_frame *frame,
                                     uint64_t now_ns) CL_MUST;

/* A question that came as `frame`.  True: ask a resolver for its addresses, then call
 * net_filter_resolved() once.  False: *ret_answer is the answer. */
bool net_filter_question(struct net_filter *f, const struct net_dns_query *query,
                         const struct net_frame *frame, uint64_t now_ns,
                         struct net_dns_answer *ret_answer) CL_MUST;
/* The resolver found `found`; *ret_answer is what the guest is told: addresses that it cannot reach
 * are not (else a name would lead it into this host's networks). */
void net_filter_resolved(struct net_filter *f, const struct net_dns_query *query,
                         const struct net_dns_answer *found, uint64_t asked_ns, uint64_t now_ns,
                         struct net_dns_answer *ret_answer);

/* Once a second: flows that are idle, totals. */
void net_filter_tick(struct net_filter *f, uint64_t now_ns);
/* Until when nothing should be taken from the guest: it was told no, or asked, more often than
 * anybody should have to read.  0 = at once. */
uint64_t net_filter_paused_until_ns(const struct net_filter *f);
/* The VM has ended: each open flow is told, and the totals. */
void net_filter_stop(struct net_filter *f);
size_t net_filter_flows(const struct net_filter *f);

#endif
