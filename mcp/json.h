/* mcp/json.h - JSON of strangers: bounded before it is parsed, strict when it is.
 *
 * jansson keeps some 60 bytes a value, so 8 MiB of "[0,0,..." would cost it half a gigabyte, and it
 * counts depth only up to 2048 frames of recursion: the scan refuses both before it sees a byte.
 * Owns:    nothing; a parsed value is the caller's reference.
 * Thread:  any.  Pure.
 * Source:  RFC 8259; I-JSON (RFC 7493) for duplicate names.
 */
#ifndef CL_MCP_JSON_H
#define CL_MCP_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum {
    MCP_JSON_MAX = 8 * 1024 * 1024, /* bytes of one message: what a body or a line may hold */
    MCP_JSON_DEPTH = 64,            /* nesting: recursion of the parser and of ours */
    MCP_JSON_VALUES = 100000,       /* values and names: memory of the parsed tree */
};

/* Within the limits?  Says nothing about whether it is JSON.  TOOBIG names the limit. */
int mcp_json_scan(const char *text, size_t n, struct cl_err *err) CL_MUST;
/* Scan and parse: no duplicate names, no NaN, valid UTF-8; U+0000 in strings is kept, for the
 * tools to refuse.  INVALID or TOOBIG. */
int mcp_json_parse(const char *text, size_t n, json_t **ret_value, struct cl_err *err) CL_MUST;

/* Borrowed text of a member, or NULL when it is not there, no string, or holds U+0000. */
const char *mcp_json_text(const json_t *object, const char *name);
/* An unsigned member, or `otherwise`. */
uint64_t mcp_json_u64(const json_t *object, const char *name, uint64_t otherwise);
/* Set and take the reference; a NULL value (out of memory) makes the object poor, never wrong. */
void mcp_json_set(json_t *object, const char *name, json_t *value);

#endif
