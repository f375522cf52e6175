/* agent/verity.h - a dm-verity device over a block device, made by ioctl.
 *
 * The root hash on the kernel command line is the trust anchor: the host that wrote it has checked
 * the manifest's signature, and from here on the kernel refuses every block that does not match.
 * Thread: start-up only.
 */
#ifndef CL_AGENT_VERITY_H
#define CL_AGENT_VERITY_H

#include "agent/cmdline.h"
#include "base/err.h"

enum { VERITY_BLOCK = 4096 };

/* Map `device` (data and hash tree in one) read-only as /dev/dm-0; needs /dev and dm-verity. */
int verity_open(const char *device, const struct verity_args *args, struct cl_err *err) CL_MUST;

#endif
