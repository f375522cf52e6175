/* vmm/elf.c - see vmm/elf.h. */
#include "vmm/elf.h"

#include <elf.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* --- the head, of either class ------------------------------------------------------------- */

/* What is used of the file's header. */
struct head {
    uint64_t entry; /* 0 = none in 64-bit mode */
    uint64_t table; /* of segments */
    unsigned n, each;
    bool is_64;
};

static int read_64(const uint8_t *bytes, size_t n, struct head *ret_head, struct cl_err *err)
{
    Elf64_Ehdr h;
    if (n < sizeof h)
        return cl_fail(err, CL_E_INVALID, 0, "a kernel of %zu bytes", n);
    memcpy(&h, bytes, sizeof h);
    if (h.e_machine != EM_X86_64 || h.e_type != ET_EXEC)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel is no executable for x86-64");
    *ret_head = (struct head){h.e_entry, h.e_phoff, h.e_phnum, h.e_phentsize, true};
    return 0;
}

static int read_32(const uint8_t *bytes, size_t n, struct head *ret_head, struct cl_err *err)
{
    Elf32_Ehdr h;
    if (n < sizeof h)
        return cl_fail(err, CL_E_INVALID, 0, "a kernel of %zu bytes", n);
    memcpy(&h, bytes, sizeof h);
    if (h.e_machine != EM_386 || h.e_type != ET_EXEC)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel of 32 bits is no executable for i386");
    *ret_head = (struct head){0, h.e_phoff, h.e_phnum, h.e_phentsize, false};
    return 0;
}

static int read_head(const uint8_t *bytes, size_t n, struct head *ret_head, struct cl_err *err)
{
    if (n < EI_NIDENT)
        return cl_fail(err, CL_E_INVALID, 0, "a kernel of %zu bytes", n);
    if (memcmp(bytes, ELFMAG, SELFMAG) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel is no ELF file; want an unpacked vmlinux");
    if (bytes[EI_DATA] != ELFDATA2LSB ||
        (bytes[EI_CLASS] != ELFCLASS64 && bytes[EI_CLASS] != ELFCLASS32))
        return cl_fail(err, CL_E_INVALID, 0, "the kernel is no executable for x86");
    return bytes[EI_CLASS] == ELFCLASS64 ? read_64(bytes, n, ret_head, err)
                                         : read_32(bytes, n, ret_head, err);
}

static int check_table(const struct head *head, size_t n, struct cl_err *err)
{
    size_t each = head->is_64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
    if (head->each != each)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel's segments take %u bytes each; want %zu",
                       head->each, each);
    size_t bytes = head->n * each;
    if (bytes > n || head->table > n - bytes)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's table of %u segments at %" PRIu64 " is not in its first %zu "
                       "bytes",
                       head->n, head->table, n);
    return 0;
}

/* Row i of the table, which lies in the bytes. */
static Elf64_Phdr row(const uint8_t *bytes, const struct head *head, unsigned i)
{
    const uint8_t *at = bytes + head->table + (size_t)i * head->each;
    Elf64_Phdr wide;
    Elf32_Phdr ph;
    if (head->is_64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&ph, at, sizeof ph);
    return (Elf64_Phdr){.p_type = ph.p_type,
                        .p_flags = ph.p_flags,
                        .p_offset = ph.p_offset,
                        .p_paddr = ph.p_paddr,
                        .p_filesz = ph.p_filesz,
                        .p_memsz = ph.p_memsz,
                        .p_align = ph.p_align};
}

/* --- segments ------------------------------------------------------------------------------ */

static bool overlap(const struct elf_segment *a, const struct elf_segment *b)
{
    return a->gpa < b->gpa + b->mem_bytes && b->gpa < a->gpa + a->mem_bytes;
}

static bool is_in_file(const Elf64_Phdr *ph, uint64_t file_bytes)
{
    return ph->p_filesz <= file_bytes && ph->p_offset <= file_bytes - ph->p_filesz;
}

static int add_segment(struct elf_image *image, const Elf64_Phdr *ph, uint64_t file_bytes,
                       struct cl_err *err)
{
    struct elf_segment s = {ph->p_offset, ph->p_filesz, ph->p_paddr, ph->p_memsz,
                            ph->p_flags & PF_W};
    if (image->n == ELF_SEGMENTS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel has more than %d segments",
                       ELF_SEGMENTS_MAX);
    if (!is_in_file(ph, file_bytes))
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

static int add_notes(struct elf_image *image, const Elf64_Phdr *ph, uint64_t file_bytes,
                     struct cl_err *err)
{
    if (image->n_notes == ELF_NOTES_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel has more than %d segments of notes",
                       ELF_NOTES_MAX);
    if (ph->p_filesz > ELF_NOTE_BYTES_MAX || !is_in_file(ph, file_bytes))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's %" PRIu64 " bytes of notes are not in its file, or more than "
                       "%d",
                       (uint64_t)ph->p_filesz, ELF_NOTE_BYTES_MAX);
    image->notes[image->n_notes++] =
        (struct elf_notes){ph->p_offset, ph->p_filesz, ph->p_align == 8 ? 8 : 4};
    return 0;
}

static int add(struct elf_image *image, const Elf64_Phdr *ph, uint64_t file_bytes,
               struct cl_err *err)
{
    if (ph->p_type == PT_LOAD && ph->p_memsz > 0)
        return add_segment(image, ph, file_bytes, err);
    if (ph->p_type == PT_NOTE && ph->p_filesz > 0)
        return add_notes(image, ph, file_bytes, err);
    return 0;
}

static bool holds(const struct elf_image *image, uint64_t entry)
{
    for (unsigned i = 0; i < image->n; i++) {
        const struct elf_segment *s = &image->segments[i];
        if (entry >= s->gpa && entry - s->gpa < s->file_bytes)
            return true;
    }
    return false;
}

int elf_parse(const uint8_t *head, size_t n, uint64_t file_bytes, struct elf_image *ret_image,
              struct cl_err *err)
{
    struct head h = {0};
    if (read_head(head, n, &h, err) < 0 || check_table(&h, n, err) < 0)
        return -1;
    struct elf_image image = {.entry = h.entry};
    for (unsigned i = 0; i < h.n; i++) {
        Elf64_Phdr ph = row(head, &h, i);
        if (add(&image, &ph, file_bytes, err) < 0)
            return -1;
    }
    if (image.n == 0)
        return cl_fail(err, CL_E_INVALID, 0, "the kernel has no segment");
    if (image.entry && !holds(&image, image.entry))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's entry 0x%" PRIx64 " is in none of its segments", image.entry);
    *ret_image = image;
    return 0;
}

/* --- notes --------------------------------------------------------------------------------- */

enum { /* Xen, public/elfnote.h: XEN_ELFNOTE_ */
       NOTE_ENTRY = 1,
       NOTE_HYPERCALL_PAGE = 2,
       NOTE_VIRT_BASE = 3,
       NOTE_PADDR_OFFSET = 4,
       NOTE_INIT_P2M = 15,
       NOTE_MOD_START_PFN = 16,
       NOTE_PHYS32_ENTRY = 18,
};

struct note {
    uint32_t type;
    const uint8_t *name, *desc; /* borrowed: from the notes */
    size_t name_n, desc_n;
};

static size_t aligned(size_t n, unsigned align)
{
    return (n + align - 1) & ~(size_t)(align - 1);
}

/* The note at `at`, where its head fits.  Returns where the next begins, 0 when it is cut. */
static size_t read_note(const uint8_t *notes, size_t n, size_t at, unsigned align,
                        struct note *ret_note)
{
    Elf64_Nhdr h; /* of three words in either class; no sum of them wraps in 64 bits */
    memcpy(&h, notes + at, sizeof h);
    size_t desc = at + aligned(sizeof h + h.n_namesz, align), end = desc + h.n_descsz;
    if (end > n)
        return 0;
    *ret_note =
        (struct note){h.n_type, notes + at + sizeof h, notes + desc, h.n_namesz, h.n_descsz};
    return aligned(end, align);
}

static bool is_xen(const struct note *note)
{
    return note->name_n == sizeof "Xen" && memcmp(note->name, "Xen", sizeof "Xen") == 0;
}

/* Linux writes an address of 8 bytes, others one of 4. */
static int read_number(const struct note *note, const char *what, uint64_t *ret_number,
                       struct cl_err *err)
{
    uint64_t number = 0;
    if (note->desc_n != sizeof(uint32_t) && note->desc_n != sizeof(uint64_t))
        return cl_fail(err, CL_E_INVALID, 0, "the kernel's %s has %zu bytes; want 4 or 8", what,
                       note->desc_n);
    memcpy(&number, note->desc, note->desc_n);
    *ret_number = number;
    return 0;
}

static int read_entry(const struct elf_image *image, const struct note *note, uint32_t *ret_entry,
                      struct cl_err *err)
{
    uint64_t entry;
    if (read_number(note, "PVH entry", &entry, err) < 0)
        return -1;
    if (entry == 0 || entry > UINT32_MAX || !holds(image, entry))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's PVH entry 0x%" PRIx64 " is in none of its segments", entry);
    *ret_entry = (uint32_t)entry;
    return 0;
}

int elf_pvh_entry(const struct elf_image *image, const uint8_t *notes, size_t n, unsigned align,
                  uint32_t *ret_entry, struct cl_err *err)
{
    struct note note;
    for (size_t at = 0; at < n && n - at >= sizeof(Elf64_Nhdr);) {
        at = read_note(notes, n, at, align, &note);
        if (at == 0)
            return cl_fail(err, CL_E_INVALID, 0, "a note of the kernel is cut");
        if (note.type == NOTE_PHYS32_ENTRY && is_xen(&note))
            return read_entry(image, &note, ret_entry, err);
    }
    *ret_entry = 0;
    return 0;
}

/* --- Xen PV -------------------------------------------------------------------------------- */

static int read_flag(const struct note *note, bool *ret_flag, struct cl_err *err)
{
    uint64_t number;
    if (read_number(note, "note of Xen's", &number, err) < 0)
        return -1;
    *ret_flag = number != 0;
    return 0;
}

/* An offset of physical addresses that is not 0 is of kernels before 2006. */
static int read_offset(const struct note *note, struct cl_err *err)
{
    uint64_t offset;
    if (read_number(note, "PADDR_OFFSET", &offset, err) < 0)
        return -1;
    return offset == 0 ? 0
                       : cl_fail(err, CL_E_INVALID, 0,
                                 "the kernel's PADDR_OFFSET is 0x%" PRIx64 "; want 0", offset);
}

static int read_xen(const struct note *note, struct elf_xen *xen, struct cl_err *err)
{
    switch (note->type) {
    case NOTE_ENTRY:
        return read_number(note, "Xen-PV entry", &xen->entry, err);
    case NOTE_HYPERCALL_PAGE:
        return read_number(note, "hypercall page", &xen->hypercall_page, err);
    case NOTE_VIRT_BASE:
        return read_number(note, "VIRT_BASE", &xen->virt_base, err);
    case NOTE_PADDR_OFFSET:
        return read_offset(note, err);
    case NOTE_INIT_P2M:
        return read_number(note, "INIT_P2M", &xen->init_p2m, err);
    case NOTE_MOD_START_PFN:
        return read_flag(note, &xen->mod_start_pfn, err);
    default:
        return 0;
    }
}

int elf_xen_notes(const uint8_t *notes, size_t n, unsigned align, struct elf_xen *xen,
                  struct cl_err *err)
{
    struct note note;
    for (size_t at = 0; at < n && n - at >= sizeof(Elf64_Nhdr);) {
        at = read_note(notes, n, at, align, &note);
        if (at == 0)
            return cl_fail(err, CL_E_INVALID, 0, "a note of the kernel is cut");
        if (is_xen(&note) && read_xen(&note, xen, err) < 0)
            return -1;
    }
    return 0;
}

/* The start of a slot of the top-level page table that is neither the kernel's nor Xen's. */
static bool is_p2m_place(uint64_t address)
{
    enum { SLOTS = 512, XEN_FIRST = 256, XEN_END = 272, KERNEL = 511 };
    uint64_t slot = address / ELF_XEN_P2M_ALIGN % SLOTS;
    bool is_canonical = address >> 47 == 0 || address >> 47 == 0x1ffff;
    return address != 0 && address % ELF_XEN_P2M_ALIGN == 0 && is_canonical && slot != KERNEL &&
           (slot < XEN_FIRST || slot >= XEN_END);
}

int elf_xen_check(const struct elf_image *image, const struct elf_xen *xen, struct cl_err *err)
{
    if (xen->entry == 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel has no entry by Xen PV; use one with CONFIG_XEN_PV=y, as "
                       "Debian's are");
    if (xen->hypercall_page != 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel wants a hypercall page, which is not made; use one without, "
                       "such as Debian's 6.1.192 and later");
    if (!xen->mod_start_pfn)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel takes no initrd by its frame (MOD_START_PFN); use Linux 3.12 or "
                       "later");
    if (xen->virt_base < ELF_XEN_BASE_MIN || xen->virt_base % ELF_XEN_BASE_ALIGN != 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's VIRT_BASE 0x%" PRIx64
                       " is no multiple of 1 GiB in the last 2 GiB",
                       xen->virt_base);
    if (!is_p2m_place(xen->init_p2m))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's INIT_P2M 0x%" PRIx64
                       " is no multiple of 512 GiB that is free for it",
                       xen->init_p2m);
    if (xen->entry < xen->virt_base || !holds(image, xen->entry - xen->virt_base))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the kernel's Xen-PV entry 0x%" PRIx64 " is in none of its segments",
                       xen->entry);
    return 0;
}
