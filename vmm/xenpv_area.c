/* vmm/xenpv_area.c - the part of a Xen-PV guest's memory that is its shim's (vmm/shim/layout.h). */
#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

#include "vmm/cpuid.h"
#include "vmm/msr.h"
#include "vmm/shim/xen.h"
#include "vmm/xenpv_priv.h"

/* Generated of vmm/shim, one for each slice. */
extern const uint8_t shim_code_0[], shim_code_1[], shim_code_2[], shim_code_3[];
extern const size_t shim_code_0_size;
static const uint8_t *const shim_codes[] = {shim_code_0, shim_code_1, shim_code_2, shim_code_3};
_Static_assert(CL_COUNT(shim_codes) == SHIM_CPUS_MAX, "one for each slice");

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ACCESSED_DIRTY = 0x60, LARGE = 0x80, ENTRIES = 512 };
enum { TABLE = PRESENT | WRITABLE | USER | ACCESSED_DIRTY };
#define LARGE_PAGE (UINT64_C(2) << 20)
#define GIB (UINT64_C(1) << 30)

enum { SLOT_OF_M2P, SLOT_OF_SHIM, SLOT_OF_FRAMES };

/* The area while it is made: all of it is one piece of RAM. */
struct area {
    uint8_t *host;
    uint64_t gpa, bytes;
    uint64_t frames;            /* in front of it, */
    uint64_t hole, hole_frames; /* of which so many, from that one on, are not RAM */
    unsigned n_tables, n_cpus;
};

/* A vCPU's slice of it. */
struct slice {
    uint8_t *host;
    uint64_t va;
    struct shim_head head; /* of its code */
};

static struct slice slice_of(const struct area *a, unsigned cpu)
{
    struct slice s = {.host = a->host + (size_t)cpu * SHIM_SLICE,
                      .va = SHIM_VA + (uint64_t)cpu * SHIM_SLICE};
    memcpy(&s.head, shim_codes[cpu], sizeof s.head);
    return s;
}

/* --- where it is --------------------------------------------------------------------------- */

/* Behind m2p, whose entries have eight bytes each. */
static uint64_t levels_at(uint64_t frames)
{
    return SHIM_M2P + frames * sizeof(uint64_t);
}

static uint64_t area_bytes(uint64_t frames)
{
    return (levels_at(frames) + frames + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
}

/* The last of the memory behind the hole; of that in front of it when it does not fit there, so
 * that those few megabytes are nobody's. */
int xenpv_divide(const struct guest_mem *mem, struct guest_mem *ret_ram, struct cl_err *err)
{
    struct guest_mem ram = *mem;
    uint64_t bytes = area_bytes(gm_end(mem) / XENPV_PAGE);
    if (mem->low + mem->high > XENPV_MEM_MAX)
        return cl_fail(err, CL_E_INVALID, 0,
                       "a guest that is entered by Xen PV has at most %" PRIu64 " MiB of memory",
                       XENPV_MEM_MAX >> 20);
    if (mem->high <= bytes)
        ram.high = 0;
    uint64_t *last = ram.high > 0 ? &ram.high : &ram.low;
    *last &= ~(LARGE_PAGE - 1);
    if (bytes >= *last)
        return cl_fail(err, CL_E_INVALID, 0, "%" PRIu64 " bytes of memory; the shim takes %" PRIu64,
                       mem->low, bytes);
    *last -= bytes;
    *ret_ram = ram;
    return 0;
}

/* --- the shim's state ---------------------------------------------------------------------- */

static void put_msrs(struct shim_common *c)
{
    struct msr_set set;
    msr_xenpv(&set);
    c->n_msrs = CL_MIN(set.nmsrs, (uint32_t)SHIM_MSRS_MAX);
    for (uint32_t i = 0; i < c->n_msrs; i++)
        c->msrs[i] = (struct shim_msr){.index = set.entries[i].index, .value = set.entries[i].data};
}

/* How many leaves. */
static uint32_t put_cpuid(const struct slice *slice, const struct kvm_cpuid_table *of_kvm)
{
    struct kvm_cpuid_table table;
    struct shim_cpuid *leaves = (void *)(slice->host + SHIM_CPUID);
    _Static_assert((int)KVM_CPUID_MAX <= (int)SHIM_CPUID_MAX, "a place for each leaf");
    cpuid_xenpv(of_kvm, &table);
    for (uint32_t i = 0; i < table.nent; i++) {
        const struct kvm_cpuid_entry2 *e = &table.entries[i];
        bool any = !(e->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX);
        leaves[i] = (struct shim_cpuid){e->function, e->index, any, e->eax, e->ebx, e->ecx, e->edx};
    }
    return table.nent;
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
    for (unsigned i = 0; i < a->n_cpus; i++)
        info->vcpu_info[i].time =
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

static void put_gdt(const struct slice *s)
{
    uint64_t *gdt = (void *)(s->host + SHIM_GDT), tss = s->va + SHIM_TSS;
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
static void put_tss(const struct slice *s, uint64_t tss, uint16_t bitmap)
{
    static const struct {
        unsigned offset;
        uint64_t stack;
    } stacks[] = {{0x04, SHIM_BREAK_STACK},
                  {0x24, SHIM_TRAP_STACK},
                  {0x2c, SHIM_FAULT_STACK},
                  {0x34, SHIM_IRQ_STACK}};
    for (size_t i = 0; i < CL_COUNT(stacks); i++) {
        uint64_t at = s->va + stacks[i].stack;
        memcpy(s->host + tss + stacks[i].offset, &at, sizeof at);
    }
    memcpy(s->host + tss + 0x66, &bitmap, sizeof bitmap);
}

enum { TRAPS = 22, BREAK = 3, OVERFLOW = 4, FAULT = 14 };
enum { ON_TRAP_STACK = 1, ON_FAULT_STACK, ON_IRQ_STACK };
enum { FOR_CPL0 = 0, FOR_CPL3 = 3 }; /* who may name the gate in an INT */

/* Intel SDM 3A §6.14.1.  To CPL0 an interrupt gate, which clears IF; what is returned from there
 * sets it again.  To CPL3 a trap gate, which leaves it, because no IRETQ of CPL3 could set it: the
 * guest would go on without interrupts, user code that computes for ever. */
static void put_gate(uint64_t *idt, unsigned vector, uint64_t handler, unsigned selector,
                     unsigned stack, uint64_t caller)
{
    const uint64_t kind = selector == SHIM_CS3 ? 0x8f : 0x8e;
    idt[2 * vector] = (handler & 0xffff) | (uint64_t)selector << 16 | (uint64_t)stack << 32 |
                      (kind | caller << 5) << 40 | (handler >> 16 & 0xffff) << 48;
    idt[2 * vector + 1] = handler >> 32;
}

static void put_idt(const struct slice *s, const struct shim_state *state)
{
    uint64_t *idt = (void *)(s->host + SHIM_IDT);
    for (unsigned i = 0; i < TRAPS; i++)
        put_gate(idt, i, s->head.on_trap + i * 16, SHIM_CS3, ON_TRAP_STACK, FOR_CPL3);
    put_gate(idt, BREAK, state->is_isolated ? s->head.isolated_break_gate : s->head.break_gate,
             SHIM_CS0, 0, FOR_CPL3);
    put_gate(idt, OVERFLOW, s->head.quick_gate, SHIM_CS0, 0, FOR_CPL3);
    if (state->finds_faults)
        put_gate(idt, FAULT, s->head.on_trap + FAULT * 16, SHIM_CS3, ON_FAULT_STACK, FOR_CPL3);
    else
        put_gate(idt, FAULT, s->head.fault_gate, SHIM_CS0, ON_FAULT_STACK, FOR_CPL3);
    put_gate(idt, SHIM_IRQ_VECTOR, s->head.irq_gate, SHIM_CS0, ON_IRQ_STACK, FOR_CPL3);
}

/* User code may name int3 only: whatever else it named would come without the processor's error
 * code, or be taken for an interrupt. */
static void put_user_idt(const struct slice *s)
{
    uint64_t *idt = (void *)(s->host + SHIM_USER_IDT);
    for (unsigned i = 0; i < TRAPS; i++)
        put_gate(idt, i, s->head.user_traps + i * 16, SHIM_CS0, ON_TRAP_STACK, FOR_CPL0);
    put_gate(idt, BREAK, s->head.user_break_gate, SHIM_CS0, ON_TRAP_STACK, FOR_CPL3);
    put_gate(idt, FAULT, s->head.user_fault_gate, SHIM_CS0, ON_FAULT_STACK, FOR_CPL0);
    put_gate(idt, SHIM_IRQ_VECTOR, s->head.user_irq_gate, SHIM_CS0, ON_IRQ_STACK, FOR_CPL0);
}

/* What a CPL0 stub returns by to CPL3, on the stack as the processor and the stub left it. */
static void put_return(const struct slice *s, uint64_t at, uint64_t rip, uint64_t flags,
                       uint64_t rsp)
{
    const uint64_t frame[] = {rip, SHIM_CS3, flags, s->va + rsp, SHIM_DS3};
    memcpy(s->host + at, frame, sizeof frame);
}

/* What leads out of the user view: SYSCALL to an int3, each exception and each interrupt. */
static void put_user_doors(const struct slice *s)
{
    enum { ALWAYS = 2, PUSHED = 40, INT3 = 0xcc, NO_BITMAP = UINT16_MAX };
    static const uint8_t door[] = {INT3, 0xeb, (uint8_t)-3}; /* jmp back: see ASK in shim/entry.S */
    memset(s->host + SHIM_USER_CODE, INT3, XENPV_PAGE);
    memcpy(s->host + SHIM_USER_CODE + s->head.on_syscall % XENPV_PAGE, door, sizeof door);
    put_tss(s, SHIM_USER_TSS, NO_BITMAP);
    put_user_idt(s);
    /* All stubs have pushed RAX; besides, CR2 beside the error code, or a vector. */
    put_return(s, SHIM_USER_FAULT_FRAME, s->head.on_user_fault, ALWAYS | FLAG_IF,
               SHIM_FAULT_STACK - PUSHED - 24);
    put_return(s, SHIM_USER_TRAP_FRAME, s->head.on_user_trap, ALWAYS | FLAG_IF,
               SHIM_TRAP_STACK - PUSHED - 24);
    put_return(s, SHIM_USER_BREAK_FRAME, s->head.on_user_break, ALWAYS | FLAG_IF,
               SHIM_TRAP_STACK - PUSHED - 8);
    put_return(s, SHIM_USER_IRQ_FRAME, s->head.on_user_irq, ALWAYS, SHIM_IRQ_STACK - PUSHED - 8);
}

static void put_descriptors(const struct slice *s, const struct shim_state *state)
{
    enum { ALWAYS = 2, PUSHED = 40 };
    put_gdt(s);
    put_tss(s, SHIM_TSS, SHIM_IOMAP);
    s->host[SHIM_TSS + SHIM_TSS_LIMIT] = 0xff; /* all ports are open */
    put_idt(s, state);
    /* The fault has an error code, and its stub has pushed RAX. */
    put_return(s, SHIM_FAULT_FRAME, s->head.on_fault, ALWAYS | FLAG_IF,
               SHIM_FAULT_STACK - PUSHED - 16);
    put_return(s, SHIM_IRQ_FRAME, s->head.on_irq, ALWAYS, SHIM_IRQ_STACK - PUSHED);
    put_return(s, SHIM_BREAK_FRAME, s->head.on_break, ALWAYS | FLAG_IF, SHIM_TRAP_STACK - PUSHED);
    put_return(s, SHIM_OVERFLOW_FRAME, s->head.on_overflow, ALWAYS | FLAG_IF,
               SHIM_TRAP_STACK - PUSHED);
    put_user_doors(s);
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

static bool is_private(uint64_t at)
{
    uint64_t in_slice = at % SHIM_SLICE;
    return (at >= SHIM_TABLES && at < SHIM_COMMON) ||
           (at < SHIM_CPUS_MAX * SHIM_SLICE && in_slice >= SHIM_PRIVATE && in_slice < SHIM_STACKS);
}

/* The first 2 MiB of the area.  Tables that CPL0 uses, and nobody else, are CPL0's. */
static uint64_t map_shim(struct area *a)
{
    uint64_t slot, *pointers = new_table(a, &slot), *directory = new_table(a, &pointers[0]),
                   *table = new_table(a, &directory[0]);
    for (uint64_t i = 0; i < ENTRIES; i++) {
        uint64_t at = i * XENPV_PAGE;
        table[i] = (a->gpa + at) | (TABLE & ~(is_private(at) ? (uint64_t)USER : 0));
    }
    return slot;
}

/* What user code of an isolated guest has of one slice (vmm/shim/layout.h). */
static void map_user_pages(const struct area *a, unsigned cpu, uint64_t table[static ENTRIES])
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
    uint64_t slice = (uint64_t)cpu * SHIM_SLICE;
    for (size_t i = 0; i < CL_COUNT(pages); i++)
        table[(slice + pages[i].at) / XENPV_PAGE] =
            (a->gpa + slice + pages[i].from) | PRESENT | ACCESSED_DIRTY | pages[i].rights;
}

/* The slices of all vCPUs: the threads of a process share it. */
static uint64_t map_user_view(struct area *a)
{
    uint64_t slot, *pointers = new_table(a, &slot), *directory = new_table(a, &pointers[0]),
                   *table = new_table(a, &directory[0]);
    for (unsigned i = 0; i < a->n_cpus; i++)
        map_user_pages(a, i, table);
    return slot;
}

/* Page tables of the shim alone: where a vCPU waits until the kernel gives it others. */
static uint64_t put_park_root(struct area *a, const uint64_t slots[static SHIM_SLOTS])
{
    uint64_t root, *table = new_table(a, &root);
    memcpy(&table[SHIM_SLOT_FIRST], slots, SHIM_SLOTS * sizeof *slots);
    return root & ~(uint64_t)(XENPV_PAGE - 1);
}

/* --- all of it ------------------------------------------------------------------------------ */

static void put_common(struct area *a, const struct xenpv_plan *plan,
                       const struct xenpv_input *input, const uint64_t slots[static SHIM_SLOTS])
{
    enum { TICKS_PER_NS = 1000000 }; /* of a TSC of so many kHz */
    struct shim_common *c = (void *)(a->host + SHIM_COMMON);
    c->n_cpus = a->n_cpus;
    c->frames = a->frames;
    c->hole = a->hole;
    c->hole_frames = a->hole_frames;
    c->levels = SHIM_M2P_VA + levels_at(a->frames) - SHIM_M2P;
    memcpy(c->slots, slots, sizeof c->slots);
    c->user_slots[SLOT_OF_SHIM] = map_user_view(a);
    c->console_frame = plan->console / XENPV_PAGE;
    c->image = plan->image;
    c->tsc_start = input->tsc;
    c->ns_scale = ((uint64_t)TICKS_PER_NS << 32) / input->tsc_khz;
    c->tsc_scale = ((uint64_t)input->tsc_khz << 32) / TICKS_PER_NS;
    c->channels[XEN_PORT_STORE].kind = c->channels[XEN_PORT_CONSOLE].kind = CHANNEL_REMOTE;
    for (unsigned i = 0; i < SHIM_DEVICE_EVENTS; i++)
        c->channels[SHIM_DEVICE_PORT + i].kind = CHANNEL_REMOTE;
    put_msrs(c);
}

/* The first vCPU is up, the others wait for the kernel. */
static void put_slice(const struct area *a, unsigned cpu, const struct xenpv_input *input,
                      uint64_t root)
{
    const struct slice slice = slice_of(a, cpu);
    struct shim_state *s = (void *)(slice.host + SHIM_STATE);
    struct shim_doors *doors = (void *)(slice.host + SHIM_DOORS);
    uint64_t info = SHIM_SHARED_INFO + cpu * sizeof(struct xen_vcpu_info);
    CL_ASSERT(shim_code_0_size <= SHIM_CODE_BYTES && slice.head.magic == SHIM_MAGIC);
    memcpy(slice.host + SHIM_CODE, shim_codes[cpu], shim_code_0_size);
    s->cpu = cpu;
    s->is_isolated = input->is_isolated;
    s->finds_faults = !input->is_isolated && a->n_cpus == 1;
    put_descriptors(&slice, s);
    s->is_up = s->start.is_set = cpu == 0;
    s->vcpu_info = SHIM_VA + info;
    s->times[SHIM_TIME_VCPU] = a->gpa + info + offsetof(struct xen_vcpu_info, time);
    s->n_cpuid = put_cpuid(&slice, &input->cpuids[cpu]);
    doors->kernel_root = root;
}

static void put_m2p(struct area *a)
{
    uint64_t *m2p = (void *)(a->host + SHIM_M2P);
    for (uint64_t i = 0; i < a->frames; i++)
        m2p[i] = i;
}

/* Where the vCPUs begin: the first one's rip, rsp and rsi are the kernel's business. */
static void set_entries(const struct area *a, uint64_t root, uint64_t park_root,
                        struct xenpv_entry ret_entries[static XENPV_VCPUS_MAX])
{
    for (unsigned i = 0; i < a->n_cpus; i++) {
        const struct slice slice = slice_of(a, i);
        ret_entries[i] = (struct xenpv_entry){.vcpu = i,
                                              .rip = slice.head.on_park,
                                              .rsp = slice.va + SHIM_PARK_STACK,
                                              .root = i == 0 ? root : park_root,
                                              .slice = slice.va,
                                              .on_syscall = slice.head.on_syscall};
    }
}

int xenpv_put_area(const struct guest_mem *mem, const struct xenpv_plan *plan,
                   const struct xenpv_input *input, struct xenpv_area *ret_area, struct cl_err *err)
{
    struct iovec all;
    uint64_t *slots = ret_area->slots;
    bool is_behind = plan->area > mem->low;
    uint64_t end = (is_behind ? gm_end(mem) : mem->low) & ~(LARGE_PAGE - 1);
    if (gm_iov(mem, (struct gpa){plan->area}, end - plan->area, &all) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "guest memory has no room for the shim");
    struct area a = {.host = all.iov_base,
                     .gpa = plan->area,
                     .bytes = all.iov_len,
                     .frames = plan->area / XENPV_PAGE,
                     .n_cpus = input->vcpus};
    if (is_behind) {
        a.hole = mem->low / XENPV_PAGE;
        a.hole_frames = (mem->high_at - mem->low) / XENPV_PAGE;
    }
    _Static_assert(SHIM_TABLES + SHIM_TABLES_MAX * XENPV_PAGE <= SHIM_COMMON, "tables fit");
    slots[SLOT_OF_M2P] = map_large(&a, a.gpa + SHIM_M2P, a.bytes - SHIM_M2P);
    slots[SLOT_OF_SHIM] = map_shim(&a);
    slots[SLOT_OF_FRAMES] = map_large(&a, 0, end);
    put_m2p(&a);
    put_shared_info(&a, input);
    put_common(&a, plan, input, slots);
    uint64_t park_root = put_park_root(&a, slots);
    for (unsigned i = 0; i < a.n_cpus; i++)
        put_slice(&a, i, input, i == 0 ? plan->root : park_root);
    set_entries(&a, plan->root, park_root, ret_area->entries);
    ret_area->head = slice_of(&a, 0).head;
    return 0;
}
