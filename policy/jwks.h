/* policy/jwks.h - the public keys that an authorization server signs its tokens with: a JWK set
 * (RFC 7517), read from text.
 *
 * Owns:    the parsed keys.
 * Limit:   JWKS_MAX bytes, JWKS_KEYS keys; without them a bad or hijacked key server could fill our
 *          memory, or make every token be tried against a million keys.
 * Thread:  any; a set does not change once it is parsed.
 */
#ifndef CL_POLICY_JWKS_H
#define CL_POLICY_JWKS_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum { JWKS_MAX = 256 * 1024, JWKS_KEYS = 64, JWK_KID = 128 };

/* RFC 7518 §3.1 and RFC 8037.  Nothing with a shared secret, nothing unsigned: a key's kind fixes
 * its algorithm, whatever a token says (RFC 8725 §2.1). */
enum jwt_alg { JWT_RS256 = 1, JWT_ES256, JWT_EDDSA };

struct jwks;

/* INVALID with the place of the fault.  Keys of other kinds or uses (RFC 7517 §5 says to ignore
 * them) are passed over; a set without one usable key is INVALID, and so is a key of a known kind
 * with bad numbers: RSA under 2048 or over 8192 bits, a point that is not on its curve. */
int jwks_parse(const char *text, size_t n, struct jwks **ret_keys, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void jwks_free(struct jwks *keys);
CL_DEFINE_AUTO(struct jwks, jwks_free)
size_t jwks_count(const struct jwks *keys);
/* The key for this algorithm with this id, or (kid NULL) the only one for the algorithm; NULL if
 * there is none.  Borrowed. */
EVP_PKEY *jwks_find(const struct jwks *keys, enum jwt_alg alg, const char *kid);

/* base64url without padding (RFC 7515 §2) into out[max]; false for any other text, also for stray
 * bits in the last character. */
bool base64url_decode(const char *in, size_t n, unsigned char *out, size_t max, size_t *ret_n);

#endif
