/* mcp/resources.c - the whole output of an exec as a resource, readable in ranges:
 * cloche://SANDBOX/EXEC/stdout?offset=BYTES&length=BYTES. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "cloche/v1/exec.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

enum { RANGE_DEFAULT = 256 * 1024, RANGE_MAX = 1024 * 1024 };

struct range {
    char sandbox[CL_ID_MAX], exec[CL_ID_MAX];
    bool is_err;
    uint64_t offset, length;
    struct cl_buf bytes;
    bool full;
};

static void range_free(void *obj)
{
    struct range *r = obj;
    cl_buf_fini(&r->bytes);
    cl_free(r);
}

static bool read_number(const char *query, const char *name, uint64_t *ret)
{
    const char *at = strstr(query, name);
    if (!at)
        return true;
    char *end;
    *ret = strtoull(at + strlen(name), &end, 10);
    return end != at + strlen(name) && (*end == '\0' || *end == '&');
}

static bool read_uri(const char *uri, struct range *r)
{
    char stream[8], query[96] = "";
    if (!uri || sscanf(uri, "cloche://%39[a-zA-Z0-9_]/%39[a-zA-Z0-9_]/%7[a-z]?%95s", r->sandbox,
                       r->exec, stream, query) < 3)
        return false;
    r->is_err = strcmp(stream, "stderr") == 0;
    r->length = RANGE_DEFAULT;
    return (r->is_err || strcmp(stream, "stdout") == 0) && cl_id_is(r->sandbox, "sbx") &&
           cl_id_is(r->exec, "exec") && read_number(query, "offset=", &r->offset) &&
           read_number(query, "length=", &r->length) && r->length > 0 && r->length <= RANGE_MAX;
}

static void answer(struct mcp_call *c)
{
    struct range *r = mcp_work(c);
    const char *uri = mcp_json_text(mcp_params(c), "uri");
    CL_AUTO(cl_freep)
    char *text = mcp_text_clean(r->bytes.data, r->bytes.len, r->offset > 0, r->full);
    json_t *one = json_pack("{s:s, s:s, s:s}", "uri", uri, "mimeType", "text/plain", "text",
                            text ? text : "");
    mcp_end(c,
            json_pack("{s:[o], s:i, s:s}", "contents", one, "ttlMs", 0, "cacheScope", "private"));
}

static void on_event(struct mcp_call *c, const ProtobufCMessage *msg)
{
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    struct range *r = mcp_work(c);
    if (m->event_case != CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT ||
        (m->output->stream == CLOCHE__V1__STREAM__STREAM_STDERR) != r->is_err)
        return;
    size_t room = (size_t)r->length - r->bytes.len, n = CL_MIN(m->output->data.len, room);
    if (n > 0 && cl_buf_append(&r->bytes, m->output->data.data, n, NULL) < 0)
        return;
    r->full = r->bytes.len == r->length;
    if (r->full)
        answer(c);
}

static void on_end(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        mcp_end_tool_error(c, err);
    else
        answer(c);
}

static void read_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of attach = MCP_RPC("ExecService", "Attach", attach_response);
    struct range *r = mcp_work(c);
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    m.sandbox_id = r->sandbox;
    m.exec_id = r->exec;
    m.stdout_offset = r->is_err ? INT64_MAX : r->offset; /* the other stream is not wanted */
    m.stderr_offset = r->is_err ? r->offset : INT64_MAX;
    m.no_follow = true;
    struct mcp_ask_spec ask = {
        .method = &attach, .request = &m.base, .on_message = on_event, .on_end = on_end};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_resource_read(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    struct range *r = cl_zalloc(sizeof *r);
    c->plain_errors = true;
    if (r)
        cl_buf_init(&r->bytes, RANGE_MAX);
    if (r && read_uri(mcp_json_text(mcp_params(c), "uri"), r)) {
        mcp_set_work(c, r, range_free);
        mcp_box_check(c, r->sandbox, read_in_box);
        return;
    }
    cl_free(r);
    (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "no such resource");
    json_t *uri = json_object_get(mcp_params(c), "uri");
    why.data = uri ? json_pack("{s:O}", "uri", uri) : NULL;
    mcp_end_error(c, &why);
}

/* Outputs are found by the links that results hold; there is nothing to list. */
void mcp_resources_list(struct mcp_call *c)
{
    mcp_end(c, json_pack("{s:[], s:i, s:s}", "resources", "ttlMs", 0, "cacheScope", "private"));
}

void mcp_resource_templates(struct mcp_call *c)
{
    json_t *one = json_pack("{s:s, s:s, s:s, s:s}", "uriTemplate",
                            "cloche://{sandbox_id}/{exec_id}/{stream}{?offset,length}", "name",
                            "output of a command", "description",
                            "stdout or stderr of an exec, all of it or a range in bytes",
                            "mimeType", "text/plain");
    mcp_end(c, json_pack("{s:[o], s:i, s:s}", "resourceTemplates", one, "ttlMs", 3600 * 1000,
                         "cacheScope", "public"));
}
