/* vmm/boot.c - see vmm/boot.h. */
#include "vmm/boot.h"

#include <asm/bootparam.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "vmm/elf.h"
#include "vmm/kvm.h"
#include "vmm/ports.h"

#define GDT_AT UINT64_C(0x500)
#define SEED_AT UINT64_C(0x6000)
#define ZERO_PAGE_AT UINT64_C(0x7000)
#define STACK_AT UINT64_C(0x8ff0)
#define PAGE_TABLES_AT UINT64_C(0x9000)
#define CMDLINE_AT UINT64_C(0x20000)
#define LOW_RAM_END UINT64_C(0x9fc00) /* where a PC's firmware keeps its data */
#define KERNEL_MIN UINT64_C(0x100000)

enum { PAGE = 4096 };

static int put(const struct guest_mem *mem, uint64_t at, const void *src, size_t n,
               struct cl_err *err)
{
    if (gm_write(mem, (struct gpa){at}, src, n) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "guest memory has no room for %zu bytes at 0x%" PRIx64,
                       n, at);
    return 0;
}

/* --- files --------------------------------------------------------------------------------- */

static int size_of(int fd, const char *what, uint64_t *ret_bytes, struct cl_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "stat the %s", what);
    if (st.st_size <= 0)
        return cl_fail(err, CL_E_INVALID, 0, "the %s is empty", what);
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

/* file[offset, offset + n) to guest memory. */
static int load(const struct guest_mem *mem, int fd, uint64_t offset, uint64_t at, uint64_t n,
                struct cl_err *err)
{
    struct iovec to;
    if (gm_iov(mem, (struct gpa){at}, n, &to) < 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "guest memory has no room for %" PRIu64 " bytes at 0x%" PRIx64, n, at);
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (uint8_t *)to.iov_base + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return cl_fail(err, CL_E_SYS, got < 0 ? errno : 0, "%s at byte %" PRIu64,
                           got < 0 ? "read" : "the file ends", offset + done);
        done += (size_t)got;
    }
    return 0;
}

static int load_kernel(const struct guest_mem *mem, int fd, uint64_t *ret_entry, struct cl_err *err)
{
    uint8_t head[ELF_HEAD_MAX];
    struct elf_image image;
    uint64_t bytes;
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0)
        return cl_fail(err, CL_E_SYS, errno, "read the kernel");
    if (size_of(fd, "kernel", &bytes, err) < 0 ||
        elf_parse(head, (size_t)n, bytes, &image, err) < 0)
        return -1;
    for (unsigned i = 0; i < image.n; i++) {
        const struct elf_segment *s = &image.segments[i];
        if (s->gpa < KERNEL_MIN || s->gpa + s->mem_bytes > mem->low)
            return cl_fail(err, CL_E_INVALID, 0,
                           "segment %u of the kernel ends at 0x%" PRIx64
                           "; guest memory at 0x%" PRIx64,
                           i, s->gpa + s->mem_bytes, mem->low);
        if (s->file_bytes > 0 && load(mem, fd, s->offset, s->gpa, s->file_bytes, err) < 0)
            return cl_wrap(err, "load the kernel");
    }
    *ret_entry = image.entry;
    return 0;
}

/* At the end of low RAM, where the kernel's own memory does not reach. */
static int load_initrd(const struct guest_mem *mem, int fd, struct setup_header *hdr,
                       struct cl_err *err)
{
    uint64_t bytes;
    if (fd < 0)
        return 0;
    if (size_of(fd, "initrd", &bytes, err) < 0)
        return -1;
    if (bytes > mem->low / 2)
        return cl_fail(err, CL_E_INVALID, 0,
                       "an initrd of %" PRIu64 " bytes in %" PRIu64 " bytes of memory", bytes,
                       mem->low);
    uint64_t at = (mem->low - bytes) & ~(uint64_t)(PAGE - 1);
    hdr->ramdisk_image = (uint32_t)at; /* low RAM ends below 4 GiB */
    hdr->ramdisk_size = (uint32_t)bytes;
    return load(mem, fd, 0, at, bytes, err) < 0 ? cl_wrap(err, "load the initrd") : 0;
}

/* --- zero page ----------------------------------------------------------------------------- */

enum { E820_RAM = 1, E820_RESERVED = 2 };

static void add_e820(struct boot_params *params, uint64_t from, uint64_t to, uint32_t type)
{
    if (to > from)
        params->e820_table[params->e820_entries++] =
            (struct boot_e820_entry){.addr = from, .size = to - from, .type = type};
}

static void describe_memory(struct boot_params *params, const struct guest_mem *mem)
{
    add_e820(params, 0, LOW_RAM_END, E820_RAM);
    add_e820(params, LOW_RAM_END, KERNEL_MIN, E820_RESERVED);
    add_e820(params, KERNEL_MIN, mem->low, E820_RAM);
    add_e820(params, GM_HIGH_START, GM_HIGH_START + mem->high, E820_RAM);
}

static void describe_loader(struct boot_params *params, size_t cmdline_n)
{
    struct setup_header *hdr = &params->hdr;
    hdr->type_of_loader = 0xff; /* none of the registered ones */
    hdr->boot_flag = 0xaa55;
    hdr->header = 0x53726448; /* "HdrS" */
    hdr->version = 0x20f;
    hdr->cmd_line_ptr = (uint32_t)CMDLINE_AT;
    hdr->cmdline_size = (uint32_t)cmdline_n;
    hdr->setup_data = SEED_AT;
    params->acpi_rsdp_addr = ACPI_BASE;
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
    int rc = put(mem, SEED_AT, &data, sizeof data, err);
    explicit_bzero(&data, sizeof data);
    return rc;
}

static int put_zero_page(const struct guest_mem *mem, const struct boot_input *input,
                         struct cl_err *err)
{
    struct boot_params params = {0};
    size_t n = strlen(input->cmdline);
    if (n > BOOT_CMDLINE_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "a kernel command line of %zu bytes; at most %d", n,
                       BOOT_CMDLINE_MAX);
    describe_memory(&params, mem);
    describe_loader(&params, n);
    if (load_initrd(mem, input->initrd_fd, &params.hdr, err) < 0 || put_seed(mem, err) < 0 ||
        put(mem, CMDLINE_AT, input->cmdline, n + 1, err) < 0)
        return -1;
    return put(mem, ZERO_PAGE_AT, &params, sizeof params, err);
}

static int put_acpi(const struct guest_mem *mem, const struct acpi_machine *machine,
                    struct cl_err *err)
{
    uint8_t tables[ACPI_BYTES_MAX];
    size_t n;
    if (acpi_build(machine, tables, sizeof tables, &n, err) < 0)
        return -1;
    return put(mem, ACPI_BASE, tables, n, err);
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
    return put(mem, RESET_VECTOR, code, sizeof code, err);
}

/* --- long mode ----------------------------------------------------------------------------- */

enum { BOOT_CS = 0x10, BOOT_DS = 0x18 }; /* boot.rst, 64-bit protocol */

static const uint64_t gdt[] = {
    0, 0, UINT64_C(0x00af9b000000ffff), /* 64-bit code */
    UINT64_C(0x00cf93000000ffff),       /* data */
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
    if (put(mem, PAGE_TABLES_AT, &roots[0], sizeof roots[0], err) < 0 ||
        put(mem, PAGE_TABLES_AT + PAGE, &roots[1], sizeof roots[1], err) < 0)
        return -1;
    return put(mem, PAGE_TABLES_AT + 2 * PAGE, directory, sizeof directory, err);
}

int boot_load(const struct guest_mem *mem, const struct boot_input *input, uint64_t *ret_entry,
              struct cl_err *err)
{
    if (load_kernel(mem, input->kernel_fd, ret_entry, err) < 0 ||
        put_zero_page(mem, input, err) < 0 || put_acpi(mem, &input->machine, err) < 0 ||
        put_page_tables(mem, err) < 0 || put_reset_vector(mem, err) < 0)
        return -1;
    return put(mem, GDT_AT, gdt, sizeof gdt, err);
}

static void set_segments(struct kvm_sregs *s)
{
    struct kvm_segment code = {
        .limit = UINT32_MAX, .selector = BOOT_CS, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data = {
        .limit = UINT32_MAX, .selector = BOOT_DS, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1};
    s->cs = code;
    s->ds = s->es = s->fs = s->gs = s->ss = data;
    s->gdt.base = GDT_AT;
    s->gdt.limit = sizeof gdt - 1;
    s->idt.limit = 0;
}

int boot_set_registers(int vcpu_fd, uint64_t entry, struct cl_err *err)
{
    enum { CR0_PE = 1, CR0_ET = 1 << 4, CR4_PAE = 1 << 5, EFER_LME = 1 << 8, EFER_LMA = 1 << 10 };
    const uint64_t cr0_pg = UINT64_C(1) << 31;
    struct kvm_sregs s;
    struct kvm_regs r = {.rip = entry, .rsi = ZERO_PAGE_AT, .rsp = STACK_AT, .rflags = 2};
    if (KVM_CALL(vcpu_fd, KVM_GET_SREGS, &s, err) < 0)
        return -1;
    set_segments(&s);
    s.cr0 = cr0_pg | CR0_PE | CR0_ET;
    s.cr3 = PAGE_TABLES_AT;
    s.cr4 = CR4_PAE;
    s.efer = EFER_LME | EFER_LMA;
    if (KVM_CALL(vcpu_fd, KVM_SET_SREGS, &s, err) < 0)
        return -1;
    return KVM_CALL(vcpu_fd, KVM_SET_REGS, &r, err);
}
