/* The reader of a vmlinux, and what stands in guest memory before the first instruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <asm/bootparam.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"
#include "vmm/boot.h"
#include "vmm/elf.h"
#include "vmm/loader.h"

enum { MEM = 8 << 20, SEGMENTS = 3 };

enum { PHYS32_ENTRY = 18, NOTE_DESC = 8 }; /* Xen, public/elfnote.h */

/* A note as Linux writes it. */
struct note {
    Elf64_Nhdr head;
    char name[4];
    uint8_t desc[NOTE_DESC];
};

/* A kernel: head, table of segments, 16 bytes that all segments share, and two notes. */
struct kernel {
    Elf64_Ehdr head;
    Elf64_Phdr segments[SEGMENTS];
    uint8_t code[16];
    struct note notes[2];
};

static struct kernel good(void)
{
    struct kernel k = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB},
                 .e_type = ET_EXEC,
                 .e_machine = EM_X86_64,
                 .e_entry = 0x200004,
                 .e_phoff = offsetof(struct kernel, segments),
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_phnum = SEGMENTS},
        .code = "0123456789abcdef",
        .notes = {{{4, NOTE_DESC, PHYS32_ENTRY}, "GNU", {0xff}}, {{4, NOTE_DESC, 0}, "Xen", {0}}},
    };
    k.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                                 .p_offset = offsetof(struct kernel, code),
                                 .p_paddr = 0x200000,
                                 .p_filesz = sizeof k.code,
                                 .p_memsz = 0x1000};
    k.segments[1] = (Elf64_Phdr){.p_type = PT_NOTE,
                                 .p_offset = offsetof(struct kernel, notes),
                                 .p_filesz = sizeof k.notes,
                                 .p_align = 4};
    k.segments[2] = k.segments[0];
    k.segments[2].p_paddr = 0x201000;
    return k;
}

/* The same with a PVH entry in its second note. */
static struct kernel with_pvh(uint64_t entry)
{
    struct kernel k = good();
    k.notes[1].head.n_type = PHYS32_ENTRY;
    memcpy(k.notes[1].desc, &entry, sizeof entry);
    return k;
}

static enum cl_code parse(const struct kernel *k)
{
    struct elf_image image;
    struct cl_err err = {0};
    return elf_parse((const uint8_t *)k, sizeof *k, sizeof *k, &image, &err) < 0 ? err.code : CL_OK;
}

static void test_segments_are_read(void **state)
{
    (void)state;
    struct elf_image image;
    struct kernel k = good();
    assert_int_equal(elf_parse((const uint8_t *)&k, sizeof k, sizeof k, &image, NULL), 0);
    assert_int_equal(image.n, 2);
    assert_int_equal(image.entry, 0x200004);
    assert_int_equal(image.segments[1].gpa, 0x201000);
    assert_int_equal(image.segments[1].file_bytes, 16);
    assert_int_equal(image.segments[1].mem_bytes, 0x1000);
    assert_int_equal(image.n_notes, 1);
    assert_int_equal(image.notes[0].offset, offsetof(struct kernel, notes));
    assert_int_equal(image.notes[0].bytes, sizeof k.notes);
    assert_int_equal(image.notes[0].align, 4);
}

static void test_what_the_kernel_never_writes(void **state)
{
    (void)state;
    struct kernel k = good();
    struct loader_extent constants;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = memfd_create("kernel", MFD_CLOEXEC);
    k.segments[0].p_flags = PF_R | PF_W | PF_X;
    k.segments[2].p_flags = PF_R | PF_X;
    assert_int_equal(pwrite(fd, &k, sizeof k, 0), sizeof k);
    assert_int_equal(loader_constants(fd, &constants, &err), 0);
    assert_int_equal(constants.at, 0x201000);
    assert_int_equal(constants.bytes, 0x1000);
    k.segments[2].p_flags |= PF_W;
    assert_int_equal(pwrite(fd, &k, sizeof k, 0), sizeof k);
    assert_int_equal(loader_constants(fd, &constants, &err), 0);
    assert_int_equal(constants.bytes, 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(loader_constants(fd, &constants, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
}

static void test_a_kernel_may_have_no_64_bit_entry(void **state)
{
    (void)state;
    struct elf_image image = {.entry = 1};
    struct kernel k = good();
    k.head.e_entry = 0; /* gABI 4.1: it has none */
    assert_int_equal(elf_parse((const uint8_t *)&k, sizeof k, sizeof k, &image, NULL), 0);
    assert_int_equal(image.entry, 0);
}

#define REFUSED(change) \
    do { \
        struct kernel k = good(); \
        change; \
        assert_int_equal(parse(&k), CL_E_INVALID); \
    } while (0)

static void test_each_lie_is_refused(void **state)
{
    (void)state;
    REFUSED(k.head.e_ident[0] = 0);
    REFUSED(k.head.e_ident[EI_CLASS] = ELFCLASS32);
    REFUSED(k.head.e_ident[EI_DATA] = ELFDATA2MSB);
    REFUSED(k.head.e_machine = EM_AARCH64);
    REFUSED(k.head.e_type = ET_REL);
    REFUSED(k.head.e_phentsize = 32);
    REFUSED(k.head.e_phnum = 0);
    REFUSED(k.head.e_phnum = 0xffff);
    REFUSED(k.head.e_phoff = UINT64_MAX - 8);
    REFUSED(k.head.e_phoff = sizeof k);
    REFUSED(k.head.e_entry = 0x1ffff);
    REFUSED(k.head.e_entry = 0x200000 + sizeof k.code); /* in its zeroes */
    REFUSED(k.segments[0].p_offset = sizeof k);
    REFUSED(k.segments[0].p_offset = UINT64_MAX);
    REFUSED(k.segments[0].p_filesz = UINT64_MAX);
    REFUSED(k.segments[0].p_memsz = 1);
    REFUSED(k.segments[2].p_paddr = UINT64_MAX - 8);
    REFUSED(k.segments[2].p_paddr = 0x200fff);
    REFUSED(k.segments[2].p_paddr = 0x1ff001);
    REFUSED(k.segments[1].p_offset = sizeof k);
    REFUSED(k.segments[1].p_offset = UINT64_MAX);
    REFUSED(k.segments[1].p_filesz = UINT64_MAX);
    REFUSED(k.segments[1].p_filesz = ELF_NOTE_BYTES_MAX + 1);
}

/* A table of more than fits into struct elf_image. */
static void test_too_many_segments_are_refused(void **state)
{
    (void)state;
    struct elf_image image;
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr table[ELF_SEGMENTS_MAX + 1];
    } k = {.head = good().head};
    k.head.e_phoff = sizeof k.head;
    k.head.e_entry = 0;
    for (unsigned i = 0; i <= ELF_SEGMENTS_MAX; i++)
        k.table[i] = (Elf64_Phdr){.p_type = PT_LOAD, .p_paddr = i << 20, .p_memsz = 1 << 20};
    for (unsigned n = ELF_SEGMENTS_MAX; n <= ELF_SEGMENTS_MAX + 1; n++) {
        k.head.e_phnum = (Elf64_Half)n;
        assert_int_equal(elf_parse((const uint8_t *)&k, sizeof k, sizeof k, &image, NULL),
                         n > ELF_SEGMENTS_MAX ? -1 : 0);
    }
    for (unsigned i = 1; i <= ELF_NOTES_MAX + 1; i++)
        k.table[i] = (Elf64_Phdr){.p_type = PT_NOTE, .p_filesz = 12, .p_align = 8};
    for (unsigned n = ELF_NOTES_MAX + 1; n <= ELF_NOTES_MAX + 2; n++) {
        k.head.e_phnum = (Elf64_Half)n;
        assert_int_equal(elf_parse((const uint8_t *)&k, sizeof k, sizeof k, &image, NULL),
                         n > ELF_NOTES_MAX + 1 ? -1 : 0);
    }
    assert_int_equal(image.n_notes, ELF_NOTES_MAX);
    assert_int_equal(image.notes[0].align, 8);
}

/* One for i386, as linkers make it; its own entry is not ours to take. */
struct kernel_32 {
    Elf32_Ehdr head;
    Elf32_Phdr segments[2];
    uint8_t code[16];
    struct note note;
};

static struct kernel_32 good_32(void)
{
    struct kernel_32 k = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB},
                 .e_type = ET_EXEC,
                 .e_machine = EM_386,
                 .e_entry = 0x200004,
                 .e_phoff = offsetof(struct kernel_32, segments),
                 .e_phentsize = sizeof(Elf32_Phdr),
                 .e_phnum = 2},
        .code = "0123456789abcdef",
        .note = {{4, 4, PHYS32_ENTRY}, "Xen", {8, 0, 0x20}},
    };
    k.segments[0] = (Elf32_Phdr){.p_type = PT_LOAD,
                                 .p_offset = offsetof(struct kernel_32, code),
                                 .p_paddr = 0x200000,
                                 .p_filesz = sizeof k.code,
                                 .p_memsz = 0x1000};
    k.segments[1] = (Elf32_Phdr){.p_type = PT_NOTE,
                                 .p_offset = offsetof(struct kernel_32, note),
                                 .p_filesz = sizeof k.note - 4,
                                 .p_align = 4};
    return k;
}

static void test_an_i386_kernel_is_read(void **state)
{
    (void)state;
    struct elf_image image;
    struct kernel_32 k = good_32();
    assert_int_equal(elf_parse((const uint8_t *)&k, sizeof k, sizeof k, &image, NULL), 0);
    assert_int_equal(image.entry, 0);
    assert_int_equal(image.n, 1);
    assert_int_equal(image.segments[0].offset, offsetof(struct kernel_32, code));
    assert_int_equal(image.segments[0].gpa, 0x200000);
    assert_int_equal(image.segments[0].file_bytes, 16);
    assert_int_equal(image.segments[0].mem_bytes, 0x1000);
    assert_int_equal(image.n_notes, 1);
    assert_int_equal(image.notes[0].bytes, 20);
}

static int parse_32(const struct kernel_32 *k, size_t n)
{
    struct elf_image image;
    return elf_parse((const uint8_t *)k, n, sizeof *k, &image, NULL);
}

#define REFUSED_32(change) \
    do { \
        struct kernel_32 k = good_32(); \
        change; \
        assert_int_equal(parse_32(&k, sizeof k), -1); \
    } while (0)

static void test_each_lie_of_an_i386_kernel_is_refused(void **state)
{
    (void)state;
    struct kernel_32 whole = good_32();
    REFUSED_32(k.head.e_machine = EM_X86_64);
    REFUSED_32(k.head.e_type = ET_DYN);
    REFUSED_32(k.head.e_phentsize = sizeof(Elf64_Phdr));
    REFUSED_32(k.head.e_phoff = UINT32_MAX);
    REFUSED_32(k.head.e_phnum = 0xffff);
    REFUSED_32(k.segments[0].p_offset = UINT32_MAX);
    REFUSED_32(k.segments[0].p_memsz = 1);
    REFUSED_32(k.segments[1].p_offset = UINT32_MAX);
    for (size_t n = 0; n < offsetof(struct kernel_32, code); n++)
        assert_int_equal(parse_32(&whole, n), -1);
}

/* --- the PVH entry ------------------------------------------------------------------------- */

/* What notes say to an image of [0x200000, 0x200010); -1 = they are refused. */
static int64_t pvh_of(const void *notes, size_t n, unsigned align)
{
    static const struct elf_image image = {
        .n = 1, .segments = {{.gpa = 0x200000, .file_bytes = 16, .mem_bytes = 0x1000}}};
    struct cl_err err = {0};
    uint32_t entry = 0;
    int rc = elf_pvh_entry(&image, notes, n, align, &entry, &err);
    assert_int_equal(err.code, rc < 0 ? CL_E_INVALID : CL_OK);
    return rc < 0 ? -1 : (int64_t)entry;
}

static void test_the_pvh_entry_is_found_among_notes(void **state)
{
    (void)state;
    struct kernel k = with_pvh(0x200004), none = good();
    struct kernel_32 k32 = good_32();
    assert_int_equal(pvh_of(k.notes, sizeof k.notes, 4), 0x200004);
    assert_int_equal(pvh_of(none.notes, sizeof none.notes, 4), 0);
    assert_int_equal(pvh_of(&k32.note, sizeof k32.note - 4, 4), 0x200008);
    assert_int_equal(pvh_of(k.notes, 0, 4), 0);
    k.notes[0].head.n_namesz = 2; /* its end is rounded up to four */
    assert_int_equal(pvh_of(k.notes, sizeof k.notes, 4), 0x200004);
    k.notes[1].name[3] = 'n'; /* not the owner "Xen" */
    assert_int_equal(pvh_of(k.notes, sizeof k.notes, 4), 0);
}

static void test_notes_may_be_aligned_to_8(void **state)
{
    (void)state;
    struct {
        Elf64_Nhdr odd;
        char name[12], desc[8]; /* of 6 bytes and 3: what follows begins at a multiple of 8 */
        struct note pvh;
    } __attribute__((packed)) notes = {.odd = {6, 3, PHYS32_ENTRY},
                                       .name = "Linux",
                                       .pvh = {{4, 4, PHYS32_ENTRY}, "Xen", {15, 0, 0x20}}};
    assert_int_equal(offsetof(typeof(notes), pvh), 32);
    assert_int_equal(pvh_of(&notes, sizeof notes, 8), 0x20000f);
    assert_int_equal(pvh_of(&notes, sizeof notes, 4), -1); /* taken for others */
}

static void test_a_pvh_entry_that_is_none_is_refused(void **state)
{
    (void)state;
    static const uint64_t bad[] = {
        0, 1, 0x1fffff, 0x200010, UINT32_MAX, UINT64_MAX, 0x200004 | UINT64_C(1) << 32};
    struct kernel k = with_pvh(0x200004);
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct kernel lies = with_pvh(bad[i]);
        assert_int_equal(pvh_of(lies.notes, sizeof lies.notes, 4), -1);
    }
    for (uint32_t n = 0; n < NOTE_DESC; n++) {
        k.notes[1].head.n_descsz = n;
        assert_int_equal(pvh_of(k.notes, sizeof k.notes, 4), n == 4 ? 0x200004 : -1);
    }
}

static void test_notes_that_were_cut_are_refused(void **state)
{
    (void)state;
    struct kernel k = with_pvh(0x200004);
    for (size_t n = sizeof(Elf64_Nhdr); n < sizeof k.notes; n++) {
        bool between = n >= sizeof k.notes[0] && n < sizeof k.notes[0] + sizeof(Elf64_Nhdr);
        assert_int_equal(pvh_of(k.notes, n, 4), between ? 0 : -1);
    }
    k.notes[0].head.n_namesz = UINT32_MAX;
    assert_int_equal(pvh_of(k.notes, sizeof k.notes, 4), -1);
    k.notes[0].head.n_descsz = UINT32_MAX;
    assert_int_equal(pvh_of(k.notes, sizeof k.notes, 8), -1);
    k.notes[0].head.n_namesz = 4;
    assert_int_equal(pvh_of(k.notes, sizeof k.notes, 4), -1);
}

static void test_a_head_that_was_cut_is_refused(void **state)
{
    (void)state;
    struct kernel k = good();
    struct elf_image image;
    for (size_t n = 0; n < offsetof(struct kernel, code); n++)
        assert_int_equal(elf_parse((const uint8_t *)&k, n, sizeof k, &image, NULL), -1);
}

/* --- loading ------------------------------------------------------------------------------- */

static int file_of(const void *bytes, size_t n)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    return fd;
}

static struct guest_mem memory(void)
{
    struct guest_mem mem;
    CL_AUTO(cl_closep) int fd = memfd_create("ram", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, MEM), 0);
    assert_int_equal(gm_map(fd, MEM, false, &mem, NULL), 0);
    return mem;
}

/* Boot these bytes as a kernel, with an initrd unless its size is negative; its error's code. */
static enum cl_code boot_bytes(const struct guest_mem *mem, const void *kernel, size_t n,
                               struct boot_input input, long initrd_n, struct boot_entry *ret_entry)
{
    static const uint8_t initrd[MEM];
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int kernel_fd = file_of(kernel, n);
    CL_AUTO(cl_closep) int initrd_fd = initrd_n < 0 ? -1 : file_of(initrd, (size_t)initrd_n);
    input.kernel_fd = kernel_fd;
    input.initrd_fd = initrd_fd;
    input.machine.vcpus = 1;
    return boot_load(mem, &input, ret_entry, &err) < 0 ? err.code : CL_OK;
}

/* By its 64-bit entry. */
static enum cl_code boot(const struct guest_mem *mem, const struct kernel *k, size_t initrd_n,
                         const char *cmdline)
{
    struct boot_entry entry = {.protocol = BOOT_PVH};
    enum cl_code code = boot_bytes(mem, k, sizeof *k, (struct boot_input){.cmdline = cmdline},
                                   (long)initrd_n, &entry);
    if (code == CL_OK) {
        assert_int_equal(entry.protocol, BOOT_LONG_MODE);
        assert_int_equal(entry.at, 0x200004);
    }
    return code;
}

static void test_a_kernel_finds_what_it_expects(void **state)
{
    (void)state;
    struct boot_params params;
    char text[16];
    struct kernel k = good();
    struct guest_mem mem = memory();
    assert_int_equal(boot(&mem, &k, 5000, "quiet"), CL_OK);
    assert_int_equal(gm_read(&mem, (struct gpa){0x7000}, &params, sizeof params), 0);
    assert_int_equal(params.hdr.boot_flag, 0xaa55);
    assert_int_equal(params.e820_entries, 3);
    assert_int_equal(params.e820_table[2].addr + params.e820_table[2].size, MEM);
    assert_int_equal(params.acpi_rsdp_addr, 0xe0000);
    assert_int_equal(params.hdr.ramdisk_image, MEM - 8192);
    assert_int_equal(params.hdr.ramdisk_size, 5000);
    assert_int_equal(gm_read(&mem, (struct gpa){params.hdr.cmd_line_ptr}, text, 6), 0);
    assert_string_equal(text, "quiet");
    assert_int_equal(gm_read(&mem, (struct gpa){0x201000}, text, 16), 0);
    assert_memory_equal(text, "0123456789abcdef", 16);
    static const uint8_t reset[] = {0xb0, 0x01, 0xba, 0x02, 0x06, 0xee};
    assert_int_equal(gm_read(&mem, (struct gpa){0xffff0}, text, sizeof reset), 0);
    assert_memory_equal(text, reset, sizeof reset);
    gm_unmap(&mem);
}

static void test_no_two_kernels_begin_with_the_same_seed(void **state)
{
    (void)state;
    uint8_t seeds[2][48];
    struct kernel k = good();
    for (int i = 0; i < 2; i++) {
        struct guest_mem mem = memory();
        assert_int_equal(boot(&mem, &k, 1, ""), CL_OK);
        assert_int_equal(gm_read(&mem, (struct gpa){0x6000}, seeds[i], sizeof seeds[i]), 0);
        gm_unmap(&mem);
    }
    assert_memory_equal(seeds[0], seeds[1], 16); /* the head: none follows, type 9, 32 bytes */
    assert_int_equal(seeds[0][8], 9);
    assert_memory_not_equal(seeds[0] + 16, seeds[1] + 16, 32);
}

static void test_what_does_not_fit_into_memory_is_refused(void **state)
{
    (void)state;
    static char cmdline[BOOT_CMDLINE_MAX + 2];
    struct guest_mem mem = memory();
    struct kernel k = good();
    memset(cmdline, 'x', BOOT_CMDLINE_MAX);
    assert_int_equal(boot(&mem, &k, 1, cmdline), CL_OK);
    cmdline[BOOT_CMDLINE_MAX] = 'x';
    assert_int_equal(boot(&mem, &k, 1, cmdline), CL_E_TOOBIG);
    assert_int_equal(boot(&mem, &k, MEM / 2 + 1, ""), CL_E_INVALID);
    assert_int_equal(boot(&mem, &k, 0, ""), CL_E_INVALID);
    k.segments[2].p_paddr = 0x1000; /* over the tables */
    assert_int_equal(boot(&mem, &k, 1, ""), CL_E_INVALID);
    k.segments[2].p_paddr = MEM - 0x800;
    assert_int_equal(boot(&mem, &k, 1, ""), CL_E_INVALID);
    k.segments[2].p_paddr = UINT64_C(1) << 40;
    assert_int_equal(boot(&mem, &k, 1, ""), CL_E_INVALID);
    gm_unmap(&mem);
}

/* --- by PVH -------------------------------------------------------------------------------- */

enum { START_INFO = 0x7000 };

static uint32_t word(const struct guest_mem *mem, uint64_t at)
{
    uint32_t value;
    assert_int_equal(gm_read(mem, (struct gpa){at}, &value, sizeof value), 0);
    return value;
}

static uint64_t address(const struct guest_mem *mem, uint64_t at)
{
    return word(mem, at) | (uint64_t)word(mem, at + 4) << 32;
}

static enum cl_code boot_pvh(const struct guest_mem *mem, const struct kernel *k, bool forced,
                             long initrd_n, struct boot_entry *ret_entry)
{
    struct boot_input input = {.cmdline = "quiet", .pvh = forced};
    return boot_bytes(mem, k, sizeof *k, input, initrd_n, ret_entry);
}

/* Offsets and values of Xen's public/arch-x86/hvm/start_info.h. */
static void test_a_pvh_kernel_finds_its_start_info(void **state)
{
    (void)state;
    char text[8];
    struct boot_entry entry;
    struct guest_mem mem = memory();
    struct kernel k = with_pvh(0x200008);
    assert_int_equal(boot_pvh(&mem, &k, true, 5000, &entry), CL_OK);
    assert_int_equal(entry.protocol, BOOT_PVH);
    assert_int_equal(entry.at, 0x200008);
    assert_int_equal(word(&mem, START_INFO), 0x336ec578);
    assert_int_equal(word(&mem, START_INFO + 4), 1);  /* version */
    assert_int_equal(word(&mem, START_INFO + 8), 0);  /* flags: not privileged, no first domain */
    assert_int_equal(word(&mem, START_INFO + 12), 1); /* modules */
    uint64_t module = address(&mem, START_INFO + 16);
    assert_int_equal(address(&mem, module), MEM - 8192);
    assert_int_equal(address(&mem, module + 8), 5000);
    assert_int_equal(address(&mem, module + 16), 0); /* no command line of its own */
    assert_int_equal(gm_read(&mem, (struct gpa){address(&mem, START_INFO + 24)}, text, 6), 0);
    assert_string_equal(text, "quiet");
    assert_int_equal(gm_read(&mem, (struct gpa){address(&mem, START_INFO + 32)}, text, 8), 0);
    assert_memory_equal(text, "RSD PTR ", 8);
    assert_int_equal(word(&mem, START_INFO + 52), 0);
    gm_unmap(&mem);
}

static void test_a_pvh_kernel_is_told_of_its_memory(void **state)
{
    (void)state;
    static const struct {
        uint64_t at, bytes;
        uint32_t type;
    } want[] = {{0, 0x9fc00, 1}, {0x9fc00, 0x100000 - 0x9fc00, 2}, {0x100000, MEM - 0x100000, 1}};
    struct boot_entry entry;
    struct guest_mem mem = memory();
    struct kernel k = with_pvh(0x200008);
    assert_int_equal(boot_pvh(&mem, &k, true, -1, &entry), CL_OK);
    uint64_t map = address(&mem, START_INFO + 40);
    assert_int_equal(word(&mem, START_INFO + 48), CL_COUNT(want));
    for (size_t i = 0; i < CL_COUNT(want); i++, map += 24) {
        assert_int_equal(address(&mem, map), want[i].at);
        assert_int_equal(address(&mem, map + 8), want[i].bytes);
        assert_int_equal(word(&mem, map + 16), want[i].type);
        assert_int_equal(word(&mem, map + 20), 0);
    }
    assert_int_equal(word(&mem, START_INFO + 12), 0); /* no initrd: no module */
    assert_int_equal(address(&mem, START_INFO + 16), 0);
    gm_unmap(&mem);
}

static void test_memory_above_4_gib_is_told_of_too(void **state)
{
    (void)state;
    struct boot_entry entry;
    struct guest_mem mem;
    struct boot_params params;
    struct kernel k = with_pvh(0x200008);
    const uint64_t above = 64 << 20, bytes = GM_LOW_MAX + above;
    CL_AUTO(cl_closep) int fd = memfd_create("ram", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(gm_map(fd, bytes, false, &mem, NULL), 0);
    assert_int_equal(boot_pvh(&mem, &k, true, -1, &entry), CL_OK);
    assert_int_equal(word(&mem, START_INFO + 48), 4);
    uint64_t last = address(&mem, START_INFO + 40) + 3 * 24;
    assert_int_equal(address(&mem, last), UINT64_C(1) << 32);
    assert_int_equal(address(&mem, last + 8), above);
    assert_int_equal(boot(&mem, &k, 1, ""), CL_OK);
    assert_int_equal(gm_read(&mem, (struct gpa){0x7000}, &params, sizeof params), 0);
    assert_int_equal(params.e820_entries, 4);
    assert_int_equal(params.e820_table[3].addr, UINT64_C(1) << 32);
    assert_int_equal(params.e820_table[3].size, above);
    gm_unmap(&mem);
}

static void test_the_entry_is_chosen_by_kernel_and_input(void **state)
{
    (void)state;
    struct boot_entry entry;
    struct guest_mem mem = memory();
    struct kernel both = with_pvh(0x200008), pvh_only = both, none = good(), long_only = good();
    struct kernel_32 i386 = good_32();
    const struct boot_input input = {.cmdline = ""};
    pvh_only.head.e_entry = none.head.e_entry = 0;
    assert_int_equal(boot_pvh(&mem, &both, false, 1, &entry), CL_OK);
    assert_int_equal(entry.protocol, BOOT_LONG_MODE);
    assert_int_equal(boot_pvh(&mem, &pvh_only, false, 1, &entry), CL_OK);
    assert_int_equal(entry.protocol, BOOT_PVH);
    assert_int_equal(boot_bytes(&mem, &i386, sizeof i386, input, 1, &entry), CL_OK);
    assert_int_equal(entry.protocol, BOOT_PVH);
    assert_int_equal(entry.at, 0x200008);
    assert_int_equal(boot_pvh(&mem, &none, false, 1, &entry), CL_E_INVALID);
    assert_int_equal(boot_pvh(&mem, &long_only, true, 1, &entry), CL_E_INVALID);
    gm_unmap(&mem);
}

static void test_a_pvh_kernel_that_lies_is_refused(void **state)
{
    (void)state;
    struct boot_entry entry;
    struct guest_mem mem = memory();
    struct kernel outside = with_pvh(0x900000), cut = with_pvh(0x200008);
    assert_int_equal(boot_pvh(&mem, &outside, true, 1, &entry), CL_E_INVALID);
    cut.segments[1].p_filesz--;
    assert_int_equal(boot_pvh(&mem, &cut, true, 1, &entry), CL_E_INVALID);
    assert_int_equal(boot_pvh(&mem, &cut, false, 1, &entry), CL_OK); /* nobody asks its notes */
    gm_unmap(&mem);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_are_read),
        cmocka_unit_test(test_what_the_kernel_never_writes),
        cmocka_unit_test(test_a_kernel_may_have_no_64_bit_entry),
        cmocka_unit_test(test_each_lie_is_refused),
        cmocka_unit_test(test_too_many_segments_are_refused),
        cmocka_unit_test(test_an_i386_kernel_is_read),
        cmocka_unit_test(test_each_lie_of_an_i386_kernel_is_refused),
        cmocka_unit_test(test_the_pvh_entry_is_found_among_notes),
        cmocka_unit_test(test_notes_may_be_aligned_to_8),
        cmocka_unit_test(test_a_pvh_entry_that_is_none_is_refused),
        cmocka_unit_test(test_notes_that_were_cut_are_refused),
        cmocka_unit_test(test_a_head_that_was_cut_is_refused),
        cmocka_unit_test(test_a_kernel_finds_what_it_expects),
        cmocka_unit_test(test_no_two_kernels_begin_with_the_same_seed),
        cmocka_unit_test(test_what_does_not_fit_into_memory_is_refused),
        cmocka_unit_test(test_a_pvh_kernel_finds_its_start_info),
        cmocka_unit_test(test_a_pvh_kernel_is_told_of_its_memory),
        cmocka_unit_test(test_memory_above_4_gib_is_told_of_too),
        cmocka_unit_test(test_the_entry_is_chosen_by_kernel_and_input),
        cmocka_unit_test(test_a_pvh_kernel_that_lies_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
