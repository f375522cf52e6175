/* vmm/costs.c - see vmm/costs.h. */
#include "vmm/costs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/own.h"
#include "vmm/cpuid.h"
#include "vmm/kvm.h"
#include "vmm/msr.h"
#include "vmm/vcpu_state.h"

/* --- the guest ------------------------------------------------------------------------------ */

/* rdi  where the next sample goes         r12  page-table entry of the next page
 * r8   how many are left                  r13  on_fault
 * r9   the next page, linear              r14  where on_fault returns to
 * rsi  its page-table entry, linear */
__asm__(".pushsection .rodata\n"
        ".code64\n"
        ".macro costs_begin\n"
        "    rdtsc\n shl $32, %rdx\n or %rdx, %rax\n mov %rax, %r10\n"
        ".endm\n"
        ".macro costs_end again\n"
        "    rdtsc\n shl $32, %rdx\n or %rdx, %rax\n sub %r10, %rax\n"
        "    mov %rax, (%rdi)\n add $8, %rdi\n dec %r8\n jnz \\again\n"
        "    out %al, $0x80\n" /* done */
        "9:  jmp 9b\n"
        ".endm\n"
        "costs_guest:\n"
        "costs_syscall:\n"
        "1:  costs_begin\n syscall\n costs_end 1b\n"
        "costs_on_syscall:\n" /* a KVM that interprets ring 0 comes here at CPL3 */
        "    jmp *%rcx\n"
        "costs_cpuid:\n"
        "1:  costs_begin\n xor %eax, %eax\n cpuid\n costs_end 1b\n"
        "costs_fault:\n"
        "1:  lea 2f(%rip), %r14\n costs_begin\n"
        "2:  movb $1, (%r9)\n"
        "    add $4096, %r9\n add $4096, %r12\n add $8, %rsi\n costs_end 1b\n"
        "costs_gate:\n" /* CPL0: four instructions, as many as the shim's */
        "    mov %cr2, %rax\n add $8, %rsp\n mov %r13, (%rsp)\n iretq\n"
        "costs_on_fault:\n"
        "    mov %r12, (%rsi)\n jmp *%r14\n"
        "costs_guest_end:\n"
        ".purgem costs_begin\n"
        ".purgem costs_end\n"
        ".popsection\n");
extern const uint8_t costs_guest[], costs_guest_end[], costs_syscall[], costs_on_syscall[],
    costs_cpuid[], costs_fault[], costs_gate[], costs_on_fault[];

enum {
    PAGE = 4096,
    /* Guest-physical, and mapped at the same addresses. */
    CODE_AT = 0x1000,
    TABLES_AT = 0x2000, /* four levels, of the first 2 MiB */
    LAST_LEVEL_AT = 0x5000,
    WINDOW_TABLE_AT = 0x6000, /* of the next 2 MiB: empty, the guest fills it */
    GDT_AT = 0x7000,
    TSS_AT = 0x7800,
    IDT_AT = 0x8000,
    STACK_TOP = 0xa000, /* of CPL0 */
    SAMPLES_AT = 0xa000,
    PAGES_AT = 0x100000, /* that appear in the window */
    MEM_BYTES = 0x200000,
    WINDOW_AT = 0x200000,
    DONE_PORT = 0x80,
    /* IOPL 3, beside the bitmap of ports: QEMU's emulation reads none of a TSS that KVM calls busy.
     */
    FLAGS = 0x3002,
    ENTRIES = PAGE / 8,
    PAGE_FAULT = 14,
    /* Of a page-table entry: present, writable, user's; accessed and dirty, so that nobody writes
     * them. */
    ENTRY = 0x67,
    CS0 = 0x10, /* selectors: those of CPL3 are Linux's (vmm/shim/layout.h) */
    DS3 = 0x2b,
    CS3 = 0x33,
    TR = 0x40,
    TSS_LIMIT = 0x88, /* with a bitmap of the first 256 ports, all open */
    TSS_RSP0 = 4,
    TSS_IOMAP = 0x66,
};
_Static_assert(SAMPLES_AT + COSTS_SAMPLES * 8 <= PAGES_AT, "samples and pages are apart");
_Static_assert(PAGES_AT + COSTS_SAMPLES * PAGE <= MEM_BYTES, "a page for each sample");

/* --- its machine ---------------------------------------------------------------------------- */

struct machine {
    int vm_fd, vcpu_fd; /* owned */
    struct kvm_run *run;
    size_t run_bytes;
    uint8_t *memory;
};

static void machine_close(struct machine *m)
{
    if (m->run)
        (void)munmap(m->run, m->run_bytes);
    cl_closep(&m->vcpu_fd);
    cl_closep(&m->vm_fd);
    if (m->memory)
        (void)munmap(m->memory, MEM_BYTES);
}

static void put(struct machine *m, uint32_t at, uint64_t value)
{
    memcpy(m->memory + at, &value, sizeof value);
}

static void load_tables(struct machine *m)
{
    for (uint32_t at = TABLES_AT; at < LAST_LEVEL_AT; at += PAGE)
        put(m, at, (at + PAGE) | (uint64_t)ENTRY);
    put(m, LAST_LEVEL_AT - PAGE + 8, WINDOW_TABLE_AT | (uint64_t)ENTRY);
    for (uint32_t i = 0; i < ENTRIES; i++)
        put(m, LAST_LEVEL_AT + i * 8, i * (uint64_t)PAGE | ENTRY);
}

/* Where a piece of the guest's code is, for the guest. */
static uint64_t linear(const uint8_t *code)
{
    return CODE_AT + (uint64_t)(code - costs_guest);
}

/* Intel SDM 3A §3.4.5, §6.14.1, §7.7 */
static void load_descriptors(struct machine *m)
{
    const uint64_t gate = linear(costs_gate);
    put(m, GDT_AT + CS0, UINT64_C(0x00af9b000000ffff));
    put(m, GDT_AT + (DS3 & ~7), UINT64_C(0x00cff3000000ffff));
    put(m, GDT_AT + (CS3 & ~7), UINT64_C(0x00affb000000ffff));
    put(m, GDT_AT + TR, UINT64_C(0x00008b0000000000) | (uint64_t)TSS_AT << 16 | TSS_LIMIT);
    put(m, IDT_AT + PAGE_FAULT * 16,
        (gate >> 16) << 48 | UINT64_C(0x8e00) << 32 | (uint64_t)CS0 << 16 | (gate & 0xffff));
    put(m, TSS_AT + TSS_RSP0, STACK_TOP);
    m->memory[TSS_AT + TSS_IOMAP] = TSS_IOMAP + 2;
    m->memory[TSS_AT + TSS_LIMIT] = 0xff; /* the byte behind the bitmap */
}

/* There from now on, and in small pages: of a large one KVM would map all at the first fault. */
static int add_memory(struct machine *m, struct cl_err *err)
{
    void *memory =
        mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return cl_fail(err, CL_E_NOMEM, errno, "memory of a guest that measures");
    (void)madvise(memory, MEM_BYTES, MADV_NOHUGEPAGE); /* it fails where there are none */
    m->memory = memset(memory, 0, MEM_BYTES);
    return 0;
}

static int machine_open(struct machine *m, int kvm_fd, struct cl_err *err)
{
    *m = (struct machine){.vm_fd = -1, .vcpu_fd = -1};
    if (add_memory(m, err) < 0)
        return -1;
    const struct kvm_slot slot = {.host = m->memory, .bytes = MEM_BYTES};
    memcpy(m->memory + CODE_AT, costs_guest, (size_t)(costs_guest_end - costs_guest));
    load_tables(m);
    load_descriptors(m);
    if (kvm_create_vm(kvm_fd, &m->vm_fd, err) < 0 || kvm_set_slot(m->vm_fd, &slot, err) < 0 ||
        kvm_create_vcpu(m->vm_fd, 0, &m->vcpu_fd, err) < 0)
        return -1;
    return kvm_map_run(kvm_fd, m->vcpu_fd, &m->run, &m->run_bytes, err);
}

static struct kvm_segment segment(uint16_t selector, bool is_code)
{
    return (struct kvm_segment){.limit = UINT32_MAX,
                                .selector = selector,
                                .type = is_code ? 11 : 3,
                                .present = 1,
                                .dpl = 3,
                                .db = !is_code,
                                .s = 1,
                                .l = is_code,
                                .g = 1};
}

static int enter_long_mode(struct machine *m, struct cl_err *err)
{
    const struct msr_set msrs = {
        .nmsrs = 3,
        .entries = {{.index = 0xc0000081, .data = UINT64_C(0x23) << 48 | (uint64_t)CS0 << 32},
                    {.index = 0xc0000082, .data = linear(costs_on_syscall)},
                    {.index = 0xc0000084, .data = 0}}};
    struct kvm_sregs s;
    if (KVM_CALL(m->vcpu_fd, KVM_GET_SREGS, &s, err) < 0)
        return -1;
    s.cr0 = UINT64_C(0x80010033); /* PG WP NE ET MP PE */
    s.cr3 = TABLES_AT;
    s.cr4 = 1 << 5; /* PAE */
    s.efer = 0xd01; /* NXE LMA LME SCE */
    s.cs = segment(CS3, true);
    s.ss = s.ds = s.es = s.fs = s.gs = segment(DS3, false);
    s.tr = (struct kvm_segment){
        .base = TSS_AT, .limit = TSS_LIMIT, .selector = TR, .type = 11, .present = 1};
    s.gdt = (struct kvm_dtable){.base = GDT_AT, .limit = TR + 15};
    s.idt = (struct kvm_dtable){.base = IDT_AT, .limit = PAGE_FAULT * 16 + 15};
    if (KVM_CALL(m->vcpu_fd, KVM_SET_SREGS, &s, err) < 0)
        return -1;
    return msr_write(m->vcpu_fd, &msrs, err);
}

/* --- one figure ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int run(struct machine *m, struct cl_err *err)
{
    do {
        if (ioctl(m->vcpu_fd, KVM_RUN, 0UL) < 0 && errno != EINTR)
            return cl_fail(err, CL_E_SYS, errno, "KVM_RUN");
    } while (m->run->exit_reason == KVM_EXIT_INTR);
    if (m->run->exit_reason != KVM_EXIT_IO || m->run->io.port != DONE_PORT)
        return cl_fail(err, CL_E_SYS, 0, "a guest of ring 3 that measures ended by exit %u",
                       m->run->exit_reason);
    return 0;
}

/* Was all of it where it should be? */
static int check_ring(const struct machine *m, struct cl_err *err)
{
    struct kvm_sregs s;
    if (KVM_CALL(m->vcpu_fd, KVM_GET_SREGS, &s, err) < 0)
        return -1;
    if ((s.cs.selector & 3) != 3)
        return cl_fail(err, CL_E_SYS, 0, "a guest of ring 3 that measures came to ring %u",
                       s.cs.selector & 3U);
    return 0;
}

/* Ticks of the TSC, the median of what the code at `entry` measures. */
static int measure(struct machine *m, const uint8_t *entry, uint64_t *ret_ticks, struct cl_err *err)
{
    uint64_t samples[COSTS_SAMPLES];
    const struct kvm_regs regs = {.rip = linear(entry),
                                  .rflags = FLAGS,
                                  .rsp = STACK_TOP,
                                  .rdi = SAMPLES_AT,
                                  .r8 = COSTS_SAMPLES,
                                  .r9 = WINDOW_AT,
                                  .rsi = WINDOW_TABLE_AT,
                                  .r12 = PAGES_AT | ENTRY,
                                  .r13 = linear(costs_on_fault)};
    if (enter_long_mode(m, err) < 0 ||
        KVM_CALL(m->vcpu_fd, KVM_SET_REGS, (void *)(uintptr_t)&regs, err) < 0 || run(m, err) < 0 ||
        check_ring(m, err) < 0)
        return -1;
    memcpy(samples, m->memory + SAMPLES_AT, sizeof samples);
    qsort(samples, CL_COUNT(samples), sizeof samples[0], compare);
    *ret_ticks = samples[COSTS_SAMPLES / 2];
    return 0;
}

static int measure_both(struct machine *m, struct costs *ret_costs, struct cl_err *err)
{
    bool native = cpuid_host_virtualizes();
    uint64_t transition, fault;
    uint32_t khz;
    if (vcpu_state_tsc_khz(m->vcpu_fd, &khz, err) < 0 ||
        measure(m, native ? costs_cpuid : costs_syscall, &transition, err) < 0 ||
        measure(m, costs_fault, &fault, err) < 0)
        return -1;
    *ret_costs = (struct costs){.transition_ns = transition * 1000000 / khz,
                                .fault_ns = fault * 1000000 / khz,
                                .by = native ? "CPUID" : "SYSCALL"};
    return 0;
}

int costs_measure(int kvm_fd, struct costs *ret_costs, struct cl_err *err)
{
    struct machine m;
    int rc = machine_open(&m, kvm_fd, err);
    if (rc == 0)
        rc = measure_both(&m, ret_costs, err);
    machine_close(&m);
    return rc;
}
