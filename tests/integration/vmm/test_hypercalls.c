/* Xen-PV guests of a few instructions: where they start, and what comes of hypercalls that no
 * kernel would make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/integration/vmm/guest.h"

GUEST(level, "mov %cs, %eax\n out %al, $0xf4\n 98: jmp 98b\n");
GUEST(told, "mov (%rsi), %al\n out %al, $0xf4\n 98: jmp 98b\n");
/* Hypercall 29 (sched_op), 2 (shutdown), reason 0. */
GUEST(off, "pushq $0\n mov %rsp, %rsi\n mov $2, %edi\n mov $29, %eax\n syscall\n" GUEST_EXIT(1));
/* Hypercalls 30 (callback_op: events), 32 (event_channel_op: VIRQ 0), 15 (set_timer_op: a moment
 * that is over) and 29 (sched_op: block); then the event comes. */
GUEST(waits, "lea 1f(%rip), %rax\n push %rax\n pushq $0\n mov %rsp, %rsi\n xor %edi, %edi\n"
             "mov $30, %eax\n syscall\n"
             "pushq $0\n pushq $0\n mov %rsp, %rsi\n mov $1, %edi\n mov $32, %eax\n syscall\n"
             "mov $1, %edi\n mov $15, %eax\n syscall\n"
             "mov $1, %edi\n mov $29, %eax\n syscall\n" GUEST_EXIT(1) "1:\n" GUEST_EXIT(9));
GUEST(prints,
      "mov $0, %edi\n mov $3, %esi\n lea 1f(%rip), %rdx\n mov $18, %eax\n syscall\n" GUEST_EXIT(
          5) "1: .ascii \"abc\"\n");
GUEST(faults, "mov 0x1234, %eax\n" GUEST_EXIT(1));
/* Hypercall 26 (mmuext_op) 15 (new user root) of a frame that is not RAM, and of the shim's first
 * in these guests. */
#define NEW_USER_ROOT(frame) \
    "pushq $0\n pushq $" #frame "\n pushq $15\n mov %rsp, %rdi\n mov $1, %esi\n" \
    "xor %edx, %edx\n mov $26, %eax\n syscall\n neg %rax\n out %al, $0xf4\n 98: jmp 98b\n"
GUEST(nonsense_root, NEW_USER_ROOT(0x7fffffff));
GUEST(shims_root, NEW_USER_ROOT(0x1c00));
/* Hypercall 23 (iret) to user code that has no page tables. */
GUEST(no_root, "pushq $0xe02b\n pushq $0\n pushq $0x202\n pushq $0xe033\n pushq $0x1000\n"
               "pushq $0\n pushq $0\n pushq $0\n pushq $0\n"
               "mov $23, %eax\n syscall\n" GUEST_EXIT(1));
/* A letter without the shim: no such word, then "I give up". */
GUEST(forges,
      "mov $0x508, %edx\n mov $0x77, %al\n out %al, %dx\n mov $2, %al\n out %al, %dx\n" GUEST_EXIT(
          1));

/* Hypercall 24 (vcpu_op) of vCPU 1 with this operation: its result, negative, is the status. */
#define VCPU_OP(op) \
    "mov $" #op ", %edi\n mov $1, %esi\n mov %r15, %rdx\n mov $24, %eax\n syscall\n neg %rax\n"
#define TELL "out %al, $0xf4\n 98: jmp 98b\n"
#define UNLESS_0_TELL "test %eax, %eax\n jz 97f\n" TELL "97:\n"
/* In the room behind the stack, a struct xen_context of what begins at 1: RIP, RSP, CR3. */
#define CONTEXT \
    "mov %rsp, %r15\n lea 1f(%rip), %rax\n mov %rax, 648(%r15)\n" \
    "lea 0x8000(%r15), %rax\n mov %rax, 672(%r15)\n" \
    "mov 88(%rsi), %rax\n sub $0xffffffff80000000, %rax\n mov %rax, 5008(%r15)\n"
GUEST(asks_of_another, CONTEXT VCPU_OP(3) TELL "1:\n");
GUEST(starts_another,
      CONTEXT VCPU_OP(0) UNLESS_0_TELL VCPU_OP(1) UNLESS_0_TELL "96: pause\n"
                                                                "jmp 96b\n 1:\n" GUEST_EXIT(9));
GUEST(starts_nothing, CONTEXT VCPU_OP(1) TELL "1:\n" GUEST_EXIT(9));
GUEST(starts_it_again, CONTEXT VCPU_OP(0) UNLESS_0_TELL VCPU_OP(0) TELL "1:\n" GUEST_EXIT(9));
GUEST(starts_it_on_nothing,
      CONTEXT "movq $-4096, 5008(%r15)\n" VCPU_OP(0) TELL "1:\n" GUEST_EXIT(9));
/* An IPI to it (event_channel_op 7: bind_ipi, 4: send) that arrives while it blocks (sched_op 1).
 */
GUEST(interrupts_it,
      CONTEXT "lea 2f(%rip), %rax\n mov %rax, 5112(%r15)\n"
              "pushq $1\n mov %rsp, %rsi\n mov $7, %edi\n mov $32, %eax\n syscall\n" /* port */
      VCPU_OP(0) UNLESS_0_TELL VCPU_OP(1) UNLESS_0_TELL
      "mov 4(%rsp), %eax\n pushq %rax\n mov %rsp, %rsi\n mov $4, %edi\n"
      "mov $32, %eax\n syscall\n 96: pause\n jmp 96b\n"
      "1: mov $1, %edi\n mov $29, %eax\n syscall\n" GUEST_EXIT(1) "2:\n" GUEST_EXIT(9));

static struct vm_report run(struct guest *g)
{
    struct cl_err err = {0};
    struct vm_report report;
    if (vm_run(g->vm, &err) < 0)
        fail_msg("%s", err.text);
    guest_await_end(g, &report);
    return report;
}

typedef void open_fn(struct guest *g, const uint8_t *code, const uint8_t *end);

static struct vm_report run_in(open_fn *open, const uint8_t *code, const uint8_t *end)
{
    struct guest g;
    open(&g, code, end);
    struct vm_report report = run(&g);
    guest_close(&g);
    return report;
}

static struct vm_report run_code(const uint8_t *code, const uint8_t *end)
{
    return run_in(guest_open_xenpv, code, end);
}

#define ENDS_WITH(name, number) \
    do { \
        struct vm_report r = run_code(guest_##name, guest_##name##_end); \
        assert_int_equal(r.end, VM_EXIT); \
        assert_int_equal(r.status, number); \
    } while (0)

static void test_a_kernel_starts_at_cpl3(void **state)
{
    (void)state;
    ENDS_WITH(level, 0x33);
    ENDS_WITH(told, 'x'); /* "xen-3.0-x86_64" */
}

static void test_it_waits_for_its_timer(void **state)
{
    (void)state;
    ENDS_WITH(waits, 9);
}

static void test_it_switches_itself_off(void **state)
{
    (void)state;
    assert_int_equal(run_code(guest_off, guest_off_end).end, VM_OFF);
}

static void test_it_prints(void **state)
{
    (void)state;
    struct guest g;
    char text[256];
    guest_open_xenpv(&g, guest_prints, guest_prints_end);
    assert_int_equal(run(&g).status, 5);
    guest_printed(&g, text, sizeof text);
    assert_string_equal(text, "cloche-vmm: this kernel's hypercalls are slow: 0 of the 2 known "
                              "places that make them were found\n"
                              "abc");
    guest_close(&g);
}

static void gives_up(const struct vm_report *report, const char *why)
{
    assert_int_equal(report->end, VM_FAILED);
    if (!strstr(report->err.text, "broke its contract") || !strstr(report->err.text, why))
        fail_msg("'%s' is not in: %s", why, report->err.text);
}

static void test_a_fault_that_it_does_not_take_ends_it(void **state)
{
    (void)state;
    struct vm_report report = run_code(guest_faults, guest_faults_end);
    gives_up(&report, "trap 14 at 0xffffffff80100000, address 0x1234");
    report = run_code(guest_forges, guest_forges_end);
    gives_up(&report, "trap 0");
}

static void test_the_user_root_of_an_isolated_guest_is_its_ram(void **state)
{
    enum { EINVAL_OF_XEN = 22 };
    (void)state;
    ENDS_WITH(nonsense_root, 0); /* a shared guest has no use for it */
    assert_int_equal(
        run_in(guest_open_isolated, guest_nonsense_root, guest_nonsense_root_end).status,
        EINVAL_OF_XEN);
    assert_int_equal(run_in(guest_open_isolated, guest_shims_root, guest_shims_root_end).status,
                     EINVAL_OF_XEN);
}

static void test_user_code_without_a_root_ends_its_guest(void **state)
{
    (void)state;
    assert_int_equal(run_in(guest_open_isolated, guest_no_root, guest_no_root_end).end, VM_RESET);
}

/* --- two vCPUs ------------------------------------------------------------------------------- */

static void ends_of_2(const uint8_t *code, const uint8_t *end, uint32_t status)
{
    struct vm_report r = run_in(guest_open_xenpv_of_2, code, end);
    assert_int_equal(r.end, VM_EXIT);
    assert_int_equal(r.status, status);
}
#define OF_2_ENDS_WITH(name, number) ends_of_2(guest_##name, guest_##name##_end, number)

static void test_a_kernel_starts_its_other_vcpu(void **state)
{
    (void)state;
    OF_2_ENDS_WITH(starts_another, 9);
    OF_2_ENDS_WITH(interrupts_it, 9);
}

static void test_a_vcpu_starts_once_and_somewhere(void **state)
{
    enum { ENOENT_OF_XEN = 2, EEXIST_OF_XEN = 17, EINVAL_OF_XEN = 22 };
    (void)state;
    ENDS_WITH(asks_of_another, ENOENT_OF_XEN);
    OF_2_ENDS_WITH(asks_of_another, 0); /* it is down */
    OF_2_ENDS_WITH(starts_nothing, EINVAL_OF_XEN);
    OF_2_ENDS_WITH(starts_it_again, EEXIST_OF_XEN);
    OF_2_ENDS_WITH(starts_it_on_nothing, EINVAL_OF_XEN);
}

/* --- hypercalls with nonsense ------------------------------------------------------------------
 */

enum { SAYS = 21 };

static uint8_t *put(uint8_t *at, const uint8_t *opcode, size_t n, uint32_t value)
{
    memcpy(at, opcode, n);
    memcpy(at + n, &value, sizeof value);
    return at + n + sizeof value;
}

/* All arguments are the value (extended by its sign); ends with SAYS when the hypercall returns. */
static size_t put_hypercall(uint8_t code[64], uint32_t number, uint32_t value)
{
    static const uint8_t moves[][3] = {{0x48, 0xc7, 0xc7},
                                       {0x48, 0xc7, 0xc6},
                                       {0x48, 0xc7, 0xc2}, /* RDI, RSI, RDX */
                                       {0x49, 0xc7, 0xc2},
                                       {0x49, 0xc7, 0xc0}}; /* R10, R8 */
    static const uint8_t mov_eax[] = {0xb8},
                         end[] = {0x0f, 0x05, 0xb0, SAYS, 0xe6, 0xf4, 0xeb, 0xfe};
    uint8_t *at = code;
    for (size_t i = 0; i < CL_COUNT(moves); i++)
        at = put(at, moves[i], sizeof moves[i], value);
    at = put(at, mov_eax, sizeof mov_eax, number);
    memcpy(at, end, sizeof end);
    return (size_t)(at + sizeof end - code);
}

static void test_no_hypercall_does_more_than_end_its_guest(void **state)
{
    enum { NUMBERS = 48 };
    static const uint32_t values[] = {0x10, 0xfffffff8};
    unsigned returned = 0;
    (void)state;
    for (uint32_t i = 0; i < NUMBERS * CL_COUNT(values); i++) {
        uint8_t code[64];
        size_t n = put_hypercall(code, i / CL_COUNT(values), values[i % CL_COUNT(values)]);
        struct vm_report report = run_code(code, code + n);
        if (report.end == VM_EXIT)
            returned++;
        else
            gives_up(&report, "trap ");
    }
    assert_true(returned > NUMBERS && returned < NUMBERS * CL_COUNT(values));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kernel_starts_at_cpl3),
        cmocka_unit_test(test_it_waits_for_its_timer),
        cmocka_unit_test(test_it_switches_itself_off),
        cmocka_unit_test(test_it_prints),
        cmocka_unit_test(test_a_fault_that_it_does_not_take_ends_it),
        cmocka_unit_test(test_the_user_root_of_an_isolated_guest_is_its_ram),
        cmocka_unit_test(test_user_code_without_a_root_ends_its_guest),
        cmocka_unit_test(test_a_kernel_starts_its_other_vcpu),
        cmocka_unit_test(test_a_vcpu_starts_once_and_somewhere),
        cmocka_unit_test(test_no_hypercall_does_more_than_end_its_guest),
    };
    int skip = guest_skip_xenpv();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
