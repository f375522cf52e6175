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

enum {
    E2B_FORKS_MAX = 20,       /* of one request, as the SDKs ask; without it, one takes the quota */
    E2B_FORK_KEY = 256,       /* an idempotency key and its NUL */
    E2B_FORK_MOMENT = 32 + 1, /* 16 bytes as hex, and NUL */
};

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

/* The same request again, by its key, is the same forks: the n-th (1...) has the key KEY, KEY.2,
 * KEY.3; "" without a key.  INVALID when that is too long. */
int e2b_fork_key(const char *key, size_t n, char out[static E2B_FORK_KEY],
                 struct cl_err *err) CL_MUST;
/* ... of the same moment. */
void e2b_fork_moment_of_key(const char *key, char out[static E2B_FORK_MOMENT]);

#endif
