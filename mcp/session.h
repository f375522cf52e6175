/* mcp/session.h - names that the gateway gives out without remembering them: session ids of the
 * legacy era and page cursors, each with a MAC over what it says and whom it was given to.
 *
 * An id that was made for another principal, that is expired or that was altered is simply not
 * valid: there is nothing to look up and nothing to guess.
 * Owns:    nothing.
 * Thread:  any.  Pure: the caller passes time and randomness.
 * Source:  MCP 2025-11-25, Streamable HTTP, session management.
 */
#ifndef CL_MCP_SESSION_H
#define CL_MCP_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MCP_SECRET = 32,       /* bytes of the key of all MACs */
    MCP_SESSION_TEXT = 96, /* "s1-<16 hex nonce>-<hex expiry>-<32 hex MAC>" and NUL, with room */
    MCP_SESSION_NONCE = 8,
    MCP_SESSION_S = 24 * 3600,
    MCP_PRINCIPAL = 136, /* "tenant/key id" or "tenant/subject" and NUL */
};

void mcp_session_make(const uint8_t secret[static MCP_SECRET], const char *principal,
                      const uint8_t nonce[static MCP_SESSION_NONCE], uint64_t expires_s,
                      char out[static MCP_SESSION_TEXT]);
bool mcp_session_is_valid(const uint8_t secret[static MCP_SECRET], const char *principal,
                          const char *session, uint64_t now_s);
/* A short name of a session for labels and idempotency keys: 32 hex digits.  Nobody can make the
 * session from it. */
enum { MCP_DIGEST_TEXT = 33 };
void mcp_digest(const uint8_t secret[static MCP_SECRET], const char *what, const char *text,
                char out[static MCP_DIGEST_TEXT]);

#endif
