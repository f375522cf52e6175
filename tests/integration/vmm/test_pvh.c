/* Guests that are entered by PVH: in which state of the processor, and which kernels are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "bench/vmm_guest.h"
#include "tests/integration/vmm/guest.h"

#define FOUND 0x200000

/* Which mode these bytes run in is their status: `dec %eax`, or a prefix of `nop`. */
GUEST(mode, "xor %eax, %eax\n .byte 0x48, 0x90\n out %al, $0xf4\n 98: jmp 98b\n");
enum { MODE_64 = 0, MODE_32 = 0xff };

/* Stores what it finds, with its first segments and with those that it loads from the table. */
GUEST_32(finds, "mov %ebx, 0x200000\n mov %cr0, %eax\n mov %eax, 0x200008\n"
                "mov %cr4, %eax\n mov %eax, 0x200010\n"
                "mov $0x202000, %esp\n pushfl\n popl 0x200018\n"
                "mov $0xc0000080, %ecx\n rdmsr\n mov %eax, 0x200020\n"
                "mov (%ebx), %eax\n mov %eax, 0x200028\n"
                "mov $0x18, %eax\n mov %eax, %ds\n mov %eax, %ss\n"
                "mov 24(%ebx), %esi\n mov (%esi), %eax\n mov %eax, 0x200030\n" GUEST_EXIT(21));

static unsigned run(struct guest *g)
{
    struct cl_err err = {0};
    struct vm_report report;
    if (vm_run(g->vm, &err) < 0)
        fail_msg("%s", err.text);
    guest_await_end(g, &report);
    assert_int_equal(report.end, VM_EXIT);
    return report.status;
}

/* Xen, docs/misc/pvh: "x86 HVM direct boot ABI". */
static void test_the_processor_is_as_the_protocol_says(void **state)
{
    enum { CR0_PE = 1, CR0_ET = 1 << 4, VM = 1 << 17, IF = 1 << 9, TF = 1 << 8 };
    (void)state;
    struct guest g;
    guest_open_pvh(&g, guest_finds, guest_finds_end, true);
    assert_int_equal(run(&g), 21);
    assert_int_equal(guest_peek(&g, FOUND), 0x7000);
    assert_int_equal(guest_peek(&g, FOUND + 8) & ~(uint64_t)CR0_ET, CR0_PE);
    assert_int_equal(guest_peek(&g, FOUND + 0x10), 0);
    assert_int_equal(guest_peek(&g, FOUND + 0x18) & (VM | IF | TF), 0);
    assert_int_equal(guest_peek(&g, FOUND + 0x20), 0);
    assert_int_equal(guest_peek(&g, FOUND + 0x28), 0x336ec578);
    assert_int_equal(guest_peek(&g, FOUND + 0x30), 0); /* of the empty command line */
    guest_close(&g);
}

static void test_pvh_is_taken_when_it_is_asked_for_or_all_there_is(void **state)
{
    (void)state;
    struct guest g;
    guest_open(&g, guest_mode, guest_mode_end, 1);
    assert_int_equal(run(&g), MODE_64);
    guest_close(&g);
    for (int forced = 0; forced <= 1; forced++) {
        guest_open_pvh(&g, guest_mode, guest_mode_end, forced);
        assert_int_equal(run(&g), MODE_32);
        guest_close(&g);
    }
}

/* A guest's serial line has this many characters within a time that a sick machine keeps. */
static void await_lines(const struct guest *g, const char *lines)
{
    char text[8] = "";
    uint64_t deadline = cl_now_ns() + 20 * CL_NS_PER_S;
    while (strlen(text) < strlen(lines)) {
        assert_true(cl_now_ns() < deadline);
        (void)usleep(1000);
        guest_printed(g, text, sizeof text);
    }
    assert_string_equal(text, lines);
}

/* bench/vmm_guest.S as QEMU's -kernel takes it: an ELF file for i386. */
static void test_an_i386_kernel_runs(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err = {0};
    guest_open_file(&g, VMM_GUEST_PVH);
    assert_int_equal(vm_run(g.vm, &err), 0);
    await_lines(&g, "\n");
    guest_poke(&g, VMM_GUEST_RESTORED, 1);
    await_lines(&g, "\n\n");
    guest_close(&g);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_processor_is_as_the_protocol_says),
        cmocka_unit_test(test_pvh_is_taken_when_it_is_asked_for_or_all_there_is),
        cmocka_unit_test(test_an_i386_kernel_runs),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
