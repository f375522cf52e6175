/* vmm/xenpv_area.c - the part of a Xen-PV guest's memory that is its shim's (vmm/shim/layout.h). */
#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

#include "vmm/cpuid.h"
#include "vmm/msr.h"
#include "vmm/shim/xen.h"
#include "vmm/xenpv_priv.h"

extern const uint8_t shim_code[]; /* generated of vmm/shim */
extern const size_t shim_code_size;

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ACCESSED_DIRTY = 0x60, LARGE = 0x80, ENTRIES = 512 };
enum { TABLE = PRESENT | WRITABLE | USER | ACCESSED_DIRTY };
#define LARGE_PAGE (UINT64_C(2) << 20)
#define GIB (UINT64_C(1) << 30)

enum { SLOT_OF_M2P, SLOT_OF_SHIM, SLOT_OF_FRAMES };

/* The area while it is made: all of it is one piece of RAM. */
struct area {
    uint8_t *host;
    uint64_t gpa, bytes;
    uint64_t frames; /* of RAM in front of it */
    unsigned n_tables;
};

static uint64_t m2p_bytes(uint64_t mem_bytes)
{
    uint64_t bytes = mem_bytes / XENPV_PAGE * sizeof(uint64_t);
    return (bytes + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
}

int xenpv_divide(const struct guest_mem *mem, uint64_t *ret_area, struct cl_err *err)
{
    uint64_t end = mem->low & ~(LARGE_PAGE - 1), bytes = SHIM_M2P + m2p_bytes(end);
    _Static_assert(GM_LOW_MAX / XENPV_PAGE <= SHIM_LEVELS_MAX, "a byte for each frame");
    if (mem->high > 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "a guest that is entered by Xen PV has at most %" PRIu64 " MiB of memory",
                       GM_LOW_MAX >> 20);
    if (bytes >= end)
        return cl_fail(err, CL_E_INVALID, 0, "%" PRIu64 " bytes of memory; the shim takes %" PRIu64,
                       mem->low, bytes);
    *ret_area = end - bytes;
    return 0;
}

/* --- the shim's state ---------------------------------------------------------------------- */

static void put_msrs(struct shim_state *s)
{
    struct msr_set set;
    msr_xenpv(&set);
    s->n_msrs = CL_MIN(set.nmsrs, (uint32_t)SHIM_MSRS_MAX);
    for (uint32_t i = 0; i < s->n_msrs; i++)
        s->msrs[i] = (struct shim_msr){.index = set.entries[i].index, .value = set.entries[i].data};
}

static void put_cpuid(struct area *a, struct shim_state *s, const struct kvm_cpuid_table *of_kvm)
{
    struct kvm_cpuid_table table;
    struct shim_cpuid *leaves = (void *)(a->host + SHIM_CPUID);
    _Static_assert((int)KVM_CPUID_MAX <= (int)SHIM_CPUID_MAX, "a place for each leaf");
    cpuid_xenpv(of_kvm, &table);
    s->n_cpuid = table.nent;
    for (uint32_t i = 0; i < table.nent; i++) {
        const struct kvm_cpuid_entry2 *e = &table.entries[i];
        bool any = !(e->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX);
        leaves[i] = (struct shim_cpuid){e->function, e->index, any, e->eax, e->ebx, e->ecx, e->edx};
    }
}

/* Time 0 is now.  The scale is below 2^32 for a TSC of more than 1 GHz; slower ones are shifted. */
static void put_shared_info(struct area *a, const struct xenpv_input *input)
{
    struct xen_shared_info *info = (void *)(a->host + SHIM_SHARED_INFO);
    uint64_t khz = input->tsc_khz;
    int8_t shift = 0;
    for (; khz <= 1000000; khz *= 2)
        shift++;
    for (unsigned i = 0; i < XEN_LEGACY_VCPUS; i++)
        info->vcpu_info[i].upcall_mask = 1;
    info->vcpu_info[0].time =
        (struct xen_time_info){.version = 2,
                               .tsc_timestamp = input->tsc,
                               .mul = (uint32_t)((UINT64_C(1000000) << 32) / khz),
                               .shift = shift,
                               .flags = XEN_TSC_STABLE};
    uint64_t seconds = input->now_ns / 1000000000;
    info->wc_version = 2;
    info->wc_sec = (uint32_t)seconds;
    info->wc_sec_hi = (uint32_t)(seconds >> 32);
    info->wc_nsec = (uint32_t)(input->now_ns % 1000000000);
}

/* --- descriptor tables --------------------------------------------------------------------- */

static void put_gdt(struct area *a)
{
    uint64_t *gdt = (void *)(a->host + SHIM_GDT), tss = SHIM_VA + SHIM_TSS;
    gdt[SHIM_CS0 / 8] = UINT64_C(0x00af9b000000ffff);
    gdt[SHIM_DS0 / 8] = UINT64_C(0x00cf93000000ffff);
    gdt[SHIM_CS3_32 / 8] = UINT64_C(0x00cffb000000ffff);
    gdt[SHIM_DS3 / 8] = UINT64_C(0x00cff3000000ffff);
    gdt[SHIM_CS3 / 8] = UINT64_C(0x00affb000000ffff);
    gdt[SHIM_TR / 8] =
        SHIM_TSS_LIMIT | (tss & 0xffffff) << 16 | UINT64_C(0x89) << 40 | (tss >> 24 & 0xff) << 56;
    gdt[SHIM_TR / 8 + 1] = tss >> 32;
}

/* Intel SDM 3A §7.7: stacks, and where the bitmap of ports is. */
static void put_tss(struct area *a, uint64_t tss, uint16_t bitmap)
{
    static const struct {
        unsigned offset;
        uint64_t stack;
    } stacks[] = {{0x04, SHIM_BREAK_STACK},
                  {0x24, SHIM_TRAP_STACK},
                  {0x2c, SHIM_FAULT_STACK},
                  {0x34, SHIM_IRQ_STACK}};
    for (size_t i = 0; i < CL_COUNT(stacks); i++) {
        uint64_t at = SHIM_VA + stacks[i].stack;
        memcpy(a->host + tss + stacks[i].offset, &at, sizeof at);
    }
    memcpy(a->host + tss + 0x66, &bitmap, sizeof bitmap);
}

enum { TRAPS = 22, BREAK = 3, FAULT = 14 };
enum { ON_TRAP_STACK = 1, ON_FAULT_STACK, ON_IRQ_STACK };
enum { FOR_CPL0 = 0, FOR_CPL3 = 3 }; /* who may name the gate in an INT */

/* Intel SDM 3A §6.14.1: an interrupt gate. */
static void put_gate(uint64_t *idt, unsigned vector, uint64_t handler, unsigned selector,
                     unsigned stack, uint64_t caller)
{
    idt[2 * vector] = (handler & 0xffff) | (uint64_t)selector << 16 | (uint64_t)stack << 32 |
                      (UINT64_C(0x8e) | caller << 5) << 40 | (handler >> 16 & 0xffff) << 48;
    idt[2 * vector + 1] = handler >> 32;
}

static void put_idt(struct area *a, const struct shim_head *head, bool is_isolated)
{
    uint64_t *idt = (void *)(a->host + SHIM_IDT);
    for (unsigned i = 0; i < TRAPS; i++)
        put_gate(idt, i, head->on_trap + i * 16, SHIM_CS3, ON_TRAP_STACK, FOR_CPL3);
    put_gate(idt, BREAK, is_isolated ? head->isolated_break_gate : head->break_gate, SHIM_CS0, 0,
             FOR_CPL3);
    put_gate(idt, FAULT, head->fault_gate, SHIM_CS0, ON_FAULT_STACK, FOR_CPL3);
    put_gate(idt, SHIM_IRQ_VECTOR, head->irq_gate, SHIM_CS0, ON_IRQ_STACK, FOR_CPL3);
}

/* User code may name int3 only: whatever else it named would come without the processor's error
 * code, or be taken for an interrupt. */
static void put_user_idt(struct area *a, const struct shim_head *head)
{
    uint64_t *idt = (void *)(a->host + SHIM_USER_IDT);
    for (unsigned i = 0; i < TRAPS; i++)
        put_gate(idt, i, head->user_traps + i * 16, SHIM_CS0, ON_TRAP_STACK, FOR_CPL0);
    put_gate(idt, BREAK, head->user_break_gate, SHIM_CS0, ON_TRAP_STACK, FOR_CPL3);
    put_gate(idt, FAULT, head->user_fault_gate, SHIM_CS0, ON_FAULT_STACK, FOR_CPL0);
    put_gate(idt, SHIM_IRQ_VECTOR, head->user_irq_gate, SHIM_CS0, ON_IRQ_STACK, FOR_CPL0);
}

/* What a CPL0 stub returns by to CPL3, on the stack as the processor and the stub left it. */
static void put_return(struct area *a, uint64_t at, uint64_t rip, uint64_t flags, uint64_t rsp)
{
    const uint64_t frame[] = {rip, SHIM_CS3, flags, SHIM_VA + rsp, SHIM_DS3};
    memcpy(a->host + at, frame, sizeof frame);
}

/* What leads out of the user view: SYSCALL to an int3, each exception and each interrupt. */
static void put_user_doors(struct area *a, const struct shim_head *head)
{
    enum { ALWAYS = 2, PUSHED = 40, INT3 = 0xcc, NO_BITMAP = UINT16_MAX };
    static const uint8_t door[] = {INT3, 0xeb, (uint8_t)-3}; /* jmp back: see ASK in shim/entry.S */
    memset(a->host + SHIM_USER_CODE, INT3, XENPV_PAGE);
    memcpy(a->host + SHIM_USER_CODE + head->on_syscall % XENPV_PAGE, door, sizeof door);
    put_tss(a, SHIM_USER_TSS, NO_BITMAP);
    put_user_idt(a, head);
    /* All stubs have pushed RAX; besides, CR2 beside the error code, or a vector. */
    put_return(a, SHIM_USER_FAULT_FRAME, head->on_user_fault, ALWAYS | FLAG_IF,
               SHIM_FAULT_STACK - PUSHED - 24);
    put_return(a, SHIM_USER_TRAP_FRAME, head->on_user_trap, ALWAYS | FLAG_IF,
               SHIM_TRAP_STACK - PUSHED - 24);
    put_return(a, SHIM_USER_BREAK_FRAME, head->on_user_break, ALWAYS | FLAG_IF,
               SHIM_TRAP_STACK - PUSHED - 8);
    put_return(a, SHIM_USER_IRQ_FRAME, head->on_user_irq, ALWAYS, SHIM_IRQ_STACK - PUSHED - 8);
}

static void put_descriptors(struct area *a, const struct shim_head *head, bool is_isolated)
{
    enum { ALWAYS = 2, PUSHED = 40 };
    put_gdt(a);
    put_tss(a, SHIM_TSS, SHIM_IOMAP);
    a->host[SHIM_TSS + SHIM_TSS_LIMIT] = 0xff; /* all ports are open */
    put_idt(a, head, is_isolated);
    /* The fault has an error code, and its stub has pushed RAX. */
    put_return(a, SHIM_FAULT_FRAME, head->on_fault, ALWAYS | FLAG_IF,
               SHIM_FAULT_STACK - PUSHED - 16);
    put_return(a, SHIM_IRQ_FRAME, head->on_irq, ALWAYS, SHIM_IRQ_STACK - PUSHED);
    put_return(a, SHIM_BREAK_FRAME, head->on_break, ALWAYS | FLAG_IF, SHIM_TRAP_STACK - PUSHED);
    put_user_doors(a, head);
}

/* --- page tables --------------------------------------------------------------------------- */

/* A fresh one; its entry for a table above. */
static uint64_t *new_table(struct area *a, uint64_t *ret_entry)
{
    uint64_t at = SHIM_TABLES + (uint64_t)a->n_tables++ * XENPV_PAGE;
    CL_ASSERT(a->n_tables <= SHIM_TABLES_MAX);
    *ret_entry = (a->gpa + at) | TABLE;
    return (void *)(a->host + at);
}

/* `bytes` of memory from gpa on, in large pages, from the start of a slot. */
static uint64_t map_large(struct area *a, uint64_t gpa, uint64_t bytes)
{
    uint64_t slot, *pointers = new_table(a, &slot);
    for (uint64_t from = 0; from < bytes; from += GIB) {
        uint64_t *directory = new_table(a, &pointers[from / GIB]);
        for (uint64_t at = from; at < CL_MIN(bytes, from + GIB); at += LARGE_PAGE)
            directory[at % GIB / LARGE_PAGE] = (gpa + at) | TABLE | LARGE;
    }
    return slot;
}

/* The first 2 MiB of the area.  Tables that CPL0 uses, and nobody else, are CPL0's. */
static uint64_t map_shim(struct area *a)
{
    uint64_t slot, *pointers = new_table(a, &slot), *directory = new_table(a, &pointers[0]),
                   *table = new_table(a, &directory[0]);
    for (uint64_t i = 0; i < ENTRIES; i++) {
        uint64_t at = i * XENPV_PAGE;
        bool is_private = at >= SHIM_PRIVATE && at < SHIM_STACKS;
        table[i] = (a->gpa + at) | (TABLE & ~(is_private ? (uint64_t)USER : 0));
    }
    return slot;
}

/* What user code of an isolated guest has of it (vmm/shim/layout.h). */
static uint64_t map_user_view(struct area *a)
{
    static const struct {
        uint64_t at, from, rights;
    } pages[] = {{SHIM_CODE, SHIM_USER_CODE, USER},
                 {SHIM_GATES, SHIM_GATES, 0},
                 {SHIM_GDT, SHIM_GDT, 0},
                 {SHIM_IDT, SHIM_USER_IDT, 0},
                 {SHIM_TSS, SHIM_USER_TSS, 0},
                 {SHIM_TRAP_STACK - XENPV_PAGE, SHIM_TRAP_STACK - XENPV_PAGE, WRITABLE},
                 {SHIM_FAULT_STACK - XENPV_PAGE, SHIM_FAULT_STACK - XENPV_PAGE, WRITABLE},
                 {SHIM_IRQ_STACK - XENPV_PAGE, SHIM_IRQ_STACK - XENPV_PAGE, WRITABLE},
                 {SHIM_FRAMES, SHIM_FRAMES, WRITABLE}};
    uint64_t slot, *pointers = new_table(a, &slot), *directory = new_table(a, &pointers[0]),
                   *table = new_table(a, &directory[0]);
    for (size_t i = 0; i < CL_COUNT(pages); i++)
        table[pages[i].at / XENPV_PAGE] =
            (a->gpa + pages[i].from) | PRESENT | ACCESSED_DIRTY | pages[i].rights;
    return slot;
}

/* --- all of it ------------------------------------------------------------------------------ */

static void put_state(struct area *a, const struct xenpv_plan *plan,
                      const struct xenpv_input *input, const uint64_t slots[static SHIM_SLOTS])
{
    enum { TICKS_PER_NS = 1000000 }; /* of a TSC of so many kHz */
    struct shim_state *s = (void *)(a->host + SHIM_STATE);
    s->frames = a->frames;
    s->is_isolated = input->is_isolated;
    memcpy(s->slots, slots, sizeof s->slots);
    s->user_slots[SLOT_OF_SHIM] = map_user_view(a);
    s->console_frame = plan->console / XENPV_PAGE;
    s->tsc_start = input->tsc;
    s->ns_scale = ((uint64_t)TICKS_PER_NS << 32) / input->tsc_khz;
    s->tsc_scale = ((uint64_t)input->tsc_khz << 32) / TICKS_PER_NS;
    s->vcpu_info = SHIM_VA + SHIM_SHARED_INFO;
    s->times[SHIM_TIME_VCPU] =
        a->gpa + SHIM_SHARED_INFO + offsetof(struct xen_shared_info, vcpu_info[0].time);
    s->channels[XEN_PORT_STORE] = s->channels[XEN_PORT_CONSOLE] = CHANNEL_REMOTE;
    memset(s->channels + SHIM_DEVICE_PORT, CHANNEL_REMOTE, SHIM_DEVICES);
    put_msrs(s);
    put_cpuid(a, s, input->cpuid);
    struct shim_doors *doors = (void *)(a->host + SHIM_DOORS);
    doors->kernel_root = plan->root;
}

static void put_m2p(struct area *a)
{
    uint64_t *m2p = (void *)(a->host + SHIM_M2P);
    for (uint64_t i = 0; i < a->frames; i++)
        m2p[i] = i;
}

int xenpv_put_area(const struct guest_mem *mem, const struct xenpv_plan *plan,
                   const struct xenpv_input *input, uint64_t ret_slots[static SHIM_SLOTS],
                   struct shim_head *ret_head, struct cl_err *err)
{
    struct iovec all;
    struct shim_head head;
    if (gm_iov(mem, (struct gpa){plan->area}, mem->low - plan->area, &all) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "guest memory has no room for the shim");
    struct area a = {all.iov_base, plan->area, all.iov_len, plan->area / XENPV_PAGE, 0};
    _Static_assert(SHIM_TABLES + SHIM_TABLES_MAX * XENPV_PAGE <= SHIM_STACKS, "tables fit");
    memcpy(&head, shim_code, sizeof head);
    CL_ASSERT(shim_code_size <= SHIM_CODE_BYTES && head.magic == SHIM_MAGIC);
    memcpy(a.host + SHIM_CODE, shim_code, shim_code_size);
    ret_slots[SLOT_OF_M2P] = map_large(&a, a.gpa + SHIM_M2P, a.bytes - SHIM_M2P);
    ret_slots[SLOT_OF_SHIM] = map_shim(&a);
    ret_slots[SLOT_OF_FRAMES] = map_large(&a, 0, mem->low);
    put_m2p(&a);
    put_descriptors(&a, &head, input->is_isolated);
    put_shared_info(&a, input);
    put_state(&a, plan, input, ret_slots);
    *ret_head = head;
    return 0;
}
