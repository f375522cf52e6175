/* web/codec.h - the forms that messages may have over HTTP, by the request's Content-Type.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  connectrpc.com/docs/protocol; grpc/doc/PROTOCOL-WEB.md.
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
    WEB_GRPC_JSON,     /* application/grpc-web+json: envelopes, and the status in a last one */
    WEB_GRPC_PROTO,    /* application/grpc-web, +proto, and -text */
    WEB_CODEC_NR
};

struct web_form {
    enum web_codec codec;
    const char *type; /* of the answer, of WEB_JSON that of one; static */
    bool in_text;     /* both bodies are in base64: web/grpcweb.h */
};
/* May a method with a stream, of requests or answers, or one without be asked so? */
bool web_codec_find(const char *content_type, bool streams, struct web_form *ret);
static inline bool web_codec_is_json(enum web_codec codec)
{
    return codec == WEB_JSON || codec == WEB_CONNECT_JSON || codec == WEB_GRPC_JSON;
}
static inline bool web_codec_is_grpc(enum web_codec codec)
{
    return codec == WEB_GRPC_JSON || codec == WEB_GRPC_PROTO;
}
static inline bool web_codec_is_enveloped(enum web_codec codec)
{
    return codec == WEB_CONNECT_JSON || codec == WEB_CONNECT_PROTO || web_codec_is_grpc(codec);
}

struct web_body {
    enum web_codec codec;
    const char *data; /* borrowed; NULL = nothing is left */
    size_t n;
};
/* Take the next message off a body: an envelope's content, a line of JSON where there may be many,
 * else all of it, which may be nothing at all: an empty message.  1, or 0 at the end; INVALID. */
int web_body_next(struct web_body *body, bool many, struct web_body *ret_one,
                  struct cl_err *err) CL_MUST;
/* One of them; *ret_msg dies with the arena.  INVALID, TOOBIG. */
int web_codec_read(const struct web_body *one, const ProtobufCMessageDescriptor *type,
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
