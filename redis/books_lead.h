/* redis/books_lead.h - who leads: of the schedulers of one group on one Redis, one at a time.
 *
 *   ask ─► nobody leads, or its time ran out, or it is known to be dead ─► a term begins, epoch + 1
 *      └─► another leads: ask again soon
 *
 * Every call of the books carries the epoch of the caller's term (0 before its first); the library
 * refuses what is of another term than the group's present one, before it reads or writes anything:
 * UNAVAILABLE, and books_conf.on_deposed.  So it does not matter what a leader believes: one that
 * stood still, or was cut off, changes nothing once another has begun.  (M. Kleppmann, How to do
 * distributed locking, 2016: fencing tokens.)
 *
 * Who led and asks late, after its time ran out or a long absence of Redis, goes on with its term
 * if nobody has begun another.  Only the server's clock counts.
 *
 * The connection, the answers and the thread are those of redis/books.h.
 */
#ifndef CL_REDIS_BOOKS_LEAD_H
#define CL_REDIS_BOOKS_LEAD_H

#include "redis/books.h"

enum {
    BOOKS_PROOF = 160,          /* text, with its NUL */
    BOOKS_ABOUT_MAX = 1024,     /* bytes */
    BOOKS_SCHEDULERS_MAX = 256, /* rows of a list */
};

struct books_claim {
    const char *id;    /* of this process, never used before */
    uint64_t dead;     /* epoch of a leader that is known to be dead; 0 = none */
    uint64_t ttl_ms;   /* a term lasts so long after each time that it is asked for */
    const char *proof; /* how others of this host can see that this process is dead */
    const void *about; /* opaque: what a list says of it */
    size_t about_n;
};

struct books_leader {
    bool is_us; /* the calls that follow are of this term */
    uint64_t epoch;
    uint64_t since_ms; /* wall clock */
    uint64_t others;   /* of the group, that asked within the last ten seconds */
    char id[BOOKS_NAME];
    char proof[BOOKS_PROOF];
};
typedef void books_leader_fn(const struct books_leader *leader, const struct cl_err *err,
                             void *arg);
/* Begin a term, or go on with it. */
int books_lead(struct books *books, const struct books_claim *claim, books_leader_fn *fn, void *arg,
               struct cl_err *err) CL_MUST;
/* Another may begin a term at once. */
int books_resign(struct books *books, const char *id, books_done_fn *fn, void *arg,
                 struct cl_err *err) CL_MUST;

struct books_scheduler {
    char id[BOOKS_NAME];
    uint64_t seen_ms, now_ms; /* the server's clock when it asked last, and now */
    bool leads;
    uint64_t since_ms; /* of one that leads */
    const void *about;
    size_t about_n;
};
typedef void books_schedulers_fn(const struct books_scheduler *rows, size_t n,
                                 const struct cl_err *err, void *arg);
/* Those of the group that asked within the last minute. */
int books_scheduler_list(struct books *books, books_schedulers_fn *fn, void *arg,
                         struct cl_err *err) CL_MUST;

#endif
