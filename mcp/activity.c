/* mcp/activity.c - the tool sandbox_activity: what the code in a sandbox did, as the audit log has
 * it (AuditService.Tree), for a model to read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "cloche/v1/audit.pb-c.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

enum {
    TIME_AT = 11, /* of "2026-01-02T03:04:05.123456Z" */
    TIME_LEN = 8,
    DEEPEST = 80, /* a tree has 64 levels and a few */
    ROW_COST = 64 /* of one event besides its text */
};

/* A tree on its way to a result of bounded size. */
struct telling {
    struct cl_buf text; /* owned */
    json_t *events;     /* owned */
    size_t left;        /* bytes that still may come */
    bool is_cut;
};

static const char *text_of(const json_t *node, const char *name)
{
    const char *s = json_string_value(json_object_get(node, name));
    return s ? s : "";
}

static int tell_one(struct telling *t, const json_t *node, int depth, struct cl_err *err)
{
    const char *text = text_of(node, "text"), *at = text_of(node, "at");
    json_int_t times = json_integer_value(json_object_get(node, "times"));
    size_t cost = strlen(text) + ROW_COST + 2 * (size_t)depth;
    char many[32] = "";
    if (cost > t->left) {
        t->is_cut = true;
        return 0;
    }
    t->left -= cost;
    if (times > 1)
        (void)snprintf(many, sizeof many, "  x %" JSON_INTEGER_FORMAT, times);
    json_t *event = json_pack("{s:s, s:s, s:s, s:i}", "at", at, "what", text_of(node, "what"),
                              "text", text, "depth", depth);
    if (times > 1)
        mcp_json_set(event, "times", json_integer(times));
    if (json_array_append_new(t->events, event) < 0)
        return cl_fail(err, CL_E_NOMEM, 0, "activity");
    return cl_buf_printf(&t->text, err, "%-*.*s %*s%s%s\n", TIME_LEN, TIME_LEN,
                         strlen(at) > TIME_AT ? at + TIME_AT : "", 2 * depth, "", text, many);
}

/* What stands below one that had no room is left out, too. */
static int tell(struct telling *t, const json_t *node, int depth, struct cl_err *err)
{
    const json_t *nodes = json_object_get(node, "nodes");
    if (depth > DEEPEST) {
        t->is_cut = true;
        return 0;
    }
    if (tell_one(t, node, depth, err) < 0)
        return -1;
    for (size_t i = 0; !t->is_cut && i < json_array_size(nodes); i++)
        if (tell(t, json_array_get(nodes, i), depth + 1, err) < 0)
            return -1;
    return 0;
}

static void reply(struct mcp_call *c, struct telling *t, uint64_t records)
{
    char last[160] = "";
    if (records == 0)
        (void)snprintf(last, sizeof last, "Nothing is recorded of that time.");
    else if (t->is_cut)
        (void)snprintf(last, sizeof last,
                       "There is more: ask with since_seconds for the newest, or with a larger "
                       "max_output_bytes.");
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:O, s:b, s:I}", "sandbox_id", c->box, "events", t->events,
                                "truncated", (int)t->is_cut, "records", (json_int_t)records),
        .text = cl_asprintf("%.*s%s", (int)t->text.len, (const char *)t->text.data, last)};
    mcp_end_tool(c, &r);
}

static int take_tree(struct telling *t, const char *tree, struct cl_err *err)
{
    json_error_t why;
    json_t *root = json_loads(tree, JSON_REJECT_DUPLICATES, &why);
    int rc = root ? tell(t, root, 0, err)
                  : cl_fail(err, CL_E_PEER, 0, "a tree that is none: %s", why.text);
    json_decref(root);
    return rc;
}

static void on_tree(struct mcp_call *c, const ProtobufCMessage *msg, const struct cl_err *err)
{
    static const Cloche__V1__AuditServiceTreeResponse nothing =
        CLOCHE__V1__AUDIT_SERVICE_TREE_RESPONSE__INIT;
    const Cloche__V1__AuditServiceTreeResponse *m =
        msg ? (const Cloche__V1__AuditServiceTreeResponse *)msg : &nothing;
    struct cl_err bad = err ? *err : (struct cl_err){0};
    if (err && err->code != CL_E_NOTFOUND) { /* of a sandbox that there is: nothing yet */
        if (err->code == CL_E_DENIED)
            (void)snprintf(bad.subject, sizeof bad.subject, "audit");
        mcp_end_tool_error(c, &bad);
        return;
    }
    size_t max = (size_t)mcp_json_u64(c->args, "max_output_bytes", MCP_OUTPUT_DEFAULT);
    struct telling t = {.events = json_array(), .left = max};
    cl_buf_init(&t.text, 2 * max + 1024);
    bad = (struct cl_err){0};
    if (!t.events)
        (void)cl_fail(&bad, CL_E_NOMEM, 0, "activity");
    else if (m->tree[0])
        (void)!take_tree(&t, m->tree, &bad);
    if (bad.code != CL_OK)
        mcp_end_tool_error(c, &bad);
    else
        reply(c, &t, m->records);
    json_decref(t.events);
    cl_buf_fini(&t.text);
}

static void ask_tree(struct mcp_call *c)
{
    static const struct mcp_method_of tree =
        MCP_RPC("AuditService", "Tree", audit_service_tree_response);
    Cloche__V1__AuditServiceTreeRequest m = CLOCHE__V1__AUDIT_SERVICE_TREE_REQUEST__INIT;
    Cloche__V1__Time since = CLOCHE__V1__TIME__INIT;
    uint64_t ago = mcp_seconds_ns(c->args, "since_seconds", 0);
    m.unit = c->box;
    if (ago) {
        since.unix_ns = cl_wall_ns() - ago;
        m.since = &since;
    }
    struct mcp_ask_spec ask = {.method = &tree, .request = &m.base, .on_end = on_tree};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_sandbox_activity(struct mcp_call *c)
{
    mcp_box_need(c, ask_tree);
}
