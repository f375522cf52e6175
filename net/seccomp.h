/* net/seccomp.h - what cloche-net may call once it looks at its guest's frames. */
#ifndef CL_NET_SECCOMP_H
#define CL_NET_SECCOMP_H

#include "base/err.h"
#include "base/sandbox.h"
#include "base/util.h"

extern const struct cl_profile net_profile;
int net_seccomp(struct cl_err *err) CL_MUST;

#endif
