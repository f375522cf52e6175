/* Devices that the main thread serves, in the process with all its filters: the balloon and the
 * network card, driven by a guest that writes registers from a list. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/process.h"

/* Pairs of address and value are written from SCRIPT on until an address is 0; then the balloon's
 * target is copied to TARGET for ever. */
#define SCRIPT 0x200000
#define TARGET 0x1ff000
GUEST(drives, GUEST_MAP_DEVICES
      "mov $0x200000, %esi\n"
      "1: mov (%rsi), %rdi\n test %rdi, %rdi\n jz 2f\n mov 8(%rsi), %rax\n mov %eax, (%rdi)\n"
      "add $16, %rsi\n jmp 1b\n"
      "2: mov $0xd0004100, %edi\n 3: mov (%rdi), %eax\n mov %rax, 0x1ff000\n jmp 3b\n");

#define BALLOON UINT64_C(0xd0004000)
#define CARD UINT64_C(0xd0005000)
enum { INFLATE = 0, REPORTING = 2, RX = 0, TX = 1, SIZE = 16 };

static void put(const struct process *p, uint64_t at, const void *src, size_t n)
{
    assert_int_equal(pwrite(p->guest.ram_fd, src, n, (off_t)at), n);
}

struct script {
    const struct process *p;
    uint64_t at;
};

static void say(struct script *s, uint64_t address, uint64_t value)
{
    guest_poke(&s->p->guest, s->at, address);
    guest_poke(&s->p->guest, s->at + 8, value);
    s->at += 16;
}

/* virtio 1.2 §3.1.1 up to FEATURES_OK, with the one feature bit besides VERSION_1. */
static void negotiate(struct script *s, uint64_t device, uint32_t feature)
{
    say(s, device + 0x70, 0);
    say(s, device + 0x70, 1);
    say(s, device + 0x70, 3);
    say(s, device + 0x24, 0);
    say(s, device + 0x20, feature);
    say(s, device + 0x24, 1);
    say(s, device + 0x20, 1);
    say(s, device + 0x70, 0xb);
}

/* A queue with one chain of one piece, made available before the device looks. */
struct queue {
    uint32_t index;
    uint64_t rings, piece;
    uint32_t bytes;
    bool writable;
};

static void add_queue(struct script *s, uint64_t device, const struct queue *q)
{
    const struct {
        uint64_t addr;
        uint32_t len;
        uint16_t flags, next;
    } desc = {q->piece, q->bytes, q->writable ? 2 : 0, 0};
    const uint16_t avail[] = {0, 1, 0};
    put(s->p, q->rings, &desc, sizeof desc);
    put(s->p, q->rings + 0x1000, avail, sizeof avail);
    say(s, device + 0x30, q->index);
    say(s, device + 0x38, SIZE);
    say(s, device + 0x80, q->rings);
    say(s, device + 0x90, q->rings + 0x1000);
    say(s, device + 0xa0, q->rings + 0x2000);
    say(s, device + 0x44, 1);
}

static void go(struct script *s, uint64_t device, uint32_t first_queue, uint32_t second_queue)
{
    say(s, device + 0x70, 0xf);
    say(s, device + 0x50, first_queue);
    say(s, device + 0x50, second_queue);
}

static uint16_t used(const struct process *p, uint64_t rings)
{
    return (uint16_t)(guest_peek(&p->guest, rings + 0x2000) >> 16);
}

static void await(const struct process *p, uint64_t rings, uint16_t count)
{
    uint64_t deadline = cl_now_ns() + 20 * CL_NS_PER_S;
    while (used(p, rings) != count) {
        assert_true(cl_now_ns() < deadline);
        (void)usleep(1000);
    }
}

static void end(struct process *p)
{
    process_tell(p, CONTROL_STOP);
    process_hears_end(p, CONTROL_END_STOPPED, "stopped");
    process_close(p);
}

static void test_memory_that_a_guest_gives_leaves_the_host(void **state)
{
    (void)state;
    enum { PAGES = 16 };
    const uint64_t page = 0x400000, report = 0x600000, rings = 0x300000, list = 0x310000;
    uint32_t pfns[PAGES];
    struct process p;
    process_open(&p, guest_drives, guest_drives_end);
    struct script s = {&p, SCRIPT};
    for (uint32_t i = 0; i < PAGES; i++) {
        pfns[i] = (uint32_t)(page / 4096) + 2 * i;
        guest_poke(&p.guest, page + UINT64_C(4096) * i, 7);
        guest_poke(&p.guest, page + UINT64_C(4096) * (PAGES + i), 7);
    }
    guest_poke(&p.guest, report, 7);
    put(&p, list, pfns, sizeof pfns);
    negotiate(&s, BALLOON, 1 << 5);
    add_queue(&s, BALLOON, &(struct queue){INFLATE, rings, list, sizeof pfns, false});
    add_queue(&s, BALLOON, &(struct queue){REPORTING, rings + 0x3000, report, 8192, true});
    go(&s, BALLOON, INFLATE, REPORTING);
    process_boot(&p);
    await(&p, rings, 1);
    await(&p, rings + 0x3000, 1);
    for (uint32_t i = 0; i < 2 * PAGES; i++)
        assert_int_equal(guest_peek(&p.guest, page + UINT64_C(4096) * i), i % 2 ? 7 : 0);
    assert_int_equal(guest_peek(&p.guest, report), 0);
    process_tell(&p, CONTROL_STATS);
    const struct control_message m = process_hear(&p);
    assert_int_equal(m.stats.free_bytes, PAGES * 4096 + 8192);
    const uint64_t *counts = m.stats.counts.of;
    assert_int_equal(counts[COUNT_KICK_BALLOON], 2); /* go() kicks each queue once */
    assert_int_equal(counts[COUNT_KICK_RNG], 0);
    assert_true(counts[COUNT_EXIT_BALLOON] > 20 && counts[COUNT_EXIT_ROOT] == 0);
    assert_true(counts[COUNT_IRQ_BALLOON] >= 1 && counts[COUNT_IRQ_NET] == 0);
    process_tell_with(
        &p, &(struct control_message){.type = CONTROL_BALLOON, .balloon = {.bytes = 5 << 20}}, NULL,
        0);
    for (int i = 0; i < 2000 && guest_peek(&p.guest, TARGET) != (5 << 20) / 4096; i++)
        (void)usleep(10000);
    assert_int_equal(guest_peek(&p.guest, TARGET), (5 << 20) / 4096);
    end(&p);
}

static void test_frames_go_both_ways(void **state)
{
    (void)state;
    enum { HEAD = 12, FRAME = 60, ROOM = HEAD + 1514 };
    const uint64_t rings = 0x300000, out = 0x310000, in = 0x320000;
    uint8_t frame[FRAME], got[2 * FRAME];
    struct process p;
    process_open(&p, guest_drives, guest_drives_end);
    process_add_card(&p);
    struct script s = {&p, SCRIPT};
    for (uint8_t i = 0; i < FRAME; i++)
        frame[i] = i;
    put(&p, out + HEAD, frame, FRAME);
    negotiate(&s, CARD, 1 << 5);
    add_queue(&s, CARD, &(struct queue){TX, rings, out, HEAD + FRAME, false});
    add_queue(&s, CARD, &(struct queue){RX, rings + 0x3000, in, ROOM, true});
    go(&s, CARD, RX, TX);
    process_boot(&p);
    struct pollfd wire = {.fd = p.wire, .events = POLLIN};
    assert_int_equal(poll(&wire, 1, 20000), 1);
    assert_int_equal(recv(p.wire, got, sizeof got, 0), FRAME);
    assert_memory_equal(got, frame, FRAME);
    assert_int_equal(send(p.wire, frame, FRAME, MSG_NOSIGNAL), FRAME);
    await(&p, rings + 0x3000, 1);
    assert_int_equal(pread(p.guest.ram_fd, got, FRAME, (off_t)in + HEAD), FRAME);
    assert_memory_equal(got, frame, FRAME);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_that_a_guest_gives_leaves_the_host),
        cmocka_unit_test(test_frames_go_both_ways),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
