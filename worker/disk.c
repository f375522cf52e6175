/* worker/disk.c - see worker/disk.h. */
#include "worker/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    STAT_BLOCK = 512, /* st_blocks, stat(2) */
    PAGE = 4096,
    PIECE = 64 << 10,
    COPY_TURN = 2 << 20, /* then the loop gets its turn: a millisecond or two */
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

/* The next bytes that are there, `most` of them, from *at on: holes stay holes.  1, or 0 behind the
 * last. */
static int copy_some(int from, int to, off_t *at, off_t most, struct cl_err *err)
{
    off_t data = lseek(from, *at, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO ? 0 : cl_fail(err, CL_E_SYS, errno, "read the scratch disk");
    off_t end = lseek(from, data, SEEK_HOLE);
    if (end < 0)
        return cl_fail(err, CL_E_SYS, errno, "read the scratch disk");
    end = CL_MIN(end, data + most);
    if (copy_range(from, to, data, end, err) < 0)
        return -1;
    *at = end;
    return 1;
}

static int copy_data(int from, int to, struct cl_err *err)
{
    int rc;
    off_t at = 0;
    while ((rc = copy_some(from, to, &at, INT64_MAX / 2, err)) > 0)
        continue;
    return rc;
}

int disk_make(const char *dir, int source, uint64_t bytes, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_file_nameable(dir, &fd, err) < 0)
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

/* --- copies -------------------------------------------------------------------------------------
 */

struct disk_copy {
    struct disk_copy_spec spec; /* with a source of its own */
    int fd;                     /* owned */
    off_t at;
    struct cl_timer turn;
};

static void on_turn(void *arg)
{
    struct disk_copy *c = arg;
    struct cl_err err = {0};
    int rc = copy_some(c->spec.source, c->fd, &c->at, COPY_TURN, &err);
    if (rc > 0) {
        cl_timer_start(&c->turn, 0);
        return;
    }
    c->spec.done(c->spec.arg, rc < 0 ? -1 : cl_steal_fd(&c->fd),
                 rc < 0 ? &err : NULL); /* may free c */
}

/* As long as the source; with its blocks, where the file system shares them. */
static int begin_copy(struct disk_copy *c, struct cl_err *err)
{
    struct stat st;
    if (cl_file_nameable(c->spec.dir, &c->fd, err) < 0)
        return cl_wrap(err, "scratch disk");
    if (fstat(c->spec.source, &st) < 0 || ftruncate(c->fd, st.st_size) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make a scratch disk like another");
    if (ioctl(c->fd, FICLONE, c->spec.source) == 0)
        c->at = st.st_size;
    return 0;
}

int disk_copy_start(struct cl_loop *loop, const struct disk_copy_spec *spec,
                    struct disk_copy **ret_copy, struct cl_err *err)
{
    struct disk_copy *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "scratch disk");
    *c = (struct disk_copy){.spec = *spec, .fd = -1};
    c->spec.source = fcntl(spec->source, F_DUPFD_CLOEXEC, 3);
    int rc = c->spec.source < 0 ? cl_fail(err, CL_E_SYS, errno, "scratch disk") : 0;
    if (rc == 0)
        rc = begin_copy(c, err);
    if (rc == 0)
        rc = cl_timer_init(&c->turn, loop, on_turn, c, err);
    if (rc < 0) {
        disk_copy_free(c);
        return -1;
    }
    cl_timer_start(&c->turn, 0);
    *ret_copy = c;
    return 0;
}

void disk_copy_free(struct disk_copy *copy)
{
    if (!copy)
        return;
    cl_timer_fini(&copy->turn);
    cl_closep(&copy->spec.source);
    cl_closep(&copy->fd);
    cl_free(copy);
}
