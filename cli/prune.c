/* cli/prune.c - see cli/prune.h. */
#include "cli/prune.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/own.h"
#include "cli/plan.h"

enum { BUILD_NAME = 16 }; /* hex digits: images/common.sh */

static void closedirp(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}

static bool is_build(const char *name)
{
    unsigned char raw[BUILD_NAME / 2];
    return strlen(name) == BUILD_NAME && cl_unhex(name, BUILD_NAME, raw, sizeof raw);
}

/* Files that other builds have, too, stay. */
static uint64_t bytes_of(const char *build)
{
    uint64_t sum = 0;
    struct stat st;
    CL_AUTO(closedirp) DIR *dir = opendir(build);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_nlink == 1)
            sum += (uint64_t)st.st_blocks * 512;
    return sum;
}

/* "in use" is no error. */
static int prune_build(const struct prune_options *o, const char *path, const char **ret_state,
                       struct cl_err *err)
{
    struct cl_err why = {0};
    CL_AUTO(cl_closep) int fd = -1;
    *ret_state = "in use";
    if (cl_lock_folder(path, true, &fd, &why) < 0) {
        if (why.code == CL_E_UNAVAILABLE)
            return 0;
        return cl_fail(err, why.code, 0, "%s", why.text);
    }
    *ret_state = o->dry_run ? "not needed" : "removed";
    return o->dry_run ? 0 : cl_remove_tree(path, err);
}

static int prune_template(const struct prune_options *o, const char *name, json_t *rows,
                          struct cl_err *err)
{
    char own[PATH_TEXT], path[PATH_TEXT], current[PATH_TEXT];
    path_join(own, o->dir, name);
    path_join(path, own, "current");
    ssize_t n = readlink(path, current, sizeof current - 1);
    current[n > 0 ? n : 0] = '\0';
    CL_AUTO(closedirp) DIR *dir = opendir(own);
    if (!dir)
        return cl_fail(err, CL_E_NOTFOUND, 0,
                       "no template '%s' in '%s'\nCLOCHE_TEMPLATE_DIR names another folder", name,
                       o->dir);
    int rc = 0;
    for (const struct dirent *e; rc == 0 && (e = readdir(dir)) != NULL;) {
        const char *state;
        if (!is_build(e->d_name) || strcmp(e->d_name, current) == 0)
            continue;
        path_join(path, own, e->d_name);
        uint64_t bytes = bytes_of(path);
        rc = prune_build(o, path, &state, err);
        if (rc == 0)
            (void)json_array_append_new(rows, json_pack("{s:s, s:s, s:I, s:s}", "name", name,
                                                        "build", e->d_name, "bytes",
                                                        (json_int_t)bytes, "state", state));
    }
    if (!o->dry_run)
        (void)rmdir(own); /* of one that was removed; else there is something in it */
    return rc;
}

static int prune_all(const struct prune_options *o, json_t *rows, struct cl_err *err)
{
    CL_AUTO(closedirp) DIR *dir = opendir(o->dir);
    if (!dir)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", o->dir);
    char path[PATH_TEXT];
    struct stat st;
    int rc = 0;
    for (const struct dirent *e; rc == 0 && (e = readdir(dir)) != NULL;) {
        path_join(path, o->dir, e->d_name);
        if (cl_name_is_valid(e->d_name) && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            rc = prune_template(o, e->d_name, rows, err);
    }
    return rc;
}

/* Nothing may become current meanwhile (put_build of images/common.sh). */
static int hold_still(const char *dir, int *ret_fd, struct cl_err *err)
{
    char path[PATH_TEXT];
    path_join(path, dir, ".putting");
    CL_AUTO(cl_closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return cl_fail(err, CL_E_SYS, errno, "lock '%s'", path);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

/* Who gets the lock that each worker shares is alone. */
static int check_worker(const char *dir, struct cl_err *err)
{
    struct cl_err why = {0};
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_lock_folder(dir, true, &fd, &why) < 0)
        return why.code == CL_E_UNAVAILABLE ? 0 : cl_fail(err, why.code, 0, "%s", why.text);
    return cl_fail(
        err, CL_E_UNAVAILABLE, 0,
        "no worker runs that takes its templates from '%s', so nobody knows which builds "
        "its paused sandboxes and snapshots need\nstart it, or if nothing rests: --force",
        dir);
}

int prune(const struct prune_options *o, json_t **ret_rows, struct cl_err *err)
{
    CL_AUTO(cl_closep) int still = -1;
    if (!o->force && check_worker(o->dir, err) < 0)
        return -1;
    if (!o->dry_run && hold_still(o->dir, &still, err) < 0)
        return -1;
    json_t *rows = json_array();
    int rc = o->name ? prune_template(o, o->name, rows, err) : prune_all(o, rows, err);
    if (rc < 0)
        json_decref(rows);
    else
        *ret_rows = rows;
    return rc;
}
