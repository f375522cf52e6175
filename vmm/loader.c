/* vmm/loader.c - see vmm/loader.h. */
#include "vmm/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

int loader_put(const struct guest_mem *mem, uint64_t at, const void *src, size_t n,
               struct cl_err *err)
{
    if (gm_write(mem, (struct gpa){at}, src, n) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "guest memory has no room for %zu bytes at 0x%" PRIx64,
                       n, at);
    return 0;
}

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

/* file[offset, offset + n) */
static int load(int fd, uint64_t offset, uint8_t *to, uint64_t n, struct cl_err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, to + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return cl_fail(err, CL_E_SYS, got < 0 ? errno : 0, "%s at byte %" PRIu64,
                           got < 0 ? "read" : "the file ends", offset + done);
        done += (size_t)got;
    }
    return 0;
}

/* The same to guest memory. */
static int load_to(const struct guest_mem *mem, int fd, uint64_t offset, uint64_t at, uint64_t n,
                   struct cl_err *err)
{
    struct iovec to;
    if (gm_iov(mem, (struct gpa){at}, n, &to) < 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "guest memory has no room for %" PRIu64 " bytes at 0x%" PRIx64, n, at);
    return load(fd, offset, to.iov_base, n, err);
}

int loader_parse(int kernel_fd, struct elf_image *ret_image, struct cl_err *err)
{
    uint8_t head[ELF_HEAD_MAX];
    uint64_t bytes;
    if (size_of(kernel_fd, "kernel", &bytes, err) < 0)
        return -1;
    size_t n = CL_MIN(bytes, sizeof head);
    if (load(kernel_fd, 0, head, n, err) < 0)
        return cl_wrap(err, "read the kernel");
    return elf_parse(head, n, bytes, ret_image, err);
}

int loader_notes(int kernel_fd, const struct elf_image *image, unsigned i,
                 uint8_t ret_notes[static ELF_NOTE_BYTES_MAX], struct cl_err *err)
{
    const struct elf_notes *at = &image->notes[i];
    if (load(kernel_fd, at->offset, ret_notes, at->bytes, err) < 0)
        return cl_wrap(err, "read the kernel's notes");
    return 0;
}

int loader_segments(const struct guest_mem *mem, int kernel_fd, const struct elf_image *image,
                    struct cl_err *err)
{
    for (unsigned i = 0; i < image->n; i++) {
        const struct elf_segment *s = &image->segments[i];
        if (s->gpa < LOADER_KERNEL_MIN || s->gpa + s->mem_bytes > mem->low)
            return cl_fail(err, CL_E_INVALID, 0,
                           "segment %u of the kernel ends at 0x%" PRIx64
                           "; guest memory at 0x%" PRIx64,
                           i, s->gpa + s->mem_bytes, mem->low);
        if (s->file_bytes > 0 && load_to(mem, kernel_fd, s->offset, s->gpa, s->file_bytes, err) < 0)
            return cl_wrap(err, "load the kernel");
    }
    return 0;
}

int loader_constants(int kernel_fd, struct loader_extent *ret_constants, struct cl_err *err)
{
    struct elf_image image;
    if (loader_parse(kernel_fd, &image, err) < 0)
        return -1;
    *ret_constants = (struct loader_extent){0};
    for (unsigned i = 0; i < image.n && ret_constants->bytes == 0; i++) {
        const struct elf_segment *s = &image.segments[i];
        if (!s->is_writable)
            *ret_constants = (struct loader_extent){s->gpa, s->mem_bytes};
    }
    return 0;
}

int loader_initrd(const struct guest_mem *mem, int fd, struct loader_extent *ret_initrd,
                  struct cl_err *err)
{
    uint64_t bytes;
    if (fd < 0) {
        *ret_initrd = (struct loader_extent){0};
        return 0;
    }
    if (size_of(fd, "initrd", &bytes, err) < 0)
        return -1;
    if (bytes > mem->low / 2)
        return cl_fail(err, CL_E_INVALID, 0,
                       "an initrd of %" PRIu64 " bytes in %" PRIu64 " bytes of memory", bytes,
                       mem->low);
    struct loader_extent initrd = {(mem->low - bytes) & ~(uint64_t)(PAGE - 1), bytes};
    if (load_to(mem, fd, 0, initrd.at, bytes, err) < 0)
        return cl_wrap(err, "load the initrd");
    *ret_initrd = initrd;
    return 0;
}
