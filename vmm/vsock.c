/* vmm/vsock.c - see vsock.h. */
#include "vmm/vsock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { QUEUE_RX, QUEUE_TX, QUEUE_EVENT, QUEUE_NR, QUEUE_LEN = 256 };

/* §5.10.6 */
struct packet {
    uint64_t src_cid, dst_cid;
    uint32_t src_port, dst_port;
    uint32_t len;
    uint16_t type, op;
    uint32_t flags, buf_alloc, fwd_cnt;
} __attribute__((packed));
_Static_assert(sizeof(struct packet) == 44, "virtio 1.2 §5.10.6");

enum { TYPE_STREAM = 1 };
enum op {
    OP_REQUEST = 1,
    OP_RESPONSE,
    OP_RST,
    OP_SHUTDOWN,
    OP_RW,
    OP_CREDIT_UPDATE,
    OP_CREDIT_REQUEST,
};
enum { SHUT_NO_RECEIVE = 1, SHUT_NO_SEND = 2, SHUT_BOTH = 3 }; /* §5.10.6.5 */

/* struct vsock's `owed`, in the order in which they are sent. */
enum owed { OWE_RESPONSE = 1, OWE_CREDIT = 2, OWE_SHUTDOWN = 4, OWE_RST = 8, OWE_ALL = 15 };

_Static_assert((VSOCK_BUF_BYTES & (VSOCK_BUF_BYTES - 1)) == 0, "positions are taken modulo this");
_Static_assert(sizeof(((struct vsock *)0)->buf) == VSOCK_BUF_BYTES, "and it is the buffer's size");

/* ---- the buffer from guest to host ---- */

static uint32_t buffered(const struct vsock *s)
{
    return s->rx_cnt - s->fwd_cnt;
}

/* The part of the ring from a position on, without the wrap. */
static struct iovec ring_piece(struct vsock *s, uint32_t position, uint32_t n)
{
    uint32_t at = position % VSOCK_BUF_BYTES;
    return (struct iovec){s->buf + at, CL_MIN(n, VSOCK_BUF_BYTES - at)};
}

static void buffer_bytes(struct vsock *s, struct span *data, uint32_t n)
{
    while (n > 0) {
        struct iovec piece = ring_piece(s, s->rx_cnt, n);
        CL_ASSERT(span_take(data, piece.iov_base, piece.iov_len));
        s->rx_cnt += (uint32_t)piece.iov_len;
        n -= (uint32_t)piece.iov_len;
    }
}

/* The host is not there any more: what it did not take has no taker. */
static void lose_host(struct vsock *s)
{
    s->fwd_cnt = s->rx_cnt;
    s->host_ended = true;
    s->owed = OWE_RST;
    s->state = VSOCK_CLOSING;
}

static void drain_to_host(struct vsock *s)
{
    while (buffered(s) > 0) {
        struct iovec piece = ring_piece(s, s->fwd_cnt, buffered(s));
        ssize_t n = send(s->channel, piece.iov_base, piece.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            lose_host(s);
        else
            s->fwd_cnt += (uint32_t)n;
    }
}

/* ---- packets to the guest ---- */

/* A chain of the receive queue with room for a packet; false when there is none. */
static bool pop_room(struct vsock *s)
{
    if (!virtio_pop(&s->v, QUEUE_RX, &s->chain)) {
        s->starved = true;
        return false;
    }
    if (s->chain.out.n == 0 && s->chain.in.bytes > sizeof(struct packet))
        return true;
    virtio_fail(&s->v, VIRTQ_FAULT_SHAPE);
    return false;
}

static struct packet packet_to_guest(const struct vsock *s, enum op op, uint32_t flags)
{
    return (struct packet){.src_cid = VSOCK_HOST_CID,
                           .dst_cid = s->guest_cid,
                           .src_port = VSOCK_AGENT_PORT,
                           .dst_port = s->guest_port,
                           .type = TYPE_STREAM,
                           .op = (uint16_t)op,
                           .flags = flags,
                           .buf_alloc = VSOCK_BUF_BYTES,
                           .fwd_cnt = s->fwd_cnt};
}

static bool send_control(struct vsock *s, const struct packet *p)
{
    if (!pop_room(s))
        return false;
    CL_ASSERT(span_put(&s->chain.in, p, sizeof *p));
    virtio_push(&s->v, QUEUE_RX, &s->chain, sizeof *p);
    return true;
}

/* The guest may have forgotten half of its credit, but never all of it. */
static void owe_credit(struct vsock *s)
{
    if (s->state == VSOCK_OPEN && s->fwd_cnt - s->fwd_said >= VSOCK_BUF_BYTES / 2)
        s->owed |= OWE_CREDIT;
}

static bool send_owed(struct vsock *s)
{
    static const struct {
        enum owed bit;
        enum op op;
        uint32_t flags;
    } rows[] = {
        {OWE_RESPONSE, OP_RESPONSE, 0},
        {OWE_CREDIT, OP_CREDIT_UPDATE, 0},
        {OWE_SHUTDOWN, OP_SHUTDOWN, SHUT_NO_SEND},
        {OWE_RST, OP_RST, 0},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (!(s->owed & rows[i].bit))
            continue;
        struct packet p = packet_to_guest(s, rows[i].op, rows[i].flags);
        if (!send_control(s, &p))
            return false;
        s->owed &= ~(uint32_t)rows[i].bit;
        s->fwd_said = p.fwd_cnt;
    }
    return true;
}

static bool send_resets(struct vsock *s)
{
    while (s->n_strangers > 0) {
        const struct vsock_stranger *to = &s->strangers[s->n_strangers - 1];
        struct packet p = {.src_cid = to->dst_cid,
                           .dst_cid = s->guest_cid,
                           .src_port = to->dst_port,
                           .dst_port = to->src_port,
                           .type = to->type,
                           .op = OP_RST};
        if (!send_control(s, &p))
            return false;
        s->n_strangers--;
    }
    return true;
}

/* §5.10.6.3.  A guest that lies about what it took has no credit until it says something that can
 * be; one that lies about its room fills its own memory, as far as it gave us buffers. */
static uint32_t credit(const struct vsock *s)
{
    uint32_t on_the_way = s->tx_cnt - s->peer_fwd;
    return on_the_way < s->peer_alloc ? s->peer_alloc - on_the_way : 0;
}

static bool can_feed(const struct vsock *s)
{
    return s->state == VSOCK_OPEN && virtio_is_live(&s->v) && !s->host_ended && !s->starved &&
           !(s->guest_shut & SHUT_NO_RECEIVE) && !(s->owed & OWE_RESPONSE) && credit(s) > 0;
}

/* Nothing came from the host: the chain goes back, and perhaps the connection ends. */
static void no_data(struct vsock *s, ssize_t n)
{
    virtio_unpop(&s->v, QUEUE_RX);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        lose_host(s);
        return;
    }
    s->host_ended = true;
    s->owed |= OWE_SHUTDOWN;
}

/* From the channel straight into the guest's buffer, behind the packet's header. */
static bool feed_one(struct vsock *s)
{
    struct iovec store[sizeof(struct packet)];
    struct span front, *data = &s->chain.in;
    if (!pop_room(s))
        return false;
    span_split(data, sizeof(struct packet), store, &front);
    span_limit(data, CL_MIN(credit(s), VSOCK_PACKET_MAX));
    struct msghdr msg = {.msg_iov = data->iov, .msg_iovlen = data->n};
    ssize_t n = recvmsg(s->channel, &msg, MSG_DONTWAIT);
    if (n <= 0) {
        no_data(s, n);
        return false;
    }
    struct packet p = packet_to_guest(s, OP_RW, 0);
    p.len = (uint32_t)n;
    CL_ASSERT(span_put(&front, &p, sizeof p));
    s->tx_cnt += (uint32_t)n;
    s->fwd_said = p.fwd_cnt;
    virtio_push(&s->v, QUEUE_RX, &s->chain, (uint32_t)(sizeof p + (size_t)n));
    return true;
}

static void feed_guest(struct vsock *s)
{
    for (int i = 0; i < VSOCK_PACKETS_PER_TURN && can_feed(s); i++)
        if (!feed_one(s))
            break;
}

/* ---- packets from the guest ---- */

static void owe_reset(struct vsock *s, const struct packet *p)
{
    if (p->op == OP_RST) /* two ends that answer each other's RST would never stop */
        return;
    CL_ASSERT(s->n_strangers < VSOCK_RESETS_MAX);
    s->strangers[s->n_strangers++] =
        (struct vsock_stranger){p->dst_cid, p->src_port, p->dst_port, p->type};
}

static void on_request(struct vsock *s, const struct packet *p)
{
    s->state = VSOCK_OPEN;
    s->guest_port = p->src_port;
    s->owed = OWE_RESPONSE;
}

static void on_shutdown(struct vsock *s, const struct packet *p)
{
    s->guest_shut |= p->flags & SHUT_BOTH;
    if (s->guest_shut != SHUT_BOTH)
        return;
    s->state = VSOCK_CLOSING;
    s->owed = OWE_RST;
}

/* More than its credit is a lie (§5.10.6.3.1), and there is no room for it. */
static void on_data(struct vsock *s, const struct packet *p, struct span *data)
{
    if (s->guest_shut & SHUT_NO_SEND)
        owe_reset(s, p);
    else if (p->len > VSOCK_BUF_BYTES - buffered(s))
        virtio_fail(&s->v, VIRTQ_FAULT_CREDIT);
    else
        buffer_bytes(s, data, p->len);
}

/* A packet of the connection; each one says the guest's credit. */
static void on_packet(struct vsock *s, const struct packet *p, struct span *data)
{
    s->peer_alloc = p->buf_alloc;
    s->peer_fwd = p->fwd_cnt;
    switch (p->op) {
    case OP_REQUEST:
        on_request(s, p);
        break;
    case OP_RST:
        s->state = VSOCK_CLOSING;
        s->owed = 0;
        break;
    case OP_SHUTDOWN:
        on_shutdown(s, p);
        break;
    case OP_RW:
        on_data(s, p, data);
        break;
    case OP_CREDIT_REQUEST:
        s->owed |= OWE_CREDIT;
        break;
    case OP_CREDIT_UPDATE:
        break;
    default:
        owe_reset(s, p);
    }
}

/* To our port, and either the request that opens or from the one who opened. */
static bool is_for_us(const struct vsock *s, const struct packet *p)
{
    if (p->dst_cid != VSOCK_HOST_CID || p->dst_port != VSOCK_AGENT_PORT || p->type != TYPE_STREAM)
        return false;
    if (p->op == OP_REQUEST)
        return s->state == VSOCK_IDLE;
    return s->state == VSOCK_OPEN && p->src_port == s->guest_port;
}

static enum virtq_fault take_packet(struct vsock *s)
{
    struct packet p;
    struct span *out = &s->chain.out;
    if (s->chain.in.n > 0 || !span_take(out, &p, sizeof p))
        return VIRTQ_FAULT_SHAPE;
    if (p.len > VSOCK_PACKET_MAX || p.len > out->bytes)
        return VIRTQ_FAULT_PACKET;
    if (p.src_cid != s->guest_cid) /* in nobody's name but its own (§5.10.6.4.1) */
        s->v.refused++;
    else if (is_for_us(s, &p))
        on_packet(s, &p, out);
    else
        owe_reset(s, &p);
    return VIRTQ_NO_FAULT;
}

static void take_packets(struct vsock *s)
{
    for (int i = 0; i < QUEUE_LEN; i++) {
        if (s->n_strangers == VSOCK_RESETS_MAX && !send_resets(s))
            break; /* go on when the guest gives room */
        if (!virtio_pop(&s->v, QUEUE_TX, &s->chain))
            break;
        enum virtq_fault fault = take_packet(s);
        if (fault != VIRTQ_NO_FAULT)
            virtio_fail(&s->v, fault);
        virtio_push(&s->v, QUEUE_TX, &s->chain, 0);
    }
    virtio_signal(&s->v, QUEUE_TX);
}

/* ---- the device ---- */

/* What ends when all bytes have gone to the host. */
static void end_what_is_over(struct vsock *s)
{
    if (s->state == VSOCK_OPEN && !virtio_is_live(&s->v))
        s->state = VSOCK_CLOSING; /* the guest broke the device or reset it */
    if (buffered(s) > 0 || s->state == VSOCK_IDLE || s->state == VSOCK_GONE)
        return;
    bool no_more = s->state == VSOCK_CLOSING || (s->guest_shut & SHUT_NO_SEND);
    if (no_more && !s->half_closed) {
        (void)shutdown(s->channel, SHUT_WR); /* fails when the host has gone: then it knows */
        s->half_closed = true;
    }
    if (s->state == VSOCK_CLOSING)
        s->state = VSOCK_GONE;
}

static void pump(struct vsock *s)
{
    take_packets(s);
    drain_to_host(s);
    owe_credit(s);
    if (send_owed(s) && send_resets(s))
        feed_guest(s);
    (void)send_owed(s); /* that the host has ended */
    virtio_signal(&s->v, QUEUE_RX);
    end_what_is_over(s);
}

static void vsock_notify(void *dev, unsigned queue)
{
    struct vsock *s = dev;
    if (queue == QUEUE_EVENT) /* the guest's buffers for events; there are none to tell */
        return;
    if (queue == QUEUE_RX)
        s->starved = false;
    pump(s);
}

/* The guest forgot the connection.  What it has sent still goes to the host. */
static void vsock_reset(void *dev)
{
    struct vsock *s = dev;
    s->owed = 0;
    s->n_strangers = 0;
    s->starved = false;
    drain_to_host(s);
    end_what_is_over(s);
}

static void vsock_config_read(void *dev, uint32_t at, void *dst, uint32_t n)
{
    const struct vsock *s = dev;
    memcpy(dst, (const uint8_t *)&s->guest_cid + at, n);
}

static const struct virtio_ops vsock_ops = {
    .id = VIRTIO_VSOCK,
    .n_queues = QUEUE_NR,
    .queue_max = QUEUE_LEN,
    .notify = vsock_notify,
    .reset = vsock_reset,
    .config_bytes = sizeof(uint64_t),
    .config_read = vsock_config_read,
};

int vsock_init(struct vsock *s, uint32_t guest_cid, const struct guest_mem *mem,
               struct irq_line irq, int channel_fd)
{
    CL_ASSERT(guest_cid > VSOCK_HOST_CID);
    memset(s, 0, offsetof(struct vsock, chain)); /* not the buffer: its pages cost when touched */
    s->channel = channel_fd;
    s->guest_cid = guest_cid;
    s->state = VSOCK_IDLE;
    virtio_init(&s->v, &vsock_ops, s, mem, irq);
    return 0;
}

short vsock_poll_events(const struct vsock *s)
{
    short events = can_feed(s) ? POLLIN : 0;
    return buffered(s) > 0 ? (short)(events | POLLOUT) : events;
}

void vsock_on_host(struct vsock *s, short revents)
{
    if (revents != 0)
        pump(s);
}

/* ---- state ---- */

void vsock_save(const struct vsock *s, struct state_writer *w)
{
    state_begin(w, STATE_VSOCK);
    virtio_save(&s->v, w);
    state_put_u64(w, s->guest_cid);
    state_put_u32(w, s->state);
    state_put_u32(w, s->guest_port);
    state_put_u32(w, s->peer_alloc);
    state_put_u32(w, s->peer_fwd);
    state_put_u32(w, s->tx_cnt);
    state_put_u32(w, s->rx_cnt);
    state_put_u32(w, s->fwd_cnt);
    state_put_u32(w, s->fwd_said);
    state_put_u32(w, s->guest_shut);
    state_put_u32(w, s->owed);
    state_put_u8(w, s->host_ended);
    state_put_u32(w, s->n_strangers);
    for (unsigned i = 0; i < s->n_strangers; i++) {
        state_put_u64(w, s->strangers[i].dst_cid);
        state_put_u32(w, s->strangers[i].src_port);
        state_put_u32(w, s->strangers[i].dst_port);
        state_put_u16(w, s->strangers[i].type);
    }
    for (uint32_t at = s->fwd_cnt; at != s->rx_cnt; at++)
        state_put_u8(w, s->buf[at % VSOCK_BUF_BYTES]);
    state_end(w);
}

static void load_strangers(struct vsock *s, struct state_reader *r)
{
    for (unsigned i = 0; i < s->n_strangers; i++) {
        s->strangers[i].dst_cid = state_get_u64(r);
        s->strangers[i].src_port = state_get_u32(r);
        s->strangers[i].dst_port = state_get_u32(r);
        s->strangers[i].type = state_get_u16(r);
    }
}

/* Every count that something is measured by; the others are the guest's own words. */
static bool counts_can_be(const struct vsock *s, uint64_t cid, uint32_t state, uint8_t host_ended)
{
    return cid == s->guest_cid && state >= VSOCK_IDLE && state <= VSOCK_GONE && host_ended <= 1 &&
           buffered(s) <= VSOCK_BUF_BYTES && s->guest_shut <= SHUT_BOTH && s->owed <= OWE_ALL &&
           s->n_strangers <= VSOCK_RESETS_MAX && (state != VSOCK_IDLE || buffered(s) == 0);
}

static int load_connection(struct vsock *s, struct state_reader *r, struct cl_err *err)
{
    uint64_t cid = state_get_u64(r);
    uint32_t state = state_get_u32(r);
    s->guest_port = state_get_u32(r);
    s->peer_alloc = state_get_u32(r);
    s->peer_fwd = state_get_u32(r);
    s->tx_cnt = state_get_u32(r);
    s->rx_cnt = state_get_u32(r);
    s->fwd_cnt = state_get_u32(r);
    s->fwd_said = state_get_u32(r);
    s->guest_shut = state_get_u32(r);
    s->owed = state_get_u32(r);
    uint8_t host_ended = state_get_u8(r);
    s->n_strangers = state_get_u32(r);
    if (!counts_can_be(s, cid, state, host_ended))
        return cl_fail(err, CL_E_INVALID, 0, "saved vsock is not one that can be");
    s->state = (enum vsock_state)state;
    s->host_ended = host_ended == 1;
    return 0;
}

int vsock_load(struct vsock *s, struct state_reader *r, struct cl_err *err)
{
    if (state_enter(r, STATE_VSOCK, err) < 0 || virtio_load(&s->v, r, err) < 0 ||
        load_connection(s, r, err) < 0)
        return -1;
    load_strangers(s, r);
    for (uint32_t at = s->fwd_cnt; at != s->rx_cnt; at++)
        s->buf[at % VSOCK_BUF_BYTES] = state_get_u8(r);
    return state_leave(r, err);
}
