/* worker/disk.h - scratch disks: one sparse file a VM, without a name, gone with its last fd.
 *
 * Owns:    nothing; fds are the caller's.
 * Thread:  the worker loop.  Making one of a template copies what its disk holds (a few
 *          hundred KiB); one of a sandbox may have gigabytes.
 */
#ifndef CL_WORKER_DISK_H
#define CL_WORKER_DISK_H

#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/util.h"

enum { DISK_DEFAULT_MIB = 512, DISK_MAX_MIB = 8192 }; /* policy/limits.def: unit_disk_mib */

/* A new file in dir with the content of `source`, `bytes` long (not shorter than source).  It has
 * no name: whatever becomes of us, it is erased when the last process that has it open ends. */
int disk_make(const char *dir, int source, uint64_t bytes, int *ret_fd, struct cl_err *err) CL_MUST;
struct disk_copy;

struct disk_copy_spec {
    const char *dir; /* where it is made */
    int source;      /* must not change meanwhile */
    /* Its fd, or why there is none; once, and never inside a call. */
    void (*done)(void *arg, int fd, const struct cl_err *err);
    void *arg;
};

/* A copy of a disk, a piece a turn of the loop.  Where the file system can share blocks it takes no
 * time. */
int disk_copy_start(struct cl_loop *loop, const struct disk_copy_spec *spec,
                    struct disk_copy **ret_copy, struct cl_err *err) CL_MUST;
/* Stop it; also once it is done.  NULL is a no-op. */
void disk_copy_free(struct disk_copy *copy);
/* What it takes of the host now. */
uint64_t disk_taken(int fd);

#endif
