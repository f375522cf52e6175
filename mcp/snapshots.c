/* mcp/snapshots.c - the tools that keep a sandbox as it is, list and delete what was kept; and
 * which of them a caller may begin a sandbox with.
 *
 * A snapshot is its maker's by the same label as a sandbox is, and its name is, too
 * (mcp/snapshot_name.h).  The scheduler is asked for that each time: nothing is remembered here.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/snapshot.pb-c.h"
#include "mcp/call_priv.h"
#include "mcp/snapshot_name.h"
#include "mcp/tools_priv.h"

enum { KEEP_S = 120 /* a large guest's memory takes its time */, LINE = 256 };

/* --- which one is meant -------------------------------------------------------------------------
 */

enum { WORD_OWN, WORD_PLAIN };

static const char *word_of(const struct mcp_call *c)
{
    return mcp_json_text(c->args, "snapshot");
}

static void fail_unknown(struct mcp_call *c)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_NOTFOUND, 0, "no snapshot '%.64s'", word_of(c));
    (void)snprintf(err.subject, sizeof err.subject, "snapshot");
    mcp_end_tool_error(c, &err);
}

static void ask_get(struct mcp_call *c, const char *word, size_t tag);

static void on_got(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__Snapshot *m =
        reply ? ((const Cloche__V1__SnapshotServiceGetResponse *)reply)->snapshot : NULL;
    if (err && err->code != CL_E_NOTFOUND && err->code != CL_E_INVALID) {
        mcp_end_tool_error(c, err);
    } else if (m && mcp_is_mine(c, m->labels, m->n_labels) &&
               m->state != CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED) {
        mcp_run_fn *next = c->next;
        (void)snprintf(c->snapshot, sizeof c->snapshot, "%s", m->id);
        next(c);
    } else if (c->ask_tag == WORD_OWN) {
        ask_get(c, word_of(c), WORD_PLAIN);
    } else {
        fail_unknown(c);
    }
}

static void ask_get(struct mcp_call *c, const char *word, size_t tag)
{
    static const struct mcp_method_of get =
        MCP_RPC("SnapshotService", "Get", snapshot_service_get_response);
    Cloche__V1__SnapshotServiceGetRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_GET_REQUEST__INIT;
    m.snapshot = mcp_pb(word);
    struct mcp_ask_spec ask = {.method = &get, .request = &m.base, .tag = tag, .on_end = on_got};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_snapshot_check(struct mcp_call *c, mcp_run_fn *next)
{
    char own[MCP_SNAPSHOT_NAME];
    c->next = next;
    if (mcp_snapshot_name(c->who.principal, word_of(c), own, NULL) == 0)
        ask_get(c, own, WORD_OWN);
    else /* an id, or the longer name of a shared one */
        ask_get(c, word_of(c), WORD_PLAIN);
}

/* --- how one looks ------------------------------------------------------------------------------
 */

static void set_time(json_t *o, const char *name, const Cloche__V1__Time *t)
{
    char when[CL_RFC3339_LEN];
    if (!t)
        return;
    cl_rfc3339(t->unix_ns, when);
    mcp_json_set(o, name, json_string(when));
}

static json_t *snapshot_json(const struct mcp_call *c, const Cloche__V1__Snapshot *m)
{
    char name[MCP_SNAPSHOT_NAME];
    bool is_whole = m->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:I}", "snapshot_id", m->id, "template",
                          m->template_, "state", is_whole ? "ready" : "starting", "sandbox_id",
                          m->sandbox_id, "image_bytes", (json_int_t)m->image_bytes);
    mcp_snapshot_own_name(c->who.principal, m->name, name);
    if (name[0])
        mcp_json_set(o, "name", json_string(name));
    set_time(o, "created", m->created);
    set_time(o, "expires", m->expires);
    if (m->resources && m->resources->vcpus)
        mcp_json_set(o, "cpus", json_integer(m->resources->vcpus));
    if (m->resources && m->resources->memory_mib)
        mcp_json_set(o, "memory_mib", json_integer(m->resources->memory_mib));
    if (m->network_grant)
        mcp_json_set(o, "network", mcp_rules_json(m->network_grant));
    return o;
}

/* --- keeping one --------------------------------------------------------------------------------
 */

static void fail_kept(struct mcp_call *c, const struct cl_err *err)
{
    struct cl_err taken = {0};
    if (err->code == CL_E_NOTFOUND)
        mcp_box_gone(c);
    if (err->code != CL_E_EXISTS) {
        mcp_end_tool_error(c, err);
        return;
    }
    (void)cl_fail(&taken, CL_E_EXISTS, 0, "you have a snapshot '%.64s'",
                  mcp_json_text(c->args, "name"));
    (void)snprintf(taken.subject, sizeof taken.subject, "snapshot");
    mcp_end_tool_error(c, &taken);
}

static void on_kept(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        fail_kept(c, err);
        return;
    }
    const Cloche__V1__Snapshot *m =
        ((const Cloche__V1__SnapshotServiceCreateResponse *)reply)->snapshot;
    json_t *o = snapshot_json(c, m);
    const char *name = mcp_json_text(o, "name"), *until = mcp_json_text(o, "expires");
    struct mcp_result r = {
        .structured = o,
        .text = cl_asprintf("snapshot_id: %s%s%s (of sandbox %s, %.1f MiB, kept until %s). "
                            "sandbox_create with snapshot %s makes sandboxes that begin with it.",
                            m->id, name ? ", name: " : "", name ? name : "", c->box,
                            (double)m->image_bytes / (1 << 20), until ? until : "it is deleted",
                            name ? name : m->id)};
    mcp_end_tool(c, &r);
}

static void keep_box(struct mcp_call *c)
{
    static const struct mcp_method_of create =
        MCP_RPC("SnapshotService", "Create", snapshot_service_create_response);
    Cloche__V1__SnapshotServiceCreateRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    Cloche__V1__Label owner, *labels[] = {&owner};
    const char *name = mcp_json_text(c->args, "name");
    char own[MCP_SNAPSHOT_NAME] = "";
    struct cl_err err = {0};
    if (name && mcp_snapshot_name(c->who.principal, name, own, &err) < 0) {
        mcp_end_tool_error(c, &err);
        return;
    }
    mcp_owner_label(c, &owner);
    m.sandbox_id = c->box;
    m.name = own;
    m.replace = json_is_true(json_object_get(c->args, "replace"));
    m.keep_ns = mcp_seconds_ns(c->args, "keep_seconds", 0);
    m.labels = labels;
    m.n_labels = CL_COUNT(labels);
    mcp_progress(c, "keeping the sandbox as it is");
    struct mcp_ask_spec ask = {.method = &create,
                               .request = &m.base,
                               .timeout_ns = KEEP_S * CL_NS_PER_S,
                               .on_end = on_kept};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_snapshot_create(struct mcp_call *c)
{
    struct cl_err err = {0};
    if (mcp_box_is_meant(c)) {
        mcp_box_need(c, keep_box);
        return;
    }
    (void)cl_fail(&err, CL_E_INVALID, 0,
                  "argument sandbox_id: is missing, and there is no session whose sandbox could be "
                  "meant");
    mcp_end_tool_error(c, &err);
}

/* --- listing and deleting -----------------------------------------------------------------------
 */

static char *list_text(const json_t *list)
{
    size_t n = json_array_size(list), size = 64 + n * LINE, at;
    char *text = cl_zalloc(size);
    if (!text)
        return NULL;
    at = (size_t)snprintf(text, size, "%zu snapshots", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        const char *name = mcp_json_text(o, "name"), *until = mcp_json_text(o, "expires");
        at += (size_t)snprintf(
            text + at, size - at, "\n%.40s  %.64s  %.40s  %.1f MiB  %s until %.40s",
            mcp_json_text(o, "snapshot_id"), name ? name : "-", mcp_json_text(o, "template"),
            (double)mcp_json_u64(o, "image_bytes", 0) / (1 << 20), mcp_json_text(o, "state"),
            until ? until : "-");
    }
    return text;
}

static void on_listed(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    const Cloche__V1__SnapshotServiceListResponse *m =
        (const Cloche__V1__SnapshotServiceListResponse *)reply;
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_snapshots; i++) {
        const Cloche__V1__Snapshot *one = m->snapshots[i];
        if (mcp_is_mine(c, one->labels, one->n_labels))
            (void)json_array_append_new(list, snapshot_json(c, one));
    }
    struct mcp_result r = {.structured = json_pack("{s:O}", "snapshots", list),
                           .text = list_text(list)};
    if (m->next_page_token[0])
        mcp_json_set(r.structured, "next_cursor", json_string(m->next_page_token));
    json_decref(list);
    mcp_end_tool(c, &r);
}

void mcp_tool_snapshot_list(struct mcp_call *c)
{
    static const struct mcp_method_of list =
        MCP_RPC("SnapshotService", "List", snapshot_service_list_response);
    Cloche__V1__SnapshotServiceListRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_LIST_REQUEST__INIT;
    m.page_token = mcp_pb(mcp_json_text(c->args, "cursor"));
    struct mcp_ask_spec ask = {.method = &list, .request = &m.base, .on_end = on_listed};
    (void)!mcp_ask(c, &ask, NULL);
}

static void on_deleted(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:b}", "snapshot_id", c->snapshot, "deleted", 1),
        .text = cl_asprintf("Snapshot %s has been deleted. Sandboxes that began with it go on.",
                            c->snapshot)};
    mcp_end_tool(c, &r);
}

static void delete_snapshot(struct mcp_call *c)
{
    static const struct mcp_method_of delete =
        MCP_RPC("SnapshotService", "Delete", snapshot_service_delete_response);
    Cloche__V1__SnapshotServiceDeleteRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_DELETE_REQUEST__INIT;
    m.snapshot = c->snapshot;
    struct mcp_ask_spec ask = {.method = &delete, .request = &m.base, .on_end = on_deleted};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_snapshot_delete(struct mcp_call *c)
{
    mcp_snapshot_check(c, delete_snapshot);
}
