/* agent/cell_env.h - the variables of one cell, on their way to its runner.
 *
 * Pure: no I/O, no clock.
 */
#ifndef CL_AGENT_CELL_ENV_H
#define CL_AGENT_CELL_ENV_H

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

enum {
    CELL_ENV_MAX = 64 * 1024,
    CELL_ENV_EACH = 10, /* counted with each: as execve(2), and what its line takes */
};

/* 0, or the errno to refuse them with, and why. */
int cell_env_check(const Cloche__V1__GuestCell *cell, Cloche__V1__GuestLanguage language,
                   const char **ret_why) CL_MUST;
/* Append their lines (proto/code_frame.h); what was appended before a failure stays. */
int cell_env_write(const Cloche__V1__GuestCell *cell, struct cl_buf *out,
                   struct cl_err *err) CL_MUST;

#endif
