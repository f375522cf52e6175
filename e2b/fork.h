/* e2b/fork.h - what one request for forks says, and what becomes of it.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml: SandboxForkRequest, SandboxForkResult.
 */
#ifndef CL_E2B_FORK_H
#define CL_E2B_FORK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { E2B_FORKS_MAX = 20 /* of one request, as the SDKs ask; without it, one takes the quota */ };

struct e2b_fork {
    uint64_t seconds; /* idle time to live of each */
    size_t count;
};
/* The body may be NULL.  INVALID; *ret is written on success only. */
int e2b_fork_read(const json_t *body, uint64_t seconds_max, struct e2b_fork *ret,
                  struct cl_err *err) CL_MUST;

/* Is it the sandbox, the caller or the request that this error of the first fork is about?  Then no
 * other can be made, and it is the answer to all; else it is one of the list. */
bool e2b_fork_ends_all(enum cl_code code);

#endif
