/* rpc/server_priv.h - the inside of a server; see rpc/server.h. */
#ifndef CL_RPC_SERVER_PRIV_H
#define CL_RPC_SERVER_PRIV_H

#include "base/list.h"
#include "base/map.h"
#include "rpc/conn_priv.h"
#include "rpc/server.h"
#include "rpc/work.h"

enum { SERVER_METHODS_MAX = 256, SERVER_LISTENERS_MAX = 8 };

struct rpc_health;     /* health.c */
struct rpc_reflection; /* reflection.c */
struct listener;       /* server_io.c */

/* A method as one or more listeners serve it. */
struct method_entry {
    struct method_entry *next;       /* owned: the same path for another listener */
    const struct rpc_method *method; /* borrowed: static */
    void *service;                   /* borrowed: outlives the server */
    int listener;                    /* -1 = all */
};

enum drain_phase { DRAIN_NONE, DRAIN_RUNNING, DRAIN_DONE };

struct rpc_server {
    struct cl_loop *loop;   /* borrowed: outlives the server */
    struct rpc_work *work;  /* owned */
    struct cl_map *methods; /* owned; values are struct method_entry, owned */
    struct listener *listeners[SERVER_LISTENERS_MAX]; /* owned */
    size_t n_listeners;
    struct cl_list conns; /* struct rpc_conn.link */
    size_t n_conns;
    size_t n_calls, n_lasting; /* the latter: of methods that last */
    struct cl_timer tick;      /* runs while there are connections */
    struct cl_timer accept_later;
    rpc_observe_fn *observe;
    void *observe_arg;
    struct rpc_health *health;         /* owned */
    struct rpc_reflection *reflection; /* owned; NULL = off */
    enum drain_phase drain;
    uint64_t drain_ns; /* since when */
    void (*drain_done)(void *arg);
    void *drain_arg;
    struct rpc_work_item drain_item;
    struct cl_grave grave;
};

/* server_call.c */
extern const struct conn_role server_role;

/* server_io.c: what the role's conn_gone does. */
void server_conn_gone(struct rpc_conn *conn, const struct cl_err *why);
const struct method_entry *server_find(const struct rpc_server *server, const char *path, size_t n,
                                       int listener);
/* Tell the drain's starter, in a work item, when nothing is left. */
void server_check_drained(struct rpc_server *server);

/* health.c */
int health_new(struct rpc_server *server, struct rpc_health **ret_health,
               struct cl_err *err) CL_MUST;
void health_free(struct rpc_health *health);
void health_set(struct rpc_health *health, const char *service, bool serving);
/* Everything is NOT_SERVING from now on; watchers are told and ended. */
void health_shut_down(struct rpc_health *health);

/* reflection.c */
int reflection_new(struct rpc_server *server, const void *set, size_t n,
                   struct rpc_reflection **ret_reflection, struct cl_err *err) CL_MUST;
void reflection_free(struct rpc_reflection *reflection);

#endif
