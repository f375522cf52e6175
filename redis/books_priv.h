/* redis/books_priv.h - what the files of the books share: the call object, building a command,
 * reading a reply.
 *
 * Thread: the books' loop.
 */
#ifndef CL_REDIS_BOOKS_PRIV_H
#define CL_REDIS_BOOKS_PRIV_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "redis/books_lead.h"
#include "redis/books_registry.h"

/* Generated from books.lua. */
extern const unsigned char books_lua[];
extern const size_t books_lua_n;
extern const char books_lua_digest[];

/* Answers of the library: first element of every reply. */
enum lua_code {
    LUA_OK,
    LUA_REPLAY,
    LUA_QUOTA,
    LUA_RATE,
    LUA_NOTFOUND,
    LUA_EXISTS,
    LUA_QUEUE,
    LUA_STATE,
    LUA_CANCEL,
    LUA_NEWER,
    LUA_INVALID,
    LUA_UNAUTH,
    LUA_DEPOSED,
};

enum call_mode {
    CALL_NOW,  /* refused at once while Redis is away */
    CALL_WAIT, /* kept until Redis is back, or the deadline */
};

struct books_call;
/* reply (its code is OK or REPLAY) or err. */
typedef void call_answer_fn(struct books_call *call, const redisReply *reply,
                            const struct cl_err *err);

union call_fn {
    books_done_fn *done;
    books_put_fn *put;
    books_tenants_fn *tenants;
    books_keys_fn *keys;
    books_admit_fn *admit;
    books_reserve_fn *reserve;
    books_verdict_fn *verdict;
    books_units_fn *units;
    books_usage_fn *usage;
    books_drift_fn *drift;
    books_workers_fn *workers;
    books_blob_fn *blob;
    books_head_fn *head;
    books_leader_fn *leader;
    books_schedulers_fn *schedulers;
    void (*part)(const redisReply *reply, const struct cl_err *err, void *arg, size_t at);
};

struct books_call {
    struct cl_list link;
    struct books *books; /* borrowed */
    struct cl_buf cmd;   /* owned: kept for sending again */
    uint64_t deadline_ns;
    enum call_mode mode;
    bool broken; /* building ran out of memory or over a limit */
    struct cl_err why;
    bool sent;
    call_answer_fn *answer;
    union call_fn fn;
    void *arg;               /* borrowed: the caller's */
    char tenant[BOOKS_NAME]; /* for rows */
    size_t at;               /* for parts of a larger call */
};

/* The term of the calls that follow. */
void books_set_epoch(struct books *books, uint64_t epoch);
/* Begin `FCALL cloche_<name> 1 {tenant} ...` with n_args arguments to come (tenant NULL: no key),
 * which call_go() ends with the term.
 * NULL with err when there are too many calls, no memory, or Redis is away in CALL_NOW. */
struct books_call *call_begin(struct books *books, const char *name, enum call_mode mode,
                              const char *tenant, size_t n_args, struct cl_err *err);
void call_str(struct books_call *call, const char *s);
void call_bytes(struct books_call *call, const void *p, size_t n);
void call_num(struct books_call *call, uint64_t v);
/* Refuse the call for a bad argument; call_go() then fails. */
void call_refuse(struct books_call *call, const char *field);
/* Send it.  -1 frees it. */
int call_go(struct books_call *call, call_answer_fn *answer, struct cl_err *err);

/* --- reading replies: out of range or of another type reads as 0 or "" ---------------------- */

uint64_t reply_num(const redisReply *r, size_t i);
int64_t reply_int(const redisReply *r, size_t i);
const char *reply_str(const redisReply *r, size_t i, size_t *ret_n);
void reply_copy(const redisReply *r, size_t i, char *out, size_t out_n);

void answer_done(struct books_call *call, const redisReply *reply, const struct cl_err *err);

#endif
