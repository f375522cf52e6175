/* trail/reader/service.c - see trail/reader/service.h.
 *
 *   request --begin--> READING --step, a turn each--> done --> answered, or READING again (follow)
 *
 * A client that does not take what it was sent stops its reading until it has; one that leaves ends
 * it, from any state.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "trail/reader/service_priv.h"

struct service {
    struct service_conf conf;
    size_t n_calls;
};

const struct service_conf *reading_conf(const struct reading *q)
{
    return &q->s->conf;
}

struct walk_filter reading_filter(const char *stream, const char *unit,
                                  const Cloche__V1__Time *since, const Cloche__V1__Time *until)
{
    return (struct walk_filter){.stream = stream,
                                .unit = unit,
                                .since_ns = since ? since->unix_ns : 0,
                                .until_ns = until ? until->unix_ns : 0,
                                .streams_max = SERVICE_STREAMS};
}

void reading_wait(struct reading *q, uint64_t ns)
{
    cl_timer_start(&q->turn, ns);
}

void reading_reply(struct reading *q, const ProtobufCMessage *msg)
{
    rpc_call_reply(q->call, msg);
}

/* --- a call ------------------------------------------------------------------------------------
 */

static void destroy(void *obj)
{
    struct reading *q = obj;
    for (size_t i = 0; i < q->n_batch; i++)
        cl_free(q->batch[i]);
    cl_free(q->batch);
    walk_free(q->walk);
    newest_free(q->newest);
    sheaf_free(q->sheaf);
    detect_free(q->detect);
    rules_free(q->rules);
    cl_free(q->from);
    pb_free(q->request);
    cl_timer_fini(&q->turn);
    cl_free(q);
}

static void on_turn(void *arg)
{
    struct reading *q = arg;
    struct cl_err err = {0};
    if (!q->call || rpc_call_is_full(q->call)) /* on_drain goes on */
        return;
    int more = q->kind->step(q, &err);
    if (more > 0)
        reading_wait(q, 0);
    else if (more < 0 || q->kind->done(q, &err) < 0)
        rpc_call_finish(q->call, &err);
}

static int begin(struct service *s, const struct reading_kind *kind, struct rpc_call *call,
                 const ProtobufCMessage *msg, struct cl_err *err)
{
    struct reading *q = cl_zalloc(sizeof *q);
    if (!q || cl_timer_init(&q->turn, s->conf.loop, on_turn, q, err) < 0) {
        cl_free(q);
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    }
    q->s = s;
    q->kind = kind;
    q->call = call;
    s->n_calls++;
    rpc_call_set_user(call, q);
    if (pb_copy(msg, &q->request, err) < 0 || kind->begin(q, err) < 0)
        return -1; /* the call's end frees it */
    reading_wait(q, 0);
    return 0;
}

static void ask(struct rpc_call *call, const ProtobufCMessage *msg, struct service *s,
                const struct reading_kind *kind)
{
    const struct rpc_peer *peer = rpc_call_peer(call);
    struct cl_err err = {0};
    int rc;
    if (!peer->is_unix || !audit_uids_have(s->conf.uids, peer->uid))
        rc = cl_fail(&err, CL_E_DENIED, 0, "uid %u may not read the log here", peer->uid);
    else if (s->n_calls >= SERVICE_CALLS)
        rc = cl_fail(&err, CL_E_QUEUE, 0, "more than %d readers of the log", SERVICE_CALLS);
    else
        rc = begin(s, kind, call, msg, &err);
    if (rc < 0)
        rpc_call_finish(call, &err);
}

static void on_query(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    ask(call, msg, service, &reading_query);
}

static void on_tree(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    ask(call, msg, service, &reading_tree);
}

static void on_findings(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    ask(call, msg, service, &reading_findings);
}

static void on_public_key(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    ask(call, msg, service, &reading_key);
}

static void on_drain(struct rpc_call *call, void *service)
{
    (void)service;
    struct reading *q = rpc_call_user(call);
    if (q && !cl_timer_is_armed(&q->turn))
        reading_wait(q, 0);
}

static void on_end(struct rpc_call *call, const struct cl_err *why, void *service)
{
    (void)why;
    struct service *s = service;
    struct reading *q = rpc_call_user(call);
    if (!q)
        return;
    q->call = NULL;
    s->n_calls--;
    cl_timer_stop(&q->turn);
    cl_loop_bury(s->conf.loop, &q->grave, destroy, q);
}

#define METHOD(name_, in_, out_, streams_, fn_) \
    { \
        .path = "/cloche.v1.AuditService/" name_, \
        .in = &cloche__v1__audit_service_##in_##__descriptor, \
        .out = &cloche__v1__audit_service_##out_##__descriptor, .server_streams = (streams_), \
        .on_message = (fn_), .on_drain = on_drain, .on_end = on_end \
    }
const struct rpc_method service_methods[] = {
    METHOD("Query", query_request, query_response, true, on_query),
    METHOD("Tree", tree_request, tree_response, false, on_tree),
    METHOD("Findings", findings_request, findings_response, false, on_findings),
    METHOD("PublicKey", public_key_request, public_key_response, false, on_public_key),
};
const size_t service_methods_n = CL_COUNT(service_methods);

int service_new(const struct service_conf *conf, struct service **ret_service, struct cl_err *err)
{
    struct service *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "service");
    s->conf = *conf;
    *ret_service = s;
    return 0;
}

void service_free(struct service *s)
{
    cl_free(s);
}
