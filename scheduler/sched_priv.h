/* scheduler/sched_priv.h - the objects of one scheduler process and how they hang together.
 *
 *   tenant ──< unit >── worker            unit: a job, sandbox or snapshot not ended (or just)
 *                 │         └──< request  request: an ExecCommand without its answer
 *                 └──< follower           follower: a client's stream on it; has a relay there
 *
 * Owns:    everything here is the scheduler's; it is soft state.  What is promised lies in the
 * books. Thread:  one loop.
 */
#ifndef CL_SCHEDULER_SCHED_PRIV_H
#define CL_SCHEDULER_SCHED_PRIV_H

#include "audit/producer.h"
#include "base/id.h"
#include "base/loop.h"
#include "base/map.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/file.pb-c.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/record.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "cloche/v1/template.pb-c.h"
#include "cloche/v1/tenant.pb-c.h"
#include "cloche/v1/worker.pb-c.h"
#include "observability/metrics.h"
#include "policy/fairq.h"
#include "policy/limits.h"
#include "policy/net_rule.h"
#include "policy/principal.h"
#include "redis/books_registry.h"
#include "rpc/server.h"
#include "scheduler/options.h"
#include "scheduler/receipts.h"
#include "scheduler/tokens.h"

enum {
    SCHED_TENANTS_MAX = 10000,
    SCHED_UNITS_MAX = 200000, /* that have not ended */
    SCHED_WORKERS_MAX = 4096,
    SCHED_RELAYS_MAX = 16384,
    SCHED_REQUESTS_MAX = 16384,
    SCHED_TRIES = 3,          /* refusals by workers before a unit waits a moment */
    SCHED_TEMPLATES_MAX = 32, /* of one worker that are remembered */
};

enum listener { LISTENER_CLIENTS = 1, LISTENER_WORKERS = 2 };

struct sched;
struct unit;
struct resting;
struct move;
struct lead;
struct ends;

/* --- tenants -------------------------------------------------------------------------------- */

struct tenant {
    char name[BOOKS_NAME];
    struct tenant_limits limits;
    char guest_separation[16];
    uint64_t created_ms;
    uint64_t blocked_until_ns; /* over quota: its turn is skipped */
    uint64_t loaded_ns;        /* when the books were asked last */
    uint64_t watched_tat_us;   /* GCRA of what its user code does: its share of the log's disk */
    uint64_t network_tat_us;   /* the same of what goes over its network */
    size_t n_units;
};

/* --- workers -------------------------------------------------------------------------------- */

struct worker_template {
    char name[64], snapshot_key[65], verity_root[65], kernel[64], driver[16], image[256];
    Cloche__V1__GuestSeparation separation;
    uint32_t vcpus, memory_mib, warm; /* sizes: the template's defaults */
    bool building;                    /* its snapshot: nobody should count on it yet */
};

struct worker {
    struct cl_list link;
    struct sched *sched;
    struct rpc_call *call; /* its session */
    char id[BOOKS_NAME], driver[16], host[64], build[32], closed[128];
    Cloche__V1__GuestSeparation separation;
    struct worker_template templates[SCHED_TEMPLATES_MAX];
    size_t n_templates;
    uint64_t cap_vcpu, cap_mem, used_vcpu, used_mem; /* used: its report and what we sent since */
    uint32_t slots, used_slots;
    uint32_t minor;          /* of the protocol, as agreed */
    struct cl_list receipts; /* what it told, that is not known to be in the log */
    bool network;            /* its VMs can be given network */
    bool forks;              /* it makes copies of its sandboxes */
    bool snapshots;          /* it knows snapshots */
    bool greeting; /* since its Hello; its first Load says that it has told all it knows */
    bool draining; /* it says so: its sandboxes are to be moved away */
    char drain_trouble[CL_ERR_TEXT]; /* why one could not be, the newest; "" = none */
};

/* --- units ---------------------------------------------------------------------------------- */

/* What this process does with a unit; the books know QUEUED … ENDED. */
enum phase {
    PHASE_QUEUED = 1, /* in the fair queue */
    PHASE_RESERVING,  /* the books are asked */
    PHASE_ASSIGNING,  /* a worker is asked */
    PHASE_RUNNING,    /* a worker has it */
    PHASE_SETTLING,   /* the books are told of its end */
    PHASE_ENDED,
};

struct unit {
    struct fairq_item item;
    struct sched *sched;
    struct tenant *tenant;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    enum books_kind kind;
    enum phase phase;
    bool started;             /* user code may have run in this attempt */
    bool paused, paused_idle; /* its VM is at rest; for being idle: no client asked for it */
    bool stays_paused; /* one that its worker's stop paused: it does not go on by itself any more */
    bool rest_unsure;  /* the books may say otherwise of that: its worker's next word settles it */
    bool cancel;
    bool unconfirmed;               /* its worker's newest Hello did not name it */
    bool refuse_over_quota;         /* no job: nobody knows its id yet */
    struct cl_err refused;          /* the refusal, when it came to that */
    Cloche__V1__UnitRecord *record; /* owned */
    uint64_t fence;
    uint64_t image_bytes;        /* while it is paused: on its worker's disk */
    uint64_t kept_until_ns;      /* while it is paused: its image outlives its worker, and its lease
                                    needs no renewals (wall clock); 0 = not so, or not said yet */
    uint64_t used_ns;            /* when the newest call came that needs it to run */
    struct resting *resting;     /* of pause.c: a pause, resume or move under way; NULL = none */
    struct move *moving;         /* while the books are told: nobody knows where it is */
    uint64_t stuck_until_ns;     /* it could not be moved away: not tried before then */
    uint64_t unrecorded;         /* of what its user code did: the audit log had no room */
    uint64_t unrecorded_network; /* the same of its network */
    uint32_t attempt, refusals;
    char worker_id[BOOKS_NAME], driver[16], vm[64];
    Cloche__V1__GuestSeparation separation;
    uint64_t need[BOOKS_DIM_NR];
    uint64_t created_ns, started_wall_ns, ended_wall_ns, expires_wall_ns; /* wall clock */
    Cloche__V1__TerminalRecord *terminal; /* owned; set when ended */
    uint64_t end_cpu_ms, end_egress;      /* what it took; set with `terminal` */
    struct cl_list followers;             /* of struct follower */
    struct cl_timer timer;                /* queue deadline; a moment's wait; later the linger */
};

/* --- the scheduler --------------------------------------------------------------------------- */

struct sched {
    const struct sched_options *o;
    struct cl_loop *loop;
    struct books *books;
    struct audit_producer *audit;
    struct rpc_channel *reader; /* owned: of the audit log; NULL = none */
    struct cl_list readings;    /* calls that read it: audit_api.c */
    struct rpc_server *server;
    struct tokens *tokens; /* NULL = only API keys */
    struct metrics *metrics;
    struct metrics_server *metrics_server;
    struct fairq *queue;
    struct cl_map *tenants, *units, *workers, *relays, *requests, *keys;
    struct cl_map *leases;    /* lease id -> unit: of its newest attempt */
    struct cl_map *snapshots; /* "TENANT/NAME" -> unit: whole ones by name */
    struct lead *lead;        /* owned */
    struct ends *ends;        /* owned */
    struct cl_timer kick, reap, health, moves;
    uint8_t pepper[32], salt[32]; /* of keys; of redacted arguments in the audit log */
    bool stopping;                /* clients that vanish now did not leave */
    char id[CL_ID_MAX];           /* of this process */
    uint64_t next_request;
    uint64_t reserving;      /* calls in flight at dispatch */
    struct cl_list promises; /* of struct room_promise */
    bool recovered;          /* units were read back from the books */
    void *drain;             /* owned: the stop in progress */
    struct cl_err failed;    /* why the process ends; CL_OK = in order */
    char audit_head[65];
    uint64_t audit_seq;
};

/* --- calls between the files ------------------------------------------------------------------ */

/* tenants.c: the cached tenant, loaded from the books when it is not; NOTFOUND to the callback. */
typedef void tenant_fn(void *arg, struct tenant *t, const struct cl_err *err);
void tenant_get(struct sched *s, const char *name, tenant_fn *fn, void *arg);
int tenant_cache(struct sched *s, const struct books_tenant *row, struct tenant **ret_tenant,
                 struct cl_err *err) CL_MUST;
/* What it may be given: SHARED = guests of either kind. */
Cloche__V1__GuestSeparation tenant_separation(const struct tenant *t);

/* units.c */
struct unit *unit_find(struct sched *s, const char *tenant, const char *id);
/* The unit whose newest attempt has this lease and fence. */
struct unit *unit_find_lease(struct sched *s, const char *lease, uint64_t fence);
/* Note a lease that the books gave (or will give) to the unit. */
int unit_set_lease(struct unit *u, const char *lease, struct cl_err *err) CL_MUST;
int unit_new(struct sched *s, struct tenant *t, const char *id, enum books_kind kind,
             Cloche__V1__UnitRecord *record, struct unit **ret_unit, struct cl_err *err) CL_MUST;
int unit_enqueue(struct unit *u, bool restore, struct cl_err *err) CL_MUST;
/* The books gave it this lease when they admitted it ... */
struct unit_lease {
    char id[CL_ID_MAX], worker[BOOKS_NAME];
    uint64_t fence;
    uint32_t attempt;
};
int unit_reserved(struct unit *u, const struct unit_lease *lease, struct cl_err *err) CL_MUST;
/* ... now it may go; or it never goes, and ends as FAILED. */
void unit_assign(struct unit *u);
void unit_withdraw(struct unit *u, const char *why);
/* A client asks for the end (already flagged in the books). */
void unit_cancel(struct unit *u, Cloche__V1__Reason reason);
/* The worker reports the end of a lease. */
void unit_ended(struct unit *u, const Cloche__V1__UnitEnded *m, struct worker *w);
void unit_assigned(struct unit *u, const Cloche__V1__AssignAnswer *m, struct worker *w);
/* What its user code did, for the audit log. */
void unit_watched(struct unit *u, const Cloche__V1__UnitWatched *m, struct receipt *receipt);
/* network.c: what went over its network. */
void unit_network(struct unit *u, const Cloche__V1__UnitWatched *m, struct receipt *receipt);
void unit_started(struct unit *u, const Cloche__V1__UnitStarted *m);
/* Its worker came back and knows nothing of it. */
void unit_lost(struct unit *u);
/* Its lease expired and was settled. */
void unit_reaped(struct unit *u);
void unit_end_queued(struct unit *u, Cloche__V1__Outcome outcome, Cloche__V1__Reason reason,
                     const char *message);
void units_dispatch_soon(struct sched *s);
/* At the end of the process. */
void units_free_all(struct sched *s);
void on_dispatch(void *sched);
Cloche__V1__UnitState unit_state(const struct unit *u);
struct worker *unit_worker(const struct unit *u);
/* Fails with UNAVAILABLE: its worker is not connected, and what that means for it. */
int unit_fail_away(const struct unit *u, struct cl_err *err);
/* Its time to live has passed; its worker ends it. */
void unit_expire(struct unit *u);
/* Its tenant has quota again: look at its queue at once. */
void unit_holds_less(struct unit *u);
/* A change that its followers look at. */
void unit_tell(struct unit *u);
/* A record of its tenant's stream. */
void unit_emit(struct unit *u, enum audit_event ev, const struct audit_field *fields, size_t n);
/* Borrows from the unit. */
struct books_hold unit_hold(const struct unit *u);
/* Tell the books, again perhaps, that user code was started, and in what. */
void unit_mark_started(struct unit *u);
/* pause.c: its worker says that its time to live has passed and that it is to be paused. */
void unit_idle(struct unit *u);
/* Its worker says whether its VM is at rest; this process and the books follow. */
void unit_rest_told(struct unit *u, const Cloche__V1__RunningUnit *m);
/* A snapshot is whole, and rests: when the books have no room for that it ends. */
void unit_begins_at_rest(struct unit *u, const Cloche__V1__RunningUnit *m);
/* It has ended: who waits for a pause or resume of it gets an answer. */
void unit_rest_over(struct unit *u);
/* recover.c */
int units_recover(struct sched *s, struct cl_err *err) CL_MUST;
void on_reap(void *sched);

/* workers.c */
/* Least w->minor of workers that pause, and that are drained, give and take. */
enum { WORKER_MINOR_PAUSE = 3, WORKER_MINOR_MOVE = 4, WORKER_MINOR_RECEIPTS = 5 };
extern const struct rpc_method worker_methods[];
extern const size_t worker_methods_count;
int worker_send(struct worker *w, Cloche__V1__SessionResponse *m, struct cl_err *err) CL_MUST;
/* Its report on the end of a unit, of this lease or another. */
void worker_unit_ended(struct worker *w, const Cloche__V1__UnitEnded *m);
/* The answer borrows its message until the callback returns; NULL answer = err says why.  fn may be
 * NULL: nobody waits. */
typedef void request_fn(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err);
/* What some worker says of a template, its snapshot made or not; NULL = none knows it. */
const struct worker_template *worker_template_find(const struct sched *s, const char *name);
int worker_request(struct worker *w, Cloche__V1__ExecCommand *command, request_fn *fn, void *arg,
                   struct cl_err *err) CL_MUST;
/* auth.c: credential -> principal (DECISIONS §8); one interface, other verifiers come behind it. */
typedef void auth_fn(struct rpc_call *call, const struct principal *p);
/* Check the call's credential and `scope`, then run fn; refusals are answered and audited.  The
 * call's user is an api_call.  If the call ends meanwhile, fn is not run. */
void auth_check(struct sched *s, struct rpc_call *call, enum scope scope, auth_fn *fn);

/* units.c: a client that follows a unit's output or waits for a change. */
struct follower {
    struct cl_list link; /* in unit.followers */
    struct unit *unit;   /* borrowed; NULL once detached */
    void (*on_change)(struct follower *f);
};
void unit_follow(struct unit *u, struct follower *f);
void unit_unfollow(struct follower *f);

#endif
