/* mcp/schema.h - arguments of a tool against the tool's own inputSchema, so that what the model is
 * told and what is enforced are one text.
 *
 * The part of JSON Schema 2020-12 that our tools use: type, enum, minimum, maximum, minLength,
 * maxLength (bytes), minItems, maxItems, items, properties, required, additionalProperties.
 * Strings with U+0000 are refused everywhere: no argument of ours may hold one.
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_MCP_SCHEMA_H
#define CL_MCP_SCHEMA_H

#include "mcp/json.h"

/* 0, or INVALID with a text that names the argument, what is wanted and what came. */
int mcp_schema_check(const json_t *schema, const json_t *value, struct cl_err *err) CL_MUST;

#endif
