/* base/fs.c - see base/fs.h. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/own.h"

enum { READ_STEP = 16384 };

int cl_file_read(int dir_fd, const char *path, struct cl_buf *buf, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cl_fail(err, errno == ENOENT ? CL_E_NOTFOUND : CL_E_SYS, errno, "open '%s'", path);
    for (;;) {
        uint8_t step[READ_STEP];
        ssize_t n = read(fd, step, sizeof step);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cl_fail(err, CL_E_SYS, errno, "read '%s'", path);
        if (n == 0)
            return 0;
        if (cl_buf_append(buf, step, (size_t)n, err) < 0)
            return cl_wrap(err, "read '%s'", path);
    }
}

int cl_write_all(int fd, const void *data, size_t n, struct cl_err *err)
{
    const uint8_t *p = data;
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return cl_fail(err, CL_E_SYS, errno, "write");
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

int cl_read_all(int fd, void *data, size_t n, struct cl_err *err)
{
    uint8_t *p = data;
    while (n > 0) {
        ssize_t done = read(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return cl_fail(err, CL_E_SYS, errno, "read");
        if (done == 0)
            return cl_fail(err, CL_E_DATALOSS, 0, "end of file, %zu bytes missing", n);
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

/* fsync the folder that holds path, so that a rename in it survives power loss. */
static int sync_parent(const char *path, struct cl_err *err)
{
    CL_AUTO(cl_freep) char *copy = cl_strdup(path);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "path '%s'", path);
    CL_AUTO(cl_closep) int dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsync(dir) < 0)
        return cl_fail(err, CL_E_SYS, errno, "sync the folder of '%s'", path);
    return 0;
}

int cl_file_write(const char *path, const void *data, size_t n, mode_t mode, struct cl_err *err)
{
    CL_AUTO(cl_freep) char *tmp = cl_asprintf("%s.tmp.%d", path, (int)getpid());
    if (!tmp)
        return cl_fail(err, CL_E_NOMEM, 0, "path '%s'", path);
    CL_AUTO(cl_closep)
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "create '%s'", tmp);
    int rc = cl_write_all(fd, data, n, err);
    if (rc == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(tmp, path) < 0))
        rc = cl_fail(err, CL_E_SYS, errno, "write '%s'", path);
    if (rc < 0) {
        (void)unlink(tmp);
        return cl_wrap(err, "'%s'", path);
    }
    return sync_parent(path, err);
}

static int open_unnamed(const char *dir, int flags, int *ret_fd, struct cl_err *err)
{
    char path[PATH_MAX];
    CL_AUTO(cl_closep) int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd < 0 && errno == EOPNOTSUPP && /* overlayfs of older kernels */
        snprintf(path, sizeof path, "%s/.unnamed.XXXXXX", dir) < (int)sizeof path) {
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0 && unlink(path) < 0)
            return cl_fail(err, CL_E_SYS, errno, "unlink '%s'", path);
    }
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "make a file in '%s'", dir);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

int cl_file_unnamed(const char *dir, int *ret_fd, struct cl_err *err)
{
    return open_unnamed(dir, O_EXCL, ret_fd, err);
}

int cl_file_nameable(const char *dir, int *ret_fd, struct cl_err *err)
{
    return open_unnamed(dir, 0, ret_fd, err);
}

int cl_file_name(int fd, const char *path, struct cl_err *err)
{
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
        return cl_fail(err, CL_E_SYS, errno, "name a file '%s'%s", path,
                       errno == ENOENT ? ", which overlayfs of some kernels cannot" : "");
    return 0;
}

void cl_file_unname(int fd, const char *path)
{
    struct stat ours, there;
    if (fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
        ours.st_ino == there.st_ino)
        (void)unlink(path);
}

int cl_newest_first(const struct timespec *a, const struct timespec *b)
{
    if (a->tv_sec != b->tv_sec)
        return a->tv_sec < b->tv_sec ? 1 : -1;
    return (a->tv_nsec < b->tv_nsec) - (a->tv_nsec > b->tv_nsec);
}

int cl_mkdir_p(const char *path, mode_t mode, struct cl_err *err)
{
    char at[PATH_MAX];
    int n = snprintf(at, sizeof at, "%s", path);
    if (n < 0 || (size_t)n >= sizeof at)
        return cl_fail(err, CL_E_INVALID, ENAMETOOLONG, "folder '%.64s...'", path);
    for (char *slash = strchr(at + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(at, mode) < 0 && errno != EEXIST)
            return cl_fail(err, CL_E_SYS, errno, "create folder '%s'", at);
        if (!slash)
            return 0;
        *slash = '/';
    }
}

int cl_remove_tree(const char *path, struct cl_err *err)
{
    char *roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
    if (!fts)
        return cl_fail(err, CL_E_SYS, errno, "remove '%s'", path);
    int rc = 0;
    for (FTSENT *e; rc == 0 && (e = fts_read(fts));) {
        bool is_dir = e->fts_info == FTS_DP || e->fts_info == FTS_DNR;
        if (e->fts_info == FTS_D || (e->fts_info == FTS_NS && e->fts_errno == ENOENT))
            continue;
        if ((is_dir ? rmdir(e->fts_accpath) : unlink(e->fts_accpath)) < 0 && errno != ENOENT)
            rc = cl_fail(err, CL_E_SYS, errno, "remove '%s'", e->fts_path);
    }
    (void)fts_close(fts);
    return rc;
}

int cl_lock_folder(const char *path, bool exclusive, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cl_fail(err, errno == ENOENT || errno == ENOTDIR ? CL_E_NOTFOUND : CL_E_SYS, errno,
                       "open folder '%s'", path);
    if (flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return cl_fail(err, CL_E_UNAVAILABLE, 0, "'%s' is in use", path);
        if (exclusive)
            return cl_fail(err, CL_E_SYS, errno, "lock '%s'", path);
    }
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

int cl_disk_free(const char *path, uint64_t *ret_bytes, struct cl_err *err)
{
    struct statvfs st;
    if (statvfs(path, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "statvfs '%s'", path);
    *ret_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

static int unix_address(const char *path, struct sockaddr_un *addr, struct cl_err *err)
{
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr->sun_path)
        return cl_fail(err, CL_E_INVALID, 0,
                       "socket path '%s' is longer than %zu bytes; choose a shorter run folder "
                       "(--run-dir or CLOCHE_RUN_DIR)",
                       path, sizeof addr->sun_path - 1);
    memcpy(addr->sun_path, path, strlen(path) + 1);
    return 0;
}

int cl_unix_connect(const char *path, int *ret_fd, struct cl_err *err)
{
    struct sockaddr_un addr;
    if (unix_address(path, &addr, err) < 0)
        return -1;
    CL_AUTO(cl_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "socket");
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        return cl_fail(err, CL_E_UNAVAILABLE, errno, "connect to '%s'", path);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

void cl_fd_cloexec(int fd)
{
    if (fd >= 0)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

enum { LISTEN_BACKLOG = 512 };

/* Is there still a process behind the name?  A socket of another type is refused for that, whether
 * it listens by now, or has no room for a connection, or not; one that nobody has open any more is
 * refused as unconnected (net/unix/af_unix.c, unix_find_bsd). */
static bool is_bound(const struct sockaddr_un *addr)
{
    CL_AUTO(cl_closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 &&
           (connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 || errno == EPROTOTYPE);
}

int cl_unix_bind(const char *path, mode_t mode, int *ret_fd, struct cl_err *err)
{
    struct sockaddr_un addr;
    if (unix_address(path, &addr, err) < 0)
        return -1;
    if (is_bound(&addr))
        return cl_fail(err, CL_E_EXISTS, 0, "another process serves '%s', or is about to", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return cl_fail(err, CL_E_SYS, errno, "remove stale socket '%s'", path);
    CL_AUTO(cl_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "socket");
    mode_t old = umask(0777 & ~mode);
    int rc = bind(fd, (struct sockaddr *)&addr, sizeof addr);
    int saved = errno;
    (void)umask(old);
    if (rc < 0)
        return cl_fail(err, CL_E_SYS, saved, "listen on '%s'", path);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

int cl_unix_listen(const char *path, mode_t mode, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_unix_bind(path, mode, &fd, err) < 0)
        return -1;
    if (listen(fd, LISTEN_BACKLOG) < 0)
        return cl_fail(err, CL_E_SYS, errno, "listen on '%s'", path);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}
