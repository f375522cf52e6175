/* A machine of vmm/ on the host's KVM: what a guest can reach, how it ends, how it is stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/guest.h"

static void run(struct guest *g, struct vm_report *ret_report)
{
    struct cl_err err = {0};
    if (vm_run(g->vm, &err) < 0)
        fail_msg("%s", err.text);
    guest_await_end(g, ret_report);
}

#define RUN(name, vcpus, report) \
    struct guest g; \
    guest_open(&g, guest_##name, guest_##name##_end, vcpus); \
    run(&g, report)

GUEST(hello, "mov $0x3f8, %dx\n lea text(%rip), %rsi\n mov $6, %rcx\n rep outsb\n" GUEST_EXIT(
                 42) "text: .ascii \"hello\\n\"\n");

static void test_a_guest_prints_and_exits_with_its_status(void **state)
{
    (void)state;
    char text[64];
    struct vm_report report;
    RUN(hello, 1, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 42);
    guest_printed(&g, text, sizeof text);
    assert_string_equal(text, "hello\n");
    guest_close(&g);
}

GUEST(half_line, "mov $0x3f8, %dx\n mov $'x', %al\n out %al, %dx\n" GUEST_EXIT(0));

static void test_a_line_that_has_not_ended_is_printed_at_the_end(void **state)
{
    (void)state;
    char text[8];
    struct vm_report report;
    RUN(half_line, 1, &report);
    guest_printed(&g, text, sizeof text);
    assert_string_equal(text, "x");
    guest_close(&g);
}

GUEST(off, "mov $0x600, %dx\n mov $0x34, %al\n out %al, %dx\n 1: jmp 1b\n");
GUEST(reset, "mov $1, %al\n mov $0x602, %dx\n out %al, %dx\n 1: jmp 1b\n");
GUEST(keyboard_reset, "mov $0xfe, %al\n out %al, $0x64\n 1: jmp 1b\n");
GUEST(panic, "mov $1, %al\n mov $0x505, %dx\n out %al, %dx\n 1: jmp 1b\n");
GUEST(triple_fault, "ud2\n");

static void test_every_way_to_end_is_told_apart(void **state)
{
    (void)state;
    static const struct {
        const uint8_t *code, *end;
        enum vm_end want;
    } ways[] = {
        {guest_off, guest_off_end, VM_OFF},
        {guest_reset, guest_reset_end, VM_RESET},
        {guest_keyboard_reset, guest_keyboard_reset_end, VM_RESET},
        {guest_panic, guest_panic_end, VM_PANIC},
        {guest_triple_fault, guest_triple_fault_end, VM_RESET},
    };
    for (size_t i = 0; i < CL_COUNT(ways); i++) {
        struct guest g;
        struct vm_report report;
        guest_open(&g, ways[i].code, ways[i].end, 1);
        run(&g, &report);
        if (report.end != ways[i].want)
            fail_msg("way %zu: %d", i, (int)report.end);
        guest_close(&g);
    }
}

/* Exit status = number of the first check that fails; 0 = none. */
#define CHECK(number, compare) "mov $" #number ", %bl\n" compare "\n jne 9f\n"
/* clang-format off */
GUEST(virtio, GUEST_MAP_DEVICES
      "mov $0xd0003000, %esi\n" /* the source of entropy: magic, version, device id */
      CHECK(1, "cmpl $0x74726976, (%rsi)")
      CHECK(2, "cmpl $2, 4(%rsi)")
      CHECK(3, "cmpl $4, 8(%rsi)")
      CHECK(4, "cmpb $0, (%rsi)") /* too narrow */
      "movl $1, 0x70(%rsi)\n movl $3, 0x70(%rsi)\n" /* ACKNOWLEDGE, DRIVER */
      CHECK(5, "cmpl $3, 0x70(%rsi)")
      "movl $1, 0x14(%rsi)\n"
      CHECK(6, "cmpl $1, 0x10(%rsi)") /* VERSION_1 */
      CHECK(7, "cmpl $5, 0x1008(%rsi)") /* the balloon */
      CHECK(8, "cmpl $-1, 0x2000(%rsi)") /* no network card, nobody: all ones */
      "mov $0xd0000000, %esi\n"
      CHECK(9, "cmpl $-1, (%rsi)") /* no disk here */
      CHECK(10, "cmpq $-1, (%rsi)") /* eight bytes: two halves */
      "in $0x64, %al\n"
      CHECK(11, "cmp $0xff, %al")
      "mov $0x0a, %al\n out %al, $0x70\n in $0x71, %al\n"
      CHECK(12, "cmp $0x26, %al")
      "mov $0xcf8, %dx\n in %dx, %eax\n"
      CHECK(13, "cmp $-1, %eax")
      "mov $0, %bl\n"
      "9: mov %bl, %al\n out %al, $0xf4\n 1: jmp 1b\n");
/* clang-format on */

static void test_registers_are_where_the_tables_say(void **state)
{
    (void)state;
    struct vm_report report;
    RUN(virtio, 1, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 0);
    guest_close(&g);
}

/* Pin 4 of the interrupt chip to vector 0x40 of processor 0, then ask the serial port for an
 * interrupt and sleep. */
GUEST(interrupt, GUEST_MAP_DEVICES
      "lea handler(%rip), %rax\n mov %ax, 0x3400\n movw $0x10, 0x3402\n movw $0x8e00, 0x3404\n"
      "shr $16, %rax\n mov %ax, 0x3406\n movq $0, 0x3408\n"
      "lidt idt(%rip)\n"
      "mov $0xfee00000, %esi\n movl $0x1ff, 0xf0(%rsi)\n"
      "mov $0xfec00000, %edi\n"
      "movl $0x19, (%rdi)\n movl $0, 0x10(%rdi)\n movl $0x18, (%rdi)\n movl $0x40, 0x10(%rdi)\n"
      "sti\n mov $0x3f9, %dx\n mov $2, %al\n out %al, %dx\n 1: hlt\n jmp 1b\n"
      "handler: mov $0x3fa, %dx\n in %dx, %al\n out %al, $0xf4\n 2: jmp 2b\n"
      "idt: .word 0xfff\n .quad 0x3000\n");

static void test_an_interrupt_wakes_a_processor(void **state)
{
    (void)state;
    struct vm_report report;
    RUN(interrupt, 1, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 0x02); /* IIR: the transmitter is empty */
    guest_close(&g);
}

/* INIT and STARTUP to processor 1, whose code at 0x10000 ends the machine. */
GUEST(
    second, GUEST_MAP_DEVICES
    "movl $0xf4e611b0, 0x10000\n movl $0xfeeb, 0x10004\n" /* mov $0x11,%al; out %al,$0xf4; jmp . */
    "mov $0xfee00000, %esi\n movl $0x1ff, 0xf0(%rsi)\n"
    "movl $0x1000000, 0x310(%rsi)\n movl $0x4500, 0x300(%rsi)\n"
    "movl $0x1000000, 0x310(%rsi)\n movl $0x4610, 0x300(%rsi)\n 1: hlt\n jmp 1b\n");

static void test_a_second_processor_starts(void **state)
{
    (void)state;
    struct vm_report report;
    RUN(second, 2, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 0x11);
    guest_close(&g);
}

GUEST(spin, "1: incq 0x200000\n jmp 1b\n");

static void await_count(const struct guest *g, uint64_t least)
{
    uint64_t deadline = cl_now_ns() + 20 * CL_NS_PER_S;
    while (guest_peek(g, 0x200000) < least) {
        assert_true(cl_now_ns() < deadline);
        (void)usleep(1000);
    }
}

static void test_a_paused_machine_stands_still_and_goes_on(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err = {0};
    guest_open(&g, guest_spin, guest_spin_end, 1);
    assert_int_equal(vm_run(g.vm, &err), 0);
    for (int i = 0; i < 20; i++) {
        await_count(&g, guest_peek(&g, 0x200000) + 10);
        assert_int_equal(vm_pause(g.vm, &err), 0);
        uint64_t count = guest_peek(&g, 0x200000);
        (void)usleep(2000);
        assert_int_equal(guest_peek(&g, 0x200000), count);
        vm_resume(g.vm);
        await_count(&g, count + 10);
    }
    guest_close(&g); /* while it runs */
}

static void test_a_machine_that_ended_cannot_be_paused(void **state)
{
    (void)state;
    struct vm_report report;
    struct cl_err err = {0};
    RUN(hello, 1, &report);
    assert_int_equal(vm_pause(g.vm, &err), -1);
    assert_int_equal(err.code, CL_E_STATE);
    guest_close(&g);
}

static void test_a_stopped_machine_says_so(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err = {0};
    struct vm_report report;
    guest_open(&g, guest_spin, guest_spin_end, 2);
    assert_int_equal(vm_run(g.vm, &err), 0);
    await_count(&g, 1);
    vm_stop(g.vm);
    vm_report(g.vm, &report);
    assert_int_equal(report.end, VM_STOPPED);
    guest_close(&g);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guest_prints_and_exits_with_its_status),
        cmocka_unit_test(test_a_line_that_has_not_ended_is_printed_at_the_end),
        cmocka_unit_test(test_every_way_to_end_is_told_apart),
        cmocka_unit_test(test_registers_are_where_the_tables_say),
        cmocka_unit_test(test_an_interrupt_wakes_a_processor),
        cmocka_unit_test(test_a_second_processor_starts),
        cmocka_unit_test(test_a_paused_machine_stands_still_and_goes_on),
        cmocka_unit_test(test_a_machine_that_ended_cannot_be_paused),
        cmocka_unit_test(test_a_stopped_machine_says_so),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
