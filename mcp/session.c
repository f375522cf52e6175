/* mcp/session.c - see mcp/session.h. */
#include "mcp/session.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "base/util.h"

enum { MAC_BYTES = 16 };

/* The first half of HMAC-SHA-256 over text, with a key of its own for each purpose. */
void mcp_digest(const uint8_t secret[static MCP_SECRET], const char *what, const char *text,
                char out[static MCP_DIGEST_TEXT])
{
    uint8_t mac[EVP_MAX_MD_SIZE], half[MCP_SECRET];
    unsigned n = 0;
    CL_ASSERT(
        HMAC(EVP_sha256(), secret, MCP_SECRET, (const uint8_t *)what, strlen(what), half, &n) &&
        n == sizeof half);
    CL_ASSERT(HMAC(EVP_sha256(), half, sizeof half, (const uint8_t *)text, strlen(text), mac, &n));
    cl_hex(mac, MAC_BYTES, out);
}

void mcp_session_make(const uint8_t secret[static MCP_SECRET], const char *principal,
                      const uint8_t nonce[static MCP_SESSION_NONCE], uint64_t expires_s,
                      char out[static MCP_SESSION_TEXT])
{
    char hex[2 * MCP_SESSION_NONCE + 1], head[48], text[256], mac[MCP_DIGEST_TEXT];
    cl_hex(nonce, MCP_SESSION_NONCE, hex);
    (void)snprintf(head, sizeof head, "s1-%s-%" PRIx64, hex, expires_s);
    (void)snprintf(text, sizeof text, "%s %s", head, principal);
    mcp_digest(secret, "session", text, mac);
    (void)snprintf(out, MCP_SESSION_TEXT, "%s-%s", head, mac);
}

/* "s1-NONCE-EXPIRY-MAC": made again from its own parts it must be the same. */
bool mcp_session_is_valid(const uint8_t secret[static MCP_SECRET], const char *principal,
                          const char *session, uint64_t now_s)
{
    uint8_t nonce[MCP_SESSION_NONCE];
    char again[MCP_SESSION_TEXT], *end;
    size_t n = strlen(session);
    if (n >= MCP_SESSION_TEXT || n < 3 + 2 * MCP_SESSION_NONCE + 3 ||
        strncmp(session, "s1-", 3) != 0 ||
        !cl_unhex(session + 3, 2 * MCP_SESSION_NONCE, nonce, sizeof nonce))
        return false;
    uint64_t expires_s = strtoull(session + 3 + 2 * MCP_SESSION_NONCE + 1, &end, 16);
    mcp_session_make(secret, principal, nonce, expires_s, again);
    return strlen(again) == n && CRYPTO_memcmp(again, session, n) == 0 && now_s < expires_s;
}
