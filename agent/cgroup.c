/* agent/cgroup.c - see agent/cgroup.h.  Interface: Documentation/admin-guide/cgroup-v2.rst. */
#include "agent/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/stats.h"
#include "base/clock.h"
#include "base/own.h"

enum { FILE_MAX = 4096 }; /* memory.stat */

static int write_file(int dir, const char *name, const char *text, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    size_t n = strlen(text);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        return cl_fail(err, CL_E_SYS, errno, "write '%s' to cgroup file %s", text, name);
    return 0;
}

static bool read_file(int dir, const char *name, char out[static FILE_MAX])
{
    CL_AUTO(cl_closep) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, FILE_MAX - 1);
    out[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

/* The number after `key ` in the text of a flat-keyed file; 0 when it is not there. */
static uint64_t find_key(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

static uint64_t read_key(int dir, const char *name, const char *key)
{
    char text[FILE_MAX];
    return read_file(dir, name, text) ? find_key(text, key) : 0;
}

static uint64_t read_number(int dir, const char *name)
{
    char text[FILE_MAX];
    return read_file(dir, name, text) ? strtoull(text, NULL, 10) : 0;
}

static int make_group(int dir, const char *name, int *ret_fd, struct cl_err *err)
{
    if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
        return cl_fail(err, CL_E_SYS, errno, "make cgroup '%s'", name);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open cgroup '%s'", name);
    *ret_fd = fd;
    return 0;
}

/* A mount that is attached nowhere; it lives as long as the fds into it. */
static int mount_detached(int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fs = fsopen("cgroup2", FSOPEN_CLOEXEC);
    if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "open cgroup2");
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "mount cgroup2");
    *ret_fd = fd;
    return 0;
}

/* What is available now, before any user code, less the reserve: measured from the total instead,
 * the kernel's own share would eat the reserve, and the guest would thrash rather than kill. */
static int limit_memory(int user_fd, struct cl_err *err)
{
    uint64_t available = stats_available_bytes();
    if (available < (uint64_t)2 * CGROUP_AGENT_RESERVE)
        return cl_fail(err, CL_E_INVALID, 0, "%" PRIu64 " bytes of memory are too few", available);
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, available - CGROUP_AGENT_RESERVE);
    return write_file(user_fd, "memory.max", text, err);
}

int cgroups_open(struct cgroups *ret_groups, struct cl_err *err)
{
    CL_AUTO(cl_closep) int root = -1;
    CL_AUTO(cl_closep) int user = -1;
    CL_AUTO(cl_closep) int run = -1;
    CL_AUTO(cl_closep) int files = -1;
    static const char controllers[] = "+memory +pids";
    if (mount_detached(&root, err) < 0 ||
        write_file(root, "cgroup.subtree_control", controllers, err) < 0 ||
        make_group(root, "user", &user, err) < 0 ||
        write_file(user, "cgroup.subtree_control", controllers, err) < 0 ||
        limit_memory(user, err) < 0 || make_group(user, "run", &run, err) < 0 ||
        write_file(run, "cgroup.subtree_control", controllers, err) < 0 ||
        make_group(user, "files", &files, err) < 0)
        return cl_wrap(err, "cgroups");
    *ret_groups = (struct cgroups){.run_fd = cl_steal_fd(&run),
                                   .files_fd = cl_steal_fd(&files),
                                   .user_fd = cl_steal_fd(&user)};
    return cgroups_limit_pids(ret_groups, 0, err);
}

int cgroups_limit_pids(const struct cgroups *groups, uint32_t pids, struct cl_err *err)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%" PRIu32, pids ? pids : CGROUP_PIDS_DEFAULT);
    return write_file(groups->run_fd, "pids.max", text, err);
}

uint32_t cgroups_count_pids(const struct cgroups *groups)
{
    return (uint32_t)read_number(groups->run_fd, "pids.current");
}

uint64_t cgroups_cpu_ns(const struct cgroups *groups)
{
    return cgroup_cpu_ns(groups->user_fd);
}

int cgroup_make(const struct cgroups *groups, uint64_t id, int *ret_fd, struct cl_err *err)
{
    char name[32];
    (void)snprintf(name, sizeof name, "exec-%" PRIu64, id);
    CL_AUTO(cl_closep) int fd = -1;
    if (make_group(groups->run_fd, name, &fd, err) < 0 ||
        write_file(fd, "memory.oom.group", "1", err) < 0) /* an exec ends whole, or not at all */
        return -1;
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

uint64_t cgroup_id(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

void cgroup_kill(int fd)
{
    (void)write_file(fd, "cgroup.kill", "1", NULL);
}

bool cgroup_remove(const struct cgroups *groups, uint64_t id)
{
    char name[32];
    (void)snprintf(name, sizeof name, "exec-%" PRIu64, id);
    return unlinkat(groups->run_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

bool cgroup_had_oom(int fd)
{
    return read_key(fd, "memory.events", "oom_kill") > 0;
}

uint64_t cgroup_cpu_ns(int fd)
{
    return read_key(fd, "cpu.stat", "usage_usec") * CL_NS_PER_US;
}

uint64_t cgroup_peak_bytes(int fd)
{
    return read_number(fd, "memory.peak");
}

uint64_t cgroup_anon_bytes(int fd)
{
    return read_key(fd, "memory.stat", "anon");
}

struct thrash_look cgroups_look(const struct cgroups *groups)
{
    char stat[FILE_MAX];
    if (!read_file(groups->user_fd, "memory.stat", stat))
        return (struct thrash_look){0};
    uint64_t files = find_key(stat, "file"),
             kept = find_key(stat, "shmem"); /* the latter of both */
    return (struct thrash_look){
        .now_ns = cl_now_ns(),
        .limit_bytes = read_number(groups->user_fd, "memory.max"),
        .cache_bytes = files > kept ? files - kept : 0,
        .reread_pages = find_key(stat, "workingset_refault_file"),
        .missed_pages = find_key(stat, "workingset_activate_file"),
        .faults = find_key(stat, "pgmajfault"),
        .user_ns = read_key(groups->user_fd, "cpu.stat", "user_usec") * CL_NS_PER_US,
    };
}

int cgroups_watch_pressure(const struct cgroups *groups, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep)
    int fd = openat(groups->user_fd, "memory.pressure", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    char trigger[48];
    int n = snprintf(trigger, sizeof trigger, "some %d %d", THRASH_STALL_US, THRASH_WINDOW_US);
    if (fd < 0 || write(fd, trigger, (size_t)n + 1) < 0)
        return cl_fail(err, CL_E_SYS, errno, "watch memory.pressure");
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}
