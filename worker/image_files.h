/* worker/image_files.h - files of images that are what their manifests say: read once, by turns.
 *
 * An image has some hundred megabytes, and whoever asks for a template's odd size names them again:
 * a worker that read them each time, in one go, would stand still for all its tenants.  So a file
 * whose digest was checked stays open, and is not read again however often it is wanted, unless
 * its inode says that it changed since.
 *
 * Owns:    an fd of each file that it knows; what is under way.
 * Thread:  the worker loop.  A check goes by turns of TURN_NS, one check at a time.
 * Limits:  IMAGE_FILES_MAX files; the one that was not wanted for longest goes first, and those
 * that were deleted go when the next is wanted, as they would fill the disk.
 */
#ifndef CL_WORKER_IMAGE_FILES_H
#define CL_WORKER_IMAGE_FILES_H

#include <stddef.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/util.h"

enum { IMAGE_FILES_MAX = 64, IMAGE_FILES_HEX = 65 /* SHA-256 in hex and its NUL */ };

struct image_files;
struct image_check;

int image_files_new(struct cl_loop *loop, struct image_files **ret_files,
                    struct cl_err *err) CL_MUST;
/* Nothing may be under way.  NULL is a no-op. */
void image_files_free(struct image_files *files);
/* An fd, yours, of a file with that digest; -1 = none is known. */
int image_files_find(struct image_files *files, const char *sha256);

struct image_file {
    const char *name, *sha256; /* borrowed, until the check is done */
    int fd;                    /* borrowed */
};
/* Read it here and now, and know it from then on; `files` may be NULL.  DATALOSS when its digest is
 * another. */
int image_files_check(struct image_files *files, const struct image_file *file,
                      struct cl_err *err) CL_MUST;

/* err == NULL: each of them is what it should be. */
typedef void image_check_fn(void *arg, const struct cl_err *err);

enum { IMAGE_CHECK_MAX = 4 };
/* The same of up to IMAGE_CHECK_MAX files, by turns; `done` comes once, and never inside a call. */
struct image_check_spec {
    struct image_file files[IMAGE_CHECK_MAX];
    size_t n;
    image_check_fn *done;
    void *arg;
};
int image_check_start(struct image_files *files, const struct image_check_spec *spec,
                      struct image_check **ret_check, struct cl_err *err) CL_MUST;
/* Its `done` does not run any more; not needed once it has.  NULL is a no-op. */
void image_check_cancel(struct image_check *check);

#endif
