/* policy/link.h - links to ports of a sandbox: `clp_<26 characters of the sandbox's id>_<secret>`.
 *
 * The secret is 52 characters of Crockford base32, lower-case, so that it can stand in a host name
 * (RFC 1035: at most 63).  It holds no sandbox: that is told beside it.  32 bytes:
 *
 *   version 1 | port 2 | expires 5 (s since 1970) | id of the key that made it 8 | MAC 16
 *
 * all big-endian; the MAC is HMAC-SHA-256, cut, under a key derived from the schedulers' pepper,
 * over the sandbox's id and what is before it.  So nothing is stored, every scheduler of an
 * installation opens it, and who revokes the key has revoked its links. Owns:    nothing. Thread:
 * any. Pure: the caller passes the time.
 */
#ifndef CL_POLICY_LINK_H
#define CL_POLICY_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/util.h"
#include "policy/key.h"

enum {
    LINK_SECRET = 52 + 1,                 /* characters and NUL */
    LINK_TEXT = 4 + 26 + 1 + LINK_SECRET, /* whole text and NUL */
};

struct link_facts {
    char sandbox[CL_ID_MAX]; /* "sbx_..." */
    char key_id[API_KEY_ID];
    uint32_t port;      /* 0 = every one */
    uint64_t expires_s; /* s since 1970; 0 = never by itself */
};

/* Does it look like one?  (What it is not is then no key, and not shown to whom it is not for.) */
bool link_is_like(const char *text);
/* The facts must be well-formed (a sandbox's id, a key's id, a port of 16 bits, a time of 40). */
int link_make(const struct link_facts *facts, const uint8_t *pepper, size_t n,
              char text[static LINK_TEXT], struct cl_err *err) CL_MUST;
/* Hostile.  UNAUTH unless it was made with this pepper and now_s is before its end; one text for
 * all reasons but the last.  Whether its key is good is the caller's to ask. */
int link_open(const char *text, const uint8_t *pepper, size_t n, uint64_t now_s,
              struct link_facts *ret, struct cl_err *err) CL_MUST;

#endif
