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

enum { MEM = 8 << 20, SEGMENTS = 3 };

/* A kernel: head, table of segments, and 16 bytes that all segments share. */
struct kernel {
    Elf64_Ehdr head;
    Elf64_Phdr segments[SEGMENTS];
    uint8_t code[16];
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
    };
    k.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                                 .p_offset = offsetof(struct kernel, code),
                                 .p_paddr = 0x200000,
                                 .p_filesz = sizeof k.code,
                                 .p_memsz = 0x1000};
    k.segments[1] = (Elf64_Phdr){.p_type = PT_NOTE};
    k.segments[2] = k.segments[0];
    k.segments[2].p_paddr = 0x201000;
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

/* Boot this kernel with this initrd; its error's code. */
static enum cl_code boot(const struct guest_mem *mem, const struct kernel *k, size_t initrd_n,
                         const char *cmdline)
{
    static const uint8_t initrd[MEM];
    struct cl_err err = {0};
    uint64_t entry = 0;
    CL_AUTO(cl_closep) int kernel_fd = file_of(k, sizeof *k);
    CL_AUTO(cl_closep) int initrd_fd = file_of(initrd, initrd_n);
    struct boot_input input = {.kernel_fd = kernel_fd,
                               .initrd_fd = initrd_fd,
                               .cmdline = cmdline,
                               .machine = {.vcpus = 1}};
    if (boot_load(mem, &input, &entry, &err) < 0)
        return err.code;
    assert_int_equal(entry, 0x200004);
    return CL_OK;
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_are_read),
        cmocka_unit_test(test_each_lie_is_refused),
        cmocka_unit_test(test_a_head_that_was_cut_is_refused),
        cmocka_unit_test(test_a_kernel_finds_what_it_expects),
        cmocka_unit_test(test_no_two_kernels_begin_with_the_same_seed),
        cmocka_unit_test(test_what_does_not_fit_into_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
