/* redis/client.h - a thin asynchronous connection to one Redis.
 *
 * Owns:    the connection, the replies until their callback returns, the reconnect timer.
 * Limit:   `max_in_flight` commands; every command is answered in `timeout_ns` or the connection
 *          is dropped.
 * Thread:  its loop.
 * All commands of one loop turn leave in one write.  A command whose connection dies is answered
 * with UNAVAILABLE "outcome unknown": it may or may not have run.  Never resolves names: the target
 * is `unix:/path` or `address:port`.  The process must ignore SIGPIPE.
 */
#ifndef CL_REDIS_CLIENT_H
#define CL_REDIS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"

struct rdb;
struct redisReply; /* hiredis */

enum rdb_state {
    RDB_DOWN,       /* no connection; a retry is timed */
    RDB_CONNECTING, /* socket, AUTH and the owner's setup */
    RDB_READY,
    RDB_REFUSED, /* the server must not be used (durability, newer library); retried slowly */
};

/* The state changed; why is NULL for CONNECTING and READY. */
typedef void rdb_state_fn(enum rdb_state state, const struct cl_err *why, void *arg);
/* The connection is up and authenticated: the owner prepares it and calls rdb_setup_done(). */
typedef void rdb_setup_fn(struct rdb *rdb, void *arg);
/* Exactly one of reply and err is NULL; both live until the callback returns.  An error reply of
 * the server arrives as err. */
typedef void rdb_reply_fn(const struct redisReply *reply, const struct cl_err *err, void *arg);

struct rdb_conf {
    const char *target;        /* "unix:/path" or "127.0.0.1:6379" or "[::1]:6379"; copied */
    const char *password_file; /* NULL or "" = no AUTH; read at every connect; copied */
    uint64_t timeout_ns;       /* one command, connect included; 0 = 5 s */
    size_t max_in_flight;      /* 0 = 4096 */
    rdb_state_fn *on_state;    /* may be NULL */
    rdb_setup_fn *on_setup;    /* NULL = ready after AUTH */
    void *arg;
};

/* Starts to connect at once; a server that is away is not an error. */
int rdb_new(struct cl_loop *loop, const struct rdb_conf *conf, struct rdb **ret_rdb,
            struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Commands in flight are answered CANCELLED before it returns. */
void rdb_free(struct rdb *rdb);
CL_DEFINE_AUTO(struct rdb, rdb_free)

enum rdb_state rdb_state(const struct rdb *rdb);
size_t rdb_in_flight(const struct rdb *rdb);

/* Finish RDB_CONNECTING: NULL = ready; an error = the server is refused, or the connection is
 * dropped when the error is UNAVAILABLE. */
void rdb_setup_done(struct rdb *rdb, const struct cl_err *why);

/* Send formatted bytes (copied).  -1 with UNAVAILABLE when not ready or too many are in flight; fn
 * is then never called. */
int rdb_send(struct rdb *rdb, const char *cmd, size_t n, rdb_reply_fn *fn, void *arg,
             struct cl_err *err) CL_MUST;
/* Format and send; also during setup. */
int rdb_call(struct rdb *rdb, int argc, const char **argv, const size_t *lens, rdb_reply_fn *fn,
             void *arg, struct cl_err *err) CL_MUST;

/* --- the server's durability policy --------------------------------------------------------- */

enum rdb_durability {
    RDB_DUR_NONE,     /* anything goes (tests, caches) */
    RDB_DUR_EVERYSEC, /* appendonly, fsync at least each second */
    RDB_DUR_ALWAYS,   /* appendonly, fsync before the answer */
};
enum rdb_durability rdb_durability_parse(const char *word, bool *ret_ok);
const char *rdb_durability_name(enum rdb_durability d);

/* What a server said of itself, as text. */
struct rdb_facts {
    char version[32];
    char appendonly[8];
    char appendfsync[16];
    char no_fsync_on_rewrite[8];
    char maxmemory[24];
    char maxmemory_policy[24];
};
/* Pure: 0, or STATE with every weaker setting named with its remedy. */
int rdb_check_durability(const struct rdb_facts *facts, enum rdb_durability want,
                         struct cl_err *err) CL_MUST;
/* Ask the server; fn gets the facts, or an error. */
typedef void rdb_facts_fn(const struct rdb_facts *facts, const struct cl_err *err, void *arg);
int rdb_ask_facts(struct rdb *rdb, rdb_facts_fn *fn, void *arg, struct cl_err *err) CL_MUST;

#endif
