/* rpc/channel_priv.h - the inside of a channel; see rpc/channel.h. */
#ifndef CL_RPC_CHANNEL_PRIV_H
#define CL_RPC_CHANNEL_PRIV_H

#include "base/list.h"
#include "rpc/channel.h"
#include "rpc/conn_priv.h"
#include "rpc/metadata.h"
#include "rpc/targets.h"
#include "rpc/work.h"

enum channel_state {
    CHANNEL_IDLE, /* no connection and no wish for one, or the next target's turn */
    CHANNEL_CONNECTING,
    CHANNEL_UP,
    CHANNEL_BACKOFF, /* every target failed; a timer runs */
    CHANNEL_CLOSED,  /* freed; the memory goes when the turn ends */
};

struct rpc_channel {
    struct cl_loop *loop;  /* borrowed: outlives the channel */
    struct rpc_work *work; /* owned */
    SSL_CTX *tls;          /* borrowed; NULL = plain */
    struct targets targets;
    enum channel_state state;
    bool keep;              /* stay connected also without calls */
    unsigned failures;      /* rounds in a row */
    uint64_t up_ns;         /* when the connection came up */
    uint64_t ticked_ns;     /* when the tick came last */
    bool tick_skipped;      /* because it came late */
    struct rpc_conn *conn;  /* owned: the one that takes new calls (CONNECTING, UP), or NULL */
    struct cl_list conns;   /* struct rpc_conn.link: conn and those that finish after a GOAWAY */
    struct cl_list waiting; /* struct rpc_call.link: for a connection */
    struct cl_list orphans; /* struct rpc_call.link: stream over, messages not handed over */
    size_t n_calls;
    struct metadata metadata; /* of every call */
    struct cl_timer retry, tick;
    rpc_channel_state_fn *on_state;
    void *on_state_arg;
    bool state_told_up;
    struct cl_err why;         /* why the last connection went */
    struct rpc_work_item item; /* reconnect, tell state */
    struct cl_grave grave;
};

/* client_call.c */
extern const struct conn_role client_role;
/* Make a call; it is in no list yet. */
int client_call_new(struct rpc_channel *channel, const struct rpc_call_spec *spec,
                    const struct rpc_client_events *events, void *arg, struct rpc_call **ret_call,
                    struct cl_err *err) CL_MUST;
/* Send the request on the connection. */
void client_call_start(struct rpc_call *call, struct rpc_conn *conn);
/* End a call that waits, or whose stream is over. */
void client_call_fail(struct rpc_call *call, const struct cl_err *why);

/* channel_io.c: what the role's events do. */
void channel_conn_up(struct rpc_conn *conn);
void channel_conn_going(struct rpc_conn *conn);
void channel_conn_gone(struct rpc_conn *conn, const struct cl_err *why);
/* The stream was refused unseen: start it again on the next connection. */
void channel_wait_again(struct rpc_call *call);

#endif
