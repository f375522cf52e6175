/* A Xen-PV guest's memory as its kernel finds it, which kernels are refused, and the shim's mail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"
#include "vmm/shim/xen.h"
#include "vmm/xenpv_priv.h"

#define MEM (UINT64_C(32) << 20)
#define VIRT_BASE UINT64_C(0xffffffff80000000)
#define INIT_P2M (UINT64_C(1) << 39)
#define KERNEL_AT UINT64_C(0x1000000)

enum { ENTRY, BASE, P2M, MOD_START, NOTES, PAGE = 4096 };

struct note {
    Elf64_Nhdr head;
    char name[4];
    uint64_t value;
};

struct kernel {
    Elf64_Ehdr head;
    Elf64_Phdr segments[2];
    struct note notes[NOTES];
    uint8_t code[256];
};

static struct note note_of(uint32_t type, uint64_t value)
{
    return (struct note){{4, sizeof value, type}, "Xen", value};
}

static struct kernel good(void)
{
    struct kernel k = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB},
                 .e_type = ET_EXEC,
                 .e_machine = EM_X86_64,
                 .e_phoff = offsetof(struct kernel, segments),
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_phnum = 2},
        .segments = {{.p_type = PT_LOAD,
                      .p_offset = offsetof(struct kernel, code),
                      .p_paddr = KERNEL_AT,
                      .p_filesz = sizeof k.code,
                      .p_memsz = 0x2001},
                     {.p_type = PT_NOTE,
                      .p_offset = offsetof(struct kernel, notes),
                      .p_filesz = sizeof k.notes,
                      .p_align = 4}},
    };
    k.notes[ENTRY] = note_of(1, VIRT_BASE + KERNEL_AT + 8);
    k.notes[BASE] = note_of(3, VIRT_BASE);
    k.notes[P2M] = note_of(15, INIT_P2M);
    k.notes[MOD_START] = note_of(16, 1);
    return k;
}

/* --- memory that is loaded ------------------------------------------------------------------- */

struct world {
    struct guest_mem mem;
    struct xenpv xenpv;
    struct xenpv_entry entries[XENPV_VCPUS_MAX];
    struct cl_err err;
};

static int file_of(const void *bytes, size_t n)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    return fd;
}

/* Closes with gm_unmap(). */
static int load_for(struct world *w, const struct kernel *k, uint64_t mem_bytes,
                    const char *cmdline, unsigned vcpus)
{
    static struct kvm_cpuid_table cpuids[XENPV_VCPUS_MAX];
    for (unsigned i = 0; i < XENPV_VCPUS_MAX; i++)
        cpuids[i] =
            (struct kvm_cpuid_table){.nent = 1, .entries = {{.function = 1, .eax = 77 + i}}};
    static const char initrd[] = "an initrd";
    CL_AUTO(cl_closep) int kernel_fd = file_of(k, sizeof *k);
    CL_AUTO(cl_closep) int initrd_fd = file_of(initrd, sizeof initrd);
    struct xenpv_input input = {.kernel_fd = kernel_fd,
                                .initrd_fd = initrd_fd,
                                .cmdline = cmdline,
                                .cpuids = cpuids,
                                .vcpus = vcpus,
                                .now_ns = UINT64_C(5000000007),
                                .tsc = 1000,
                                .tsc_khz = 2000000};
    *w = (struct world){0};
    assert_int_equal(gm_alloc(mem_bytes, &w->mem, NULL), 0);
    gm_set_hole(&w->mem, XENPV_HOLE, XENPV_HOLE_END);
    return xenpv_load(&w->mem, &input, &w->xenpv, w->entries, &w->err);
}

static int load(struct world *w, const struct kernel *k, uint64_t mem_bytes, const char *cmdline)
{
    return load_for(w, k, mem_bytes, cmdline, XENPV_VCPUS_MAX);
}

static void refused(const struct kernel *k, const char *why)
{
    struct world w;
    assert_int_equal(load(&w, k, MEM, ""), -1);
    assert_int_equal(w.err.code, CL_E_INVALID);
    if (!strstr(w.err.text, why))
        fail_msg("'%s' is not in: %s", why, w.err.text);
    gm_unmap(&w.mem);
}

/* --- the view of an isolated guest's user code ----------------------------------------------- */

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ENTRIES = 512 };
#define FRAME UINT64_C(0x000ffffffffff000)

static void read_table(const struct world *w, uint64_t entry, uint64_t table[static ENTRIES])
{
    assert_int_equal(gm_read(&w->mem, (struct gpa){entry & FRAME}, table, ENTRIES * 8), 0);
}

/* The only table behind this entry, which is its first. */
static uint64_t only_entry(const struct world *w, uint64_t entry)
{
    uint64_t table[ENTRIES];
    assert_int_equal(entry & (PRESENT | WRITABLE | USER), PRESENT | WRITABLE | USER);
    read_table(w, entry, table);
    for (unsigned i = 1; i < ENTRIES; i++)
        assert_int_equal(table[i], 0);
    return table[0];
}

/* Its pages, by their number in the slot: rights, and where in the area they are. */
static const struct user_page {
    uint64_t at, from, rights;
} user_pages[] = {
    {SHIM_CODE, SHIM_USER_CODE, USER},
    {SHIM_GATES, SHIM_GATES, 0},
    {SHIM_GDT, SHIM_GDT, 0},
    {SHIM_IDT, SHIM_USER_IDT, 0},
    {SHIM_TSS, SHIM_USER_TSS, 0},
    {SHIM_TRAP_STACK - PAGE, SHIM_TRAP_STACK - PAGE, WRITABLE},
    {SHIM_FAULT_STACK - PAGE, SHIM_FAULT_STACK - PAGE, WRITABLE},
    {SHIM_IRQ_STACK - PAGE, SHIM_IRQ_STACK - PAGE, WRITABLE},
    {SHIM_FRAMES, SHIM_FRAMES, WRITABLE},
};

static const struct user_page *user_page_at(uint64_t at)
{
    for (size_t i = 0; i < CL_COUNT(user_pages); i++) {
        if (user_pages[i].at == at)
            return &user_pages[i];
    }
    return NULL;
}

/* Of so many vCPUs' slices, and nothing else. */
static void check_user_pages(const struct world *w, uint64_t entry, unsigned vcpus)
{
    enum { RIGHTS = PRESENT | WRITABLE | USER | 0x80 };
    uint64_t pages[ENTRIES];
    read_table(w, entry, pages);
    for (uint64_t i = 0; i < ENTRIES; i++) {
        uint64_t slice = i * PAGE / SHIM_SLICE * SHIM_SLICE;
        bool is_theirs = slice < vcpus * SHIM_SLICE;
        const struct user_page *want = is_theirs ? user_page_at(i * PAGE - slice) : NULL;
        assert_int_equal(pages[i] & RIGHTS, want ? PRESENT | want->rights : 0);
        assert_int_equal(pages[i] & FRAME, want ? w->xenpv.area + slice + want->from : 0);
    }
}

static void test_the_user_view_has_nothing_but_its_doors(void **state)
{
    struct kernel k = good();
    struct world w;
    struct shim_common c;
    (void)state;
    for (unsigned vcpus = 1; vcpus <= XENPV_VCPUS_MAX; vcpus++) {
        assert_int_equal(load_for(&w, &k, MEM, "", vcpus), 0);
        assert_int_equal(gm_read(&w.mem, (struct gpa){w.xenpv.area + SHIM_COMMON}, &c, sizeof c),
                         0);
        assert_int_equal(c.n_cpus, vcpus);
        assert_true(c.slots[0] && c.slots[1] && c.slots[2]);
        assert_int_equal(c.user_slots[0], 0);
        assert_int_equal(c.user_slots[2], 0);
        check_user_pages(&w, only_entry(&w, only_entry(&w, c.user_slots[1])), vcpus);
        gm_unmap(&w.mem);
    }
}

struct gate {
    uint16_t offset_0, selector;
    uint8_t stack, type;
    uint16_t offset_16;
    uint32_t offset_32, zero;
};

static void check_user_gate(const struct gate *g, unsigned vector, uint64_t gates)
{
    enum { INTERRUPT = 0x8e, FOR_CPL3 = 0x60, BREAK = 3, TRAPS = 22 };
    bool is_there = vector < TRAPS || vector == SHIM_IRQ_VECTOR;
    uint64_t to = g->offset_0 | (uint64_t)g->offset_16 << 16 | (uint64_t)g->offset_32 << 32;
    assert_int_equal(g->type, !is_there ? 0 : vector == BREAK ? INTERRUPT | FOR_CPL3 : INTERRUPT);
    assert_true(!is_there || g->selector == SHIM_CS0);
    assert_true(!is_there || (g->stack >= 1 && g->stack <= 3)); /* each is in the view */
    assert_true(!is_there || to / PAGE == gates / PAGE);
}

/* At `at` of the area, for the kernel at `va`. */
static void check_user_doors(const struct world *w, uint64_t at, uint64_t va, uint64_t on_syscall)
{
    enum { INT3 = 0xcc, IOMAP_AT = 0x66 };
    struct gate idt[256];
    uint8_t code[PAGE];
    uint16_t bitmap;
    assert_int_equal(gm_read(&w->mem, (struct gpa){at + SHIM_USER_IDT}, idt, sizeof idt), 0);
    for (unsigned i = 0; i < CL_COUNT(idt); i++)
        check_user_gate(&idt[i], i, va + SHIM_GATES);
    assert_int_equal(gm_read(&w->mem, (struct gpa){at + SHIM_USER_CODE}, code, PAGE), 0);
    assert_int_equal(on_syscall / PAGE, (va + SHIM_CODE) / PAGE);
    uint8_t *door = code + on_syscall % PAGE;
    assert_memory_equal(door, ((uint8_t[]){INT3, 0xeb, 0xfd}), 3); /* it asks until it is heard */
    memset(door, INT3, 3);
    for (unsigned i = 0; i < PAGE; i++)
        assert_int_equal(code[i], INT3);
    assert_int_equal(
        gm_read(&w->mem, (struct gpa){at + SHIM_USER_TSS + IOMAP_AT}, &bitmap, sizeof bitmap), 0);
    assert_true(bitmap > SHIM_TSS_LIMIT); /* no port is open */
}

static void test_the_user_views_doors_all_lead_to_cpl0(void **state)
{
    struct kernel k = good();
    struct world w;
    (void)state;
    assert_int_equal(load(&w, &k, MEM, ""), 0);
    for (uint64_t i = 0; i < XENPV_VCPUS_MAX; i++)
        check_user_doors(&w, w.xenpv.area + i * SHIM_SLICE, SHIM_VA + i * SHIM_SLICE,
                         w.entries[i].on_syscall);
    gm_unmap(&w.mem);
}

/* A walk of the tables that the kernel begins with: where va leads to. */
static uint64_t gpa_of(const struct world *w, uint64_t va)
{
    uint64_t at = w->entries[0].root, entry = 0;
    for (int level = 4; level > 0; level--) {
        struct gpa of = {at + (va >> (12 + 9 * (level - 1)) & 511) * 8};
        assert_int_equal(gm_read(&w->mem, of, &entry, sizeof entry), 0);
        assert_true(entry & 1);
        at = entry & UINT64_C(0x000ffffffffff000);
        if (level == 2 && entry & 0x80)
            return at + va % (2 << 20);
    }
    return at + va % PAGE;
}

static void read_at(const struct world *w, uint64_t va, void *to, size_t n)
{
    assert_int_equal(gm_read(&w->mem, (struct gpa){gpa_of(w, va)}, to, n), 0);
}

static void test_the_kernel_finds_what_xen_promises(void **state)
{
    struct kernel k = good();
    struct world w;
    struct xen_start_info info;
    uint64_t frame;
    char initrd[4];
    (void)state;
    assert_int_equal(load(&w, &k, MEM, "last=1"), 0);
    assert_int_equal(w.entries[0].rip, VIRT_BASE + KERNEL_AT + 8);
    assert_int_equal(gpa_of(&w, w.entries[0].rip), KERNEL_AT + 8);
    read_at(&w, w.entries[0].rsi, &info, sizeof info);
    assert_string_equal(info.magic, "xen-3.0-x86_64");
    assert_int_equal(info.nr_pages * PAGE, w.xenpv.area);
    assert_true(w.xenpv.area < MEM && info.shared_info >= w.xenpv.area);
    assert_int_equal(gpa_of(&w, info.pt_base), w.entries[0].root);
    assert_int_equal(info.p2m, INIT_P2M);
    assert_non_null(strstr(info.cmdline, "console=hvc0"));
    assert_non_null(strstr(info.cmdline, "last=1"));
    assert_int_equal(info.flags, XEN_MOD_START_PFN);
    assert_int_equal(gm_read(&w.mem, (struct gpa){info.mod_start * PAGE}, initrd, sizeof initrd),
                     0);
    assert_memory_equal(initrd, "an i", sizeof initrd);
    read_at(&w, INIT_P2M + (info.nr_pages - 1) * 8, &frame, sizeof frame);
    assert_int_equal(frame, info.nr_pages - 1);
    read_at(&w, SHIM_M2P_VA + 5 * 8, &frame, sizeof frame);
    assert_int_equal(frame, 5);
    assert_int_equal(gpa_of(&w, SHIM_VA + SHIM_STATE), w.xenpv.area + SHIM_STATE);
    assert_int_equal(gpa_of(&w, SHIM_FRAMES_VA + w.xenpv.area + 9), w.xenpv.area + 9);
    assert_int_equal(gpa_of(&w, w.entries[0].on_syscall) & ~UINT64_C(0xffff), w.xenpv.area);
    assert_true(gpa_of(&w, w.entries[0].rsp - 8) < w.xenpv.area);
    gm_unmap(&w.mem);
}

static void test_the_shim_is_told_of_time(void **state)
{
    struct kernel k = good();
    struct world w;
    struct shim_common c;
    struct xen_shared_info info;
    (void)state;
    assert_int_equal(load(&w, &k, MEM, ""), 0);
    read_at(&w, SHIM_VA + SHIM_COMMON, &c, sizeof c);
    assert_int_equal(c.frames * PAGE, w.xenpv.area);
    assert_int_equal(c.ns_scale, UINT64_C(1) << 31); /* half a ns a tick */
    assert_int_equal(c.tsc_scale, UINT64_C(2) << 32);
    assert_true(c.n_msrs > 0);
    read_at(&w, SHIM_VA + SHIM_SHARED_INFO, &info, sizeof info);
    assert_int_equal(info.wc_sec, 5);
    assert_int_equal(info.wc_nsec, 7);
    for (unsigned i = 0; i < XENPV_VCPUS_MAX; i++) {
        assert_int_equal(info.vcpu_info[i].upcall_mask, 1);
        assert_int_equal(info.vcpu_info[i].time.tsc_timestamp, 1000);
    }
    gm_unmap(&w.mem);
}

/* The first one begins in its kernel, the others in their shims, whose page tables have nothing
 * else: the kernel may do with its first ones what it likes. */
static void check_entry(const struct world *w, unsigned vcpu)
{
    const struct xenpv_entry *e = &w->entries[vcpu];
    uint64_t root[ENTRIES], slice = SHIM_VA + (uint64_t)vcpu * SHIM_SLICE;
    assert_int_equal(e->vcpu, vcpu);
    assert_int_equal(e->slice, slice);
    assert_true(e->on_syscall > slice && e->on_syscall < slice + PAGE);
    if (vcpu == 0)
        return;
    assert_true(e->rip > slice && e->rip < slice + PAGE);
    assert_int_equal(e->rsp, slice + SHIM_PARK_STACK);
    read_table(w, e->root, root);
    for (unsigned i = 0; i < ENTRIES; i++)
        assert_int_equal(root[i] != 0, i >= SHIM_SLOT_FIRST && i < SHIM_SLOT_FIRST + SHIM_SLOTS);
}

static void test_each_vcpu_has_a_shim_of_its_own(void **state)
{
    struct kernel k = good();
    struct world w;
    struct shim_state s;
    struct shim_doors doors;
    struct shim_cpuid leaf;
    struct shim_head head;
    (void)state;
    assert_int_equal(load(&w, &k, MEM, ""), 0);
    for (unsigned i = 0; i < XENPV_VCPUS_MAX; i++) {
        uint64_t slice = SHIM_VA + (uint64_t)i * SHIM_SLICE;
        check_entry(&w, i);
        read_at(&w, slice + SHIM_STATE, &s, sizeof s);
        assert_int_equal(s.cpu, i);
        assert_int_equal(s.is_up, i == 0);
        assert_true(s.n_cpuid > 1);
        assert_int_equal(s.vcpu_info,
                         SHIM_VA + SHIM_SHARED_INFO + i * sizeof(struct xen_vcpu_info));
        read_at(&w, slice + SHIM_DOORS, &doors, sizeof doors);
        assert_int_equal(doors.kernel_root, w.entries[i].root);
        read_at(&w, slice + SHIM_CPUID, &leaf, sizeof leaf);
        assert_int_equal(leaf.eax, 77 + i);
        read_at(&w, slice + SHIM_CODE, &head, sizeof head);
        assert_int_equal(head.magic, SHIM_MAGIC);
        assert_int_equal(head.irq_gate / PAGE, (slice + SHIM_GATES) / PAGE);
    }
    gm_unmap(&w.mem);
}

static void test_a_kernel_that_cannot_be_entered_is_refused(void **state)
{
    (void)state;
    struct kernel k = good();
    k.segments[1].p_type = PT_NULL;
    refused(&k, "CONFIG_XEN_PV=y");
#define REFUSED(why, change) \
    do { \
        k = good(); \
        change; \
        refused(&k, why); \
    } while (0)
    REFUSED("no entry by Xen PV", k.notes[ENTRY].value = 0);
    REFUSED("hypercall page", k.notes[MOD_START] = note_of(2, VIRT_BASE + KERNEL_AT));
    REFUSED("MOD_START_PFN", k.notes[MOD_START].value = 0);
    REFUSED("in none of its segments", k.notes[ENTRY].value = VIRT_BASE + KERNEL_AT + 0x10000);
    REFUSED("in none of its segments", k.notes[ENTRY].value = 4);
    REFUSED("PADDR_OFFSET", k.notes[MOD_START] = note_of(4, 1));
    REFUSED("has 3 bytes", k.notes[ENTRY].head.n_descsz = 3);
    REFUSED("is cut", k.notes[MOD_START].head.n_descsz = UINT32_MAX);
    REFUSED("VIRT_BASE", k.notes[BASE].value = 0);
    REFUSED("VIRT_BASE", k.notes[BASE].value = SHIM_VA);
    REFUSED("VIRT_BASE", k.notes[BASE].value = VIRT_BASE + PAGE);
    REFUSED("INIT_P2M", k.notes[P2M].value = 0);
    REFUSED("INIT_P2M", k.notes[P2M].value = SHIM_M2P_VA);
    REFUSED("INIT_P2M", k.notes[P2M].value = UINT64_C(511) << 39);
    REFUSED("INIT_P2M", k.notes[P2M].value = UINT64_C(0xffffff8000000000));
    REFUSED("INIT_P2M", k.notes[P2M].value = INIT_P2M + PAGE);
}

static void test_memory_must_have_room(void **state)
{
    static char cmdline[XEN_CMDLINE_MAX];
    struct kernel k = good();
    struct world w;
    (void)state;
    assert_int_equal(load(&w, &k, UINT64_C(4) << 20, ""), -1);
    assert_int_equal(w.err.code, CL_E_INVALID);
    gm_unmap(&w.mem);
    assert_int_equal(load(&w, &k, UINT64_C(22) << 20, ""), -1);
    assert_non_null(strstr(w.err.text, "this kernel and initrd need"));
    gm_unmap(&w.mem);
    assert_int_equal(load(&w, &k, XENPV_MEM_MAX + (UINT64_C(2) << 20), ""), -1);
    assert_non_null(strstr(w.err.text, "at most 65536 MiB"));
    gm_unmap(&w.mem);
    memset(cmdline, 'x', sizeof cmdline - 1);
    assert_int_equal(load(&w, &k, MEM, cmdline), -1);
    assert_int_equal(w.err.code, CL_E_TOOBIG);
    gm_unmap(&w.mem);
}

/* Of memory that ends at `end`: the kernel has all frames but the hole's and the shim's. */
static void check_memory(const struct world *w, uint64_t end, bool has_hole)
{
    struct xen_start_info info;
    struct shim_common c;
    const char *told;
    uint64_t last = w->xenpv.area / PAGE - 1, frame;
    read_at(w, w->entries[0].rsi, &info, sizeof info);
    read_at(w, SHIM_VA + SHIM_COMMON, &c, sizeof c);
    assert_int_equal(info.nr_pages, last + 1);
    assert_int_equal(c.frames, last + 1);
    assert_int_equal(c.hole, has_hole ? XENPV_HOLE / PAGE : 0);
    assert_int_equal(c.hole_frames, has_hole ? (XENPV_HOLE_END - XENPV_HOLE) / PAGE : 0);
    told = strstr(info.cmdline, " memmap=2048K$0xd0000000 ");
    assert_int_equal(told != NULL, has_hole);
    read_at(w, INIT_P2M + last * 8, &frame, sizeof frame);
    assert_int_equal(frame, last);
    read_at(w, SHIM_M2P_VA + last * 8, &frame, sizeof frame);
    assert_int_equal(frame, last);
    assert_true(gpa_of(w, c.levels) >= w->xenpv.area && gpa_of(w, c.levels + last) < end);
    assert_int_equal(gpa_of(w, SHIM_FRAMES_VA + end - 1), end - 1);
}

static void test_memory_goes_on_behind_the_devices(void **state)
{
    static const uint64_t few = UINT64_C(4) << 20, many = UINT64_C(1) << 30;
    struct kernel k = good();
    struct world w;
    (void)state;
    assert_int_equal(load(&w, &k, XENPV_HOLE, ""), 0);
    check_memory(&w, XENPV_HOLE, false);
    gm_unmap(&w.mem);
    /* too little behind them for the shim is nobody's */
    assert_int_equal(load(&w, &k, XENPV_HOLE + few, ""), 0);
    check_memory(&w, XENPV_HOLE, false);
    gm_unmap(&w.mem);
    assert_int_equal(load(&w, &k, XENPV_HOLE + many, ""), 0);
    check_memory(&w, XENPV_HOLE_END + many, true);
    gm_unmap(&w.mem);
}

static void test_all_memory_that_it_may_have_can_be_mapped(void **state)
{
    struct kernel k = good();
    struct world w;
    (void)state;
    assert_int_equal(load(&w, &k, XENPV_MEM_MAX, ""), 0);
    check_memory(&w, XENPV_MEM_MAX + (XENPV_HOLE_END - XENPV_HOLE), true);
    gm_unmap(&w.mem);
}

/* --- the kernel's own stubs ------------------------------------------------------------------- */

enum { STUB_AT = 64, IRET_AT = 128, IN_FRONT = 13 }; /* Debian's 6.1 has so many in front */

static void put_stubs(uint8_t text[256])
{
    static const uint8_t hypercall[] = {0x51, 0x41, 0x53, 0x0f, 0x05, 0x41, 0x5b, 0x59};
    static const uint8_t iret[] = {0x6a, 0, 0x51, 0x41, 0x53, 0x50, 0xb8,
                                   0x17, 0, 0,    0,    0x0f, 0x05};
    memset(text, 0x90, 256);
    memset(text + STUB_AT - IN_FRONT, 0xcc, IN_FRONT);
    memcpy(text + STUB_AT, hypercall, sizeof hypercall);
    memcpy(text + IRET_AT, iret, sizeof iret);
}

static void test_hypercalls_become_calls(void **state)
{
    static const uint64_t hypercall = UINT64_C(0x1122334455667788),
                          iret = UINT64_C(0x99aabbccddeeff00);
    uint8_t text[256], was[256];
    (void)state;
    put_stubs(text);
    assert_int_equal(xenpv_patch(text, sizeof text, hypercall, iret), 2);
    assert_memory_equal(text + STUB_AT - IN_FRONT + 2, &hypercall, 8);
    assert_int_equal(text[STUB_AT + 3], 0xeb);
    assert_int_equal(STUB_AT + 5 + (int8_t)text[STUB_AT + 4], STUB_AT - IN_FRONT);
    assert_memory_equal(text + IRET_AT + 3, &iret, 8);
    put_stubs(text);
    text[STUB_AT - IN_FRONT] = 0x90; /* no room in front */
    text[IRET_AT + 7] = 0x18;        /* another hypercall */
    memcpy(was, text, sizeof was);
    assert_int_equal(xenpv_patch(text, sizeof text, hypercall, iret), 0);
    assert_memory_equal(text, was, sizeof was);
    put_stubs(text);
    memcpy(text + 200, text + STUB_AT, 8); /* which of two? */
    memcpy(was, text, sizeof was);
    assert_int_equal(xenpv_patch(text, sizeof text, hypercall, iret), 1);
    assert_memory_equal(text, was, IRET_AT);
}

static void test_loading_tells_how_many_places_were_found(void **state)
{
    struct kernel k = good();
    struct world w;
    (void)state;
    put_stubs(k.code);
    assert_int_equal(load(&w, &k, MEM, ""), XENPV_PLACES);
    gm_unmap(&w.mem);
    memset(k.code + IRET_AT, 0x90, 16);
    assert_int_equal(load(&w, &k, MEM, ""), 1);
    gm_unmap(&w.mem);
}

static void test_a_stub_may_begin_with_endbr64(void **state)
{
    static const uint8_t endbr[SHIM_ENDBR_BYTES] = {0xf3, 0x0f, 0x1e, 0xfa};
    const uint64_t hypercall = UINT64_C(0x1122334455667788), target = hypercall - SHIM_ENDBR_ENTRY;
    uint8_t text[256];
    (void)state;
    put_stubs(text);
    memset(text, 0x90, STUB_AT);
    memcpy(text + STUB_AT - sizeof endbr, endbr, sizeof endbr);
    assert_int_equal(xenpv_patch(text, sizeof text, hypercall, 1), 2);
    const size_t place = STUB_AT - sizeof endbr - IN_FRONT;
    assert_memory_equal(text + place + 2, &target, 8);
    assert_memory_equal(text + STUB_AT - sizeof endbr, endbr, sizeof endbr);
    assert_int_equal(STUB_AT + 5 + (int8_t)text[STUB_AT + 4], place);
    put_stubs(text);
    memcpy(text + STUB_AT - sizeof endbr, endbr,
           sizeof endbr); /* what fills the rest is not NOPs */
    assert_int_equal(xenpv_patch(text, sizeof text, hypercall, 1), 1);
}

/* --- mail ------------------------------------------------------------------------------------ */

static char printed[2 * SHIM_TEXT_MAX];
static size_t n_printed;

static void take(void *arg, const uint8_t *bytes, size_t n)
{
    (void)arg;
    assert_true(n_printed + n <= sizeof printed);
    memcpy(printed + n_printed, bytes, n);
    n_printed += n;
}

static void test_a_letter_is_bounded(void **state)
{
    struct kernel k = good();
    struct world w;
    struct serial serial;
    struct shim_mail mail = {.n = UINT32_MAX, .text = "first\n"};
    (void)state;
    assert_int_equal(load(&w, &k, MEM, ""), 0);
    serial_init(&serial, (struct irq_line){0}, take, NULL);
    n_printed = 0;
    assert_int_equal(gm_write(&w.mem, (struct gpa){w.xenpv.area + SHIM_MAIL}, &mail, sizeof mail),
                     0);
    assert_true(xenpv_on_mail(&w.xenpv, &w.mem, SHIM_PRINT, &serial));
    serial_flush(&serial);
    assert_int_equal(n_printed, SHIM_TEXT_MAX);
    assert_memory_equal(printed, "first\n", 6);
    assert_true(xenpv_on_mail(&w.xenpv, &w.mem, 0xff, &serial)); /* no such word */
    w.xenpv.area = UINT64_MAX - SHIM_MAIL - 8;                   /* nowhere */
    assert_true(xenpv_on_mail(&w.xenpv, &w.mem, SHIM_PRINT, &serial));
    assert_int_equal(n_printed, SHIM_TEXT_MAX);
    gm_unmap(&w.mem);
}

static void test_a_guest_that_gives_up_says_why(void **state)
{
    struct kernel k = good();
    struct world w;
    struct serial serial;
    struct shim_mail mail = {.trap = 14, .ip = 0x1234, .address = 0x5678};
    struct cl_err err = {0};
    (void)state;
    assert_int_equal(load(&w, &k, MEM, ""), 0);
    serial_init(&serial, (struct irq_line){0}, take, NULL);
    assert_int_equal(gm_write(&w.mem, (struct gpa){w.xenpv.area + SHIM_MAIL}, &mail, sizeof mail),
                     0);
    assert_false(xenpv_on_mail(&w.xenpv, &w.mem, SHIM_GIVE_UP, &serial));
    mail.ip = 1; /* the first word counts */
    assert_int_equal(gm_write(&w.mem, (struct gpa){w.xenpv.area + SHIM_MAIL}, &mail, sizeof mail),
                     0);
    assert_false(xenpv_on_mail(&w.xenpv, &w.mem, SHIM_GIVE_UP, &serial));
    assert_int_equal(xenpv_explain(&w.xenpv, &err), -1);
    assert_non_null(strstr(err.text, "trap 14 at 0x1234, address 0x5678"));
    gm_unmap(&w.mem);
}

static struct xen_time_info time_at(const struct world *w, uint64_t gpa)
{
    struct xen_time_info time;
    assert_int_equal(gm_read(&w->mem, (struct gpa){gpa}, &time, sizeof time), 0);
    return time;
}

static void check_clones_vcpu(const struct world *w, unsigned vcpu, uint64_t slept)
{
    struct shim_state shim;
    struct gpa at = {w->xenpv.area + (uint64_t)vcpu * SHIM_SLICE + SHIM_STATE};
    assert_int_equal(gm_read(&w->mem, at, &shim, sizeof shim), 0);
    assert_int_equal(shim.armed_ns, 0); /* its local APIC interrupts at once */
    uint64_t own = shim.times[SHIM_TIME_VCPU];
    assert_int_equal(time_at(w, own).tsc_timestamp, 1000 + slept);
    assert_int_equal(time_at(w, own).version, 4);
}

static void test_a_clones_time_goes_on_from_where_it_was(void **state)
{
    enum { SLEPT = 500, VDSO_AT = 0x5000 };
    struct kernel k = good();
    struct world w;
    struct shim_state shim;
    struct shim_common c;
    struct xenpv clone;
    struct xen_time_info vdso = {.version = 6, .tsc_timestamp = 70};
    (void)state;
    assert_int_equal(load(&w, &k, MEM, ""), 0);
    struct gpa at = {w.xenpv.area + SHIM_STATE};
    assert_int_equal(gm_read(&w.mem, at, &shim, sizeof shim), 0);
    shim.times[SHIM_TIME_VDSO] = VDSO_AT;
    shim.armed_ns = 1;
    assert_int_equal(gm_write(&w.mem, at, &shim, sizeof shim), 0);
    assert_int_equal(gm_write(&w.mem, (struct gpa){VDSO_AT}, &vdso, sizeof vdso), 0);
    assert_int_equal(xenpv_wake(&w.mem, XENPV_VCPUS_MAX, SLEPT, &clone, &w.err), 0);
    assert_true(clone.on && clone.area == w.xenpv.area);
    assert_int_equal(gm_read(&w.mem, (struct gpa){w.xenpv.area + SHIM_COMMON}, &c, sizeof c), 0);
    assert_int_equal(c.tsc_start, 1000 + SLEPT);
    for (unsigned i = 0; i < XENPV_VCPUS_MAX; i++)
        check_clones_vcpu(&w, i, SLEPT);
    assert_int_equal(time_at(&w, VDSO_AT).tsc_timestamp, 70 + SLEPT);
    assert_int_equal(time_at(&w, VDSO_AT).version, 8);
    gm_unmap(&w.mem);
}

static void test_a_lie_about_its_times_is_the_guests_own_trouble(void **state)
{
    static const uint64_t lies[] = {MEM, MEM - 1, UINT64_MAX, UINT64_MAX - 31, UINT64_C(1) << 40};
    struct kernel k = good();
    struct world w;
    struct xenpv clone;
    (void)state;
    for (size_t i = 0; i < CL_COUNT(lies); i++) {
        assert_int_equal(load(&w, &k, MEM, ""), 0);
        struct gpa at = {w.xenpv.area + SHIM_STATE + offsetof(struct shim_state, times)};
        const uint64_t times[SHIM_TIMES] = {lies[i], lies[i]};
        assert_int_equal(gm_write(&w.mem, at, times, sizeof times), 0);
        assert_int_equal(xenpv_wake(&w.mem, XENPV_VCPUS_MAX, 1, &clone, &w.err), 0);
        gm_unmap(&w.mem);
    }
}

static void test_memory_without_room_for_a_shim_wakes_nobody(void **state)
{
    struct guest_mem mem;
    struct xenpv clone;
    struct cl_err err = {0};
    (void)state;
    assert_int_equal(gm_alloc(UINT64_C(2) << 20, &mem, &err), 0);
    assert_int_equal(xenpv_wake(&mem, 1, 1, &clone, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    gm_unmap(&mem);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_kernel_finds_what_xen_promises),
        cmocka_unit_test(test_the_shim_is_told_of_time),
        cmocka_unit_test(test_each_vcpu_has_a_shim_of_its_own),
        cmocka_unit_test(test_the_user_view_has_nothing_but_its_doors),
        cmocka_unit_test(test_the_user_views_doors_all_lead_to_cpl0),
        cmocka_unit_test(test_a_kernel_that_cannot_be_entered_is_refused),
        cmocka_unit_test(test_memory_must_have_room),
        cmocka_unit_test(test_memory_goes_on_behind_the_devices),
        cmocka_unit_test(test_all_memory_that_it_may_have_can_be_mapped),
        cmocka_unit_test(test_hypercalls_become_calls),
        cmocka_unit_test(test_loading_tells_how_many_places_were_found),
        cmocka_unit_test(test_a_stub_may_begin_with_endbr64),
        cmocka_unit_test(test_a_letter_is_bounded),
        cmocka_unit_test(test_a_guest_that_gives_up_says_why),
        cmocka_unit_test(test_a_clones_time_goes_on_from_where_it_was),
        cmocka_unit_test(test_a_lie_about_its_times_is_the_guests_own_trouble),
        cmocka_unit_test(test_memory_without_room_for_a_shim_wakes_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
