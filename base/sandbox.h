/* base/sandbox.h - seccomp from a table: what a process may call, and why.
 *
 * Thread: the calling one, and those it makes afterwards.
 * A call that is not in an allow table kills the process; the kernel's log names it.
 */
#ifndef CL_BASE_SANDBOX_H
#define CL_BASE_SANDBOX_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

struct cl_allow {
    int nr; /* SCMP_SYS(name) */
    const char *why;
};

/* A process's whole table: exported by its owner, walked by the tests and by PRIVSEP.md's check. */
struct cl_profile {
    const char *process;
    const struct cl_allow *rows;
    size_t n;
};

/* Allow the rows (and, in a build with sanitizers, what their run time needs), refuse the rest.
 * Sets no_new_privs. */
int cl_sandbox_apply(const struct cl_allow *rows, size_t n, struct cl_err *err) CL_MUST;
/* The other way round, for a process whose children need what it does not: the rows answer EPERM,
 * here and in everything that is started from here; all else is allowed. */
int cl_sandbox_refuse(const struct cl_allow *rows, size_t n, struct cl_err *err) CL_MUST;

#endif
