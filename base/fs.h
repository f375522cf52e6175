/* base/fs.h - small files and folders, with errors that name the path.
 *
 * Thread: any; these calls block on the disk, so a loop uses them only at start and end, or for
 * files of a few KiB.
 */
#ifndef CL_BASE_FS_H
#define CL_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

/* Read a whole file into buf (its max is the limit); path is relative to dir_fd (or AT_FDCWD). */
int cl_file_read(int dir_fd, const char *path, struct cl_buf *buf, struct cl_err *err) CL_MUST;
/* Write atomically: temporary file, fsync, rename, fsync of the folder. */
int cl_file_write(const char *path, const void *data, size_t n, mode_t mode,
                  struct cl_err *err) CL_MUST;
/* A file without a name in this folder, 0600, for reading and writing: gone with its last fd. */
int cl_file_unnamed(const char *dir, int *ret_fd, struct cl_err *err) CL_MUST;
/* The same, but that it can be given a name in the folder's file system: once; without a name again
 * it stays without.  Some file systems cannot: ENOENT. */
int cl_file_nameable(const char *dir, int *ret_fd, struct cl_err *err) CL_MUST;
int cl_file_name(int fd, const char *path, struct cl_err *err) CL_MUST;
/* Remove the name, unless it is another file's by now. */
void cl_file_unname(int fd, const char *path);
/* Of qsort(3), by two times of files: the later one comes first. */
int cl_newest_first(const struct timespec *a, const struct timespec *b);
/* mkdir -p; new folders get `mode`. */
int cl_mkdir_p(const char *path, mode_t mode, struct cl_err *err) CL_MUST;
/* rm -r of path, crossing no mount and following no link.  A missing path is success. */
int cl_remove_tree(const char *path, struct cl_err *err) CL_MUST;
/* Open a folder and lock it, flock(2), shared or exclusively, until its fd is closed.  NOTFOUND: no
 * such folder; UNAVAILABLE: another holds it so that both cannot.  Where locks do not exist (some
 * network file systems) a shared one is nothing, and nobody gets the other. */
int cl_lock_folder(const char *path, bool exclusive, int *ret_fd, struct cl_err *err) CL_MUST;
/* Free bytes of the file system that holds path; 0 and an error text if it cannot be asked. */
int cl_disk_free(const char *path, uint64_t *ret_bytes, struct cl_err *err) CL_MUST;
/* Write or read all n bytes of a blocking fd; EOF while reading is an error. */
int cl_write_all(int fd, const void *data, size_t n, struct cl_err *err) CL_MUST;
int cl_read_all(int fd, void *data, size_t n, struct cl_err *err) CL_MUST;
/* Bind and listen on a unix socket; replaces a stale one; refuses a path over 107 bytes with the
 * remedy.  Non-blocking, close-on-exec. */
int cl_unix_listen(const char *path, mode_t mode, int *ret_fd, struct cl_err *err) CL_MUST;
/* The same without listen(2): who connects is refused. */
int cl_unix_bind(const char *path, mode_t mode, int *ret_fd, struct cl_err *err) CL_MUST;
int cl_unix_connect(const char *path, int *ret_fd, struct cl_err *err) CL_MUST;
/* Close-on-exec for the fd of a library that opened it without (libevent's connecting sockets);
 * -1 is a no-op. */
void cl_fd_cloexec(int fd);

#endif
