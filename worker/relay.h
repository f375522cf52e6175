/* worker/relay.h - one bulk transfer between a scheduler's caller and a guest.
 *
 * The worker dials back with a Relay call of its own, so HTTP/2 flow control works per transfer: a
 * reader that is slow stops its relay, not the guest (the spool takes the output) and not the
 * other relays.
 *
 * Owns:    its call (until on_end) and itself: freed when the call ended.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_RELAY_H
#define CL_WORKER_RELAY_H

#include "rpc/channel.h"
#include "worker/unit.h"

enum { RELAY_CHUNK = 32768 };

/* Serve what OpenRelay asks for; errors go to the scheduler over the relay itself. */
int relay_open(struct cl_loop *loop, struct rpc_channel *channel, struct units *units,
               const Cloche__V1__OpenRelay *what, struct cl_err *err) CL_MUST;

#endif
