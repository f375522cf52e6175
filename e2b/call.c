/* e2b/call.c - the life of a request: whose it is, what it asks for, how it ends; see
 * e2b/call_priv.h. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "e2b/ask_priv.h"
#include "e2b/call_priv.h"
#include "web/connect.h"

#define LOOK_NS (20 * CL_NS_PER_MS) /* how soon a reader that was slow is noticed */

/* --- birth and death ----------------------------------------------------------------------------
 */

static void destroy(void *obj)
{
    struct e2b_call *c = obj;
    if (c->work_destroy)
        c->work_destroy(c->work);
    cl_timer_fini(&c->timer);
    json_decref(c->body);
    if (c->grant)
        OPENSSL_cleanse(c->grant, sizeof *c->grant);
    cl_free(c->grant);
    cl_free(c);
}

static void die(struct e2b_call *c)
{
    c->transport = NULL;
    cl_timer_stop(&c->timer);
    e2b_asks_drop(c);
    cl_list_unlink(&c->link);
    c->server->n_calls--;
    cl_loop_bury(c->server->conf.loop, &c->grave, destroy, c);
}

void e2b_call_leave(struct e2b_call *c)
{
    if (c->left)
        c->left(c);
    die(c);
}

/* --- streams ------------------------------------------------------------------------------------
 */

static void arm(struct e2b_call *c)
{
    if (c->paused)
        cl_timer_start(&c->timer, LOOK_NS);
    else if (c->keepalive_ns)
        cl_timer_start(&c->timer, c->keepalive_ns);
}

static void on_timer(void *arg)
{
    struct e2b_call *c = arg;
    e2b_run_fn *after = c->after;
    if (after) {
        c->after = NULL;
        after(c);
        return;
    }
    if (c->paused && c->transport->waiting(c->arg) < E2B_OUT_HIGH / 2) {
        rpc_call_pause(c->paused, false);
        c->paused = NULL;
    } else if (!c->paused && c->beat) {
        c->beat(c);
    }
    arm(c);
}

void e2b_after(struct e2b_call *c, uint64_t ns, e2b_run_fn *run)
{
    c->after = run;
    cl_timer_start(&c->timer, ns);
}

void e2b_begin(struct e2b_call *c, const char *type)
{
    c->is_streaming = true;
    c->transport->begin(c->arg, type);
    arm(c);
}

void e2b_begin_messages(struct e2b_call *c, e2b_run_fn *beat)
{
    uint64_t every_s = c->in.keepalive ? strtoull(c->in.keepalive, NULL, 10) : 0;
    c->keepalive_ns = CL_MIN(every_s, (uint64_t)E2B_LIFE_S) * CL_NS_PER_S;
    c->beat = beat;
    e2b_begin(c, "application/connect+json");
}

uint64_t e2b_limit_ns(const struct e2b_call *c)
{
    uint64_t ms = c->in.connect_timeout ? strtoull(c->in.connect_timeout, NULL, 10) : 0;
    return ms > 0 && ms < E2B_LIFE_S * UINT64_C(1000) ? ms * CL_NS_PER_MS : E2B_LIFE_NS;
}

void e2b_send(struct e2b_call *c, const void *data, size_t n, struct rpc_call *rpc)
{
    if (n > 0)
        c->transport->send(c->arg, data, n);
    if (!rpc || c->paused || c->transport->waiting(c->arg) < E2B_OUT_HIGH)
        return;
    c->paused = rpc;
    rpc_call_pause(rpc, true);
    arm(c);
}

static void send_envelope(struct e2b_call *c, uint8_t flags, json_t *message, struct rpc_call *rpc)
{
    char *text = json_dumps(message, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    uint8_t *bytes = cl_zalloc(CONNECT_HEAD + n);
    if (bytes && text) {
        connect_head(bytes, flags, (uint32_t)n);
        memcpy(bytes + CONNECT_HEAD, text, n);
        e2b_send(c, bytes, CONNECT_HEAD + n, rpc);
    }
    cl_free(bytes);
    free(text);
    json_decref(message);
}

void e2b_send_message(struct e2b_call *c, json_t *message, struct rpc_call *rpc)
{
    send_envelope(c, 0, message, rpc);
}

void e2b_end(struct e2b_call *c)
{
    const struct web_transport *transport = c->transport;
    void *arg = c->arg;
    die(c);
    transport->end(arg);
}

static void cut(struct e2b_call *c)
{
    const struct web_transport *transport = c->transport;
    void *arg = c->arg;
    die(c);
    transport->cut(arg);
}

void e2b_end_messages(struct e2b_call *c, const struct cl_err *err)
{
    if (!c->is_streaming)
        e2b_begin(c, "application/connect+json");
    send_envelope(c, CONNECT_END,
                  err ? json_pack("{s:o}", "error", connect_error(err)) : json_object(), NULL);
    e2b_end(c);
}

/* --- uploads ------------------------------------------------------------------------------------
 */

void e2b_want_body(struct e2b_call *c)
{
    c->wants_body = true;
    c->transport->want_body(c->arg);
}

bool e2b_call_wants_body(const struct e2b_call *c)
{
    return c->wants_body;
}

size_t e2b_call_body(struct e2b_call *c, const void *data, size_t n)
{
    CL_ASSERT(c->wants_body);
    return c->on_body(c, data, n);
}

void e2b_call_body_end(struct e2b_call *c)
{
    CL_ASSERT(c->wants_body);
    c->wants_body = false;
    c->on_body_end(c);
}

/* --- one answer ---------------------------------------------------------------------------------
 */

static void say(struct e2b_call *c, const struct web_reply *reply)
{
    const struct web_transport *transport = c->transport;
    void *arg = c->arg;
    die(c);
    transport->reply(arg, reply);
}

static void reply_json(struct e2b_call *c, int status, json_t *body, const char *next_token)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    say(c, &(struct web_reply){.status = status,
                               .type = text ? "application/json" : NULL,
                               .data = text ? text : "",
                               .n = text ? strlen(text) : 0,
                               .next_token = next_token});
    free(text);
}

void e2b_reply(struct e2b_call *c, int status, json_t *body)
{
    reply_json(c, status, body, NULL);
}

void e2b_reply_next(struct e2b_call *c, json_t *body, const char *next_token)
{
    reply_json(c, 200, body, next_token);
}

void e2b_reply_text(struct e2b_call *c, int status, const char *type, const char *text)
{
    say(c, &(struct web_reply){.status = status, .type = type, .data = text, .n = strlen(text)});
}

void e2b_fail(struct e2b_call *c, const struct cl_err *err)
{
    int status = cl_err_info(err->code)->http;
    if (c->route && c->route->plane == PLANE_STREAM)
        e2b_end_messages(c, err);
    else if (c->route && c->route->plane == PLANE_RPC)
        e2b_reply(c, connect_http(err->code), connect_error(err));
    else if (c->is_streaming)
        cut(c); /* there is no other way to say it */
    else
        e2b_reply(c, status, json_pack("{s:i, s:s}", "code", status, "message", err->text));
}

int e2b_fail_invalid(struct e2b_call *c, const char *what)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_INVALID, 0, "%s", what);
    e2b_fail(c, &err);
    return -1;
}

/* --- a sandbox that is gone ---------------------------------------------------------------------
 */

struct doubt {
    struct cl_err err;
};

/* E2B's proxy answers for a sandbox that is not there, and for one that is paused: 502 and these
 * words, which the SDKs know. */
static void say_gone(struct e2b_call *c)
{
    struct cl_err gone = {0};
    (void)cl_fail(&gone, CL_E_UNAVAILABLE, 0, "The sandbox was not found");
    if (c->is_streaming) {
        e2b_fail(c, &gone);
        return;
    }
    e2b_reply(c, 502,
              json_pack("{s:s, s:s, s:i}", "sandboxId", c->grant->sandbox, "message", gone.text,
                        "code", 502));
}

static void on_looked(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const struct doubt *doubt = c->work;
    const Cloche__V1__SandboxServiceGetResponse *m =
        (const Cloche__V1__SandboxServiceGetResponse *)reply;
    bool gone = err ? err->code == CL_E_NOTFOUND
                    : m->sandbox->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED ||
                          m->sandbox->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED;
    if (gone)
        say_gone(c);
    else if (err)
        e2b_fail(c, err);
    else if (doubt->err.code)
        e2b_fail(c, &doubt->err);
    else if (c->in.sandbox_port && strcmp(c->in.sandbox_port, "49999") == 0)
        e2b_reply_text(c, 200, "text/plain", "OK");
    else
        e2b_reply(c, 204, NULL);
}

static void look(struct e2b_call *c, const struct cl_err *err)
{
    static const struct e2b_method get =
        E2B_RPC("SandboxService", "Get", sandbox_service_get_response);
    Cloche__V1__SandboxServiceGetRequest m = CLOCHE__V1__SANDBOX_SERVICE_GET_REQUEST__INIT;
    struct cl_err why = err ? *err : (struct cl_err){0}; /* it may lie in the work */
    struct doubt *doubt = e2b_work_new(c, sizeof *doubt, cl_free);
    if (!doubt)
        return;
    doubt->err = why;
    m.sandbox_id = c->grant->sandbox;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_looked},
                   NULL);
}

/* Only these can mean that. */
void e2b_fail_in_box(struct e2b_call *c, const struct cl_err *err)
{
    if (err->code == CL_E_NOTFOUND || err->code == CL_E_STATE || err->code == CL_E_UNAVAILABLE)
        look(c, err);
    else
        e2b_fail(c, err);
}

void e2b_health(struct e2b_call *c)
{
    look(c, NULL);
}

void e2b_not_there(struct e2b_call *c)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_UNIMPL, 0, "%s: not served by this version of Cloche", c->in.path);
    e2b_fail(c, &err);
}

/* --- whose it is --------------------------------------------------------------------------------
 */

/* E2B's keys are "e2b_" and hexadecimal digits, and an SDK may insist on that: "clk_ID_SECRET" may
 * be written so, too. */
static int credential_of_key(const char *key, char *out, size_t size)
{
    enum { ID = 16, SECRET = 64 };
    if (strlen(key) >= size - sizeof "Bearer ")
        return -1;
    if (strncmp(key, "e2b_", 4) == 0 && strlen(key) == 4 + ID + SECRET)
        (void)snprintf(out, size, "Bearer clk_%.*s_%s", ID, key + 4, key + 4 + ID);
    else
        (void)snprintf(out, size, "Bearer %s", key);
    return 0;
}

static int take_credential(struct e2b_call *c, struct cl_err *err)
{
    char text[E2B_CREDENTIAL_MAX];
    const char *bearer = c->in.authorization;
    if (bearer && strncasecmp(bearer, "Bearer ", 7) != 0)
        bearer = NULL;
    if (c->in.api_key) {
        if (credential_of_key(c->in.api_key, text, sizeof text) < 0)
            return cl_fail(err, CL_E_UNAUTH, 0, "X-API-Key is too long");
        bearer = text;
    }
    if (!bearer)
        return cl_fail(
            err, CL_E_UNAUTH, 0,
            "no API key: set E2B_API_KEY to one of Cloche's (`cloche key create TENANT`)");
    const char *sandbox = c->route->plane == PLANE_CONTROL ? "" : c->in.sandbox_id;
    if (!sandbox || strlen(sandbox) >= sizeof c->grant->sandbox)
        return cl_fail(err, CL_E_INVALID, 0, "no E2b-Sandbox-Id");
    return e2b_grant_make(sandbox, bearer, "", c->grant, err);
}

/* One key may not hold all places: its neighbours' calls must get in. */
static int check_crowd(const struct e2b_call *c, struct cl_err *err)
{
    size_t n = 0, uploads = 0;
    CL_LIST_FOREACH (it, &c->server->calls) {
        const struct e2b_call *other = CL_LIST_ENTRY(it, struct e2b_call, link);
        n += other->route && strcmp(other->grant->text, c->grant->text) == 0;
        uploads += other->route && other->route->plane == PLANE_UPLOAD;
    }
    if (c->route->plane == PLANE_UPLOAD && uploads > E2B_UPLOADS_MAX)
        return cl_fail(err, CL_E_QUEUE, 0, "more than %d uploads at once: retry later",
                       E2B_UPLOADS_MAX);
    if (n <= E2B_CALLS_OF_KEY)
        return 0;
    return cl_fail(err, CL_E_QUEUE, 0, "more than %d calls of one key at once: retry later",
                   E2B_CALLS_OF_KEY);
}

static int take_grant(struct e2b_call *c, struct cl_err *err)
{
    if (c->route->plane == PLANE_CONTROL || !c->in.access_token)
        return take_credential(c, err);
    if (e2b_token_open(c->server->conf.secret, c->in.access_token, c->grant, err) < 0)
        return -1;
    if (c->in.sandbox_id && strcmp(c->in.sandbox_id, c->grant->sandbox) != 0)
        return cl_fail(err, CL_E_UNAUTH, 0, "the access token is of another sandbox");
    return 0;
}

/* Of envd: "Basic " and "NAME:" in base64. */
static int take_user(struct e2b_call *c, struct cl_err *err)
{
    static const char *const users[] = {"user", "root"};
    char named[64] = "";
    uint8_t name[96] = "";
    const char *basic = c->in.authorization;
    c->user = strcmp(c->grant->user, users[1]) == 0 ? users[1] : users[0];
    if (e2b_query_get(c->in.query, "username", named, sizeof named) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "username is malformed");
    if (!named[0] && basic && strncasecmp(basic, "Basic ", 6) == 0 && strlen(basic + 6) < 88) {
        int n = EVP_DecodeBlock(name, (const uint8_t *)basic + 6, (int)strlen(basic + 6));
        name[n > 0 ? n : 0] = '\0';
        (void)snprintf(named, sizeof named, "%.*s", (int)strcspn((char *)name, ":"), (char *)name);
    }
    for (size_t i = 0; i < CL_COUNT(users); i++) {
        if (!named[0] || strcmp(named, users[i]) == 0) {
            c->user = users[i];
            return 0;
        }
    }
    return cl_fail(err, CL_E_INVALID, 0, "user '%.40s': a sandbox has `user` and `root`", named);
}

/* --- what it asks for ---------------------------------------------------------------------------
 */

static int take_body(struct e2b_call *c, struct cl_err *err)
{
    const char *text = c->in.body;
    size_t n = c->in.n;
    if (n == 0)
        return 0;
    if (c->route->plane == PLANE_STREAM && connect_open(text, n, &text, &n, err) < 0)
        return -1;
    if (mcp_json_parse(text, n, &c->body, err) < 0)
        return -1;
    return json_is_object(c->body) ? 0
                                   : cl_fail(err, CL_E_INVALID, 0, "the body is no JSON object");
}

int e2b_call_new(struct e2b_server *s, const struct e2b_request *in,
                 const struct web_transport *transport, void *arg, struct e2b_call **ret_call,
                 struct cl_err *err)
{
    if (s->n_calls >= E2B_CALLS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d calls at once", E2B_CALLS_MAX);
    struct e2b_call *c = cl_zalloc(sizeof *c);
    struct e2b_grant *grant = cl_zalloc(sizeof *grant);
    if (!c || !grant || cl_timer_init(&c->timer, s->conf.loop, on_timer, c, err) < 0) {
        cl_free(c);
        cl_free(grant);
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    }
    cl_list_init(&c->asks);
    c->server = s;
    c->transport = transport;
    c->arg = arg;
    c->in = *in;
    c->id = c->ids.id;
    (void)traceparent_read(in->traceparent, c->trace);
    c->grant = grant;
    cl_list_push(&s->calls, &c->link);
    s->n_calls++;
    *ret_call = c;
    return 0;
}

void e2b_call_run(struct e2b_call *c)
{
    struct cl_err err = {0};
    bool other = false;
    c->route = e2b_route_find(c->in.verb, c->in.path, &c->ids, &other);
    if (!c->route) {
        e2b_reply(c, other ? 405 : 404,
                  json_pack("{s:i, s:s}", "code", other ? 405 : 404, "message", "no such call"));
        return;
    }
    int rc = take_grant(c, &err);
    if (rc == 0)
        rc = check_crowd(c, &err);
    if (rc == 0)
        rc = take_user(c, &err);
    if (rc == 0)
        rc = take_body(c, &err);
    if (rc == 0 && !c->in.can_stream)
        rc = cl_fail(&err, CL_E_INVALID, 0, "HTTP/1.0 is not served here");
    if (rc < 0)
        e2b_fail(c, &err);
    else
        c->route->run(c);
}

/* --- what several need --------------------------------------------------------------------------
 */

void *e2b_work_new(struct e2b_call *c, size_t size, void (*work_free)(void *work))
{
    void *work = cl_zalloc(size);
    if (c->work_destroy)
        c->work_destroy(c->work);
    c->work = work;
    c->work_destroy = work ? work_free : NULL;
    if (!work)
        e2b_fail(c, &(struct cl_err){.code = CL_E_NOMEM, .text = "out of memory"});
    return work;
}

int e2b_path(const struct e2b_call *c, const char *path, char *out, size_t size)
{
    const char *home = strcmp(c->user, "root") == 0 ? "/root" : "/home/user";
    const char *base = c->grant->cwd[0] ? c->grant->cwd : home;
    int n = path[0] == '/' ? snprintf(out, size, "%s", path) : 0;
    if (path[0] == '~' && (path[1] == '/' || !path[1]))
        n = snprintf(out, size, "%s%s", home, path + 1);
    else if (path[0] != '/')
        n = snprintf(out, size, "%s%s%s", base, path[0] ? "/" : "", path);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

int e2b_env_check(const json_t *object, struct cl_err *err)
{
    const char *name;
    json_t *value;
    if (object && !json_is_null(object) && !json_is_object(object))
        return cl_fail(err, CL_E_INVALID, 0, "the environment is no object");
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!mcp_json_text(object, name))
            return cl_fail(err, CL_E_INVALID, 0, "environment '%.40s' is no text, or holds NUL",
                           name);
    }
    return 0;
}

static size_t add_vars(struct e2b_env *env, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        Cloche__V1__EnvVar *var = &env->vars[env->n];
        cloche__v1__env_var__init(var);
        var->name = e2b_pb(name);
        var->value = e2b_pb(json_string_value(value));
        env->list[env->n++] = var;
    }
    return env->n;
}

int e2b_env_make(const char *grant, const json_t *object, struct e2b_env *ret_env,
                 struct cl_err *err)
{
    *ret_env = (struct e2b_env){0};
    if (e2b_env_check(object, err) < 0)
        return -1;
    if (grant[0] && mcp_json_parse(grant, strlen(grant), &ret_env->grant, err) < 0)
        return -1;
    size_t n = json_object_size(ret_env->grant) + json_object_size(object);
    ret_env->vars = cl_zalloc_array(n + 1, sizeof *ret_env->vars);
    ret_env->list = cl_zalloc_array(n + 1, sizeof *ret_env->list);
    if (!ret_env->vars || !ret_env->list) {
        e2b_env_free(ret_env);
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    }
    (void)add_vars(ret_env, ret_env->grant);
    (void)add_vars(ret_env, object);
    return 0;
}

void e2b_env_free(struct e2b_env *env)
{
    cl_free(env->vars);
    cl_free(env->list);
    json_decref(env->grant);
}

/* --- the server ---------------------------------------------------------------------------------
 */

int e2b_server_new(const struct e2b_server_conf *conf, struct e2b_server **ret_server,
                   struct cl_err *err)
{
    struct e2b_server *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "E2B's API");
    s->conf = *conf;
    cl_list_init(&s->calls);
    cl_list_init(&s->watchers);
    cl_list_init(&s->builds);
    *ret_server = s;
    return 0;
}

void e2b_server_free(struct e2b_server *s)
{
    if (!s)
        return;
    CL_LIST_FOREACH (it, &s->calls)
        die(CL_LIST_ENTRY(it, struct e2b_call, link));
    e2b_watchers_free(s);
    e2b_builds_free(s);
    OPENSSL_cleanse(s->conf.secret, sizeof s->conf.secret);
    cl_free(s);
}

size_t e2b_server_calls(const struct e2b_server *s)
{
    return s->n_calls;
}
