/* tests/unit/vmm/test_virtio_mmio.c - the register machine: the one way up, and every way beside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/vmm/driver.h"

enum { SIZE = 8, FEATURE = 1 << 5 };

/* A device of two queues that gives back what it gets. */
struct echo {
    struct virtio v;
    struct virtq_chain chain;
    unsigned notified[2], resets, activations;
    uint8_t config[12];
};

static void echo_notify(void *dev, unsigned queue)
{
    struct echo *e = dev;
    e->notified[queue]++;
    while (virtio_pop(&e->v, queue, &e->chain))
        virtio_push(&e->v, queue, &e->chain, 0);
    virtio_signal(&e->v, queue);
}

static void echo_reset(void *dev)
{
    ((struct echo *)dev)->resets++;
}

static void echo_activate(void *dev)
{
    ((struct echo *)dev)->activations++;
}

static void echo_config_read(void *dev, uint32_t at, void *dst, uint32_t n)
{
    memcpy(dst, ((struct echo *)dev)->config + at, n);
}

static void echo_config_write(void *dev, uint32_t at, const void *src, uint32_t n)
{
    memcpy(((struct echo *)dev)->config + at, src, n);
}

static const struct virtio_ops echo_ops = {
    .id = 42,
    .n_queues = 2,
    .queue_max = 64,
    .features = FEATURE,
    .notify = echo_notify,
    .reset = echo_reset,
    .activate = echo_activate,
    .config_bytes = 12,
    .config_read = echo_config_read,
    .config_write = echo_config_write,
};

static struct drv drv;
static struct echo echo;

static int set_up(void **state)
{
    (void)state;
    drv_init(&drv);
    echo = (struct echo){.config = "0123456789ab"};
    virtio_init(&echo.v, &echo_ops, &echo, &drv.mem, drv_irq(&drv));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    return 0;
}

static void test_the_way_up(void **state)
{
    (void)state;
    struct virtio *v = &echo.v;
    const struct drv_desc piece = {DRV_DATA, 4, DRV_WRITE, 0};
    assert_int_equal(drv_r(v, 0x00), 0x74726976);
    assert_int_equal(drv_r(v, 0x04), 2);
    assert_int_equal(drv_r(v, 0x08), 42);
    drv_w(v, 0x30, 1);
    assert_int_equal(drv_r(v, 0x34), 64);
    drv_w(v, 0x30, 2);
    assert_int_equal(drv_r(v, 0x34), 0);
    drv_start(&drv, v, SIZE);
    assert_int_equal(drv_r(v, 0x70), 0xf);
    assert_int_equal(drv_r(v, 0x44), 1);
    assert_int_equal(echo.activations, 1);
    drv_chain(&drv, 1, SIZE, 0, &piece, 1);
    drv_notify(v, 1);
    assert_int_equal(drv_used_idx(&drv, 1), 1);
    assert_int_equal(drv.irqs, 1);
    assert_int_equal(drv_r(v, 0x60), 1);
    drv_w(v, 0x64, 1);
    assert_int_equal(drv_r(v, 0x60), 0);
    assert_int_equal(v->refused, 0);
}

static const uint32_t steps[] = {0, 1, 3, 0xb, 0xf};

/* From reset to steps[at]; with the features written, so that FEATURES_OK would hold. */
static void climb(struct virtio *v, size_t at)
{
    drv_w(v, 0x70, 0);
    for (size_t i = 1; i <= at; i++) {
        drv_w(v, 0x70, steps[i]);
        drv_w(v, 0x24, 1);
        if (steps[i] == 3)
            drv_w(v, 0x20, 1);
    }
    assert_int_equal(drv_r(v, 0x70), steps[at]);
}

static void test_status_goes_one_way_only(void **state)
{
    (void)state;
    for (size_t at = 0; at < CL_COUNT(steps); at++)
        for (uint32_t to = 1; to < 0x200; to++) {
            climb(&echo.v, at);
            drv_w(&echo.v, 0x70, to);
            bool up = at + 1 < CL_COUNT(steps) && to == steps[at + 1];
            bool failed = to == (steps[at] | 0x80);
            assert_int_equal(drv_r(&echo.v, 0x70), up || failed ? to : steps[at]);
        }
}

static void test_features_that_are_refused(void **state)
{
    (void)state;
    static const uint32_t rows[][2] = {
        {FEATURE, 0}, {0, 0}, {FEATURE | 1, 1}, {0, 3}, {0, 0x80000001}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct virtio *v = &echo.v;
        drv_w(v, 0x70, 0);
        drv_w(v, 0x70, 1);
        drv_w(v, 0x70, 3);
        for (uint32_t word = 0; word < 2; word++) {
            drv_w(v, 0x24, word);
            drv_w(v, 0x20, rows[i][word]);
        }
        drv_w(v, 0x70, 0xb);
        assert_int_equal(drv_r(v, 0x70), 3);
    }
}

static void test_features_are_closed_after_features_ok(void **state)
{
    (void)state;
    drv_negotiate(&echo.v);
    uint64_t before = echo.v.driver_features;
    drv_w(&echo.v, 0x24, 0);
    drv_w(&echo.v, 0x20, 0xffffffff);
    assert_int_equal(echo.v.driver_features, before);
    assert_int_equal(echo.v.refused, 1);
}

static void test_queue_registers_are_closed_but_between(void **state)
{
    (void)state;
    static const uint32_t regs[] = {0x38, 0x44, 0x80, 0x84, 0x90, 0x94, 0xa0, 0xa4};
    struct virtio *v = &echo.v;
    drv_start(&drv, v, SIZE);
    struct virtq_setup before = v->setup[0];
    struct virtq latched = v->queue[0];
    drv_w(v, 0x30, 0);
    for (size_t i = 0; i < CL_COUNT(regs); i++)
        drv_w(v, regs[i], 0x40);
    drv_w(v, 0x44, 0);
    assert_memory_equal(&before, &v->setup[0], sizeof before);
    assert_memory_equal(&latched, &v->queue[0], sizeof latched);
    assert_int_equal(v->refused, CL_COUNT(regs) + 1);
    drv_w(v, 0x70, 0);
    for (size_t i = 0; i < CL_COUNT(regs); i++)
        drv_w(v, regs[i], 0x40);
    assert_int_equal(v->setup[0].size, 0);
    drv_negotiate(v);
    drv_w(v, 0x44, 1); /* ready: the rest is closed (§4.2.2.2) */
    drv_w(v, 0x38, 16);
    assert_int_equal(v->setup[0].size, 0);
    drv_w(v, 0x30, 77);
    drv_w(v, 0x38, 16);
    drv_w(v, 0x44, 1);
    assert_int_equal(drv_r(v, 0x44), 0);
}

static void test_a_bad_queue_breaks_the_device_at_driver_ok(void **state)
{
    (void)state;
    struct virtq_setup s = drv_setup(0, SIZE);
    s.device.v = DRV_RAM;
    drv_negotiate(&echo.v);
    drv_set_queue(&echo.v, 0, &s);
    drv_w(&echo.v, 0x70, 0xf);
    assert_int_equal(drv_r(&echo.v, 0x70), 0x4f);
    assert_int_equal(drv_r(&echo.v, 0x60), 2);
    assert_int_equal(echo.v.fault, VIRTQ_FAULT_RANGE);
    assert_int_equal(echo.activations, 0);
    drv_notify(&echo.v, 0);
    assert_int_equal(echo.notified[0], 0);
    drv_start(&drv, &echo.v, SIZE);
    assert_int_equal(drv_r(&echo.v, 0x70), 0xf);
}

static void test_a_broken_ring_stops_the_device_until_a_reset(void **state)
{
    (void)state;
    drv_start(&drv, &echo.v, SIZE);
    drv_set_idx(&drv, 0, SIZE + 1);
    drv_notify(&echo.v, 0);
    assert_int_equal(drv_r(&echo.v, 0x70), 0x4f);
    assert_int_equal(echo.v.fault, VIRTQ_FAULT_AHEAD);
    drv_notify(&echo.v, 1);
    assert_int_equal(echo.notified[1], 0);
    drv_w(&echo.v, 0x70, 0xf);
    assert_int_equal(drv_r(&echo.v, 0x70), 0x4f);
    drv_start(&drv, &echo.v, SIZE);
    assert_int_equal(drv_r(&echo.v, 0x70), 0xf);
    assert_int_equal(echo.v.fault, VIRTQ_NO_FAULT);
}

static void test_notifies_that_nobody_hears(void **state)
{
    (void)state;
    drv_notify(&echo.v, 0);
    drv_negotiate(&echo.v);
    drv_notify(&echo.v, 0);
    drv_w(&echo.v, 0x70, 0xf); /* live, no queue is ready */
    drv_notify(&echo.v, 0);
    drv_start(&drv, &echo.v, SIZE);
    drv_notify(&echo.v, 2);
    drv_notify(&echo.v, 0xffffffff);
    drv_notify(&echo.v, 0x10000); /* 0 in 16 bits */
    assert_int_equal(echo.notified[0] + echo.notified[1], 0);
    assert_int_equal(echo.v.refused, 6);
}

static void test_a_notify_for_nothing_is_not_answered(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 4, DRV_WRITE, 0};
    drv_start(&drv, &echo.v, SIZE);
    drv_notify(&echo.v, 0);
    assert_int_equal(drv.irqs, 0);
    drv_chain(&drv, 0, SIZE, 0, &piece, 1);
    drv_notify(&echo.v, 0);
    assert_int_equal(drv.irqs, 1);
    drv_notify(&echo.v, 0);
    drv_notify(&echo.v, 1);
    assert_int_equal(drv.irqs, 1);
}

static void test_a_deferred_device_is_notified_when_it_is_served(void **state)
{
    (void)state;
    virtio_defer(&echo.v);
    drv_start(&drv, &echo.v, SIZE);
    assert_false(virtio_is_waiting(&echo.v));
    for (int i = 0; i < 3; i++)
        drv_notify(&echo.v, 1);
    assert_true(virtio_is_waiting(&echo.v));
    assert_int_equal(echo.notified[1], 0);
    virtio_serve(&echo.v);
    assert_false(virtio_is_waiting(&echo.v));
    assert_int_equal(echo.notified[0], 0);
    assert_int_equal(echo.notified[1], 1);
    drv_notify(&echo.v, 0);
    drv_w(&echo.v, 0x70, 0); /* what waited is forgotten, that it waits is not */
    virtio_serve(&echo.v);
    assert_int_equal(echo.notified[0], 0);
    drv_start(&drv, &echo.v, SIZE);
    drv_notify(&echo.v, 0);
    assert_true(virtio_is_waiting(&echo.v));
    virtio_fail(&echo.v, VIRTQ_FAULT_SHAPE);
    virtio_serve(&echo.v);
    assert_int_equal(echo.notified[0], 0);
}

/* Every offset, width and a few values: only a 32-bit access at its place does anything. */
static void test_width_games(void **state)
{
    (void)state;
    static const uint32_t widths[] = {0, 1, 2, 3, 4, 5, 8, 16, UINT32_MAX};
    static const uint32_t values[] = {0, 1, 3, 0xb, 0xf, 0xffffffff};
    struct virtio *v = &echo.v;
    for (uint32_t at = 0; at < VIRTIO_MMIO_BYTES + 16; at++)
        for (size_t w = 0; w < CL_COUNT(widths); w++) {
            bool fine = widths[w] == 4 && at % 4 == 0 && at < 0x100;
            struct virtio before = *v;
            if (!fine && at < 0x100)
                assert_int_equal(virtio_read(v, at, widths[w]), 0);
            for (size_t i = 0; i < CL_COUNT(values); i++)
                virtio_write(v, at, widths[w], values[i]);
            before.refused = v->refused;
            if (!fine)
                assert_memory_equal(&before, v, sizeof before);
        }
    assert_int_equal(virtio_read(v, UINT32_MAX, 4), 0);
    assert_int_equal(virtio_read(v, UINT32_MAX - 3, 4), 0);
}

/* Every register that can be read; all the others are 0, and counted. */
static void test_what_registers_say(void **state)
{
    (void)state;
    static const struct {
        uint32_t at, value;
    } rows[] = {
        {0x00, 0x74726976}, {0x04, 2},          {0x08, 42},         {0x0c, 0x434c4f43},
        {0x10, FEATURE},    {0x34, 64},         {0x44, 0},          {0x60, 0},
        {0x70, 0},          {0xb0, UINT32_MAX}, {0xb4, UINT32_MAX}, {0xb8, UINT32_MAX},
        {0xbc, UINT32_MAX}, {0xfc, 0},
    };
    size_t row = 0;
    for (uint32_t at = 0; at < 0x100; at += 4) {
        bool known = row < CL_COUNT(rows) && rows[row].at == at;
        uint64_t refused = echo.v.refused;
        assert_int_equal(drv_r(&echo.v, at), known ? rows[row].value : 0);
        assert_int_equal(echo.v.refused, refused + !known);
        row += known;
    }
    assert_int_equal(row, CL_COUNT(rows));
}

static void test_config_space_is_bounded(void **state)
{
    (void)state;
    struct virtio *v = &echo.v;
    assert_int_equal(virtio_read(v, 0x100, 1), '0');
    assert_int_equal(virtio_read(v, 0x102, 2), '2' | '3' << 8);
    assert_int_equal(virtio_read(v, 0x108, 4), '8' | '9' << 8 | 'a' << 16 | 'b' << 24);
    assert_int_equal(v->refused, 0);
    assert_int_equal(virtio_read(v, 0x10c, 1), 0);
    assert_int_equal(virtio_read(v, 0x101, 2), 0);
    assert_int_equal(virtio_read(v, 0xffc, 4), 0);
    virtio_write(v, 0x10c, 4, 0xffffffff);
    assert_int_equal(v->refused, 4);
    virtio_write(v, 0x10b, 1, 'z');
    assert_int_equal(echo.config[11], 'z');
}

static size_t save(uint8_t *data, size_t cap)
{
    struct state_writer w;
    size_t n = 0;
    drv_state_begin(&w, data, cap);
    state_begin(&w, STATE_BLK);
    virtio_save(&echo.v, &w);
    state_end(&w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    return n;
}

static int load(const uint8_t *data, size_t n, struct echo *to)
{
    struct state_reader r;
    struct state_head head;
    virtio_init(&to->v, &echo_ops, to, &drv.mem, drv_irq(&drv));
    if (state_reader_init(&r, data, n, &head, NULL) < 0 || state_enter(&r, STATE_BLK, NULL) < 0)
        return -1;
    return virtio_load(&to->v, &r, NULL) < 0 ? -1 : state_leave(&r, NULL);
}

static void test_a_saved_device_goes_on_where_it_was(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 4, DRV_WRITE, 0};
    static struct echo back;
    uint8_t data[1024];
    back = (struct echo){0};
    drv_start(&drv, &echo.v, SIZE);
    for (uint16_t i = 0; i < 11; i++) {
        drv_chain(&drv, 1, SIZE, i % SIZE, &piece, 1);
        drv_notify(&echo.v, 1);
    }
    drv_chain(&drv, 1, SIZE, 3, &piece, 1); /* put, not yet notified */
    size_t n = save(data, sizeof data);
    assert_int_equal(load(data, n, &back), 0);
    unsigned irqs = drv.irqs;
    virtio_kick(&back.v);
    assert_int_equal(back.notified[0], 1);
    assert_int_equal(drv_used_idx(&drv, 1), 12);
    assert_true(drv.irqs > irqs);
    assert_int_equal(drv_r(&back.v, 0x70), 0xf);
    assert_int_equal(drv_r(&back.v, 0x60), 1);
}

static void test_news_of_the_configuration_have_a_line_of_their_own(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 4, DRV_WRITE, 0};
    drv_start(&drv, &echo.v, SIZE);
    drv_chain(&drv, 0, SIZE, 0, &piece, 1);
    drv_notify(&echo.v, 0);
    assert_int_equal(drv.config_irqs, 0);
    unsigned irqs = drv.irqs;
    virtio_config_changed(&echo.v);
    assert_int_equal(drv.config_irqs, 1);
    assert_int_equal(drv.irqs, irqs + 1);
    assert_int_equal(drv_r(&echo.v, 0x60), 3); /* both are told to who asks for either */
    virtio_fail(&echo.v, VIRTQ_FAULT_LOOP);
    assert_int_equal(drv.config_irqs, 2);
}

/* One whose driver has not acknowledged its interrupt. */
static void restore_with_an_interrupt(struct echo *back)
{
    const struct drv_desc piece = {DRV_DATA, 4, DRV_WRITE, 0};
    uint8_t data[1024];
    drv_start(&drv, &echo.v, SIZE);
    drv_chain(&drv, 0, SIZE, 0, &piece, 1);
    drv_notify(&echo.v, 0);
    assert_int_equal(load(data, save(data, sizeof data), back), 0);
}

static void test_a_restored_device_repeats_what_was_not_acknowledged(void **state)
{
    (void)state;
    static struct echo back;
    uint8_t data[1024];
    restore_with_an_interrupt(&back);
    unsigned irqs = drv.irqs;
    virtio_kick(&back.v);
    assert_int_equal(drv.irqs, irqs + 1);
    assert_int_equal(drv_r(&back.v, 0x60), 1);
    drv_w(&echo.v, 0x64, 1);
    assert_int_equal(load(data, save(data, sizeof data), &back), 0);
    virtio_kick(&back.v);
    assert_int_equal(drv.irqs, irqs + 1);
    assert_int_equal(drv_r(&back.v, 0x60), 0);
}

static void test_a_line_that_lasts_is_not_raised_again(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 4, DRV_WRITE, 0};
    static struct echo back;
    restore_with_an_interrupt(&back);
    back.v.irq.is_lasting = true;
    unsigned irqs = drv.irqs;
    virtio_kick(&back.v);
    assert_int_equal(drv.irqs, irqs);
    assert_int_equal(drv_r(&back.v, 0x60), 1);
    drv_chain(&drv, 0, SIZE, 1, &piece, 1);
    drv_notify(&back.v, 0);
    assert_int_equal(drv.irqs, irqs + 1); /* though the first was never acknowledged */
}

static void test_a_broken_device_is_saved_as_one(void **state)
{
    (void)state;
    static struct echo back;
    uint8_t data[1024];
    drv_start(&drv, &echo.v, SIZE);
    drv_set_idx(&drv, 0, SIZE + 1);
    drv_notify(&echo.v, 0);
    assert_int_equal(load(data, save(data, sizeof data), &back), 0);
    assert_int_equal(drv_r(&back.v, 0x70), 0x4f);
    unsigned irqs = drv.irqs;
    virtio_kick(&back.v);
    assert_int_equal(back.notified[0], 0);
    assert_int_equal(drv.irqs, irqs + 1); /* the driver has not heard of it yet */
}

/* Each byte of a state set to each of some values: it is refused, or what came in keeps the rules.
 */
static void test_a_hostile_state_keeps_the_rules(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 2, 3, 7, 0xb, 0xf, 0x40, 0x7f, 0x80, 0xc0, 0xff};
    static struct echo back;
    uint8_t data[1024];
    drv_start(&drv, &echo.v, SIZE);
    size_t n = save(data, sizeof data);
    unsigned refused = 0;
    for (size_t at = STATE_HEAD_BYTES; at < n; at++) {
        uint8_t was = data[at];
        for (size_t i = 0; i < CL_COUNT(values); i++) {
            data[at] = values[i];
            if (load(data, n, &back) < 0) {
                refused++;
                continue;
            }
            virtio_kick(&back.v);
            drv_notify(&back.v, 0);
            drv_start(&drv, &back.v, SIZE);
            assert_int_equal(drv_r(&back.v, 0x70), 0xf);
        }
        data[at] = was;
    }
    assert_true(refused > 500);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_the_way_up),
        T(test_status_goes_one_way_only),
        T(test_features_that_are_refused),
        T(test_features_are_closed_after_features_ok),
        T(test_queue_registers_are_closed_but_between),
        T(test_a_bad_queue_breaks_the_device_at_driver_ok),
        T(test_a_broken_ring_stops_the_device_until_a_reset),
        T(test_notifies_that_nobody_hears),
        T(test_a_notify_for_nothing_is_not_answered),
        T(test_a_deferred_device_is_notified_when_it_is_served),
        T(test_width_games),
        T(test_what_registers_say),
        T(test_config_space_is_bounded),
        T(test_a_saved_device_goes_on_where_it_was),
        T(test_news_of_the_configuration_have_a_line_of_their_own),
        T(test_a_restored_device_repeats_what_was_not_acknowledged),
        T(test_a_line_that_lasts_is_not_raised_again),
        T(test_a_broken_device_is_saved_as_one),
        T(test_a_hostile_state_keeps_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
