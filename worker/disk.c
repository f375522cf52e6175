/* worker/disk.c - see worker/disk.h. */
#include "worker/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/own.h"

enum {
    STAT_BLOCK = 512, /* st_blocks, stat(2) */
    PAGE = 4096,
    PIECE = 64 << 10,
};

/* n bytes at `at` of the disk, without its pages of zeros. */
static int put_pages(int to, const uint8_t *bytes, size_t n, off_t at)
{
    static const uint8_t zeros[PAGE];
    for (size_t i = 0; i < n; i += PAGE) {
        size_t part = CL_MIN(n - i, (size_t)PAGE);
        if (memcmp(bytes + i, zeros, part) == 0)
            continue;
        ssize_t put = pwrite(to, bytes + i, part, at + (off_t)i);
        if (put != (ssize_t)part) {
            errno = put < 0 ? errno : ENOSPC;
            return -1;
        }
    }
    return 0;
}

/* An image that was copied, or lies on EROFS, has zeros where it had holes. */
static int copy_range(int from, int to, off_t at, off_t end, struct cl_err *err)
{
    uint8_t bytes[PIECE];
    while (at < end) {
        ssize_t n = pread(from, bytes, (size_t)CL_MIN((off_t)sizeof bytes, end - at), at);
        if (n <= 0)
            return cl_fail(err, CL_E_SYS, n < 0 ? errno : EIO, "read the scratch disk");
        if (put_pages(to, bytes, (size_t)n, at) < 0)
            return cl_fail(err, CL_E_SYS, errno, "copy the scratch disk");
        at += n;
    }
    return 0;
}

/* Only what is there: holes stay holes. */
static int copy_data(int from, int to, struct cl_err *err)
{
    for (off_t end = 0;;) {
        off_t at = lseek(from, end, SEEK_DATA);
        if (at < 0)
            return errno == ENXIO ? 0 : cl_fail(err, CL_E_SYS, errno, "read the scratch disk");
        end = lseek(from, at, SEEK_HOLE);
        if (end < 0 || copy_range(from, to, at, end, err) < 0)
            return end < 0 ? cl_fail(err, CL_E_SYS, errno, "read the scratch disk") : -1;
    }
}

int disk_make(const char *dir, int source, uint64_t bytes, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_file_unnamed(dir, &fd, err) < 0)
        return cl_wrap(err, "scratch disk");
    if (ftruncate(fd, (off_t)bytes) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make a scratch disk of %llu bytes",
                       (unsigned long long)bytes);
    if (copy_data(source, fd, err) < 0)
        return -1;
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

uint64_t disk_taken(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * STAT_BLOCK : 0;
}
