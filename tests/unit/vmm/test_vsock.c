/* tests/unit/vmm/test_vsock.c - the one connection: no byte lost, none held without a bound, and
 * every lie about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/socket.h>

#include "tests/unit/vmm/driver.h"
#include "vmm/vsock.h"

enum {
    SIZE = 64,
    CID = 3,
    PORT = 5000,
    TX_AT = DRV_DATA,
    RX_AT = DRV_DATA + 0x20000,
    RX_ROOM = 0x1000
};
enum { RX, TX };
enum { REQUEST = 1, RESPONSE, RST, SHUTDOWN, RW, CREDIT_UPDATE, CREDIT_REQUEST };

struct packet {
    uint64_t src_cid, dst_cid;
    uint32_t src_port, dst_port;
    uint32_t len;
    uint16_t type, op;
    uint32_t flags, buf_alloc, fwd_cnt;
} __attribute__((packed));

static struct drv drv;
static struct vsock dev;
static int host; /* the worker's end of the channel */
static int inner;
static uint16_t rx_seen, tx_head, rx_head;
static uint32_t guest_alloc, guest_fwd;

static void give_room(unsigned chains)
{
    for (unsigned i = 0; i < chains; i++, rx_head++) {
        const struct drv_desc piece = {RX_AT + (uint64_t)(rx_head % SIZE) * RX_ROOM, RX_ROOM,
                                       DRV_WRITE, 0};
        drv_chain(&drv, RX, SIZE, rx_head % SIZE, &piece, 1);
    }
    drv_notify(&dev.v, RX);
}

static int set_up(void **state)
{
    (void)state;
    int pair[2];
    drv_init(&drv);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    inner = pair[0];
    host = pair[1];
    rx_seen = tx_head = rx_head = 0;
    guest_alloc = 0x10000;
    guest_fwd = 0;
    if (vsock_init(&dev, CID, &drv.mem, drv_irq(&drv), inner) < 0)
        return -1;
    drv_start(&drv, &dev.v, SIZE);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    if (host >= 0)
        (void)close(host);
    return close(inner);
}

static struct packet packet(uint16_t op)
{
    return (struct packet){.src_cid = CID,
                           .dst_cid = 2,
                           .src_port = PORT,
                           .dst_port = 1024,
                           .type = 1,
                           .op = op,
                           .buf_alloc = guest_alloc,
                           .fwd_cnt = guest_fwd};
}

/* A packet without data has a place of its own, as it may have to wait there. */
static void send_packet(struct packet p, const void *data, uint32_t n)
{
    uint16_t head = (uint16_t)(tx_head++ % (SIZE / 2) * 2);
    uint64_t at = TX_AT + (n == 0 ? head * 64u : 0);
    const struct drv_desc pieces[] = {{at, sizeof p, 0, 0}, {at + sizeof p, n, 0, 0}};
    drv_put(&drv, at, &p, sizeof p);
    drv_put(&drv, at + sizeof p, data, n);
    drv_chain(&drv, TX, SIZE, head, pieces, n > 0 ? 2 : 1);
    drv_notify(&dev.v, TX);
}

static void send_op(uint16_t op)
{
    send_packet(packet(op), "", 0);
}

static void send_data(const void *data, uint32_t n)
{
    struct packet p = packet(RW);
    p.len = n;
    send_packet(p, data, n);
}

/* The next packet that the guest got; op 0 when there is none.  Its data goes to `data`. */
static struct packet receive(uint8_t *data)
{
    struct packet p = {0};
    if (rx_seen == drv_used_idx(&drv, RX))
        return p;
    struct drv_used u = drv_used(&drv, RX, SIZE, rx_seen++);
    uint64_t at = RX_AT + (uint64_t)u.id * RX_ROOM;
    drv_get(&drv, at, &p, sizeof p);
    assert_int_equal(u.len, sizeof p + p.len);
    if (data)
        drv_get(&drv, at + sizeof p, data, p.len);
    return p;
}

static void turn(void)
{
    struct pollfd p = {inner, vsock_poll_events(&dev), 0};
    if (p.events != 0 && poll(&p, 1, 0) > 0)
        vsock_on_host(&dev, p.revents);
}

static void connect_guest(void)
{
    give_room(16);
    send_op(REQUEST);
    struct packet p = receive(NULL);
    assert_int_equal(p.op, RESPONSE);
    assert_int_equal(p.src_cid, 2);
    assert_int_equal(p.dst_cid, CID);
    assert_int_equal(p.src_port, 1024);
    assert_int_equal(p.dst_port, PORT);
    assert_int_equal(p.buf_alloc, VSOCK_BUF_BYTES);
    assert_int_equal(dev.state, VSOCK_OPEN);
}

static void test_bytes_go_both_ways(void **state)
{
    (void)state;
    char got[16] = "";
    uint8_t data[RX_ROOM] = "";
    assert_int_equal(send(host, "early", 5, 0), 5); /* waits for the connection */
    assert_int_equal(vsock_poll_events(&dev), 0);
    connect_guest();
    struct packet p = receive(data);
    assert_int_equal(p.op, RW);
    assert_memory_equal(data, "early", 5);
    send_data("hello", 5);
    assert_int_equal(recv(host, got, sizeof got, 0), 5);
    assert_string_equal(got, "hello");
    assert_int_equal(send(host, "later", 5, 0), 5);
    turn();
    p = receive(data);
    assert_int_equal(p.len, 5);
    assert_int_equal(p.fwd_cnt, 5);
    assert_memory_equal(data, "later", 5);
    assert_int_equal(dev.v.status, 0xf);
}

/* A stream of numbered bytes through a host that takes a little now and then. */
static void test_no_byte_is_lost_when_the_host_is_slow(void **state)
{
    (void)state;
    enum { TOTAL = 4 << 20, STEP = 8192 };
    static uint8_t bytes[STEP];
    uint32_t sent = 0, taken = 0, fwd = 0, most = 0;
    connect_guest();
    for (unsigned i = 0; taken < TOTAL; i++) {
        while (sent < TOTAL && sent - fwd + STEP <= VSOCK_BUF_BYTES) {
            for (uint32_t j = 0; j < STEP; j++, sent++)
                bytes[j] = (uint8_t)(sent % 251);
            send_data(bytes, STEP);
        }
        most = CL_MAX(most, dev.rx_cnt - dev.fwd_cnt);
        ssize_t n = recv(host, bytes, i % 3 ? sizeof bytes : 1, 0);
        for (ssize_t j = 0; j < n; j++, taken++)
            assert_int_equal(bytes[j], taken % 251);
        turn();
        for (struct packet p = receive(NULL); p.op; p = receive(NULL)) {
            assert_int_equal(p.op, CREDIT_UPDATE);
            fwd = p.fwd_cnt;
            give_room(1);
        }
    }
    assert_int_equal(dev.v.status, 0xf);
    assert_true(most > VSOCK_BUF_BYTES / 2);
}

static void test_no_byte_is_lost_when_the_guest_is_slow(void **state)
{
    (void)state;
    enum { TOTAL = 1 << 20, STEP = 5000 };
    static uint8_t bytes[STEP], data[RX_ROOM];
    uint32_t sent = 0, taken = 0;
    connect_guest();
    while (taken < TOTAL) {
        for (uint32_t j = 0; j < STEP; j++)
            bytes[j] = (uint8_t)((sent + j) % 251);
        ssize_t n = send(host, bytes, CL_MIN(STEP, TOTAL - sent), MSG_DONTWAIT);
        sent += n > 0 ? (uint32_t)n : 0;
        turn();
        assert_true(dev.tx_cnt - guest_fwd <= guest_alloc);
        struct packet p = receive(data);
        for (uint32_t j = 0; j < p.len; j++, taken++)
            assert_int_equal(data[j], taken % 251);
        guest_fwd += p.len;
        if (p.op)
            give_room(1);
        else
            send_op(CREDIT_UPDATE);
    }
    assert_int_equal(dev.v.status, 0xf);
}

static void test_without_credit_or_room_nobody_polls(void **state)
{
    (void)state;
    uint8_t data[RX_ROOM];
    guest_alloc = 3;
    connect_guest();
    assert_int_equal(send(host, "abcdef", 6, 0), 6);
    turn();
    assert_int_equal(receive(data).len, 3);
    assert_int_equal(vsock_poll_events(&dev), 0);
    guest_fwd = 2;
    send_op(CREDIT_UPDATE);
    assert_int_equal(receive(data).len, 2);
    assert_memory_equal(data, "de", 2);
    guest_alloc = 0x10000;
    send_op(CREDIT_UPDATE);
    assert_int_equal(receive(data).len, 1);
    for (int i = 0; i < 12; i++) { /* uses up the rest of the sixteen */
        assert_int_equal(send(host, "x", 1, 0), 1);
        turn();
        assert_int_equal(receive(data).len, 1);
    }
    assert_int_equal(send(host, "x", 1, 0), 1);
    turn();
    assert_int_equal(vsock_poll_events(&dev), 0);
    give_room(1);
    assert_int_equal(receive(data).len, 1);
    give_room(1);
    assert_int_equal(vsock_poll_events(&dev), POLLIN);
}

static void test_strangers_get_a_reset(void **state)
{
    (void)state;
    static const struct packet rows[] = {
        {.src_cid = CID, .dst_cid = 2, .src_port = 9, .dst_port = 1025, .type = 1, .op = REQUEST},
        {.src_cid = CID,
         .dst_cid = 2,
         .src_port = 9,
         .dst_port = 1024,
         .type = 1,
         .op = REQUEST}, /* a second one */
        {.src_cid = CID, .dst_cid = 2, .src_port = 9, .dst_port = 1024, .type = 1, .op = RW},
        {.src_cid = CID,
         .dst_cid = 2,
         .src_port = 9,
         .dst_port = 1024,
         .type = 2,
         .op = REQUEST}, /* seqpacket */
        {.src_cid = CID, .dst_cid = 2, .src_port = 9, .dst_port = 1024, .type = 0xffff, .op = 0},
        {.src_cid = CID, .dst_cid = 2, .src_port = PORT, .dst_port = 1024, .type = 1, .op = 99},
        {.src_cid = CID,
         .dst_cid = 2,
         .src_port = PORT,
         .dst_port = 1024,
         .type = 1,
         .op = RESPONSE},
        {.src_cid = CID,
         .dst_cid = 7,
         .src_port = PORT,
         .dst_port = 1024,
         .type = 1,
         .op = RW}, /* another guest */
        {.src_cid = CID,
         .dst_cid = UINT64_C(2) << 32 | 2,
         .src_port = 1,
         .dst_port = 1024,
         .type = 1,
         .op = RW},
    };
    connect_guest();
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        send_packet(rows[i], "", 0);
        struct packet p = receive(NULL);
        assert_int_equal(p.op, RST);
        assert_int_equal(p.dst_port, rows[i].src_port);
        assert_int_equal(p.src_port, rows[i].dst_port);
        assert_int_equal(p.src_cid, rows[i].dst_cid);
        assert_int_equal(p.type, rows[i].type);
        give_room(1);
    }
    assert_int_equal(dev.state, VSOCK_OPEN);
}

static void test_a_reset_is_not_answered_and_a_foreign_name_is_ignored(void **state)
{
    (void)state;
    struct packet p = packet(RST);
    connect_guest();
    p.src_port = 9;
    send_packet(p, "", 0);
    p = packet(RW);
    p.src_cid = 4;
    p.len = 5;
    send_packet(p, "bytes", 5);
    assert_int_equal(receive(NULL).op, 0);
    assert_int_equal(recv(host, &p, 1, 0), -1);
    assert_int_equal(dev.v.refused, 1);
}

static void test_strangers_wait_when_there_is_no_room(void **state)
{
    (void)state;
    struct packet p = packet(REQUEST);
    p.dst_port = 7;
    for (uint32_t i = 0; i < 30; i++) {
        p.src_port = 100 + i;
        send_packet(p, "", 0);
    }
    assert_int_equal(dev.n_strangers, VSOCK_RESETS_MAX);
    assert_int_equal(drv_used_idx(&drv, TX), VSOCK_RESETS_MAX);
    give_room(40);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 30; i++) {
        struct packet r = receive(NULL);
        assert_int_equal(r.op, RST);
        seen |= UINT64_C(1) << (r.dst_port - 100);
    }
    assert_int_equal(seen, (UINT64_C(1) << 30) - 1);
    assert_int_equal(drv_used_idx(&drv, TX), 30);
}

static void test_more_than_the_credit_breaks_the_device(void **state)
{
    (void)state;
    static uint8_t bytes[0x10000];
    ssize_t n, got = 0;
    connect_guest();
    for (int i = 0; i < 64 && dev.v.status == 0xf; i++)
        send_data(bytes, sizeof bytes);
    assert_int_equal(dev.v.fault, VIRTQ_FAULT_CREDIT);
    uint32_t kept = dev.rx_cnt;
    while ((n = recv(host, bytes, sizeof bytes, 0)) > 0 || dev.state != VSOCK_GONE) {
        got += n > 0 ? n : 0;
        turn();
    }
    while ((n = recv(host, bytes, sizeof bytes, 0)) > 0)
        got += n;
    assert_int_equal(n, 0); /* the host sees the end, and all that was inside the credit */
    assert_int_equal(got, kept);
}

static void test_lengths_that_lie(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {6, VSOCK_PACKET_MAX + 1, UINT32_MAX, UINT32_MAX - 43};
    for (size_t i = 0; i < CL_COUNT(lengths); i++) {
        struct packet p = packet(RW);
        p.len = lengths[i];
        tx_head = rx_head = rx_seen = 0;
        drv_start(&drv, &dev.v, SIZE);
        send_packet(p, "five.", 5);
        assert_int_equal(dev.v.fault, VIRTQ_FAULT_PACKET);
    }
}

static void test_chains_that_are_no_packet(void **state)
{
    (void)state;
    static const struct drv_desc bad[] = {{TX_AT, 43, 0, 0},
                                          {TX_AT, 44, DRV_WRITE, 0},
                                          {RX_AT, 44, DRV_WRITE, 0},
                                          {RX_AT, 4096, 0, 0}};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        unsigned queue = i < 2 ? TX : RX;
        rx_seen = tx_head = rx_head = 0;
        drv_start(&drv, &dev.v, SIZE);
        drv_chain(&drv, queue, SIZE, 0, &bad[i], 1);
        drv_notify(&dev.v, queue);
        if (queue == RX) {
            struct packet p = packet(REQUEST);
            p.dst_port = 1; /* an answer needs room */
            send_packet(p, "", 0);
        }
        assert_int_equal(dev.v.fault, VIRTQ_FAULT_SHAPE);
    }
}

static void test_a_guest_that_took_more_than_it_got_has_no_credit(void **state)
{
    (void)state;
    connect_guest();
    guest_fwd = 1;
    send_op(CREDIT_UPDATE);
    assert_int_equal(vsock_poll_events(&dev), 0);
    guest_fwd = 0;
    send_op(CREDIT_UPDATE);
    assert_int_equal(vsock_poll_events(&dev), POLLIN);
}

static void test_a_credit_request_is_answered(void **state)
{
    (void)state;
    connect_guest();
    send_data("abc", 3);
    send_op(CREDIT_REQUEST);
    struct packet p = receive(NULL);
    assert_int_equal(p.op, CREDIT_UPDATE);
    assert_int_equal(p.fwd_cnt, 3);
}

static void test_the_guest_closes(void **state)
{
    (void)state;
    char got[8];
    connect_guest();
    send_data("last", 4);
    struct packet p = packet(SHUTDOWN);
    p.flags = 3;
    send_packet(p, "", 0);
    assert_int_equal(receive(NULL).op, RST);
    assert_int_equal(dev.state, VSOCK_GONE);
    assert_int_equal(recv(host, got, sizeof got, 0), 4);
    assert_int_equal(recv(host, got, sizeof got, 0), 0);
    send_op(REQUEST); /* once in the device's life */
    assert_int_equal(receive(NULL).op, RST);
}

static void test_the_guest_resets_and_the_host_reads_the_rest(void **state)
{
    (void)state;
    char got[8];
    connect_guest();
    assert_int_equal(virtio_read(&dev.v, 0x100, 4), CID);
    assert_int_equal(virtio_read(&dev.v, 0x104, 4), 0);
    send_data("last", 4);
    send_op(RST);
    assert_int_equal(receive(NULL).op, 0);
    assert_int_equal(dev.state, VSOCK_GONE);
    assert_int_equal(recv(host, got, sizeof got, 0), 4);
    assert_int_equal(recv(host, got, sizeof got, 0), 0);
}

/* A host that leaves bytes unread resets its end: the guest hears of it. */
static void test_the_host_breaks_off(void **state)
{
    (void)state;
    connect_guest();
    send_data("unread", 6);
    assert_int_equal(close(host), 0);
    host = -1;
    turn();
    assert_int_equal(receive(NULL).op, RST);
    assert_int_equal(dev.state, VSOCK_GONE);
}

static void test_the_guest_closes_half(void **state)
{
    (void)state;
    char got[8];
    uint8_t data[RX_ROOM];
    connect_guest();
    struct packet p = packet(SHUTDOWN);
    p.flags = 2;
    send_packet(p, "", 0);
    assert_int_equal(recv(host, got, sizeof got, 0), 0);
    assert_int_equal(send(host, "still", 5, 0), 5);
    turn();
    assert_int_equal(receive(data).len, 5);
    send_data("no", 2);
    assert_int_equal(receive(NULL).op, RST);
    assert_int_equal(dev.state, VSOCK_OPEN);
}

static void test_the_host_ends(void **state)
{
    (void)state;
    connect_guest();
    assert_int_equal(shutdown(host, SHUT_WR), 0);
    turn();
    struct packet p = receive(NULL);
    assert_int_equal(p.op, SHUTDOWN);
    assert_int_equal(p.flags, 2);
    assert_int_equal(vsock_poll_events(&dev), 0);
    send_data("bye", 3);
    char got[4];
    assert_int_equal(recv(host, got, sizeof got, 0), 3);
    assert_int_equal(close(host), 0);
    host = -1;
    send_data("lost", 4);
    assert_int_equal(receive(NULL).op, RST);
    assert_int_equal(dev.state, VSOCK_GONE);
    assert_int_equal(vsock_poll_events(&dev), 0);
}

static void test_a_reset_of_the_device_ends_an_open_connection(void **state)
{
    (void)state;
    char got[8];
    drv_w(&dev.v, 0x70, 0);
    assert_int_equal(dev.state, VSOCK_IDLE); /* a driver resets before it starts */
    drv_start(&drv, &dev.v, SIZE);
    connect_guest();
    send_data("last", 4);
    drv_w(&dev.v, 0x70, 0);
    assert_int_equal(dev.state, VSOCK_GONE);
    assert_int_equal(recv(host, got, sizeof got, 0), 4);
    assert_int_equal(recv(host, got, sizeof got, 0), 0);
}

static uint8_t image[VSOCK_STATE_MAX + 64];

static size_t save(void)
{
    struct state_writer w;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    vsock_save(&dev, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    return n;
}

static int load(struct vsock *to, size_t n)
{
    struct state_reader r;
    struct state_head head;
    assert_int_equal(vsock_init(to, CID, &drv.mem, drv_irq(&drv), inner), 0);
    if (state_reader_init(&r, image, n, &head, NULL) < 0 || vsock_load(to, &r, NULL) < 0)
        return -1;
    return state_reader_finish(&r, NULL);
}

/* Save with bytes on the way in both directions; the other device goes on on another channel. */
static void test_a_connection_lives_on_in_a_clone(void **state)
{
    (void)state;
    static uint8_t bytes[0x8000];
    uint8_t data[RX_ROOM];
    int pair[2];
    ssize_t n;
    uint32_t on_old = 0, on_new = 0;
    connect_guest();
    for (int i = 0; i < 8; i++)
        send_data(bytes, sizeof bytes);
    size_t len = save();
    assert_true(dev.rx_cnt != dev.fwd_cnt);
    while ((n = recv(host, bytes, sizeof bytes, 0)) > 0)
        on_old += (uint32_t)n;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(close(inner) | close(host), 0);
    inner = pair[0];
    host = pair[1];
    assert_int_equal(load(&dev, len), 0);
    virtio_kick(&dev.v);
    while ((n = recv(host, bytes, sizeof bytes, 0)) > 0 || dev.rx_cnt != dev.fwd_cnt) {
        on_new += n > 0 ? (uint32_t)n : 0;
        turn();
    }
    while ((n = recv(host, bytes, sizeof bytes, 0)) > 0)
        on_new += (uint32_t)n;
    assert_int_equal(on_old + on_new, 8 * sizeof bytes);
    assert_int_equal(receive(NULL).op, CREDIT_UPDATE);
    while (receive(NULL).op == CREDIT_UPDATE)
        continue;
    assert_int_equal(send(host, "you", 3, 0), 3);
    turn();
    assert_int_equal(receive(data).len, 3);
    assert_memory_equal(data, "you", 3);
}

static void test_a_hostile_state_keeps_the_rules(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 4, 5, 0x10, 0x11, 0x7f, 0xff};
    static struct vsock back;
    connect_guest();
    dev.rx_cnt += 10; /* some bytes that the host did not take */
    dev.n_strangers = 2;
    size_t n = save();
    unsigned refused = 0;
    for (size_t at = STATE_HEAD_BYTES; at < n; at++) {
        uint8_t was = image[at];
        for (size_t i = 0; i < CL_COUNT(values); i++) {
            image[at] = values[i];
            if (load(&back, n) < 0) {
                refused++;
                continue;
            }
            assert_true(back.rx_cnt - back.fwd_cnt <= VSOCK_BUF_BYTES);
            virtio_kick(&back.v);
            vsock_on_host(&back, POLLIN);
        }
        image[at] = was;
    }
    assert_true(refused > 500);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_bytes_go_both_ways),
        T(test_no_byte_is_lost_when_the_host_is_slow),
        T(test_no_byte_is_lost_when_the_guest_is_slow),
        T(test_without_credit_or_room_nobody_polls),
        T(test_strangers_get_a_reset),
        T(test_a_reset_is_not_answered_and_a_foreign_name_is_ignored),
        T(test_strangers_wait_when_there_is_no_room),
        T(test_more_than_the_credit_breaks_the_device),
        T(test_lengths_that_lie),
        T(test_chains_that_are_no_packet),
        T(test_a_guest_that_took_more_than_it_got_has_no_credit),
        T(test_a_credit_request_is_answered),
        T(test_the_guest_closes),
        T(test_the_guest_resets_and_the_host_reads_the_rest),
        T(test_the_host_breaks_off),
        T(test_the_guest_closes_half),
        T(test_the_host_ends),
        T(test_a_reset_of_the_device_ends_an_open_connection),
        T(test_a_connection_lives_on_in_a_clone),
        T(test_a_hostile_state_keeps_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
