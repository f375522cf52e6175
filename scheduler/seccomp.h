/* scheduler/seccomp.h - what cloche-scheduler may call once it serves. */
#ifndef CL_SCHEDULER_SECCOMP_H
#define CL_SCHEDULER_SECCOMP_H

#include "base/err.h"
#include "base/sandbox.h"

extern const struct cl_profile sched_profile;
int sched_seccomp(struct cl_err *err) CL_MUST;

#endif
