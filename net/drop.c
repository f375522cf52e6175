/* net/drop.c - see net/drop.h. */
#include "net/drop.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a sanitizer maps is more than any such limit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX RLIM_INFINITY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_MAX RLIM_INFINITY
#endif
#endif
#ifndef MEMORY_MAX
#define MEMORY_MAX (512 * CL_MIB)
#endif

enum { FD_FIRST = 3 };

static void close_between(unsigned first, unsigned last)
{
    if (first <= last)
        (void)syscall(SYS_close_range, first, last, 0);
}

void net_drop_files(int one, int other)
{
    unsigned low = (unsigned)CL_MIN(one, other), high = (unsigned)CL_MAX(one, other);
    close_between(FD_FIRST, low - 1);
    close_between(low + 1, high - 1);
    close_between(high + 1, ~0U);
}

/* The network stays this host's: it is what the process is for. */
static int empty_root(struct cl_err *err)
{
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: namespaces");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("net", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=0555") < 0 ||
        chdir("/tmp") < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: new root");
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: pivot");
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: read-only root");
    return 0;
}

static int become(uid_t uid, gid_t gid, struct cl_err *err)
{
    if (uid == 0 || gid == 0)
        return cl_fail(err, CL_E_INVALID, 0, "drop: root is nobody to become");
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: become uid %u", uid);
    return 0;
}

static int set_limits(struct cl_err *err)
{
    static const struct {
        int which;
        rlim_t most;
    } limits[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_FSIZE, 0},
        {RLIMIT_NOFILE, NET_FILES_MAX},
        {RLIMIT_AS, MEMORY_MAX},
    };
    (void)signal(SIGXFSZ, SIG_IGN); /* a message to a file is lost, nothing more */
    for (size_t i = 0; i < CL_COUNT(limits); i++) {
        struct rlimit had;
        if (getrlimit((__rlimit_resource_t)limits[i].which, &had) < 0)
            return cl_fail(err, CL_E_SYS, errno, "drop: limit %d", limits[i].which);
        rlim_t most = CL_MIN(limits[i].most, had.rlim_max);
        const struct rlimit now = {most, most};
        if (setrlimit((__rlimit_resource_t)limits[i].which, &now) < 0)
            return cl_fail(err, CL_E_SYS, errno, "drop: limit %d", limits[i].which);
    }
    return 0;
}

int net_drop(uid_t uid, gid_t gid, struct cl_err *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    bool is_root = geteuid() == 0;
    if ((is_root && empty_root(err) < 0) || set_limits(err) < 0 ||
        (is_root && become(uid, gid, err) < 0))
        return -1;
    if (syscall(SYS_capset, &head, none) < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: capabilities");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "drop: no_new_privs");
    return 0;
}
