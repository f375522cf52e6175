/* vmm/vsock.h - one byte stream between the guest's agent and the host (virtio 1.2 §5.10).
 *
 * Owns:    its registers, the connection, the bytes that the guest sent and the host has not taken.
 * Borrows: the channel (a stream socket), guest memory, the irq line's chip.
 * Thread:  the device lock.
 *
 * The guest connects to CID 2, port VSOCK_AGENT_PORT, once in the device's life; anything else it
 * asks for is answered with RST.  The monitor opens nothing and connects to nobody: the channel is
 * what it was given.
 *
 *   IDLE ──REQUEST──► OPEN ──RST, SHUTDOWN of both, reset, a broken ring──► CLOSING ──drained──►
 * GONE
 *
 * No byte is lost and no byte is held without a bound: guest to host there is one buffer, and its
 * size is the credit that the guest has; host to guest there is none, a byte leaves the channel
 * only into a buffer of the guest that has credit for it.  So each side's slowness stops the other.
 *
 * The connection is part of the saved state and lives on in a clone, on the clone's channel.
 */
#ifndef CL_VMM_VSOCK_H
#define CL_VMM_VSOCK_H

#include "vmm/virtio_mmio.h"

enum {
    VSOCK_HOST_CID = 2,
    VSOCK_AGENT_PORT = 1024,
    /* The guest's credit, a power of two.  Without it a guest would fill our memory while the host
     * is slow. */
    VSOCK_BUF_BYTES = 256 * 1024,
    /* One packet's data, in either direction (Linux sends no more). */
    VSOCK_PACKET_MAX = 64 * 1024,
    /* Packets to the guest in one turn; without it a fast host keeps the device lock. */
    VSOCK_PACKETS_PER_TURN = 64,
    /* Answers to strangers that wait for room in the guest's receive queue; when there are as many,
     * its packets wait too.  Without it a guest that gives no room would fill our memory. */
    VSOCK_RESETS_MAX = 16,
};

enum vsock_state { VSOCK_NONE = 0, VSOCK_IDLE, VSOCK_OPEN, VSOCK_CLOSING, VSOCK_GONE };

/* Whom to send a RST: the packet's own addresses, as it had them. */
struct vsock_stranger {
    uint64_t dst_cid;
    uint32_t src_port, dst_port;
    uint16_t type;
};

struct vsock {
    struct virtio v;
    int channel; /* borrowed: the host's end, as long as the device lives */
    uint64_t guest_cid;
    enum vsock_state state;
    uint32_t guest_port;
    uint32_t peer_alloc, peer_fwd; /* what the guest said last of its buffer */
    uint32_t tx_cnt;               /* bytes to the guest; counters run freely (§5.10.6.3) */
    uint32_t rx_cnt;               /* bytes from the guest */
    uint32_t fwd_cnt;              /* of these, what the channel took; the rest is in buf */
    uint32_t fwd_said;             /* the fwd_cnt that the guest heard last */
    uint32_t guest_shut;           /* SHUTDOWN flags of the guest: it will not receive, not send */
    uint32_t owed;                 /* control packets to send when the guest has room */
    bool host_ended;               /* the channel said end of file */
    bool half_closed;              /* the channel was told that the guest sends no more */
    bool starved;                  /* the guest has no room, until it says otherwise */
    unsigned n_strangers;
    struct vsock_stranger strangers[VSOCK_RESETS_MAX];
    struct virtq_chain chain;     /* from here on nothing needs a value before its use */
    uint8_t buf[VSOCK_BUF_BYTES]; /* a ring: positions are counters modulo its size */
};

/* guest_cid: 3 or more.  Cannot fail today; 0. */
int vsock_init(struct vsock *s, uint32_t guest_cid, const struct guest_mem *mem,
               struct irq_line irq, int channel_fd) CL_MUST;

/* What to poll(2) the channel for; 0 = do not poll it at all (a hang-up would spin).  It changes
 * whenever the guest writes to the device: look again after each exit, and wake the poller. */
short vsock_poll_events(const struct vsock *s);
/* poll(2) reported something: move what can be moved. */
void vsock_on_host(struct vsock *s, short revents);

/* One STATE_VSOCK section, at most VSOCK_STATE_MAX bytes. */
enum { VSOCK_STATE_MAX = VSOCK_BUF_BYTES + 1024 };
void vsock_save(const struct vsock *s, struct state_writer *w);
int vsock_load(struct vsock *s, struct state_reader *r, struct cl_err *err) CL_MUST;

#endif
