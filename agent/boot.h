/* agent/boot.h - from the kernel's first process to a root file system that user code may see.
 *
 * Owns:    nothing afterwards but the two fds that it hands out.
 * Order:   /dev /proc /sys, modules, dm-verity, EROFS, overlay on a bounded tmpfs, the channel,
 *          then the switch to the new root with a /dev of its own (block devices and the channel
 *          have no node there).
 * Thread:  start-up only.
 */
#ifndef CL_AGENT_BOOT_H
#define CL_AGENT_BOOT_H

#include "agent/person.h"
#include "base/err.h"
#include "base/util.h"

struct boot {
    const struct people *people; /* static: who code runs as */
    int chan_fd;                 /* owned: the way to the worker (port.h) */
    uint64_t sensor_us;          /* of the command line */
    int scratch_fd; /* owned: root of the writable layer: a tmpfs, or the scratch disk */
};

int boot_run(struct boot *ret_boot, struct cl_err *err) CL_MUST;
/* Switch the machine off; the last act after an error.  `why` goes to the console. */
_Noreturn void boot_power_off(const char *why);

#endif
