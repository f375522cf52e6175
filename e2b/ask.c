/* e2b/ask.c - see e2b/ask_priv.h. */
#include "e2b/ask_priv.h"

#include "base/mem.h"
#include "proto/copy.h"

struct open_ask {
    struct cl_list link;
    struct e2b_call *call; /* NULL once that has ended */
    struct rpc_call *rpc;  /* the channel's */
    struct e2b_ask spec;
    ProtobufCMessage *reply; /* owned; of a unary method */
    struct cl_err bad;       /* why there is no reply though the status is OK */
};

static void on_message(struct rpc_call *rpc, const ProtobufCMessage *msg, void *arg)
{
    struct open_ask *a = arg;
    if (!a->call)
        return;
    if (a->spec.on_message)
        a->spec.on_message(a->call, msg, rpc);
    else if (!a->reply && pb_copy(msg, &a->reply, &a->bad) < 0)
        rpc_call_cancel(rpc);
}

static void on_drain(struct rpc_call *rpc, void *arg)
{
    struct open_ask *a = arg;
    if (a->call && a->spec.on_drain)
        a->spec.on_drain(a->call, rpc);
}

static void on_end(struct rpc_call *rpc, const struct cl_err *status, void *arg)
{
    struct open_ask *a = arg;
    struct e2b_call *c = a->call;
    if (c) {
        cl_list_unlink(&a->link);
        c->n_asks--;
        c->paused = c->paused == rpc ? NULL : c->paused;
        if (!status && !a->spec.on_message && !a->reply && !a->bad.code)
            (void)cl_fail(&a->bad, CL_E_PEER, 0, "%s: no answer", a->spec.method->path);
        a->spec.on_end(c, a->reply, a->bad.code ? &a->bad : status);
    }
    pb_free(a->reply);
    cl_free(a);
}

void e2b_asks_drop(struct e2b_call *c)
{
    CL_LIST_FOREACH (it, &c->asks) {
        struct open_ask *a = CL_LIST_ENTRY(it, struct open_ask, link);
        cl_list_unlink(&a->link);
        a->call = NULL;
        rpc_call_cancel(a->rpc);
    }
    c->n_asks = 0;
    c->paused = NULL;
}

static int open_rpc(struct e2b_call *c, struct open_ask *a, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_message, on_drain, on_end};
    struct rpc_metadata pairs[] = {{"authorization", c->grant->credential},
                                   {"traceparent", c->trace}};
    struct rpc_call_spec spec = {
        .path = a->spec.method->path,
        .out = a->spec.method->out,
        .deadline_ns = cl_now_ns() + (a->spec.timeout_ns ? a->spec.timeout_ns : E2B_ASK_NS),
        .fail_fast = true,
        .metadata = pairs,
        .n_metadata = c->trace[0] ? 2 : 1};
    return rpc_channel_call(rpc_pool_pick(c->server->conf.pool), &spec, &events, a, &a->rpc, err);
}

/* Asked, for nobody yet. */
static int open_ask(struct e2b_call *c, const struct e2b_ask *ask, struct open_ask **ret_ask,
                    struct cl_err *err)
{
    struct open_ask *a = cl_zalloc(sizeof *a);
    if (!a)
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    a->spec = *ask;
    if (open_rpc(c, a, err) < 0) {
        cl_free(a);
        return -1;
    }
    if (ask->request && rpc_call_send(a->rpc, ask->request, err) < 0) {
        rpc_call_cancel(a->rpc); /* its end frees it */
        return -1;
    }
    if (!ask->keep_open)
        rpc_call_close_send(a->rpc);
    *ret_ask = a;
    return 0;
}

int e2b_ask_try(struct e2b_call *c, const struct e2b_ask *ask, struct rpc_call **ret_rpc,
                struct cl_err *err)
{
    struct open_ask *a;
    if (c->n_asks >= E2B_ASKS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d calls for one", E2B_ASKS_MAX);
    if (open_ask(c, ask, &a, err) < 0)
        return -1;
    a->call = c;
    cl_list_push(&c->asks, &a->link);
    c->n_asks++;
    if (ret_rpc)
        *ret_rpc = a->rpc;
    return 0;
}

void e2b_tell(struct e2b_call *c, const struct e2b_method *method, const ProtobufCMessage *request)
{
    struct open_ask *a;
    (void)!open_ask(c, &(struct e2b_ask){.method = method, .request = request}, &a, NULL);
}

int e2b_ask(struct e2b_call *c, const struct e2b_ask *ask, struct rpc_call **ret_rpc)
{
    struct cl_err err = {0};
    if (e2b_ask_try(c, ask, ret_rpc, &err) == 0)
        return 0;
    e2b_fail(c, &err);
    return -1;
}
