/* vmm/net.c - see net.h. */
#include "vmm/net.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { QUEUE_RX, QUEUE_TX, QUEUE_NR, QUEUE_LEN = 256 };

#define F_MTU (UINT64_C(1) << 3) /* §5.1.3 */
#define F_MAC (UINT64_C(1) << 5)

/* §5.1.6; num_buffers is there with VERSION_1 */
struct net_header {
    uint8_t flags, gso_type;
    uint16_t hdr_len, gso_size, csum_start, csum_offset, num_buffers;
};
_Static_assert(sizeof(struct net_header) == 12, "virtio 1.2 §5.1.6");

/* §5.1.4; status and pairs are there with features that nobody offers */
struct net_config {
    uint8_t mac[NET_MAC_BYTES];
    uint16_t status, pairs, mtu;
};
_Static_assert(sizeof(struct net_config) == 12, "virtio 1.2 §5.1.4");

static size_t frame_max(const struct net *n)
{
    return n->v.driver_features & F_MTU ? NET_FRAME_MAX : NET_FRAME_PLAIN;
}

/* ---- from the guest to the wire ---- */

enum sent { SENT, DROPPED, WAITS };

/* §5.1.6.2: without offloads a header says nothing.  One that does asks for work that nobody
 * offered. */
static bool is_plain(const struct net *n, const struct net_header *h, size_t frame_bytes)
{
    return h->flags == 0 && h->gso_type == 0 && frame_bytes >= NET_FRAME_MIN &&
           frame_bytes <= frame_max(n);
}

static enum sent put_on_wire(struct net *n, struct span *frame)
{
    struct msghdr msg = {.msg_iov = frame->iov, .msg_iovlen = frame->n};
    ssize_t rc;
    do
        rc = sendmsg(n->wire, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (rc < 0 && errno == EINTR);
    if (rc >= 0)
        return SENT;
    if (errno == EAGAIN)
        return WAITS;
    n->wire_ended = n->wire_ended || errno == EPIPE || errno == ECONNRESET;
    return DROPPED;
}

static enum sent send_frame(struct net *n, struct span *out)
{
    struct net_header h;
    if (!span_take(out, &h, sizeof h) || !is_plain(n, &h, out->bytes) || n->wire_ended)
        return DROPPED;
    return put_on_wire(n, out);
}

static void take_frames(struct net *n)
{
    n->wire_full = false;
    for (int i = 0; i < QUEUE_LEN && virtio_pop(&n->v, QUEUE_TX, &n->chain); i++) {
        enum sent sent = n->chain.in.n > 0 ? DROPPED : send_frame(n, &n->chain.out);
        if (sent == WAITS) {
            virtio_unpop(&n->v, QUEUE_TX);
            n->wire_full = true;
            break;
        }
        n->dropped += sent == DROPPED;
        virtio_push(&n->v, QUEUE_TX, &n->chain, 0);
    }
    virtio_signal(&n->v, QUEUE_TX);
}

/* ---- from the wire to the guest ---- */

static bool can_feed(const struct net *n)
{
    return virtio_is_live(&n->v) && virtq_is_live(&n->v.queue[QUEUE_RX]) && !n->starved &&
           !n->wire_ended;
}

/* Room for the longest frame, or the device breaks (§5.1.6.3.1): a frame is never cut. */
static bool pop_room(struct net *n)
{
    if (!virtio_pop(&n->v, QUEUE_RX, &n->chain)) {
        n->starved = true;
        return false;
    }
    if (n->chain.out.n == 0 && n->chain.in.bytes >= sizeof(struct net_header) + frame_max(n))
        return true;
    virtio_fail(&n->v, VIRTQ_FAULT_SHAPE);
    return false;
}

enum got { GOT, TOO_LONG, NOTHING };

static enum got read_wire(struct net *n, struct span *room, size_t *ret_bytes)
{
    struct msghdr msg = {.msg_iov = room->iov, .msg_iovlen = room->n};
    ssize_t rc = recvmsg(n->wire, &msg, MSG_DONTWAIT);
    if (rc <= 0) {
        n->wire_ended = rc == 0 || (errno != EAGAIN && errno != EINTR);
        return NOTHING;
    }
    *ret_bytes = (size_t)rc;
    return msg.msg_flags & MSG_TRUNC ? TOO_LONG : GOT;
}

/* From the wire straight into the guest's buffer, behind the frame's header. */
static bool feed_one(struct net *n)
{
    struct iovec store[sizeof(struct net_header)];
    struct span front, *room = &n->chain.in;
    size_t bytes = 0;
    if (!pop_room(n))
        return false;
    span_split(room, sizeof(struct net_header), store, &front);
    span_limit(room, frame_max(n));
    enum got got = read_wire(n, room, &bytes);
    if (got != GOT) {
        virtio_unpop(&n->v, QUEUE_RX);
        n->dropped += got == TOO_LONG;
        return got == TOO_LONG;
    }
    struct net_header h = {.num_buffers = 1}; /* §5.1.6.4.1 */
    CL_ASSERT(span_put(&front, &h, sizeof h));
    virtio_push(&n->v, QUEUE_RX, &n->chain, (uint32_t)(sizeof h + bytes));
    return true;
}

static void feed_guest(struct net *n)
{
    for (int i = 0; i < NET_FRAMES_PER_TURN && can_feed(n); i++)
        if (!feed_one(n))
            break;
    virtio_signal(&n->v, QUEUE_RX);
}

/* ---- the device ---- */

static void net_notify(void *dev, unsigned queue)
{
    struct net *n = dev;
    if (queue == QUEUE_TX) {
        take_frames(n);
        return;
    }
    n->starved = false;
    feed_guest(n);
}

static void net_reset(void *dev)
{
    struct net *n = dev;
    n->starved = false;
    n->wire_full = false;
}

static void net_config_read(void *dev, uint32_t at, void *dst, uint32_t bytes)
{
    struct net_config c = {.mtu = NET_MTU};
    memcpy(c.mac, ((const struct net *)dev)->mac, sizeof c.mac);
    memcpy(dst, (const uint8_t *)&c + at, bytes);
}

static const struct virtio_ops net_ops = {
    .id = VIRTIO_NET,
    .n_queues = QUEUE_NR,
    .queue_max = QUEUE_LEN,
    .features = F_MAC | F_MTU,
    .notify = net_notify,
    .reset = net_reset,
    .config_bytes = sizeof(struct net_config),
    .config_read = net_config_read,
};

void net_init(struct net *n, int wire, const uint8_t mac[NET_MAC_BYTES],
              const struct guest_mem *mem, struct irq_line irq)
{
    *n = (struct net){.wire = wire};
    memcpy(n->mac, mac, NET_MAC_BYTES);
    virtio_init(&n->v, &net_ops, n, mem, irq);
}

short net_poll_events(const struct net *n)
{
    if (n->wire_ended || !virtio_is_live(&n->v))
        return 0;
    short events = can_feed(n) ? POLLIN : 0;
    return n->wire_full ? (short)(events | POLLOUT) : events;
}

void net_on_wire(struct net *n, short revents)
{
    if (revents == 0)
        return;
    if (n->wire_full)
        take_frames(n);
    feed_guest(n);
}

void net_save(const struct net *n, struct state_writer *w)
{
    state_begin(w, STATE_NET);
    state_put_bytes(w, n->mac, sizeof n->mac);
    virtio_save(&n->v, w);
    state_end(w);
}

int net_load(struct net *n, struct state_reader *r, struct cl_err *err)
{
    if (state_enter(r, STATE_NET, err) < 0)
        return -1;
    state_get_bytes(r, n->mac, sizeof n->mac);
    return virtio_load(&n->v, r, err) < 0 ? -1 : state_leave(r, err);
}
