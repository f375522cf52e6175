/* tests/unit/vmm/test_balloon.c - reported pages leave the host's memory; the rest of RAM stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "tests/unit/vmm/driver.h"
#include "vmm/balloon.h"

enum { SIZE = 16, UNIT = 2 << 20, RAM = 8 * UNIT, INFLATE = 0, DEFLATE = 1, REPORTING = 2 };

static struct drv drv;
static struct balloon balloon;
static int ram;

static int set_up(void **state)
{
    (void)state;
    drv = (struct drv){0};
    ram = memfd_create("ram", MFD_CLOEXEC);
    if (ram < 0 || ftruncate(ram, RAM) < 0 || gm_map(ram, RAM, false, &drv.mem, NULL) < 0)
        return -1;
    balloon_init(&balloon, &drv.mem, drv_irq(&drv));
    drv_start(&drv, &balloon.v, SIZE);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    return close(ram);
}

static uint64_t file_bytes(void)
{
    struct stat st;
    assert_int_equal(fstat(ram, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_a_report_frees_the_hosts_pages(void **state)
{
    (void)state;
    const struct drv_desc pieces[] = {{2 * UNIT, 2 * UNIT, DRV_WRITE, 0},
                                      {5 * UNIT + 4096, 4095, DRV_WRITE, 0},
                                      {6 * UNIT, UNIT, DRV_WRITE, 0}};
    memset(drv.mem.base + UNIT, 7, RAM - UNIT);
    uint64_t before = file_bytes();
    drv_chain(&drv, REPORTING, SIZE, 0, pieces, 3);
    drv_notify(&balloon.v, REPORTING);
    assert_int_equal(before - file_bytes(), 3 * UNIT);
    assert_int_equal(drv_used(&drv, REPORTING, SIZE, 0).len, 0);
    assert_int_equal(drv_used_idx(&drv, REPORTING), 1);
    for (unsigned i = 1; i < 8; i++)
        assert_int_equal(drv.mem.base[i * UNIT], i == 2 || i == 3 || i == 6 ? 0 : 7);
}

static void put_pages(unsigned queue, const uint32_t *pfns, uint32_t n)
{
    const struct drv_desc piece = {4096, n * 4, 0, 0};
    drv_put(&drv, 4096, pfns, n * 4);
    drv_chain(&drv, queue, SIZE, 0, &piece, 1);
    drv_notify(&balloon.v, queue);
}

static void test_inflated_pages_leave_the_host(void **state)
{
    (void)state;
    const uint32_t pfns[] = {UNIT / 4096, RAM / 4096, UINT32_MAX, UNIT / 4096 + 2};
    memset(drv.mem.base + UNIT, 7, UNIT);
    drv.mem.base[4096] = 1; /* the list's own page */
    uint64_t before = file_bytes();
    put_pages(INFLATE, pfns, CL_COUNT(pfns));
    assert_int_equal(before - file_bytes(), 2 * 4096);
    assert_int_equal(balloon.taken_bytes, 2 * 4096);
    assert_int_equal(drv.mem.base[UNIT + 4096], 7);
    assert_int_equal(drv_used_idx(&drv, INFLATE), 1);
    put_pages(DEFLATE, pfns, CL_COUNT(pfns));
    assert_int_equal(drv_used_idx(&drv, DEFLATE), 1);
    assert_int_equal(balloon.taken_bytes, 2 * 4096);
    assert_int_equal(balloon.v.status, 0xf);
}

static void test_more_pages_than_anybody_sends_break_the_device(void **state)
{
    (void)state;
    static const uint32_t pfns[BALLOON_PAGES_MAX + 1];
    put_pages(INFLATE, pfns, BALLOON_PAGES_MAX);
    assert_int_equal(balloon.v.fault, VIRTQ_NO_FAULT);
    put_pages(INFLATE, pfns, BALLOON_PAGES_MAX + 1);
    assert_int_equal(balloon.v.fault, VIRTQ_FAULT_SHAPE);
}

static void test_the_guest_hears_of_a_target(void **state)
{
    (void)state;
    uint32_t generation = drv_r(&balloon.v, 0xfc);
    unsigned irqs = drv.irqs;
    balloon_set_target(&balloon, 1000);
    assert_int_equal(virtio_read(&balloon.v, 0x100, 4), 1000);
    assert_int_not_equal(drv_r(&balloon.v, 0xfc), generation);
    assert_int_equal(drv.irqs, irqs + 1);
    assert_int_equal(drv_r(&balloon.v, 0x60), 2);
}

static void test_a_report_outside_ram_breaks_the_device(void **state)
{
    (void)state;
    const struct drv_desc piece = {RAM - UNIT, 2 * UNIT, DRV_WRITE, 0};
    drv_chain(&drv, REPORTING, SIZE, 0, &piece, 1);
    drv_notify(&balloon.v, REPORTING);
    assert_int_equal(balloon.v.fault, VIRTQ_FAULT_BUFFER);
}

/* All of RAM, the rings too: the guest loses its own memory, the device its work. */
static void test_a_guest_that_reports_its_rings(void **state)
{
    (void)state;
    const struct drv_desc piece = {0, RAM, DRV_WRITE, 0};
    drv_chain(&drv, REPORTING, SIZE, 0, &piece, 1);
    drv_notify(&balloon.v, REPORTING);
    drv_notify(&balloon.v, REPORTING);
    assert_true(balloon.v.fault == VIRTQ_NO_FAULT || balloon.v.fault == VIRTQ_FAULT_AHEAD);
}

static void test_config_and_state(void **state)
{
    (void)state;
    static struct balloon back;
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    uint8_t data[512];
    size_t n = 0;
    balloon_set_target(&balloon, 5);
    virtio_write(&balloon.v, 0x104, 4, 99);
    virtio_write(&balloon.v, 0x100, 4, 99);
    assert_int_equal(virtio_read(&balloon.v, 0x100, 4), 5);
    drv_state_begin(&w, data, sizeof data);
    balloon_save(&balloon, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    balloon_init(&back, &drv.mem, drv_irq(&drv));
    assert_int_equal(state_reader_init(&r, data, n, &head, NULL), 0);
    assert_int_equal(balloon_load(&back, &r, NULL), 0);
    assert_int_equal(virtio_read(&back.v, 0x100, 4), 5);
    assert_int_equal(virtio_read(&back.v, 0x104, 4), 99);
    drv_w(&back.v, 0x70, 0);
    assert_int_equal(virtio_read(&back.v, 0x104, 4), 0);
    assert_int_equal(balloon_load(&back, &r, NULL), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_report_frees_the_hosts_pages),
        T(test_inflated_pages_leave_the_host),
        T(test_more_pages_than_anybody_sends_break_the_device),
        T(test_the_guest_hears_of_a_target),
        T(test_a_report_outside_ram_breaks_the_device),
        T(test_a_guest_that_reports_its_rings),
        T(test_config_and_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
