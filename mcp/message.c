/* mcp/message.c - see mcp/message.h. */
#include "mcp/message.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const legacy_versions[] = {MCP_LEGACY_VERSION, "2025-06-18", "2025-03-26"};

int mcp_refuse(struct mcp_refusal *why, int http, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    why->http = http;
    why->code = code;
    (void)vsnprintf(why->text, sizeof why->text, fmt, ap);
    va_end(ap);
    return -1;
}

/* --- envelope -----------------------------------------------------------------------------------
 */

static bool id_is_valid(const json_t *id)
{
    return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= MCP_ID_MAX);
}

static int check_call(struct mcp_message *m, struct mcp_refusal *why)
{
    const json_t *id = json_object_get(m->root, "id");
    size_t n = json_string_length(json_object_get(m->root, "method"));
    if (id && !id_is_valid(id))
        return mcp_refuse(why, 400, MCP_E_REQUEST, "id: a string of at most %d bytes or an integer",
                          MCP_ID_MAX);
    m->id = id;
    m->kind = id ? MCP_REQUEST : MCP_NOTIFICATION;
    m->method = mcp_json_text(m->root, "method");
    if (!m->method || n == 0 || n > MCP_METHOD_MAX)
        return mcp_refuse(why, 400, MCP_E_REQUEST, "method: a string of 1 to %d bytes",
                          MCP_METHOD_MAX);
    m->params = json_object_get(m->root, "params");
    if (m->params && !json_is_object(m->params))
        return mcp_refuse(why, 400, MCP_E_REQUEST, "params: an object");
    m->meta = json_object_get(m->params, "_meta");
    if (m->meta && !json_is_object(m->meta))
        return mcp_refuse(why, 400, MCP_E_PARAMS, "params._meta: an object");
    return 0;
}

int mcp_message_parse(const char *text, size_t n, struct mcp_message *ret, struct mcp_refusal *why)
{
    struct cl_err err = {0};
    *ret = (struct mcp_message){0};
    if (mcp_json_parse(text, n, &ret->root, &err) < 0)
        return mcp_refuse(why, err.code == CL_E_TOOBIG ? 413 : 400, MCP_E_PARSE, "%s", err.text);
    if (json_is_array(ret->root))
        return mcp_refuse(why, 400, MCP_E_REQUEST, "batches are not supported: send one message");
    const char *version = mcp_json_text(ret->root, "jsonrpc");
    if (!json_is_object(ret->root) || !version || strcmp(version, "2.0") != 0)
        return mcp_refuse(why, 400, MCP_E_REQUEST, "not a JSON-RPC 2.0 message");
    if (!json_object_get(ret->root, "method") &&
        (json_object_get(ret->root, "result") || json_object_get(ret->root, "error"))) {
        ret->kind = MCP_RESPONSE;
        return 0;
    }
    return check_call(ret, why);
}

void mcp_message_fini(struct mcp_message *m)
{
    json_decref(m->root);
    *m = (struct mcp_message){0};
}

void mcp_trace_find(const struct mcp_message *m, const struct mcp_headers *headers,
                    char out[static TRACEPARENT_TEXT])
{
    if (!traceparent_read(mcp_json_text(m->meta, "traceparent"), out))
        (void)traceparent_read(headers ? headers->traceparent : NULL, out);
}

/* --- eras ---------------------------------------------------------------------------------------
 */

bool mcp_version_is_legacy(const char *version)
{
    for (size_t i = 0; i < CL_COUNT(legacy_versions); i++) {
        if (strcmp(version, legacy_versions[i]) == 0)
            return true;
    }
    return false;
}

json_t *mcp_versions(void)
{
    json_t *list = json_array();
    (void)json_array_append_new(list, json_string(MCP_MODERN_VERSION));
    for (size_t i = 0; i < CL_COUNT(legacy_versions); i++)
        (void)json_array_append_new(list, json_string(legacy_versions[i]));
    return list;
}

bool mcp_header_decode(const char *value, char *out, size_t size)
{
    static const char open[] = "=?base64?", shut[] = "?=";
    size_t n = strlen(value), head = sizeof open - 1, tail = sizeof shut - 1;
    if (strncmp(value, open, head) != 0)
        return n < size && memcpy(out, value, n + 1);
    if (n < head + tail || strcmp(value + n - tail, shut) != 0)
        return false;
    size_t coded = n - head - tail, padding = 0;
    if (coded % 4 != 0 || coded / 4 * 3 + 1 > size)
        return false;
    while (padding < 2 && coded > padding && value[head + coded - 1 - padding] == '=')
        padding++;
    int got =
        EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)value + head, (int)coded);
    if (got < 0 || (size_t)got < padding)
        return false;
    out[(size_t)got - padding] = '\0';
    return strlen(out) == (size_t)got - padding;
}

/* What Mcp-Name repeats, by method; NULL = the method has none. */
static const char *name_member(const char *method)
{
    if (strcmp(method, "tools/call") == 0 || strcmp(method, "prompts/get") == 0)
        return "name";
    if (strcmp(method, "resources/read") == 0)
        return "uri";
    bool is_task = strcmp(method, "tasks/get") == 0 || strcmp(method, "tasks/cancel") == 0 ||
                   strcmp(method, "tasks/update") == 0;
    return is_task ? "taskId" : NULL;
}

static int match_header(const char *header, const char *got, const char *want,
                        struct mcp_refusal *why)
{
    if (!got)
        return mcp_refuse(why, 400, MCP_E_HEADER, "the header %s is missing", header);
    if (!want || strcmp(got, want) != 0)
        return mcp_refuse(why, 400, MCP_E_HEADER, "the header %s is not what the body says",
                          header);
    return 0;
}

static int check_headers(const struct mcp_message *m, const struct mcp_headers *h,
                         const char *version, struct mcp_refusal *why)
{
    char decoded[2048];
    const char *member = name_member(m->method);
    if (match_header("MCP-Protocol-Version", h->version, version, why) < 0 ||
        match_header("Mcp-Method", h->method, m->method, why) < 0)
        return -1;
    if (!member)
        return 0;
    if (h->name && !mcp_header_decode(h->name, decoded, sizeof decoded))
        return mcp_refuse(why, 400, MCP_E_HEADER, "the header Mcp-Name is malformed");
    return match_header("Mcp-Name", h->name ? decoded : NULL, mcp_json_text(m->params, member),
                        why);
}

static int check_version(const char *version, struct mcp_refusal *why)
{
    if (strcmp(version, MCP_MODERN_VERSION) == 0)
        return 0;
    why->data = json_pack("{s:o, s:s}", "supported", mcp_versions(), "requested", version);
    return mcp_refuse(why, 400, MCP_E_VERSION, "protocol version '%.64s' is not supported",
                      version);
}

static int check_modern(const struct mcp_message *m, const struct mcp_headers *h,
                        struct mcp_refusal *why)
{
    const char *version = mcp_json_text(m->meta, MCP_META "protocolVersion");
    const json_t *info = json_object_get(m->meta, MCP_META "clientInfo");
    if (m->kind != MCP_REQUEST)
        return 0;
    if (!version)
        return mcp_refuse(why, 400, MCP_E_PARAMS, "params._meta lacks " MCP_META "protocolVersion");
    if (!json_is_object(json_object_get(m->meta, MCP_META "clientCapabilities")))
        return mcp_refuse(why, 400, MCP_E_PARAMS,
                          "params._meta lacks the object " MCP_META "clientCapabilities");
    if (info && !json_is_object(info))
        return mcp_refuse(why, 400, MCP_E_PARAMS, MCP_META "clientInfo: an object");
    if (h && check_headers(m, h, version, why) < 0)
        return -1;
    return check_version(version, why);
}

int mcp_era_check(const struct mcp_message *m, const struct mcp_headers *h, enum mcp_era *ret_era,
                  struct mcp_refusal *why)
{
    bool said = json_object_get(m->meta, MCP_META "protocolVersion") != NULL;
    if (said || (h && h->version && strcmp(h->version, MCP_MODERN_VERSION) == 0)) {
        *ret_era = MCP_MODERN;
        return check_modern(m, h, why);
    }
    *ret_era = MCP_LEGACY;
    bool opens = m->method && strcmp(m->method, "initialize") == 0;
    if (h && h->version && !opens && !mcp_version_is_legacy(h->version))
        return mcp_refuse(why, 400, MCP_E_REQUEST, "MCP-Protocol-Version '%.64s' is not supported",
                          h->version);
    return 0;
}
