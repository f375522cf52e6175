/* scheduler/relays.c - the scheduler's end of relays: ask a worker, wait for it to dial back, pass
 * bytes on.  A relay id is 128 random bits and is good for one call of the worker it was sent to.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "scheduler/relays.h"

enum { RELAY_ID = 33, DIAL_TIMEOUT_S = 15 };

struct relay {
    struct sched *s;
    char id[RELAY_ID], worker_id[BOOKS_NAME];
    struct rpc_call *call; /* the worker's; NULL before it dials and after the end */
    struct relay_events events;
    void *arg; /* NULL events once dropped */
    bool dropped, paused, done;
    struct cl_err why;
    struct cl_timer timeout; /* until it dials; then reports ends outside of every call */
};

static void relay_free(struct relay *r)
{
    (void)cl_map_del(r->s->relays, r->id);
    cl_timer_fini(&r->timeout);
    cl_free(r);
}

/* Tell whom it serves, once. */
static void tell_end(struct relay *r)
{
    if (r->dropped)
        return;
    r->dropped = true;
    r->events.on_end(r->arg, r->why.code ? &r->why : NULL);
}

static void over(struct relay *r)
{
    tell_end(r);
    relay_free(r);
}

static void on_timeout(void *arg)
{
    struct relay *r = arg;
    if (!r->dropped && !r->call)
        (void)cl_fail(&r->why, CL_E_UNAVAILABLE, 0, "the worker did not answer in time");
    if (!r->call)
        over(r);
}

int relay_open(struct worker *w, Cloche__V1__OpenRelay *what, const struct relay_events *events,
               void *arg, struct relay **ret_relay, struct cl_err *err)
{
    struct sched *s = w->sched;
    struct relay *r = cl_zalloc(sizeof *r);
    if (!r)
        return cl_fail(err, CL_E_NOMEM, 0, "relay");
    uint8_t noise[(RELAY_ID - 1) / 2];
    *r = (struct relay){.s = s, .events = *events, .arg = arg};
    cl_random(noise, sizeof noise);
    cl_hex(noise, sizeof noise, r->id);
    (void)snprintf(r->worker_id, sizeof r->worker_id, "%s", w->id);
    what->relay_id = r->id;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_OPEN_RELAY;
    m.open_relay = what;
    if (cl_timer_init(&r->timeout, s->loop, on_timeout, r, err) < 0 ||
        cl_map_put(s->relays, r->id, r, err) < 0 || worker_send(w, &m, err) < 0) {
        relay_free(r);
        return -1;
    }
    cl_timer_start(&r->timeout, DIAL_TIMEOUT_S * CL_NS_PER_S);
    *ret_relay = r;
    return 0;
}

void relays_worker_left(struct sched *s, const char *worker_id)
{
    size_t at = 0;
    for (struct relay *r; (r = cl_map_next(s->relays, &at, NULL)) != NULL;) {
        if (!r->call && strcmp(r->worker_id, worker_id) == 0)
            cl_timer_start(&r->timeout, 0); /* outside of this walk */
    }
}

void relay_drop(struct relay *r)
{
    r->dropped = true;
    if (r->call)
        rpc_call_finish(r->call, NULL);
    else
        cl_timer_start(&r->timeout, 0);
}

void relay_pause(struct relay *r, bool paused)
{
    r->paused = paused;
    if (r->call)
        rpc_call_pause(r->call, paused);
}

int relay_send_message(struct relay *r, const Cloche__V1__RelayResponse *m, struct cl_err *err)
{
    if (!r->call)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the worker has not dialled yet");
    return rpc_call_send(r->call, &m->base, err);
}

int relay_send(struct relay *r, const void *data, size_t n, bool eof, struct cl_err *err)
{
    Cloche__V1__RelayResponse m = CLOCHE__V1__RELAY_RESPONSE__INIT;
    m.data.data = (uint8_t *)(uintptr_t)data;
    m.data.len = n;
    m.eof = eof;
    return relay_send_message(r, &m, err);
}

bool relay_is_full(const struct relay *r)
{
    return !r->call || rpc_call_is_full(r->call);
}

/* --- the worker's side ------------------------------------------------------------------------ */

static void bind_call(struct rpc_call *call, struct sched *s, const Cloche__V1__RelayRequest *m)
{
    struct cl_err err = {0};
    struct relay *r = cl_map_get(s->relays, m->relay_id);
    if (!r || r->call || r->done) {
        (void)cl_fail(&err, CL_E_NOTFOUND, 0, "no such relay");
        rpc_call_finish(call, &err);
        return;
    }
    r->call = call;
    rpc_call_set_user(call, r);
    cl_timer_stop(&r->timeout);
    if (r->dropped) {
        rpc_call_finish(call, NULL);
        return;
    }
    rpc_call_pause(call, r->paused);
    r->events.on_drain(r->arg);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct relay *r = rpc_call_user(call);
    const Cloche__V1__RelayRequest *m = (const Cloche__V1__RelayRequest *)msg;
    if (!r) {
        bind_call(call, service, m);
        return;
    }
    if (r->dropped || r->done)
        return;
    if (m->done || m->ended ||
        (m->cell && m->cell->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED))
        r->done = true;
    if (m->done && m->done->code) {
        (void)cl_fail(&r->why, cl_code_from_grpc((int)m->done->code), 0, "%s", m->done->message);
        if (m->done->code ==
            8) /* several of our codes share RESOURCE_EXHAUSTED: here a size limit */
            r->why.code = CL_E_TOOBIG;
    }
    r->events.on_message(r->arg, m);
    if (!r->why.code || r->dropped)
        return;
    /* The worker has refused: what is on the way to it nobody waits for. */
    tell_end(r);
    rpc_call_finish(call, NULL);
}

/* Without a last word nothing comes any more, either. */
static void on_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    struct relay *r = rpc_call_user(call);
    if (r && !r->done) {
        r->done = true;
        (void)cl_fail(&r->why, CL_E_UNAVAILABLE, 0, "the worker ended the transfer");
        tell_end(r);
    }
    rpc_call_finish(call, NULL);
}

static void on_drain(struct rpc_call *call, void *service)
{
    (void)service;
    struct relay *r = rpc_call_user(call);
    if (r && !r->dropped && !r->done)
        r->events.on_drain(r->arg);
}

static void on_end(struct rpc_call *call, const struct cl_err *why, void *service)
{
    (void)service;
    struct relay *r = rpc_call_user(call);
    if (!r)
        return;
    r->call = NULL;
    if (!r->done && !r->why.code)
        (void)cl_fail(&r->why, CL_E_UNAVAILABLE, 0, "the worker ended the transfer: %s",
                      why ? why->text : "");
    over(r);
}

const struct rpc_method relay_methods[] = {
    {.path = "/cloche.v1.WorkerService/Relay",
     .in = &cloche__v1__relay_request__descriptor,
     .out = &cloche__v1__relay_response__descriptor,
     .client_streams = true,
     .server_streams = true,
     .lasts = true,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_drain = on_drain,
     .on_end = on_end},
};
const size_t relay_methods_count = CL_COUNT(relay_methods);
