/* redis/books.h - the books: every unit, lease and quota, behind typed calls.  Tenants with their
 * usage, keys and workers: redis/books_registry.h; whose calls count: redis/books_lead.h.
 *
 * Owns:    the connection and every call until it is answered.
 * Limit:   `max_calls` calls at a time; each is answered within its deadline.
 * Thread:  its loop; a callback never runs inside the call that it answers.
 * Every change is one atomic and idempotent function in Redis (books.lua).  A call whose connection
 * dies is sent again, with the same ids, until its deadline; then it fails with UNAVAILABLE
 * "outcome unknown".  Only the server's clock counts.
 *
 * A unit is a job, a sandbox or a snapshot.  Life of a unit, and who moves it:
 *
 *   admit ─► QUEUED ─reserve─► STARTING ─started─► RUNNING ─finish─► ENDED
 *              ▲ │                 │                  │
 *              │ └──end────────────┼── reap: lease ───┤   (a reaped unit keeps its state and holds
 *              └──────requeue──────┴── expired ───────┘    no lease: requeue it or end it)
 *
 * A RUNNING sandbox may become PAUSED and RUNNING again, on the same lease; a snapshot becomes that
 * once.  A PAUSED one may move to another worker, and then another lease holds it.
 *
 * admit may reserve in the same step, when a worker has room and nothing waits.
 * Callbacks get exactly one of result and err; both live until the callback returns.
 */
#ifndef CL_REDIS_BOOKS_H
#define CL_REDIS_BOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"
#include "redis/books_kind.h"
#include "redis/client.h"

struct books;

enum {
    BOOKS_NAME = 64, /* tenant, subject, worker and their NUL */
    BOOKS_LIBRARY_VERSION = 8,
    BOOKS_SPEC_MAX = 4 << 20,     /* bytes of one job's spec */
    BOOKS_TERMINAL_MAX = 1 << 20, /* bytes of one terminal record */
    BOOKS_PAGE_MAX = 1000,        /* rows of one page */
    BOOKS_RENEW_MAX = 1000,       /* pairs of one renew */
    BOOKS_IDEM_MAX = 255,         /* idempotency key */
    BOOKS_KEEP_TERMINAL_MS = 86400000,
};

struct books_conf {
    const char *target; /* see rdb_conf */
    const char *password_file;
    enum rdb_durability durability; /* least that the server must have */
    uint64_t timeout_ns;            /* one attempt; 0 = 5 s */
    uint64_t deadline_ns;           /* one call with its repetitions; 0 = 15 s */
    size_t max_calls;               /* 0 = 8192 */
    const char *group;              /* whose terms count (redis/books_lead.h); NULL = "main" */
    rdb_state_fn *on_state;         /* may be NULL */
    void (*on_deposed)(void *arg);  /* a call was of a term that is over; may be NULL */
    void *arg;
};

int books_new(struct cl_loop *loop, const struct books_conf *conf, struct books **ret_books,
              struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Open calls are answered CANCELLED before it returns. */
void books_free(struct books *books);
CL_DEFINE_AUTO(struct books, books_free)
bool books_is_ready(const struct books *books);
size_t books_open_calls(const struct books *books);
/* What the server said at the last connect; NULL before. */
const struct rdb_facts *books_facts(const struct books *books);

/* A call that has nothing to answer but yes. */
typedef void books_done_fn(const struct cl_err *err, void *arg);

/* --- limits --------------------------------------------------------------------------------- */

/* The order of policy's enum quota_dim. */
enum books_dim {
    BOOKS_VCPU,
    BOOKS_MEM,
    BOOKS_SANDBOXES,
    BOOKS_CPU,
    BOOKS_EGRESS,
    BOOKS_DISK,
    BOOKS_DIM_NR
};

struct books_limits {
    uint64_t dim[BOOKS_DIM_NR];
    uint64_t period_ms;
    uint64_t rate_interval_us; /* 0 = no rate limit */
    uint64_t rate_burst;
    uint64_t queue_max;
};

/* --- units ---------------------------------------------------------------------------------- */

/* The numbers of cloche.v1.UnitState. */
enum books_state {
    BOOKS_QUEUED = 1,
    BOOKS_STARTING = 2, /* leased; user code has not started */
    BOOKS_RUNNING = 3,
    BOOKS_PAUSED = 4, /* leased; its VM is at rest */
    BOOKS_ENDED = 5,
};

struct books_unit {
    char id[CL_ID_MAX];
    char tenant[BOOKS_NAME];
    enum books_kind kind;
    enum books_state state;
    uint8_t outcome;  /* the caller's number (cloche.v1.Outcome); 0 until ENDED */
    bool cancel;      /* cancel was asked for */
    bool reaped;      /* its lease expired: to be requeued or ended */
    uint32_t attempt; /* reservations so far */
    uint64_t need[BOOKS_DIM_NR];
    uint64_t created_us, changed_us; /* the server's wall clock */
    uint64_t started_ms;             /* of the newest attempt that came so far; 0 = none did */
    uint64_t fence;                  /* of the newest lease; 0 = never leased */
    uint64_t expires_ms;             /* the lease's end; 0 = none */
    int64_t position;                /* order in its queue; smaller goes first */
    char lease[CL_ID_MAX];           /* newest; "" = never leased */
    char worker[BOOKS_NAME];
    const void *spec; /* NULL when not asked for */
    size_t spec_n;
    const void *start; /* as books_started() had it */
    size_t start_n;
    const void *terminal; /* NULL when not asked for or not ended */
    size_t terminal_n;
};

struct books_admit {
    const char *tenant;
    const char *id; /* fresh, from cl_id_new() */
    enum books_kind kind;
    uint64_t need[BOOKS_DIM_NR];
    const void *spec;
    size_t spec_n;
    const char *idem_key;      /* NULL or "" = none; free again when nothing was made by it */
    const uint8_t *idem_hash;  /* SHA-256 of the request body; NULL without a key */
    uint64_t global_queue_max; /* 0 = no bound */
    bool refuse_over_quota;    /* else it waits in the queue */
    /* A worker has room: reserve in the same step when the quota is there and no unit of the tenant
     * waits; else it is queued.  As in struct books_reserve; lease NULL = only admit. */
    const char *lease;
    const char *worker;
    uint64_t ttl_ms;
};
struct books_admitted {
    bool replay; /* the idempotency key was known: the rest is the first request's */
    char id[CL_ID_MAX];
    enum books_state state; /* STARTING: it was reserved, with this fence and attempt */
    uint64_t fence;
    uint32_t attempt;
};
typedef void books_admit_fn(const struct books_admitted *res, const struct cl_err *err, void *arg);
/* RATE and QUEUE with retry_ms, QUOTA with the dimension as subject and retry_ms (0 = it can never
 * fit), EXISTS when the key came with another body, NOTFOUND for an unknown tenant.  Refused at
 * once while Redis is away. */
int books_admit(struct books *books, const struct books_admit *req, books_admit_fn *fn, void *arg,
                struct cl_err *err) CL_MUST;

struct books_reserve {
    const char *tenant;
    const char *id;
    const char *lease; /* fresh; the same one again replays */
    const char *worker;
    uint64_t ttl_ms;
};
struct books_reserved {
    uint64_t fence;
    uint32_t attempt;
    uint64_t expires_ms;
    bool replay;
};
typedef void books_reserve_fn(const struct books_reserved *res, const struct cl_err *err,
                              void *arg);
/* QUOTA with subject and retry_ms: it stays queued.  STATE: not queued any more, or cancel was
 * asked for (CANCELLED).  NOTFOUND. */
int books_reserve(struct books *books, const struct books_reserve *req, books_reserve_fn *fn,
                  void *arg, struct cl_err *err) CL_MUST;

/* Names one lease of one unit. */
struct books_hold {
    const char *tenant;
    const char *id;
    const char *lease;
    uint64_t fence;
};
enum books_verdict {
    BOOKS_STALE = 0, /* another attempt owns it, or it was reaped: discard the result */
    BOOKS_ACCEPTED = 1,
    BOOKS_ALREADY = 2, /* this fence did it before */
};
typedef void books_verdict_fn(enum books_verdict verdict, const struct cl_err *err, void *arg);

struct books_start {
    const void *about; /* for who reads its row */
    size_t about_n;
};
/* User code has started.  ALREADY: it had, as it was told then. */
int books_started(struct books *books, const struct books_hold *hold,
                  const struct books_start *start, books_verdict_fn *fn, void *arg,
                  struct cl_err *err) CL_MUST;

/* Move many leases' end to now + ttl.  held[i] = 1, or 0: kill it, it is not yours any more. */
struct books_pair {
    const char *tenant;
    const char *lease;
    uint64_t fence;
};
typedef void books_renew_fn(const uint8_t *held, size_t n, const struct cl_err *err, void *arg);
int books_renew(struct books *books, const struct books_pair *pairs, size_t n, uint64_t ttl_ms,
                books_renew_fn *fn, void *arg, struct cl_err *err) CL_MUST;

struct books_rest {
    uint64_t disk_mib; /* of a pause: that its image takes */
    bool force;        /* it has happened already: the tenant may go over its quota */
    uint64_t lease_ms; /* of a pause: least that is left of its lease; of a resume: all that is */
};
/* RUNNING -> PAUSED: its VM is at rest.  The lease goes on, for lease_ms even without renewals, but
 * holds no vCPU, memory and sandbox any more, and disk_mib more of disk.  QUOTA (subject
 * "disk_mib") when the tenant has no room for that, and then nothing has changed.
 * ALREADY: it is paused; lease_ms counts.  STATE: this lease's user code has not started. */
int books_pause(struct books *books, const struct books_hold *hold, const struct books_rest *rest,
                books_verdict_fn *fn, void *arg, struct cl_err *err) CL_MUST;
/* PAUSED -> RUNNING: it holds again what it needs, for lease_ms unless it is renewed.  QUOTA with
 * subject and retry_ms, and then nothing has changed.  ALREADY: it runs; lease_ms counts. */
int books_resume(struct books *books, const struct books_hold *hold, const struct books_rest *rest,
                 books_verdict_fn *fn, void *arg, struct cl_err *err) CL_MUST;

/* Who is to hold a unit that moves. */
struct books_move {
    const char *lease; /* fresh */
    const char *worker;
};
/* A PAUSED unit goes to another worker: `to` holds all that `hold` does, until the same time, and
 * its fence is hold->fence + 1, so that it can be told in advance; `hold` is STALE from then on.
 * The attempt stays.  ALREADY: `to` holds it, and it may run again.  STALE: neither does, or not
 * any more. STATE: it is not PAUSED, or cancel was asked for.  INVALID: the lease is in use.
 * NOTFOUND. */
int books_move(struct books *books, const struct books_hold *hold, const struct books_move *to,
               books_verdict_fn *fn, void *arg, struct cl_err *err) CL_MUST;

/* Settle the quota to what was used, end the unit and keep `terminal` for 24 h. */
struct books_end {
    uint64_t cpu_ms, egress_bytes;
    uint8_t outcome;
    const void *terminal;
    size_t terminal_n;
};
int books_finish(struct books *books, const struct books_hold *hold, const struct books_end *end,
                 books_verdict_fn *fn, void *arg, struct cl_err *err) CL_MUST;

/* Back to the head of the queue, whatever its bound says; a live lease is settled to what was used
 * (NULL = nothing), a reaped one was settled before. */
int books_requeue(struct books *books, const struct books_hold *hold, const struct books_end *used,
                  books_verdict_fn *fn, void *arg, struct cl_err *err) CL_MUST;

/* End a unit that holds no lease: it waits, or it was reaped.  STALE when it holds one (again),
 * ALREADY when it has ended. */
int books_end_unleased(struct books *books, const char *tenant, const char *id,
                       const struct books_end *end, books_verdict_fn *fn, void *arg,
                       struct cl_err *err) CL_MUST;

typedef void books_units_fn(const struct books_unit *rows, size_t n, const char *next,
                            const struct cl_err *err, void *arg);
/* Ask for cancellation: sets the flag and answers the unit as it is now (one row). */
int books_cancel(struct books *books, const char *tenant, const char *id, books_units_fn *fn,
                 void *arg, struct cl_err *err) CL_MUST;

/* The same, of a unit whose asking call fails: its idempotency key is free at once. */
int books_unmake(struct books *books, const char *tenant, const char *id, books_units_fn *fn,
                 void *arg, struct cl_err *err) CL_MUST;

/* Units of the tenant whose lease expired: settled pessimistically, marked reaped, and reported
 * until they are requeued or ended.  Rows come without blobs. */
int books_reap(struct books *books, const char *tenant, size_t n, books_units_fn *fn, void *arg,
               struct cl_err *err) CL_MUST;

enum { BOOKS_WITH_SPEC = 1, BOOKS_WITH_TERMINAL = 2 };
int books_get(struct books *books, const char *tenant, const char *id, unsigned with,
              books_units_fn *fn, void *arg, struct cl_err *err) CL_MUST;

struct books_list {
    const char *tenant;
    enum books_kind kind;
    uint32_t states;   /* bit 1 << state; 0 = all */
    const char *token; /* "" = newest first; else `next` of the page before */
    size_t n;          /* 1 to BOOKS_PAGE_MAX */
    unsigned with;
};
/* Newest first.  A page may be short while next is not "". */
int books_list(struct books *books, const struct books_list *req, books_units_fn *fn, void *arg,
               struct cl_err *err) CL_MUST;

#endif
