/* mcp/call_io.c - the life of one message: authenticate, understand, run, answer; see
 * mcp/call_priv.h. */
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "mcp/advice.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"

#define PROGRESS_EVERY_NS CL_NS_PER_S   /* at most: a client must not drown in them */
#define BEAT_EVERY_NS (5 * CL_NS_PER_S) /* at least, or clients give up after 60 s */

/* --- birth and death ----------------------------------------------------------------------------
 */

static void destroy(void *obj)
{
    struct mcp_call *c = obj;
    if (c->work_destroy)
        c->work_destroy(c->work);
    mcp_listening_free(c->listening);
    if (c->credential)
        OPENSSL_cleanse(c->credential, strlen(c->credential));
    cl_free(c->credential);
    cl_timer_fini(&c->beat);
    json_decref(c->args);
    json_decref(c->given);
    mcp_message_fini(&c->msg);
    cl_free(c);
}

void mcp_call_kill(struct mcp_call *c)
{
    if (c->is_dead)
        return;
    c->transport = NULL;
    if (c->undo && !c->server->closing) {
        c->is_left = true;
        c->undo(c);
        return;
    }
    c->is_dead = true;
    cl_timer_stop(&c->beat);
    mcp_listening_stop(c->listening);
    mcp_asks_drop(c);
    cl_list_unlink(&c->link);
    c->server->n_calls--;
    cl_loop_bury(c->server->conf.loop, &c->grave, destroy, c);
}

static void on_beat(void *arg)
{
    struct mcp_call *c = arg;
    char text[sizeof c->progress_text];
    (void)snprintf(text, sizeof text, "%s", c->progress_text);
    mcp_progress(c, text);
}

int mcp_call_new(struct mcp_server *s, const struct mcp_incoming *in,
                 const struct mcp_transport *transport, void *arg, struct mcp_call **ret_call,
                 struct cl_err *err)
{
    if (s->n_calls >= MCP_CALLS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d calls at once", MCP_CALLS_MAX);
    struct mcp_call *c = cl_zalloc(sizeof *c);
    if (!c || cl_timer_init(&c->beat, s->conf.loop, on_beat, c, err) < 0) {
        cl_free(c);
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    }
    cl_list_init(&c->asks);
    c->server = s;
    c->transport = transport;
    c->transport_arg = arg;
    c->in = *in;
    c->is_stdio = !in->headers;
    c->credential = in->credential ? cl_strdup(in->credential) : NULL;
    mcp_trace_find(&c->msg, in->headers, c->trace); /* for what is asked before the text is read */
    c->started_ns = cl_now_ns();
    (void)snprintf(c->progress_text, sizeof c->progress_text, "working");
    cl_list_push(&s->calls, &c->link);
    s->n_calls++;
    *ret_call = c;
    return 0;
}

void mcp_call_leave(struct mcp_call *c)
{
    c->transport = NULL;
    c->in.text = NULL;
    c->in.headers = NULL;
    if (c->era != MCP_LEGACY)
        mcp_call_kill(c);
}

/* --- from bytes to a method ---------------------------------------------------------------------
 */

static void count(const struct mcp_call *c, const char *how)
{
    const char *what = c->tool ? c->tool->name : "other";
    metrics_add(c->server->conf.metrics, METRIC_MCP_CALLS, what, how, 1);
    metrics_observe(c->server->conf.metrics, METRIC_MCP_SECONDS, what, NULL,
                    cl_now_ns() - c->started_ns);
}

void mcp_bare(struct mcp_call *c, const struct mcp_reply *reply)
{
    const struct mcp_transport *transport = c->transport;
    void *arg = c->transport_arg;
    mcp_call_kill(c);
    if (transport)
        transport->reply(arg, reply);
}

/* The same key may not hold all places: its neighbours' calls must get in. */
static bool is_crowded(const struct mcp_call *c)
{
    size_t n = 0;
    CL_LIST_FOREACH (it, &c->server->calls)
        n += strcmp(CL_LIST_ENTRY(it, struct mcp_call, link)->who.principal, c->who.principal) == 0;
    return n > MCP_CALLS_OF_PRINCIPAL;
}

static int read_message(struct mcp_call *c, struct mcp_refusal *why)
{
    if (mcp_message_parse(c->in.text, c->in.n, &c->msg, why) < 0)
        return -1;
    mcp_trace_find(&c->msg, c->in.headers, c->trace);
    return c->msg.kind == MCP_RESPONSE ? 0 : mcp_era_check(&c->msg, c->in.headers, &c->era, why);
}

static void on_known(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    if (c->in.http_refusal) {
        (void)mcp_refuse(&why, c->in.http_refusal, MCP_E_REQUEST, "%s", c->in.http_text);
        mcp_refused(c, &why);
    } else if (c->in.ends_session) {
        mcp_session_end(c);
    } else if (!c->in.text) { /* a legacy client that left before we knew what it wants */
        mcp_call_kill(c);
    } else if (is_crowded(c)) {
        (void)mcp_refuse(&why, 429, MCP_E_INTERNAL, "more than %d calls of this credential at once",
                         MCP_CALLS_OF_PRINCIPAL);
        mcp_refused(c, &why);
    } else if (read_message(c, &why) < 0) {
        mcp_refused(c, &why);
    } else if (c->msg.kind == MCP_RESPONSE) { /* the product never asks a client anything */
        if (c->server->conf.extra && c->server->conf.extra->on_response)
            c->server->conf.extra->on_response(c->msg.root);
        mcp_bare(c, &(struct mcp_reply){.http = 202});
    } else {
        mcp_dispatch(c);
    }
}

static void on_known_stdio(struct mcp_call *c)
{
    mcp_dispatch(c);
}

/* On stdio there is no status line: even a refusal needs the id, so the message comes first. */
static void run_stdio(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    if (read_message(c, &why) < 0)
        mcp_refused(c, &why);
    else if (c->msg.kind == MCP_RESPONSE)
        mcp_bare(c, &(struct mcp_reply){.http = 202});
    else
        mcp_who_ask(c, on_known_stdio);
}

void mcp_call_run(struct mcp_call *c)
{
    if (c->is_stdio)
        run_stdio(c);
    else
        mcp_who_ask(c, on_known);
}

/* --- answers ------------------------------------------------------------------------------------
 */

static void send_body(struct mcp_call *c, int http, json_t *body)
{
    if (c->msg.id && body)
        (void)json_object_set(body, "id", (json_t *)(uintptr_t)c->msg.id);
    char session[MCP_SESSION_TEXT];
    (void)snprintf(session, sizeof session, "%s", c->new_session);
    struct mcp_reply reply = {.http = http, .body = body, .session = session[0] ? session : NULL};
    mcp_bare(c, &reply);
    json_decref(body);
}

void mcp_refused(struct mcp_call *c, const struct mcp_refusal *why)
{
    json_t *error = json_pack("{s:i, s:s}", "code", why->code, "message", why->text);
    if (why->data)
        (void)json_object_set_new(error, "data", why->data);
    count(c, "refused");
    send_body(c, why->http, json_pack("{s:s, s:o}", "jsonrpc", "2.0", "error", error));
}

void mcp_end_error(struct mcp_call *c, const struct mcp_refusal *why)
{
    mcp_refused(c, why);
}

void mcp_end(struct mcp_call *c, json_t *result)
{
    if (c->era == MCP_MODERN) {
        json_t *meta = json_object_get(result, "_meta");
        if (!json_object_get(result, "resultType"))
            mcp_json_set(result, "resultType", json_string("complete"));
        if (!meta)
            mcp_json_set(result, "_meta", meta = json_object());
        mcp_json_set(meta, MCP_META "serverInfo",
                     json_pack("{s:s, s:s}", "name", "cloche", "version", CLOCHE_VERSION));
    }
    count(c, json_is_true(json_object_get(result, "isError")) ? "error" : "ok");
    send_body(c, 200, json_pack("{s:s, s:o}", "jsonrpc", "2.0", "result", result));
}

void mcp_end_tool(struct mcp_call *c, struct mcp_result *r)
{
    const struct mcp_alias *alias = c->tool ? c->tool->alias : NULL;
    if (alias && alias->shape && r->structured)
        alias->shape(c, r);
    json_t *content = json_array();
    if (r->text)
        (void)json_array_append_new(content,
                                    json_pack("{s:s, s:s}", "type", "text", "text", r->text));
    if (r->content)
        (void)json_array_extend(content, r->content);
    json_t *result = json_pack("{s:o, s:b}", "content", content, "isError", r->is_error);
    if (r->structured)
        mcp_json_set(result, "structuredContent", r->structured);
    json_decref(r->content);
    cl_free(r->text);
    mcp_end(c, result);
}

/* All that is not there is answered alike, whether it never was or is another's. */
static void end_plain(struct mcp_call *c, const struct cl_err *err)
{
    struct mcp_refusal why = {0};
    bool asked_wrong = err->code == CL_E_NOTFOUND || err->code == CL_E_INVALID;
    (void)mcp_refuse(&why, 200, asked_wrong ? MCP_E_PARAMS : MCP_E_INTERNAL, "%s",
                     err->code == CL_E_NOTFOUND ? "not found" : err->text);
    mcp_refused(c, &why);
}

void mcp_end_tool_error(struct mcp_call *c, const struct cl_err *err)
{
    char text[MCP_ADVICE];
    mcp_advice(err, text);
    if (err->code == CL_E_NOTFOUND && strcmp(err->subject, "sandbox") == 0)
        mcp_box_gone(c);
    if (c->plain_errors) {
        end_plain(c, err);
        return;
    }
    struct mcp_result r = {.text = cl_strdup(text), .is_error = true};
    mcp_end_tool(c, &r);
}

/* --- on the way ---------------------------------------------------------------------------------
 */

const json_t *mcp_progress_token(const struct mcp_call *c)
{
    const json_t *token = json_object_get(c->msg.meta, "progressToken");
    return json_is_string(token) || json_is_integer(token) ? token : NULL;
}

void mcp_send(struct mcp_call *c, json_t *message)
{
    if (c->transport && message)
        c->transport->notify(c->transport_arg, message);
    json_decref(message);
}

void mcp_notify(struct mcp_call *c, const char *method, json_t *params)
{
    mcp_send(c, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

/* The value is seconds since the start: it grows by itself, whatever is said. */
void mcp_progress(struct mcp_call *c, const char *message)
{
    const json_t *token = mcp_progress_token(c);
    uint64_t now = cl_now_ns();
    if (!token)
        return;
    if (!cl_timer_is_armed(&c->beat))
        cl_timer_every(&c->beat, BEAT_EVERY_NS);
    (void)snprintf(c->progress_text, sizeof c->progress_text, "%s", message);
    if (c->progress_at_ns && now - c->progress_at_ns < PROGRESS_EVERY_NS)
        return;
    c->progress_at_ns = now;
    mcp_notify(c, "notifications/progress",
               json_pack("{s:O, s:f, s:s}", "progressToken", token, "progress",
                         (double)(now - c->started_ns) / 1e9, "message", message));
}

/* --- what a tool sees ---------------------------------------------------------------------------
 */

const json_t *mcp_args(const struct mcp_call *c)
{
    return c->args;
}

const json_t *mcp_params(const struct mcp_call *c)
{
    return c->msg.params;
}

enum mcp_era mcp_call_era(const struct mcp_call *c)
{
    return c->era;
}

bool mcp_call_is_stdio(const struct mcp_call *c)
{
    return c->is_stdio;
}

struct mcp_server *mcp_call_server(const struct mcp_call *c)
{
    return c->server;
}

void mcp_set_work(struct mcp_call *c, void *work, void (*destroy_work)(void *work))
{
    if (c->work_destroy)
        c->work_destroy(c->work);
    c->work = work;
    c->work_destroy = destroy_work;
}

void *mcp_work(const struct mcp_call *c)
{
    return c->work;
}
