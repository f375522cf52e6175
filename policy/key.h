/* policy/key.h - API keys: `clk_<16 hex id>_<64 hex secret>`.
 *
 * The secret is shown once and never stored: the books keep HMAC-SHA-256(pepper, secret), and the
 * pepper lies in a file of the scheduler, so a stolen database alone opens nothing.
 * Owns:    nothing; api_key_wipe() when done with a secret.
 * Thread:  any.
 */
#ifndef CL_POLICY_KEY_H
#define CL_POLICY_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    API_KEY_ID = 16 + 1,               /* hex id and NUL */
    API_KEY_SECRET = 32,               /* bytes */
    API_KEY_MAC = 32,                  /* bytes */
    API_KEY_TEXT = 4 + 16 + 1 + 64 + 1 /* whole text and NUL */
};

struct api_key {
    char id[API_KEY_ID];
    uint8_t secret[API_KEY_SECRET];
};

/* A fresh key from the kernel's randomness. */
void api_key_new(struct api_key *ret);
void api_key_format(const struct api_key *key, char out[static API_KEY_TEXT]);
/* UNAUTH unless text has exactly the form above; the text is never quoted in the error. */
int api_key_parse(const char *text, struct api_key *ret, struct cl_err *err) CL_MUST;
/* HMAC-SHA-256 of id and secret under the pepper (16 to 64 bytes). */
int api_key_mac(const struct api_key *key, const uint8_t *pepper, size_t n,
                uint8_t ret_mac[static API_KEY_MAC], struct cl_err *err) CL_MUST;
/* Constant time. */
bool api_key_mac_equal(const uint8_t a[static API_KEY_MAC], const uint8_t b[static API_KEY_MAC]);
void api_key_wipe(struct api_key *key);

#endif
