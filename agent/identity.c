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

static int add_entropy(struct identity *self, const ProtobufCBinaryData *entropy,
                       struct cl_err *err)
{
    if (entropy->len < IDENTITY_ENTROPY_MIN || entropy->len > IDENTITY_ENTROPY_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%zu bytes of entropy, want %d to %d", entropy->len,
                       IDENTITY_ENTROPY_MIN, IDENTITY_ENTROPY_MAX);
    /* struct rand_pool_info { int entropy_count, buf_size; __u32 buf[]; } */
    int pool[2 + IDENTITY_ENTROPY_MAX / sizeof(int)] = {(int)(entropy->len * 8), (int)entropy->len};
    memcpy(&pool[2], entropy->data, entropy->len);
    if (self->random_fd < 0)
        self->random_fd = open("/dev/urandom", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    /* Adding alone is not enough: siblings would share the generator's output until it reseeds. */
    if (self->random_fd < 0 || ioctl(self->random_fd, RNDADDENTROPY, pool) < 0 ||
        ioctl(self->random_fd, RNDRESEEDCRNG, 0) < 0)
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

static int replace_file(int dir, const char *name, const char *text, int *ret_fd,
                        struct cl_err *err)
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
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

/* In place where the file is surely ours: a clone's claim should not wait until a disk has freed
 * the blocks of the one before.  Nobody reads it meanwhile: no user code has run yet. */
static bool write_over(int dir, const char *name, const char *text, int *ret_fd)
{
    struct open_how how = {.flags = O_WRONLY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_BENEATH};
    struct stat st;
    size_t n = strlen(text);
    CL_AUTO(cl_closep) int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
        st.st_uid != AGENT_ID_BASE || cl_write_all(fd, text, n, NULL) < 0 ||
        (st.st_size > (off_t)n && ftruncate(fd, (off_t)n) < 0))
        return false;
    *ret_fd = cl_steal_fd(&fd);
    return true;
}

static bool write_kept(const struct identity_file *file, const char *text, size_t n)
{
    return file->fd >= 0 && pwrite(file->fd, text, n, 0) == (ssize_t)n &&
           (file->len <= n || ftruncate(file->fd, (off_t)n) == 0);
}

static int write_file(struct identity_file *file, const char *name, const char *text,
                      struct cl_err *err)
{
    size_t n = strlen(text);
    if (!write_kept(file, text, n)) {
        CL_AUTO(cl_closep) int etc = -1;
        cl_closep(&file->fd);
        if (open_etc(&etc, err) < 0)
            return -1;
        if (!write_over(etc, name, text, &file->fd) &&
            replace_file(etc, name, text, &file->fd, err) < 0)
            return -1;
    }
    file->len = n;
    return 0;
}

static int set_file(struct identity *self, enum identity_name which, const char *text,
                    struct cl_err *err)
{
    static const char *const names[IDENTITY_NAMES] = {"hostname", "hosts", "machine-id"};
    struct identity_file *file = &self->names[which];
    int rc = write_file(file, names[which], text, err);
    if (rc < 0 || !self->etc_is_ours)
        cl_closep(&file->fd);
    return rc;
}

static bool is_hostname(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= HOSTNAME_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

static int set_names(struct identity *self, const Cloche__V1__GuestIdentity *id, struct cl_err *err)
{
    if (!is_hostname(id->hostname))
        return cl_fail(err, CL_E_INVALID, 0, "host name '%.80s'", id->hostname);
    if (strlen(id->machine_id) != MACHINE_ID_HEX ||
        strspn(id->machine_id, "0123456789abcdef") != MACHINE_ID_HEX)
        return cl_fail(err, CL_E_INVALID, 0, "machine id '%.40s'", id->machine_id);
    if (sethostname(id->hostname, strlen(id->hostname)) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set the host name");
    char hostname[HOSTNAME_MAX + 2], hosts[2 * HOSTNAME_MAX + 64], machine[MACHINE_ID_HEX + 2];
    (void)snprintf(hostname, sizeof hostname, "%s\n", id->hostname);
    (void)snprintf(hosts, sizeof hosts, "127.0.0.1 localhost\n127.0.1.1 %s\n", id->hostname);
    (void)snprintf(machine, sizeof machine, "%s\n", id->machine_id);
    if (set_file(self, IDENTITY_HOSTNAME, hostname, err) < 0 ||
        set_file(self, IDENTITY_HOSTS, hosts, err) < 0)
        return -1;
    return set_file(self, IDENTITY_MACHINE_ID, machine, err);
}

static int limit_pids(struct identity *self, const struct cgroups *groups, uint32_t pids,
                      struct cl_err *err)
{
    if (pids == self->pids)
        return 0;
    if (cgroups_limit_pids(groups, pids, err) < 0)
        return -1;
    self->pids = pids;
    return 0;
}

/* Keep the first failure: later ones often follow from it. */
static void keep_first(int *rc, int step_rc, const struct cl_err *step_err, struct cl_err *err)
{
    if (step_rc < 0 && *rc == 0)
        *rc = cl_fail(err, step_err->code, 0, "%s", step_err->text);
}

void identity_init(struct identity *identity)
{
    *identity = (struct identity){.etc_is_ours = true, .random_fd = -1};
    for (size_t i = 0; i < IDENTITY_NAMES; i++)
        identity->names[i].fd = -1;
}

void identity_distrust(struct identity *identity)
{
    identity->etc_is_ours = false;
    for (size_t i = 0; i < IDENTITY_NAMES; i++)
        cl_closep(&identity->names[i].fd);
}

int identity_apply(struct identity *identity, const Cloche__V1__GuestIdentity *id,
                   const struct cgroups *groups, int scratch_fd, struct cl_err *err)
{
    const Cloche__V1__GuestLimits none = CLOCHE__V1__GUEST_LIMITS__INIT;
    const Cloche__V1__GuestLimits *limits = id->limits ? id->limits : &none;
    struct cl_err step = {0};
    int rc = 0;
    keep_first(&rc, add_entropy(identity, &id->entropy, &step), &step, err);
    keep_first(&rc, clock_set(id->wall_clock_ns, &step), &step, err);
    keep_first(&rc, set_names(identity, id, &step), &step, err);
    keep_first(&rc, limit_pids(identity, groups, limits->pids, &step), &step, err);
    keep_first(&rc, scratch_limit(scratch_fd, limits->scratch_bytes, &step), &step, err);
    return rc;
}
