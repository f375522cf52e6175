/* agent/file_ops.c - see agent/file_ops.h. */
#include "agent/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file_list.h"
#include "agent/file_watch.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/own.h"
#include "base/util.h"

enum { COPY_STEP = 65536, TEMPORARY_HEX = 16 };

void file_send_result(const struct file_plan *plan, const Cloche__V1__GuestFileResult *result)
{
    static uint8_t packed[FILE_RESULT_MAX];
    size_t n = cloche__v1__guest_file_result__get_packed_size(result);
    if (1 + n > sizeof packed)
        _exit(1);
    packed[0] = 1; /* an empty result is no bytes, which on a socket would be its end */
    (void)cloche__v1__guest_file_result__pack(result, packed + 1);
    if (send(plan->ctl, packed, 1 + n, MSG_NOSIGNAL) < 0)
        _exit(1);
}

static void send_error(const struct file_plan *plan, int error)
{
    Cloche__V1__GuestFileResult result;
    cloche__v1__guest_file_result__init(&result);
    char text[128];
    (void)snprintf(text, sizeof text, "%s", error ? strerror(error) : "");
    result.error_number = error;
    result.error = text;
    file_send_result(plan, &result);
}

/* --- read and write --------------------------------------------------------------------------- */

static int open_to_read(const struct file_plan *plan, int *ret_fd, uint64_t *ret_size)
{
    struct stat st;
    /* O_NONBLOCK: a FIFO must not hold us; O_NOCTTY: nor a terminal. */
    CL_AUTO(cl_closep) int fd = open(plan->op->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    if (!S_ISREG(st.st_mode))
        return EINVAL;
    if (plan->op->offset > INT64_MAX || lseek(fd, (off_t)plan->op->offset, SEEK_SET) < 0)
        return EINVAL;
    *ret_size = (uint64_t)st.st_size;
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

static int copy_out(const struct file_plan *plan, int fd, uint64_t max, uint64_t *moved)
{
    static uint8_t step[COPY_STEP];
    while (*moved < max) {
        ssize_t n = read(fd, step, (size_t)CL_MIN((uint64_t)sizeof step, max - *moved));
        if (n < 0)
            return errno;
        if (n == 0)
            return 0;
        if (cl_write_all(plan->data, step, (size_t)n, NULL) < 0)
            _exit(1);
        *moved += (uint64_t)n;
    }
    return 0;
}

static void do_read(const struct file_plan *plan)
{
    Cloche__V1__GuestFileResult result;
    cloche__v1__guest_file_result__init(&result);
    int fd = -1;
    uint64_t max = plan->op->length ? plan->op->length : UINT64_MAX;
    int error = open_to_read(plan, &fd, &result.size);
    if (error == 0)
        error = copy_out(plan, fd, max, &result.bytes);
    (void)close(plan->data); /* the end of the data, before the result */
    char text[128];
    (void)snprintf(text, sizeof text, "%s", error ? strerror(error) : "");
    result.error_number = error;
    result.error = text;
    file_send_result(plan, &result);
}

static int copy_in(const struct file_plan *plan, int fd, uint64_t *moved)
{
    static uint8_t step[COPY_STEP];
    for (;;) {
        ssize_t n = read(plan->data, step, sizeof step);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : 0;
        errno = 0;
        if (cl_write_all(fd, step, (size_t)n, NULL) < 0)
            return errno ? errno : EIO;
        *moved += (uint64_t)n;
    }
}

/* Did the agent say that the end of the data was the end of the file? */
static bool is_committed(const struct file_plan *plan)
{
    char word;
    return recv(plan->ctl, &word, 1, 0) == 1;
}

#define TEMPORARY_HEAD ".cloche-"
#define TEMPORARY_TAIL ".tmp"

bool file_is_temporary(const char *name)
{
    size_t head = strlen(TEMPORARY_HEAD), tail = strlen(TEMPORARY_TAIL), n = strlen(name);
    return n == head + TEMPORARY_HEX + tail && memcmp(name, TEMPORARY_HEAD, head) == 0 &&
           memcmp(name + n - tail, TEMPORARY_TAIL, tail) == 0;
}

static int temporary_name(const char *path, char out[static PATH_MAX])
{
    char copy[PATH_MAX], hex[TEMPORARY_HEX + 1];
    uint8_t noise[TEMPORARY_HEX / 2];
    if (strlen(path) >= sizeof copy)
        return ENAMETOOLONG;
    memcpy(copy, path, strlen(path) + 1);
    cl_random(noise, sizeof noise);
    cl_hex(noise, sizeof noise, hex);
    int n = snprintf(out, PATH_MAX, "%s/" TEMPORARY_HEAD "%s" TEMPORARY_TAIL, dirname(copy), hex);
    return n < 0 || n >= PATH_MAX ? ENAMETOOLONG : 0;
}

static int write_file(const struct file_plan *plan, const char *tmp, uint64_t *moved)
{
    mode_t mode = plan->op->mode ? plan->op->mode & 0777 : 0644;
    struct stat st;
    if (stat(plan->op->path, &st) == 0 && S_ISDIR(st.st_mode))
        return EISDIR;
    CL_AUTO(cl_closep) int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int error = copy_in(plan, fd, moved);
    if (error == 0 && !is_committed(plan))
        error = ECANCELED;
    if (error == 0 && (fchmod(fd, mode) < 0 || rename(tmp, plan->op->path) < 0))
        error = errno;
    if (error != 0)
        (void)unlink(tmp);
    return error;
}

static void do_write(const struct file_plan *plan)
{
    Cloche__V1__GuestFileResult result;
    cloche__v1__guest_file_result__init(&result);
    char tmp[PATH_MAX], text[128];
    int error = temporary_name(plan->op->path, tmp);
    if (error == 0)
        error = write_file(plan, tmp, &result.bytes);
    (void)snprintf(text, sizeof text, "%s", error ? strerror(error) : "");
    result.error_number = error;
    result.error = text;
    file_send_result(plan, &result);
}

/* --- names ------------------------------------------------------------------------------------ */

static void do_stat(const struct file_plan *plan)
{
    struct file_entry entry;
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof copy, "%s", plan->op->path);
    int error = file_entry_read(AT_FDCWD, plan->op->path, &entry);
    if (error != 0) {
        send_error(plan, error);
        return;
    }
    file_entry_name(&entry, basename(copy));
    Cloche__V1__GuestFileResult result;
    cloche__v1__guest_file_result__init(&result);
    Cloche__V1__GuestFileEntry *entries[] = {&entry.message};
    result.entries = entries;
    result.n_entries = 1;
    file_send_result(plan, &result);
}

static void do_list(const struct file_plan *plan)
{
    uint32_t limit =
        plan->op->limit ? CL_MIN(plan->op->limit, (uint32_t)FILE_LIST_MAX) : FILE_LIST_DEFAULT;
    struct file_list list;
    int error = file_list_read(plan->op->path, plan->op->after, limit, &list);
    if (error != 0) {
        send_error(plan, error);
        return;
    }
    size_t at = 0;
    do {
        Cloche__V1__GuestFileResult result;
        cloche__v1__guest_file_result__init(&result);
        at = file_list_page(&list, at, &result);
        result.more = at < list.n;
        file_send_result(plan, &result);
    } while (at < list.n);
}

static int do_mkdir(const Cloche__V1__GuestFileOp *op)
{
    mode_t mode = op->mode ? op->mode & 07777 : 0755;
    if (!op->recursive)
        return mkdir(op->path, mode) < 0 ? errno : 0;
    struct cl_err err;
    struct stat st;
    if (cl_mkdir_p(op->path, mode, &err) < 0)
        return err.sys ? err.sys : EINVAL;
    return stat(op->path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : EEXIST;
}

static int do_remove(const Cloche__V1__GuestFileOp *op)
{
    struct cl_err err;
    struct stat st;
    if (lstat(op->path, &st) < 0)
        return errno;
    if (op->recursive && S_ISDIR(st.st_mode))
        return cl_remove_tree(op->path, &err) < 0 ? (err.sys ? err.sys : EIO) : 0;
    return (S_ISDIR(st.st_mode) ? rmdir(op->path) : unlink(op->path)) < 0 ? errno : 0;
}

void file_ops_run(void *arg)
{
    const struct file_plan *plan = arg;
    const Cloche__V1__GuestFileOp *op = plan->op;
    if (chdir(plan->cwd) < 0 && op->path[0] != '/') {
        send_error(plan, errno);
        return;
    }
    switch (op->kind) {
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_READ:
        do_read(plan);
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WRITE:
        do_write(plan);
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_LIST:
        do_list(plan);
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_STAT:
        do_stat(plan);
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_MKDIR:
        send_error(plan, do_mkdir(op));
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_REMOVE:
        send_error(plan, do_remove(op));
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_RENAME:
        send_error(plan, rename(op->path, op->to) < 0 ? errno : 0);
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WATCH:
        send_error(plan, file_watch(plan));
        return;
    case CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_UNSPECIFIED:
    case _CLOCHE__V1__GUEST_FILE_KIND_IS_INT_SIZE:
        break;
    }
    send_error(plan, EOPNOTSUPP);
}

void file_ops_sweep(void *path)
{
    _exit(cl_remove_tree(path, NULL) < 0);
}
