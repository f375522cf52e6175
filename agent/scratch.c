/* agent/scratch.c - see agent/scratch.h.  EXT4_IOC_RESIZE_FS: Linux, fs/ext4/ext4.h.  FITRIM:
 * Linux, fs/ext4/mballoc.c, which remembers of each whole group whether it has changed. */
#include "agent/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"

enum { SECTOR = 512, STEP_US = 500 };
#define GROUP_BYTES UINT64_C(0x8000000) /* of blocks of 4 KiB */
#define SCRAP_BYTES UINT64_C(0x40000)

#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

static const char serial[] = "scratch";

/* The first bytes of a small file; empty when it cannot be read. */
static void read_small(const char *path, char *out, size_t size)
{
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

bool scratch_find(char device[static SCRATCH_DEVICE])
{
    DIR *dir = opendir("/sys/block");
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        char path[300], text[64];
        if (strncmp(e->d_name, "vd", 2) != 0)
            continue;
        (void)snprintf(path, sizeof path, "/sys/block/%s/serial", e->d_name);
        read_small(path, text, sizeof text);
        found = strcmp(text, serial) == 0 &&
                snprintf(device, SCRATCH_DEVICE, "/dev/%s", e->d_name) < SCRATCH_DEVICE;
    }
    if (dir)
        (void)closedir(dir);
    return found;
}

static uint64_t disk_bytes(dev_t dev)
{
    char path[64], text[32];
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/size", major(dev), minor(dev));
    read_small(path, text, sizeof text);
    return strtoull(text, NULL, 10) * SECTOR;
}

int scratch_grow(int scratch_fd, uint64_t bytes, struct cl_err *err)
{
    struct stat st;
    struct statfs fs;
    if (fstat(scratch_fd, &st) < 0 || fstatfs(scratch_fd, &fs) < 0)
        return cl_fail(err, CL_E_SYS, errno, "look at the scratch disk");
    uint64_t deadline_ns = cl_now_ns() + SCRATCH_WAIT_MS * CL_NS_PER_MS, have;
    while ((have = disk_bytes(st.st_dev)) < bytes) {
        if (cl_now_ns() > deadline_ns)
            return cl_fail(err, CL_E_SYS, 0, "the scratch disk has %" PRIu64 " bytes, not %" PRIu64,
                           have, bytes);
        (void)usleep(STEP_US);
    }
    uint64_t blocks = have / (uint64_t)fs.f_bsize;
    if (ioctl(scratch_fd, EXT4_IOC_RESIZE_FS, &blocks) < 0)
        return cl_fail(err, CL_E_SYS, errno, "grow the scratch file system to %" PRIu64 " bytes",
                       have);
    return 0;
}

/* What the disk has beyond the limit is taken by a file that user code cannot see.  Its blocks are
 * allocated and never written: they cost the host nothing. */
static int hold_surplus(int scratch_fd, uint64_t bytes, struct cl_err *err)
{
    struct statfs fs;
    struct stat st;
    CL_AUTO(cl_closep)
    int fd = openat(scratch_fd, "surplus", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return cl_fail(err, CL_E_SYS, errno, "look at the scratch disk");
    uint64_t held = (uint64_t)st.st_size;
    uint64_t room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize + held;
    uint64_t want = room > bytes ? room - bytes : 0;
    int rc = want > held ? fallocate(fd, 0, (off_t)held, (off_t)(want - held))
                         : ftruncate(fd, (off_t)want);
    return rc == 0 ? 0
                   : cl_fail(err, CL_E_SYS, errno, "bound the scratch disk to %" PRIu64 " bytes",
                             bytes);
}

static int limit_tmpfs(int scratch_fd, uint64_t bytes, struct cl_err *err)
{
    char path[64], size[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", scratch_fd);
    (void)snprintf(size, sizeof size, "size=%" PRIu64, bytes);
    if (mount(NULL, path, NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, size) < 0)
        return cl_fail(err, CL_E_SYS, errno, "bound the writable layer to %" PRIu64 " bytes",
                       bytes);
    return 0;
}

int scratch_limit(int scratch_fd, uint64_t bytes, struct cl_err *err)
{
    struct stat st;
    struct statfs fs;
    if (bytes == 0)
        return 0;
    if (fstat(scratch_fd, &st) < 0 || fstatfs(scratch_fd, &fs) < 0)
        return cl_fail(err, CL_E_SYS, errno, "look at the writable layer");
    if (fs.f_type != EXT4_SUPER_MAGIC)
        return limit_tmpfs(scratch_fd, bytes, err);
    bool grow = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize < bytes / 16 * 15; /* its own tables */
    if (grow && scratch_grow(scratch_fd, bytes, err) < 0)
        return -1;
    return hold_surplus(scratch_fd, bytes, err);
}

bool scratch_trim(int scratch_fd, uint64_t *at)
{
    struct fstrim_range range = {.start = *at, .len = GROUP_BYTES, .minlen = SCRAP_BYTES};
    bool there_was = ioctl(scratch_fd, FITRIM, &range) == 0; /* EINVAL behind its end; a tmpfs */
    *at = there_was ? *at + GROUP_BYTES : 0;
    return there_was;
}
