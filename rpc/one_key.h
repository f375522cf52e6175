/* rpc/one_key.h - what a client calls several calls of one request of its user's by: with the same
 * idempotency key the same request again is the same calls.
 *
 * Owns:    nothing.
 * Thread:  any.
 */
#ifndef CL_RPC_ONE_KEY_H
#define CL_RPC_ONE_KEY_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    RPC_KEY = 256,     /* an idempotency key and its NUL */
    RPC_WORD = 32 + 1, /* 16 bytes as hex, and NUL */
};

/* The key of the n-th (1...) of them: KEY, KEY.2, KEY.3; "" without one (NULL or "").  INVALID when
 * it would be longer than one may be. */
int rpc_nth_key(const char *key, uint64_t n, char out[static RPC_KEY], struct cl_err *err) CL_MUST;
/* A word for all of them: of the key, or, without one, a new one. */
void rpc_word(const char *key, char out[static RPC_WORD]);

#endif
