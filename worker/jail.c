/* worker/jail.c - see worker/jail.h. */
#include "worker/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"

int jail_clone_flags(const struct jail *jail)
{
    if (!jail->namespaces)
        return 0;
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    return jail->in_user_namespace ? flags | CLONE_NEWUSER : flags;
}

static int write_file(const char *path, const char *text, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return cl_fail(err, CL_E_SYS, errno, "write '%s'", path);
    return 0;
}

static int join_cgroups(const struct jail *jail, struct cl_err *err)
{
    for (int i = 0; i < jail->n_cgroups; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", jail->cgroups[i]);
        if (write_file(path, "0", err) < 0)
            return -1;
    }
    return 0;
}

/* In a user namespace of our own: stay who we are. */
static int map_ids(uid_t uid, gid_t gid, struct cl_err *err)
{
    char line[64];
    if (write_file("/proc/self/setgroups", "deny", err) < 0)
        return -1;
    (void)snprintf(line, sizeof line, "%u %u 1", uid, uid);
    if (write_file("/proc/self/uid_map", line, err) < 0)
        return -1;
    (void)snprintf(line, sizeof line, "%u %u 1", gid, gid);
    return write_file("/proc/self/gid_map", line, err);
}

struct bind {
    const char *path;
    bool is_dir, needed;
    const char *why;
};

static const struct bind binds[] = {
    {"/usr", true, true, "QEMU, its libraries and its firmware"},
    {"/lib", true, false, "the dynamic loader, where /lib is no link into /usr"},
    {"/lib64", true, false, "the same"},
    {"/dev/null", false, true, "standard streams"},
    {"/dev/urandom", false, true, "QEMU seeds its own generator"},
};

/* An empty folder or file to mount on. */
static int make_point(const char *at, bool is_dir)
{
    if (is_dir)
        return mkdir(at, 0755);
    int fd = open(at, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
    if (fd < 0)
        return -1;
    (void)close(fd);
    return 0;
}

/* Bind `b` below the new root (the current folder), read-only. */
static int bind_one(const struct bind *b, struct cl_err *err)
{
    const char *at = b->path + 1;
    struct stat st;
    if (lstat(b->path, &st) < 0)
        return b->needed ? cl_fail(err, CL_E_SYS, errno, "jail needs %s (%s)", b->path, b->why) : 0;
    if (S_ISLNK(st.st_mode)) {
        char target[256] = {0};
        if (readlink(b->path, target, sizeof target - 1) < 0 || symlink(target, at) < 0)
            return cl_fail(err, CL_E_SYS, errno, "jail link %s", at);
        return 0;
    }
    if (make_point(at, b->is_dir) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail point %s", at);
    if (mount(b->path, at, NULL, MS_BIND | MS_REC, NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail bind %s", b->path);
    unsigned long ro = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID;
    if (b->is_dir && mount(NULL, at, NULL, ro, NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail read-only %s", b->path);
    return 0;
}

/* What a program that was not made for a jail expects to find. */
static int furnish_root(const struct jail *jail, struct cl_err *err)
{
    static const struct bind kvm = {"/dev/kvm", false, true, "hardware virtualization"};
    if (mkdir("dev", 0755) < 0 || mkdir("proc", 0555) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: folders");
    for (size_t i = 0; i < CL_COUNT(binds); i++) {
        if (bind_one(&binds[i], err) < 0)
            return -1;
    }
    if (jail->kvm && bind_one(&kvm, err) < 0)
        return -1;
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: /proc");
    return 0;
}

static int build_root(const struct jail *jail, struct cl_err *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: private mounts");
    if (mount("jail", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755") < 0 ||
        chdir("/tmp") < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: new root");
    if (!jail->bare && furnish_root(jail, err) < 0)
        return -1;
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: pivot");
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: read-only root");
    return 0;
}

static int set_limits(const struct jail *jail, struct cl_err *err)
{
    const struct rlimit core = {0, 0};
    const struct rlimit files = {jail->nofile, jail->nofile};
    /* No hole in QEMU makes the scratch disk's file larger. */
    const struct rlimit size = {JAIL_FSIZE, JAIL_FSIZE};
    if (setrlimit(RLIMIT_CORE, &core) < 0 || setrlimit(RLIMIT_NOFILE, &files) < 0 ||
        setrlimit(RLIMIT_FSIZE, &size) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: rlimit");
    return 0;
}

int jail_kvm_groups(const struct stat *st, gid_t *ret_group)
{
    if ((st->st_mode & 0006) == 0006)
        return 0;
    if ((st->st_mode & 0060) != 0060 || st->st_gid == 0)
        return -1;
    *ret_group = st->st_gid;
    return 1;
}

/* No group but its own; with KVM also the one that /dev/kvm belongs to (`kvm` on most systems). */
static int set_groups(const struct jail *jail, struct cl_err *err)
{
    gid_t group = 0;
    int n = 0;
    struct stat st;
    if (jail->kvm && (stat("/dev/kvm", &st) < 0 || (n = jail_kvm_groups(&st, &group)) < 0))
        return cl_fail(err, CL_E_DENIED, errno,
                       "no VM may open /dev/kvm: chgrp kvm /dev/kvm && chmod 0660 /dev/kvm");
    if (setgroups((size_t)n, &group) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: groups");
    return 0;
}

static int drop_privileges(const struct jail *jail, struct cl_err *err)
{
    if (jail->change_uid && set_groups(jail, err) < 0)
        return -1;
    if (jail->change_uid && (setresgid(jail->gid, jail->gid, jail->gid) < 0 ||
                             setresuid(jail->uid, jail->uid, jail->uid) < 0))
        return cl_fail(err, CL_E_SYS, errno, "jail: become uid %u", jail->uid);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    if (syscall(SYS_capset, &head, none) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: drop capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: no_new_privs");
    return 0;
}

int jail_enter(const struct jail *jail, struct cl_err *err)
{
    if (join_cgroups(jail, err) < 0)
        return -1;
    if (jail->in_user_namespace && map_ids(jail->uid, jail->gid, err) < 0)
        return -1;
    (void)umask(0022); /* the root is ours, and the VM's uid has to look into its folders */
    if (jail->namespaces && build_root(jail, err) < 0)
        return -1;
    (void)umask(0077);
    if (set_limits(jail, err) < 0 || drop_privileges(jail, err) < 0)
        return -1;
    /* The kernel clears this at a change of uid, so it comes last. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "jail: parent death signal");
    return 0;
}
