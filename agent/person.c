/* agent/person.c - see agent/person.h. */
#include "agent/person.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"

/* What root of the namespace keeps: package managers change owners, ids and modes.  No
 * CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_MKNOD: attack surface, and no use here. */
static const int root_caps[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,       CAP_SETGID,
    CAP_SETUID, CAP_SETPCAP,      CAP_SETFCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
};

static uint64_t caps_of(const struct person *who)
{
    uint64_t caps = 0;
    for (size_t i = 0; who->id == 0 && i < CL_COUNT(root_caps); i++)
        caps |= UINT64_C(1) << root_caps[i];
    return caps;
}

static int set_caps(uint64_t caps)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    for (int i = 0; i < 2; i++)
        data[i].effective = data[i].permitted = (uint32_t)(caps >> (32 * i));
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

/* The kernel refuses the first number that it has no capability of. */
static int bound_caps(uint64_t keep)
{
    for (int cap = 0; cap < 64; cap++) {
        if (keep >> cap & 1 || prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
            continue;
        return errno == EINVAL ? 0 : -errno;
    }
    return 0;
}

int person_become(const struct person *who, int userns_fd)
{
    if (setns(userns_fd, CLONE_NEWUSER) < 0)
        return -errno;
    uint64_t keep = caps_of(who);
    int rc = bound_caps(keep);
    if (rc < 0)
        return rc;
    gid_t group = who->id;
    if (setgroups(1, &group) < 0 || setresgid(group, group, group) < 0 ||
        setresuid(who->id, who->id, who->id) < 0)
        return -errno;
    rc = set_caps(keep);
    if (rc < 0)
        return rc;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int write_map(pid_t pid, const char *name, struct cl_err *err)
{
    char path[64], map[96];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int n = snprintf(map, sizeof map, "0 %d %d\n%d %d 1\n", AGENT_ID_BASE, AGENT_ID_COUNT,
                     AGENT_NOBODY, AGENT_NOBODY_OUT);
    CL_AUTO(cl_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, map, (size_t)n) != n)
        return cl_fail(err, CL_E_SYS, errno, "write '%s'", path);
    return 0;
}

int person_namespace_open(int *ret_fd, struct cl_err *err)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return cl_fail(err, CL_E_SYS, errno, "pipe");
    pid_t pid = fork();
    if (pid == 0) { /* stays only until its namespace is held by fd */
        char ok = unshare(CLONE_NEWUSER) == 0;
        (void)!write(ready[1], &ok, 1);
        for (;;)
            (void)pause();
    }
    char ok = 0;
    int rc = pid < 0 || read(ready[0], &ok, 1) != 1 || !ok
                 ? cl_fail(err, CL_E_SYS, errno, "make the user namespace")
                 : 0;
    (void)close(ready[0]);
    (void)close(ready[1]);
    if (rc == 0 && (write_map(pid, "uid_map", err) < 0 || write_map(pid, "gid_map", err) < 0))
        rc = -1;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    int fd = rc < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (rc == 0 && fd < 0)
        rc = cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    if (rc == 0)
        *ret_fd = fd;
    return rc;
}
