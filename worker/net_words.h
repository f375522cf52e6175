/* worker/net_words.h - of networks, from the words of the worker's protocol (proto/cloche/v1) to
 * those of cloche-net (net/control.h) and back.
 *
 * Owns:    nothing; a row's texts are its own or borrowed from the event and the grant.
 * Thread:  any.
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_WORKER_NET_WORDS_H
#define CL_WORKER_NET_WORDS_H

#include <arpa/inet.h>

#include "cloche/v1/worker.pb-c.h"
#include "worker/vm_net.h"

/* What a VM may reach.  INVALID and TOOBIG for what the scheduler should not have let through. */
int net_words_grant(const Cloche__V1__NetworkGrant *grant, const struct vm_net_settings *settings,
                    struct net_grant *ret_grant, struct cl_err *err) CL_MUST;

/* A message and the texts that it points to. */
struct net_words_row {
    Cloche__V1__NetworkEvent m;
    char address[INET_ADDRSTRLEN], protocol[8];
    char text[NET_ADDRESSES_MAX][INET_ADDRSTRLEN], *addresses[NET_ADDRESSES_MAX];
};

/* The event must have been checked, and not be of the totals.  grant: the one that its rule is of.
 * *ret_row points into itself, the event and the grant. */
void net_words_event(const struct net_event *event, const Cloche__V1__NetworkGrant *grant,
                     struct net_words_row *ret_row);

#endif
