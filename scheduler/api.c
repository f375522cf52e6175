/* scheduler/api.c - see scheduler/api.h. */
#include "scheduler/api.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "scheduler/sandboxes.h"

void api_hold(struct api_call *a)
{
    a->refs++;
}

void api_release(struct api_call *a)
{
    if (--a->refs > 0)
        return;
    if (a->request)
        pb_free(a->request);
    if (a->reply)
        pb_free(a->reply);
    cl_free(a);
}

void api_about(struct api_call *a, const char *object)
{
    (void)snprintf(a->object, sizeof a->object, "%s", object);
}

const char *api_trace(const struct api_call *a, char out[static TRACEPARENT_TEXT])
{
    const char *text = a->call ? rpc_call_metadata(a->call, "traceparent") : NULL;
    return traceparent_read(text, out) ? out : NULL;
}

/* --- audit and answers ------------------------------------------------------------------------ */

static void audit_call(struct api_call *a, const struct cl_err *err, audit_ack_fn *on_ack,
                       struct cl_err *ret_err, int *ret_rc)
{
    const char *code = cl_err_info(err ? err->code : CL_OK)->name;
    const struct audit_field fields[] = {
        AUDIT_STR("code", code),
        AUDIT_STR("key", a->p.key_id),
        AUDIT_STR("method", a->m->path),
        AUDIT_STR("object", a->object[0] ? a->object : NULL),
        AUDIT_STR("subject", a->p.subject[0] ? a->p.subject : NULL),
    };
    *ret_rc = audit_emit(a->s->audit, a->p.tenant, AUDIT_API_CALL, fields, CL_COUNT(fields), on_ack,
                         a, ret_err);
}

void api_audit(struct api_call *a, const struct cl_err *err)
{
    struct cl_err ignored = {0};
    int rc;
    if (a->audited)
        return;
    a->audited = true;
    audit_call(a, err, NULL, &ignored, &rc);
    if (rc < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", ignored.text);
}

static void send_reply(struct api_call *a, const struct cl_err *err)
{
    if (!a->call)
        return;
    if (err)
        rpc_call_finish(a->call, err);
    else
        rpc_call_reply(a->call, a->reply);
}

static void on_reply_ack(const struct cl_err *err, void *arg)
{
    struct api_call *a = arg;
    if (err) /* the change was made, but its record was not: say so, the caller must look */
        send_reply(a, err);
    else
        send_reply(a, a->reply_err.code ? &a->reply_err : NULL);
    api_release(a);
}

/* Answer now, or after the ack of a change's record. */
static void answer(struct api_call *a, const struct cl_err *err)
{
    struct cl_err refused = {0};
    int rc = -1;
    cl_list_unlink(&a->waits);
    a->replied = true;
    a->audited = true;
    if (!a->changes) {
        audit_call(a, err, NULL, &refused, &rc);
        send_reply(a, err);
        return;
    }
    if (err)
        a->reply_err = *err;
    api_hold(a);
    audit_call(a, err, on_reply_ack, &refused, &rc);
    if (rc < 0)
        on_reply_ack(err ? NULL : &refused, a);
}

void api_reply(struct api_call *a, const ProtobufCMessage *msg)
{
    struct cl_err err = {0};
    if (a->replied)
        return;
    int rc = pb_copy(msg, &a->reply, &err);
    answer(a, rc < 0 ? &err : NULL);
}

static void audit_refusal(struct api_call *a, const struct cl_err *err)
{
    struct cl_err ignored = {0};
    if (err->code == CL_E_RATE || err->code == CL_E_QUOTA || err->code == CL_E_QUEUE)
        metrics_add(a->s->metrics, METRIC_REFUSED, cl_err_info(err->code)->name, NULL, 1);
    const struct audit_field rate[] = {AUDIT_STR("key", a->p.key_id),
                                       AUDIT_STR("method", a->m->path),
                                       AUDIT_NUM("retry_ms", err->retry_ms)};
    const struct audit_field quota[] = {AUDIT_STR("dimension", err->subject),
                                        AUDIT_STR("key", a->p.key_id),
                                        AUDIT_STR("method", a->m->path)};
    const struct audit_field queue[] = {AUDIT_STR("key", a->p.key_id),
                                        AUDIT_STR("method", a->m->path)};
    int rc = 0;
    if (err->code == CL_E_RATE)
        rc = audit_emit(a->s->audit, a->p.tenant, AUDIT_RATE_REFUSED, rate, CL_COUNT(rate), NULL,
                        NULL, &ignored);
    else if (err->code == CL_E_QUOTA)
        rc = audit_emit(a->s->audit, a->p.tenant, AUDIT_QUOTA_REFUSED, quota, CL_COUNT(quota), NULL,
                        NULL, &ignored);
    else if (err->code == CL_E_QUEUE)
        rc = audit_emit(a->s->audit, a->p.tenant, AUDIT_QUEUE_REFUSED, queue, CL_COUNT(queue), NULL,
                        NULL, &ignored);
    if (rc < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", ignored.text);
}

void api_fail(struct api_call *a, const struct cl_err *err)
{
    if (a->replied)
        return;
    audit_refusal(a, err);
    answer(a, err);
}

void api_fail_with(struct api_call *a, enum cl_code code, const char *fmt, ...)
{
    struct cl_err err = {0};
    va_list ap;
    va_start(ap, fmt);
    (void)cl_vfail(&err, code, 0, fmt, ap);
    va_end(ap);
    api_fail(a, &err);
}

/* --- from the wire ---------------------------------------------------------------------------- */

static const struct {
    const struct api_method *methods;
    const size_t *n;
} services[] = {{job_api, &job_api_n},           {sandbox_api, &sandbox_api_n},
                {exec_api, &exec_api_n},         {file_api, &file_api_n},
                {template_api, &template_api_n}, {tenant_api, &tenant_api_n},
                {fleet_api, &fleet_api_n},       {code_api, &code_api_n},
                {port_api, &port_api_n},         {snapshot_api, &snapshot_api_n},
                {audit_api, &audit_api_n},       {function_api, &function_api_n}};

static const struct api_method *find_method(const char *path)
{
    for (size_t i = 0; i < CL_COUNT(services); i++) {
        for (size_t j = 0; j < *services[i].n; j++) {
            if (strcmp(services[i].methods[j].path, path) == 0)
                return &services[i].methods[j];
        }
    }
    return NULL;
}

static struct api_call *api_new(struct rpc_call *call, struct sched *s)
{
    struct api_call *a = cl_zalloc(sizeof *a);
    struct cl_err err = {0};
    if (!a) {
        (void)cl_fail(&err, CL_E_NOMEM, 0, "call");
        rpc_call_finish(call, &err);
        return NULL;
    }
    *a = (struct api_call){.refs = 1, .s = s, .call = call, .m = find_method(rpc_call_path(call))};
    CL_ASSERT(a->m); /* only methods of the tables are registered */
    cl_list_init(&a->waits);
    rpc_call_set_user(call, a);
    return a;
}

static const ProtobufCFieldDescriptor *sandbox_field(const ProtobufCMessageDescriptor *type)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, "sandbox_id");
}

static const char *sandbox_of(const ProtobufCMessage *m)
{
    char *id;
    memcpy(&id, (const char *)m + sandbox_field(m->descriptor)->offset, sizeof id);
    return id;
}

/* What the log could not tell must not happen. */
static bool may_change(struct api_call *a)
{
    struct cl_err err = {0};
    const char *why;
    a->changes = true;
    if (audit_is_healthy(a->s->audit, &why))
        return true;
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0,
                  "the audit log takes no records (%s), so nothing may change", why);
    err.retry_ms = 1000;
    a->replied = true;
    rpc_call_finish(a->call, &err);
    return false;
}

static void on_authenticated(struct rpc_call *call, const struct principal *p)
{
    struct api_call *a = rpc_call_user(call);
    struct unit *asleep = NULL;
    a->p = *p;
    if (a->m->changes && !may_change(a))
        return;
    if (a->m->client_streams)
        rpc_call_pause(call, false);
    else if (a->m->wakes)
        asleep = sandbox_use(a, sandbox_of(a->request));
    if (!asleep)
        a->m->handle(a);
    else if (may_change(a))
        sandbox_wake(a, asleep);
}

void api_go_on(struct api_call *a)
{
    ProtobufCMessage *first = a->request;
    if (!a->m->client_streams) {
        a->m->handle(a);
        return;
    }
    a->request = NULL;
    rpc_call_pause(a->call, false);
    a->m->on_message(a, first);
    pb_free(first);
}

static void on_start(struct rpc_call *call, void *service)
{
    struct api_call *a = api_new(call, service);
    if (!a || !a->m->client_streams)
        return;
    rpc_call_pause(call, true); /* messages wait until we know who it is */
    auth_check(a->s, call, a->m->scope, on_authenticated);
}

/* One message of a client's stream.  The first one names what it is for; when that is woken first,
 * it waits here and the others in the call, whose client is not read meanwhile. */
static void take(struct api_call *a, const ProtobufCMessage *msg)
{
    struct cl_err err = {0};
    bool is_first = !a->object[0];
    if (is_first && a->p.link_sandbox[0] && strcmp(a->p.link_sandbox, sandbox_of(msg)) != 0) {
        api_fail_with(a, CL_E_DENIED, "the link is of another sandbox");
        return;
    }
    struct unit *asleep = a->m->wakes && is_first ? sandbox_use(a, sandbox_of(msg)) : NULL;
    if (!asleep) {
        a->m->on_message(a, msg);
        return;
    }
    if (!may_change(a))
        return;
    rpc_call_pause(a->call, true);
    if (pb_copy(msg, &a->request, &err) < 0)
        api_fail(a, &err);
    else
        sandbox_wake(a, asleep);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)service;
    struct api_call *a = rpc_call_user(call);
    struct cl_err err = {0};
    if (!a)
        return;
    if (a->m->client_streams) {
        if (!a->replied)
            take(a, msg);
        return;
    }
    if (pb_copy(msg, &a->request, &err) < 0)
        rpc_call_finish(call, &err);
    else
        auth_check(a->s, call, a->m->scope, on_authenticated);
}

static void on_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    struct api_call *a = rpc_call_user(call);
    if (a && a->m->on_half_close && !a->replied)
        a->m->on_half_close(a);
}

static void on_drain(struct rpc_call *call, void *service)
{
    (void)service;
    struct api_call *a = rpc_call_user(call);
    if (a && a->m->on_drain)
        a->m->on_drain(a);
}

static void on_end(struct rpc_call *call, const struct cl_err *why, void *service)
{
    (void)service;
    struct api_call *a = rpc_call_user(call);
    if (!a)
        return;
    a->call = NULL;
    a->replied = true;
    cl_list_unlink(&a->waits);
    if (a->m->on_gone)
        a->m->on_gone(a, why);
    api_release(a);
}

enum { METHODS_MAX = 96 };

int api_serve(struct sched *s, struct cl_err *err)
{
    static struct rpc_method methods[METHODS_MAX]; /* filled once, then constant */
    size_t n = 0;
    for (size_t i = 0; i < CL_COUNT(services); i++) {
        for (size_t j = 0; j < *services[i].n; j++) {
            const struct api_method *m = &services[i].methods[j];
            CL_ASSERT(n < METHODS_MAX && (!m->wakes || sandbox_field(m->in)));
            CL_ASSERT(!m->takes_links || (m->wakes && m->client_streams));
            methods[n++] = (struct rpc_method){
                .path = m->path,
                .in = m->in,
                .out = m->out,
                .client_streams = m->client_streams,
                .server_streams = m->server_streams,
                .on_start = on_start,
                .lasts = m->lasts,
                .on_message = on_message,
                .on_half_close = on_half_close,
                .on_drain = on_drain,
                .on_end = on_end,
            };
        }
    }
    return rpc_server_add(s->server, methods, n, s, LISTENER_CLIENTS, err);
}

/* --- helpers ---------------------------------------------------------------------------------- */

struct unit *api_unit_find(struct api_call *a, const char *id, enum books_kind kind,
                           struct worker **ret_worker, struct cl_err *err)
{
    struct unit *u = unit_find(a->s, a->p.tenant, id);
    /* One whose end was asked for is as good as gone: its worker would only say that it ends. */
    if (!u || u->kind != kind || u->cancel || u->phase > PHASE_RUNNING) {
        const char *what = books_kind_name(kind);
        (void)cl_fail(err, CL_E_NOTFOUND, 0, "no live %s '%.40s'", what, id);
        /* what is gone, not a file */
        (void)snprintf(err->subject, sizeof err->subject, "%s", what);
        return NULL;
    }
    api_about(a, id);
    if (!ret_worker)
        return u;
    if (u->phase != PHASE_RUNNING) {
        (void)cl_fail(err, CL_E_STATE, 0, "'%.40s' does not run yet", id);
        return NULL;
    }
    *ret_worker = unit_worker(u);
    if (!*ret_worker)
        (void)unit_fail_away(u, err);
    return *ret_worker ? u : NULL;
}

struct unit *api_unit(struct api_call *a, const char *id, enum books_kind kind,
                      struct worker **ret_worker)
{
    struct cl_err err = {0};
    struct unit *u = api_unit_find(a, id, kind, ret_worker, &err);
    if (!u)
        api_fail(a, &err);
    return u;
}

bool api_labels_match(Cloche__V1__Label *const *have, size_t n_have, Cloche__V1__Label *const *want,
                      size_t n_want)
{
    for (size_t i = 0; i < n_want; i++) {
        bool found = false;
        for (size_t j = 0; j < n_have && !found; j++)
            found = strcmp(have[j]->key, want[i]->key) == 0 &&
                    strcmp(have[j]->value, want[i]->value) == 0;
        if (!found)
            return false;
    }
    return true;
}

int api_page_size(uint32_t asked, uint32_t def, uint32_t max, size_t *ret_n, struct cl_err *err)
{
    if (asked > max)
        return cl_fail(err, CL_E_INVALID, 0, "page_size %u, at most %u", asked, max);
    *ret_n = asked ? asked : def;
    return 0;
}
