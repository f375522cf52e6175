/* web/codec.c - see web/codec.h. */
#include "web/codec.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mcp/json.h"
#include "proto/unpack.h"
#include "rpc/call.h"
#include "web/connect.h"
#include "web/grpcweb.h"
#include "web/protojson.h"

#define GRPC_PROTO "application/grpc-web+proto"
#define GRPC_TEXT "application/grpc-web-text+proto"

static const struct {
    const char *type, *of_answer;
    enum web_codec codec;
    bool for_streams, for_one;
} types[] = {
    {"application/json", "application/json", WEB_JSON, true, true},
    {"application/proto", "application/proto", WEB_PROTO, false, true},
    {"application/connect+json", "application/connect+json", WEB_CONNECT_JSON, true, false},
    {"application/connect+proto", "application/connect+proto", WEB_CONNECT_PROTO, true, false},
    {"application/grpc-web+json", "application/grpc-web+json", WEB_GRPC_JSON, true, true},
    {GRPC_PROTO, GRPC_PROTO, WEB_GRPC_PROTO, true, true},
    {"application/grpc-web", GRPC_PROTO, WEB_GRPC_PROTO, true, true},
    {GRPC_TEXT, GRPC_TEXT, WEB_GRPC_PROTO, true, true},
    {"application/grpc-web-text", GRPC_TEXT, WEB_GRPC_PROTO, true, true},
};

/* Whatever parameters stand behind it. */
static bool is_type(const char *content_type, const char *type)
{
    size_t n = strcspn(content_type, "; \t");
    return n == strlen(type) && strncasecmp(content_type, type, n) == 0;
}

bool web_codec_find(const char *content_type, bool streams, struct web_form *ret)
{
    for (size_t i = 0; content_type && i < CL_COUNT(types); i++) {
        if (!is_type(content_type, types[i].type))
            continue;
        *ret = (struct web_form){.codec = types[i].codec,
                                 .type = types[i].of_answer,
                                 .in_text = strcmp(types[i].of_answer, GRPC_TEXT) == 0};
        return streams ? types[i].for_streams : types[i].for_one;
    }
    return false;
}

/* --- reading ------------------------------------------------------------------------------------
 */

static int read_json(const char *body, size_t n, const ProtobufCMessageDescriptor *type,
                     struct cl_buf *wire, struct cl_err *err)
{
    json_t *object = NULL;
    if (n == 0)
        return 0;
    if (mcp_json_parse(body, n, &object, err) < 0)
        return -1;
    int rc = protojson_read(object, type, wire, err);
    json_decref(object);
    return rc;
}

/* Lines with nothing in them are none. */
static int next_line(struct web_body *body, struct web_body *ret_one)
{
    while (body->n > 0) {
        const char *line = body->data, *end = memchr(line, '\n', body->n);
        size_t n = end ? (size_t)(end - line) : body->n;
        body->data += n + (end != NULL);
        body->n -= n + (end != NULL);
        *ret_one = (struct web_body){body->codec, line, n};
        if (n > 0 && !(n == 1 && line[0] == '\r'))
            return 1;
    }
    return 0;
}

int web_body_next(struct web_body *body, bool many, struct web_body *ret_one, struct cl_err *err)
{
    if (web_codec_is_enveloped(body->codec)) {
        *ret_one = (struct web_body){.codec = body->codec};
        if (body->n == 0)
            return 0;
        return connect_next(&body->data, &body->n, &ret_one->data, &ret_one->n, err) < 0 ? -1 : 1;
    }
    if (many)
        return next_line(body, ret_one);
    *ret_one = *body;
    *body = (struct web_body){.codec = body->codec};
    return ret_one->data != NULL;
}

int web_codec_read(const struct web_body *one, const ProtobufCMessageDescriptor *type,
                   struct cl_arena *arena, const ProtobufCMessage **ret_msg, struct cl_err *err)
{
    struct cl_buf wire;
    if (!web_codec_is_json(one->codec))
        return pb_unpack(type, (const uint8_t *)one->data, one->n, arena, ret_msg, err);
    cl_buf_init(&wire, RPC_MESSAGE_MAX);
    int rc = read_json(one->data, one->n, type, &wire, err);
    if (rc == 0)
        rc = pb_unpack(type, wire.data, wire.len, arena, ret_msg, err);
    cl_buf_fini(&wire);
    return rc;
}

/* --- writing ------------------------------------------------------------------------------------
 */

static int add_json(json_t *value, struct cl_buf *out, struct cl_err *err)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    int rc =
        text ? cl_buf_append(out, text, strlen(text), err) : cl_fail(err, CL_E_NOMEM, 0, "answer");
    free(text);
    json_decref(value);
    return rc;
}

static int add_packed(const ProtobufCMessage *msg, struct cl_buf *out, struct cl_err *err)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    if (n == 0)
        return 0;
    if (cl_buf_reserve(out, n, err) < 0)
        return -1;
    out->len += protobuf_c_message_pack(msg, out->data + out->len);
    return 0;
}

/* Room for the head of an envelope, which is written when its length is known. */
static int add_head(struct cl_buf *out, size_t *ret_at, struct cl_err *err)
{
    static const uint8_t none[CONNECT_HEAD];
    *ret_at = out->len;
    return cl_buf_append(out, none, sizeof none, err);
}

static void fill_head(struct cl_buf *out, size_t at, uint8_t flags)
{
    connect_head(out->data + at, flags, (uint32_t)(out->len - at - CONNECT_HEAD));
}

static int add_line(const char *name, json_t *value, struct cl_buf *out, struct cl_err *err)
{
    json_t *line = value ? json_pack("{s:o}", name, value) : NULL;
    return add_json(line, out, err) < 0 ? -1 : cl_buf_append(out, "\n", 1, err);
}

int web_codec_write(enum web_codec codec, const ProtobufCMessage *msg, bool streams,
                    struct cl_buf *out, struct cl_err *err)
{
    size_t at;
    if (codec == WEB_PROTO)
        return add_packed(msg, out, err);
    if (codec == WEB_JSON)
        return streams ? add_line("result", protojson_write(msg), out, err)
                       : add_json(protojson_write(msg), out, err);
    if (add_head(out, &at, err) < 0)
        return -1;
    int rc = web_codec_is_json(codec) ? add_json(protojson_write(msg), out, err)
                                      : add_packed(msg, out, err);
    if (rc == 0)
        fill_head(out, at, 0);
    return rc;
}

int web_codec_end(enum web_codec codec, const struct cl_err *why, struct cl_buf *out,
                  struct cl_err *err)
{
    size_t at;
    if (codec == WEB_JSON)
        return why ? add_line("error", connect_error(why), out, err) : 0;
    if (add_head(out, &at, err) < 0)
        return -1;
    if (web_codec_is_grpc(codec)) {
        if (grpcweb_status(why, out, err) < 0)
            return -1;
        fill_head(out, at, GRPCWEB_TRAILER);
        return 0;
    }
    json_t *end = why ? json_pack("{s:o}", "error", connect_error(why)) : json_object();
    if (add_json(end, out, err) < 0)
        return -1;
    fill_head(out, at, CONNECT_END);
    return 0;
}
