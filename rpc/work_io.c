/* rpc/work_io.c - see rpc/work.h. */
#include <event2/event.h>

#include "base/mem.h"
#include "rpc/work.h"

struct rpc_work {
    struct cl_loop *loop; /* borrowed: outlives the queue */
    struct event *ev;     /* owned */
    struct cl_list queue[RPC_WORK_NR];
};

static void run_queue(struct cl_list *queue)
{
    /* Only what is queued now: an item that queues itself again waits for the next turn. */
    struct cl_list now;
    cl_list_init(&now);
    while (!cl_list_empty(queue)) {
        struct cl_list *link = queue->next;
        cl_list_unlink(link);
        cl_list_push(&now, link);
    }
    while (!cl_list_empty(&now)) {
        struct rpc_work_item *item = CL_LIST_ENTRY(now.next, struct rpc_work_item, link);
        cl_list_unlink(&item->link);
        item->fn(item->obj);
    }
}

static void on_work(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct rpc_work *work = arg;
    for (int kind = 0; kind < RPC_WORK_NR; kind++)
        run_queue(&work->queue[kind]);
}

int rpc_work_new(struct cl_loop *loop, struct rpc_work **ret_work, struct cl_err *err)
{
    struct rpc_work *work = cl_zalloc(sizeof *work);
    if (!work)
        return cl_fail(err, CL_E_NOMEM, 0, "work queue");
    work->ev = event_new(cl_loop_base(loop), -1, 0, on_work, work);
    if (!work->ev) {
        cl_free(work);
        return cl_fail(err, CL_E_NOMEM, 0, "work queue");
    }
    for (int kind = 0; kind < RPC_WORK_NR; kind++)
        cl_list_init(&work->queue[kind]);
    work->loop = loop;
    *ret_work = work;
    return 0;
}

void rpc_work_free(struct rpc_work *work)
{
    if (!work)
        return;
    for (int kind = 0; kind < RPC_WORK_NR; kind++)
        CL_ASSERT(cl_list_empty(&work->queue[kind]));
    event_free(work->ev);
    cl_free(work);
}

struct cl_loop *rpc_work_loop(const struct rpc_work *work)
{
    return work->loop;
}

void rpc_work_item_init(struct rpc_work_item *item, rpc_work_fn *fn, void *obj)
{
    cl_list_init(&item->link);
    item->fn = fn;
    item->obj = obj;
}

void rpc_work_add(struct rpc_work *work, enum rpc_work_kind kind, struct rpc_work_item *item)
{
    if (!cl_list_empty(&item->link))
        return;
    cl_list_push(&work->queue[kind], &item->link);
    event_active(work->ev, EV_TIMEOUT, 0);
}

void rpc_work_del(struct rpc_work_item *item)
{
    cl_list_unlink(&item->link);
}
