/* mcp/ask.c - see mcp/ask_priv.h. */
#include "mcp/ask_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "mcp/call_priv.h"
#include "proto/copy.h"

struct mcp_ask {
    struct cl_list link;   /* in call->asks */
    struct mcp_call *call; /* NULL once that has ended */
    struct rpc_call *rpc;  /* the channel's */
    struct mcp_ask_spec spec;
    ProtobufCMessage *reply; /* owned; of a unary method */
    struct cl_err bad;       /* why there is no reply though the status is OK */
};

static void on_message(struct rpc_call *rpc, const ProtobufCMessage *msg, void *arg)
{
    (void)rpc;
    struct mcp_ask *a = arg;
    if (!a->call)
        return;
    if (a->spec.on_message)
        a->spec.on_message(a->call, msg);
    else if (!a->reply && pb_copy(msg, &a->reply, &a->bad) < 0)
        rpc_call_cancel(rpc);
}

static void on_drain(struct rpc_call *rpc, void *arg)
{
    struct mcp_ask *a = arg;
    if (a->call && a->spec.on_drain)
        a->spec.on_drain(a->call, rpc);
}

static void on_end(struct rpc_call *rpc, const struct cl_err *status, void *arg)
{
    (void)rpc;
    struct mcp_ask *a = arg;
    struct mcp_call *c = a->call;
    if (c) {
        cl_list_unlink(&a->link);
        c->n_asks--;
        if (a->bad.code)
            status = &a->bad;
        if (!status && !a->spec.on_message && !a->reply) {
            (void)cl_fail(&a->bad, CL_E_PEER, 0, "%s: no answer", a->spec.method->path);
            status = &a->bad;
        }
        c->ask_tag = a->spec.tag;
        a->spec.on_end(c, a->reply, status);
    }
    pb_free(a->reply);
    cl_free(a);
}

void mcp_asks_drop(struct mcp_call *c)
{
    CL_LIST_FOREACH (it, &c->asks) {
        struct mcp_ask *a = CL_LIST_ENTRY(it, struct mcp_ask, link);
        cl_list_unlink(&a->link);
        a->call = NULL;
        rpc_call_cancel(a->rpc);
    }
    c->n_asks = 0;
}

static int open_ask(struct mcp_call *c, struct mcp_ask *a, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_message, on_drain, on_end};
    struct rpc_metadata pairs[2];
    size_t n = 0;
    if (c->credential)
        pairs[n++] = (struct rpc_metadata){"authorization", c->credential};
    if (c->trace[0])
        pairs[n++] = (struct rpc_metadata){"traceparent", c->trace};
    struct rpc_call_spec spec = {
        .path = a->spec.method->path,
        .out = a->spec.method->out,
        .deadline_ns = cl_now_ns() + (a->spec.timeout_ns ? a->spec.timeout_ns : MCP_ASK_NS),
        .fail_fast = true,
        .metadata = pairs,
        .n_metadata = n};
    const struct mcp_server_conf *conf = &c->server->conf;
    struct rpc_channel *channel = conf->pool ? rpc_pool_pick(conf->pool) : conf->channel;
    return rpc_channel_call(channel, &spec, &events, a, &a->rpc, err);
}

int mcp_ask_try(struct mcp_call *c, const struct mcp_ask_spec *spec, struct rpc_call **ret_rpc,
                struct cl_err *err)
{
    if (c->n_asks >= MCP_ASKS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d calls for one", MCP_ASKS_MAX);
    struct mcp_ask *a = cl_zalloc(sizeof *a);
    if (!a)
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    a->spec = *spec;
    if (open_ask(c, a, err) < 0) {
        cl_free(a);
        return -1;
    }
    if (spec->request && rpc_call_send(a->rpc, spec->request, err) < 0) {
        rpc_call_cancel(a->rpc); /* its end frees it */
        return -1;
    }
    if (!spec->keep_open)
        rpc_call_close_send(a->rpc);
    a->call = c;
    cl_list_push(&c->asks, &a->link);
    c->n_asks++;
    if (ret_rpc)
        *ret_rpc = a->rpc;
    return 0;
}

int mcp_ask(struct mcp_call *c, const struct mcp_ask_spec *spec, struct rpc_call **ret_rpc)
{
    struct cl_err err = {0};
    if (mcp_ask_try(c, spec, ret_rpc, &err) == 0)
        return 0;
    mcp_end_tool_error(c, &err);
    return -1;
}
