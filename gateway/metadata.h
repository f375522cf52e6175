/* gateway/metadata.h - what a client must know to get a token: the protected resource's metadata.
 *
 * Served only when the configuration names an authorization server; tokens are verified by the
 * scheduler, API keys go on working.
 * Owns:    its texts.
 * Thread:  any after it was made.  Pure.
 * Source:  RFC 9728; MCP 2026-07-28, authorization.
 */
#ifndef CL_GATEWAY_METADATA_H
#define CL_GATEWAY_METADATA_H

#include "base/err.h"
#include "base/util.h"

#define METADATA_PATH "/.well-known/oauth-protected-resource"

enum { METADATA_JSON = 4096, METADATA_CHALLENGE = 1024 };

struct metadata {
    char json[METADATA_JSON];
    char challenge[METADATA_CHALLENGE]; /* parameters for WWW-Authenticate: where the json is */
};

/* resource: "https://HOST/mcp" (http on loopback only); servers: issuers separated by commas.
 * INVALID when one is no such URL. */
int metadata_make(const char *resource, const char *servers, struct metadata *ret,
                  struct cl_err *err) CL_MUST;

#endif
