/* tests/unit/vmm/test_rng.c - every request gets fresh bytes, and no request gets too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/vmm/driver.h"
#include "vmm/rng.h"

enum { SIZE = 8 };

static struct drv drv;
static struct rng rng;

static int set_up(void **state)
{
    (void)state;
    drv_init(&drv);
    rng_init(&rng, &drv.mem, drv_irq(&drv));
    drv_start(&drv, &rng.v, SIZE);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    return 0;
}

static void test_two_requests_get_other_bytes(void **state)
{
    (void)state;
    const struct drv_desc pieces[] = {{DRV_DATA, 3, DRV_WRITE, 0},
                                      {DRV_DATA + 3, 61, DRV_WRITE, 0}};
    uint8_t first[65], second[65];
    drv_chain(&drv, 0, SIZE, 0, pieces, 2);
    drv_notify(&rng.v, 0);
    drv_get(&drv, DRV_DATA, first, 65);
    drv_chain(&drv, 0, SIZE, 0, pieces, 2);
    drv_notify(&rng.v, 0);
    drv_get(&drv, DRV_DATA, second, 65);
    assert_int_equal(drv_used(&drv, 0, SIZE, 1).len, 64);
    assert_memory_not_equal(first, second, 64);
    assert_int_equal(first[64] | second[64], 0);
    assert_int_equal(drv.irqs, 2);
}

static void test_a_huge_request_is_cut(void **state)
{
    (void)state;
    struct drv_desc pieces[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        pieces[i] = (struct drv_desc){DRV_DATA, DRV_RAM - DRV_DATA, DRV_WRITE, 0};
    drv_chain(&drv, 0, SIZE, 0, pieces, SIZE);
    drv_notify(&rng.v, 0);
    assert_int_equal(drv_used(&drv, 0, SIZE, 0).len, RNG_REQUEST_MAX);
}

static void test_a_readable_request_breaks_the_device(void **state)
{
    (void)state;
    const struct drv_desc pieces[] = {{DRV_DATA, 3, 0, 0}, {DRV_DATA + 3, 61, DRV_WRITE, 0}};
    drv_chain(&drv, 0, SIZE, 0, pieces, 2);
    drv_notify(&rng.v, 0);
    assert_int_equal(rng.v.fault, VIRTQ_FAULT_SHAPE);
    assert_int_equal(drv_used_idx(&drv, 0), 0);
}

static void test_the_state_comes_back(void **state)
{
    (void)state;
    const struct drv_desc piece = {DRV_DATA, 3, DRV_WRITE, 0};
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    static struct rng back;
    uint8_t data[512];
    size_t n = 0;
    drv_chain(&drv, 0, SIZE, 0, &piece, 1);
    drv_notify(&rng.v, 0);
    drv_state_begin(&w, data, sizeof data);
    rng_save(&rng, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    rng_init(&back, &drv.mem, drv_irq(&drv));
    assert_int_equal(state_reader_init(&r, data, n, &head, NULL), 0);
    assert_int_equal(rng_load(&back, &r, NULL), 0);
    assert_int_equal(state_reader_finish(&r, NULL), 0);
    drv_chain(&drv, 0, SIZE, 0, &piece, 1);
    drv_notify(&back.v, 0);
    assert_int_equal(drv_used_idx(&drv, 0), 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_two_requests_get_other_bytes),
        T(test_a_huge_request_is_cut),
        T(test_a_readable_request_breaks_the_device),
        T(test_the_state_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
