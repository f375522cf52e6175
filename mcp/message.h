/* mcp/message.h - one JSON-RPC 2.0 message, checked, and the era of MCP that it speaks.
 *
 * Owns:    mcp_message holds one reference to its tree; all else in it is borrowed from there.
 * Thread:  any.  Pure: bytes and headers in, a verdict out.
 * Source:  JSON-RPC 2.0; MCP 2025-03-26 ... 2025-11-25 (legacy: initialize, sessions) and
 *          2026-07-28 (modern: stateless, _meta in every request).
 */
#ifndef CL_MCP_MESSAGE_H
#define CL_MCP_MESSAGE_H

#include <stdbool.h>

#include "mcp/json.h"
#include "observability/traceparent.h"

#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_LEGACY_VERSION "2025-11-25" /* the newest with sessions */
#define MCP_META "io.modelcontextprotocol/"

enum mcp_kind { MCP_REQUEST = 1, MCP_NOTIFICATION, MCP_RESPONSE };
enum mcp_era { MCP_LEGACY = 1, MCP_MODERN };

/* JSON-RPC and MCP error codes. */
enum {
    MCP_E_PARSE = -32700,
    MCP_E_REQUEST = -32600,
    MCP_E_METHOD = -32601,
    MCP_E_PARAMS = -32602,
    MCP_E_INTERNAL = -32603,
    MCP_E_HEADER = -32020,     /* a header is missing or is not what the body says */
    MCP_E_CAPABILITY = -32021, /* the client lacks a capability that this needs */
    MCP_E_VERSION = -32022,    /* no such protocol version here */
};

enum { MCP_METHOD_MAX = 128, MCP_ID_MAX = 256 };

struct mcp_message {
    json_t *root; /* owned */
    enum mcp_kind kind;
    const json_t *id; /* NULL for notifications; string or integer */
    const char *method;
    const json_t *params; /* NULL = none */
    const json_t *meta;   /* params._meta or NULL */
};

/* Headers of an HTTP request that MCP knows; NULL = absent.  Borrowed. */
struct mcp_headers {
    const char *version; /* MCP-Protocol-Version */
    const char *method;  /* Mcp-Method */
    const char *name;    /* Mcp-Name, decoded */
    const char *session; /* Mcp-Session-Id */
    const char *traceparent;
};

/* Why a request is not served.  `data` is owned by whoever has the refusal. */
struct mcp_refusal {
    int http;
    int code; /* 0 = nothing wrong */
    char text[256];
    json_t *data;
};

/* 0, or -1 with *ret_why filled (and *ret holding what was understood: the id, for the answer). */
int mcp_message_parse(const char *text, size_t n, struct mcp_message *ret,
                      struct mcp_refusal *ret_why) CL_MUST;
/* NULL members are no-ops. */
void mcp_message_fini(struct mcp_message *m);

/* Which era, and does the request keep its rules?  headers == NULL: stdio, which has none. */
int mcp_era_check(const struct mcp_message *m, const struct mcp_headers *headers,
                  enum mcp_era *ret_era, struct mcp_refusal *ret_why) CL_MUST;

/* The trace that the request belongs to: params._meta.traceparent (SEP-414), else the header's; ""
 * = none. */
void mcp_trace_find(const struct mcp_message *m, const struct mcp_headers *headers,
                    char out[static TRACEPARENT_TEXT]);
bool mcp_version_is_legacy(const char *version);
/* The versions of server/discover, newest first; a new array. */
json_t *mcp_versions(void);
/* "=?base64?...?=" of Mcp-Name and Mcp-Param-*: decoded into out; false when it is malformed or
 * longer than size. */
bool mcp_header_decode(const char *value, char *out, size_t size);
/* Fill a refusal; returns -1. */
int mcp_refuse(struct mcp_refusal *why, int http, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
