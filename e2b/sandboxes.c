/* e2b/sandboxes.c - the control plane: sandboxes by E2B's names for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/port.pb-c.h"
#include "e2b/box_priv.h"
#include "e2b/labels.h"
#include "e2b/network.h"
#include "e2b/origin.h"
#include "e2b/page.h"
#include "e2b/pause.h"

enum {
    CREATE_S = 120, /* a template that is not warm may have to boot */
    PAUSE_S = 120,  /* all of its memory is written, or read */
    KEEP_S = 30 * 24 * 3600,
    TIMEOUT_DEFAULT_S = 300,
    METADATA_MAX = 32,
};

/* --- what a sandbox is --------------------------------------------------------------------------
 */

static void set_time(json_t *o, const char *name, const Cloche__V1__Time *time)
{
    char when[CL_RFC3339_LEN];
    if (!time)
        return;
    cl_rfc3339(time->unix_ns, when);
    mcp_json_set(o, name, json_string(when));
}

static json_t *metadata_of(const Cloche__V1__Sandbox *m)
{
    char name[E2B_LABEL_KEY];
    json_t *o = json_object();
    for (size_t i = 0; i < m->n_labels; i++) {
        if (e2b_label_name(m->labels[i]->key, name))
            mcp_json_set(o, name, json_string(m->labels[i]->value));
    }
    return o;
}

static bool is_paused(const Cloche__V1__Sandbox *m)
{
    return m->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED;
}

static json_t *detail_of(const Cloche__V1__Sandbox *m)
{
    const char *template_ = e2b_box_template(m);
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s}", "templateID", template_, "sandboxID", m->id,
                          "clientID", E2B_CLIENT_ID, "envdVersion", E2B_ENVD_VERSION, "state",
                          is_paused(m) ? "paused" : "running");
    mcp_json_set(o, "alias", json_string(template_));
    mcp_json_set(o, "cpuCount", json_integer(m->resources ? m->resources->vcpus : 0));
    mcp_json_set(o, "memoryMB", json_integer(m->resources ? m->resources->memory_mib : 0));
    mcp_json_set(o, "diskSizeMB", json_integer(m->resources ? m->resources->disk_mib : 0));
    mcp_json_set(o, "metadata", metadata_of(m));
    mcp_json_set(
        o, "lifecycle",
        json_pack("{s:s, s:b}", "onTimeout",
                  m->on_idle == CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE ? "pause" : "kill",
                  "autoResume", m->wake_on_use));
    set_time(o, "startedAt", m->created);
    set_time(o, "endAt", m->expires);
    return o;
}

/* --- what create, connect and resume answer -----------------------------------------------------
 */

struct answer {
    int status;
    json_t *body; /* owned */
};

static void answer_free(void *obj)
{
    struct answer *w = obj;
    json_decref(w->body);
    cl_free(w);
}

/* The sandbox is there, whatever went wrong. */
static void say_answer(struct e2b_call *c, const char *link)
{
    struct answer *w = c->work;
    json_t *body = w->body;
    w->body = NULL;
    if (link)
        e2b_box_set_link(c, body, link);
    e2b_reply(c, w->status, body);
}

static void on_linked(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    say_answer(c, err ? NULL : ((const Cloche__V1__CreateLinkResponse *)reply)->link);
}

/* With the keys to envd and to the ports. */
static void answer_with_token(struct e2b_call *c, int status, const Cloche__V1__Sandbox *m,
                              const char *env)
{
    struct cl_err err = {0};
    json_t *body = e2b_box_answer(c, m, env, &err);
    if (!body) {
        e2b_fail(c, &err);
        return;
    }
    if (!e2b_box_has_link(c, m)) {
        e2b_reply(c, status, body);
        return;
    }
    struct answer *w = e2b_work_new(c, sizeof *w, answer_free);
    if (!w) {
        json_decref(body);
        return;
    }
    *w = (struct answer){status, body};
    if (e2b_box_ask_link(c, m->id, on_linked, &err) < 0)
        say_answer(c, NULL);
}

/* --- create -------------------------------------------------------------------------------------
 */

struct creation {
    char *env; /* owned by jansson: environment of every command, in the token */
    struct e2b_origin origin;
    struct e2b_place_labels place;
};

static void creation_free(void *obj)
{
    struct creation *w = obj;
    free(w->env);
    cl_free(w);
}

static void on_created(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const struct creation *w = c->work;
    if (err)
        e2b_fail(c, err);
    else
        answer_with_token(c, 201, ((const Cloche__V1__CreateResponse *)reply)->sandbox,
                          w->env ? w->env : "");
}

struct label_list {
    Cloche__V1__Label labels[METADATA_MAX], *list[METADATA_MAX + E2B_PLACE_LABELS];
    char keys[METADATA_MAX][E2B_LABEL_KEY];
    size_t n;
};

static int add_label(struct label_list *l, const char *name, const char *value, struct cl_err *err)
{
    if (l->n == METADATA_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "metadata: at most %d", METADATA_MAX);
    if (!value)
        return cl_fail(err, CL_E_INVALID, 0, "metadata '%.40s' is no text", name);
    if (e2b_label_key(name, l->keys[l->n], err) < 0)
        return -1;
    cloche__v1__label__init(&l->labels[l->n]);
    l->labels[l->n].key = l->keys[l->n];
    l->labels[l->n].value = e2b_pb(value);
    l->list[l->n] = &l->labels[l->n];
    l->n++;
    return 0;
}

static int add_metadata(struct label_list *l, json_t *metadata, struct cl_err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(metadata, name, value)
    {
        if (add_label(l, name, json_string_value(value), err) < 0)
            return -1;
    }
    return 0;
}

/* Refused rather than left out: what cannot be had must not look as if it were. */
static int check_wishes(const json_t *body, struct cl_err *err)
{
    static const char *const absent[] = {"mcp", "volumeMounts", "iam"};
    for (size_t i = 0; i < CL_COUNT(absent); i++) {
        const json_t *v = json_object_get(body, absent[i]);
        if (v && !json_is_null(v))
            return cl_fail(err, CL_E_UNIMPL, 0, "%s: not served by this version of Cloche",
                           absent[i]);
    }
    return 0;
}

static int add_private(struct label_list *l, struct cl_err *err)
{
    if (add_label(l, E2B_LABEL_PRIVATE, "token", err) < 0)
        return -1;
    (void)snprintf(l->keys[l->n - 1], sizeof l->keys[0], E2B_LABEL_PRIVATE);
    return 0;
}

static void set_grant(const struct e2b_network *network, Cloche__V1__NetworkGrant *m, char **list)
{
    cloche__v1__network_grant__init(m);
    for (size_t i = 0; i < network->n; i++)
        list[i] = e2b_pb(network->text[i]);
    m->allow = list;
    m->n_allow = network->n;
}

struct wishes {
    struct e2b_auto_pause idle;
    struct e2b_network network;
    Cloche__V1__NetworkGrant grant;
    char *allow[E2B_NETWORK_RULES];
    struct label_list labels;
};

static int read_wishes(const json_t *body, struct wishes *ret, struct cl_err *err)
{
    ret->labels.n = 0;
    if (check_wishes(body, err) < 0 || e2b_auto_pause_read(body, &ret->idle, err) < 0 ||
        e2b_network_read(json_object_get(body, "network"), &ret->network, err) < 0 ||
        add_metadata(&ret->labels, json_object_get(body, "metadata"), err) < 0 ||
        (ret->network.is_private && add_private(&ret->labels, err) < 0))
        return -1;
    set_grant(&ret->network, &ret->grant, ret->allow);
    return 0;
}

/* How commands run there, for whoever sees the sandbox later. */
static void add_place(struct creation *w, struct label_list *l)
{
    e2b_place_write(&w->origin.place, &w->place);
    for (size_t i = 0; i < w->place.n; i++)
        l->list[l->n++] = w->place.list[i];
}

static void ask_create(struct e2b_call *c, struct wishes *wishes)
{
    static const struct e2b_method create_box =
        E2B_RPC("SandboxService", "Create", create_response);
    struct creation *w = c->work;
    Cloche__V1__CreateRequest m = CLOCHE__V1__CREATE_REQUEST__INIT;
    m.template_ = w->origin.template_;
    m.snapshot = w->origin.snapshot;
    m.ttl_ns = mcp_json_u64(c->body, "timeout", TIMEOUT_DEFAULT_S) * CL_NS_PER_S;
    m.labels = wishes->labels.list;
    m.n_labels = wishes->labels.n;
    if (wishes->grant.n_allow > 0)
        m.network_grant = &wishes->grant;
    else if (w->origin.is_built && w->origin.has_network) /* which was for its build */
        m.network = CLOCHE__V1__NETWORK__NETWORK_NONE;
    if (wishes->idle.pauses)
        m.on_idle = CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    m.wake_on_use = wishes->idle.resumes;
    m.idempotency_key = e2b_pb(c->in.idempotency_key);
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &create_box,
                                     .request = &m.base,
                                     .timeout_ns = CREATE_S * CL_NS_PER_S,
                                     .on_end = on_created},
                   NULL);
}

static void create(struct e2b_call *c)
{
    struct cl_err err = {0};
    struct wishes wishes;
    if (read_wishes(c->body, &wishes, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    add_place(c->work, &wishes.labels);
    ask_create(c, &wishes);
}

static int read_env(const struct e2b_call *c, struct creation *w, struct cl_err *err)
{
    const json_t *env = json_object_get(c->body, "envVars");
    if (e2b_env_check(env, err) < 0)
        return -1;
    if (json_object_size(env) > 0 && !(w->env = json_dumps(env, JSON_COMPACT)))
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    return 0;
}

/* Said before there is a sandbox whose token cannot be made. */
static void check_and_create(struct e2b_call *c)
{
    struct creation *w = c->work;
    struct e2b_grant fits;
    struct cl_err err = {0};
    if (e2b_box_grant(c, "", &w->origin.place, w->env ? w->env : "", &fits, &err) < 0)
        e2b_fail(c, &err);
    else
        create(c);
}

void e2b_sandbox_create(struct e2b_call *c)
{
    struct cl_err err = {0};
    const char *name = e2b_text(c, "templateID");
    struct creation *w = e2b_work_new(c, sizeof *w, creation_free);
    if (!w)
        return;
    if (!name || !name[0])
        (void)e2b_fail_invalid(c, "templateID is missing");
    else if (read_env(c, w, &err) < 0)
        e2b_fail(c, &err);
    else
        e2b_origin_find(c, name, &w->origin, check_and_create);
}

/* --- get, kill, timeout ------------------------------------------------------------------------
 */

static void on_got(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__Sandbox *m = e2b_box_living(c, reply, err);
    if (!m)
        return;
    json_t *body = detail_of(m);
    if (c->server->conf.ports)
        mcp_json_set(body, "domain", json_string(c->server->conf.ports));
    e2b_reply(c, 200, body);
}

void e2b_sandbox_get(struct e2b_call *c)
{
    e2b_box_get(c, on_got);
}

static void on_done(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err && (err->code == CL_E_NOTFOUND || err->code == CL_E_STATE))
        e2b_box_fail_unknown(c);
    else if (err)
        e2b_fail(c, err);
    else
        e2b_reply(c, 204, NULL);
}

/* Ours may be said twice, E2B's answers 404 the second time. */
static void kill_living(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    static const struct e2b_method kill = E2B_RPC("SandboxService", "Kill", kill_response);
    Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
    if (!e2b_box_living(c, reply, err))
        return;
    m.sandbox_id = c->id;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &kill, .request = &m.base, .on_end = on_done},
                   NULL);
}

void e2b_sandbox_kill(struct e2b_call *c)
{
    e2b_box_get(c, kill_living);
}

/* Where its state is wrong for that, the scheduler says why: 409. */
static void on_changed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err && err->code == CL_E_NOTFOUND)
        e2b_box_fail_unknown(c);
    else if (err)
        e2b_fail(c, err);
    else
        e2b_reply(c, 204, NULL);
}

/* The seconds that the body names; 0: it names none that can be, and the call has ended. */
static uint64_t life_of(struct e2b_call *c, const char *name)
{
    uint64_t seconds = mcp_json_u64(c->body, name, TIMEOUT_DEFAULT_S);
    if (seconds > 0 && seconds <= E2B_LIFE_S)
        return seconds;
    (void)e2b_fail_invalid(c, "the timeout must be 1 to 86400 seconds");
    return 0;
}

void e2b_sandbox_timeout(struct e2b_call *c)
{
    static const struct e2b_method extend = E2B_RPC("SandboxService", "Extend", extend_response);
    Cloche__V1__ExtendRequest m = CLOCHE__V1__EXTEND_REQUEST__INIT;
    uint64_t seconds = life_of(c, strstr(c->in.path, "/refreshes") ? "duration" : "timeout");
    if (seconds == 0)
        return;
    m.sandbox_id = c->id;
    m.ttl_ns = seconds * CL_NS_PER_S;
    (void)!e2b_ask(
        c, &(struct e2b_ask){.method = &extend, .request = &m.base, .on_end = on_changed}, NULL);
}

/* --- pause, resume, connect ---------------------------------------------------------------------
 */

static void fail_state(struct e2b_call *c, const char *what)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_STATE, 0, "sandbox %s %s", c->id, what);
    e2b_fail(c, &err);
}

/* Ours may be said twice; E2B's answers 409 the second time, and the SDKs make `false` of it. */
static void pause_living(struct e2b_call *c, const ProtobufCMessage *reply,
                         const struct cl_err *err)
{
    static const struct e2b_method pause = E2B_RPC("SandboxService", "Pause", pause_response);
    Cloche__V1__PauseRequest m = CLOCHE__V1__PAUSE_REQUEST__INIT;
    const Cloche__V1__Sandbox *box = e2b_box_living(c, reply, err);
    if (!box)
        return;
    if (is_paused(box)) {
        fail_state(c, "is paused already");
        return;
    }
    m.sandbox_id = c->id;
    m.keep_ns = KEEP_S * CL_NS_PER_S;
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &pause,
                                     .request = &m.base,
                                     .timeout_ns = PAUSE_S * CL_NS_PER_S,
                                     .on_end = on_changed},
                   NULL);
}

void e2b_sandbox_pause(struct e2b_call *c)
{
    struct cl_err err = {0};
    if (e2b_pause_check(c->body, &err) < 0)
        e2b_fail(c, &err);
    else
        e2b_box_get(c, pause_living);
}

static void ask_resume(struct e2b_call *c, e2b_end_fn *on_end)
{
    static const struct e2b_method resume = E2B_RPC("SandboxService", "Resume", resume_response);
    Cloche__V1__ResumeRequest m = CLOCHE__V1__RESUME_REQUEST__INIT;
    struct cl_err err = {0};
    uint64_t seconds = life_of(c, "timeout");
    if (seconds == 0)
        return;
    if (e2b_pause_check(c->body, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    m.sandbox_id = c->id;
    m.ttl_ns = seconds * CL_NS_PER_S;
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &resume,
                                     .request = &m.base,
                                     .timeout_ns = PAUSE_S * CL_NS_PER_S,
                                     .on_end = on_end},
                   NULL);
}

/* What has gone on, or went on all the time; NULL: the call has ended. */
static const Cloche__V1__ResumeResponse *resumed(struct e2b_call *c, const ProtobufCMessage *reply,
                                                 const struct cl_err *err)
{
    if (!err)
        return (const Cloche__V1__ResumeResponse *)reply;
    if (err->code == CL_E_NOTFOUND)
        e2b_box_fail_unknown(c);
    else
        e2b_fail(c, err);
    return NULL;
}

static void on_connected(struct e2b_call *c, const ProtobufCMessage *reply,
                         const struct cl_err *err)
{
    const Cloche__V1__ResumeResponse *m = resumed(c, reply, err);
    if (m)
        answer_with_token(c, m->was_paused ? 201 : 200, m->sandbox, "");
}

void e2b_sandbox_connect(struct e2b_call *c)
{
    ask_resume(c, on_connected);
}

static void on_resumed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__ResumeResponse *m = resumed(c, reply, err);
    if (m && m->was_paused)
        answer_with_token(c, 201, m->sandbox, "");
    else if (m)
        fail_state(c, "runs already");
}

void e2b_sandbox_resume(struct e2b_call *c)
{
    ask_resume(c, on_resumed);
}

/* --- list ---------------------------------------------------------------------------------------
 */

/* metadata=userId%3Dabc%26app%3Dprod: a query within the query, whose names and values the SDKs
 * encode once more. */
static int add_filter(struct label_list *l, char *filter, struct cl_err *err)
{
    for (char *save = NULL, *name = strtok_r(filter, "&", &save); name;
         name = strtok_r(NULL, "&", &save)) {
        char *equals = strchr(name, '=');
        if (!equals)
            return cl_fail(err, CL_E_INVALID, 0, "metadata: want name=value&name=value");
        *equals = '\0';
        if (!e2b_decode(name) || !e2b_decode(name) || !e2b_decode(equals + 1) ||
            !e2b_decode(equals + 1))
            return cl_fail(err, CL_E_INVALID, 0, "metadata: malformed");
        if (add_label(l, name, equals + 1, err) < 0)
            return -1;
    }
    return 0;
}

struct listing {
    struct e2b_page page;
    struct label_list labels;
    char filter[4096];
    unsigned states;
};

static void listing_free(void *obj)
{
    struct listing *w = obj;
    e2b_page_fini(&w->page);
    cl_free(w);
}

/* The older call knows those that run and no others. */
static int read_states(const struct e2b_call *c, struct listing *w, struct cl_err *err)
{
    char text[64] = "";
    int has = e2b_query_get(c->in.query, "state", text, sizeof text);
    w->states = strncmp(c->in.path, "/v2/", 4) == 0 ? E2B_ANY_STATE : E2B_RUNNING;
    if (has < 0)
        return cl_fail(err, CL_E_INVALID, 0, "the query is malformed");
    return text[0] ? e2b_states_read(text, &w->states, err) : 0;
}

static int read_list(const struct e2b_call *c, struct listing *w, struct cl_err *err)
{
    int has = e2b_query_get(c->in.query, "metadata", w->filter, sizeof w->filter);
    if (has < 0)
        return cl_fail(err, CL_E_INVALID, 0, "the query is malformed");
    if (e2b_page_read(c->in.query, &w->page, err) < 0 || read_states(c, w, err) < 0)
        return -1;
    return has ? add_filter(&w->labels, w->filter, err) : 0;
}

/* Nobody made it himself. */
static bool is_of_build(const Cloche__V1__Sandbox *m)
{
    for (size_t i = 0; i < m->n_labels; i++) {
        if (strcmp(m->labels[i]->key, E2B_LABEL_BUILD) == 0)
            return true;
    }
    return false;
}

static void ask_page(struct e2b_call *c);

/* The scheduler's pages are of all states: go on until one of ours is full. */
static void on_listed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__SandboxServiceListResponse *m =
        (const Cloche__V1__SandboxServiceListResponse *)reply;
    struct listing *w = c->work;
    if (err) {
        e2b_fail(c, err);
        return;
    }
    for (size_t i = 0; i < m->n_sandboxes; i++) {
        const Cloche__V1__Sandbox *box = m->sandboxes[i];
        if (is_of_build(box))
            continue;
        if (w->states & (is_paused(box) ? E2B_PAUSED : E2B_RUNNING))
            e2b_page_add(&w->page, detail_of(box));
    }
    if (e2b_page_goes_on(&w->page, m->next_page_token))
        ask_page(c);
    else
        e2b_reply_next(c, json_incref(w->page.found), w->page.token[0] ? w->page.token : NULL);
}

static void ask_page(struct e2b_call *c)
{
    static const struct e2b_method list =
        E2B_RPC("SandboxService", "List", sandbox_service_list_response);
    Cloche__V1__SandboxServiceListRequest m = CLOCHE__V1__SANDBOX_SERVICE_LIST_REQUEST__INIT;
    struct listing *w = c->work;
    m.page_size = e2b_page_room(&w->page);
    m.page_token = w->page.token;
    m.labels = w->labels.list;
    m.n_labels = w->labels.n;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &list, .request = &m.base, .on_end = on_listed},
                   NULL);
}

void e2b_sandbox_list(struct e2b_call *c)
{
    struct cl_err err = {0};
    struct listing *w = e2b_work_new(c, sizeof *w, listing_free);
    if (!w)
        return;
    if (read_list(c, w, &err) < 0)
        e2b_fail(c, &err);
    else
        ask_page(c);
}
