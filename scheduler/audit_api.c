/* scheduler/audit_api.c - AuditService: who may read which stream; the reading itself is
 * cloche-audit-reader's, which these calls are passed on to.
 *
 *   authenticated --stream, limits--> PASSED ON --the reader's end--> over
 *
 * What the reader says goes on at the client's pace.
 * A call that streams is in the log before its client sees the first record.
 */
#include <stdio.h>
#include <string.h>

#include "audit/record.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/audit.pb-c.h"
#include "rpc/channel.h"
#include "scheduler/api.h"

enum { READINGS_MAX = 32, READINGS_OF_TENANT = 8, ANSWER_S = 60 };

struct reading {
    struct cl_list link; /* in sched.readings */
    struct api_call *a;  /* held */
    struct rpc_call *up; /* at the reader */
};

/* --- whose stream -------------------------------------------------------------------------------
 */

/* NULL: the request is about none. */
static const ProtobufCFieldDescriptor *stream_field(const ProtobufCMessageDescriptor *type)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, "stream");
}

/* The name for the reader: "" = all. */
static int allowed_stream(const struct principal *p, const char *asked,
                          char out[static AUDIT_STREAM], struct cl_err *err)
{
    static const char of_tenant[] = "tenant/";
    const char *tenant = NULL;
    size_t n = sizeof of_tenant - 1;
    bool is_tenant = strncmp(asked, of_tenant, n) == 0;
    (void)snprintf(out, AUDIT_STREAM, "%s", asked);
    if (!asked[0] && !principal_has(p, SCOPE_ADMIN)) {
        (void)snprintf(out, AUDIT_STREAM, "%s%s", of_tenant, p->tenant);
        return 0;
    }
    if (is_tenant && cl_name_is_valid(asked + n))
        return principal_tenant(p, asked + n, &tenant, err);
    if (asked[0] && (strncmp(asked, "host/", 5) != 0 || !cl_name_is_valid(asked + 5)))
        return cl_fail(err, CL_E_INVALID, 0, "stream '%.80s': want tenant/NAME or host/NAME",
                       asked);
    return principal_require(p, SCOPE_ADMIN, err);
}

static int check_room(const struct api_call *a, struct cl_err *err)
{
    size_t all = 0, own = 0;
    CL_LIST_FOREACH (it, &a->s->readings) {
        all++;
        own += strcmp(CL_LIST_ENTRY(it, struct reading, link)->a->p.tenant, a->p.tenant) == 0;
    }
    if (own >= READINGS_OF_TENANT)
        return cl_fail(err, CL_E_QUEUE, 0, "%zu calls of the tenant read the log: at most %d", own,
                       READINGS_OF_TENANT);
    return all < READINGS_MAX ? 0
                              : cl_fail(err, CL_E_QUEUE, 0, "%zu calls read the log: at most %d",
                                        all, READINGS_MAX);
}

/* --- what the reader says -----------------------------------------------------------------------
 */

static void finish(struct reading *x, const struct cl_err *why)
{
    struct api_call *a = x->a;
    if (!a->call || a->replied)
        return;
    if (!a->m->server_streams) {
        api_fail(a, why); /* an answer would have come before the end */
        return;
    }
    a->replied = true;
    api_audit(a, why);
    rpc_call_finish(a->call, why);
}

static void on_message(struct rpc_call *up, const ProtobufCMessage *msg, void *arg)
{
    struct reading *x = arg;
    struct api_call *a = x->a;
    struct cl_err err = {0};
    if (!a->call || a->replied)
        return;
    if (!a->m->server_streams) {
        api_reply(a, msg);
        return;
    }
    api_audit(a, NULL);
    if (rpc_call_send(a->call, msg, &err) < 0)
        finish(x, &err);
    else if (rpc_call_is_full(a->call))
        rpc_call_pause(up, true);
}

static void on_end(struct rpc_call *up, const struct cl_err *status, void *arg)
{
    struct reading *x = arg;
    struct api_call *a = x->a;
    struct cl_err none = {0};
    (void)up;
    if (!status && !a->m->server_streams)
        (void)cl_fail(&none, CL_E_PEER, 0, "the log's reader gave no answer");
    finish(x, none.code ? &none : status);
    a->state = NULL;
    cl_list_unlink(&x->link);
    cl_free(x);
    api_release(a);
}

/* --- the call -----------------------------------------------------------------------------------
 */

/* The same request with another stream: both borrow. */
static int pass_on(struct reading *x, char *stream, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_message, NULL, on_end};
    const struct api_call *a = x->a;
    const ProtobufCFieldDescriptor *field = stream_field(a->m->in);
    size_t size = a->m->in->sizeof_message;
    ProtobufCMessage *copy = cl_zalloc(size);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    memcpy(copy, a->request, size);
    if (field)
        memcpy((char *)copy + field->offset, &stream, sizeof stream);
    struct rpc_call_spec spec = {
        .path = a->m->path,
        .out = a->m->out,
        .fail_fast = true,
        .deadline_ns = a->m->server_streams ? 0 : cl_now_ns() + ANSWER_S * CL_NS_PER_S};
    int rc = rpc_channel_call(a->s->reader, &spec, &events, x, &x->up, err);
    if (rc == 0) {
        rc = rpc_call_send(x->up, copy, err);
        rpc_call_close_send(x->up);
    }
    cl_free(copy);
    return rc;
}

/* What may be read, where the method is about a stream at all. */
static int choose_stream(struct api_call *a, char stream[static AUDIT_STREAM], struct cl_err *err)
{
    const ProtobufCFieldDescriptor *field = stream_field(a->m->in);
    char *asked;
    if (!field)
        return 0;
    memcpy(&asked, (const char *)a->request + field->offset, sizeof asked);
    if (strlen(asked) >= AUDIT_STREAM)
        return cl_fail(err, CL_E_INVALID, 0, "stream: longer than %d bytes", AUDIT_STREAM - 1);
    api_about(a, asked); /* a refusal names it, too */
    if (allowed_stream(&a->p, asked, stream, err) < 0)
        return -1;
    api_about(a, stream);
    return 0;
}

static int begin(struct api_call *a, struct cl_err *err)
{
    char stream[AUDIT_STREAM] = "";
    if (choose_stream(a, stream, err) < 0)
        return -1;
    if (!a->s->reader)
        return cl_fail(
            err, CL_E_UNIMPL, 0,
            "this scheduler has no reader of the log\nrun cloche-audit-reader beside it, "
            "and give it --audit-reader");
    if (check_room(a, err) < 0)
        return -1;
    struct reading *x = cl_zalloc(sizeof *x);
    if (!x)
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    x->a = a;
    if (pass_on(x, stream, err) < 0 && !x->up) {
        cl_free(x);
        return -1;
    }
    api_hold(a); /* until the end of the reader's call, which comes in a later turn */
    a->state = x;
    cl_list_push(&a->s->readings, &x->link);
    return 0;
}

static void handle(struct api_call *a)
{
    struct cl_err err = {0};
    if (begin(a, &err) < 0)
        api_fail(a, &err);
}

static void on_drain(struct api_call *a)
{
    const struct reading *x = a->state;
    if (x)
        rpc_call_pause(x->up, false);
}

static void on_gone(struct api_call *a, const struct cl_err *why)
{
    const struct reading *x = a->state;
    if (a->m->server_streams)
        api_audit(a, why);
    if (x)
        rpc_call_cancel(x->up);
}

int audit_api_open(struct sched *s, struct cl_err *err)
{
    char target[CL_CONF_STR + 8];
    cl_list_init(&s->readings);
    if (!s->o->audit_reader[0])
        return 0;
    (void)snprintf(target, sizeof target, "unix:%s", s->o->audit_reader);
    if (rpc_channel_new(s->loop, target, NULL, &s->reader, err) < 0)
        return -1;
    rpc_channel_connect(s->reader);
    return 0;
}

#define METHOD(name_, in_, out_, streams_) \
    { \
        .path = "/cloche.v1.AuditService/" name_, \
        .in = &cloche__v1__audit_service_##in_##__descriptor, \
        .out = &cloche__v1__audit_service_##out_##__descriptor, .scope = SCOPE_AUDIT, \
        .server_streams = (streams_), .lasts = (streams_), .handle = handle, .on_drain = on_drain, \
        .on_gone = on_gone \
    }
const struct api_method audit_api[] = {
    METHOD("Query", query_request, query_response, true),
    METHOD("Tree", tree_request, tree_response, false),
    METHOD("Findings", findings_request, findings_response, false),
    METHOD("PublicKey", public_key_request, public_key_response, false),
};
const size_t audit_api_n = CL_COUNT(audit_api);
