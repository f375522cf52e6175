/* What a guest finds when it asks its processor, leaf by leaf, beside the table that was made for
 * it, and the list of what no guest of ours may see; and the registers of a Xen-PV guest. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/integration/vmm/guest.h"
#include "vmm/cpuid.h"
#include "vmm/kvm.h"
#include "vmm/msr.h"

/* Leaves with the sub-leaves that have a meaning, and some that nobody has. */
/* clang-format off */
#define LEAVES(X) \
    X(0x0, 0) X(0x1, 0) X(0x2, 0) X(0x3, 0) X(0x4, 0) X(0x4, 1) X(0x4, 2) X(0x4, 3) X(0x4, 4) \
    X(0x5, 0) X(0x6, 0) X(0x7, 0) X(0x7, 1) X(0x7, 2) X(0x8, 0) X(0x9, 0) X(0xa, 0) X(0xb, 0) \
    X(0xb, 1) X(0xb, 2) X(0xc, 0) X(0xd, 0) X(0xd, 1) X(0xd, 2) X(0xd, 3) X(0xd, 5) X(0xd, 6) \
    X(0xd, 7) X(0xd, 9) X(0xd, 17) X(0xd, 18) X(0x40000000, 0) X(0x40000001, 0) X(0x80000000, 0) \
    X(0x80000001, 0) X(0x80000002, 0) X(0x80000003, 0) X(0x80000004, 0) X(0x80000005, 0) \
    X(0x80000006, 0) X(0x80000007, 0) X(0x80000008, 0) X(0x8000000a, 0) X(0x8000001b, 0) \
    X(0x8000001d, 0) X(0x8000001e, 0) X(0x80000021, 0)
/* clang-format on */
#define IN_TEXT(function, index) ".long " #function ", " #index "\n"
#define IN_TABLE(function, index) {function, index},
static const struct leaf {
    uint32_t function, index;
} leaves[] = {LEAVES(IN_TABLE)};

/* Asks `instruction` of all of them, into `answers` at its end; 5. */
#define ASKS(name, instruction) \
    "lea questions_of_" #name "(%rip), %rsi\n lea answers_of_" #name "(%rip), %rdi\n" \
    "1: mov (%rsi), %eax\n mov 4(%rsi), %ecx\n " instruction "\n" \
    "mov %eax, (%rdi)\n mov %ebx, 4(%rdi)\n mov %ecx, 8(%rdi)\n mov %edx, 12(%rdi)\n" \
    "add $8, %rsi\n add $16, %rdi\n lea answers_of_" #name \
    "(%rip), %rax\n cmp %rax, %rsi\n jb 1b\n" GUEST_EXIT(5) "questions_of_" #name ":\n" LEAVES( \
        IN_TEXT) "answers_of_" #name ":\n.fill 1024\n"
GUEST(asks, ASKS(asks, "cpuid"));
/* As a Xen-PV kernel asks: public/arch-x86/xen.h, XEN_EMULATE_PREFIX. */
GUEST(asks_xen, ASKS(asks_xen, "ud2\n .ascii \"xen\"\n cpuid"));
_Static_assert(sizeof leaves / sizeof leaves[0] * 16 <= 1024, "room for the answers");

/* The registers of vmm/msr.c that a Xen-PV guest may read; 5. */
#define MSRS(X) X(0x1b) X(0x8b) X(0xce) X(0x140) X(0x1a0) X(0x277) X(0xc0000080) X(0xc0010015)
#define MSR_TEXT(index) ".long " #index "\n"
#define MSR_TABLE(index) index,
static const uint32_t msrs[] = {MSRS(MSR_TABLE)};
GUEST(reads, "lea questions_of_reads(%rip), %rsi\n lea answers_of_reads(%rip), %rdi\n"
             "1: mov (%rsi), %ecx\n rdmsr\n mov %eax, (%rdi)\n mov %edx, 4(%rdi)\n"
             "add $4, %rsi\n add $8, %rdi\n lea answers_of_reads(%rip), %rax\n cmp %rax, %rsi\n"
             "jb 1b\n" GUEST_EXIT(5) "questions_of_reads:\n" MSRS(
                 MSR_TEXT) "answers_of_reads:\n.fill 64\n");
_Static_assert(sizeof msrs / sizeof msrs[0] * 8 <= 64, "room for the answers");

/* --- what it should be ------------------------------------------------------------------------ */

struct answer {
    uint32_t eax, ebx, ecx, edx;
};

static struct answer of_table(const struct kvm_cpuid_table *table, const struct leaf *leaf)
{
    for (uint32_t i = 0; i < table->nent; i++) {
        const struct kvm_cpuid_entry2 *e = &table->entries[i];
        bool has_index = e->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
        if (e->function == leaf->function && (!has_index || e->index == leaf->index))
            return (struct answer){e->eax, e->ebx, e->ecx, e->edx};
    }
    return (struct answer){0};
}

/* The table of the only vCPU, by the same steps as vmm/vm.c. */
static void make_table(int kvm_fd, bool is_xenpv, struct kvm_cpuid_table *ret_table)
{
    static struct kvm_cpuid_table supported, guest;
    struct cl_err err = {0};
    struct cpuid_shape shape = {
        .vcpus = 1, .tsc_deadline = kvm_extension(kvm_fd, KVM_CAP_TSC_DEADLINE_TIMER) != 0};
    assert_int_equal(kvm_supported_cpuid(kvm_fd, &supported, &err), 0);
    if (is_xenpv && !cpuid_has_xsave(&supported))
        cpuid_host(&supported);
    assert_int_equal(cpuid_filter(&supported, &shape, &guest, &err), 0);
    if (is_xenpv)
        cpuid_xenpv(&guest, ret_table);
    else
        *ret_table = guest;
}

/* Bits that tell what the guest has switched on, not what there is. */
static void drop_state(struct answer *a, const struct leaf *leaf)
{
    enum { OSXSAVE = 1 << 27, OSPKE = 1 << 4, APIC = 1 << 9 };
    if (leaf->function == 1)
        *a = (struct answer){a->eax, a->ebx, a->ecx & ~(uint32_t)OSXSAVE, a->edx & ~(uint32_t)APIC};
    if (leaf->function == 7 && leaf->index == 0)
        a->ecx &= ~(uint32_t)OSPKE;
    if (leaf->function == 0xd && leaf->index <= 1)
        a->ebx = 0; /* bytes of the states in XCR0 now */
}

/* Above the highest leaf of its kind a processor may repeat another one: no answer. */
static void drop_repeated(struct answer *answers, const struct kvm_cpuid_table *table)
{
    for (size_t i = 0; i < CL_COUNT(leaves); i++) {
        const struct leaf first = {leaves[i].function & 0xc0000000, 0};
        if (leaves[i].function > of_table(table, &first).eax)
            answers[i] = (struct answer){0};
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

typedef void open_fn(struct guest *g, const uint8_t *code, const uint8_t *end);

static void open_native(struct guest *g, const uint8_t *code, const uint8_t *end)
{
    guest_open(g, code, end, 1);
}

/* Runs it; its last `n` bytes into *ret_answers. */
static void run(struct guest *g, open_fn *open, const uint8_t *code, const uint8_t *end,
                void *ret_answers, size_t n)
{
    struct cl_err err = {0};
    struct vm_report report;
    uint64_t at = GUEST_AT + (uint64_t)(end - code) - n;
    open(g, code, end);
    if (vm_run(g->vm, &err) < 0)
        fail_msg("%s", err.text);
    guest_await_end(g, &report);
    if (report.end != VM_EXIT)
        fail_msg("%s", report.err.text);
    assert_int_equal(report.status, 5);
    assert_int_equal(pread(g->ram_fd, ret_answers, n, (off_t)at), n);
}

static const struct answer *answer_of(const struct answer *answers, uint32_t function,
                                      uint32_t index)
{
    for (size_t i = 0; i < CL_COUNT(leaves); i++) {
        if (leaves[i].function == function && leaves[i].index == index)
            return &answers[i];
    }
    fail_msg("leaf 0x%" PRIx32 " is not asked for", function);
    return NULL;
}

/* By the manuals, not by our table: state that no snapshot has, or a way to the host. */
static void check_forbidden(const struct answer *answers)
{
    enum { VMX = 1 << 5, MONITOR = 1 << 3, HLE_RTM = 1 << 4 | 1 << 11, SGX = 1 << 2, PT = 1 << 25 };
    enum { PKU = 1 << 3, AMX = 1 << 22 | 1 << 24 | 1 << 25, XSAVES = 1 << 3, SVM = 1 << 2 };
    enum { TILES = 3 << 17, PKRU = 1 << 9 };
    assert_int_equal(answer_of(answers, 0x1, 0)->ecx & (VMX | MONITOR), 0);
    assert_int_equal(answer_of(answers, 0x7, 0)->ebx & (HLE_RTM | SGX | PT), 0);
    assert_int_equal(answer_of(answers, 0x7, 0)->ecx & PKU, 0);
    assert_int_equal(answer_of(answers, 0x7, 0)->edx & AMX, 0);
    assert_int_equal(answer_of(answers, 0xd, 0)->eax & (TILES | PKRU), 0);
    assert_int_equal(answer_of(answers, 0xd, 1)->eax & XSAVES, 0);
    assert_int_equal(answer_of(answers, 0xa, 0)->eax, 0); /* performance counters */
    assert_int_equal(answer_of(answers, 0x80000001, 0)->ecx & SVM, 0);
    assert_int_equal(answer_of(answers, 0x80000007, 0)->edx, 0);
}

static void compare(const struct answer *answers, const struct kvm_cpuid_table *table)
{
    for (size_t i = 0; i < CL_COUNT(leaves); i++) {
        struct answer want = of_table(table, &leaves[i]), got = answers[i];
        drop_state(&want, &leaves[i]);
        drop_state(&got, &leaves[i]);
        if (memcmp(&want, &got, sizeof want) != 0)
            fail_msg("leaf 0x%" PRIx32 ".%" PRIu32 ": %08" PRIx32 " %08" PRIx32 " %08" PRIx32
                     " %08" PRIx32 ", not %08" PRIx32 " %08" PRIx32 " %08" PRIx32 " %08" PRIx32,
                     leaves[i].function, leaves[i].index, got.eax, got.ebx, got.ecx, got.edx,
                     want.eax, want.ebx, want.ecx, want.edx);
    }
}

static void check_guest(open_fn *open, const uint8_t *code, const uint8_t *end, bool is_xenpv)
{
    static struct kvm_cpuid_table table;
    struct answer answers[1024 / sizeof(struct answer)];
    struct guest g;
    run(&g, open, code, end, answers, sizeof answers);
    make_table(g.kvm_fd, is_xenpv, &table);
    guest_close(&g);
    drop_repeated(answers, &table);
    compare(answers, &table);
    check_forbidden(answers);
}

static void test_cpuid_is_the_table(void **state)
{
    (void)state;
    if (!cpuid_host_virtualizes()) {
        (void)printf("skipped: without VMX and SVM the processor itself answers CPUID\n");
        skip();
    }
    check_guest(open_native, guest_asks, guest_asks_end, false);
}

static void test_cpuid_of_a_xen_pv_kernel_is_the_table(void **state)
{
    (void)state;
    if (guest_skip_xenpv() == 77)
        skip();
    check_guest(guest_open_xenpv, guest_asks_xen, guest_asks_xen_end, true);
    check_guest(guest_open_isolated, guest_asks_xen, guest_asks_xen_end, true);
}

static void test_registers_of_a_xen_pv_kernel_are_the_list(void **state)
{
    (void)state;
    struct guest g;
    struct msr_set want;
    uint64_t answers[64 / sizeof(uint64_t)];
    if (guest_skip_xenpv() == 77)
        skip();
    run(&g, guest_open_xenpv, guest_reads, guest_reads_end, answers, sizeof answers);
    guest_close(&g);
    msr_xenpv(&want);
    assert_int_equal(want.nmsrs, CL_COUNT(msrs));
    for (size_t i = 0; i < CL_COUNT(msrs); i++) {
        assert_int_equal(want.entries[i].index, msrs[i]);
        assert_int_equal(answers[i], want.entries[i].data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpuid_is_the_table),
        cmocka_unit_test(test_cpuid_of_a_xen_pv_kernel_is_the_table),
        cmocka_unit_test(test_registers_of_a_xen_pv_kernel_are_the_list),
    };
    return guest_skip() ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
