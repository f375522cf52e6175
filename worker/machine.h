/* worker/machine.h - one VM with its agent: from a clone (or a boot) to its end.
 *
 *                 boot: on_ready after Hello, identity, warm-ups
 *   STARTING ─► (HELLO) ─► IDENTIFYING ─► WARMING ─► READY ─► PARKED ─► CLAIMING ─► CLAIMED
 *       └──────────┴────────────┴────────────┴─────────┴─────────┴──────────┴──────────┴─► ENDING
 *
 *                rest:  (HOLDING) ─► SAVING ─► STORING ─► AT_REST    (STORING until its VM has
 *   CLAIMED ────────┘                   ├─────────┘ failed  │            ended, too)
 *      ▲                                ▼                   │
 *      └───────────────────────────── WAKING ◄─ LOADING ◄───┘ :wake
 *
 *                copy:  HOLDING ─► COPYING
 *   CLAIMED ◄─────────────┴───────────┘
 *
 * At rest it keeps the guest connection, the body, the cgroup and the uid; from there, too, ENDING.
 * One whose agent was held on the way there can be kept: another process makes a machine of what
 * it left, which is AT_REST with a connection of its own.  So is one that is made of a copy to rest
 * (machine_lay_down): STORING ─► AT_REST.
 *
 * Owns:    the VM and its body, the guest connection, the cgroup, the uid, the state file.
 * Borrows: the host (outlives every machine) and the events' arg.
 * Thread:  the worker loop.  on_end is the last event, and always comes.
 * A machine serves one tenant once and is destroyed; it is never used again.
 */
#ifndef CL_WORKER_MACHINE_H
#define CL_WORKER_MACHINE_H

#include "base/id.h"
#include "worker/cgroup.h"
#include "worker/guest.h"
#include "worker/seed.h"
#include "worker/template.h"
#include "worker/usage.h"
#include "worker/vm_body.h"
#include "worker/vm_net.h"

enum {
    MACHINE_UIDS = 4096,
    MACHINE_MOMENT = 65, /* a moment's name, with its NUL */
    MACHINE_KEPT_S = 30, /* since it was used last */
    /* Of a host.  Each may take as much memory as its VM: without it whoever forks all that he has
     * doubles it. */
    MACHINE_KEPT_MAX = 8,
};

/* What all machines of a worker share. */
struct machine_host {
    struct cl_loop *loop;
    struct cgroup_root cgroups;
    const char *state_dir; /* of the state files */
    uid_t uid_base;        /* 0 = no uid per VM */
    uint8_t uid_used[MACHINE_UIDS];
    uint64_t park_ttl_ns; /* a VM without a lease lives this long unless renewed */
    uint64_t start_timeout_ns;
    uint64_t clock_every_ns;           /* between two looks at a claimed guest's clock; 0 = never */
    const struct vm_net_settings *net; /* borrowed */
    bool watch;                        /* guests tell what their user code does */
    const char *kept_dir;              /* of files that outlive the worker; "" = none do */
    uint64_t disk_reserve;             /* that they leave free */
    unsigned count;                    /* machines that live */
    unsigned kept;                     /* seeds of moments */
    uint64_t serial;                   /* for names */
};

struct machine;

struct machine_events {
    /* READY (boot and clone), or CLAIMED (after machine_claim). */
    void (*on_ready)(void *arg);
    /* Gone.  The machine is freed after it returns. */
    void (*on_end)(void *arg, const struct cl_err *why);
    /* CLAIMED, SAVING: what its user code did.  May be NULL. */
    void (*on_watched)(void *arg, const Cloche__V1__GuestEvents *batch);
    /* CLAIMED, or going to rest or its end: what went over its network.  May be NULL. */
    void (*on_network)(void *arg, const struct net_event *event);
};

struct machine_claim {
    const char *tenant, *unit_id, *lease_id;
    uint64_t fence;
    uint64_t deadline_ns;
    uint32_t pids;                 /* 0 = the agent's default */
    uint64_t scratch_bytes;        /* 0 = DISK_DEFAULT_MIB */
    const struct net_grant *grant; /* NULL = no network; borrowed during the call */
    bool for_good;                 /* it rests, and never wakes */
    bool count_calls;              /* of its user code */
};

/* Start one; warm = run the template's warm-ups before READY. */
int machine_start(struct machine_host *host, struct template *template, enum vm_origin origin,
                  bool warm, const struct machine_events *events, void *arg,
                  struct machine **ret_machine, struct cl_err *err) CL_MUST;
/* READY -> PARKED: the guest stops. */
int machine_park(struct machine *m, struct cl_err *err) CL_MUST;
/* Start one that goes on from where another was; READY when it is up.  Takes the disk, also when it
 * fails. */
int machine_start_copy(struct machine_host *host, const struct seed_share *of,
                       const struct machine_events *events, void *arg, struct machine **ret_machine,
                       struct cl_err *err) CL_MUST;
/* One that is AT_REST from the beginning, as its seed is, and never runs: on_ready when it is on
 * the disk.  Takes the disk, also when it fails. */
int machine_lay_down(struct machine_host *host, const struct seed_share *of,
                     const struct machine_events *events, void *arg, struct machine **ret_machine,
                     struct cl_err *err) CL_MUST;
/* ... whose it is, before it is kept. */
int machine_claim_at_rest(struct machine *m, const struct machine_claim *claim,
                          struct cl_err *err) CL_MUST;
/* From now on another owner hears of it. */
void machine_set_events(struct machine *m, const struct machine_events *events, void *arg);
/* READY or PARKED -> CLAIMED: give it its identity; on_ready when acknowledged. */
int machine_claim(struct machine *m, const struct machine_claim *claim, struct cl_err *err) CL_MUST;
/* READY, booted: write the template's snapshot; `done` comes before on_end. */
int machine_snapshot(struct machine *m, vm_done_fn *done, void *arg, struct cl_err *err) CL_MUST;
/* CLAIMED: put it to rest.  `done` comes once, unless on_end does first; with an error the machine
 * is CLAIMED again, and its guest has lost nothing but its flows of network.  UNIMPL where the
 * monitor cannot. */
int machine_rest(struct machine *m, vm_done_fn *done, void *arg, struct cl_err *err) CL_MUST;
/* AT_REST: let it go on.  `done` as above; with an error it is AT_REST still. */
int machine_wake(struct machine *m, vm_done_fn *done, void *arg, struct cl_err *err) CL_MUST;
/* Who wants a seed of it; the caller's storage.  done runs once, with a seed that is borrowed
 * during the call, or with err; not any more once `link` is unlinked. */
struct machine_copy {
    struct cl_list link;
    const char *moment; /* borrowed until done; "" = any from now on */
    void (*done)(void *arg, struct seed *seed, const struct cl_err *err);
    void *arg;
};
/* CLAIMED: make a seed of it as it is at one moment from now on; those who ask while one is made
 * share the next.  AT_REST: as it rests, all who ask.  It stands still meanwhile, and goes on.  The
 * seed of a moment that has a name, and that of one that rests for good, is kept for
 * MACHINE_KEPT_S, and then `done` runs inside this call.  UNIMPL where its monitor or its agent
 * cannot, STATE while it is put to rest, UNAVAILABLE when that moment is over. */
int machine_copy(struct machine *m, struct machine_copy *copy, struct cl_err *err) CL_MUST;
/* AT_REST: let it outlive this process from the time that machine_leave() is called.  `done` comes
 * once, unless on_end does first.  UNIMPL when its agent was not held, or nothing is kept here. */
int machine_keep(struct machine *m, const char *name, vm_done_fn *done, void *arg,
                 struct cl_err *err) CL_MUST;
/* It can be left. */
bool machine_is_kept(const struct machine *m);
/* What another process needs of one that is kept; *ret_kept borrows from it. */
struct machine_kept {
    struct template *template; /* with its file */
    const char *name;          /* of its files: NAME.image, NAME.disk */
    struct rest_ticket image;
    uint64_t disk_bytes, scratch_bytes; /* of its disk now; that were promised */
    uint64_t cpu_ns;
    uint64_t flow; /* newest number of its network's flows */
    bool code_started;
    const char *unwatched, *calls;
    struct usage usage;                   /* borrowed samples */
    uint64_t usage_open_ns, usage_cpu_ns; /* of its last sample: how long before the rest, and CPU
                                             time then */
    const struct guest_past *past;
    const struct machine_claim *claim; /* to restore it; its grant with its past */
};
void machine_get_kept(const struct machine *m, struct machine_kept *ret_kept);
/* AT_REST and kept: a process that comes later finds it, and this one forgets it: on_end follows.
 */
void machine_leave(struct machine *m);
/* AT_REST and kept: another worker has it.  Its files lose their names inside this call, and on_end
 * follows. */
void machine_give_away(struct machine *m);
/* AT_REST, from what another process left. */
int machine_restore(struct machine_host *host, const struct machine_kept *kept,
                    const struct machine_events *events, void *arg, struct machine **ret_machine,
                    struct cl_err *err) CL_MUST;
/* What it takes of the disk AT_REST, beside its scratch disk. */
uint64_t machine_rest_bytes(const struct machine *m);
/* When the guardian kills its VM, on the monotonic clock; kept for the next one while it has none.
 */
void machine_set_deadline(struct machine *m, uint64_t deadline_ns);
/* Compare the clock of a CLAIMED guest with the host's now, instead of in clock_every_ns. */
void machine_check_clock(struct machine *m);
/* User code is about to start: the state file says so. */
int machine_mark_code_started(struct machine *m, struct cl_err *err) CL_MUST;
void machine_stop(struct machine *m);
/* Bytes that its scratch disk takes of the host, and may still take, as claimed. */
uint64_t machine_disk_taken(const struct machine *m);
uint64_t machine_disk_promised(const struct machine *m);
/* Valid while CLAIMED, or on the way to rest and back. */
struct guest *machine_guest(struct machine *m);
struct machine_host *machine_host(struct machine *m);
const struct template *machine_template(const struct machine *m);
const char *machine_name(const struct machine *m);
bool machine_is_parked(const struct machine *m);
/* Its agent knows GuestDial; one that does not would take it for a breach, and power off. */
bool machine_dials(const struct machine *m);
/* Its agent knows the variables of a GuestCell; one that does not would run the cell without. */
bool machine_takes_cell_env(const struct machine *m);
/* CLAIMED: why nothing is heard of what its user code does; NULL = it is. */
const char *machine_unwatched(const struct machine *m);
/* CLAIMED, and its claim has its system calls counted: "counted", or why they are not; else "". */
const char *machine_calls(const struct machine *m);
/* Its agent cannot be talked to any more: on_end comes soon, and says why. */
bool machine_is_broken(const struct machine *m);
/* UNIMPL where the VM's monitor counts nothing. */
int machine_ask_counts(struct machine *m, struct vm_counts_query *query,
                       struct cl_err *err) CL_MUST;
/* Who wants to know what it uses now; the caller's storage.  fn is called once, from the loop: then
 * machine_usage() has it, or the guest will not say.  Not any more once `link` is unlinked. */
struct machine_usage_query {
    struct cl_list link;
    void (*fn)(void *arg);
    void *arg;
};
/* False: it is not CLAIMED, and what machine_usage() has is all. */
bool machine_ask_usage(struct machine *m, struct machine_usage_query *query);
const struct usage *machine_usage(const struct machine *m);
/* CPU time of all its VMs so far. */
uint64_t machine_cpu_ns(const struct machine *m);
/* CPU time of all its VMs so far; memory of the one that runs.  STATE when there never was one. */
int machine_stats(const struct machine *m, struct vm_stats *ret_stats, struct cl_err *err) CL_MUST;

#endif
