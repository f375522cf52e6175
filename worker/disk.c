/* worker/disk.c - see worker/disk.h. */
#include "worker/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/own.h"

enum { STAT_BLOCK = 512 }; /* st_blocks, stat(2) */

/* Not copy_file_range(): it does not cross file systems. */
static int copy_range(int from, int to, off_t at, off_t end, struct cl_err *err)
{
    if (lseek(to, at, SEEK_SET) < 0)
        return cl_fail(err, CL_E_SYS, errno, "copy the scratch disk");
    while (at < end) {
        ssize_t n = sendfile(to, from, &at, (size_t)(end - at));
        if (n <= 0)
            return cl_fail(err, CL_E_SYS, n < 0 ? errno : EIO, "copy the scratch disk");
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
