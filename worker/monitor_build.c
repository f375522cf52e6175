/* worker/monitor_build.c - see worker/monitor_build.h. */
#include "worker/monitor_build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "worker/digest.h"

enum { SWEEP_MAX = 256 }; /* of one sweep; the next one goes on */

static int path_of(const char *dir, const char *sha256, const char *end, char path[static PATH_MAX],
                   struct cl_err *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s%s", dir, sha256, end);
    return n > 0 && n < PATH_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
}

static bool is_there(const char *path, const char *sha256)
{
    char have[MONITOR_HEX];
    struct cl_buf bytes;
    cl_buf_init(&bytes, MONITOR_MAX);
    bool good = cl_file_read(AT_FDCWD, path, &bytes, NULL) == 0;
    if (good)
        digest_hex(bytes.data, bytes.len, have);
    cl_buf_fini(&bytes);
    return good && strcmp(have, sha256) == 0;
}

/* --- one copy -----------------------------------------------------------------------------------
 */

static int check_may_execute(const char *dir, struct cl_err *err)
{
    struct statvfs fs;
    if (statvfs(dir, &fs) < 0)
        return cl_fail(err, CL_E_SYS, errno, "look at '%s'", dir);
    return fs.f_flag & ST_NOEXEC ? cl_fail(err, CL_E_UNAVAILABLE, 0, "'%s' is mounted noexec", dir)
                                 : 0;
}

static int write_copy(const char *dir, const struct cl_buf *bytes, struct monitor_build *m,
                      struct cl_err *err)
{
    char folder[PATH_MAX];
    if (path_of(dir, m->sha256, "", folder, err) < 0 ||
        path_of(dir, m->sha256, "/cloche-vmm", m->path, err) < 0)
        return -1;
    if (is_there(m->path, m->sha256))
        return 0;
    return cl_mkdir_p(folder, 0700, err) < 0
               ? -1
               : cl_file_write(m->path, bytes->data, bytes->len, 0555, err);
}

int monitor_copy(const char *dir, const char *program, struct monitor_build *ret_monitor,
                 struct cl_err *err)
{
    struct cl_buf bytes;
    *ret_monitor = (struct monitor_build){.path = ""};
    if (cl_mkdir_p(dir, 0700, err) < 0 || check_may_execute(dir, err) < 0)
        return -1;
    cl_buf_init(&bytes, MONITOR_MAX);
    int rc = cl_file_read(AT_FDCWD, program, &bytes, err);
    if (rc == 0) {
        digest_hex(bytes.data, bytes.len, ret_monitor->sha256);
        rc = write_copy(dir, &bytes, ret_monitor, err);
    }
    cl_buf_fini(&bytes);
    return rc;
}

int monitor_find(const char *dir, const char *sha256, struct monitor_build *ret_monitor,
                 struct cl_err *err)
{
    *ret_monitor = (struct monitor_build){.path = ""};
    (void)snprintf(ret_monitor->sha256, sizeof ret_monitor->sha256, "%s", sha256);
    if (path_of(dir, sha256, "/cloche-vmm", ret_monitor->path, err) < 0)
        return -1;
    return is_there(ret_monitor->path, sha256)
               ? 0
               : cl_fail(err, CL_E_NOTFOUND, 0, "there is no copy of it in '%s'", dir);
}

/* --- which stay ---------------------------------------------------------------------------------
 */

struct copy {
    char sha256[MONITOR_HEX];
    struct timespec made;
};

static int newest_first(const void *a, const void *b)
{
    return cl_newest_first(&((const struct copy *)a)->made, &((const struct copy *)b)->made);
}

static size_t list(DIR *d, struct copy *copies, size_t max)
{
    size_t n = 0;
    for (struct dirent *e; n < max && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (strlen(e->d_name) != MONITOR_HEX - 1 || fstatat(dirfd(d), e->d_name, &st, 0) < 0)
            continue;
        memcpy(copies[n].sha256, e->d_name, MONITOR_HEX);
        copies[n++].made = st.st_mtim;
    }
    qsort(copies, n, sizeof *copies, newest_first);
    return n;
}

void monitor_sweep(const char *dir, bool (*is_needed)(const void *arg, const char *sha256),
                   const void *arg)
{
    char path[PATH_MAX];
    struct copy *copies = cl_zalloc_array(SWEEP_MAX, sizeof *copies);
    DIR *d = opendir(dir);
    size_t n = d && copies ? list(d, copies, SWEEP_MAX) : 0;
    for (size_t i = MONITORS_NEWEST; i < n; i++) {
        if (!is_needed(arg, copies[i].sha256) &&
            path_of(dir, copies[i].sha256, "", path, NULL) == 0)
            (void)!cl_remove_tree(path, NULL);
    }
    if (d)
        (void)closedir(d);
    cl_free(copies);
}
