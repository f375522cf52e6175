/* rpc/pool.h - channels to one target, for those whose calls are many and last.
 *
 * A server takes so many calls on a connection (RPC_STREAMS_MAX); what is asked beyond waits until
 * one of them has ended, whoever's it is.  A pool asks on another connection.
 *
 * Owns:    its channels; a connection is made when it is first needed.
 * Borrows: the SSL_CTX.
 * Thread:  its loop's.
 */
#ifndef CL_RPC_POOL_H
#define CL_RPC_POOL_H

#include "rpc/channel.h"

struct rpc_pool;

/* So many channels that `calls` at once never wait for each other. */
int rpc_pool_new(struct cl_loop *loop, const char *targets, SSL_CTX *tls, size_t calls,
                 struct rpc_pool **ret_pool, struct cl_err *err) CL_MUST;
/* Every open call gets its on_end(CANCELLED).  NULL is a no-op. */
void rpc_pool_free(struct rpc_pool *pool);
/* Of all of them; see rpc_channel_set_tls(). */
void rpc_pool_set_tls(struct rpc_pool *pool, SSL_CTX *tls);
/* The one that is connected all the time, and tells of it. */
struct rpc_channel *rpc_pool_first(struct rpc_pool *pool);
/* For the next call: one with room, the first of them, so that few are connected; else the one with
 * the fewest calls. */
struct rpc_channel *rpc_pool_pick(struct rpc_pool *pool);
/* The one with the fewest calls, for calls that may be paused for long: what a connection may hold
 * for those (CONN_IN_MAX) must do for all of them. */
struct rpc_channel *rpc_pool_pick_even(struct rpc_pool *pool);

#endif
