/* cli/child_log.c - see cli/child_log.h. */
#include "cli/child_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "cli/paths.h"

enum { MODE = 0640, TAIL = 1024, COPY_AT_ONCE = 1 << 20 };

int child_log_open(const char *path, int *ret_fd, struct cl_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, MODE);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    *ret_fd = fd;
    return 0;
}

/* From *at to `end`, or to what is the end by then. */
static int copy(int from, int to, off_t *at, off_t end)
{
    while (*at < end) {
        ssize_t n = sendfile(to, from, at, (size_t)CL_MIN(end - *at, (off_t)COPY_AT_ONCE));
        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            return 0;
    }
    return 0;
}

/* The blocks before `end`, at least one byte less than there is: the kernel cuts no more. */
static off_t whole_blocks(off_t size, off_t block)
{
    return (size - 1) / block * block;
}

/* `old` is open for what was there; it has all that is cut off. */
static int cut(int fd, int old, const struct stat *st)
{
    off_t at = 0, end = whole_blocks(st->st_size, st->st_blksize);
    if (copy(fd, old, &at, end) < 0)
        return -1;
    if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, end) == 0)
        return 0;
    return copy(fd, old, &at, INT64_MAX) < 0 ? -1 : ftruncate(fd, 0);
}

int child_log_trim(const char *path, uint64_t max, struct cl_err *err)
{
    char name[PATH_TEXT + 4];
    struct stat st;
    CL_AUTO(cl_closep) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    if ((uint64_t)st.st_size <= max)
        return 0;
    (void)snprintf(name, sizeof name, "%s.1", path);
    (void)unlink(name); /* its room may be what there is */
    CL_AUTO(cl_closep) int old = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MODE);
    if (old < 0 || cut(fd, old, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "move the older part of '%s' to '%s'", path, name);
    return 0;
}

void child_log_last_line(const char *path, char *out, size_t size)
{
    char tail[TAIL] = "";
    out[0] = '\0';
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    off_t at = CL_MAX(st.st_size - TAIL + 1, 0);
    ssize_t n = pread(fd, tail, sizeof tail - 1, at);
    while (n > 0 && tail[n - 1] == '\n')
        tail[--n] = '\0';
    const char *line = strrchr(tail, '\n');
    (void)snprintf(out, size, "%s", line ? line + 1 : tail);
}
