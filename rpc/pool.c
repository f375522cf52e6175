/* rpc/pool.c - see rpc/pool.h. */
#include "rpc/pool.h"

#include "base/mem.h"
#include "rpc/server.h"

struct rpc_pool {
    size_t n;
    struct rpc_channel *channels[]; /* owned */
};

int rpc_pool_new(struct cl_loop *loop, const char *targets, SSL_CTX *tls, size_t calls,
                 struct rpc_pool **ret_pool, struct cl_err *err)
{
    size_t n = (calls + RPC_STREAMS_MAX - 1) / RPC_STREAMS_MAX;
    struct rpc_pool *pool = cl_zalloc(sizeof *pool + n * sizeof pool->channels[0]);
    if (!pool)
        return cl_fail(err, CL_E_NOMEM, 0, "channels to %s", targets);
    while (pool->n < n) {
        if (rpc_channel_new(loop, targets, tls, &pool->channels[pool->n], err) < 0) {
            rpc_pool_free(pool);
            return -1;
        }
        pool->n++;
    }
    *ret_pool = pool;
    return 0;
}

void rpc_pool_free(struct rpc_pool *pool)
{
    for (size_t i = 0; pool && i < pool->n; i++)
        rpc_channel_free(pool->channels[i]);
    cl_free(pool);
}

void rpc_pool_set_tls(struct rpc_pool *pool, SSL_CTX *tls)
{
    for (size_t i = 0; i < pool->n; i++)
        rpc_channel_set_tls(pool->channels[i], tls);
}

struct rpc_channel *rpc_pool_first(struct rpc_pool *pool)
{
    return pool->channels[0];
}

struct rpc_channel *rpc_pool_pick_even(struct rpc_pool *pool)
{
    struct rpc_channel *best = pool->channels[0];
    for (size_t i = 1; i < pool->n; i++) {
        if (rpc_channel_calls(pool->channels[i]) < rpc_channel_calls(best))
            best = pool->channels[i];
    }
    return best;
}

struct rpc_channel *rpc_pool_pick(struct rpc_pool *pool)
{
    for (size_t i = 0; i < pool->n; i++) {
        if (rpc_channel_calls(pool->channels[i]) < RPC_STREAMS_MAX)
            return pool->channels[i];
    }
    return rpc_pool_pick_even(pool);
}
