/* mcp/box.c - sandboxes: whose they are, the default one of a session, and the tools that make,
 * list, pause, resume, copy and end them.
 *
 * A sandbox belongs to the principal that made it, by a label that the scheduler keeps; another's,
 * and one that never was, are answered alike.  A session's default sandbox is made with an
 * idempotency key derived from the session, so that two calls at once, or a gateway that was
 * started anew, find the same one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

enum { GENERATIONS = 64, KEY_TEXT = 64, CREATE_S = 60, PAUSE_S = 120, NAME_MAX_BYTES = 64 };

static const char label_owner[] = "mcp-owner", label_shared[] = "mcp-shared",
                  label_name[] = "mcp-name";

/* --- owners -------------------------------------------------------------------------------------
 */

static void fail_unknown(struct mcp_call *c, const char *id)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_NOTFOUND, 0, "no live sandbox '%.40s'", id);
    (void)snprintf(err.subject, sizeof err.subject, "sandbox");
    mcp_end_tool_error(c, &err);
}

static void empty_map(struct cl_map *map)
{
    const char *key;
    for (size_t at = 0; cl_map_next(map, &at, &key) != NULL; at = 0)
        cl_free(cl_map_del(map, key));
}

/* Labels never change, so what was once read holds. */
static void remember_owner(struct mcp_call *c, const char *id)
{
    struct cl_map *owners = c->server->owners;
    if (cl_map_get(owners, id))
        return;
    if (cl_map_count(owners) >= MCP_OWNERS_MAX)
        empty_map(owners);
    char *owner = cl_strdup(c->who.principal);
    if (!owner || cl_map_put(owners, id, owner, NULL) < 0)
        cl_free(owner);
}

bool mcp_is_mine(const struct mcp_call *c, Cloche__V1__Label *const *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const Cloche__V1__Label *l = labels[i];
        if ((strcmp(l->key, label_owner) == 0 && strcmp(l->value, c->who.principal) == 0) ||
            (strcmp(l->key, label_shared) == 0 && strcmp(l->value, "yes") == 0))
            return true;
    }
    return false;
}

void mcp_owner_label(struct mcp_call *c, Cloche__V1__Label *ret_label)
{
    cloche__v1__label__init(ret_label);
    ret_label->key = mcp_pb(label_owner);
    ret_label->value = c->who.principal;
}

static void on_owner(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__Sandbox *m =
        reply ? ((const Cloche__V1__SandboxServiceGetResponse *)reply)->sandbox : NULL;
    if (err && err->code != CL_E_NOTFOUND && err->code != CL_E_INVALID) {
        mcp_end_tool_error(c, err);
    } else if (!m || !mcp_is_mine(c, m->labels, m->n_labels) ||
               m->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED) {
        fail_unknown(c, c->box);
    } else {
        remember_owner(c, c->box);
        mcp_run_fn *next = c->next;
        next(c);
    }
}

void mcp_box_check(struct mcp_call *c, const char *id, mcp_run_fn *next)
{
    static const struct mcp_method_of get =
        MCP_RPC("SandboxService", "Get", sandbox_service_get_response);
    Cloche__V1__SandboxServiceGetRequest m = CLOCHE__V1__SANDBOX_SERVICE_GET_REQUEST__INIT;
    if (!cl_id_is(id, "sbx")) {
        fail_unknown(c, id);
        return;
    }
    const char *owner = cl_map_get(c->server->owners, id);
    (void)snprintf(c->box, sizeof c->box, "%s", id);
    c->next = next;
    if (owner && strcmp(owner, c->who.principal) == 0) {
        next(c);
        return;
    }
    m.sandbox_id = mcp_pb(id);
    struct mcp_ask_spec ask = {.method = &get, .request = &m.base, .on_end = on_owner};
    (void)!mcp_ask(c, &ask, NULL);
}

/* --- making one ---------------------------------------------------------------------------------
 */

struct creation {
    const char *template_name; /* NULL = the server's */
    const char *snapshot;      /* instead of a template; NULL = none */
    const char *key;
    uint64_t ttl_ns;
    uint32_t cpus, memory_mib;
    const json_t *network; /* rules, by the schema; NULL = none */
    bool pauses;           /* instead of ending, when it is idle, until it is used */
};

enum { NETWORK_RULES = 32 /* maxItems of tools.json */ };

static void ask_create(struct mcp_call *c, const struct creation *w,
                       void (*on_end)(struct mcp_call *, const ProtobufCMessage *,
                                      const struct cl_err *))
{
    static const struct mcp_method_of create = MCP_RPC("SandboxService", "Create", create_response);
    Cloche__V1__CreateRequest m = CLOCHE__V1__CREATE_REQUEST__INIT;
    Cloche__V1__Resources resources = CLOCHE__V1__RESOURCES__INIT;
    Cloche__V1__Label owner, name = CLOCHE__V1__LABEL__INIT, *labels[] = {&owner, &name};
    name.key = mcp_pb(label_name);
    name.value = c->place;
    mcp_owner_label(c, &owner);
    m.labels = labels;
    m.n_labels = c->place[0] ? 2 : 1;
    if (w->snapshot)
        m.snapshot = mcp_pb(w->snapshot);
    else
        m.template_ = mcp_pb(w->template_name ? w->template_name : c->server->conf.template_name);
    m.ttl_ns = w->ttl_ns ? w->ttl_ns : c->server->conf.ttl_ns;
    m.idempotency_key = mcp_pb(w->key);
    resources.vcpus = w->cpus;
    resources.memory_mib = w->memory_mib;
    m.resources = &resources;
    Cloche__V1__NetworkGrant grant = CLOCHE__V1__NETWORK_GRANT__INIT;
    char *allow[NETWORK_RULES];
    grant.allow = allow;
    for (; grant.n_allow < CL_MIN(json_array_size(w->network), CL_COUNT(allow)); grant.n_allow++)
        allow[grant.n_allow] = mcp_pb(json_string_value(json_array_get(w->network, grant.n_allow)));
    if (w->network)
        m.network_grant = &grant;
    if (w->pauses)
        m.on_idle = CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    m.wake_on_use = w->pauses;
    struct mcp_ask_spec ask = {.method = &create,
                               .request = &m.base,
                               .timeout_ns = (w->snapshot ? PAUSE_S : CREATE_S) * CL_NS_PER_S,
                               .on_end = on_end};
    (void)!mcp_ask(c, &ask, NULL);
}

struct mcp_seat *mcp_seat(struct mcp_server *s, const char *session, bool make)
{
    char digest[MCP_DIGEST_TEXT];
    mcp_digest(s->conf.secret, "seat", session, digest);
    struct mcp_seat *seat = cl_map_get(s->seats, digest);
    if (seat || !make)
        return seat;
    if (cl_map_count(s->seats) >= MCP_SESSIONS_MAX)
        empty_map(s->seats); /* found again by their idempotency keys */
    seat = cl_zalloc(sizeof *seat);
    if (!seat || cl_map_put(s->seats, digest, seat, NULL) < 0) {
        cl_free(seat);
        return NULL;
    }
    return seat;
}

/* "" = this call has no place to keep a default sandbox in. */
static const char *seat_name(const struct mcp_call *c)
{
    return c->place[0] ? c->place : c->is_stdio ? "stdio" : c->session;
}

static void make_default(struct mcp_call *c);

static void on_default(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct mcp_seat *seat = seat_name(c)[0] ? mcp_seat(c->server, seat_name(c), true) : NULL;
    if (err && err->code == CL_E_STATE && seat && seat->generation < GENERATIONS) {
        seat->generation++; /* the one of this key has ended */
        make_default(c);
        return;
    }
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    const Cloche__V1__Sandbox *m = ((const Cloche__V1__CreateResponse *)reply)->sandbox;
    (void)snprintf(c->box, sizeof c->box, "%s", m->id);
    if (seat)
        (void)snprintf(seat->sandbox, sizeof seat->sandbox, "%s", m->id);
    c->box_is_new = true;
    remember_owner(c, c->box);
    c->next(c);
}

static void make_default(struct mcp_call *c)
{
    char key[KEY_TEXT] = "", digest[MCP_DIGEST_TEXT];
    const char *name = seat_name(c);
    const struct mcp_seat *seat = name[0] ? mcp_seat(c->server, name, true) : NULL;
    if (seat) {
        mcp_digest(c->server->conf.secret, "sandbox", name, digest);
        (void)snprintf(key, sizeof key, "mcp-%s-%u", digest, seat->generation);
    }
    mcp_progress(c, "making a sandbox");
    struct creation w = {.key = key};
    if (c->place[0]) { /* started by name: as it was asked for */
        w.template_name = mcp_json_text(c->args, "template");
        w.cpus = (uint32_t)mcp_json_u64(c->args, "cpus", 0);
        w.memory_mib = (uint32_t)mcp_json_u64(c->args, "memory_mib", 0);
    }
    ask_create(c, &w, on_default);
}

/* --- named ones ---------------------------------------------------------------------------------
 */

void mcp_box_name(struct mcp_call *c, const char *space, const char *name)
{
    char all[MCP_PRINCIPAL + 2 * NAME_MAX_BYTES + 3];
    (void)snprintf(all, sizeof all, "%s\n%s\n%s", c->who.principal, space, name);
    mcp_digest(c->server->conf.secret, "name", all, c->place);
}

static void on_named(struct mcp_call *c)
{
    struct mcp_result r = {.structured = json_pack("{s:s, s:b, s:b}", "sandbox_id", c->box,
                                                   "running", 1, "started", c->box_is_new),
                           .text =
                               cl_asprintf("%s\nsandbox_id: %s",
                                           c->box_is_new ? "started" : "it runs already", c->box)};
    mcp_end_tool(c, &r);
}

static void take_found(struct mcp_call *c, const char *id)
{
    struct mcp_seat *seat = mcp_seat(c->server, c->place, true);
    (void)snprintf(c->box, sizeof c->box, "%s", id);
    if (seat)
        (void)snprintf(seat->sandbox, sizeof seat->sandbox, "%s", id);
    remember_owner(c, c->box);
    c->next(c);
}

static void on_searched(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__SandboxServiceListResponse *m =
        (const Cloche__V1__SandboxServiceListResponse *)reply;
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    for (size_t i = 0; i < m->n_sandboxes; i++) {
        if (mcp_is_mine(c, m->sandboxes[i]->labels, m->sandboxes[i]->n_labels)) {
            take_found(c, m->sandboxes[i]->id);
            return;
        }
    }
    if (c->next == on_named)
        make_default(c);
    else
        fail_unknown(c, mcp_json_text(c->given, "sandbox"));
}

/* The scheduler knows it by its label, whatever we remember. */
static void search(struct mcp_call *c)
{
    static const struct mcp_method_of list =
        MCP_RPC("SandboxService", "List", sandbox_service_list_response);
    Cloche__V1__SandboxServiceListRequest m = CLOCHE__V1__SANDBOX_SERVICE_LIST_REQUEST__INIT;
    Cloche__V1__Label name = CLOCHE__V1__LABEL__INIT, *labels[] = {&name};
    name.key = mcp_pb(label_name);
    name.value = c->place;
    m.labels = labels;
    m.n_labels = CL_COUNT(labels);
    struct mcp_ask_spec ask = {.method = &list, .request = &m.base, .on_end = on_searched};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_sandbox_start(struct mcp_call *c)
{
    const char *asked = mcp_json_text(c->args, "sandbox_id");
    c->next = on_named;
    if (asked)
        mcp_box_check(c, asked, on_named);
    else
        search(c); /* also where we remember one: it may have ended */
}

void mcp_box_need(struct mcp_call *c, mcp_run_fn *next)
{
    const char *asked = mcp_json_text(c->args, "sandbox_id");
    if (asked) {
        mcp_box_check(c, asked, next);
        return;
    }
    c->next = next;
    const struct mcp_seat *seat = seat_name(c)[0] ? mcp_seat(c->server, seat_name(c), false) : NULL;
    if (seat && seat->sandbox[0]) {
        (void)snprintf(c->box, sizeof c->box, "%s", seat->sandbox);
        next(c);
        return;
    }
    if (c->place[0])
        search(c);
    else
        make_default(c);
}

bool mcp_box_is_meant(const struct mcp_call *c)
{
    return mcp_json_text(c->args, "sandbox_id") || seat_name(c)[0];
}

const char *mcp_box(const struct mcp_call *c)
{
    return c->box;
}

bool mcp_box_is_new(const struct mcp_call *c)
{
    return c->box_is_new;
}

void mcp_box_gone(struct mcp_call *c)
{
    cl_free(cl_map_del(c->server->owners, c->box));
    struct mcp_seat *seat = seat_name(c)[0] ? mcp_seat(c->server, seat_name(c), false) : NULL;
    if (!seat || strcmp(seat->sandbox, c->box) != 0)
        return;
    seat->sandbox[0] = '\0';
    seat->generation++;
}

void mcp_box_note(const struct mcp_call *c, char *out, size_t size)
{
    if (!c->box_is_new)
        (void)snprintf(out, size, "sandbox_id: %s", c->box);
    else if (seat_name(c)[0])
        (void)snprintf(out, size, "sandbox_id: %s (new; this session goes on in it)", c->box);
    else
        (void)snprintf(out, size, "sandbox_id: %s (new; pass it to keep files and state)", c->box);
}

/* --- the end of a session -----------------------------------------------------------------------
 */

static const struct mcp_method_of kill_method = MCP_RPC("SandboxService", "Kill", kill_response);

static void on_session_killed(struct mcp_call *c, const ProtobufCMessage *reply,
                              const struct cl_err *err)
{
    (void)reply, (void)err; /* if it could not be ended now, its idle time does it */
    mcp_bare(c, &(struct mcp_reply){.http = 204});
}

void mcp_session_end(struct mcp_call *c)
{
    const char *given = c->in.headers ? c->in.headers->session : NULL;
    Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
    struct cl_err err = {0};
    struct mcp_seat *seat = NULL;
    if (given && mcp_session_is_valid(c->server->conf.secret, c->who.principal, given,
                                      cl_wall_ns() / CL_NS_PER_S))
        seat = mcp_seat(c->server, given, true);
    if (!seat || seat->ended) {
        mcp_bare(c, &(struct mcp_reply){.http = given ? 404 : 400});
        return;
    }
    seat->ended = true;
    m.sandbox_id = seat->sandbox;
    struct mcp_ask_spec ask = {
        .method = &kill_method, .request = &m.base, .on_end = on_session_killed};
    if (!seat->sandbox[0] || mcp_ask_try(c, &ask, NULL, &err) < 0)
        on_session_killed(c, NULL, NULL);
}

/* --- the tools ----------------------------------------------------------------------------------
 */

json_t *mcp_rules_json(const Cloche__V1__NetworkGrant *m)
{
    json_t *rules = json_array();
    for (size_t i = 0; i < m->n_allow; i++)
        (void)json_array_append_new(rules, json_string(m->allow[i]));
    return rules;
}

static json_t *box_json(const Cloche__V1__Sandbox *m)
{
    static const char *const states[] = {"unknown", "queued", "starting",
                                         "running", "paused", "ended"};
    char when[CL_RFC3339_LEN];
    size_t state = (size_t)m->state < CL_COUNT(states) ? (size_t)m->state : 0;
    json_t *o = json_pack("{s:s, s:s, s:s}", "sandbox_id", m->id, "template", m->template_, "state",
                          states[state]);
    if (m->created) {
        cl_rfc3339(m->created->unix_ns, when);
        mcp_json_set(o, "created", json_string(when));
    }
    if (m->expires) {
        cl_rfc3339(m->expires->unix_ns, when);
        mcp_json_set(o, "expires", json_string(when));
    }
    if (m->resources && m->resources->vcpus)
        mcp_json_set(o, "cpus", json_integer(m->resources->vcpus));
    if (m->resources && m->resources->memory_mib)
        mcp_json_set(o, "memory_mib", json_integer(m->resources->memory_mib));
    mcp_json_set(
        o, "on_idle",
        json_string(m->on_idle == CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE ? "pause" : "end"));
    if (m->image_bytes)
        mcp_json_set(o, "image_bytes", json_integer((json_int_t)m->image_bytes));
    if (m->forked_from[0])
        mcp_json_set(o, "forked_from", json_string(m->forked_from));
    if (m->network_grant)
        mcp_json_set(o, "network", mcp_rules_json(m->network_grant));
    return o;
}

static void on_created(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    const Cloche__V1__Sandbox *m = ((const Cloche__V1__CreateResponse *)reply)->sandbox;
    const char *snapshot = mcp_json_text(c->args, "snapshot");
    remember_owner(c, m->id);
    struct mcp_result r = {.structured = box_json(m),
                           .text = cl_asprintf("sandbox_id: %s (%s %s; pass it to the other tools)",
                                               m->id, snapshot ? "snapshot" : "template",
                                               snapshot ? snapshot : m->template_)};
    mcp_end_tool(c, &r);
}

static void create_box(struct mcp_call *c)
{
    const char *on_idle = mcp_json_text(c->args, "on_idle");
    struct creation w = {.template_name = mcp_json_text(c->args, "template"),
                         .snapshot = c->snapshot[0] ? c->snapshot : NULL,
                         .ttl_ns = mcp_seconds_ns(c->args, "ttl_seconds", 0),
                         .cpus = (uint32_t)mcp_json_u64(c->args, "cpus", 0),
                         .memory_mib = (uint32_t)mcp_json_u64(c->args, "memory_mib", 0),
                         .network = json_object_get(c->args, "network"),
                         .pauses = on_idle && strcmp(on_idle, "pause") == 0};
    mcp_progress(c, "making a sandbox");
    ask_create(c, &w, on_created);
}

void mcp_tool_sandbox_create(struct mcp_call *c)
{
    struct cl_err err = {0};
    if (!mcp_json_text(c->args, "snapshot")) {
        create_box(c);
        return;
    }
    if (!mcp_json_text(c->args, "template")) {
        mcp_snapshot_check(c, create_box);
        return;
    }
    (void)cl_fail(&err, CL_E_INVALID, 0,
                  "arguments template and snapshot: give one of them, not both; with snapshot it "
                  "has what was installed when that was made");
    mcp_end_tool_error(c, &err);
}

static char *list_text(const json_t *list)
{
    size_t n = json_array_size(list), size = 64 + n * 128, at;
    char *text = cl_zalloc(size);
    if (!text)
        return NULL;
    at = (size_t)snprintf(text, size, "%zu sandboxes", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        at += (size_t)snprintf(text + at, size - at, "\n%.40s  %.40s  %s",
                               mcp_json_text(o, "sandbox_id"), mcp_json_text(o, "template"),
                               mcp_json_text(o, "state"));
    }
    return text;
}

static void on_listed(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    const Cloche__V1__SandboxServiceListResponse *m =
        (const Cloche__V1__SandboxServiceListResponse *)reply;
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_sandboxes; i++) {
        if (mcp_is_mine(c, m->sandboxes[i]->labels, m->sandboxes[i]->n_labels))
            (void)json_array_append_new(list, box_json(m->sandboxes[i]));
    }
    struct mcp_result r = {.structured = json_pack("{s:O}", "sandboxes", list),
                           .text = list_text(list)};
    if (m->next_page_token[0])
        mcp_json_set(r.structured, "next_cursor", json_string(m->next_page_token));
    json_decref(list);
    mcp_end_tool(c, &r);
}

void mcp_tool_sandbox_list(struct mcp_call *c)
{
    static const struct mcp_method_of list =
        MCP_RPC("SandboxService", "List", sandbox_service_list_response);
    Cloche__V1__SandboxServiceListRequest m = CLOCHE__V1__SANDBOX_SERVICE_LIST_REQUEST__INIT;
    m.page_token = mcp_pb(mcp_json_text(c->args, "cursor"));
    struct mcp_ask_spec ask = {.method = &list, .request = &m.base, .on_end = on_listed};
    (void)!mcp_ask(c, &ask, NULL);
}

static void on_killed(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:b}", "sandbox_id", c->box, "killed", 1),
        .text =
            cl_asprintf("Sandbox %s has been ended; its files and processes are gone.", c->box)};
    mcp_box_gone(c);
    mcp_end_tool(c, &r);
}

static void kill_box(struct mcp_call *c)
{
    Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
    m.sandbox_id = c->box;
    struct mcp_ask_spec ask = {.method = &kill_method, .request = &m.base, .on_end = on_killed};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_sandbox_kill(struct mcp_call *c)
{
    mcp_box_check(c, mcp_json_text(c->args, "sandbox_id"), kill_box);
}

void mcp_tool_sandbox_stop(struct mcp_call *c)
{
    mcp_box_need(c, kill_box);
}

/* Of a paused one it is still known whose it is, and a session's stays the session's. */
static void fail_asked(struct mcp_call *c, const struct cl_err *err)
{
    if (err->code == CL_E_NOTFOUND)
        mcp_box_gone(c);
    mcp_end_tool_error(c, err);
}

/* A large guest's memory takes its time. */
static void ask_patiently(struct mcp_call *c, struct mcp_ask_spec *ask)
{
    ask->timeout_ns = PAUSE_S * CL_NS_PER_S;
    (void)!mcp_ask(c, ask, NULL);
}

static void on_paused(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        fail_asked(c, err);
        return;
    }
    json_t *o = box_json(((const Cloche__V1__PauseResponse *)reply)->sandbox);
    const char *until = mcp_json_text(o, "expires");
    struct mcp_result r = {
        .structured = o,
        .text = cl_asprintf("Sandbox %s is paused and kept until %s. sandbox_resume lets it go on "
                            "with its files, processes and variables.",
                            c->box, until ? until : "it is ended")};
    mcp_end_tool(c, &r);
}

static void pause_box(struct mcp_call *c)
{
    static const struct mcp_method_of pause = MCP_RPC("SandboxService", "Pause", pause_response);
    Cloche__V1__PauseRequest m = CLOCHE__V1__PAUSE_REQUEST__INIT;
    m.sandbox_id = c->box;
    m.keep_ns = mcp_seconds_ns(c->args, "keep_seconds", 0);
    mcp_progress(c, "pausing the sandbox");
    ask_patiently(
        c, &(struct mcp_ask_spec){.method = &pause, .request = &m.base, .on_end = on_paused});
}

void mcp_tool_sandbox_pause(struct mcp_call *c)
{
    mcp_box_check(c, mcp_json_text(c->args, "sandbox_id"), pause_box);
}

static void on_resumed(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        fail_asked(c, err);
        return;
    }
    const Cloche__V1__ResumeResponse *m = (const Cloche__V1__ResumeResponse *)reply;
    json_t *o = box_json(m->sandbox);
    mcp_json_set(o, "was_paused", json_boolean(m->was_paused));
    struct mcp_result r = {.structured = o,
                           .text =
                               cl_asprintf(m->was_paused ? "Sandbox %s goes on where it was paused."
                                                         : "Sandbox %s was not paused; it runs.",
                                           c->box)};
    mcp_end_tool(c, &r);
}

static void resume_box(struct mcp_call *c)
{
    static const struct mcp_method_of resume = MCP_RPC("SandboxService", "Resume", resume_response);
    Cloche__V1__ResumeRequest m = CLOCHE__V1__RESUME_REQUEST__INIT;
    m.sandbox_id = c->box;
    m.ttl_ns = mcp_seconds_ns(c->args, "ttl_seconds", 0);
    mcp_progress(c, "resuming the sandbox");
    ask_patiently(
        c, &(struct mcp_ask_spec){.method = &resume, .request = &m.base, .on_end = on_resumed});
}

void mcp_tool_sandbox_resume(struct mcp_call *c)
{
    mcp_box_check(c, mcp_json_text(c->args, "sandbox_id"), resume_box);
}

static void on_forked(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        fail_asked(c, err);
        return;
    }
    const Cloche__V1__Sandbox *m = ((const Cloche__V1__ForkResponse *)reply)->sandbox;
    remember_owner(c, m->id);
    struct mcp_result r = {
        .structured = box_json(m),
        .text = cl_asprintf("sandbox_id: %s (a copy of %s; pass it to the other tools)", m->id,
                            c->box)};
    mcp_end_tool(c, &r);
}

/* With no label but its owner's: a name goes on to find the copied one only, and a copy of one that
 * is shared is its maker's. */
static void fork_box(struct mcp_call *c)
{
    static const struct mcp_method_of fork = MCP_RPC("SandboxService", "Fork", fork_response);
    Cloche__V1__ForkRequest m = CLOCHE__V1__FORK_REQUEST__INIT;
    Cloche__V1__Label owner, *labels[] = {&owner};
    mcp_owner_label(c, &owner);
    m.sandbox_id = c->box;
    m.ttl_ns = mcp_seconds_ns(c->args, "ttl_seconds", 0);
    m.labels = labels;
    m.n_labels = CL_COUNT(labels);
    mcp_progress(c, "copying the sandbox");
    ask_patiently(c,
                  &(struct mcp_ask_spec){.method = &fork, .request = &m.base, .on_end = on_forked});
}

void mcp_tool_sandbox_fork(struct mcp_call *c)
{
    mcp_box_check(c, mcp_json_text(c->args, "sandbox_id"), fork_box);
}

/* --- stdio --------------------------------------------------------------------------------------
 */

struct last_act {
    void (*done)(void *arg);
    void *arg;
};

static void on_last(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply, (void)err;
    struct last_act act = *(struct last_act *)c->work;
    mcp_call_kill(c);
    act.done(act.arg);
}

void mcp_server_close_stdio(struct mcp_server *s, void (*done)(void *arg), void *arg)
{
    static const struct mcp_transport mute = {0};
    const struct mcp_seat *seat = mcp_seat(s, "stdio", false);
    struct mcp_incoming in = {0};
    struct mcp_call *c = NULL;
    struct last_act *act = cl_zalloc(sizeof *act);
    Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
    if (!seat || !seat->sandbox[0] || !act || mcp_call_new(s, &in, &mute, NULL, &c, NULL) < 0) {
        cl_free(act);
        done(arg);
        return;
    }
    *act = (struct last_act){done, arg};
    mcp_set_work(c, act, cl_free);
    c->transport = NULL;
    m.sandbox_id = mcp_pb(seat->sandbox);
    struct mcp_ask_spec ask = {.method = &kill_method,
                               .request = &m.base,
                               .timeout_ns = 5 * CL_NS_PER_S,
                               .on_end = on_last};
    if (mcp_ask_try(c, &ask, NULL, NULL) < 0) {
        mcp_call_kill(c);
        done(arg);
    }
}
