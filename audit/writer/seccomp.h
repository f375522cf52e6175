/* audit/writer/seccomp.h - what cloche-audit may call once it runs. */
#ifndef CL_AUDIT_WRITER_SECCOMP_H
#define CL_AUDIT_WRITER_SECCOMP_H

#include "base/err.h"
#include "base/sandbox.h"
#include "base/util.h"

extern const struct cl_profile writer_profile;
int writer_seccomp(struct cl_err *err) CL_MUST;

#endif
