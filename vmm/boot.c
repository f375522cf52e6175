/* vmm/boot.c - see vmm/boot.h. */
#include "vmm/boot.h"

#include <asm/bootparam.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "vmm/elf.h"
#include "vmm/kvm.h"
#include "vmm/loader.h"
#include "vmm/ports.h"

#define GDT_AT UINT64_C(0x500)
#define SEED_AT UINT64_C(0x6000)
#define ZERO_PAGE_AT UINT64_C(0x7000)
#define START_INFO_AT ZERO_PAGE_AT /* a kernel gets one of them */
#define STACK_AT UINT64_C(0x8ff0)
#define PAGE_TABLES_AT UINT64_C(0x9000)
#define CMDLINE_AT UINT64_C(0x20000)
#define LOW_RAM_END UINT64_C(0x9fc00) /* where a PC's firmware keeps its data */

enum { PAGE = 4096 };

/* --- which entry ------------------------------------------------------------------------------ */

/* Where its notes say that PVH enters it; 0 = they do not. */
static int find_pvh(int fd, const struct elf_image *image, uint32_t *ret_entry, struct cl_err *err)
{
    uint8_t notes[ELF_NOTE_BYTES_MAX];
    uint32_t entry = 0;
    for (unsigned i = 0; i < image->n_notes && entry == 0; i++) {
        const struct elf_notes *at = &image->notes[i];
        if (loader_notes(fd, image, i, notes, err) < 0 ||
            elf_pvh_entry(image, notes, at->bytes, at->align, &entry, err) < 0)
            return -1;
    }
    *ret_entry = entry;
    return 0;
}

static int choose_entry(const struct boot_input *input, const struct elf_image *image,
                        struct boot_entry *ret_entry, struct cl_err *err)
{
    uint32_t pvh = 0;
    if (image->entry && !input->pvh) {
        *ret_entry = (struct boot_entry){BOOT_LONG_MODE, image->entry};
        return 0;
    }
    if (find_pvh(input->kernel_fd, image, &pvh, err) < 0)
        return -1;
    if (pvh == 0)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel has no %sentry by PVH",
                       image->entry ? "" : "entry in 64-bit mode and no ");
    *ret_entry = (struct boot_entry){BOOT_PVH, pvh};
    return 0;
}

static int load_kernel(const struct guest_mem *mem, const struct boot_input *input,
                       struct boot_entry *ret_entry, struct cl_err *err)
{
    struct elf_image image;
    if (loader_parse(input->kernel_fd, &image, err) < 0 ||
        choose_entry(input, &image, ret_entry, err) < 0)
        return -1;
    return loader_segments(mem, input->kernel_fd, &image, err);
}

static int put_cmdline(const struct guest_mem *mem, const char *cmdline, struct cl_err *err)
{
    size_t n = strlen(cmdline);
    if (n > BOOT_CMDLINE_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "a kernel command line of %zu bytes; at most %d", n,
                       BOOT_CMDLINE_MAX);
    return loader_put(mem, CMDLINE_AT, cmdline, n + 1, err);
}

/* --- memory, as a kernel is told of it ------------------------------------------------------- */

enum { RANGE_RAM = 1, RANGE_RESERVED = 2, RANGES = 4 }; /* e820's types, which PVH shares */

struct range {
    uint64_t from, bytes;
    uint32_t type;
};

static unsigned list_memory(const struct guest_mem *mem, struct range ranges[static RANGES])
{
    ranges[0] = (struct range){0, LOW_RAM_END, RANGE_RAM};
    ranges[1] = (struct range){LOW_RAM_END, LOADER_KERNEL_MIN - LOW_RAM_END, RANGE_RESERVED};
    ranges[2] = (struct range){LOADER_KERNEL_MIN, mem->low - LOADER_KERNEL_MIN, RANGE_RAM};
    ranges[3] = (struct range){mem->high_at, mem->high, RANGE_RAM};
    return mem->high > 0 ? RANGES : RANGES - 1;
}

/* --- zero page ----------------------------------------------------------------------------- */

static void describe_memory(struct boot_params *params, const struct guest_mem *mem)
{
    struct range ranges[RANGES];
    params->e820_entries = (uint8_t)list_memory(mem, ranges);
    for (unsigned i = 0; i < params->e820_entries; i++)
        params->e820_table[i] = (struct boot_e820_entry){
            .addr = ranges[i].from, .size = ranges[i].bytes, .type = ranges[i].type};
}

static void describe_loader(struct setup_header *hdr, size_t cmdline_n,
                            const struct loader_extent *initrd)
{
    hdr->type_of_loader = 0xff; /* none of the registered ones */
    hdr->boot_flag = 0xaa55;
    hdr->header = 0x53726448; /* "HdrS" */
    hdr->version = 0x20f;
    hdr->cmd_line_ptr = (uint32_t)CMDLINE_AT;
    hdr->cmdline_size = (uint32_t)cmdline_n;
    hdr->ramdisk_image = (uint32_t)initrd->at; /* low RAM ends below 4 GiB */
    hdr->ramdisk_size = (uint32_t)initrd->bytes;
    hdr->setup_data = SEED_AT;
}

enum { SETUP_RNG_SEED_TYPE = 9, SEED_BYTES = 32 }; /* boot.rst, struct setup_data; Linux 6.0 */

/* A template's kernel begins with randomness that no other has; its clones get theirs anew. */
static int put_seed(const struct guest_mem *mem, struct cl_err *err)
{
    struct {
        uint64_t next;
        uint32_t type, len;
        uint8_t seed[SEED_BYTES];
    } data = {.type = SETUP_RNG_SEED_TYPE, .len = SEED_BYTES};
    cl_random(data.seed, sizeof data.seed);
    int rc = loader_put(mem, SEED_AT, &data, sizeof data, err);
    explicit_bzero(&data, sizeof data);
    return rc;
}

static int put_zero_page(const struct guest_mem *mem, const struct boot_input *input,
                         const struct loader_extent *initrd, struct cl_err *err)
{
    struct boot_params params = {.acpi_rsdp_addr = ACPI_BASE};
    describe_memory(&params, mem);
    describe_loader(&params.hdr, strlen(input->cmdline), initrd);
    if (put_seed(mem, err) < 0)
        return -1;
    return loader_put(mem, ZERO_PAGE_AT, &params, sizeof params, err);
}

/* --- PVH ------------------------------------------------------------------------------------- */

/* Xen, public/arch-x86/hvm/start_info.h, version 1; little-endian, no padding. */
struct start_info {
    uint32_t magic, version, flags, nr_modules;
    uint64_t modlist_paddr, cmdline_paddr, rsdp_paddr, memmap_paddr;
    uint32_t memmap_entries, reserved;
};
struct start_module {
    uint64_t paddr, size, cmdline_paddr, reserved;
};
struct start_range {
    uint64_t addr, size;
    uint32_t type, reserved;
};
_Static_assert(sizeof(struct start_info) == 56, "Xen's ABI");
_Static_assert(sizeof(struct start_module) == 32, "Xen's ABI");
_Static_assert(sizeof(struct start_range) == 24, "Xen's ABI");

enum { START_INFO_MAGIC = 0x336ec578, START_INFO_VERSION = 1 };

/* It knows of no seed: such a kernel begins with the randomness of its processor and devices. */
static int put_start_info(const struct guest_mem *mem, const struct loader_extent *initrd,
                          struct cl_err *err)
{
    struct {
        struct start_info info;
        struct start_module initrd;
        struct start_range memory[RANGES];
    } start = {
        .info = {.magic = START_INFO_MAGIC,
                 .version = START_INFO_VERSION,
                 .nr_modules = initrd->bytes > 0,
                 .modlist_paddr = initrd->bytes > 0 ? START_INFO_AT + sizeof start.info : 0,
                 .cmdline_paddr = CMDLINE_AT,
                 .rsdp_paddr = ACPI_BASE,
                 .memmap_paddr = START_INFO_AT + sizeof start.info + sizeof start.initrd},
        .initrd = {.paddr = initrd->at, .size = initrd->bytes},
    };
    struct range ranges[RANGES];
    start.info.memmap_entries = list_memory(mem, ranges);
    for (unsigned i = 0; i < start.info.memmap_entries; i++)
        start.memory[i] = (struct start_range){
            .addr = ranges[i].from, .size = ranges[i].bytes, .type = ranges[i].type};
    return loader_put(mem, START_INFO_AT, &start, sizeof start, err);
}

/* --- ACPI ------------------------------------------------------------------------------------ */

static int put_acpi(const struct guest_mem *mem, const struct acpi_machine *machine,
                    struct cl_err *err)
{
    uint8_t tables[ACPI_BYTES_MAX];
    size_t n;
    if (acpi_build(machine, tables, sizeof tables, &n, err) < 0)
        return -1;
    return loader_put(mem, ACPI_BASE, tables, n, err);
}

/* --- reset ----------------------------------------------------------------------------------- */

#define RESET_VECTOR UINT64_C(0xffff0)

/* All of our BIOS: what runs at the reset vector asks for a reset.  With hardware-reduced ACPI and
 * no EFI Linux (reboot.c) tries nothing else before it jumps there; over zeroes it would run for
 * ever. */
static int put_reset_vector(const struct guest_mem *mem, struct cl_err *err)
{
    static const uint8_t code[] = {
        0xb0,
        PORT_RESET_VALUE, /* mov $1, %al */
        0xba,
        PORT_RESET & 0xff,
        PORT_RESET >> 8, /* mov $0x602, %dx */
        0xee,            /* out %al, %dx */
        0xf4,
        0xeb,
        0xfd, /* 1: hlt; jmp 1b */
    };
    return loader_put(mem, RESET_VECTOR, code, sizeof code, err);
}

/* --- the first processor --------------------------------------------------------------------- */

enum {
    BOOT_CS = 0x10,
    BOOT_DS = 0x18,
    BOOT_CS_32 = 0x20
}; /* boot.rst, 64-bit protocol; PVH: any */

static const uint64_t gdt[] = {
    0,
    0,
    UINT64_C(0x00af9b000000ffff), /* 64-bit code */
    UINT64_C(0x00cf93000000ffff), /* data */
    UINT64_C(0x00cf9b000000ffff), /* 32-bit code */
};

/* The first GiB onto itself in pages of 2 MiB; the kernel soon makes its own. */
static int put_page_tables(const struct guest_mem *mem, struct cl_err *err)
{
    enum { PRESENT_WRITABLE = 0x3, LARGE = 0x80, ENTRIES = 512 };
    static const uint64_t roots[] = {(PAGE_TABLES_AT + PAGE) | PRESENT_WRITABLE,
                                     (PAGE_TABLES_AT + 2 * PAGE) | PRESENT_WRITABLE};
    uint64_t directory[ENTRIES];
    for (uint64_t i = 0; i < ENTRIES; i++)
        directory[i] = i << 21 | LARGE | PRESENT_WRITABLE;
    if (loader_put(mem, PAGE_TABLES_AT, &roots[0], sizeof roots[0], err) < 0 ||
        loader_put(mem, PAGE_TABLES_AT + PAGE, &roots[1], sizeof roots[1], err) < 0)
        return -1;
    return loader_put(mem, PAGE_TABLES_AT + 2 * PAGE, directory, sizeof directory, err);
}

/* What the kernel is told, in the words of its protocol. */
static int put_words(const struct guest_mem *mem, const struct boot_input *input,
                     enum boot_protocol protocol, struct cl_err *err)
{
    struct loader_extent initrd;
    if (put_cmdline(mem, input->cmdline, err) < 0 ||
        loader_initrd(mem, input->initrd_fd, &initrd, err) < 0)
        return -1;
    if (protocol == BOOT_PVH)
        return put_start_info(mem, &initrd, err);
    return put_zero_page(mem, input, &initrd, err) < 0 ? -1 : put_page_tables(mem, err);
}

int boot_load(const struct guest_mem *mem, const struct boot_input *input,
              struct boot_entry *ret_entry, struct cl_err *err)
{
    struct boot_entry entry;
    if (load_kernel(mem, input, &entry, err) < 0 ||
        put_words(mem, input, entry.protocol, err) < 0 || put_acpi(mem, &input->machine, err) < 0 ||
        put_reset_vector(mem, err) < 0 || loader_put(mem, GDT_AT, gdt, sizeof gdt, err) < 0)
        return -1;
    *ret_entry = entry;
    return 0;
}

static const struct kvm_segment flat_data = {
    .limit = UINT32_MAX, .selector = BOOT_DS, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1};

enum { CR0_PE = 1, CR0_ET = 1 << 4, CR4_PAE = 1 << 5, EFER_LME = 1 << 8, EFER_LMA = 1 << 10 };
#define CR0_PG (UINT64_C(1) << 31)

static void enter_long_mode(struct kvm_sregs *s, struct kvm_regs *r)
{
    s->cs = flat_data;
    s->cs.selector = BOOT_CS;
    s->cs.type = 11; /* code */
    s->cs.db = 0;
    s->cs.l = 1;
    s->cr0 = CR0_PG | CR0_PE | CR0_ET;
    s->cr3 = PAGE_TABLES_AT;
    s->cr4 = CR4_PAE;
    s->efer = EFER_LME | EFER_LMA;
    r->rsi = ZERO_PAGE_AT;
    r->rsp = STACK_AT;
}

/* Xen, docs/misc/pvh: protected mode of 32 bits, no paging, flat segments, a task segment. */
static void enter_pvh(struct kvm_sregs *s, struct kvm_regs *r)
{
    enum { TSS_LIMIT = 0x67 };
    s->cs = flat_data;
    s->cs.selector = BOOT_CS_32;
    s->cs.type = 11;
    s->tr.base = 0;
    s->tr.limit = TSS_LIMIT;
    s->cr0 = CR0_PE | CR0_ET;
    s->cr3 = s->cr4 = s->efer = 0;
    r->rbx = START_INFO_AT;
}

int boot_set_registers(int vcpu_fd, const struct boot_entry *entry, struct cl_err *err)
{
    struct kvm_sregs s;
    struct kvm_regs r = {.rip = entry->at, .rflags = 2};
    if (KVM_CALL(vcpu_fd, KVM_GET_SREGS, &s, err) < 0)
        return -1;
    s.ds = s.es = s.fs = s.gs = s.ss = flat_data;
    s.gdt.base = GDT_AT;
    s.gdt.limit = sizeof gdt - 1;
    s.idt.limit = 0;
    (entry->protocol == BOOT_PVH ? enter_pvh : enter_long_mode)(&s, &r);
    if (KVM_CALL(vcpu_fd, KVM_SET_SREGS, &s, err) < 0)
        return -1;
    return KVM_CALL(vcpu_fd, KVM_SET_REGS, &r, err);
}
