/* vmm/elf.h - where the parts of a vmlinux belong, and where it can be entered.
 *
 * Pure: reads the head of the file and its notes from memory; hostile bytes are fine.
 * Reference: System V ABI, chapter 4-5 (gABI 4.1), ELF-64 Object File Format 1.5; Xen,
 * public/elfnote.h.
 */
#ifndef CL_VMM_ELF_H
#define CL_VMM_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    ELF_HEAD_MAX = 4096,       /* the file's head and its table of segments lie in here */
    ELF_SEGMENTS_MAX = 16,     /* Debian's kernel has 4; without it a file could keep us busy */
    ELF_NOTES_MAX = 4,         /* segments of notes; Debian's kernel has 1 */
    ELF_NOTE_BYTES_MAX = 4096, /* in one of them; Debian's kernel has 512 */
};

/* file[offset, offset + file_bytes) goes to guest-physical `gpa`; the rest up to mem_bytes is 0. */
struct elf_segment {
    uint64_t offset, file_bytes;
    uint64_t gpa, mem_bytes;
    bool is_writable;
};

/* file[offset, offset + bytes) is notes, in the file and at most ELF_NOTE_BYTES_MAX. */
struct elf_notes {
    uint64_t offset, bytes;
    unsigned align; /* of each note and of its parts: 4 or 8 */
};

struct elf_image {
    uint64_t entry; /* in 64-bit mode, inside a segment; 0 = it has none */
    unsigned n;
    struct elf_segment segments[ELF_SEGMENTS_MAX]; /* none is empty, none overlap, no sum wraps */
    unsigned n_notes;
    struct elf_notes notes[ELF_NOTES_MAX];
};

/* The first n bytes of a file of file_bytes: an executable for x86-64, or one for i386, which has
 * no 64-bit entry.  INVALID names what is wrong. */
int elf_parse(const uint8_t *head, size_t n, uint64_t file_bytes, struct elf_image *ret_image,
              struct cl_err *err) CL_MUST;
/* The n bytes of one of the image's notes: where PVH enters it, inside a segment; 0 = they do not
 * say. */
int elf_pvh_entry(const struct elf_image *image, const uint8_t *notes, size_t n, unsigned align,
                  uint32_t *ret_entry, struct cl_err *err) CL_MUST;

#define ELF_XEN_BASE_MIN UINT64_C(0xffffffff80000000)
#define ELF_XEN_BASE_ALIGN (UINT64_C(1) << 30)
#define ELF_XEN_P2M_ALIGN (UINT64_C(1) << 39) /* so it shares no table with anything */

/* How a kernel is entered by Xen PV, as its notes say. */
struct elf_xen {
    uint64_t entry;          /* linear address; 0 = not at all */
    uint64_t virt_base;      /* linear address of guest-physical 0 */
    uint64_t init_p2m;       /* linear address of the table of its frames; 0 = after the kernel */
    uint64_t hypercall_page; /* linear address of a page that it wants filled; 0 = none */
    bool mod_start_pfn;      /* an initrd may lie outside its first mapping */
};

/* The same for Xen PV: what these notes say goes to *xen, which is zeroed before the first. */
int elf_xen_notes(const uint8_t *notes, size_t n, unsigned align, struct elf_xen *xen,
                  struct cl_err *err) CL_MUST;
/* All notes are read: can it be entered, inside a segment?  INVALID says what would help. */
int elf_xen_check(const struct elf_image *image, const struct elf_xen *xen,
                  struct cl_err *err) CL_MUST;

#endif
