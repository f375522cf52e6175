/* audit/files.c - see audit/files.h. */
#include "audit/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/own.h"

void audit_file_path(const char *dir, const char *stream, unsigned number,
                     char out[static AUDIT_PATH])
{
    (void)snprintf(out, AUDIT_PATH, "%s/%s/%08u.log", dir, stream, number);
}

int audit_file_range(const char *dir, const char *stream, unsigned *ret_first, unsigned *ret_last,
                     struct cl_err *err)
{
    char path[AUDIT_PATH];
    unsigned first = 0, last = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, stream);
    DIR *d = opendir(path);
    if (!d && errno != ENOENT)
        return cl_fail(err, CL_E_SYS, errno, "open folder '%s'", path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strlen(e->d_name) != 12 || strspn(e->d_name, "0123456789") != 8 ||
            strcmp(e->d_name + 8, ".log") != 0)
            continue;
        unsigned number = (unsigned)strtoul(e->d_name, NULL, 10);
        if (number == 0)
            continue;
        first = first == 0 ? number : CL_MIN(first, number);
        last = CL_MAX(last, number);
    }
    if (d)
        (void)closedir(d);
    *ret_first = first;
    *ret_last = last;
    return 0;
}

int audit_file_map(const char *path, const char **ret_data, size_t *ret_n, struct cl_err *err)
{
    struct stat st;
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return cl_fail(err, errno == ENOENT ? CL_E_NOTFOUND : CL_E_SYS, errno, "open '%s'", path);
    if (!S_ISREG(st.st_mode) || st.st_size > AUDIT_FILE_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "'%s' is not a file of at most %d bytes", path,
                       AUDIT_FILE_MAX);
    if (st.st_size == 0) {
        *ret_data = "";
        *ret_n = 0;
        return 0;
    }
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return cl_fail(err, CL_E_SYS, errno, "map '%s'", path);
    *ret_data = p;
    *ret_n = (size_t)st.st_size;
    return 0;
}

void audit_file_unmap(const char *data, size_t n)
{
    if (n > 0)
        (void)munmap((void *)(uintptr_t)data, n);
}

int audit_each_stream(const char *dir, const char *kind, audit_stream_fn *fn, void *arg,
                      struct cl_err *err)
{
    char path[AUDIT_PATH], stream[AUDIT_STREAM];
    int rc = 0, count = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, kind);
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : cl_fail(err, CL_E_SYS, errno, "open folder '%s'", path);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        if (!cl_name_is_valid(e->d_name))
            continue;
        if (++count > AUDIT_STREAMS_MAX) {
            rc = cl_fail(err, CL_E_TOOBIG, 0, "over %d streams in '%s'", AUDIT_STREAMS_MAX, path);
            break;
        }
        (void)snprintf(stream, sizeof stream, "%s/%s", kind, e->d_name);
        rc = fn(stream, arg, err);
    }
    (void)closedir(d);
    return rc;
}
