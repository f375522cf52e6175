/* cli/users.c - the system users of a root instance: found, or made with useradd.
 *
 * Owns:    nothing.
 * Thread:  start-up; runs a child.
 * Users: cloche (scheduler), cloche-audit, cloche-reader, cloche-redis, cloche-worker (reserved);
 * one group, cloche, so that the scheduler may connect to the sockets of the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/plan.h"

extern char **environ;

static int run_useradd(const char *name, const char *group, struct cl_err *err)
{
    const char *argv[16] = {"useradd",      "--system", "--no-create-home", "--home-dir",
                            "/nonexistent", "--shell",  "/usr/sbin/nologin"};
    size_t n = 7;
    argv[n++] = group ? "--gid" : "--user-group";
    if (group)
        argv[n++] = group;
    argv[n++] = name;
    pid_t pid = 0;
    int status = 0;
    int rc = posix_spawn(&pid, "/usr/sbin/useradd", NULL, NULL, (char **)(uintptr_t)argv, environ);
    if (rc != 0)
        return cl_fail(
            err, CL_E_SYS, 0,
            "the user '%s' is missing and /usr/sbin/useradd cannot be run (%s)\n"
            "install the package passwd, or make the system user by hand, or use --no-users",
            name, strerror(rc));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return cl_fail(err, CL_E_SYS, 0,
                       "useradd could not make the user '%s' (status %d)\n"
                       "see its message above; make the user by hand, or use --no-users",
                       name, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}

static int ensure(const char *name, const char *group, uid_t *ret_uid, gid_t *ret_gid,
                  struct cl_err *err)
{
    const struct passwd *pw = getpwnam(name);
    if (!pw && run_useradd(name, group, err) < 0)
        return -1;
    if (!pw)
        pw = getpwnam(name);
    if (!pw)
        return cl_fail(err, CL_E_SYS, 0,
                       "the user '%s' was made but cannot be found\ncheck /etc/nsswitch.conf",
                       name);
    *ret_uid = pw->pw_uid;
    *ret_gid = pw->pw_gid;
    return 0;
}

int users_ensure(struct plan *p, struct cl_err *err)
{
    uid_t reserved;
    gid_t ignored;
    if (ensure("cloche", NULL, &p->uid_cloche, &p->gid_cloche, err) < 0 ||
        ensure("cloche-audit", "cloche", &p->uid_audit, &ignored, err) < 0 ||
        ensure("cloche-reader", "cloche", &p->uid_reader, &ignored, err) < 0 ||
        ensure("cloche-redis", "cloche", &p->uid_redis, &ignored, err) < 0 ||
        ensure("cloche-worker", "cloche", &reserved, &ignored, err) < 0)
        return -1;
    return 0;
}

int users_check_path(const char *path, struct cl_err *err)
{
    char part[PATH_TEXT];
    for (size_t i = 1; path[i]; i++) {
        struct stat st;
        if (path[i] != '/')
            continue;
        (void)snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (stat(part, &st) < 0)
            return 0; /* we make the rest ourselves */
        if (!(st.st_mode & S_IXOTH))
            return cl_fail(err, CL_E_DENIED, 0,
                           "the folder '%s' is closed to the users that Cloche's processes run as\n"
                           "chmod o+x %s, or choose other folders, or use --no-users",
                           part, part);
    }
    return 0;
}

/* A process has to become that user to know: folders, groups and lists of rights all count. */
int users_check_file(const char *path, uid_t uid, gid_t gid, struct cl_err *err)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(setgroups(0, NULL) < 0 || setgid(gid) < 0 || setuid(uid) < 0 ||
              open(path, O_RDONLY | O_CLOEXEC) < 0);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "fork");
    return status == 0
               ? 0
               : cl_fail(err, CL_E_DENIED, 0,
                         "the user that reads the log for Cloche cannot read '%s'\n"
                         "chgrp cloche, chmod g+r, and open the folders above it: or put it "
                         "into /etc/cloche",
                         path);
}
