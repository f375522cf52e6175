/* vmm/elf.h - where the parts of a vmlinux belong.
 *
 * Pure: reads the head of the file from memory; hostile bytes are fine.
 * Reference: System V ABI, chapter 4-5 (gABI 4.1), ELF-64 Object File Format 1.5.
 */
#ifndef CL_VMM_ELF_H
#define CL_VMM_ELF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    ELF_HEAD_MAX = 4096,   /* the file's head and its table of segments lie in here */
    ELF_SEGMENTS_MAX = 16, /* Debian's kernel has 4; without it a file could keep us busy */
};

/* file[offset, offset + file_bytes) goes to guest-physical `gpa`; the rest up to mem_bytes is 0. */
struct elf_segment {
    uint64_t offset, file_bytes;
    uint64_t gpa, mem_bytes;
};

struct elf_image {
    uint64_t entry; /* inside a segment */
    unsigned n;
    struct elf_segment segments[ELF_SEGMENTS_MAX]; /* none is empty, none overlap, no sum wraps */
};

/* The first n bytes of a file of file_bytes.  INVALID names what is wrong. */
int elf_parse(const uint8_t *head, size_t n, uint64_t file_bytes, struct elf_image *ret_image,
              struct cl_err *err) CL_MUST;

#endif
