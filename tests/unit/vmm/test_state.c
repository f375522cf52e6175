/* tests/unit/vmm/test_state.c - a state comes back as written; every cut and every lie is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "vmm/ioapic.h"
#include "vmm/ports.h"
#include "vmm/serial.h"
#include "vmm/state.h"

static const struct state_head head = {.baseline = {1, 2, 3}, .mem_bytes = 1 << 27, .vcpus = 2};

static size_t write_two(uint8_t *data, size_t cap)
{
    struct state_writer w;
    size_t n = 0;
    state_writer_init(&w, data, cap, &head);
    state_begin(&w, STATE_RNG);
    state_put_u8(&w, 0x11);
    state_put_u16(&w, 0x2222);
    state_put_u32(&w, 0x33333333);
    state_put_u64(&w, 0x4444444444444444);
    state_end(&w);
    state_begin(&w, STATE_VSOCK);
    state_put_bytes(&w, "abc", 3);
    state_end(&w);
    return state_finish(&w, &n, NULL) == 0 ? n : 0;
}

static int read_two(const uint8_t *data, size_t n)
{
    struct state_reader r;
    struct state_head seen;
    char abc[3];
    if (state_reader_init(&r, data, n, &seen, NULL) < 0 || state_enter(&r, STATE_RNG, NULL) < 0)
        return -1;
    bool same = state_get_u8(&r) == 0x11;
    same &= state_get_u16(&r) == 0x2222;
    same &= state_get_u32(&r) == 0x33333333;
    same &= state_get_u64(&r) == 0x4444444444444444;
    if (state_leave(&r, NULL) < 0 || state_enter(&r, STATE_VSOCK, NULL) < 0)
        return -1;
    state_get_bytes(&r, abc, sizeof abc);
    same &= memcmp(abc, "abc", 3) == 0 && memcmp(&seen, &head, sizeof head) == 0;
    if (state_leave(&r, NULL) < 0 || state_reader_finish(&r, NULL) < 0)
        return -1;
    return same ? 0 : -1;
}

static void test_what_is_written_comes_back(void **state)
{
    (void)state;
    uint8_t data[256];
    size_t n = write_two(data, sizeof data);
    assert_int_equal(n, STATE_HEAD_BYTES + 8 + 15 + 8 + 3);
    assert_int_equal(read_two(data, n), 0);
}

static void test_each_cut_is_found_on_both_ends(void **state)
{
    (void)state;
    uint8_t data[256];
    size_t n = write_two(data, sizeof data);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(write_two(data, cut), 0);
        (void)write_two(data, sizeof data);
        assert_int_equal(read_two(data, cut), -1);
    }
    assert_int_equal(read_two(data, n + 1), -1);
}

static void test_each_flipped_bit_of_the_frame_is_found(void **state)
{
    (void)state;
    uint8_t data[256];
    size_t n = write_two(data, sizeof data);
    for (size_t bit = 0; bit < n * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(read_two(data, n), -1);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void test_a_failed_get_sticks(void **state)
{
    (void)state;
    struct state_reader r;
    struct state_head seen;
    struct cl_err err = {0};
    uint8_t data[256];
    size_t n = write_two(data, sizeof data);
    assert_int_equal(state_reader_init(&r, data, n, &seen, NULL), 0);
    assert_int_equal(state_enter(&r, STATE_RNG, NULL), 0);
    assert_int_equal(state_left(&r), 15);
    (void)state_get_u64(&r);
    assert_int_equal(state_get_u64(&r), 0);
    assert_int_equal(state_get_u8(&r), 0);
    assert_int_equal(state_leave(&r, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
}

/* --- devices -------------------------------------------------------------------------------- */

static int load_ioapic(struct state_reader *r, struct cl_err *err)
{
    struct ioapic chip = {.select = 7}, before = chip;
    int rc = ioapic_load(&chip, r, err);
    assert_memory_equal(&chip, &before, sizeof chip);
    return rc;
}

static int load_serial(struct state_reader *r, struct cl_err *err)
{
    struct serial com = {.scratch = 7}, before = com;
    int rc = serial_load(&com, r, err);
    assert_memory_equal(&com, &before, sizeof com);
    return rc;
}

static int load_ports(struct state_reader *r, struct cl_err *err)
{
    struct ports ports = {.cmos_index = 7}, before = ports;
    int rc = ports_load(&ports, r, err);
    assert_memory_equal(&ports, &before, sizeof ports);
    return rc;
}

static void test_a_device_stays_as_it_is_when_its_section_has_another_length(void **state)
{
    (void)state;
    static const struct {
        enum state_section type;
        int (*load)(struct state_reader *r, struct cl_err *err);
        const char *says;
    } devices[] = {
        {STATE_IOAPIC, load_ioapic, "interrupt controller"},
        {STATE_SERIAL, load_serial, "serial port"},
        {STATE_PORTS, load_ports, "I/O ports"},
    };
    static const uint8_t body[512];
    uint8_t data[1024];
    for (size_t i = 0; i < CL_COUNT(devices); i++) {
        for (size_t bytes = 0; bytes <= sizeof body; bytes += sizeof body) { /* too few, too many */
            struct state_writer w;
            struct state_reader r;
            struct state_head seen;
            struct cl_err err = {0};
            size_t n;
            state_writer_init(&w, data, sizeof data, &head);
            state_begin(&w, devices[i].type);
            state_put_bytes(&w, body, bytes);
            state_end(&w);
            assert_int_equal(state_finish(&w, &n, NULL), 0);
            assert_int_equal(state_reader_init(&r, data, n, &seen, NULL), 0);
            assert_int_equal(devices[i].load(&r, &err), -1);
            assert_int_equal(err.code, CL_E_INVALID);
            assert_non_null(strstr(err.text, devices[i].says));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_comes_back),
        cmocka_unit_test(test_each_cut_is_found_on_both_ends),
        cmocka_unit_test(test_each_flipped_bit_of_the_frame_is_found),
        cmocka_unit_test(test_a_failed_get_sticks),
        cmocka_unit_test(test_a_device_stays_as_it_is_when_its_section_has_another_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
