/* rpc/work.h - what must not happen inside somebody's callback is queued here and done later in
 * the same loop turn: handing over messages, ending calls, and writing to sockets, once a
 * connection a turn.
 *
 * Owns:    its event; the queued objects are borrowed and unlink themselves when they die.
 * Thread:  its loop's.
 */
#ifndef CL_RPC_WORK_H
#define CL_RPC_WORK_H

#include "base/loop.h"

struct rpc_work;

typedef void rpc_work_fn(void *obj);

/* Lies inside the object that has work. */
struct rpc_work_item {
    struct cl_list link;
    rpc_work_fn *fn;
    void *obj;
};

/* Calls run before connections, so that what they queue is written in the same turn. */
enum rpc_work_kind { RPC_WORK_CALL, RPC_WORK_CONN, RPC_WORK_NR };

int rpc_work_new(struct cl_loop *loop, struct rpc_work **ret_work, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  The queue must be empty. */
void rpc_work_free(struct rpc_work *work);
/* Borrowed: the loop it was made on. */
struct cl_loop *rpc_work_loop(const struct rpc_work *work);
void rpc_work_item_init(struct rpc_work_item *item, rpc_work_fn *fn, void *obj);
/* Queue it; a queued item stays where it is. */
void rpc_work_add(struct rpc_work *work, enum rpc_work_kind kind, struct rpc_work_item *item);
void rpc_work_del(struct rpc_work_item *item);

#endif
