/* web/protojson.h - protobuf messages as JSON, and back, by their descriptors.
 *
 * The canonical mapping: names in lowerCamelCase (read also as they stand in the .proto), 64-bit
 * integers as decimal texts, bytes as base64, enumerations by name; what has its default is left
 * out.  Our messages have no maps, floats or well-known types; a unit test says so.
 * Owns:    nothing.
 * Limits:  depth and number of values are those of mcp/json.h, where the JSON was parsed; `out`
 *          has the limit of its buffer.
 * Thread:  any.  Pure.
 * Source:  protobuf.dev/programming-guides/json.
 */
#ifndef CL_WEB_PROTOJSON_H
#define CL_WEB_PROTOJSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"

/* Append the object as wire bytes of a `type`, which pb_unpack() has yet to judge: it knows of
 * UTF-8 and NUL.  INVALID names the field ("spec: command: argv: ..."), also one that `type` has
 * not: who misspelled it would wait for what was never asked.  TOOBIG. */
int protojson_read(const json_t *object, const ProtobufCMessageDescriptor *type, struct cl_buf *out,
                   struct cl_err *err) CL_MUST;
/* The caller owns it; NULL: memory is out. */
json_t *protojson_write(const ProtobufCMessage *msg) CL_MUST;
/* Has the mapping a way for all that `type` consists of? */
bool protojson_can(const ProtobufCMessageDescriptor *type);

#endif
