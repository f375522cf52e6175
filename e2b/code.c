/* e2b/code.c - E2B's code interpreter: /execute and /contexts. */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/code.pb-c.h"
#include "e2b/call_priv.h"
#include "e2b/text.h"
#include "mcp/advice.h"

enum { GRACE_S = 30 };
#define LIMIT_NS (E2B_LIFE_NS - GRACE_S * CL_NS_PER_S)

static const struct {
    const char *name;
    Cloche__V1__Language language;
} languages[] = {
    {"python", CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON},
    {"bash", CLOCHE__V1__LANGUAGE__LANGUAGE_BASH},
    {"javascript", CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT},
    {"js", CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT},
};

static Cloche__V1__Language language_of(const char *name)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++) {
        if (!name || strcmp(languages[i].name, name) == 0)
            return languages[i].language;
    }
    return CLOCHE__V1__LANGUAGE__LANGUAGE_UNSPECIFIED;
}

static const char *name_of(Cloche__V1__Language language)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++) {
        if (languages[i].language == language)
            return languages[i].name;
    }
    return "unknown";
}

static void fail_language(struct e2b_call *c)
{
    (void)e2b_fail_invalid(c, "language: want python, javascript or bash");
}

/* E2B queues a cell behind the one that runs.  Here nobody does: it asks until it is its turn. */
#define TURN_NS (100 * CL_NS_PER_MS)
#define PATIENCE_NS (300 * CL_NS_PER_S)

struct cell {
    const char *context;
    Cloche__V1__Language language; /* its default context, where there is no other */
    struct e2b_text output[2];     /* stdout, stderr */
    uint64_t until_ns;
    struct cl_err busy;
};

/* --- what a cell says: a line of JSON each ------------------------------------------------------
 */

static void say(struct e2b_call *c, json_t *line, struct rpc_call *rpc)
{
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    if (!text)
        return;
    e2b_send(c, text, strlen(text), NULL);
    e2b_send(c, "\n", 1, rpc);
    free(text);
}

static void say_text(struct e2b_call *c, bool is_err, json_t *text, struct rpc_call *rpc)
{
    char when[CL_RFC3339_LEN];
    cl_rfc3339(cl_wall_ns(), when);
    say(c,
        json_pack("{s:s, s:o, s:s}", "type", is_err ? "stderr" : "stdout", "text", text,
                  "timestamp", when),
        rpc);
}

static void say_output(struct e2b_call *c, const Cloche__V1__Output *m, struct rpc_call *rpc)
{
    struct cell *w = c->work;
    bool is_err = m->stream == CLOCHE__V1__STREAM__STREAM_STDERR;
    say_text(c, is_err, e2b_text_add(&w->output[is_err], m->data.data, m->data.len), rpc);
}

static json_t *form_json(const char *type, const Cloche__V1__MimeData *d)
{
    bool is_image =
        strcmp(type, "png") == 0 || strcmp(type, "jpeg") == 0 || strcmp(type, "pdf") == 0;
    if (!is_image && strcmp(type, "json") != 0)
        return e2b_text_json(d->data.data, d->data.len);
    if (!is_image) {
        json_t *value = NULL;
        return mcp_json_parse((const char *)d->data.data, d->data.len, &value, NULL) < 0
                   ? json_null()
                   : value;
    }
    char *coded = cl_zalloc(4 * ((d->data.len + 2) / 3) + 1);
    if (!coded)
        return NULL;
    (void)EVP_EncodeBlock((uint8_t *)coded, d->data.data, (int)d->data.len);
    json_t *text = json_string(coded);
    cl_free(coded);
    return text;
}

static void say_result(struct e2b_call *c, const Cloche__V1__CellResult *m, struct rpc_call *rpc)
{
    static const struct {
        const char *mime, *name;
    } forms[] = {{"text/plain", "text"},        {"text/html", "html"},
                 {"text/markdown", "markdown"}, {"text/latex", "latex"},
                 {"image/svg+xml", "svg"},      {"image/png", "png"},
                 {"image/jpeg", "jpeg"},        {"application/pdf", "pdf"},
                 {"application/json", "json"},  {"application/javascript", "javascript"}};
    json_t *o = json_pack("{s:s, s:b}", "type", "result", "is_main_result", m->is_main_result);
    for (size_t i = 0; i < m->n_data; i++) {
        for (size_t k = 0; k < CL_COUNT(forms); k++) {
            if (strcmp(m->data[i]->mime_type, forms[k].mime) == 0)
                mcp_json_set(o, forms[k].name, form_json(forms[k].name, m->data[i]));
        }
    }
    say(c, o, rpc);
}

static void say_error(struct e2b_call *c, const char *name, const char *value,
                      const char *traceback)
{
    say(c,
        json_pack("{s:s, s:s, s:s, s:s}", "type", "error", "name", name, "value", value,
                  "traceback", traceback),
        NULL);
}

/* Ends that are no exception of the code, said as one: otherwise they would look like success. */
static void take_end(struct e2b_call *c, const Cloche__V1__CellEnded *m)
{
    static const struct {
        const char *name, *text;
    } ends[] = {
        {"ExecutionFailed", "the cell could not be run"},
        {NULL, NULL},
        {NULL, NULL},
        {"KeyboardInterrupt", "interrupted"},
        {"TimeoutError", "the cell's time is over: it was interrupted"},
        {"ContextExited", "the interpreter has ended; its variables are gone"},
        {"MemoryError", "out of memory: the interpreter was killed; its variables are gone"},
        {"ContextRestarted", "the context was restarted"},
        {"ExecutionFailed", "the cell could not be run to its end"}};
    struct cell *w = c->work;
    for (int k = 0; k < 2; k++) {
        json_t *rest = e2b_text_end(&w->output[k]);
        if (rest)
            say_text(c, k == 1, rest, NULL);
    }
    size_t i = (size_t)m->outcome < CL_COUNT(ends) ? (size_t)m->outcome : 0;
    if (ends[i].name)
        say_error(c, ends[i].name, m->message[0] ? m->message : ends[i].text, ends[i].text);
    say(c, json_pack("{s:s}", "type", "end_of_execution"), NULL);
    e2b_end(c);
}

static void on_event(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    const Cloche__V1__RunCodeResponse *m = (const Cloche__V1__RunCodeResponse *)msg;
    switch (m->event_case) {
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_STARTED:
        e2b_begin(c, "application/json");
        say(c,
            json_pack("{s:s, s:I}", "type", "number_of_executions", "execution_count",
                      (json_int_t)m->started->execution_count),
            rpc);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_OUTPUT:
        say_output(c, m->output, rpc);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT:
        say_result(c, m->result, rpc);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ERROR:
        say_error(c, m->error->name, m->error->value, m->error->traceback);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED:
        take_end(c, m->ended);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT__NOT_SET:
    case _CLOCHE__V1__RUN_CODE_RESPONSE__EVENT__CASE_IS_INT_SIZE:
        break;
    }
}

static void ask_run(struct e2b_call *c);

static void on_looked(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__ListContextsResponse *m = (const Cloche__V1__ListContextsResponse *)reply;
    const struct cell *w = c->work;
    const char *id = w->context ? w->context : name_of(w->language);
    bool is_busy = false;
    for (size_t i = 0; !err && i < m->n_contexts; i++)
        is_busy |= strcmp(m->contexts[i]->id, id) == 0 &&
                   (m->contexts[i]->state == CLOCHE__V1__CONTEXT_STATE__CONTEXT_STATE_BUSY ||
                    m->contexts[i]->state == CLOCHE__V1__CONTEXT_STATE__CONTEXT_STATE_IDLE);
    struct cl_err why = w->busy;
    if (is_busy && cl_now_ns() < w->until_ns)
        e2b_after(c, TURN_NS, ask_run);
    else
        e2b_fail_in_box(c, &why);
}

static void ask_contexts(struct e2b_call *c,
                         void (*on_end)(struct e2b_call *, const ProtobufCMessage *,
                                        const struct cl_err *))
{
    static const struct e2b_method list =
        E2B_RPC("CodeService", "ListContexts", list_contexts_response);
    Cloche__V1__ListContextsRequest m = CLOCHE__V1__LIST_CONTEXTS_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &list, .request = &m.base, .on_end = on_end},
                   NULL);
}

static void on_lost(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct cl_err lost = {0};
    struct cell *w = c->work;
    if (c->is_streaming) {
        say(c, json_pack("{s:s}", "type", "unexpected_end_of_execution"), NULL);
        e2b_end(c);
    } else if (err && err->code == CL_E_STATE && !mcp_err_is_paused(err)) {
        w->busy = *err;
        ask_contexts(c, on_looked);
    } else {
        if (!err)
            (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "the cell's output ended before its result");
        e2b_fail_in_box(c, err ? err : &lost);
    }
}

static void ask_run(struct e2b_call *c)
{
    static const struct e2b_method run = E2B_RPC("CodeService", "RunCode", run_code_response);
    const struct cell *w = c->work;
    struct cl_err err = {0};
    struct e2b_env env;
    Cloche__V1__RunCodeRequest m = CLOCHE__V1__RUN_CODE_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.context_id = e2b_pb(w->context);
    m.language = w->language;
    m.code = e2b_pb(e2b_text(c, "code"));
    m.timeout_ns = LIMIT_NS; /* the client closes the stream when it has waited enough */
    if (e2b_env_make("", json_object_get(c->body, "env_vars"), &env, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    m.env = env.list;
    m.n_env = env.n;
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &run,
                                     .request = &m.base,
                                     .timeout_ns = E2B_LIFE_NS,
                                     .on_message = on_event,
                                     .on_end = on_lost},
                   NULL);
    e2b_env_free(&env);
}

void e2b_code_run(struct e2b_call *c)
{
    const char *code = e2b_text(c, "code"), *context = e2b_text(c, "context_id");
    const char *language = e2b_text(c, "language");
    struct cell *w = e2b_work_new(c, sizeof *w, cl_free);
    if (!w)
        return;
    w->context = context;
    w->language = context ? CLOCHE__V1__LANGUAGE__LANGUAGE_UNSPECIFIED : language_of(language);
    w->until_ns = cl_now_ns() + PATIENCE_NS;
    if (!code)
        (void)e2b_fail_invalid(c, "code is missing, or holds NUL");
    else if (context && language)
        (void)e2b_fail_invalid(c, "give a context_id or a language, not both");
    else if (!context && !w->language)
        fail_language(c);
    else
        ask_run(c);
}

/* --- contexts -----------------------------------------------------------------------------------
 */

static json_t *context_json(const Cloche__V1__CodeContext *m)
{
    return json_pack("{s:s, s:s, s:s}", "id", m->id, "language", name_of(m->language), "cwd",
                     m->cwd[0] ? m->cwd : "/home/user");
}

static void on_created(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err)
        e2b_fail_in_box(c, err);
    else
        e2b_reply(c, 200,
                  context_json(((const Cloche__V1__CreateContextResponse *)reply)->context));
}

void e2b_context_create(struct e2b_call *c)
{
    static const struct e2b_method create =
        E2B_RPC("CodeService", "CreateContext", create_context_response);
    Cloche__V1__CreateContextRequest m = CLOCHE__V1__CREATE_CONTEXT_REQUEST__INIT;
    struct cl_err err = {0};
    struct e2b_env env;
    m.sandbox_id = c->grant->sandbox;
    const char *cwd = e2b_text(c, "cwd");
    m.cwd = e2b_pb(cwd && cwd[0] ? cwd : c->grant->cwd);
    m.language = language_of(e2b_text(c, "language"));
    if (!m.language) {
        fail_language(c);
        return;
    }
    if (e2b_env_make(c->grant->env, NULL, &env, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    m.env = env.list;
    m.n_env = env.n;
    (void)!e2b_ask(
        c, &(struct e2b_ask){.method = &create, .request = &m.base, .on_end = on_created}, NULL);
    e2b_env_free(&env);
}

static void on_listed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__ListContextsResponse *m = (const Cloche__V1__ListContextsResponse *)reply;
    if (err) {
        e2b_fail_in_box(c, err);
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_contexts; i++)
        (void)json_array_append_new(list, context_json(m->contexts[i]));
    e2b_reply(c, 200, list);
}

void e2b_context_list(struct e2b_call *c)
{
    ask_contexts(c, on_listed);
}

static void on_done(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        e2b_fail_in_box(c, err);
    else
        e2b_reply(c, 204, NULL);
}

void e2b_context_delete(struct e2b_call *c)
{
    static const struct e2b_method del =
        E2B_RPC("CodeService", "DeleteContext", delete_context_response);
    Cloche__V1__DeleteContextRequest m = CLOCHE__V1__DELETE_CONTEXT_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.context_id = c->id;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &del, .request = &m.base, .on_end = on_done},
                   NULL);
}

void e2b_context_restart(struct e2b_call *c)
{
    static const struct e2b_method restart =
        E2B_RPC("CodeService", "RestartContext", restart_context_response);
    Cloche__V1__RestartContextRequest m = CLOCHE__V1__RESTART_CONTEXT_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.context_id = c->id;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &restart, .request = &m.base, .on_end = on_done},
                   NULL);
}
