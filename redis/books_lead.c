/* redis/books_lead.c - see redis/books_lead.h. */
#include "redis/books_lead.h"

#include <string.h>

#include "base/mem.h"
#include "redis/books_priv.h"

enum { SCHEDULER_FIELDS = 6 };

static void put_text(struct books_call *call, const char *text, size_t limit, const char *what)
{
    size_t n = strlen(text);
    if (n == 0 || n >= limit)
        call_refuse(call, what);
    call_bytes(call, text, n);
}

static void on_lead(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct books_leader leader = {0};
    if (!reply) {
        call->fn.leader(NULL, err, call->arg);
        return;
    }
    leader.is_us = reply_num(reply, 1) == 1;
    leader.epoch = reply_num(reply, 2);
    reply_copy(reply, 3, leader.id, sizeof leader.id);
    leader.since_ms = reply_num(reply, 4);
    reply_copy(reply, 5, leader.proof, sizeof leader.proof);
    leader.others = reply_num(reply, 6);
    if (leader.is_us)
        books_set_epoch(call->books, leader.epoch);
    call->fn.leader(&leader, NULL, call->arg);
}

int books_lead(struct books *books, const struct books_claim *claim, books_leader_fn *fn, void *arg,
               struct cl_err *err)
{
    struct books_call *call = call_begin(books, "lead", CALL_NOW, NULL, 5, err);
    if (!call)
        return -1;
    put_text(call, claim->id, BOOKS_NAME, "id");
    call_num(call, claim->dead);
    call_num(call, claim->ttl_ms);
    put_text(call, claim->proof, BOOKS_PROOF, "proof");
    if (claim->about_n > BOOKS_ABOUT_MAX)
        call_refuse(call, "about");
    call_bytes(call, claim->about, claim->about_n);
    call->fn.leader = fn;
    call->arg = arg;
    return call_go(call, on_lead, err);
}

int books_resign(struct books *books, const char *id, books_done_fn *fn, void *arg,
                 struct cl_err *err)
{
    struct books_call *call = call_begin(books, "resign", CALL_NOW, NULL, 1, err);
    if (!call)
        return -1;
    put_text(call, id, BOOKS_NAME, "id");
    call->fn.done = fn;
    call->arg = arg;
    return call_go(call, answer_done, err);
}

static void on_list(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct cl_err full = {0};
    size_t n = reply && reply->elements > 2 ? (reply->elements - 2) / SCHEDULER_FIELDS : 0;
    n = CL_MIN(n, (size_t)BOOKS_SCHEDULERS_MAX);
    struct books_scheduler *rows = cl_zalloc_array(n, sizeof *rows);
    if (reply && !rows)
        (void)cl_fail(&full, CL_E_NOMEM, 0, "list of schedulers");
    for (size_t i = 0; rows && i < n; i++) {
        size_t at = 2 + i * SCHEDULER_FIELDS;
        reply_copy(reply, at, rows[i].id, sizeof rows[i].id);
        rows[i].seen_ms = reply_num(reply, at + 1);
        rows[i].now_ms = reply_num(reply, at + 2);
        rows[i].leads = reply_num(reply, at + 3) == 1;
        rows[i].since_ms = reply_num(reply, at + 4);
        rows[i].about = reply_str(reply, at + 5, &rows[i].about_n);
    }
    call->fn.schedulers(rows, n, full.code ? &full : err, call->arg);
    cl_free(rows);
}

int books_scheduler_list(struct books *books, books_schedulers_fn *fn, void *arg,
                         struct cl_err *err)
{
    struct books_call *call = call_begin(books, "scheduler_list", CALL_NOW, NULL, 0, err);
    if (!call)
        return -1;
    call->fn.schedulers = fn;
    call->arg = arg;
    return call_go(call, on_list, err);
}
