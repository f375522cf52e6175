/* tests/unit/vmm/test_net.c - frames go through whole, in order, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/socket.h>

#include "tests/unit/vmm/driver.h"
#include "vmm/net.h"

enum {
    SIZE = 16,
    RX = 0,
    TX = 1,
    HEADER = 12,
    ROOM = 0x2800,
    TX_AT = DRV_DATA,
    RX_AT = DRV_DATA + SIZE / 2 * ROOM,
    F_MTU = 1 << 3
};
_Static_assert((int)ROOM >= (int)NET_FRAME_MAX + (int)HEADER, "the longest frame");
_Static_assert((int)RX_AT + (int)SIZE * (int)ROOM <= (int)DRV_RAM, "and all of them");

static const uint8_t mac[NET_MAC_BYTES] = {2, 0, 0, 1, 2, 3};
static struct drv drv;
static struct net net;
static int pair[2];
static uint16_t rx_seen, rx_head, tx_head;
static uint8_t frame[2 * NET_FRAME_MAX];

static int set_up(void **state)
{
    (void)state;
    drv_init(&drv);
    rx_seen = rx_head = tx_head = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    net_init(&net, pair[0], mac, &drv.mem, drv_irq(&drv));
    drv_start(&drv, &net.v, SIZE);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    if (pair[1] >= 0)
        (void)close(pair[1]);
    return close(pair[0]);
}

static void give_room(unsigned chains)
{
    for (unsigned i = 0; i < chains; i++, rx_head++) {
        const struct drv_desc piece = {RX_AT + (uint64_t)(rx_head % SIZE) * ROOM, ROOM, DRV_WRITE,
                                       0};
        drv_chain(&drv, RX, SIZE, rx_head % SIZE, &piece, 1);
    }
    drv_notify(&net.v, RX);
}

/* A frame of n bytes numbered `tag`, its header's first byte `flags`. */
static void send_frame(uint8_t tag, uint32_t n, uint8_t flags)
{
    uint8_t head = (uint8_t)(tx_head++ % (SIZE / 2)), header[HEADER] = {flags};
    uint64_t at = TX_AT + head * (uint64_t)ROOM;
    const struct drv_desc pieces[] = {{at, HEADER, 0, 0}, {at + HEADER, n, 0, 0}};
    memset(frame, tag, sizeof frame);
    drv_put(&drv, at, header, HEADER);
    drv_put(&drv, at + HEADER, frame, n);
    drv_chain(&drv, TX, SIZE, (uint16_t)(2 * head), pieces, 2);
    drv_notify(&net.v, TX);
}

/* Length of the frame that came to the guest, without its header; 0 = none. */
static uint32_t receive(uint8_t *tag)
{
    uint8_t bytes[HEADER + 1];
    if (rx_seen == drv_used_idx(&drv, RX))
        return 0;
    struct drv_used u = drv_used(&drv, RX, SIZE, rx_seen++);
    drv_get(&drv, RX_AT + (uint64_t)u.id * ROOM, bytes, sizeof bytes);
    assert_int_equal(bytes[10], 1); /* num_buffers */
    *tag = bytes[HEADER];
    return u.len - HEADER;
}

static void turn(void)
{
    struct pollfd p = {pair[0], net_poll_events(&net), 0};
    if (p.events != 0 && poll(&p, 1, 0) > 0)
        net_on_wire(&net, p.revents);
}

static void test_frames_go_both_ways(void **state)
{
    (void)state;
    uint8_t tag = 0;
    give_room(4);
    send_frame(7, 60, 0);
    send_frame(8, NET_FRAME_MAX, 0);
    assert_int_equal(recv(pair[1], frame, sizeof frame, 0), 60);
    assert_int_equal(frame[0], 7);
    assert_int_equal(recv(pair[1], frame, sizeof frame, 0), NET_FRAME_MAX);
    assert_int_equal(frame[NET_FRAME_MAX - 1], 8);
    frame[0] = 9;
    assert_int_equal(send(pair[1], frame, 100, 0), 100);
    assert_int_equal(send(pair[1], frame, NET_FRAME_MAX, 0), NET_FRAME_MAX);
    turn();
    assert_int_equal(receive(&tag), 100);
    assert_int_equal(tag, 9);
    assert_int_equal(receive(&tag), NET_FRAME_MAX);
    assert_int_equal(receive(&tag), 0);
    assert_int_equal(virtio_read(&net.v, 0x100, 4), 0x01000002);
    assert_int_equal(virtio_read(&net.v, 0x10a, 2), NET_MTU);
    assert_int_equal(net.dropped, 0);
}

static void test_frames_that_are_dropped(void **state)
{
    (void)state;
    send_frame(1, NET_FRAME_MAX + 1, 0);
    send_frame(2, NET_FRAME_MIN - 1, 0);
    send_frame(3, 60, 1); /* a checksum that nobody offered to fill */
    assert_int_equal(recv(pair[1], frame, sizeof frame, 0), -1);
    assert_int_equal(net.dropped, 3);
    assert_int_equal(drv_used_idx(&drv, TX), 3);
    uint8_t tag;
    give_room(2);
    assert_int_equal(send(pair[1], frame, NET_FRAME_MAX + 1, 0), NET_FRAME_MAX + 1);
    assert_int_equal(send(pair[1], frame, 60, 0), 60);
    turn();
    assert_int_equal(receive(&tag), 60);
    assert_int_equal(net.dropped, 4);
    assert_int_equal(net.v.status, 0xf);
}

static void test_a_driver_without_an_mtu_has_short_frames(void **state)
{
    (void)state;
    uint8_t tag;
    net.v.driver_features &= ~(uint64_t)F_MTU;
    give_room(2);
    send_frame(1, NET_FRAME_PLAIN, 0);
    send_frame(2, NET_FRAME_PLAIN + 1, 0);
    assert_int_equal(recv(pair[1], frame, sizeof frame, 0), NET_FRAME_PLAIN);
    assert_int_equal(recv(pair[1], frame, sizeof frame, 0), -1);
    assert_int_equal(send(pair[1], frame, NET_FRAME_PLAIN + 1, 0), NET_FRAME_PLAIN + 1);
    assert_int_equal(send(pair[1], frame, NET_FRAME_PLAIN, 0), NET_FRAME_PLAIN);
    turn();
    assert_int_equal(receive(&tag), NET_FRAME_PLAIN);
    assert_int_equal(receive(&tag), 0);
    assert_int_equal(net.dropped, 2);
}

static void test_a_full_wire_stops_the_guest_and_loses_nothing(void **state)
{
    (void)state;
    enum { TOTAL = 2000 };
    unsigned sent = 0, taken = 0;
    while (taken < TOTAL) {
        for (; sent < TOTAL && (uint16_t)(tx_head - drv_used_idx(&drv, TX)) < SIZE / 2; sent++)
            send_frame((uint8_t)sent, 1000, 0);
        assert_true(net.wire_full || sent == TOTAL);
        while (recv(pair[1], frame, sizeof frame, 0) > 0)
            assert_int_equal(frame[0], (uint8_t)taken++);
        turn();
    }
    assert_int_equal(net.dropped, 0);
    assert_int_equal(net_poll_events(&net), POLLIN * !net.starved);
}

static void test_a_guest_without_room_stops_the_wire(void **state)
{
    (void)state;
    uint8_t tag;
    give_room(1);
    for (uint8_t i = 0; i < 3; i++)
        assert_int_equal(send(pair[1], memset(frame, i, 60), 60, 0), 60);
    turn();
    assert_int_equal(receive(&tag), 60);
    assert_int_equal(net_poll_events(&net), 0);
    give_room(2);
    for (uint8_t i = 1; i < 3; i++) {
        assert_int_equal(receive(&tag), 60);
        assert_int_equal(tag, i);
    }
}

static void test_room_that_is_too_small_breaks_the_device(void **state)
{
    (void)state;
    const struct drv_desc piece = {RX_AT, HEADER + NET_FRAME_MAX - 1, DRV_WRITE, 0};
    drv_chain(&drv, RX, SIZE, 0, &piece, 1);
    drv_notify(&net.v, RX);
    assert_int_equal(net.v.fault, VIRTQ_FAULT_SHAPE);
    assert_int_equal(net_poll_events(&net), 0);
}

static void test_a_wire_that_ends_is_polled_no_more(void **state)
{
    (void)state;
    give_room(1);
    assert_int_equal(close(pair[1]), 0);
    pair[1] = -1;
    turn();
    assert_int_equal(net_poll_events(&net), 0);
    send_frame(1, 60, 0);
    assert_int_equal(net.dropped, 1);
    net.wire_ended = false;
    send_frame(1, 60, 0);
    assert_true(net.wire_ended);
}

static void test_the_state_comes_back(void **state)
{
    (void)state;
    static struct net back;
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    uint8_t data[512], tag, other[NET_MAC_BYTES] = {0};
    size_t n = 0;
    give_room(2);
    drv_state_begin(&w, data, sizeof data);
    net_save(&net, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    net_init(&back, pair[0], other, &drv.mem, drv_irq(&drv));
    assert_int_equal(state_reader_init(&r, data, n, &head, NULL), 0);
    assert_int_equal(net_load(&back, &r, NULL), 0);
    assert_int_equal(state_reader_finish(&r, NULL), 0);
    assert_memory_equal(back.mac, mac, sizeof mac);
    assert_int_equal(send(pair[1], frame, 60, 0), 60);
    virtio_kick(&back.v);
    assert_int_equal(receive(&tag), 60);
    assert_int_equal(net_load(&back, &r, NULL), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_frames_go_both_ways),
        T(test_frames_that_are_dropped),
        T(test_a_driver_without_an_mtu_has_short_frames),
        T(test_a_full_wire_stops_the_guest_and_loses_nothing),
        T(test_a_guest_without_room_stops_the_wire),
        T(test_room_that_is_too_small_breaks_the_device),
        T(test_a_wire_that_ends_is_polled_no_more),
        T(test_the_state_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
