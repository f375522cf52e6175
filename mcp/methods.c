/* mcp/methods.c - the methods of MCP: one table for both eras. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "mcp/call_priv.h"
#include "mcp/schema.h"
#include "mcp/tasks.h"

enum { TTL_STATIC_MS = 3600 * 1000, TTL_TOOLS_MS = 300 * 1000 };

static const char instructions[] =
    "Cloche gives you sandboxes: isolated virtual machines, in which you may run anything. They "
    "have "
    "no network unless sandbox_create names what they may reach. run_code keeps variables between "
    "calls, exec runs one shell command, exec_start "
    "runs "
    "things in the background. Without sandbox_id a sandbox is made for you; pass the sandbox_id "
    "of "
    "a result to go on in the same one. Idle sandboxes end by themselves and their files with "
    "them; snapshot_create keeps one, prepared, for later sessions.";

/* --- eras ---------------------------------------------------------------------------------------
 */

static json_t *capabilities(const struct mcp_call *c)
{
    json_t *all = json_pack("{s:{}, s:{}}", "tools", "resources");
    if (c->era == MCP_MODERN)
        mcp_json_set(all, "extensions", json_pack("{s:{}}", MCP_TASKS));
    if (c->server->extra_capabilities)
        (void)json_object_update(all, c->server->extra_capabilities);
    return all;
}

static void open_session(struct mcp_call *c)
{
    uint8_t nonce[MCP_SESSION_NONCE];
    cl_random(nonce, sizeof nonce);
    mcp_session_make(c->server->conf.secret, c->who.principal, nonce,
                     cl_wall_ns() / CL_NS_PER_S + MCP_SESSION_S, c->new_session);
}

static void on_initialize(struct mcp_call *c)
{
    const char *asked = mcp_json_text(c->msg.params, "protocolVersion");
    struct mcp_refusal why = {0};
    if (!asked) {
        (void)mcp_refuse(&why, 400, MCP_E_PARAMS, "initialize lacks protocolVersion");
        mcp_end_error(c, &why);
        return;
    }
    if (!c->is_stdio)
        open_session(c);
    mcp_end(c,
            json_pack("{s:s, s:o, s:{s:s, s:s, s:s}, s:s}", "protocolVersion",
                      mcp_version_is_legacy(asked) ? asked : MCP_LEGACY_VERSION, "capabilities",
                      capabilities(c), "serverInfo", "name", "cloche", "title", "Cloche sandboxes",
                      "version", CLOCHE_VERSION, "instructions", instructions));
}

static void on_empty(struct mcp_call *c)
{
    mcp_end(c, json_object());
}

static void on_discover(struct mcp_call *c)
{
    mcp_end(c, json_pack("{s:o, s:o, s:s, s:i, s:s}", "supportedVersions", mcp_versions(),
                         "capabilities", capabilities(c), "instructions", instructions, "ttlMs",
                         TTL_STATIC_MS, "cacheScope", "public"));
}

/* --- tools --------------------------------------------------------------------------------------
 */

static void on_tools_list(struct mcp_call *c)
{
    char next[16];
    const json_t *given = json_object_get(c->msg.params, "cursor");
    const char *cursor = mcp_json_text(c->msg.params, "cursor");
    struct mcp_refusal why = {0};
    json_t *page = given && !cursor ? NULL : mcp_catalog_page(c->server->catalog, cursor, next);
    if (!page) {
        (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "the cursor is not one of this server");
        mcp_end_error(c, &why);
        return;
    }
    json_t *result =
        json_pack("{s:o, s:i, s:s}", "tools", page, "ttlMs", TTL_TOOLS_MS, "cacheScope", "private");
    if (next[0])
        mcp_json_set(result, "nextCursor", json_string(next));
    mcp_end(c, result);
}

static void on_tools_call(struct mcp_call *c)
{
    const char *name = mcp_json_text(c->msg.params, "name");
    json_t *args = json_object_get(c->msg.params, "arguments");
    struct mcp_refusal why = {0};
    struct cl_err err = {0};
    c->tool = name ? mcp_catalog_find(c->server->catalog, name) : NULL;
    if (!c->tool) {
        (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "unknown tool '%.64s'", name ? name : "");
        mcp_end_error(c, &why);
        return;
    }
    if (!mcp_who_may(c, c->tool->reads_only ? MCP_MAY_READ : MCP_MAY_RUN))
        return;
    c->args = args ? json_incref(args) : json_object();
    if (mcp_schema_check(c->tool->input, c->args, &err) < 0)
        mcp_end_tool_error(c, &err);
    else if (c->tool->alias)
        mcp_alias_run(c, c->tool->alias);
    else
        c->tool->run(c);
}

/* --- notifications ------------------------------------------------------------------------------
 */

/* Legacy and stdio: the request of the same client (and session) that has this id. */
static void cancel_request(struct mcp_call *c)
{
    const json_t *id = json_object_get(c->msg.params, "requestId");
    struct mcp_result r = {.is_error = true};
    CL_LIST_FOREACH (it, &c->server->calls) {
        struct mcp_call *other = CL_LIST_ENTRY(it, struct mcp_call, link);
        if (other == c || !other->msg.id || !json_equal(other->msg.id, id) ||
            strcmp(other->who.principal, c->who.principal) != 0 ||
            strcmp(other->session, c->session) != 0 || other->is_stdio != c->is_stdio)
            continue;
        if (other->is_stdio) { /* nothing more is said about it */
            mcp_bare(other, &(struct mcp_reply){.http = 202});
        } else {
            r.text = cl_strdup("Cancelled by the client.");
            mcp_end_tool(other, &r);
        }
        return;
    }
}

static void take_notification(struct mcp_call *c)
{
    if (strcmp(c->msg.method, "notifications/cancelled") == 0 &&
        (c->era == MCP_LEGACY || c->is_stdio))
        cancel_request(c);
    mcp_bare(c, &(struct mcp_reply){.http = 202});
}

/* --- dispatch -----------------------------------------------------------------------------------
 */

static const struct method {
    const char *name;
    enum mcp_era only; /* 0 = both */
    mcp_run_fn *run;
} methods[] = {
    {"initialize", MCP_LEGACY, on_initialize},
    {"ping", MCP_LEGACY, on_empty},
    {"logging/setLevel", MCP_LEGACY, on_empty},
    {"server/discover", MCP_MODERN, on_discover},
    {"tools/list", 0, on_tools_list},
    {"tools/call", 0, on_tools_call},
    {"resources/list", 0, mcp_resources_list},
    {"resources/templates/list", 0, mcp_resource_templates},
    {"resources/read", 0, mcp_resource_read},
    {"subscriptions/listen", MCP_MODERN, mcp_listen},
    {"tasks/get", MCP_MODERN, mcp_task_get},
    {"tasks/cancel", MCP_MODERN, mcp_task_cancel},
    {"tasks/update", MCP_MODERN, mcp_task_update},
};

static mcp_run_fn *find_method(const struct mcp_call *c)
{
    const struct mcp_extra *x = c->server->conf.extra;
    for (size_t i = 0; x && i < x->n_methods; i++) {
        if (strcmp(x->methods[i].name, c->msg.method) == 0)
            return x->methods[i].run;
    }
    for (size_t i = 0; i < CL_COUNT(methods); i++) {
        if (strcmp(methods[i].name, c->msg.method) == 0 &&
            (methods[i].only == 0 || methods[i].only == c->era))
            return methods[i].run;
    }
    return NULL;
}

/* 0, or the call has ended. */
static int check_session(struct mcp_call *c)
{
    const char *given = c->in.headers ? c->in.headers->session : NULL;
    struct mcp_refusal why = {0};
    if (c->era == MCP_MODERN || c->is_stdio || strcmp(c->msg.method, "initialize") == 0)
        return 0;
    if (!given) {
        (void)mcp_refuse(&why, 400, MCP_E_REQUEST,
                         "the header Mcp-Session-Id is missing: send what initialize answered");
    } else {
        const struct mcp_seat *seat = mcp_seat(c->server, given, false);
        if (mcp_session_is_valid(c->server->conf.secret, c->who.principal, given,
                                 cl_wall_ns() / CL_NS_PER_S) &&
            !(seat && seat->ended)) {
            (void)snprintf(c->session, sizeof c->session, "%s", given);
            return 0;
        }
        (void)mcp_refuse(&why, 404, MCP_E_REQUEST, "no such session: initialize again");
    }
    mcp_refused(c, &why);
    return -1;
}

void mcp_dispatch(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    if (check_session(c) < 0)
        return;
    if (c->msg.kind == MCP_NOTIFICATION) {
        take_notification(c);
        return;
    }
    mcp_run_fn *run = find_method(c);
    if (run) {
        run(c);
        return;
    }
    (void)mcp_refuse(&why, c->era == MCP_MODERN ? 404 : 200, MCP_E_METHOD,
                     "no method '%.64s' in this protocol version", c->msg.method);
    mcp_refused(c, &why);
}
