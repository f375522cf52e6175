/* A machine of vmm/ on the host's KVM: what a guest can reach, how it ends, how it is stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/guest.h"
#include "vmm/counts.h"
#include "vmm/seccomp.h"

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

/* An access across the end of a page comes as 3 bytes and 1: no device has such registers. */
GUEST(odd, GUEST_MAP_DEVICES "mov $0xd0000ffd, %esi\n" CHECK(1, "cmpl $-1, (%rsi)")
               CHECK(2, "movl $0, (%rsi)\n cmpl $-1, (%rsi)") /* the interrupt chip */
      "mov $0xfec00000, %edi\n movl $1, (%rdi)\n" CHECK(3, "cmpl $0x170011, 0x10(%rdi)")
          CHECK(4, "cmpb $0, 0x10(%rdi)") "mov $0x505, %dx\n in %dx, %al\n" CHECK(
              5,
              "cmp $1, %al") "mov $0x601, %dx\n in %dx, %al\n" CHECK(6,
                                                                     "cmp $0, %al") "mov $0, %bl\n "
                                                                                    "9: mov %bl, "
                                                                                    "%al\n out "
                                                                                    "%al, $0xf4\n "
                                                                                    "1: jmp 1b\n");

static void test_odd_accesses_are_answered(void **state)
{
    (void)state;
    struct vm_report report;
    RUN(odd, 1, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 0);
    guest_close(&g);
}

/* An interrupt to processor 77, which is not there, is lost; the guest goes on. */
GUEST(stray, GUEST_MAP_DEVICES
      "mov $0xfec00000, %edi\n movl $0x19, (%rdi)\n movl $0x4d000000, 0x10(%rdi)\n"
      "movl $0x18, (%rdi)\n movl $0x40, 0x10(%rdi)\n"
      "mov $0x3f9, %dx\n mov $2, %al\n out %al, %dx\n" GUEST_EXIT(12));

static void test_an_interrupt_to_nobody_is_lost(void **state)
{
    (void)state;
    struct vm_report report;
    RUN(stray, 1, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 12);
    guest_close(&g);
}

/* Instructions of a device's registers: KVM gives up. */
GUEST(lost, GUEST_MAP_DEVICES "mov $0xd0000000, %eax\n jmp *%rax\n");

static void test_a_guest_that_kvm_cannot_run_ends_with_the_reason(void **state)
{
    (void)state;
    struct vm_report report;
    RUN(lost, 1, &report);
    assert_int_equal(report.end, VM_FAILED);
    assert_int_equal(report.err.code, CL_E_GUEST);
    assert_non_null(strstr(report.err.text, "vCPU 0: KVM exit "));
    assert_non_null(strstr(report.err.text, " at rip 0xd0000000"));
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

GUEST(ports, "1: out %al, $0x80\n incq 0x200000\n jmp 1b\n");

/* While it runs, and without a lock. */
static void test_its_counters_are_read_while_it_runs(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err = {0};
    uint64_t last = 0;
    guest_open(&g, guest_ports, guest_ports_end, 1);
    assert_int_equal(vm_run(g.vm, &err), 0);
    for (int i = 0; i < 100; i++) {
        await_count(&g, last + 1);
        uint64_t least = guest_peek(&g, 0x200000);
        struct vm_counts counts = {0};
        vm_count(g.vm, &counts);
        assert_true(counts.of[COUNT_EXIT_PORTS] >= CL_MAX(last, least));
        last = counts.of[COUNT_EXIT_PORTS];
    }
    assert_int_equal(vm_pause(g.vm, &err), 0);
    struct vm_counts counts = {0};
    vm_count(g.vm, &counts);
    assert_in_range(counts.of[COUNT_EXIT_PORTS] - guest_peek(&g, 0x200000), 0, 1);
    guest_close(&g);
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

/* Writes to guest address 4 GiB by a page of 2 MiB of its own. */
GUEST(high, "movq $0xe003, 0xa020\n mov $0x100000083, %rax\n mov %rax, 0xe000\n"
            "mov $0x100000000, %rax\n movl $0x12345678, 16(%rax)\n" GUEST_EXIT(13));

static void test_memory_goes_on_above_4_gib(void **state)
{
    (void)state;
    const uint64_t low = UINT64_C(3) << 30, bytes = low + (UINT64_C(64) << 20);
    struct guest g;
    struct vm_report report;
    struct cl_err err = {0};
    guest_open(&g, guest_high, guest_high_end, 1);
    vm_free(g.vm);
    struct vm_config config = guest_config(&g, 1);
    config.mem_bytes = bytes;
    assert_int_equal(ftruncate(g.ram_fd, 0), 0);
    assert_int_equal(ftruncate(g.ram_fd, (off_t)bytes), 0);
    if (vm_create(&config, &g.vm, &err) < 0 || vm_boot(g.vm, &err) < 0)
        fail_msg("%s", err.text);
    run(&g, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 13);
    assert_int_equal(guest_peek(&g, low + 16), 0x12345678);
    guest_close(&g);
}

/* --- machines that cannot be --------------------------------------------------------------- */

/* The error of a machine of this shape. */
static struct cl_err refused(const struct vm_config *config, enum cl_code want)
{
    struct cl_err err = {0};
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    assert_int_equal(vm_create(config, &vm, &err), -1);
    assert_int_equal(err.code, want);
    return err;
}

static void test_a_machine_of_the_wrong_shape_is_refused(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err;
    guest_open(&g, guest_spin, guest_spin_end, 1);
    const struct vm_config good = guest_config(&g, 1);
    for (unsigned vcpus = 0; vcpus <= VM_VCPUS_MAX + 1; vcpus += VM_VCPUS_MAX + 1) {
        struct vm_config config = good;
        config.vcpus = vcpus;
        err = refused(&config, CL_E_INVALID);
        assert_non_null(strstr(err.text, "vCPUs; want 1 to 8"));
    }
    struct vm_config config = good;
    config.kvm_fd = g.ram_fd;
    err = refused(&config, CL_E_SYS);
    assert_non_null(strstr(err.text, "not /dev/kvm"));
    config = good;
    config.mem_bytes = GUEST_MEM + 4096;
    err = refused(&config, CL_E_INVALID);
    assert_non_null(strstr(err.text, "guest memory file holds"));
    config = good;
    config.root_fd = g.console_fd; /* of no bytes */
    err = refused(&config, CL_E_INVALID);
    assert_non_null(strstr(err.text, "the root disk"));
    config = good;
    config.scratch_fd = g.console_fd;
    err = refused(&config, CL_E_INVALID);
    assert_non_null(strstr(err.text, "the scratch disk"));
    guest_close(&g);
}

static void test_a_disk_that_is_not_there_does_not_grow(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err = {0};
    guest_open(&g, guest_spin, guest_spin_end, 1);
    assert_int_equal(vm_grow_scratch(g.vm, &err), -1);
    assert_int_equal(err.code, CL_E_STATE);
    guest_close(&g);
}

/* In a child, as a thread that has a filter does not end. */
static int be_unconfined(void)
{
    static const struct cl_filter none; /* the kernel refuses a program of no instruction */
    struct guest g;
    struct vm_report report;
    struct cl_err err = {0};
    guest_open(&g, guest_spin, guest_spin_end, 1);
    struct vm_config config = guest_config(&g, 1);
    config.vcpu_filter = &none;
    if (vm_create(&config, &g.vm, &err) < 0 || vm_boot(g.vm, &err) < 0 || vm_run(g.vm, &err) < 0)
        return 1;
    do {
        (void)usleep(1000);
        vm_report(g.vm, &report);
    } while (report.end == VM_RUNS); /* not longer than the test may take */
    if (report.end != VM_FAILED || guest_peek(&g, 0x200000) != 0)
        return 2;
    return strstr(report.err.text, "enter the seccomp filter") ? 0 : 3;
}

static void test_a_processor_that_cannot_be_confined_runs_nothing(void **state)
{
    (void)state;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(be_unconfined());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guest_prints_and_exits_with_its_status),
        cmocka_unit_test(test_a_line_that_has_not_ended_is_printed_at_the_end),
        cmocka_unit_test(test_every_way_to_end_is_told_apart),
        cmocka_unit_test(test_registers_are_where_the_tables_say),
        cmocka_unit_test(test_odd_accesses_are_answered),
        cmocka_unit_test(test_an_interrupt_to_nobody_is_lost),
        cmocka_unit_test(test_a_guest_that_kvm_cannot_run_ends_with_the_reason),
        cmocka_unit_test(test_an_interrupt_wakes_a_processor),
        cmocka_unit_test(test_a_second_processor_starts),
        cmocka_unit_test(test_its_counters_are_read_while_it_runs),
        cmocka_unit_test(test_a_paused_machine_stands_still_and_goes_on),
        cmocka_unit_test(test_a_machine_that_ended_cannot_be_paused),
        cmocka_unit_test(test_a_stopped_machine_says_so),
        cmocka_unit_test(test_memory_goes_on_above_4_gib),
        cmocka_unit_test(test_a_machine_of_the_wrong_shape_is_refused),
        cmocka_unit_test(test_a_disk_that_is_not_there_does_not_grow),
        cmocka_unit_test(test_a_processor_that_cannot_be_confined_runs_nothing),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
