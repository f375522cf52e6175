/* vmm/confine.h - what a monitor gives up before it hears its first command.
 *
 * cloche-guard has built the jail around it (worker/jail.h: namespaces, an empty root, a uid of its
 * own, no capabilities, rlimits); this is the part that an exec would undo or that only the process
 * itself can do.
 * Thread: the only one, at the start.
 */
#ifndef CL_VMM_CONFINE_H
#define CL_VMM_CONFINE_H

#include "base/err.h"
#include "base/util.h"

/* No core file, no tracer of the same uid; no privileges by exec; no file of any path, no TCP port,
 * where the kernel has Landlock (an older one goes without: the jail's root is empty anyway). */
int confine_process(struct cl_err *err) CL_MUST;

#endif
