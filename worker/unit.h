/* worker/unit.h - a job, a sandbox or a snapshot on this worker: one lease, one VM, its execs.
 *
 *                              ┌─ PAUSING ─► PAUSED ─► RESUMING ─┐
 *                              │◄────┘ failed  ▲ failed └──┤      │
 *                              │               └───────────┘      │
 *   CLAIMING ─► IDENTIFYING ─► RUNNING ◄──────────────────────────┘
 *       └────────────┴─────────────┴─► ENDING ─► ENDED ─► (acknowledged) KEPT ─► freed
 *
 * A snapshot goes from CLAIMING to PAUSING, as what it is a copy of was, and stays PAUSED.
 * A sandbox ends from any of the upper three as from RUNNING.  PAUSED: its VM is at rest and takes
 * none of this worker's room but the disk's; where it can it outlives the worker, and the next one
 * begins with it, its commands and what they said.  KEPT: only the output remains,
 * for an hour.
 *
 * Owns:    its machine, its execs.  Borrows the units (container).
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_UNIT_H
#define CL_WORKER_UNIT_H

#include "base/map.h"
#include "cloche/v1/worker.pb-c.h"
#include "worker/exec.h"
#include "worker/fork.h"
#include "worker/pool.h"
#include "worker/vm_net.h"
#include "worker/watch.h"

enum {
    UNITS_MAX = 4096,        /* units held, with those that only keep output */
    UNITS_PAUSED_MAX = 1024, /* without it small ones would take all that UNITS_MAX has */
    UNIT_EXECS_MAX = 256,    /* of one sandbox, ended ones included; the oldest goes */
    /* Connections to one sandbox's ports.  Whoever has a link to one of them could otherwise take
     * all GUEST_STREAMS_MAX streams, and its owner could neither run nor stop anything. */
    UNIT_DIALS_MAX = 32,
    UNIT_DIALS_WAIT_MAX = 64, /* for one of these; each may hold a message of its client */
    UNIT_WATCHES_MAX = 16,    /* folders of one sandbox */
    /* Under way on a worker.  Each may hold a copy of its sandbox's memory: without it one tenant
     * could make the host run out. */
    UNITS_FORKS_MAX = 16,
    /* Sandboxes on their way from other workers.  Each may hold its record and its messages, some
     * MiB, and keeps the disk busy: without it a scheduler that drains a large host would. */
    UNITS_TAKES_MAX = 4,
    UNIT_KEEP_S = 3600,    /* output lives this long after the end */
    UNIT_TAIL = 65536,     /* of each stream, for the terminal record */
    UNIT_IDLE_EVERY_S = 5, /* the scheduler is told of one that is to be paused ... */
    UNIT_IDLE_MAX_S = 60,  /* ... for so long; then it ends */
    UNIT_PROLONG_S = 60,   /* a snapshot's record is this late at the most */
};

enum unit_state {
    UNIT_CLAIMING = 1,
    UNIT_IDENTIFYING,
    UNIT_RUNNING,
    UNIT_PAUSING,
    UNIT_PAUSED,
    UNIT_RESUMING,
    UNIT_ENDING,
    UNIT_ENDED,
    UNIT_KEPT
};

struct units;

struct unit {
    struct cl_list link;
    struct units *units;        /* borrowed */
    Cloche__V1__Assign *assign; /* owned */
    enum unit_state state;
    struct pool_claim *claim; /* until it is answered */
    struct fork *fork;        /* the same, of one that is a copy */
    struct machine *machine;  /* until its on_end */
    const char *source;
    struct cl_list execs; /* of struct exec_slot, oldest first */
    size_t n_execs;
    struct exec *main; /* a job's process */
    bool code_started;
    bool renewed;
    uint64_t deadline_ns; /* of the lease, monotonic */
    uint64_t assigned_ns, ready_ns;
    uint64_t expires_ns;    /* sandbox: idle end; 0 = none */
    uint64_t idle_since_ns; /* it passed, and the sandbox is to be paused then; 0 = it did not */
    uint64_t keep_ns;       /* how long it is kept once it is paused */
    bool paused_for_idle;   /* or is about to be: no client asked for it */
    bool goes_on;           /* only its worker's stop or drain paused it: it resumes if it can */
    bool is_kept;           /* PAUSED: there is a record of it (worker/kept.h) */
    bool is_left;           /* to the next worker: nobody hears of its end */
    bool is_moving;        /* to another worker, which may have it in a moment: it must not go on */
    bool is_given;         /* away: as if it had never been here */
    uint64_t tentative_ns; /* perhaps it is another worker's, and until then a lease that does not
                              hold may come to hold; 0 = it is ours, max = its relay tells */
    unsigned n_records;    /* that were written of it */
    bool has_room;         /* counted as used */
    Cloche__V1__Outcome outcome; /* of the unit, once decided */
    Cloche__V1__Reason reason;
    char message[CL_ERR_TEXT];
    uint64_t cpu_ms;
    struct watch watch;                  /* what its guest told of user code */
    struct watch network;                /* what its cloche-net told of its network */
    uint64_t sent_bytes, received_bytes; /* over it */
    struct cl_timer timer;               /* idle TTL, hard end, later the hour of output */
    unsigned users;                      /* relays and connections that hold it */
    unsigned n_dials;                    /* of those, open connections: no use by themselves */
    unsigned n_watches;                  /* of those, watched folders: no use, either */
    struct cl_list dials_waiting; /* of struct unit_waiter, for their turn, first come first */
    unsigned n_dials_waiting;
    struct cl_list waiters; /* of struct unit_waiter: told at each change */
    struct cl_list changes; /* of struct unit_change: pause or resume, under way */
    struct cl_list resumes; /* ... to be resumed as soon as it is paused, or ours */
};

struct exec_slot {
    struct cl_list link;
    struct exec *exec; /* owned */
    struct unit *unit;
    Cloche__V1__ExecStartCommand *start; /* owned: as it was asked for */
    bool is_abandoned;                   /* by its client, and killed for that */
};

struct rpc_call;

struct unit_waiter {
    struct cl_list link;
    void (*fn)(void *arg);
    void *arg;
};

struct unit_events {
    void (*on_started)(void *arg, struct unit *u);
    void (*on_ended)(void *arg, struct unit *u); /* its VM is gone: tell the scheduler */
    void (*on_exec_ended)(void *arg, struct unit *u, struct exec *e);
    /* What its user code did, less what is over the rate: *m is whole but for the receiver's own
     * part.  False: it could not be passed on. */
    bool (*on_watched)(void *arg, struct unit *u, Cloche__V1__UnitWatched *m);
    /* It is idle, and to be paused. */
    void (*on_idle)(void *arg, struct unit *u);
    /* It takes more room, or less. */
    void (*on_room)(void *arg);
    /* It came from another worker, and is not tentative any more. */
    void (*on_taken)(void *arg, struct unit *u);
    /* What is sent on `call` from now on comes after all that these have told. */
    void (*on_order)(void *arg, struct rpc_call *call);
};

struct image_files;

/* What units are made of that come from elsewhere: an earlier process, or another worker. */
struct units_past {
    const char *template_dir, *public_key;
    const struct template_maker *makers;
    size_t n_makers;
    const char *monitor_dir; /* of copies (worker/monitor_build.h) */
    bool older_monitors;     /* they are used */
    struct machine_host *host;
    struct image_files *files; /* borrowed */
    void (*lost)(void *arg, const Cloche__V1__Assign *assign, const struct cl_err *why);
    void *arg;
};

struct units {
    struct cl_loop *loop;
    struct pool *pool;
    const char *spool_dir;
    struct cl_map *by_id; /* unit id -> newest struct unit */
    struct cl_list all;
    struct unit_events events;
    void *arg;
    uint64_t used_vcpu_milli, used_memory_mib;
    uint32_t used_slots;
    unsigned n_forks; /* under way */
    bool stopping;    /* the worker is */
    uint64_t keep_ns; /* of output */
    struct watch_limits watch_limits;
    const struct vm_net_settings *net; /* borrowed */
    const char *record_dir;            /* of paused sandboxes; "" = none is kept */
    const struct units_past *past;     /* borrowed */
    struct cl_list takes;              /* of struct take: sandboxes on their way here */
    unsigned n_takes;
    uint64_t taking_bytes; /* of the disk, that these have still to write */
};

int units_init(struct units *us, struct cl_err *err) CL_MUST;
/* Every unit must be ended; output goes. */
void units_fini(struct units *us);

/* Take a unit on.  *ret_unit is borrowed.  STATE when this fence is not above the newest seen.  One
 * that is to be a copy and cannot be is taken on as well, and ends: nobody should try again. */
int unit_assign(struct units *us, const Cloche__V1__Assign *assign, uint64_t deadline_ns,
                struct unit **ret_unit, struct cl_err *err) CL_MUST;
/* Bytes that the scratch disks of all live units may still take of the host. */
uint64_t units_disk_promised(const struct units *us);
struct unit *units_find(struct units *us, const char *unit_id);
struct unit *units_find_lease(struct units *us, const char *lease_id);
void unit_end(struct unit *u, Cloche__V1__Outcome outcome, Cloche__V1__Reason reason,
              const char *message);
/* The terminal record is durable. */
void unit_acknowledged(struct unit *u);
void unit_set_deadline(struct unit *u, uint64_t deadline_ns);
bool unit_is_live(const struct unit *u);
/* What it is, or is to be: one that rests from its start on. */
bool unit_is_snapshot(const Cloche__V1__Assign *assign);
/* What the guests of such a driver are. */
Cloche__V1__GuestSeparation unit_separation(bool is_shared);

/* From the records that another worker left.  What cannot be restored is erased, and told; the
 * host's kept_dir has nothing else afterwards. */
int units_restore(struct units *us, struct cl_err *err) CL_MUST;
/* One that units_restore() will find. */
bool units_has_record(const struct units *us, const char *unit_id);
/* PAUSED and kept: the next worker has it. */
void unit_leave(struct unit *u);
/* PAUSED and kept: another worker has it.  What it was here goes, its files inside this call, and
 * nobody is told; it is KEPT as soon as its machine is gone, and freed soon after. */
void unit_give_away(struct unit *u);
/* What whoever waits on it is told then: UNAVAILABLE. */
int unit_fail_given(struct cl_err *err);
/* Its lease is another's, or was never its: it ends.  One that is PAUSED and kept is given away: it
 * was moved, or was to be, and may go on elsewhere with all its commands. */
void unit_lose(struct unit *u);
/* Taken from another worker, and perhaps that one's still: it rests, and its lease is not asked
 * for.
 */
bool unit_is_tentative(const struct unit *u);
/* It is this worker's, as its scheduler or the books said. */
void unit_settle(struct unit *u);
/* Its lease is asked for. */
bool unit_is_renewed(const struct unit *u);

/* Sandboxes. */
/* Nothing but the end may be asked of one that does not run: STATE, with the remedy. */
int unit_check_runs(const struct unit *u, struct cl_err *err) CL_MUST;
/* Put it to rest, as asked; `done` comes once, with what it became.  On an error it goes on.  A
 * paused one is done at once, and kept as long as it was. */
typedef void unit_done_fn(void *arg, const struct cl_err *err);
struct unit_change {
    struct cl_list link; /* the caller's storage; unlink it to forget the change */
    unit_done_fn *done;
    void *arg;
};
int unit_pause(struct unit *u, const Cloche__V1__PauseCommand *pause, struct unit_change *change,
               struct cl_err *err) CL_MUST;
/* Let it go on, also as soon as a pause under way is done; ttl_ns 0 = as before.  On an error it
 * stays paused.  The caller has seen that there is room. */
int unit_resume(struct unit *u, uint64_t ttl_ns, struct unit_change *change,
                struct cl_err *err) CL_MUST;
bool unit_is_paused(const struct unit *u);
/* The scheduler was told so, and nobody has used it since. */
bool unit_is_idle(const struct unit *u);
/* May one more be paused?  TOOBIG. */
int units_check_paused(const struct units *us, struct cl_err *err) CL_MUST;
/* What it takes of the disk while it is paused. */
uint64_t unit_image_bytes(const struct unit *u);
int unit_exec(struct unit *u, const Cloche__V1__ExecStartCommand *start, struct exec **ret_exec,
              struct cl_err *err) CL_MUST;
/* User code is about to run outside of an exec (a cell): checks that this is a sandbox that runs.
 */
int unit_begin_code(struct unit *u, struct cl_err *err) CL_MUST;
/* One more connection to its ports, until unit_end_dial(), by one who holds it: checks that it
 * runs, and that its agent knows that (UNIMPL).  1: so many are open that it waits in line until
 * turn->fn is called, from inside the unit_end_dial() of another; TOOBIG when the line is full. */
int unit_begin_dial(struct unit *u, struct unit_waiter *turn, struct cl_err *err) CL_MUST;
/* It is over, or leaves the line. */
void unit_end_dial(struct unit *u, struct unit_waiter *turn);
/* A client that followed this exec is gone. */
void unit_client_left(struct unit *u, const char *exec_id);
/* "" = the job's process.  NULL when there is none. */
struct exec *unit_find_exec(struct unit *u, const char *exec_id);
/* Something happened: the idle clock starts again. */
void unit_touch(struct unit *u);
/* What of `watch`, one of a unit's, did not reach the audit log, so far; `last` when nothing more
 * comes. */
void unit_fill_count(const struct watch *watch, bool last, Cloche__V1__WatchCount *m);
/* When it ends if nobody uses it from now on; 0 = not by idling. */
uint64_t unit_expires_wall_ns(const struct unit *u);
int unit_extend(struct unit *u, uint64_t ttl_ns, struct cl_err *err) CL_MUST;
/* Wait for a change of state (or of the job's process). */
void unit_wait(struct unit *u, struct unit_waiter *w);
void unit_hold(struct unit *u);
void unit_release(struct unit *u);

#endif
