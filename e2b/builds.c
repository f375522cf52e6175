/* e2b/builds.c - the control plane: templates that tenants build; see e2b/build_priv.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "cloche/v1/snapshot.pb-c.h"
#include "cloche/v1/template.pb-c.h"
#include "cloche/v1/tenant.pb-c.h"
#include "e2b/build_priv.h"
#include "e2b/labels.h"

enum {
    LOOK_MS = 50, /* how often an upload looks whether there is room for it by now */
    ENTRIES = 100 /* of the log in one answer */
};

/* --- the table ----------------------------------------------------------------------------------
 */

static bool has_ended(const struct e2b_build *b)
{
    return b->state == E2B_BUILD_READY || b->state == E2B_BUILD_FAILED;
}

static void forget(struct e2b_build *b)
{
    cl_list_unlink(&b->link);
    b->server->n_builds--;
    cl_timer_fini(&b->timer);
    json_decref(b->log);
    cl_free(b);
}

static void on_forget(void *arg)
{
    forget(arg);
}

static void touch(struct e2b_build *b)
{
    if (b->state != E2B_BUILD_RUNNING)
        cl_timer_start(&b->timer, E2B_BUILD_S * CL_NS_PER_S);
}

void e2b_builds_free(struct e2b_server *s)
{
    CL_LIST_FOREACH (it, &s->builds)
        forget(CL_LIST_ENTRY(it, struct e2b_build, link));
}

void e2b_build_end(struct e2b_build *b, enum e2b_build_state state)
{
    b->state = state;
    touch(b);
}

/* The newest comes last. */
static struct e2b_build *find(const struct e2b_call *c, const char *id)
{
    struct e2b_build *found = NULL;
    CL_LIST_FOREACH (it, &c->server->builds) {
        struct e2b_build *b = CL_LIST_ENTRY(it, struct e2b_build, link);
        if (strcmp(b->tenant, c->tenant) == 0 && strcmp(b->name, c->id) == 0 &&
            (id ? strcmp(b->id, id) == 0 : b->state == E2B_BUILD_WAITING))
            found = b;
    }
    if (found)
        touch(found);
    return found;
}

static void fail_unknown(struct e2b_call *c, const char *what)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_NOTFOUND, 0,
                  "template %s: %s is known to this gateway: builds that are an hour old, and all "
                  "of them when it is started anew, are forgotten",
                  c->id, what);
    e2b_fail(c, &err);
}

/* The tenant has room for one more: a client that failed before it sent its recipe never comes
 * back, so its oldest build that waits makes it. */
static int make_room_of_tenant(struct e2b_server *s, const char *tenant, struct cl_err *err)
{
    struct e2b_build *oldest = NULL;
    size_t n = 0;
    CL_LIST_FOREACH (it, &s->builds) {
        struct e2b_build *b = CL_LIST_ENTRY(it, struct e2b_build, link);
        if (has_ended(b) || strcmp(b->tenant, tenant) != 0)
            continue;
        n++;
        if (!oldest && b->state == E2B_BUILD_WAITING)
            oldest = b;
    }
    if (n < E2B_BUILDS_OF_TENANT)
        return 0;
    if (!oldest)
        return cl_fail(err, CL_E_QUEUE, 0, "%zu builds of this tenant run: retry later", n);
    forget(oldest);
    return 0;
}

/* … and there is, or the oldest that has ended makes it. */
static int make_room(struct e2b_server *s, const char *tenant, struct cl_err *err)
{
    struct e2b_build *oldest = NULL;
    if (make_room_of_tenant(s, tenant, err) < 0)
        return -1;
    if (s->n_builds < E2B_BUILDS_MAX)
        return 0;
    CL_LIST_FOREACH (it, &s->builds) {
        struct e2b_build *b = CL_LIST_ENTRY(it, struct e2b_build, link);
        if (!oldest && has_ended(b))
            oldest = b;
    }
    if (!oldest)
        return cl_fail(err, CL_E_QUEUE, 0, "%d builds at once: retry later", E2B_BUILDS_MAX);
    forget(oldest);
    return 0;
}

/* RFC 9562, version 4. */
static void new_uuid(char out[static E2B_BUILD_UUID])
{
    uint8_t b[16];
    char hex[33];
    cl_random(b, sizeof b);
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    cl_hex(b, sizeof b, hex);
    (void)snprintf(out, E2B_BUILD_UUID, "%.8s-%.4s-%.4s-%.4s-%s", hex, hex + 8, hex + 12, hex + 16,
                   hex + 20);
}

static struct e2b_build *add(struct e2b_call *c, const struct e2b_build_wish *wish,
                             struct cl_err *err)
{
    struct e2b_server *s = c->server;
    struct e2b_build *b;
    if (make_room(s, c->tenant, err) < 0)
        return NULL;
    if (!(b = cl_zalloc(sizeof *b)) ||
        cl_timer_init(&b->timer, s->conf.loop, on_forget, b, err) < 0) {
        cl_free(b);
        (void)cl_fail(err, CL_E_NOMEM, 0, "build");
        return NULL;
    }
    b->server = s;
    b->log = json_array();
    b->vcpus = wish->vcpus;
    b->memory_mib = wish->memory_mib;
    b->free_mib = wish->free_mib;
    new_uuid(b->id);
    (void)snprintf(b->name, sizeof b->name, "%s", wish->name);
    (void)snprintf(b->tenant, sizeof b->tenant, "%s", c->tenant);
    cl_list_push(&s->builds, &b->link);
    s->n_builds++;
    touch(b);
    return b;
}

/* --- the log ------------------------------------------------------------------------------------
 */

static void add_entry(struct e2b_build *b, const char *level, const char *step, json_t *message)
{
    char when[CL_RFC3339_LEN];
    cl_rfc3339(cl_wall_ns(), when);
    json_t *entry =
        json_pack("{s:s, s:s, s:o}", "timestamp", when, "level", level, "message", message);
    mcp_json_set(entry, "step", json_string(step));
    (void)json_array_append_new(b->log, entry);
}

void e2b_build_say(struct e2b_build *b, const char *level, const char *step, json_t *message)
{
    size_t lines = json_array_size(b->log);
    b->log_bytes += json_string_length(message);
    if (lines < E2B_BUILD_LINES && b->log_bytes <= E2B_BUILD_LOG) {
        add_entry(b, level, step, message);
        return;
    }
    json_decref(message);
    if (lines <= E2B_BUILD_LINES && b->log_bytes < 2 * (size_t)E2B_BUILD_LOG) {
        add_entry(b, "warn", step, json_string("… the log is full: what comes now is not kept"));
        b->log_bytes = 2 * (size_t)E2B_BUILD_LOG;
    }
}

/* --- whose it is --------------------------------------------------------------------------------
 */

static void on_who(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        e2b_fail(c, err);
        return;
    }
    (void)snprintf(c->tenant, sizeof c->tenant, "%s",
                   ((const Cloche__V1__WhoAmIResponse *)reply)->tenant);
    c->found(c);
}

/* Learn whose credential it is, and go on. */
static void ask_tenant(struct e2b_call *c, e2b_run_fn *next)
{
    static const struct e2b_method who = E2B_RPC("TenantService", "WhoAmI", who_am_iresponse);
    Cloche__V1__WhoAmIRequest m = CLOCHE__V1__WHO_AM_IREQUEST__INIT;
    c->found = next;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &who, .request = &m.base, .on_end = on_who},
                   NULL);
}

/* --- a build is asked for -----------------------------------------------------------------------
 */

static void on_name(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const struct e2b_build_wish *wish = c->work;
    const struct e2b_build *b = NULL;
    struct cl_err why = {0};
    (void)reply;
    if (!err)
        (void)cl_fail(&why, CL_E_STATE, 0,
                      "template %s: the host has one of this name, which comes first: choose "
                      "another",
                      wish->name);
    else if (err->code == CL_E_NOTFOUND)
        b = add(c, wish, &why);
    if (b)
        e2b_reply(c, 202,
                  json_pack("{s:s, s:s, s:b, s:[s], s:[s], s:[]}", "templateID", b->name, "buildID",
                            b->id, "public", 0, "names", b->name, "aliases", b->name, "tags"));
    else
        e2b_fail(c, why.code ? &why : err);
}

/* What a template of the host's is called, nobody would ever get from here. */
static void check_name(struct e2b_call *c)
{
    static const struct e2b_method get =
        E2B_RPC("TemplateService", "Get", template_service_get_response);
    Cloche__V1__TemplateServiceGetRequest m = CLOCHE__V1__TEMPLATE_SERVICE_GET_REQUEST__INIT;
    const struct e2b_build_wish *wish = c->work;
    m.name = e2b_pb(wish->name);
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_name},
                   NULL);
}

void e2b_template_request(struct e2b_call *c)
{
    struct cl_err err = {0};
    struct e2b_build_wish *wish = e2b_work_new(c, sizeof *wish, cl_free);
    if (!wish)
        return;
    if (e2b_build_wish_read(c->body, wish, &err) < 0)
        e2b_fail(c, &err);
    else
        ask_tenant(c, check_name);
}

/* --- archives -----------------------------------------------------------------------------------
 */

void e2b_archive_path(const char *hash, char path[static E2B_PATH_MAX])
{
    (void)snprintf(path, E2B_PATH_MAX, "/tmp/.cloche-%s.tar", hash);
}

/* Where it goes, and with what: a token that is of no sandbox. */
static void say_link(struct e2b_call *c)
{
    char token[E2B_TOKEN_MAX];
    struct e2b_grant grant;
    struct cl_err err = {0};
    if (!find(c, NULL)) {
        fail_unknown(c, "no build of it that waits for files");
        return;
    }
    if (e2b_grant_make("", c->grant->credential, "", &grant, &err) < 0 ||
        e2b_token_seal(c->server->conf.secret, &grant, token, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    json_t *url = json_sprintf("%s://%s%s", c->server->conf.is_https ? "https" : "http", c->in.host,
                               c->in.path);
    e2b_reply(c, 201,
              json_pack("{s:b, s:o, s:{s:s}}", "present", 0, "url", url, "headers",
                        "X-Access-Token", token));
}

void e2b_template_upload_link(struct e2b_call *c)
{
    if (!c->in.host)
        (void)e2b_fail_invalid(c, "no Host");
    else
        ask_tenant(c, say_link);
}

struct upload {
    char build[E2B_BUILD_UUID]; /* there may be a newer one by now */
};

static struct e2b_build *build_of(const struct e2b_call *c)
{
    const struct upload *w = c->work;
    return find(c, w->build);
}

static void place_archive(struct e2b_call *c);

static void on_staged(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct e2b_build *b = build_of(c);
    if (b)
        b->is_staging = false;
    if (err) {
        e2b_fail(c, err);
        return;
    }
    if (b)
        (void)snprintf(b->stage, sizeof b->stage, "%s",
                       ((const Cloche__V1__CreateResponse *)reply)->sandbox->id);
    place_archive(c);
}

/* Somebody else may make it. */
static void on_stage_left(struct e2b_call *c)
{
    struct e2b_build *b = build_of(c);
    if (b)
        b->is_staging = false;
}

static void make_stage(struct e2b_call *c, struct e2b_build *b)
{
    static const struct e2b_method create = E2B_RPC("SandboxService", "Create", create_response);
    Cloche__V1__CreateRequest m = CLOCHE__V1__CREATE_REQUEST__INIT;
    Cloche__V1__Label label = CLOCHE__V1__LABEL__INIT, *labels[] = {&label};
    label.key = e2b_pb(E2B_LABEL_BUILD);
    label.value = b->id;
    m.template_ = e2b_pb(c->server->conf.template_name);
    m.labels = labels;
    m.n_labels = 1;
    m.ttl_ns = E2B_BUILD_IDLE_S * CL_NS_PER_S;
    m.idempotency_key = b->id;
    b->is_staging = true;
    c->left = on_stage_left;
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &create,
                                     .request = &m.base,
                                     .timeout_ns = 2 * E2B_ASK_NS,
                                     .on_end = on_staged},
                   NULL);
}

static void place_archive(struct e2b_call *c)
{
    char path[E2B_PATH_MAX];
    struct e2b_build *b = build_of(c);
    c->left = NULL;
    if (!b || b->state != E2B_BUILD_WAITING) {
        fail_unknown(c, "no build of it that waits for files");
    } else if (b->is_staging) {
        e2b_after(c, LOOK_MS * CL_NS_PER_MS, place_archive);
    } else if (!b->stage[0]) {
        make_stage(c, b);
    } else {
        (void)snprintf(c->grant->sandbox, sizeof c->grant->sandbox, "%s", b->stage);
        c->user = "root";
        e2b_archive_path(c->ids.below, path);
        e2b_file_take(c, path);
    }
}

static void begin_upload(struct e2b_call *c)
{
    const struct e2b_build *b = find(c, NULL);
    if (!b) {
        fail_unknown(c, "no build of it that waits for files");
        return;
    }
    struct upload *w = e2b_work_new(c, sizeof *w, cl_free);
    if (!w)
        return;
    memcpy(w->build, b->id, sizeof w->build);
    place_archive(c);
}

void e2b_template_upload(struct e2b_call *c)
{
    struct cl_err err = {0};
    if (c->grant->sandbox[0])
        (void)cl_fail(&err, CL_E_UNAUTH, 0, "the access token is one of a sandbox");
    else if (!e2b_is_hash(c->ids.below))
        (void)cl_fail(&err, CL_E_INVALID, 0, "an archive is called by %d hexadecimal digits",
                      E2B_HASH);
    if (err.code)
        e2b_fail(c, &err);
    else
        ask_tenant(c, begin_upload);
}

/* --- the recipe ---------------------------------------------------------------------------------
 */

static void run(struct e2b_call *c)
{
    struct e2b_build *b = find(c, c->ids.below);
    struct e2b_recipe recipe;
    struct cl_err err = {0};
    if (!b)
        fail_unknown(c, "no such build of it");
    else if (b->state != E2B_BUILD_WAITING &&
             cl_fail(&err, CL_E_STATE, 0, "build %s was started before", b->id) < 0)
        e2b_fail(c, &err);
    else if (e2b_recipe_read(c->body, &recipe, &err) < 0 || e2b_build_run(b, c, &recipe, &err) < 0)
        e2b_fail(c, &err);
    else
        e2b_reply(c, 202, NULL);
}

void e2b_template_build(struct e2b_call *c)
{
    struct e2b_recipe recipe;
    struct cl_err err = {0};
    if (e2b_recipe_read(c->body, &recipe, &err) < 0)
        e2b_fail(c, &err);
    else
        ask_tenant(c, run);
}

/* --- how it goes --------------------------------------------------------------------------------
 */

static void say_status(struct e2b_call *c)
{
    static const char *const states[] = {[E2B_BUILD_WAITING] = "waiting",
                                         [E2B_BUILD_RUNNING] = "building",
                                         [E2B_BUILD_READY] = "ready",
                                         [E2B_BUILD_FAILED] = "error"};
    const struct e2b_build *b = find(c, c->ids.below);
    char offset[24] = "";
    if (!b) {
        fail_unknown(c, "no such build of it");
        return;
    }
    if (e2b_query_get(c->in.query, "logsOffset", offset, sizeof offset) < 0) {
        (void)e2b_fail_invalid(c, "logsOffset is malformed");
        return;
    }
    size_t from = strtoull(offset, NULL, 10), n = json_array_size(b->log);
    json_t *entries = json_array();
    for (size_t i = from; i < n && i - from < ENTRIES; i++)
        (void)json_array_append(entries, json_array_get(b->log, i));
    json_t *o = json_pack("{s:s, s:s, s:s, s:[], s:o}", "templateID", b->name, "buildID", b->id,
                          "status", states[b->state], "logs", "logEntries", entries);
    if (b->state == E2B_BUILD_FAILED)
        mcp_json_set(o, "reason", json_pack("{s:s, s:s}", "message", b->reason, "step", b->step));
    e2b_reply(c, 200, o);
}

void e2b_template_status(struct e2b_call *c)
{
    ask_tenant(c, say_status);
}

static void on_asked(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__SnapshotServiceGetResponse *m =
        (const Cloche__V1__SnapshotServiceGetResponse *)reply;
    struct cl_err ended = {0};
    if (err)
        e2b_fail(c, err);
    else if (m->snapshot->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED &&
             cl_fail(&ended, CL_E_NOTFOUND, 0, "template %s: not found", c->id) < 0)
        e2b_fail(c, &ended);
    else
        e2b_reply(c, 200, json_pack("{s:s, s:b}", "templateID", c->id, "public", 0));
}

void e2b_template_exists(struct e2b_call *c)
{
    static const struct e2b_method get =
        E2B_RPC("SnapshotService", "Get", snapshot_service_get_response);
    Cloche__V1__SnapshotServiceGetRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_GET_REQUEST__INIT;
    m.snapshot = e2b_pb(c->id);
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_asked},
                   NULL);
}
