/* worker/guard_seccomp.h - what a guardian may call once its VM runs. */
#ifndef CL_WORKER_GUARD_SECCOMP_H
#define CL_WORKER_GUARD_SECCOMP_H

#include "base/filter.h"

extern const struct cl_filter_profile guard_profiles[1];
extern const struct cl_filter guard_filters[1]; /* made from it when it is built */

#endif
