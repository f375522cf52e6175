/* trail/reader/seccomp.h - what cloche-audit-reader may call once it serves. */
#ifndef CL_TRAIL_READER_SECCOMP_H
#define CL_TRAIL_READER_SECCOMP_H

#include "base/sandbox.h"

extern const struct cl_profile reader_profile;
int reader_seccomp(struct cl_err *err) CL_MUST;

#endif
