/* agent/identity.c - see agent/identity.h. */
#include "agent/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/clock.h"
#include "agent/ids.h"
#include "agent/scratch.h"
#include "base/fs.h"
#include "base/own.h"

enum { HOSTNAME_MAX = 64, MACHINE_ID_HEX = 32 };

static int add_entropy(const ProtobufCBinaryData *entropy, struct cl_err *err)
{
    if (entropy->len < IDENTITY_ENTROPY_MIN || entropy->len > IDENTITY_ENTROPY_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%zu bytes of entropy, want %d to %d", entropy->len,
                       IDENTITY_ENTROPY_MIN, IDENTITY_ENTROPY_MAX);
    /* struct rand_pool_info { int entropy_count, buf_size; __u32 buf[]; } */
    int pool[2 + IDENTITY_ENTROPY_MAX / sizeof(int)] = {(int)(entropy->len * 8), (int)entropy->len};
    memcpy(&pool[2], entropy->data, entropy->len);
    CL_AUTO(cl_closep) int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    /* Adding alone is not enough: siblings would share the generator's output until it reseeds. */
    if (fd < 0 || ioctl(fd, RNDADDENTROPY, pool) < 0 || ioctl(fd, RNDRESEEDCRNG, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "add entropy");
    explicit_bzero(pool, sizeof pool);
    return 0;
}

static int open_etc(int *ret_fd, struct cl_err *err)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    long fd = syscall(SYS_openat2, AT_FDCWD, "/etc", &how, sizeof how);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open /etc");
    *ret_fd = (int)fd;
    return 0;
}

static int replace_file(int dir, const char *name, const char *text, struct cl_err *err)
{
    static const char tmp[] = ".cloche-identity";
    (void)unlinkat(dir, tmp, 0);
    CL_AUTO(cl_closep) int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || fchown(fd, AGENT_ID_BASE, AGENT_ID_BASE) < 0)
        return cl_fail(err, CL_E_SYS, errno, "create /etc/%s", tmp);
    if (cl_write_all(fd, text, strlen(text), err) < 0)
        return cl_wrap(err, "/etc/%s", name);
    if (renameat(dir, tmp, dir, name) < 0)
        return cl_fail(err, CL_E_SYS, errno, "replace /etc/%s", name);
    return 0;
}

/* In place where the file is surely ours: a clone's claim should not wait until a disk has freed
 * the blocks of the one before.  Nobody reads it meanwhile: no user code has run yet. */
static bool write_over(int dir, const char *name, const char *text)
{
    struct open_how how = {.flags = O_WRONLY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_BENEATH};
    struct stat st;
    size_t n = strlen(text);
    CL_AUTO(cl_closep) int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
           st.st_uid == AGENT_ID_BASE && cl_write_all(fd, text, n, NULL) == 0 &&
           (st.st_size <= (off_t)n || ftruncate(fd, (off_t)n) == 0);
}

static int set_file(int dir, const char *name, const char *text, struct cl_err *err)
{
    return write_over(dir, name, text) ? 0 : replace_file(dir, name, text, err);
}

static bool is_hostname(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= HOSTNAME_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

static int set_names(const Cloche__V1__GuestIdentity *id, struct cl_err *err)
{
    if (!is_hostname(id->hostname))
        return cl_fail(err, CL_E_INVALID, 0, "host name '%.80s'", id->hostname);
    if (strlen(id->machine_id) != MACHINE_ID_HEX ||
        strspn(id->machine_id, "0123456789abcdef") != MACHINE_ID_HEX)
        return cl_fail(err, CL_E_INVALID, 0, "machine id '%.40s'", id->machine_id);
    if (sethostname(id->hostname, strlen(id->hostname)) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set the host name");
    CL_AUTO(cl_closep) int etc = -1;
    char hostname[HOSTNAME_MAX + 2], hosts[2 * HOSTNAME_MAX + 64], machine[MACHINE_ID_HEX + 2];
    (void)snprintf(hostname, sizeof hostname, "%s\n", id->hostname);
    (void)snprintf(hosts, sizeof hosts, "127.0.0.1 localhost\n127.0.1.1 %s\n", id->hostname);
    (void)snprintf(machine, sizeof machine, "%s\n", id->machine_id);
    if (open_etc(&etc, err) < 0 || set_file(etc, "hostname", hostname, err) < 0 ||
        set_file(etc, "hosts", hosts, err) < 0)
        return -1;
    return set_file(etc, "machine-id", machine, err);
}

/* Keep the first failure: later ones often follow from it. */
static void keep_first(int *rc, int step_rc, const struct cl_err *step_err, struct cl_err *err)
{
    if (step_rc < 0 && *rc == 0)
        *rc = cl_fail(err, step_err->code, 0, "%s", step_err->text);
}

int identity_apply(const Cloche__V1__GuestIdentity *id, const struct cgroups *groups,
                   int scratch_fd, struct cl_err *err)
{
    const Cloche__V1__GuestLimits none = CLOCHE__V1__GUEST_LIMITS__INIT;
    const Cloche__V1__GuestLimits *limits = id->limits ? id->limits : &none;
    struct cl_err step = {0};
    int rc = 0;
    keep_first(&rc, add_entropy(&id->entropy, &step), &step, err);
    keep_first(&rc, clock_set(id->wall_clock_ns, &step), &step, err);
    keep_first(&rc, set_names(id, &step), &step, err);
    keep_first(&rc, cgroups_limit_pids(groups, limits->pids, &step), &step, err);
    keep_first(&rc, scratch_limit(scratch_fd, limits->scratch_bytes, &step), &step, err);
    return rc;
}
