/* vmm/elf.c - see vmm/elf.h. */
#include "vmm/elf.h"

#include <elf.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static int check_kind(const Elf64_Ehdr *head, struct cl_err *err)
{
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel is no ELF file; want an unpacked vmlinux");
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB ||
        head->e_machine != EM_X86_64 || head->e_type != ET_EXEC)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel is no executable for x86-64");
    return 0;
}

static int check_table(const Elf64_Ehdr *head, size_t n, struct cl_err *err)
{
    if (head->e_phentsize != sizeof(Elf64_Phdr))
        return cl_fail(err, CL_E_INVALID, 0, "the kernel's segments take %u bytes each; want %zu",
                       head->e_phentsize, sizeof(Elf64_Phdr));
    size_t bytes = (size_t)head->e_phnum * sizeof(Elf64_Phdr);
    if (bytes > n || head->e_phoff > n - bytes)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's table of %u segments at %" PRIu64 " is not in its first %zu "
                       "bytes",
                       head->e_phnum, (uint64_t)head->e_phoff, n);
    return 0;
}

static bool overlap(const struct elf_segment *a, const struct elf_segment *b)
{
    return a->gpa < b->gpa + b->mem_bytes && b->gpa < a->gpa + a->mem_bytes;
}

static int add_segment(struct elf_image *image, const Elf64_Phdr *ph, uint64_t file_bytes,
                       struct cl_err *err)
{
    struct elf_segment s = {ph->p_offset, ph->p_filesz, ph->p_paddr, ph->p_memsz};
    if (image->n == ELF_SEGMENTS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel has more than %d segments",
                       ELF_SEGMENTS_MAX);
    if (s.file_bytes > file_bytes || s.offset > file_bytes - s.file_bytes)
        return cl_fail(err, CL_E_INVALID, 0, "segment %u of the kernel is not in its file",
                       image->n);
    if (s.file_bytes > s.mem_bytes || s.gpa > UINT64_MAX - s.mem_bytes)
        return cl_fail(err, CL_E_INVALID, 0, "segment %u of the kernel does not fit into memory",
                       image->n);
    for (unsigned i = 0; i < image->n; i++) {
        if (overlap(&image->segments[i], &s))
            return cl_fail(err, CL_E_INVALID, 0, "segments %u and %u of the kernel overlap", i,
                           image->n);
    }
    image->segments[image->n++] = s;
    return 0;
}

static bool holds_entry(const struct elf_image *image)
{
    for (unsigned i = 0; i < image->n; i++) {
        const struct elf_segment *s = &image->segments[i];
        if (image->entry >= s->gpa && image->entry - s->gpa < s->file_bytes)
            return true;
    }
    return false;
}

int elf_parse(const uint8_t *head, size_t n, uint64_t file_bytes, struct elf_image *ret_image,
              struct cl_err *err)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph;
    if (n < sizeof eh)
        return cl_fail(err, CL_E_INVALID, 0, "a kernel of %zu bytes", n);
    memcpy(&eh, head, sizeof eh);
    if (check_kind(&eh, err) < 0 || check_table(&eh, n, err) < 0)
        return -1;
    struct elf_image image = {.entry = eh.e_entry};
    for (unsigned i = 0; i < eh.e_phnum; i++) {
        memcpy(&ph, head + eh.e_phoff + i * sizeof ph, sizeof ph);
        if (ph.p_type == PT_LOAD && ph.p_memsz > 0 && add_segment(&image, &ph, file_bytes, err) < 0)
            return -1;
    }
    if (!holds_entry(&image))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's entry 0x%" PRIx64 " is in none of its segments", image.entry);
    *ret_image = image;
    return 0;
}
