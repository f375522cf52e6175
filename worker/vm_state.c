/* worker/vm_state.c - see worker/vm_state.h. */
#include "worker/vm_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/fs.h"
#include "base/own.h"
#include "base/proc.h"
#include "worker/cgroup.h"

struct field {
    const char *key;
    size_t offset, size; /* size 0: a uint64_t */
};

#define TEXT(f) \
    { \
#f, offsetof(struct vm_state, f), sizeof(((struct vm_state *)0)->f) \
    }
#define NUMBER(f) \
    { \
#f, offsetof(struct vm_state, f), 0 \
    }
static const struct field fields[] = {TEXT(name),    NUMBER(guard_start), TEXT(cgroups),
                                      TEXT(tenant),  TEXT(unit_id),       TEXT(lease_id),
                                      NUMBER(fence), NUMBER(code_started)};

static int set_field(struct vm_state *s, const char *key, const char *value, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(fields); i++) {
        if (strcmp(fields[i].key, key) != 0)
            continue;
        char *at = (char *)s + fields[i].offset;
        uint64_t v;
        if (fields[i].size == 0) {
            if (cl_parse_u64(value, &v, err) < 0)
                return -1;
            memcpy(at, &v, sizeof v);
            return 0;
        }
        if (strlen(value) >= fields[i].size)
            return cl_fail(err, CL_E_INVALID, 0, "'%s' is too long", key);
        memcpy(at, value, strlen(value) + 1);
        return 0;
    }
    uint64_t v;
    if (strcmp(key, "guard_pid") == 0 && cl_parse_u64(value, &v, err) == 0 && v <= INT_MAX) {
        s->guard_pid = (pid_t)v;
        return 0;
    }
    return cl_fail(err, CL_E_INVALID, 0, "unknown key '%.32s'", key);
}

int vm_state_parse(const char *text, size_t n, struct vm_state *ret_state, struct cl_err *err)
{
    struct vm_state s = {0};
    char copy[VM_STATE_MAX];
    if (n >= sizeof copy || memchr(text, '\0', n))
        return cl_fail(err, CL_E_INVALID, 0, "VM state file: too long, or a NUL byte");
    memcpy(copy, text, n);
    copy[n] = '\0';
    uint64_t version = 0;
    char *rest = copy;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
        char *eq = strchr(line, '=');
        if (!eq)
            return cl_fail(err, CL_E_INVALID, 0, "VM state file: a line without '='");
        *eq = '\0';
        if (version == 0) { /* version first: what follows depends on it */
            if (strcmp(line, "version") != 0 || cl_parse_u64(eq + 1, &version, err) < 0)
                return cl_fail(err, CL_E_INVALID, 0, "VM state file: the version is not first");
            if (version == 0 || version > VM_STATE_VERSION)
                return cl_fail(err, CL_E_UNIMPL, 0,
                               "VM state file of version %" PRIu64 ", newest known %d", version,
                               VM_STATE_VERSION);
            continue;
        }
        if (set_field(&s, line, eq + 1, err) < 0)
            return cl_wrap(err, "VM state file");
    }
    if (version == 0 || !s.name[0])
        return cl_fail(err, CL_E_INVALID, 0, "VM state file: empty");
    *ret_state = s;
    return 0;
}

int vm_state_print(const struct vm_state *state, char *out, size_t size, struct cl_err *err)
{
    int n = snprintf(out, size,
                     "version=%d\nname=%s\nguard_pid=%d\nguard_start=%" PRIu64
                     "\ncgroups=%s\ntenant=%s\nunit_id=%s\n"
                     "lease_id=%s\nfence=%" PRIu64 "\ncode_started=%" PRIu64 "\n",
                     VM_STATE_VERSION, state->name, (int)state->guard_pid, state->guard_start,
                     state->cgroups, state->tenant, state->unit_id, state->lease_id, state->fence,
                     state->code_started);
    if (n < 0 || (size_t)n >= size)
        return cl_fail(err, CL_E_TOOBIG, 0, "VM state of %d bytes", n);
    return 0;
}

int vm_state_save(const char *dir, const struct vm_state *state, struct cl_err *err)
{
    char text[VM_STATE_MAX], tmp[PATH_MAX], path[PATH_MAX];
    if (vm_state_print(state, text, sizeof text, err) < 0)
        return -1;
    (void)snprintf(tmp, sizeof tmp, "%s/.%s.tmp", dir, state->name);
    (void)snprintf(path, sizeof path, "%s/%s.vm", dir, state->name);
    CL_AUTO(cl_closep) int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || cl_write_all(fd, text, strlen(text), err) < 0)
        return cl_fail(err, CL_E_SYS, errno, "write '%s'", tmp);
    /* No fsync: the file matters only while this kernel runs. */
    if (rename(tmp, path) < 0)
        return cl_fail(err, CL_E_SYS, errno, "rename to '%s'", path);
    return 0;
}

void vm_state_forget(const char *dir, const char *name)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s.vm", dir, name);
    (void)unlink(path);
}

enum { GONE_WAIT_MS = 5000, GONE_STEP_MS = 10 };

/* SIGTERM asks the guardian to kill its VM and leave; SIGKILL takes the VM with it (PDEATHSIG). */
static void kill_guard(const struct vm_state *s)
{
    if (s->guard_pid <= 1)
        return;
    CL_AUTO(cl_closep) int pidfd = (int)syscall(SYS_pidfd_open, s->guard_pid, 0);
    if (pidfd < 0 || cl_proc_start_time(s->guard_pid) != s->guard_start)
        return; /* gone, or the pid is another's now */
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
    if (poll(&p, 1, GONE_WAIT_MS) == 1)
        return;
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    (void)poll(&p, 1, GONE_WAIT_MS);
}

/* Its guardian may have ended long before us: then nobody removed its cgroups. */
static void remove_cgroups(const struct vm_state *s)
{
    const struct timespec moment = {.tv_nsec = GONE_STEP_MS * 1000000L};
    for (const char *at = s->cgroups; *at;) {
        struct cgroup cg = {.n = 1};
        size_t n = strcspn(at, ":");
        if (n > 1 && n < CGROUP_PATH) {
            memcpy(cg.dirs[0], at, n);
            cgroup_kill(&cg);
            for (int i = 0; !cgroup_remove(&cg) && i < GONE_WAIT_MS / GONE_STEP_MS; i++)
                (void)nanosleep(&moment, NULL);
        }
        at += n + (at[n] == ':');
    }
}

int vm_state_sweep(const char *dir, vm_state_lost_fn *lost, void *arg, struct cl_err *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", dir);
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (e->d_name[0] == '.' || len < 4 || strcmp(e->d_name + len - 3, ".vm") != 0)
            continue;
        struct cl_buf text;
        struct vm_state s = {0};
        cl_buf_init(&text, VM_STATE_MAX);
        rc = cl_file_read(dirfd(d), e->d_name, &text, err);
        if (rc == 0)
            rc = vm_state_parse((const char *)text.data, text.len, &s, err);
        cl_buf_fini(&text);
        if (rc < 0) {
            (void)cl_wrap(err, "'%s/%s'", dir, e->d_name);
            break;
        }
        kill_guard(&s);
        remove_cgroups(&s);
        if (s.lease_id[0])
            lost(arg, &s);
        (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    (void)closedir(d);
    return rc;
}
