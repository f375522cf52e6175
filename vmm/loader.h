/* vmm/loader.h - a kernel's file and an initrd into guest memory, however the kernel is entered.
 *
 * Owns:    nothing.
 * Borrows: the fds, during the call.
 * Thread:  before the first vCPU runs.
 * Files are copied, not mapped: guest RAM is one memory file that becomes the template, and a
 * mapping over it would be missing there.
 */
#ifndef CL_VMM_LOADER_H
#define CL_VMM_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/elf.h"
#include "vmm/mem.h"

#define LOADER_KERNEL_MIN \
    UINT64_C(0x100000) /* below 1 MiB are what we tell the kernel, and BIOS \
                        */

/* Where something is in guest memory. */
struct loader_extent {
    uint64_t at, bytes;
};

/* The head of a vmlinux. */
int loader_parse(int kernel_fd, struct elf_image *ret_image, struct cl_err *err) CL_MUST;
/* The notes of its i-th segment of notes. */
int loader_notes(int kernel_fd, const struct elf_image *image, unsigned i,
                 uint8_t ret_notes[static ELF_NOTE_BYTES_MAX], struct cl_err *err) CL_MUST;
/* Its segments, to low memory. */
int loader_segments(const struct guest_mem *mem, int kernel_fd, const struct elf_image *image,
                    struct cl_err *err) CL_MUST;
/* What the kernel never writes: the first segment that says so, of 0 bytes when none does. */
int loader_constants(int kernel_fd, struct loader_extent *ret_constants,
                     struct cl_err *err) CL_MUST;
/* To the end of low memory, where the kernel's own memory does not reach; of 0 bytes when fd is -1.
 */
int loader_initrd(const struct guest_mem *mem, int fd, struct loader_extent *ret_initrd,
                  struct cl_err *err) CL_MUST;
/* gm_write(), with an error that says where. */
int loader_put(const struct guest_mem *mem, uint64_t at, const void *src, size_t n,
               struct cl_err *err) CL_MUST;

#endif
