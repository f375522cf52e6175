/* mcp/listen.c - see mcp/listen.h. */
#include "mcp/listen.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/exec.pb-c.h"
#include "mcp/call_priv.h"
#include "mcp/exec_priv.h"
#include "mcp/tasks.h"

enum phase { WATCHED = 1, OVER, TOLD };

struct heard {
    char id[2 * CL_ID_MAX + 2]; /* the task's */
    char sandbox[CL_ID_MAX], exec[CL_ID_MAX];
    enum phase phase;
    json_t *news; /* owned; to be told after the acknowledgement */
};

struct mcp_listening {
    struct cl_timer end;
    struct heard tasks[MCP_LISTEN_TASKS];
    size_t n, looked_at;
    bool wants_tools; /* toolsListChanged: accepted */
    bool looking;     /* one look at a time: it needs the call's work */
};

void mcp_listening_stop(struct mcp_listening *l)
{
    if (l)
        cl_timer_stop(&l->end);
}

void mcp_listening_free(struct mcp_listening *l)
{
    if (!l)
        return;
    cl_timer_fini(&l->end);
    for (size_t i = 0; i < l->n; i++)
        json_decref(l->tasks[i].news);
    cl_free(l);
}

/* --- what is told -------------------------------------------------------------------------------
 */

static void put_id(const struct mcp_call *c, json_t *params)
{
    json_t *meta = json_object();
    (void)json_object_set(meta, MCP_META "subscriptionId", (json_t *)(uintptr_t)c->msg.id);
    mcp_json_set(params, "_meta", meta);
}

static void tell(struct mcp_call *c, const char *method, json_t *params)
{
    put_id(c, params);
    mcp_notify(c, method, params);
}

static void acknowledge(struct mcp_call *c)
{
    const struct mcp_listening *l = c->listening;
    json_t *accepted = json_object();
    if (l->wants_tools)
        mcp_json_set(accepted, "toolsListChanged", json_true());
    if (l->n > 0) {
        json_t *ids = json_array();
        for (size_t i = 0; i < l->n; i++)
            (void)json_array_append_new(ids, json_string(l->tasks[i].id));
        mcp_json_set(accepted, "taskIds", ids);
    }
    tell(c, "notifications/subscriptions/acknowledged",
         json_pack("{s:o}", "notifications", accepted));
}

void mcp_listen_finish(struct mcp_call *c)
{
    if (!c->listening)
        return;
    json_t *result = json_object();
    put_id(c, result);
    mcp_end(c, result);
}

static void on_time(void *arg)
{
    mcp_listen_finish(arg);
}

/* --- tasks that end -----------------------------------------------------------------------------
 */

static void look_next(struct mcp_call *c);

static void on_final(struct mcp_call *c, struct mcp_result *r)
{
    struct mcp_listening *l = c->listening;
    struct heard *t = &l->tasks[l->looked_at];
    l->looking = false;
    t->phase = TOLD;
    tell(c, "notifications/tasks", mcp_task_json(t->sandbox, t->exec, r));
    look_next(c);
}

/* The news is the task in full: as tasks/get shows it. */
static void look_next(struct mcp_call *c)
{
    struct mcp_listening *l = c->listening;
    for (size_t i = 0; i < l->n && !l->looking; i++) {
        if (l->tasks[i].phase != OVER)
            continue;
        l->looking = true;
        l->looked_at = i;
        (void)snprintf(c->box, sizeof c->box, "%s", l->tasks[i].sandbox);
        mcp_exec_look(c, l->tasks[i].exec, on_final);
        return; /* the call may have ended */
    }
}

static void on_output(struct mcp_call *c, const ProtobufCMessage *msg)
{
    (void)c, (void)msg; /* only the end counts */
}

/* A stream that ends without an error has told of its exec's end. */
static void on_over(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err) {
        mcp_end_tool_error(c, err); /* as tasks/get would answer from now on */
        return;
    }
    c->listening->tasks[c->ask_tag].phase = OVER;
    look_next(c);
}

/* 0, or the call has ended. */
static int watch(struct mcp_call *c, size_t i)
{
    static const struct mcp_method_of attach = MCP_RPC("ExecService", "Attach", attach_response);
    struct heard *t = &c->listening->tasks[i];
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    m.sandbox_id = t->sandbox;
    m.exec_id = t->exec;
    t->phase = WATCHED;
    struct mcp_ask_spec ask = {.method = &attach,
                               .request = &m.base,
                               .timeout_ns = 2 * MCP_LISTEN_S * CL_NS_PER_S,
                               .on_message = on_output,
                               .on_end = on_over,
                               .tag = i};
    return mcp_ask(c, &ask, NULL);
}

/* --- the beginning ------------------------------------------------------------------------------
 */

static void begin(struct mcp_call *c)
{
    struct mcp_listening *l = c->listening;
    acknowledge(c);
    cl_timer_start(&l->end, MCP_LISTEN_S * CL_NS_PER_S);
    for (size_t i = 0; i < l->n; i++) {
        struct heard *t = &l->tasks[i];
        if (t->news) {
            tell(c, "notifications/tasks", t->news);
            t->news = NULL;
            t->phase = TOLD;
        } else if (watch(c, i) < 0) {
            return;
        }
    }
}

static void check_next(struct mcp_call *c);

static void on_first_look(struct mcp_call *c, struct mcp_result *r)
{
    struct mcp_listening *l = c->listening;
    struct heard *t = &l->tasks[l->looked_at++];
    if (r)
        t->news = mcp_task_json(t->sandbox, t->exec, r);
    check_next(c);
}

static void look_in_box(struct mcp_call *c)
{
    mcp_exec_look(c, c->listening->tasks[c->listening->looked_at].exec, on_first_look);
}

static void check_next(struct mcp_call *c)
{
    struct mcp_listening *l = c->listening;
    if (l->looked_at == l->n)
        begin(c);
    else
        mcp_box_check(c, l->tasks[l->looked_at].sandbox, look_in_box);
}

static bool add_task(struct mcp_listening *l, const char *id)
{
    struct heard *t = &l->tasks[l->n];
    if (l->n >= MCP_LISTEN_TASKS || !id || !mcp_task_read_id(id, t->sandbox, t->exec))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->tasks[i].id, id) == 0)
            return true;
    }
    (void)snprintf(t->id, sizeof t->id, "%s", id);
    l->n++;
    return true;
}

/* What the client wants to hear of, as far as there is such a thing here; 0, or why not. */
static int read_filter(struct mcp_call *c, struct mcp_refusal *why)
{
    const json_t *filter = json_object_get(c->msg.params, "notifications"),
                 *ids = json_object_get(filter, "taskIds");
    size_t i;
    json_t *id;
    if (!json_is_object(filter) || (ids && !json_is_array(ids)))
        return mcp_refuse(why, 200, MCP_E_PARAMS,
                          "notifications is not an object, or taskIds no list");
    if (ids && !mcp_task_is_wanted(c))
        return mcp_task_unwanted(why);
    c->listening->wants_tools = json_is_true(json_object_get(filter, "toolsListChanged"));
    json_array_foreach(ids, i, id)
    {
        if (json_array_size(ids) > MCP_LISTEN_TASKS)
            return mcp_refuse(why, 200, MCP_E_PARAMS, "at most %d tasks on one stream",
                              MCP_LISTEN_TASKS);
        if (!add_task(c->listening, json_string_value(id)))
            return mcp_refuse(why, 200, MCP_E_PARAMS, "no such task");
    }
    return 0;
}

static bool has_too_many(const struct mcp_call *c)
{
    size_t n = 0;
    CL_LIST_FOREACH (it, &c->server->calls) {
        const struct mcp_call *other = CL_LIST_ENTRY(it, struct mcp_call, link);
        n += other->listening && strcmp(other->who.principal, c->who.principal) == 0;
    }
    return n >= MCP_LISTENS_OF_PRINCIPAL;
}

void mcp_listen(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    struct mcp_listening *l = has_too_many(c) ? NULL : cl_zalloc(sizeof *l);
    if (!l || cl_timer_init(&l->end, c->server->conf.loop, on_time, c, NULL) < 0) {
        cl_free(l);
        (void)mcp_refuse(&why, 429, MCP_E_INTERNAL, "more than %d streams of this credential",
                         MCP_LISTENS_OF_PRINCIPAL);
        mcp_end_error(c, &why);
        return;
    }
    c->listening = l;
    c->plain_errors = true;
    if (read_filter(c, &why) < 0)
        mcp_end_error(c, &why);
    else
        check_next(c);
}
