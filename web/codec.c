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
#include "web/protojson.h"

static const struct {
    const char *type;
    bool for_streams, for_one;
} codecs[] = {
    [WEB_JSON] = {"application/json", true, true},
    [WEB_PROTO] = {"application/proto", false, true},
    [WEB_CONNECT_JSON] = {"application/connect+json", true, false},
    [WEB_CONNECT_PROTO] = {"application/connect+proto", true, false},
};

const char *web_codec_type(enum web_codec codec)
{
    return codecs[codec].type;
}

bool web_codec_find(const char *content_type, bool streams, enum web_codec *ret)
{
    if (!content_type)
        return false;
    size_t n = strcspn(content_type, "; \t");
    for (size_t i = 0; i < WEB_CODEC_NR; i++) {
        if (n != strlen(codecs[i].type) || strncasecmp(content_type, codecs[i].type, n) != 0)
            continue;
        *ret = (enum web_codec)i;
        return streams ? codecs[i].for_streams : codecs[i].for_one;
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
    int rc = codec == WEB_CONNECT_JSON ? add_json(protojson_write(msg), out, err)
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
    json_t *end = why ? json_pack("{s:o}", "error", connect_error(why)) : json_object();
    if (add_json(end, out, err) < 0)
        return -1;
    fill_head(out, at, CONNECT_END);
    return 0;
}
