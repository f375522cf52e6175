/* worker/disk.h - scratch disks: one sparse file a VM, without a name, gone with its last fd.
 *
 * Owns:    nothing; fds are the caller's.
 * Thread:  the worker loop.  Making one copies what the template's disk holds (a few hundred KiB).
 */
#ifndef CL_WORKER_DISK_H
#define CL_WORKER_DISK_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { DISK_DEFAULT_MIB = 512, DISK_MAX_MIB = 8192 }; /* policy/limits.def: unit_disk_mib */

/* A new file in dir with the content of `source`, `bytes` long (not shorter than source).  It has
 * no name: whatever becomes of us, it is erased when the last process that has it open ends. */
int disk_make(const char *dir, int source, uint64_t bytes, int *ret_fd, struct cl_err *err) CL_MUST;
/* What it takes of the host now. */
uint64_t disk_taken(int fd);

#endif
