/* gateway/seccomp.h - what cloche-gateway may call once it runs.
 *
 * Owns:    nothing.
 * Thread:  start-up.
 */
#ifndef CL_GATEWAY_SECCOMP_H
#define CL_GATEWAY_SECCOMP_H

#include "base/err.h"
#include "base/sandbox.h"
#include "base/util.h"

extern const struct cl_profile gateway_profile;
int gateway_seccomp(struct cl_err *err) CL_MUST;

#endif
