/* agent/identity.h - what makes this VM unlike its siblings of the same snapshot.
 *
 * Applies: entropy, clock, host name, machine id, bounds.  May come again at any time.
 * Files under /etc may be user code's by then: they are replaced through a path without links,
 * never written through.
 */
#ifndef CL_AGENT_IDENTITY_H
#define CL_AGENT_IDENTITY_H

#include "agent/cgroup.h"
#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

enum { IDENTITY_ENTROPY_MIN = 32, IDENTITY_ENTROPY_MAX = 512 };

/* Everything is tried; err tells the first thing that failed. */
int identity_apply(const Cloche__V1__GuestIdentity *id, const struct cgroups *groups,
                   int scratch_fd, struct cl_err *err) CL_MUST;

#endif
