/* worker/seccomp.h - what cloche-worker, its guardians and its VMs may not call.
 *
 * The worker starts guardians and through them QEMU, so an allow table of its own would have to
 * hold everything that they need.  It refuses instead what none of them ever needs; the filter is
 * inherited.
 */
#ifndef CL_WORKER_SECCOMP_H
#define CL_WORKER_SECCOMP_H

#include "base/err.h"
#include "base/sandbox.h"

extern const struct cl_profile worker_refused; /* rows answer EPERM */

int worker_seccomp(struct cl_err *err) CL_MUST;

#endif
