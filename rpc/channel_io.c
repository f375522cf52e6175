/* rpc/channel_io.c - a channel's connection: when to make one, when to try again; see
 * rpc/channel.h, and rpc/targets.h for which target.
 *
 *   IDLE --call, connect--> CONNECTING --SETTINGS--> UP --lost--+
 *    ^ ^                      ^    | failed                     | calls wait, or keep
 *    | |               timer  |    v                            v
 *    | +--nobody waits----- BACKOFF <---------------------------+
 *    +-- with several targets: the next one's turn, at once, until all have failed
 *
 * Thread:  its loop's.
 */
#include <openssl/ssl.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/call_priv.h"
#include "rpc/channel_priv.h"
#include "rpc/tls.h"

#define TICK_NS CL_NS_PER_S
#define BACKOFF_FIRST_NS (100 * CL_NS_PER_MS)
#define BACKOFF_MAX_NS (10 * CL_NS_PER_S)

/* Of several targets one takes over from another, and what a worker holds lasts for 20 s without
 * it: a dead one must be given up, and the one that follows it found, well before. */
#define LIST_TICK_NS (500 * CL_NS_PER_MS)
#define LIST_BACKOFF_MAX_NS CL_NS_PER_S
#define STEADY_NS CL_NS_PER_S /* up for less: nothing to count on, as if it had failed */

static const struct conn_patience list_patience = {
    .handshake_ns = 3 * CL_NS_PER_S,
    .ping_after_ns = 3 * CL_NS_PER_S, /* longer than the servers' h2_guard minds */
    .ping_wait_ns = 3 * CL_NS_PER_S,
};

static void connect_now(struct rpc_channel *channel);

/* --- states
 * ------------------------------------------------------------------------------------------- */

static bool is_list(const struct rpc_channel *channel)
{
    return channel->targets.n > 1;
}

static uint64_t tick_ns(const struct rpc_channel *channel)
{
    return is_list(channel) ? LIST_TICK_NS : TICK_NS;
}

static bool wanted(const struct rpc_channel *channel)
{
    return channel->keep || !cl_list_empty(&channel->waiting);
}

static uint64_t backoff_ns(const struct rpc_channel *channel)
{
    uint64_t ns = BACKOFF_FIRST_NS, max = is_list(channel) ? LIST_BACKOFF_MAX_NS : BACKOFF_MAX_NS;
    for (unsigned i = 1; i < channel->failures && ns < max; i++)
        ns = ns * 8 / 5;
    ns = CL_MIN(ns, max);
    uint32_t random;
    cl_random(&random, sizeof random);
    return ns - ns / 5 + random % (ns / 5 * 2 + 1); /* a fifth either way */
}

/* Calls that would not wait hear that the round failed. */
static void fail_impatient(struct rpc_channel *channel)
{
    CL_LIST_FOREACH (it, &channel->waiting) {
        struct rpc_call *call = CL_LIST_ENTRY(it, struct rpc_call, link);
        if (!call->cli.fail_fast || call->cut)
            continue;
        call->why = channel->why;
        call->cut = call->status_set = true;
        call_todo(call, CALL_WORK_END);
    }
}

static void go_down(struct rpc_channel *channel, const struct cl_err *why)
{
    channel->why = *why;
    channel->why.code = CL_E_UNAVAILABLE;
    channel->failures++;
    channel->state = CHANNEL_BACKOFF;
    cl_timer_start(&channel->retry, backoff_ns(channel));
    fail_impatient(channel);
    rpc_work_add(channel->work, RPC_WORK_CALL, &channel->item);
}

/* No connection for now; the work queue makes one, if wanted, with the current target. */
static void rest(struct rpc_channel *channel, const struct cl_err *why)
{
    channel->state = CHANNEL_IDLE;
    channel->why = *why;
    channel->why.code = CL_E_UNAVAILABLE;
    rpc_work_add(channel->work, RPC_WORK_CALL, &channel->item);
}

static void attempt_failed(struct rpc_channel *channel, const struct cl_err *why)
{
    struct cl_err all;
    if (targets_failed(&channel->targets, why, &all))
        rest(channel, why);
    else
        go_down(channel, &all);
}

/* The one that was up takes no new calls. */
static void connection_lost(struct rpc_channel *channel, const struct cl_err *why)
{
    bool steady = is_list(channel) && cl_now_ns() - channel->up_ns >= STEADY_NS;
    targets_lost(&channel->targets, steady);
    if (steady)
        rest(channel, why);
    else
        attempt_failed(channel, why);
}

static void on_retry(void *arg)
{
    struct rpc_channel *channel = arg;
    if (channel->state != CHANNEL_BACKOFF)
        return;
    if (wanted(channel))
        connect_now(channel);
    else
        channel->state = CHANNEL_IDLE;
}

/* NULL for a unix socket: nobody but root and the two ends reads along. */
static int make_ssl(const struct rpc_channel *channel, const struct target *target, SSL **ret_ssl,
                    struct cl_err *err)
{
    *ret_ssl = NULL;
    if (!channel->tls || !target->host[0])
        return 0;
    SSL *ssl = SSL_new(channel->tls);
    if (!ssl)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS session");
    if (tls_expect_host(ssl, target->host, err) < 0) {
        SSL_free(ssl);
        return -1;
    }
    *ret_ssl = ssl;
    return 0;
}

static void connect_now(struct rpc_channel *channel)
{
    const struct target *target = targets_current(&channel->targets);
    struct cl_err err;
    SSL *ssl;
    if (make_ssl(channel, target, &ssl, &err) < 0) {
        attempt_failed(channel, &err);
        return;
    }
    struct conn_spec spec = {.loop = channel->loop,
                             .work = channel->work,
                             .role = &client_role,
                             .owner = channel,
                             .patience = is_list(channel) ? &list_patience : NULL,
                             .fd = -1,
                             .addr = &target->addr,
                             .addr_len = target->addr_len,
                             .name = target->text,
                             .ssl = ssl};
    struct rpc_conn *conn;
    if (conn_new(&spec, &conn, &err) < 0) {
        attempt_failed(channel, &err);
        return;
    }
    cl_list_push(&channel->conns, &conn->link);
    channel->conn = conn;
    channel->state = CHANNEL_CONNECTING;
    channel->ticked_ns = cl_now_ns();
    cl_timer_every(&channel->tick, tick_ns(channel));
}

void channel_conn_up(struct rpc_conn *conn)
{
    struct rpc_channel *channel = conn->owner;
    if (channel->conn != conn)
        return;
    channel->state = CHANNEL_UP;
    channel->failures = 0;
    channel->up_ns = cl_now_ns();
    targets_up(&channel->targets);
    while (!cl_list_empty(&channel->waiting))
        client_call_start(CL_LIST_ENTRY(channel->waiting.next, struct rpc_call, link), conn);
    rpc_work_add(channel->work, RPC_WORK_CALL, &channel->item);
}

void channel_conn_going(struct rpc_conn *conn)
{
    static const struct cl_err why = {.code = CL_E_UNAVAILABLE, .text = "the server is going away"};
    struct rpc_channel *channel = conn->owner;
    if (channel->conn != conn)
        return;
    channel->conn = NULL;
    if (is_list(channel))
        connection_lost(channel, &why);
    else
        rest(channel, &why); /* the next one gets a new connection, at once */
}

void channel_conn_gone(struct rpc_conn *conn, const struct cl_err *why)
{
    struct rpc_channel *channel = conn->owner;
    if (cl_list_empty(&channel->conns))
        cl_timer_stop(&channel->tick);
    if (channel->conn != conn || channel->state == CHANNEL_CLOSED)
        return;
    channel->conn = NULL;
    if (channel->state == CHANNEL_UP)
        connection_lost(channel, why);
    else
        attempt_failed(channel, why);
}

void channel_wait_again(struct rpc_call *call)
{
    struct rpc_channel *channel = call->cli.channel;
    call->submitted = false;
    call->deferred = false;
    cl_list_push(&channel->waiting, &call->link);
    rpc_work_add(channel->work, RPC_WORK_CALL, &channel->item);
}

/* From the work queue, so never inside another call: connect if wanted, tell the state. */
static void run_item(void *obj)
{
    struct rpc_channel *channel = obj;
    if (channel->state == CHANNEL_IDLE && wanted(channel))
        connect_now(channel);
    else if (channel->state == CHANNEL_IDLE)
        targets_forget(&channel->targets);
    if (channel->state == CHANNEL_UP)
        while (!cl_list_empty(&channel->waiting))
            client_call_start(CL_LIST_ENTRY(channel->waiting.next, struct rpc_call, link),
                              channel->conn);
    bool up = channel->state == CHANNEL_UP;
    if (up == channel->state_told_up && channel->state != CHANNEL_BACKOFF)
        return;
    channel->state_told_up = up;
    if (channel->on_state)
        channel->on_state(channel->on_state_arg, up ? NULL : &channel->why);
}

/* After this process stood still, what the peers said meanwhile is still to be read: that tick
 * judges nobody.  One at most, or a loop that is always late would never judge. */
static bool skip_tick(struct rpc_channel *channel, uint64_t now_ns)
{
    bool late = now_ns - channel->ticked_ns > 3 * tick_ns(channel);
    channel->ticked_ns = now_ns;
    channel->tick_skipped = late && is_list(channel) && !channel->tick_skipped;
    return channel->tick_skipped;
}

static void on_tick(void *arg)
{
    struct rpc_channel *channel = arg;
    uint64_t now = cl_now_ns();
    if (skip_tick(channel, now))
        return;
    CL_LIST_FOREACH (it, &channel->conns)
        conn_tick(CL_LIST_ENTRY(it, struct rpc_conn, link), now);
}

/* --- rpc/channel.h
 * -------------------------------------------------------------------------------------- */

static void destroy(void *obj)
{
    struct rpc_channel *channel = obj;
    cl_timer_fini(&channel->retry);
    cl_timer_fini(&channel->tick);
    metadata_fini(&channel->metadata);
    rpc_work_free(channel->work);
    cl_free(channel);
}

int rpc_channel_new(struct cl_loop *loop, const char *targets, SSL_CTX *tls,
                    struct rpc_channel **ret_channel, struct cl_err *err)
{
    struct rpc_channel *channel = cl_zalloc(sizeof *channel);
    if (!channel)
        return cl_fail(err, CL_E_NOMEM, 0, "channel to %s", targets);
    channel->loop = loop;
    channel->tls = tls;
    cl_list_init(&channel->conns);
    cl_list_init(&channel->waiting);
    cl_list_init(&channel->orphans);
    metadata_init(&channel->metadata);
    rpc_work_item_init(&channel->item, run_item, channel);
    if (targets_read(targets, &channel->targets, err) < 0 ||
        rpc_work_new(loop, &channel->work, err) < 0 ||
        cl_timer_init(&channel->retry, loop, on_retry, channel, err) < 0 ||
        cl_timer_init(&channel->tick, loop, on_tick, channel, err) < 0) {
        destroy(channel);
        return -1;
    }
    *ret_channel = channel;
    return 0;
}

static void fail_list(struct cl_list *list, const struct cl_err *why)
{
    while (!cl_list_empty(list)) {
        struct rpc_call *call = CL_LIST_ENTRY(list->next, struct rpc_call, link);
        cl_list_unlink(&call->link);
        client_call_fail(call, why);
    }
}

void rpc_channel_free(struct rpc_channel *channel)
{
    static const struct cl_err why = {.code = CL_E_CANCELLED, .text = "the channel was closed"};
    if (!channel || channel->state == CHANNEL_CLOSED)
        return;
    channel->state = CHANNEL_CLOSED;
    channel->conn = NULL;
    while (!cl_list_empty(&channel->conns))
        conn_close(CL_LIST_ENTRY(channel->conns.next, struct rpc_conn, link), &why);
    fail_list(&channel->waiting, &why);
    fail_list(&channel->orphans, &why);
    CL_ASSERT(channel->n_calls == 0);
    cl_timer_stop(&channel->retry);
    cl_timer_stop(&channel->tick);
    rpc_work_del(&channel->item);
    cl_loop_bury(channel->loop, &channel->grave, destroy, channel);
}

void rpc_channel_on_state(struct rpc_channel *channel, rpc_channel_state_fn *fn, void *arg)
{
    channel->on_state = fn;
    channel->on_state_arg = arg;
}

void rpc_channel_set_tls(struct rpc_channel *channel, SSL_CTX *tls)
{
    CL_ASSERT(channel->tls && tls);
    channel->tls = tls;
}

void rpc_channel_connect(struct rpc_channel *channel)
{
    channel->keep = true;
    rpc_work_add(channel->work, RPC_WORK_CALL, &channel->item);
}

bool rpc_channel_is_up(const struct rpc_channel *channel)
{
    return channel->state == CHANNEL_UP;
}

const char *rpc_channel_target(const struct rpc_channel *channel)
{
    return targets_current(&channel->targets)->text;
}

size_t rpc_channel_calls(const struct rpc_channel *channel)
{
    return channel->n_calls;
}

int rpc_channel_set_metadata(struct rpc_channel *channel, const char *name, const char *value,
                             struct cl_err *err)
{
    metadata_remove(&channel->metadata, name);
    return metadata_add_outgoing(&channel->metadata, name, value, err);
}

int rpc_channel_call(struct rpc_channel *channel, const struct rpc_call_spec *spec,
                     const struct rpc_client_events *events, void *arg, struct rpc_call **ret_call,
                     struct cl_err *err)
{
    struct rpc_call *call;
    if (channel->state == CHANNEL_CLOSED)
        return cl_fail(err, CL_E_STATE, 0, "the channel is closed");
    if (channel->n_calls >= RPC_CHANNEL_CALLS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d open calls", RPC_CHANNEL_CALLS_MAX);
    if (client_call_new(channel, spec, events, arg, &call, err) < 0)
        return -1;
    *ret_call = call;
    if (channel->state == CHANNEL_UP) {
        client_call_start(call, channel->conn);
        return 0;
    }
    cl_list_push(&channel->waiting, &call->link);
    if (channel->state == CHANNEL_BACKOFF)
        fail_impatient(channel);
    rpc_work_add(channel->work, RPC_WORK_CALL, &channel->item);
    return 0;
}
