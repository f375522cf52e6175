/* cli/paths.c - see cli/paths.h. */
#include "cli/paths.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"

enum { LINE_FILE_MAX = 4096 };

void path_join(char out[static PATH_TEXT], const char *dir, const char *name)
{
    (void)snprintf(out, PATH_TEXT, "%s/%s", dir, name);
}

static const char *env_of(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

int path_absolute(char out[static PATH_TEXT], const char *path, struct cl_err *err)
{
    char cwd[PATH_TEXT] = "";
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return cl_fail(err, CL_E_SYS, 0, "the working folder is gone\nchange to another folder");
    int n = snprintf(out, PATH_TEXT, "%s%s%s", cwd, cwd[0] ? "/" : "", path);
    if (n < 0 || n >= PATH_TEXT)
        return cl_fail(err, CL_E_INVALID, 0, "the path '%.64s...' is too long", path);
    while (n > 1 && out[n - 1] == '/')
        out[--n] = '\0';
    return 0;
}

static int default_state(bool is_root, char out[static PATH_TEXT], struct cl_err *err)
{
    const char *xdg = env_of("XDG_STATE_HOME"), *home = env_of("HOME");
    if (is_root)
        (void)snprintf(out, PATH_TEXT, "/var/lib/cloche");
    else if (xdg)
        (void)snprintf(out, PATH_TEXT, "%s/cloche", xdg);
    else if (home)
        (void)snprintf(out, PATH_TEXT, "%s/.local/state/cloche", home);
    else
        return cl_fail(err, CL_E_INVALID, 0,
                       "no HOME in the environment\nset HOME or CLOCHE_STATE_DIR");
    return 0;
}

static void default_run(bool is_root, char out[static PATH_TEXT])
{
    const char *xdg = env_of("XDG_RUNTIME_DIR");
    if (is_root)
        (void)snprintf(out, PATH_TEXT, "/run/cloche");
    else if (xdg && access(xdg, W_OK) == 0)
        (void)snprintf(out, PATH_TEXT, "%s/cloche", xdg);
    else
        (void)snprintf(out, PATH_TEXT, "/tmp/cloche-%u", (unsigned)getuid());
}

/* The recipes: CLOCHE_SHARE, or images/ above the build folder, or where a package puts them. */
static void find_share(struct cli_paths *p)
{
    const char *own = env_of("CLOCHE_SHARE");
    char tries[4][PATH_TEXT], probe[PATH_TEXT + 32];
    (void)snprintf(tries[0], PATH_TEXT, "%s", own ? own : "");
    path_join(tries[1], p->bin, "..");
    path_join(tries[2], p->bin, "../..");
    path_join(tries[3], p->bin, "../share/cloche");
    for (size_t i = 0; i < CL_COUNT(tries); i++) {
        (void)snprintf(probe, sizeof probe, "%s/images/build.sh", tries[i]);
        if (tries[i][0] && access(probe, R_OK) == 0) {
            (void)snprintf(p->share, sizeof p->share, "%s", tries[i]);
            return;
        }
    }
}

int paths_resolve(const struct cli_opts *o, struct cli_paths *ret, struct cl_err *err)
{
    struct cli_paths p = {.is_root = geteuid() == 0};
    const char *state = o->state_dir ? o->state_dir : env_of("CLOCHE_STATE_DIR");
    const char *run = o->run_dir ? o->run_dir : env_of("CLOCHE_RUN_DIR");
    ssize_t n = readlink("/proc/self/exe", p.bin, sizeof p.bin - 1);
    if (n < 0)
        return cl_fail(err, CL_E_SYS, 0, "/proc is not mounted\nmount it");
    p.bin[n] = '\0';
    char *slash = strrchr(p.bin, '/');
    if (slash)
        *slash = '\0';
    if (state ? path_absolute(p.state, state, err) < 0 : default_state(p.is_root, p.state, err) < 0)
        return -1;
    if (!run)
        default_run(p.is_root, p.run);
    else if (path_absolute(p.run, run, err) < 0)
        return -1;
    find_share(&p);
    *ret = p;
    return 0;
}

int path_check_run(const char *run, struct cl_err *err)
{
    struct stat st;
    if (lstat(run, &st) < 0 || geteuid() == 0)
        return 0;
    if (S_ISDIR(st.st_mode) && (st.st_uid == geteuid() || st.st_uid == 0))
        return 0;
    return cl_fail(err, CL_E_DENIED, 0,
                   "'%s' belongs to another user\nset CLOCHE_RUN_DIR to a folder of your own, or "
                   "CLOCHE_ENDPOINT",
                   run);
}

int path_read_line(const char *path, char *out, size_t size, struct cl_err *err)
{
    struct cl_buf buf;
    cl_buf_init(&buf, LINE_FILE_MAX);
    int rc = cl_file_read(AT_FDCWD, path, &buf, err);
    size_t n = buf.len;
    while (n > 0 && (buf.data[n - 1] == '\n' || buf.data[n - 1] == '\r' || buf.data[n - 1] == ' '))
        n--;
    if (rc == 0 && n >= size)
        rc = cl_fail(err, CL_E_INVALID, 0, "'%s' holds more than %zu bytes", path, size - 1);
    if (rc == 0) {
        memcpy(out, buf.data ? (const char *)buf.data : "", n);
        out[n] = '\0';
    }
    cl_buf_fini(&buf);
    return rc;
}
