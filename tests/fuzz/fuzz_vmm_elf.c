/* The head of a vmlinux and its notes: what is accepted lies in the file and in memory, without
 * overlaps, and an entry lies in a segment. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool holds(const struct elf_image *image, uint64_t entry)
{
    for (unsigned i = 0; i < image->n; i++) {
        const struct elf_segment *s = &image->segments[i];
        if (entry >= s->gpa && entry < s->gpa + s->file_bytes)
            return true;
    }
    return false;
}

static void check(const struct elf_image *image, uint64_t file_bytes)
{
    CL_ASSERT(image->n >= 1 && image->n <= ELF_SEGMENTS_MAX && image->n_notes <= ELF_NOTES_MAX);
    for (unsigned i = 0; i < image->n; i++) {
        const struct elf_segment *s = &image->segments[i];
        CL_ASSERT(s->file_bytes <= file_bytes && s->offset <= file_bytes - s->file_bytes);
        CL_ASSERT(s->file_bytes <= s->mem_bytes && s->gpa + s->mem_bytes > s->gpa);
        for (unsigned j = 0; j < i; j++) {
            const struct elf_segment *t = &image->segments[j];
            CL_ASSERT(s->gpa >= t->gpa + t->mem_bytes || t->gpa >= s->gpa + s->mem_bytes);
        }
    }
    for (unsigned i = 0; i < image->n_notes; i++) {
        const struct elf_notes *notes = &image->notes[i];
        CL_ASSERT(notes->bytes <= ELF_NOTE_BYTES_MAX && notes->bytes <= file_bytes);
        CL_ASSERT(notes->offset <= file_bytes - notes->bytes);
        CL_ASSERT(notes->align == 4 || notes->align == 8);
    }
    CL_ASSERT(image->entry == 0 || holds(image, image->entry));
}

/* The bytes are copied, so that one read behind them is seen. */
static void check_notes(const struct elf_image *image, const uint8_t *data, size_t n,
                        unsigned align)
{
    struct cl_err err = {0};
    uint32_t entry = UINT32_MAX;
    uint8_t *notes = malloc(n);
    CL_ASSERT(notes || n == 0);
    if (n > 0)
        memcpy(notes, data, n);
    int rc = elf_pvh_entry(image, notes, n, align, &entry, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    CL_ASSERT(rc < 0 || entry == 0 || holds(image, entry));
    free(notes);
}

/* What they say of Xen; an entry that is accepted lies in a segment, its tables where there is
 * room.
 */
static void check_xen(const struct elf_image *image, const uint8_t *data, size_t n, unsigned align)
{
    struct cl_err err = {0};
    struct elf_xen xen = {0};
    uint8_t *notes = malloc(n);
    CL_ASSERT(notes || n == 0);
    if (n > 0)
        memcpy(notes, data, n);
    int rc = elf_xen_notes(notes, n, align, &xen, &err);
    rc = rc < 0 ? rc : elf_xen_check(image, &xen, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    if (rc == 0) {
        uint64_t slot = xen.init_p2m >> 39 & 511;
        CL_ASSERT(holds(image, xen.entry - xen.virt_base));
        CL_ASSERT(xen.virt_base >> 31 == UINT64_C(0x1ffffffff) && xen.virt_base % (1 << 30) == 0);
        CL_ASSERT(slot != 511 && (slot < 256 || slot >= 272) && xen.init_p2m % (1ULL << 39) == 0);
    }
    free(notes);
}

/* The notes that the image names, where they are in the input; and its last bytes, as if they were
 * notes of an image in which every address is an entry. */
static void find_pvh(const struct elf_image *image, const uint8_t *data, size_t size)
{
    static const struct elf_image all = {
        .n = 1, .segments = {{.file_bytes = UINT64_MAX, .mem_bytes = UINT64_MAX}}};
    for (unsigned i = 0; i < image->n_notes; i++) {
        const struct elf_notes *at = &image->notes[i];
        if (at->offset <= size && at->bytes <= size - at->offset) {
            check_notes(image, data + at->offset, at->bytes, at->align);
            check_xen(image, data + at->offset, at->bytes, at->align);
        }
    }
    size_t n = CL_MIN(size, (size_t)64);
    check_notes(&all, data + size - n, n, size % 2 ? 4 : 8);
    n = CL_MIN(size, (size_t)128);
    check_xen(&all, data + size - n, n, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_image image = {0};
    struct cl_err err = {0};
    uint64_t file_bytes = (uint64_t)size << (size % 2 ? 20 : 0); /* the head of a larger file */
    int rc = elf_parse(data, CL_MIN(size, (size_t)ELF_HEAD_MAX), file_bytes, &image, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    if (rc == 0)
        check(&image, file_bytes);
    find_pvh(&image, data, size);
    return 0;
}
