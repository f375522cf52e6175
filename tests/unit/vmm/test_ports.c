/* The serial port, its console's limits, and the other ports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "vmm/console.h"
#include "vmm/ports.h"

struct world {
    struct ports ports;
    struct serial serial;
    unsigned interrupts, lines;
    char text[1024];
    size_t n;
};

static void take(void *arg, const uint8_t *bytes, size_t n)
{
    struct world *w = arg;
    assert_true(w->n + n < sizeof w->text);
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
    w->lines++;
}

static void count(void *arg, unsigned gsi)
{
    assert_int_equal(gsi, SERIAL_GSI);
    ((struct world *)arg)->interrupts++;
}

static void begin(struct world *w)
{
    memset(w, 0, sizeof *w);
    struct irq_line irq = {.raise = count, .chip = w, .gsi = SERIAL_GSI};
    serial_init(&w->serial, irq, take, w);
    ports_init(&w->ports, &w->serial);
}

static void out(struct world *w, uint16_t port, uint8_t value)
{
    ports_write(&w->ports, port, 1, value);
}

static uint32_t in(struct world *w, uint16_t port)
{
    return ports_read(&w->ports, port, 1);
}

static void test_bytes_come_out_a_line_at_a_time(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (const char *p = "one\ntwo"; *p; p++)
        out(&w, 0x3f8, (uint8_t)*p);
    assert_string_equal(w.text, "one\n");
    serial_flush(&w.serial);
    assert_string_equal(w.text, "one\ntwo");
    serial_flush(&w.serial);
    assert_int_equal(w.lines, 2);
}

static void test_a_line_without_an_end_is_cut(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (int i = 0; i < SERIAL_LINE_MAX; i++)
        out(&w, 0x3f8, 'x');
    assert_int_equal(w.n, SERIAL_LINE_MAX);
}

static void test_the_driver_finds_a_16550a(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    out(&w, 0x3f9, 0xff);
    assert_int_equal(in(&w, 0x3f9), 0x0f); /* IER has four bits */
    out(&w, 0x3f9, 0);
    out(&w, 0x3fa, 0x01);
    assert_int_equal(in(&w, 0x3fa), 0xc1); /* FIFOs, nothing pending */
    out(&w, 0x3fb, 0x80);
    out(&w, 0x3f8, 0x12);
    out(&w, 0x3f9, 0x34);
    assert_int_equal(in(&w, 0x3f8), 0x12);
    assert_int_equal(in(&w, 0x3f9), 0x34);
    out(&w, 0x3fb, 0x03);
    assert_int_equal(in(&w, 0x3fb), 0x03);
    assert_int_equal(in(&w, 0x3f8), 0); /* nothing is received */
    assert_int_equal(in(&w, 0x3f9), 0);
    out(&w, 0x3ff, 0x5a);
    assert_int_equal(in(&w, 0x3ff), 0x5a);
    assert_int_equal(in(&w, 0x3fd), 0x60);
    out(&w, 0x3fd, 0xff); /* read only */
    out(&w, 0x3fe, 0xff);
    assert_int_equal(in(&w, 0x3fe), 0xb0);
    out(&w, 0x3fc, 0x1a);
    assert_int_equal(in(&w, 0x3fc), 0x1a);
    assert_int_equal(in(&w, 0x3fe), 0x90); /* loop: RTS and OUT2 come back */
    out(&w, 0x3f8, 'x');
    serial_flush(&w.serial);
    assert_int_equal(w.n, 0); /* what loops does not come out */
}

static void test_an_empty_transmitter_interrupts_who_asked(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    out(&w, 0x3f8, 'a');
    assert_int_equal(w.interrupts, 0);
    out(&w, 0x3f9, 0x02);
    assert_int_equal(w.interrupts, 1);
    assert_int_equal(in(&w, 0x3fa), 0x02);
    assert_int_equal(in(&w, 0x3fa), 0x01); /* reading took it */
    out(&w, 0x3f8, 'b');
    assert_int_equal(w.interrupts, 2);
    out(&w, 0x3f9, 0x00);
    assert_int_equal(in(&w, 0x3fa), 0x01);
}

static void test_what_is_pending_comes_back_from_a_state(void **state)
{
    (void)state;
    static const struct state_head head = {.mem_bytes = 4096, .vcpus = 1};
    uint8_t bytes[256];
    size_t n;
    struct world w, clone;
    struct state_writer out_state;
    struct state_reader r;
    struct state_head seen;
    begin(&w);
    begin(&clone);
    out(&w, 0x3f9, 0x02);
    out(&w, 0x70, 0x8a);
    out(&w, 0x3f8, 'x'); /* not the clone's */
    state_writer_init(&out_state, bytes, sizeof bytes, &head);
    serial_save(&w.serial, &out_state);
    ports_save(&w.ports, &out_state);
    assert_int_equal(state_finish(&out_state, &n, NULL), 0);
    assert_int_equal(state_reader_init(&r, bytes, n, &seen, NULL), 0);
    assert_int_equal(serial_load(&clone.serial, &r, NULL), 0);
    assert_int_equal(ports_load(&clone.ports, &r, NULL), 0);
    assert_int_equal(in(&clone, 0x3f9), 0x02);
    assert_int_equal(in(&clone, 0x3fa), 0x02);
    assert_int_equal(in(&clone, 0x71), 0x26);
    serial_flush(&clone.serial);
    assert_int_equal(clone.n, 0);
}

static void test_a_console_takes_a_burst_and_then_a_trickle(void **state)
{
    (void)state;
    struct console console;
    uint64_t now = 5 * CL_NS_PER_S;
    console_init(&console, 1, now);
    assert_int_equal(console_grant(&console, CONSOLE_BURST + 5, now), CONSOLE_BURST);
    assert_int_equal(console_grant(&console, 1, now), 0);
    for (int i = 0; i < 10; i++) { /* 100 us at a time earn nothing, together a byte */
        now += 100 * CL_NS_PER_US;
        assert_int_equal(console_grant(&console, 0, now), 0);
    }
    assert_int_equal(console_grant(&console, 100, now), CONSOLE_BYTES_PER_S / 1000);
    now += CL_NS_PER_S;
    assert_int_equal(console_grant(&console, SIZE_MAX, now), CONSOLE_BYTES_PER_S);
    now = UINT64_MAX;
    assert_int_equal(console_grant(&console, SIZE_MAX, now), CONSOLE_BURST);
}

static void test_a_console_drops_what_nobody_reads(void **state)
{
    (void)state;
    struct console console;
    console_init(&console, -1, 0);
    console_write(&console, (const uint8_t *)"abc", 3);
    assert_int_equal(console.dropped, 3);
}

/* A kernel that calibrates by it would wait for its high byte to change. */
static void test_the_interval_timer_never_counts(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint16_t port = 0x40; port < 0x44; port++)
        assert_int_equal(ports_read(&w.ports, port, 1), 0);
}

static void test_nobody_answers_at_other_ports(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t port = 0; port <= UINT16_MAX; port++) {
        if (port == 0x71 || port == 0x505 || (port >= 0x40 && port < 0x44) || port == 0x601 ||
            (port >= 0x3f8 && port < 0x400))
            continue;
        assert_int_equal(ports_read(&w.ports, (uint16_t)port, 1), 0xff);
        assert_int_equal(ports_read(&w.ports, (uint16_t)port, 2), 0xffff);
        assert_int_equal(ports_read(&w.ports, (uint16_t)port, 4), 0xffffffff);
    }
    assert_int_equal(ports_read(&w.ports, 0x3fd, 2), 0xff60);
    assert_int_equal(ports_read(&w.ports, 0x3fd, 4), 0xffffff60);
}

static void test_only_the_named_words_end_the_machine(void **state)
{
    (void)state;
    static const struct {
        uint16_t port;
        uint8_t value;
        enum ports_end end;
    } words[] = {{0x64, 0xfe, PORTS_RESET},
                 {0x602, 1, PORTS_RESET},
                 {0x600, 0x34, PORTS_OFF},
                 {0x505, 1, PORTS_PANIC},
                 {0xf4, 7, PORTS_EXIT}};
    struct world w;
    begin(&w);
    for (size_t i = 0; i < CL_COUNT(words); i++) {
        for (unsigned value = 0; value < 256; value++) {
            bool odd_panic = words[i].port == 0x505 && value % 2 == 1;
            begin(&w);
            out(&w, words[i].port, (uint8_t)value);
            if (value == words[i].value || odd_panic)
                assert_int_equal(w.ports.end, words[i].end);
            else if (words[i].port != 0xf4)
                assert_int_equal(w.ports.end, PORTS_RUNNING);
        }
    }
    begin(&w);
    out(&w, 0xf4, 9);
    out(&w, 0xf4, 10); /* the first word counts */
    out(&w, 0x602, 1);
    assert_int_equal(w.ports.end, PORTS_EXIT);
    assert_int_equal(w.ports.exit_status, 9);
}

static void test_the_clock_is_never_busy(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (unsigned index = 0; index < 256; index++) {
        out(&w, 0x70, (uint8_t)index);
        uint32_t value = in(&w, 0x71);
        if ((index & 0x7f) == 0x0a)
            assert_int_equal(value & 0x80, 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_out_a_line_at_a_time),
        cmocka_unit_test(test_a_line_without_an_end_is_cut),
        cmocka_unit_test(test_the_driver_finds_a_16550a),
        cmocka_unit_test(test_an_empty_transmitter_interrupts_who_asked),
        cmocka_unit_test(test_what_is_pending_comes_back_from_a_state),
        cmocka_unit_test(test_a_console_takes_a_burst_and_then_a_trickle),
        cmocka_unit_test(test_a_console_drops_what_nobody_reads),
        cmocka_unit_test(test_the_interval_timer_never_counts),
        cmocka_unit_test(test_nobody_answers_at_other_ports),
        cmocka_unit_test(test_only_the_named_words_end_the_machine),
        cmocka_unit_test(test_the_clock_is_never_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
