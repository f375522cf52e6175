/* scheduler/tokens.h - bearer tokens of one authorization server: the second verifier behind
 * auth_check() (DECISIONS §8).
 *
 * Owns:    the rules and the key set.
 * Thread:  the loop's.
 * The key set is a file that somebody else keeps fresh (a change is seen within TOKENS_LOOK_S), or
 * fetched from the issuer (scheduler/key_fetch.h).  One that cannot be used is logged and the old
 * set kept.
 */
#ifndef CL_SCHEDULER_TOKENS_H
#define CL_SCHEDULER_TOKENS_H

#include "base/loop.h"
#include "base/own.h"
#include "policy/jwt.h"
#include "scheduler/options.h"

struct tokens;

enum { TOKENS_LOOK_S = 5 };

/* *ret_tokens is NULL when the options name no issuer: then no token is valid. */
int tokens_new(struct cl_loop *loop, const struct sched_options *o, struct tokens **ret_tokens,
               struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void tokens_free(struct tokens *t);
/* As jwt_verify(), at the present time; UNAVAILABLE before the first key set is there. */
int tokens_verify(const struct tokens *t, const char *token, struct principal *ret,
                  struct cl_err *err) CL_MUST;

#endif
