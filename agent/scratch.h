/* agent/scratch.h - the writable layer under the overlay: on the scratch disk, or a tmpfs.
 *
 * The disk is a sparse file of the host, made for this VM and gone with it.  Its file system (ext4,
 * empty, small) is grown to the size of the disk: at boot to the template's, and when a sandbox
 * may have more the host enlarges the disk first.
 * Thread: the agent's; a disk that grows is awaited for SCRATCH_WAIT_MS at most.
 */
#ifndef CL_AGENT_SCRATCH_H
#define CL_AGENT_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    SCRATCH_DEVICE = 32,
    SCRATCH_WAIT_MS = 2000,
    SCRATCH_TRIM_S = 5, /* so long what is deleted stays with the guest, while its agent is awake */
};

/* The device node of the disk with the serial "scratch"; false while there is none. */
bool scratch_find(char device[static SCRATCH_DEVICE]);
/* Grow the file system to the whole disk, which must reach `bytes` (0 = as it is). */
int scratch_grow(int scratch_fd, uint64_t bytes, struct cl_err *err) CL_MUST;
/* Let user code have this much of it; 0 = what there is. */
int scratch_limit(int scratch_fd, uint64_t bytes, struct cl_err *err) CL_MUST;
/* What was deleted since goes back to the host, but for scraps of less than 256 KiB: in one group
 * of blocks, the one at `*at`, which becomes the next one.  False behind the last, then *at is 0. A
 * group in which nothing was deleted costs some microseconds, another one 512 requests at most. */
bool scratch_trim(int scratch_fd, uint64_t *at);

#endif
