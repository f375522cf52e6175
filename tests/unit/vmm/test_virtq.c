/* tests/unit/vmm/test_virtq.c - the ring walk: what comes out of good rings, and each rule that a
 * driver can break. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/vmm/driver.h"

enum { SIZE = 8 };

static struct drv drv;
static struct virtq queue;
static struct virtq_chain chain;

static int set_up(void **state)
{
    (void)state;
    drv_init(&drv);
    struct virtq_setup s = drv_setup(0, SIZE);
    return virtq_start(&queue, &drv.mem, &s, VIRTQ_SIZE_MAX) == VIRTQ_NO_FAULT ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    return 0;
}

static void test_a_chain_comes_out_as_it_was_put(void **state)
{
    (void)state;
    const struct drv_desc pieces[] = {
        {DRV_DATA, 16, 0, 0}, {DRV_DATA + 16, 4, 0, 0}, {DRV_DATA + 32, 8, DRV_WRITE, 0}};
    char text[20];
    drv_put(&drv, DRV_DATA, "twenty bytes of text", 20);
    assert_false(virtq_pop(&queue, &chain));
    drv_chain(&drv, 0, SIZE, 3, pieces, 3);
    assert_true(virtq_pop(&queue, &chain));
    assert_int_equal(chain.head, 3);
    assert_int_equal(chain.out.bytes, 20);
    assert_int_equal(chain.in.bytes, 8);
    assert_true(span_take(&chain.out, text, 20));
    assert_memory_equal(text, "twenty bytes of text", 20);
    assert_true(span_put(&chain.in, "answer!", 8));
    virtq_push(&queue, &chain, 8);
    assert_int_equal(drv_used_idx(&drv, 0), 1);
    assert_int_equal(drv_used(&drv, 0, SIZE, 0).id, 3);
    assert_int_equal(drv_used(&drv, 0, SIZE, 0).len, 8);
    drv_get(&drv, DRV_DATA + 32, text, 8);
    assert_string_equal(text, "answer!");
    assert_false(virtq_pop(&queue, &chain));
    assert_int_equal(queue.fault, VIRTQ_NO_FAULT);
}

static void test_positions_wrap_at_65536(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 1, DRV_WRITE, 0};
    for (uint32_t i = 0; i < 2 * 65536 + 3; i++) {
        drv_chain(&drv, 0, SIZE, (uint16_t)(i % SIZE), &piece, 1);
        assert_true(virtq_pop(&queue, &chain));
        assert_int_equal(chain.head, i % SIZE);
        virtq_push(&queue, &chain, 1);
    }
    assert_int_equal(drv_used_idx(&drv, 0), 3);
}

static void test_an_unpopped_chain_comes_again(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 1, DRV_WRITE, 0};
    drv_chain(&drv, 0, SIZE, 2, &piece, 1);
    assert_true(virtq_pop(&queue, &chain));
    virtq_unpop(&queue);
    assert_true(virtq_pop(&queue, &chain));
    assert_int_equal(chain.head, 2);
}

static void test_the_driver_can_ask_for_no_interrupt(void **state)
{
    (void)state;
    uint16_t flags = 1;
    assert_true(virtq_wants_irq(&queue));
    drv_put(&drv, drv_ring(0) + 0x2000, &flags, 2);
    assert_false(virtq_wants_irq(&queue));
}

static void test_set_ups_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct virtq_setup s;
        enum virtq_fault want;
    } rows[] = {
        {{0, true, {0}, {0x2000}, {0x4000}}, VIRTQ_FAULT_SIZE},
        {{3, true, {0}, {0x2000}, {0x4000}}, VIRTQ_FAULT_SIZE},
        {{512, true, {0}, {0x2000}, {0x4000}}, VIRTQ_FAULT_SIZE},
        {{UINT32_C(1) << 31, true, {0}, {0x2000}, {0x4000}}, VIRTQ_FAULT_SIZE},
        {{0x10008, true, {0}, {0x2000}, {0x4000}}, VIRTQ_FAULT_SIZE}, /* 8 in 16 bits */
        {{8, true, {8}, {0x2000}, {0x4000}}, VIRTQ_FAULT_ALIGN},
        {{8, true, {0}, {0x2001}, {0x4000}}, VIRTQ_FAULT_ALIGN},
        {{8, true, {0}, {0x2000}, {0x4002}}, VIRTQ_FAULT_ALIGN},
        {{8, true, {DRV_RAM - 112}, {0x2000}, {0x4000}}, VIRTQ_FAULT_RANGE},
        {{8, true, {0}, {DRV_RAM - 20}, {0x4000}}, VIRTQ_FAULT_RANGE},
        {{8, true, {0}, {0x2000}, {DRV_RAM - 68}}, VIRTQ_FAULT_RANGE},
        {{8, true, {0}, {0x2000}, {UINT64_MAX - 3}}, VIRTQ_FAULT_RANGE},
        {{8, true, {0xd0000000}, {0x2000}, {0x4000}}, VIRTQ_FAULT_RANGE},
        {{1, true, {0}, {0x2000}, {0x4000}}, VIRTQ_NO_FAULT},
        {{256, true, {DRV_RAM - 4096}, {0x2000}, {0x4000}}, VIRTQ_NO_FAULT},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(virtq_start(&queue, &drv.mem, &rows[i].s, VIRTQ_SIZE_MAX), rows[i].want);
        assert_int_equal(virtq_is_live(&queue), rows[i].want == VIRTQ_NO_FAULT);
    }
}

/* One broken descriptor at head 0; the fault it must give. */
static void test_chains_that_break_a_rule(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct drv_desc d[3];
        enum virtq_fault want;
    } rows[] = {
        {"itself", {{DRV_DATA, 1, DRV_NEXT, 0}}, VIRTQ_FAULT_LOOP},
        {"a ring of two",
         {{DRV_DATA, 1, DRV_NEXT, 1}, {DRV_DATA, 1, DRV_NEXT, 0}},
         VIRTQ_FAULT_LOOP},
        {"next past the table", {{DRV_DATA, 1, DRV_NEXT, SIZE}}, VIRTQ_FAULT_NEXT},
        {"next far away", {{DRV_DATA, 1, DRV_NEXT, 0xffff}}, VIRTQ_FAULT_NEXT},
        {"nothing", {{DRV_DATA, 0, 0, 0}}, VIRTQ_FAULT_EMPTY},
        {"outside RAM", {{DRV_RAM, 1, 0, 0}}, VIRTQ_FAULT_BUFFER},
        {"half outside RAM", {{DRV_RAM - 1, 2, DRV_WRITE, 0}}, VIRTQ_FAULT_BUFFER},
        {"a wrap", {{UINT64_MAX, 2, DRV_WRITE, 0}}, VIRTQ_FAULT_BUFFER},
        {"a device's registers", {{0xd0000000, 4, DRV_WRITE, 0}}, VIRTQ_FAULT_BUFFER},
        {"a local APIC", {{0xfee00000, 4, DRV_WRITE, 0}}, VIRTQ_FAULT_BUFFER},
        {"4 GiB", {{0, UINT32_MAX, 0, 0}}, VIRTQ_FAULT_BUFFER},
        {"a request after its answer",
         {{DRV_DATA, 1, DRV_WRITE | DRV_NEXT, 1}, {DRV_DATA, 1, 0, 0}},
         VIRTQ_FAULT_ORDER},
        {"indirect", {{DRV_DATA, 16, DRV_INDIRECT, 0}}, VIRTQ_FAULT_INDIRECT},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct virtq_setup s = drv_setup(0, SIZE);
        assert_int_equal(virtq_start(&queue, &drv.mem, &s, VIRTQ_SIZE_MAX), VIRTQ_NO_FAULT);
        drv_set_idx(&drv, 0, 0);
        for (uint16_t j = 0; j < 3; j++)
            drv_set_desc(&drv, 0, j, rows[i].d[j]);
        drv_offer(&drv, 0, 0, SIZE);
        if (virtq_pop(&queue, &chain) || queue.fault != rows[i].want)
            fail_msg("%s: %s", rows[i].what, virtq_fault_name(queue.fault));
        assert_false(virtq_pop(&queue, &chain)); /* and it stays broken */
    }
}

static void test_a_head_past_the_table(void **state)
{
    (void)state;
    drv_offer(&drv, 0, SIZE, SIZE);
    assert_false(virtq_pop(&queue, &chain));
    assert_int_equal(queue.fault, VIRTQ_FAULT_HEAD);
}

static void test_an_index_further_ahead_than_the_queue(void **state)
{
    (void)state;
    drv_set_idx(&drv, 0, SIZE + 1);
    assert_false(virtq_pop(&queue, &chain));
    assert_int_equal(queue.fault, VIRTQ_FAULT_AHEAD);
}

static void test_an_index_that_goes_back(void **state)
{
    (void)state;
    drv_set_idx(&drv, 0, 0xffff);
    assert_false(virtq_pop(&queue, &chain));
    assert_int_equal(queue.fault, VIRTQ_FAULT_AHEAD);
}

static void test_more_than_4_gib_in_pieces_that_are_each_fine(void **state)
{
    (void)state;
    struct guest_mem big = {.base = drv.mem.base,
                            .low = GM_LOW_MAX}; /* never touched past the rings */
    struct virtq_setup s = drv_setup(0, SIZE);
    assert_int_equal(virtq_start(&queue, &big, &s, VIRTQ_SIZE_MAX), VIRTQ_NO_FAULT);
    const struct drv_desc pieces[] = {{0, GM_LOW_MAX, 0, 0}, {0, GM_LOW_MAX, DRV_WRITE, 0}};
    drv_chain(&drv, 0, SIZE, 0, pieces, 2);
    assert_false(virtq_pop(&queue, &chain));
    assert_int_equal(queue.fault, VIRTQ_FAULT_BYTES);
}

static void test_the_longest_chain_is_the_queue(void **state)
{
    (void)state;
    struct drv_desc pieces[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        pieces[i] = (struct drv_desc){DRV_DATA + i, 1, i < 4 ? 0 : DRV_WRITE, 0};
    drv_chain(&drv, 0, SIZE, 0, pieces, SIZE);
    assert_true(virtq_pop(&queue, &chain));
    assert_int_equal(chain.out.n + chain.in.n, SIZE);
}

/* Another process turns a descriptor between good and bad as fast as it can (a second vCPU): what
 * comes out was good as a whole, or the rule that the bad one breaks is named. */
static void flip(struct drv_desc *at)
{
    for (;;) {
        __atomic_store_n(&at->len, 16, __ATOMIC_RELAXED);
        __atomic_store_n(&at->addr, DRV_DATA, __ATOMIC_RELAXED);
        __atomic_store_n(&at->addr, DRV_RAM - 16, __ATOMIC_RELAXED);
        __atomic_store_n(&at->addr, 0xd0000000, __ATOMIC_RELAXED);
        __atomic_store_n(&at->len, UINT32_MAX, __ATOMIC_RELAXED);
    }
}

static void test_a_flipping_descriptor_is_fetched_once(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 16, DRV_WRITE, 0};
    unsigned good = 0, bad = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        flip((void *)(drv.mem.base + drv_ring(0)));
    for (unsigned i = 0; i < 2000000 && (good < 1000 || bad < 1000); i++) {
        struct virtq_setup s = drv_setup(0, SIZE);
        assert_int_equal(virtq_start(&queue, &drv.mem, &s, VIRTQ_SIZE_MAX), VIRTQ_NO_FAULT);
        drv_set_idx(&drv, 0, 0);
        if (i == 0)
            drv_chain(&drv, 0, SIZE, 0, &piece, 1);
        else
            drv_offer(&drv, 0, 0, SIZE);
        if (!virtq_pop(&queue, &chain)) {
            assert_int_equal(queue.fault, VIRTQ_FAULT_BUFFER);
            bad++;
            continue;
        }
        uint64_t at = (uint64_t)((uint8_t *)chain.in.iov->iov_base - drv.mem.base);
        assert_true((at == DRV_DATA || at == DRV_RAM - 16) && chain.in.iov->iov_len == 16);
        good++;
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(good > 0 && bad > 0);
}

static void test_spans(void **state)
{
    (void)state;
    char a[4] = "abcd", b[3] = "efg", got[8];
    struct iovec iov[] = {{a, 4}, {b, 3}};
    struct span s = {iov, 2, 7};
    assert_false(span_take(&s, got, 8));
    assert_true(span_take(&s, got, 5));
    assert_memory_equal(got, "abcde", 5);
    assert_int_equal(s.n, 1);
    assert_ptr_equal(span_cut_last(&s), b + 2);
    assert_false(span_put(&s, "xy", 2));
    assert_true(span_put(&s, "x", 1));
    assert_int_equal(s.n, 0);
    assert_memory_equal(b, "exg", 3);
    struct iovec again[] = {{a, 4}, {b, 3}};
    s = (struct span){again, 2, 7};
    span_limit(&s, 9);
    assert_int_equal(s.bytes, 7);
    span_limit(&s, 3);
    assert_int_equal(s.n, 1);
    assert_int_equal(again[0].iov_len, 3);
    span_limit(&s, 0);
    assert_int_equal(s.n, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_chain_comes_out_as_it_was_put),
        T(test_positions_wrap_at_65536),
        T(test_an_unpopped_chain_comes_again),
        T(test_the_driver_can_ask_for_no_interrupt),
        T(test_set_ups_that_are_refused),
        T(test_chains_that_break_a_rule),
        T(test_a_head_past_the_table),
        T(test_an_index_further_ahead_than_the_queue),
        T(test_an_index_that_goes_back),
        T(test_more_than_4_gib_in_pieces_that_are_each_fine),
        T(test_the_longest_chain_is_the_queue),
        T(test_a_flipping_descriptor_is_fetched_once),
        cmocka_unit_test(test_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
