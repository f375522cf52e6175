/* The head of a vmlinux: what is accepted lies in the file and in memory, without overlaps. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct elf_image *image, uint64_t file_bytes)
{
    bool entry = false;
    CL_ASSERT(image->n >= 1 && image->n <= ELF_SEGMENTS_MAX);
    for (unsigned i = 0; i < image->n; i++) {
        const struct elf_segment *s = &image->segments[i];
        CL_ASSERT(s->file_bytes <= file_bytes && s->offset <= file_bytes - s->file_bytes);
        CL_ASSERT(s->file_bytes <= s->mem_bytes && s->gpa + s->mem_bytes > s->gpa);
        entry |= image->entry >= s->gpa && image->entry < s->gpa + s->file_bytes;
        for (unsigned j = 0; j < i; j++) {
            const struct elf_segment *t = &image->segments[j];
            CL_ASSERT(s->gpa >= t->gpa + t->mem_bytes || t->gpa >= s->gpa + s->mem_bytes);
        }
    }
    CL_ASSERT(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_image image;
    struct cl_err err = {0};
    uint64_t file_bytes = (uint64_t)size << (size % 2 ? 20 : 0); /* the head of a larger file */
    int rc = elf_parse(data, CL_MIN(size, (size_t)ELF_HEAD_MAX), file_bytes, &image, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    if (rc == 0)
        check(&image, file_bytes);
    return 0;
}
