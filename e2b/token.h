/* e2b/token.h - the access token of a sandbox: what E2B's SDKs send to envd instead of an API key.
 *
 * It carries the credential of who made the sandbox, sealed (AES-256-GCM) for that sandbox, so that
 * the gateway keeps no table: any gateway with the same secret opens it.  Who holds one can do in
 * that sandbox what the credential may, until the credential is revoked or the sandbox ends, and
 * learns neither the credential nor anything of another sandbox.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure, but for the random nonce.
 * Source:  NIST SP 800-38D; a nonce of 96 random bits, so fewer than 2^32 tokens a secret.
 */
#ifndef CL_E2B_TOKEN_H
#define CL_E2B_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/util.h"

enum {
    E2B_SECRET = 32,
    E2B_PLAIN_MAX = 6000, /* credential and environment: the token must fit into a head */
    E2B_TOKEN_MAX = 8200, /* base64 of that, nonce and tag, the prefix, and NUL */
};

struct e2b_grant {
    char sandbox[CL_ID_MAX];
    /* The credential, NUL, the environment as JSON ("" = none), NUL; and where one of them is said,
     * user and working folder of commands that name none, each with a NUL. */
    char text[E2B_PLAIN_MAX];
    size_t n;                                  /* of text */
    const char *credential, *env, *user, *cwd; /* in text, or "" */
};

/* Fill a grant; TOOBIG when it does not fit. */
int e2b_grant_make(const char *sandbox, const char *credential, const char *env,
                   struct e2b_grant *ret_grant, struct cl_err *err) CL_MUST;
/* Whose, and where, commands are that do not say it; "" = the default; likewise. */
int e2b_grant_set_place(struct e2b_grant *grant, const char *user, const char *cwd,
                        struct cl_err *err) CL_MUST;
int e2b_token_seal(const uint8_t secret[static E2B_SECRET], const struct e2b_grant *grant,
                   char token[static E2B_TOKEN_MAX], struct cl_err *err) CL_MUST;
/* Hostile.  UNAUTH unless it was sealed with this secret. */
int e2b_token_open(const uint8_t secret[static E2B_SECRET], const char *token,
                   struct e2b_grant *ret_grant, struct cl_err *err) CL_MUST;

#endif
