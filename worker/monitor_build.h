/* worker/monitor_build.h - the builds of cloche-vmm that a worker runs, each from a copy of its
 * own.
 *
 * What a VM left goes on only under the build that saved it: the state of the devices is that
 * build's, and so is the shim in the memory of a Xen-PV guest.  So a worker runs a copy of the
 * cloche-vmm that it was started with, DIR/SHA256/cloche-vmm, and keeps it as long as anything that
 * rests there needs it.  An upgrade ends nothing, and a file that is exchanged under a worker that
 * runs is not the monitor of its clones.
 *
 * Owns:    nothing; the folder is the worker's, 0700: a guardian opens the file before it is
 *          another user, who may execute it.
 * Thread:  the worker loop.  Reads and writes a file of about a MiB.
 */
#ifndef CL_WORKER_MONITOR_BUILD_H
#define CL_WORKER_MONITOR_BUILD_H

#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"

enum {
    MONITOR_HEX = 65,    /* SHA-256 in hex and its NUL */
    MONITOR_BUILD = 64,  /* with its NUL */
    MONITORS_NEWEST = 4, /* stay without a need: another host's sandboxes may come with one */
};
#define MONITOR_MAX (64 * UINT64_C(1048576)) /* bytes of its file */

struct monitor_build {
    char build[MONITOR_BUILD]; /* as cloche-vmm --probe says; the caller's */
    char sha256[MONITOR_HEX];  /* of its file; "" = there is no copy, and it is run where it is */
    char path[PATH_MAX];       /* "" = none: QEMU is the monitor */
};

/* Copy the program to `dir`, unless it is there.  UNAVAILABLE where no file can be executed. */
int monitor_copy(const char *dir, const char *program, struct monitor_build *ret_monitor,
                 struct cl_err *err) CL_MUST;
/* The copy of that digest, which is checked; NOTFOUND when there is none, or another. */
int monitor_find(const char *dir, const char *sha256, struct monitor_build *ret_monitor,
                 struct cl_err *err) CL_MUST;
/* Remove all copies but the newest and those that are needed.  A missing folder is a no-op. */
void monitor_sweep(const char *dir, bool (*is_needed)(const void *arg, const char *sha256),
                   const void *arg);

#endif
