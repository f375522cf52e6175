/* The interrupt chip: which edge becomes which message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/ioapic.h"

struct sent {
    unsigned n;
    uint32_t address, data;
};

static void send(void *arg, uint32_t address, uint32_t data)
{
    struct sent *sent = arg;
    sent->n++;
    sent->address = address;
    sent->data = data;
}

static void set(struct ioapic *chip, uint32_t reg, uint32_t value)
{
    ioapic_write(chip, 0x00, 4, reg);
    ioapic_write(chip, 0x10, 4, value);
}

static uint32_t get(struct ioapic *chip, uint32_t reg)
{
    ioapic_write(chip, 0x00, 4, reg);
    return ioapic_read(chip, 0x10, 4);
}

static void test_it_says_what_it_is(void **state)
{
    (void)state;
    struct ioapic chip;
    ioapic_init(&chip, send, NULL);
    assert_int_equal(get(&chip, 1), 0x170011);
    set(&chip, 0, 0xffffffff);
    assert_int_equal(get(&chip, 0), 0x0f000000);
    set(&chip, 1, 0);
    assert_int_equal(get(&chip, 1), 0x170011);
    assert_int_equal(get(&chip, 0x0f), 0);
    assert_int_equal(get(&chip, 0x40), 0); /* a pin too many */
    set(&chip, 0x40, 0xffffffff);
    assert_int_equal(get(&chip, 0xff), 0);
}

static void test_an_edge_becomes_a_message(void **state)
{
    (void)state;
    struct sent sent = {0};
    struct ioapic chip;
    ioapic_init(&chip, send, &sent);
    set(&chip, 0x10 + 2 * 23 + 1, 0x05000000); /* to processor 5 */
    set(&chip, 0x10 + 2 * 23, 0x00000941);     /* logical, lowest priority, vector 0x41 */
    ioapic_raise(&chip, 23);
    assert_int_equal(sent.n, 1);
    assert_int_equal(sent.address, 0xfee05004);
    assert_int_equal(sent.data, 0x141);
}

static void test_masked_and_unserved_pins_send_nothing(void **state)
{
    (void)state;
    /* masked; SMI, NMI, INIT, ExtINT; vectors of the processor itself */
    static const uint32_t entries[] = {0x10041, 0x241, 0x441, 0x541, 0x741, 0x00, 0x0f};
    struct sent sent = {0};
    struct ioapic chip;
    ioapic_init(&chip, send, &sent);
    ioapic_raise(&chip, 0);
    for (size_t i = 0; i < CL_COUNT(entries); i++) {
        set(&chip, 0x10, entries[i]);
        ioapic_raise(&chip, 0);
    }
    assert_int_equal(sent.n, 0);
    assert_int_equal(chip.refused, CL_COUNT(entries) - 1);
    set(&chip, 0x10, 0x10); /* an edge while masked is gone, not pending */
    assert_int_equal(sent.n, 0);
}

static void test_no_pin_is_level_triggered(void **state)
{
    (void)state;
    struct ioapic chip;
    ioapic_init(&chip, send, NULL);
    set(&chip, 0x12, 0xffffffff);
    assert_int_equal(get(&chip, 0x12), 0x12fff);
    set(&chip, 0x13, 0xffffffff);
    assert_int_equal(get(&chip, 0x13), 0xff000000);
}

static void test_other_widths_and_places_mean_nothing(void **state)
{
    (void)state;
    struct ioapic chip, before;
    ioapic_init(&chip, send, NULL);
    ioapic_write(&chip, 0, 4, 0x10);
    before = chip;
    for (uint32_t offset = 0; offset < IOAPIC_BYTES; offset++) {
        for (uint32_t width = 1; width <= 4; width *= 2) {
            bool served = width == 4 && (offset == 0 || offset == 0x10);
            if (!served) {
                ioapic_write(&chip, offset, width, 0x12345678);
                assert_int_equal(ioapic_read(&chip, offset, width), 0);
            }
        }
    }
    assert_memory_equal(&chip, &before, sizeof chip);
}

static void test_it_comes_back_from_a_state(void **state)
{
    (void)state;
    static const struct state_head head = {.mem_bytes = 4096, .vcpus = 1};
    uint8_t bytes[512];
    size_t n;
    struct ioapic chip, other;
    struct state_writer w;
    struct state_reader r;
    struct state_head seen;
    ioapic_init(&chip, send, NULL);
    ioapic_init(&other, send, NULL);
    set(&chip, 0x20, 0x941);
    state_writer_init(&w, bytes, sizeof bytes, &head);
    ioapic_save(&chip, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    assert_int_equal(state_reader_init(&r, bytes, n, &seen, NULL), 0);
    assert_int_equal(ioapic_load(&other, &r, NULL), 0);
    assert_memory_equal(&other, &chip, sizeof chip);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_says_what_it_is),
        cmocka_unit_test(test_an_edge_becomes_a_message),
        cmocka_unit_test(test_masked_and_unserved_pins_send_nothing),
        cmocka_unit_test(test_no_pin_is_level_triggered),
        cmocka_unit_test(test_other_widths_and_places_mean_nothing),
        cmocka_unit_test(test_it_comes_back_from_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
