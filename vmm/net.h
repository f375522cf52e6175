/* vmm/net.h - a network card (virtio 1.2 §5.1) whose wire is a socket: one frame, one message.
 *
 * Owns:    its registers and one chain.
 * Borrows: the wire (a SOCK_SEQPACKET or SOCK_DGRAM unix socket), guest memory, the irq line's
 * chip. Thread:  the device lock.
 *
 * Whoever holds the other end of the wire decides what the guest may reach; this device looks at
 * nothing of a frame but its length.  No offloads, no merged buffers, one pair of queues.  A wire
 * that is full stops the guest's queue, a guest without room stops the wire; nothing is held here.
 */
#ifndef CL_VMM_NET_H
#define CL_VMM_NET_H

#include "vmm/virtio_mmio.h"

enum {
    NET_MAC_BYTES = 6,
    /* Each frame costs a guest a turn through its stack and maybe an exit, so they are as long as
     * fits into three pages of a buffer; the other end of the wire has the same MTU. */
    NET_MTU = 9000,
    /* With the Ethernet header.  Longer frames are dropped; without it a guest could send messages
     * of gigabytes. */
    NET_FRAME_MAX = NET_MTU + 14,
    NET_FRAME_PLAIN = 1514, /* of a driver that does not know of an MTU */
    NET_FRAME_MIN = 14,
    /* Frames to the guest in one turn; without it a fast wire keeps the device lock. */
    NET_FRAMES_PER_TURN = 64,
};

struct net {
    struct virtio v;
    int wire; /* borrowed: as long as the device lives */
    uint8_t mac[NET_MAC_BYTES];
    bool wire_full;   /* the next frame of the guest waits for the wire */
    bool wire_ended;  /* the other end has gone: frames go nowhere */
    bool starved;     /* the guest has no room, until it says otherwise */
    uint64_t dropped; /* frames, both ways */
    struct virtq_chain chain;
};

void net_init(struct net *n, int wire, const uint8_t mac[NET_MAC_BYTES],
              const struct guest_mem *mem, struct irq_line irq);

/* As vsock_poll_events() and vsock_on_host(). */
short net_poll_events(const struct net *n);
void net_on_wire(struct net *n, short revents);

/* One STATE_NET section.  The guest goes on with the address that it was saved with, until its
 * agent sets another. */
void net_save(const struct net *n, struct state_writer *w);
int net_load(struct net *n, struct state_reader *r, struct cl_err *err) CL_MUST;

#endif
