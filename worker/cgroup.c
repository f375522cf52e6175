/* worker/cgroup.c - see worker/cgroup.h. */
#include "worker/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"

static bool write_text(const char *dir, const char *file, const char *text)
{
    char path[CGROUP_PATH + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    CL_AUTO(cl_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool make_dir(char out[static CGROUP_PATH], const char *hierarchy, const char *instance)
{
    (void)snprintf(out, CGROUP_PATH, "%s/cloche", hierarchy);
    if (mkdir(out, 0755) < 0 && errno != EEXIST)
        return false;
    (void)snprintf(out, CGROUP_PATH, "%s/cloche/%.100s", hierarchy, instance);
    return mkdir(out, 0755) == 0 || errno == EEXIST;
}

static bool open_v2(const char *instance, struct cgroup_root *root)
{
    static const char top[] = "/sys/fs/cgroup";
    if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) < 0 ||
        !make_dir(root->dirs[0], top, instance))
        return false;
    char parent[CGROUP_PATH];
    (void)snprintf(parent, sizeof parent, "%s/cloche", top);
    static const char all[] = "+memory +pids +cpu";
    (void)write_text(top, "cgroup.subtree_control", all);
    root->v2 = write_text(parent, "cgroup.subtree_control", all) &&
               write_text(root->dirs[0], "cgroup.subtree_control", all);
    root->n = root->v2 ? 1 : 0;
    return root->v2;
}

void cgroup_root_open(const char *instance, struct cgroup_root *ret_root)
{
    static const char *const v1[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids",
                                     "/sys/fs/cgroup/cpu"};
    struct cgroup_root root = {0};
    if (!open_v2(instance, &root)) {
        root = (struct cgroup_root){0};
        for (size_t i = 0; i < CL_COUNT(v1); i++) {
            if (access(v1[i], W_OK) == 0 && make_dir(root.dirs[root.n], v1[i], instance))
                root.n++;
        }
    }
    *ret_root = root;
}

void cgroup_root_sweep(const struct cgroup_root *root)
{
    for (int i = 0; i < root->n; i++) {
        DIR *d = opendir(root->dirs[i]);
        if (!d)
            continue;
        for (struct dirent *e; (e = readdir(d));) {
            if (strncmp(e->d_name, "vm-", 3) == 0) /* it stays while something is in it */
                (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        }
        (void)closedir(d);
    }
}

void cgroup_root_close(const struct cgroup_root *root)
{
    cgroup_root_sweep(root);
    for (int i = 0; i < root->n; i++)
        (void)rmdir(root->dirs[i]);
}

/* In v1 each hierarchy knows only its own files; the others do not exist there. */
static int set_limits(const char *dir, bool v2, const struct cgroup_limits *l, struct cl_err *err)
{
    char memory[32], pids[32], quota[48];
    uint64_t cpu_us = (uint64_t)l->cpus * 100000;
    (void)snprintf(memory, sizeof memory, "%" PRIu64, l->memory_bytes);
    (void)snprintf(pids, sizeof pids, "%" PRIu32, l->pids);
    (void)snprintf(quota, sizeof quota, v2 ? "%" PRIu64 " 100000" : "%" PRIu64, cpu_us);
    const struct {
        const char *file, *text;
    } settings[] = {
        {v2 ? "memory.max" : "memory.limit_in_bytes", memory},
        {"pids.max", pids},
        {v2 ? "cpu.max" : "cpu.cfs_quota_us", quota},
    };
    for (size_t i = 0; i < CL_COUNT(settings); i++) {
        char path[CGROUP_PATH + 64];
        (void)snprintf(path, sizeof path, "%s/%s", dir, settings[i].file);
        if (access(path, F_OK) == 0 && !write_text(dir, settings[i].file, settings[i].text))
            return cl_fail(err, CL_E_SYS, errno, "set %s of '%s'", settings[i].file, dir);
    }
    return 0;
}

int cgroup_make(const struct cgroup_root *root, const char *name,
                const struct cgroup_limits *limits, struct cgroup *ret_cgroup, struct cl_err *err)
{
    struct cgroup cg = {0};
    for (int i = 0; i < root->n; i++) {
        int n = snprintf(cg.dirs[i], CGROUP_PATH, "%s/%s", root->dirs[i], name);
        if (n < 0 || n >= CGROUP_PATH)
            return cl_fail(err, CL_E_INVALID, ENAMETOOLONG, "cgroup '%s'", name);
        cg.n++;
        if ((mkdir(cg.dirs[i], 0755) < 0 && errno != EEXIST)) {
            (void)cl_fail(err, CL_E_SYS, errno, "make cgroup '%s'", cg.dirs[i]);
            (void)cgroup_remove(&cg);
            return -1;
        }
        if (set_limits(cg.dirs[i], root->v2, limits, err) < 0) {
            (void)cgroup_remove(&cg);
            return -1;
        }
    }
    *ret_cgroup = cg;
    return 0;
}

static FILE *open_procs(const char *dir)
{
    char path[CGROUP_PATH + 32];
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    return fopen(path, "re");
}

int cgroup_join(const struct cgroup *cg, pid_t pid, struct cl_err *err)
{
    for (int i = 0; i < cg->n; i++) {
        char path[CGROUP_PATH + 32];
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", cg->dirs[i]);
        CL_AUTO(cl_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || dprintf(fd, "%ld", (long)pid) < 0)
            return cl_fail(err, CL_E_SYS, errno, "join '%s'", path);
    }
    return 0;
}

bool cgroup_is_empty(const struct cgroup *cg)
{
    for (int i = 0; i < cg->n; i++) {
        CL_AUTO(cl_fclosep) FILE *f = open_procs(cg->dirs[i]);
        long pid;
        if (f && fscanf(f, "%ld", &pid) == 1)
            return false;
    }
    return true;
}

void cgroup_kill(const struct cgroup *cg)
{
    for (int i = 0; i < cg->n; i++) {
        if (write_text(cg->dirs[i], "cgroup.kill", "1"))
            continue;
        CL_AUTO(cl_fclosep) FILE *f = open_procs(cg->dirs[i]);
        long pid;
        while (f && fscanf(f, "%ld", &pid) == 1) {
            if (pid > 1)
                (void)kill((pid_t)pid, SIGKILL);
        }
    }
}

bool cgroup_remove(const struct cgroup *cg)
{
    bool gone = true;
    for (int i = 0; i < cg->n; i++)
        gone = (rmdir(cg->dirs[i]) == 0 || errno == ENOENT) && gone;
    return gone;
}
