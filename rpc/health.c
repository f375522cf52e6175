/* rpc/health.c - grpc.health.v1: what is serving, and who watches it.
 *
 * Owns:    the table of services and the list of watchers.
 * Borrows: the watchers' calls, until their on_end.
 * Thread:  the server's loop.
 * Limit:   HEALTH_SERVICES_MAX services (ours, not the peer's) and HEALTH_WATCHERS_MAX watchers: a
 *          Watch costs a client nothing and us a call.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/proto/health.pb-c.h"
#include "rpc/server_priv.h"

enum { HEALTH_SERVICES_MAX = 32, HEALTH_NAME = 96, HEALTH_WATCHERS_MAX = 256 };

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

struct service {
    char name[HEALTH_NAME];
    serving_status status;
};

struct watcher {
    struct cl_list link;
    struct rpc_call *call; /* borrowed: until on_end */
    char name[HEALTH_NAME];
    serving_status told;
};

struct rpc_health {
    struct service services[HEALTH_SERVICES_MAX];
    size_t n_services;
    struct cl_list watchers; /* struct watcher, owned */
    size_t n_watchers;
    bool down;
};

static serving_status status_of(const struct rpc_health *health, const char *name)
{
    for (size_t i = 0; i < health->n_services; i++)
        if (strcmp(health->services[i].name, name) == 0)
            return health->down ? NOT_SERVING : health->services[i].status;
    return SERVICE_UNKNOWN;
}

static void on_check(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct rpc_health *health = service;
    const Grpc__Health__V1__HealthCheckRequest *req =
        (const Grpc__Health__V1__HealthCheckRequest *)msg;
    Grpc__Health__V1__HealthCheckResponse reply;
    grpc__health__v1__health_check_response__init(&reply);
    reply.status = status_of(health, req->service);
    if (reply.status == SERVICE_UNKNOWN) {
        struct cl_err err;
        (void)cl_fail(&err, CL_E_NOTFOUND, 0, "unknown service '%.*s'", HEALTH_NAME, req->service);
        rpc_call_finish(call, &err);
        return;
    }
    rpc_call_reply(call, &reply.base);
}

static void tell(struct rpc_health *health, struct watcher *w)
{
    Grpc__Health__V1__HealthCheckResponse reply;
    grpc__health__v1__health_check_response__init(&reply);
    reply.status = status_of(health, w->name);
    if (reply.status == w->told || rpc_call_is_full(w->call))
        return;
    if (rpc_call_send(w->call, &reply.base, NULL) == 0)
        w->told = reply.status;
}

static void tell_all(struct rpc_health *health)
{
    CL_LIST_FOREACH (it, &health->watchers)
        tell(health, CL_LIST_ENTRY(it, struct watcher, link));
}

static void on_watch(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct rpc_health *health = service;
    const Grpc__Health__V1__HealthCheckRequest *req =
        (const Grpc__Health__V1__HealthCheckRequest *)msg;
    struct watcher *w = health->n_watchers < HEALTH_WATCHERS_MAX ? cl_zalloc(sizeof *w) : NULL;
    if (!w || health->down) {
        struct cl_err err;
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "no more health watchers now");
        cl_free(w);
        rpc_call_finish(call, &err);
        return;
    }
    w->call = call;
    (void)snprintf(w->name, sizeof w->name, "%s", req->service);
    cl_list_push(&health->watchers, &w->link);
    health->n_watchers++;
    rpc_call_set_user(call, w);
    tell(health, w);
}

static void on_watch_end(struct rpc_call *call, const struct cl_err *why, void *service)
{
    (void)why;
    struct rpc_health *health = service;
    struct watcher *w = rpc_call_user(call);
    if (!w)
        return;
    cl_list_unlink(&w->link);
    health->n_watchers--;
    cl_free(w);
}

static const struct rpc_method methods[] = {
    {
        .path = "/grpc.health.v1.Health/Check",
        .in = &grpc__health__v1__health_check_request__descriptor,
        .out = &grpc__health__v1__health_check_response__descriptor,
        .max_message = 4096,
        .on_message = on_check,
    },
    {
        .path = "/grpc.health.v1.Health/Watch",
        .in = &grpc__health__v1__health_check_request__descriptor,
        .out = &grpc__health__v1__health_check_response__descriptor,
        .server_streams = true,
        .lasts = true,
        .max_message = 4096,
        .on_message = on_watch,
        .on_end = on_watch_end,
    },
};

int health_new(struct rpc_server *server, struct rpc_health **ret_health, struct cl_err *err)
{
    struct rpc_health *health = cl_zalloc(sizeof *health);
    if (!health)
        return cl_fail(err, CL_E_NOMEM, 0, "health service");
    cl_list_init(&health->watchers);
    health_set(health, "", true);
    if (rpc_server_add(server, methods, CL_COUNT(methods), health, -1, err) < 0) {
        cl_free(health);
        return -1;
    }
    *ret_health = health;
    return 0;
}

void health_free(struct rpc_health *health)
{
    if (!health)
        return;
    CL_ASSERT(cl_list_empty(&health->watchers));
    cl_free(health);
}

void health_set(struct rpc_health *health, const char *service, bool serving)
{
    struct service *s = NULL;
    for (size_t i = 0; i < health->n_services && !s; i++)
        if (strcmp(health->services[i].name, service) == 0)
            s = &health->services[i];
    if (!s) {
        CL_ASSERT(health->n_services < HEALTH_SERVICES_MAX && strlen(service) < HEALTH_NAME);
        s = &health->services[health->n_services++];
        (void)snprintf(s->name, sizeof s->name, "%s", service);
    }
    s->status = serving ? SERVING : NOT_SERVING;
    tell_all(health);
}

void health_shut_down(struct rpc_health *health)
{
    static const struct cl_err why = {.code = CL_E_UNAVAILABLE, .text = "the server is draining"};
    health->down = true;
    tell_all(health);
    CL_LIST_FOREACH (it, &health->watchers)
        rpc_call_finish(CL_LIST_ENTRY(it, struct watcher, link)->call, &why);
}
