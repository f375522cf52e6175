/* scheduler/receipts.c - see scheduler/receipts.h. */
#include "scheduler/receipts.h"

#include "base/mem.h"
#include "scheduler/sched_priv.h"

struct receipt {
    struct cl_list link;   /* of worker->receipts */
    struct worker *worker; /* NULL: nobody is told */
    uint64_t number;
    unsigned awaited; /* records that are not written, and 1 until receipt_end() */
};

struct receipt *receipt_begin(struct worker *w, uint64_t number)
{
    bool wants = number > 0 && w->minor >= WORKER_MINOR_RECEIPTS;
    struct receipt *r = wants ? cl_zalloc(sizeof *r) : NULL;
    if (!r)
        return NULL;
    r->worker = w;
    r->number = number;
    r->awaited = 1;
    cl_list_init(&r->link);
    cl_list_push(&w->receipts, &r->link);
    return r;
}

void receipt_awaits(struct receipt *r)
{
    r->awaited++;
}

static void send(struct worker *w, uint64_t number)
{
    Cloche__V1__WatchedAck ack = CLOCHE__V1__WATCHED_ACK__INIT;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    ack.number = number;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_WATCHED_ACK;
    m.watched_ack = &ack;
    (void)!worker_send(w, &m, NULL);
}

/* What is behind one that waits waits, too: a receipt stands for all before it. */
static void send_due(struct worker *w)
{
    uint64_t due = 0;
    CL_LIST_FOREACH (node, &w->receipts) {
        struct receipt *r = CL_LIST_ENTRY(node, struct receipt, link);
        if (r->awaited > 0)
            break;
        due = r->number;
        cl_list_unlink(&r->link);
        cl_free(r);
    }
    if (due)
        send(w, due);
}

static void release(struct receipt *r)
{
    if (--r->awaited > 0)
        return;
    if (r->worker)
        send_due(r->worker);
    else
        cl_free(r);
}

/* One that is not known to be written gets no receipt.  A later one's stands for it, as the log
 * writes in order; without one the worker tells it to the next scheduler, too. */
void receipt_written(const struct cl_err *err, void *arg)
{
    struct receipt *r = arg;
    struct worker *w = r->worker;
    if (!err || !w) {
        release(r);
        return;
    }
    r->worker = NULL;
    cl_list_unlink(&r->link);
    release(r);
    send_due(w);
}

void receipt_end(struct receipt *r)
{
    if (r)
        release(r);
}

void receipts_forget(struct worker *w)
{
    CL_LIST_FOREACH (node, &w->receipts) {
        struct receipt *r = CL_LIST_ENTRY(node, struct receipt, link);
        cl_list_unlink(&r->link);
        r->worker = NULL;
        if (r->awaited == 0) /* it waited for those before it */
            cl_free(r);
    }
}
