/* gateway/port_dial.c - see gateway/port_dial.h. */
#include "gateway/port_dial.h"

#include "base/mem.h"
#include "cloche/v1/port.pb-c.h"

#define CONNECT "/cloche.v1.PortService/Connect"

struct port_dial {
    struct rpc_call *rpc;                  /* the channel's */
    const struct port_dial_events *events; /* NULL: left */
    void *arg;
    bool is_connected;
};

static void on_message(struct rpc_call *rpc, const ProtobufCMessage *msg, void *arg)
{
    (void)rpc;
    struct port_dial *d = arg;
    const Cloche__V1__ConnectResponse *m = (const Cloche__V1__ConnectResponse *)msg;
    d->is_connected = d->is_connected || m->connected;
    if (d->events && m->data.len > 0)
        d->events->data(d->arg, m->data.data, m->data.len);
    if (d->events && m->eof)
        d->events->eof(d->arg);
}

static void on_drain(struct rpc_call *rpc, void *arg)
{
    (void)rpc;
    struct port_dial *d = arg;
    if (d->events)
        d->events->drain(d->arg);
}

static void on_end(struct rpc_call *rpc, const struct cl_err *status, void *arg)
{
    (void)rpc;
    struct port_dial *d = arg;
    if (d->events)
        d->events->end(d->arg, status);
    cl_free(d);
}

static int send(struct port_dial *d, const Cloche__V1__ConnectRequest *m, struct cl_err *err)
{
    return rpc_call_send(d->rpc, &m->base, err);
}

/* Hostile bytes in a message that only carries them. */
static void set_data(Cloche__V1__ConnectRequest *m, const void *data, size_t n)
{
    m->data.data = (uint8_t *)(uintptr_t)data;
    m->data.len = n;
}

int port_dial_new(const struct port_dial_spec *spec, const void *first, size_t n,
                  struct port_dial **ret_dial, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_message, on_drain, on_end};
    Cloche__V1__ConnectRequest m = CLOCHE__V1__CONNECT_REQUEST__INIT;
    struct rpc_metadata bearer = {"authorization", spec->credential};
    struct rpc_call_spec call = {.path = CONNECT,
                                 .out = &cloche__v1__connect_response__descriptor,
                                 .fail_fast = true,
                                 .metadata = &bearer,
                                 .n_metadata = 1};
    struct port_dial *d = cl_zalloc(sizeof *d);
    if (!d)
        return cl_fail(err, CL_E_NOMEM, 0, "connection to a port");
    if (rpc_channel_call(rpc_pool_pick_even(spec->pool), &call, &events, d, &d->rpc, err) < 0) {
        cl_free(d);
        return -1;
    }
    m.sandbox_id = (char *)(uintptr_t)spec->host->sandbox;
    m.port = spec->host->port;
    set_data(&m, first, n);
    if (send(d, &m, err) < 0) {
        rpc_call_cancel(d->rpc); /* its end frees it */
        return -1;
    }
    d->events = spec->events;
    d->arg = spec->arg;
    *ret_dial = d;
    return 0;
}

int port_dial_send(struct port_dial *d, const void *data, size_t n, struct cl_err *err)
{
    Cloche__V1__ConnectRequest m = CLOCHE__V1__CONNECT_REQUEST__INIT;
    set_data(&m, data, n);
    return send(d, &m, err);
}

int port_dial_send_eof(struct port_dial *d, struct cl_err *err)
{
    Cloche__V1__ConnectRequest m = CLOCHE__V1__CONNECT_REQUEST__INIT;
    m.eof = true;
    if (send(d, &m, err) < 0)
        return -1;
    rpc_call_close_send(d->rpc);
    return 0;
}

bool port_dial_is_full(const struct port_dial *d)
{
    return rpc_call_is_full(d->rpc);
}

void port_dial_pause(struct port_dial *d, bool paused)
{
    rpc_call_pause(d->rpc, paused);
}

bool port_dial_is_connected(const struct port_dial *d)
{
    return d->is_connected;
}

void port_dial_leave(struct port_dial *d)
{
    d->events = NULL;
    rpc_call_cancel(d->rpc);
}
