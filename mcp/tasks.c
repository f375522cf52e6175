/* mcp/tasks.c - see mcp/tasks.h. */
#include "mcp/tasks.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/exec.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"
#include "mcp/exec_priv.h"

enum { POLL_MS = 1000, KEPT_MS = 3600 * 1000, SIGKILL_NR = 9 };

bool mcp_task_is_wanted(const struct mcp_call *c)
{
    const json_t *abilities = json_object_get(c->msg.meta, MCP_META "clientCapabilities");
    return c->era == MCP_MODERN &&
           json_object_get(json_object_get(abilities, "extensions"), MCP_TASKS) != NULL;
}

int mcp_task_unwanted(struct mcp_refusal *why)
{
    why->data = json_pack("{s:{s:{s:{}}}}", "requiredCapabilities", "extensions", MCP_TASKS);
    return mcp_refuse(why, 400, MCP_E_CAPABILITY, "the client has not declared " MCP_TASKS);
}

/* "sbx_...": both ids have a fixed length (base/id.h). */
bool mcp_task_read_id(const char *task, char sandbox[static CL_ID_MAX], char exec[static CL_ID_MAX])
{
    const char *dot = task ? strchr(task, '.') : NULL;
    if (!dot || (size_t)(dot - task) >= CL_ID_MAX || strlen(dot + 1) >= CL_ID_MAX)
        return false;
    (void)snprintf(sandbox, CL_ID_MAX, "%.*s", (int)(dot - task), task);
    (void)snprintf(exec, CL_ID_MAX, "%s", dot + 1);
    return cl_id_is(sandbox, "sbx") && cl_id_is(exec, "exec");
}

static json_t *task_json(const char *sandbox, const char *exec, const char *status)
{
    char id[2 * CL_ID_MAX + 2], created[CL_RFC3339_LEN], updated[CL_RFC3339_LEN];
    (void)snprintf(id, sizeof id, "%s.%s", sandbox, exec);
    cl_rfc3339(cl_id_time_ms(exec) * CL_NS_PER_MS, created);
    cl_rfc3339(cl_wall_ns(), updated);
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i}", "taskId", id, "status", status, "createdAt",
                     created, "lastUpdatedAt", updated, "ttlMs", KEPT_MS, "pollIntervalMs",
                     POLL_MS);
}

void mcp_task_answer(struct mcp_call *c, const char *exec_id)
{
    json_t *task = task_json(c->box, exec_id, "working");
    mcp_json_set(task, "resultType", json_string("task"));
    mcp_end(c, task);
}

static const char *exec_of(const struct mcp_call *c)
{
    return strchr(mcp_json_text(c->msg.params, "taskId"), '.') + 1;
}

json_t *mcp_task_json(const char *sandbox, const char *exec, struct mcp_result *r)
{
    json_t *task = task_json(sandbox, exec, r ? "completed" : "working");
    if (r) {
        json_t *content = json_array();
        (void)json_array_append_new(
            content, json_pack("{s:s, s:s}", "type", "text", "text", r->text ? r->text : ""));
        (void)json_array_extend(content, r->content);
        mcp_json_set(task, "result",
                     json_pack("{s:s, s:o, s:o, s:b}", "resultType", "complete", "content", content,
                               "structuredContent", r->structured, "isError", r->is_error));
        json_decref(r->content);
        cl_free(r->text);
    }
    return task;
}

static void on_look(struct mcp_call *c, struct mcp_result *r)
{
    mcp_end(c, mcp_task_json(c->box, exec_of(c), r));
}

static void get_in_box(struct mcp_call *c)
{
    mcp_exec_look(c, exec_of(c), on_look);
}

static void on_cancelled(struct mcp_call *c, const ProtobufCMessage *reply,
                         const struct cl_err *err)
{
    (void)reply;
    if (err && err->code != CL_E_STATE) /* one that has ended is as cancelled as it can be */
        mcp_end_tool_error(c, err);
    else
        mcp_end(c, json_object());
}

static void cancel_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of signal = MCP_RPC("ExecService", "Signal", signal_response);
    Cloche__V1__SignalRequest m = CLOCHE__V1__SIGNAL_REQUEST__INIT;
    m.sandbox_id = c->box;
    m.exec_id = mcp_pb(exec_of(c));
    m.signal = SIGKILL_NR;
    struct mcp_ask_spec ask = {.method = &signal, .request = &m.base, .on_end = on_cancelled};
    (void)!mcp_ask(c, &ask, NULL);
}

static void with_task(struct mcp_call *c, unsigned may, mcp_run_fn *next)
{
    char sandbox[CL_ID_MAX], exec[CL_ID_MAX];
    const char *id = mcp_json_text(c->msg.params, "taskId");
    struct mcp_refusal why = {0};
    if (!mcp_who_may(c, may))
        return;
    if (!mcp_task_is_wanted(c)) {
        (void)mcp_task_unwanted(&why);
        mcp_end_error(c, &why);
        return;
    }
    c->plain_errors = true;
    if (mcp_task_read_id(id, sandbox, exec)) {
        mcp_box_check(c, sandbox, next);
        return;
    }
    (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "no such task");
    mcp_end_error(c, &why);
}

void mcp_task_get(struct mcp_call *c)
{
    with_task(c, MCP_MAY_READ, get_in_box);
}

void mcp_task_cancel(struct mcp_call *c)
{
    with_task(c, MCP_MAY_RUN, cancel_in_box);
}

/* No task of ours ever asks for input. */
static void update_in_box(struct mcp_call *c)
{
    mcp_end(c, json_object());
}

void mcp_task_update(struct mcp_call *c)
{
    with_task(c, MCP_MAY_RUN, update_in_box);
}
