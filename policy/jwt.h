/* policy/jwt.h - a bearer token of an authorization server -> a principal (RFC 7519, as RFC 8725
 * wants it used, and RFC 9068 for the claims of access tokens).
 *
 * Owns:    nothing; a verdict is a plain value.
 * Limit:   JWT_MAX bytes of token.
 * Thread:  any.
 * Pure: the caller passes keys, rules and time.
 */
#ifndef CL_POLICY_JWT_H
#define CL_POLICY_JWT_H

#include "policy/jwks.h"
#include "policy/principal.h"

enum { JWT_MAX = 8192, JWT_SKEW_MAX_S = 60, JWT_SCOPES = 32, JWT_SCOPE = 96 };

/* What the service demands of a token, and how its claims read here. */
struct jwt_rules {
    const char *issuer;       /* `iss`, exactly */
    const char *audience;     /* `aud`, or one of them */
    const char *tenant_claim; /* the claim that names the tenant */
    uint64_t skew_s;          /* at most JWT_SKEW_MAX_S, on `exp`, `nbf` and `iat` */
    size_t n_scopes;
    struct {
        char theirs[JWT_SCOPE];
        uint32_t ours; /* enum scope */
    } scopes[JWT_SCOPES];
};

/* "sandbox:run=run,sandbox:read=read" into the rules; several may have the same left side.  INVALID
 * names the word. */
int jwt_scope_map_parse(const char *text, struct jwt_rules *rules, struct cl_err *err) CL_MUST;

/* Could the text be a token (three parts)?  It tells tokens from API keys, nothing more. */
bool jwt_is_like(const char *text);

/* 0 and the principal: subject "jwt:<sub>" (its SHA-256 when that is too long), key id
 * PRINCIPAL_BY_TOKEN. UNAUTH when the token is not good for this service now, and the text says why
 * without quoting it (subject "kid": a fresher key set may know its key); DENIED when it is, but
 * names no tenant or none of the mapped scopes.  Whether the tenant exists is the caller's
 * question. */
int jwt_verify(const struct jwks *keys, const struct jwt_rules *rules, const char *token,
               uint64_t now_s, struct principal *ret, struct cl_err *err) CL_MUST;

#endif
