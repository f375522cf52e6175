/* web/codec.h - the forms that messages may have over HTTP, by the request's Content-Type.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  connectrpc.com/docs/protocol.
 */
#ifndef CL_WEB_CODEC_H
#define CL_WEB_CODEC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/mem.h"

enum web_codec {
    WEB_JSON,          /* application/json: one answer, or lines of JSON */
    WEB_PROTO,         /* application/proto: one answer */
    WEB_CONNECT_JSON,  /* application/connect+json: a stream of envelopes */
    WEB_CONNECT_PROTO, /* application/connect+proto */
    WEB_CODEC_NR
};

/* The type of the answer; of WEB_JSON that of one. */
const char *web_codec_type(enum web_codec codec);
/* May a method that streams its answers, or does not, be asked so? */
bool web_codec_find(const char *content_type, bool streams, enum web_codec *ret);
static inline bool web_codec_is_json(enum web_codec codec)
{
    return codec == WEB_JSON || codec == WEB_CONNECT_JSON;
}
static inline bool web_codec_is_enveloped(enum web_codec codec)
{
    return codec == WEB_CONNECT_JSON || codec == WEB_CONNECT_PROTO;
}

struct web_body {
    enum web_codec codec;
    const char *data; /* borrowed */
    size_t n;
};
/* A body, as the one message that it is; *ret_msg dies with the arena.  INVALID, TOOBIG.  Without
 * any bytes it is an empty message, where it needs no envelope. */
int web_codec_read(const struct web_body *body, const ProtobufCMessageDescriptor *type,
                   struct cl_arena *arena, const ProtobufCMessage **ret_msg,
                   struct cl_err *err) CL_MUST;
/* Append the message to a body, with what is around it. */
int web_codec_write(enum web_codec codec, const ProtobufCMessage *msg, bool streams,
                    struct cl_buf *out, struct cl_err *err) CL_MUST;
/* What ends a stream; why == NULL is success.  Lines of JSON end by themselves, or with a line that
 * has the error. */
int web_codec_end(enum web_codec codec, const struct cl_err *why, struct cl_buf *out,
                  struct cl_err *err) CL_MUST;

#endif
