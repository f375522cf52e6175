/* worker/machine_priv.h - the inside of a machine, for machine_io.c, machine_rest_io.c,
 * machine_copy_io.c and machine_kept_io.c. */
#ifndef CL_WORKER_MACHINE_PRIV_H
#define CL_WORKER_MACHINE_PRIV_H

#include "worker/machine.h"
#include "worker/template_file.h"
#include "worker/vm_state.h"

enum { MACHINE_PAST = 8 };

enum machine_state {
    MACHINE_STARTING = 1, /* the VM comes up (a boot: until Hello) */
    MACHINE_IDENTIFYING,  /* identity for the warm-ups */
    MACHINE_WARMING,
    MACHINE_READY,
    MACHINE_PARKED,
    MACHINE_CLAIMING,
    MACHINE_CLAIMED,
    MACHINE_HOLDING, /* to be copied or to rest: until nothing is on its way over the channel */
    MACHINE_COPYING, /* its monitor writes what it is, and its disk is copied */
    MACHINE_SAVING,  /* to rest: its monitor writes what it is */
    MACHINE_STORING, /* to the disk; meanwhile its monitor and its network end */
    MACHINE_AT_REST,
    MACHINE_LOADING, /* from the disk */
    MACHINE_WAKING,  /* a monitor comes up with it */
    MACHINE_ENDING,
};

/* What its unit used: machine_usage_io.c. */
struct machine_usage {
    struct usage series;
    struct cl_timer timer; /* while CLAIMED */
    bool is_asked;         /* the guest, and it has not answered */
    uint64_t since_ns;     /* the last sample, or its claim; later by what it rested; monotonic */
    uint64_t cpu_ns;       /* that it had used then */
    uint64_t rests_ns;     /* since when; 0 = it does not */
    struct cl_list queries;
};

struct machine {
    struct machine_host *host; /* borrowed */
    struct template *template; /* owned reference */
    struct vm *vm;             /* owned by the driver; NULL once ended, and at rest */
    struct vm_body body;       /* owned */
    struct rest *rest;         /* owned: on the way to rest and back, and there */
    vm_done_fn *rest_done;     /* of machine_rest() or machine_wake(), until it ran */
    void *rest_arg;
    bool is_stored;                /* on the way to rest: its file is whole, or failed */
    struct cl_err rest_why;        /* why a way to rest failed, while it wakes for that */
    bool is_held;                  /* its agent is, on the way to rest and back */
    bool is_restored;              /* AT_REST, of another process: its agent has not heard of us */
    struct guest_past *rest_past;  /* owned: what its agent has open, while it is held */
    struct template_waiter filing; /* its template's file is written or read for it */
    vm_done_fn *keep_done;         /* of machine_keep(), until it ran */
    void *keep_arg;
    char kept_name[CL_ID_MAX]; /* of its files; "" = it has none with a name */
    char *disk_name;           /* owned: path of its disk's, which it has until its end */
    bool is_left;              /* ... and longer */
    /* Of struct machine_copy: those who wait for the seed under way, and for the next one. */
    struct cl_list copies, next_copies;
    char now[MACHINE_MOMENT], next[MACHINE_MOMENT]; /* names of their moments; "" = none */
    char kept[MACHINE_MOMENT];                      /* the newest that was made with a name */
    bool kept_at_rest;                              /* that is the one that it rests at */
    char past[MACHINE_PAST][MACHINE_MOMENT];        /* others that are over: a ring */
    unsigned past_at;
    struct seed *kept_seed; /* owned; NULL = that moment is over, too */
    struct cl_timer kept_end;
    /* Owned: under way, also AT_REST; of a copy that is not claimed yet: what it is made from. */
    struct seed *seed;
    struct disk_copy *disk_copy; /* owned: under way */
    uint64_t frozen_ns;          /* since when it stands still for that */
    uint64_t spent_cpu_ns;       /* by the VMs that it had before */
    uint64_t deadline_ns;
    bool for_good;       /* it rests, and never wakes */
    struct guest *guest; /* owned */
    struct vm_net *net;  /* owned; NULL = it has no network */
    bool net_runs;
    struct net_grant *grant; /* owned: what its network may, with its past; NULL = no network */
    struct machine_events events;
    void *arg;
    enum vm_origin origin;
    enum machine_state state;
    bool warm;
    bool broken;                      /* the guest's channel is dead */
    struct guest_stream *warm_stream; /* of the step under way */
    size_t warm_next;                 /* index of warmup_step() */
    struct cgroup cgroup, net_cgroup; /* its VM's, its cloche-net's */
    char cgroup_arg[VM_STATE_CGROUPS];
    int uid_slot;        /* -1 = none */
    uint64_t disk_bytes; /* what its claim was given */
    char unwatched[160]; /* why its guest tells nothing; "" = it does */
    bool count_calls;    /* so its claim */
    char calls[176];     /* "counted", or why they are not */
    struct vm_state saved;
    struct cl_timer timeout;
    struct cl_timer clock;   /* while CLAIMED: when to look at the guest's clock next */
    uint64_t clock_asked_ns; /* 0 = no answer is awaited */
    uint64_t clock_told_ns;  /* when its identity was sent, with the time */
    struct machine_usage usage;
    struct cl_timer reap; /* until cgroup and uid are free */
    int reap_tries;
    struct cl_err why;     /* why we end it */
    struct cl_err end_why; /* why it has ended, once its VM is gone */
    struct cl_grave grave;
};

static inline const struct vm_driver *machine_driver(const struct machine *m)
{
    return m->template->driver;
}

/* End it, and that is why. */
void machine_fail(struct machine *m, const struct cl_err *why);
/* Guest memory that its VM's cgroup may hold: so many times, as each page counts that is in a
 * snapshot as well. */
int machine_limit_cgroup(struct machine *m, unsigned copies, struct cl_err *err) CL_MUST;
unsigned machine_copies(const struct machine *m);
/* A monitor for its body, from its template or from what is in `rest`; then let it start. */
int machine_start_vm(struct machine *m, struct cl_err *err) CL_MUST;
void machine_let_start(struct machine *m, uint64_t deadline_ns);
int machine_start_net(struct machine *m, struct cl_err *err) CL_MUST;
/* Its VM or its network has gone. */
void machine_end_if_quiet(struct machine *m);

/* A guest that is held, or saved, runs on or has its last frames on the way. */
static inline bool machine_is_awake(const struct machine *m)
{
    return m->state == MACHINE_CLAIMED || m->state == MACHINE_HOLDING ||
           m->state == MACHINE_COPYING || m->state == MACHINE_SAVING;
}

/* machine_copy_io.c: */
/* HOLDING, for copies, and its agent is held. */
void machine_copies_held(struct machine *m, const struct guest_past *past);
/* No seed comes of it any more. */
void machine_copy_over(struct machine *m, const struct cl_err *why);
/* No moment of it is kept any more. */
void machine_forget_moment(void *m);
/* HOLDING, and its agent does not answer. */
void machine_copy_late(struct machine *m);

/* machine_rest_io.c: */
/* HOLDING, to be put to rest: its agent is held, or does not answer. */
void machine_rests_held(struct machine *m, const struct guest_past *past);
void machine_rests_unheld(struct machine *m);
/* Large guests take longer to write, and to end one for that would lose all that it has. */
void machine_limit_time(struct machine *m);
/* Room for what its monitor writes, and for its state. */
uint64_t machine_rest_most(const struct machine *m);
/* Its guest runs, or is about to in its frozen VM: CLAIMED again. */
void machine_goes_on(struct machine *m);

/* machine_usage_io.c: */
int machine_usage_init(struct machine *m, struct cl_err *err) CL_MUST;
/* CLAIMED, for the first time or again; AT_REST. */
void machine_usage_goes_on(struct machine *m);
void machine_usage_rests(struct machine *m);
/* AT_REST: the samples are borrowed; and from another process's. */
void machine_usage_keep(const struct machine *m, struct machine_kept *ret_kept);
int machine_usage_restore(struct machine *m, const struct machine_kept *kept,
                          struct cl_err *err) CL_MUST;
void machine_usage_take(struct machine *m, const Cloche__V1__GuestStats *stats);
/* Its guest is gone. */
void machine_usage_stop(struct machine *m);
void machine_usage_fini(struct machine *m);

/* machine_io.c: */
struct birth {
    struct machine_host *host;
    struct template *template;
    enum vm_origin origin;
    bool warm;
    struct seed *seed; /* NULL = none */
    int disk;          /* its own, of a seed */
    const struct machine_events *events;
    void *arg;
};
/* With its timers and its cgroup, and nothing that runs. */
int machine_conceive(const struct birth *b, struct machine **ret_machine,
                     struct cl_err *err) CL_MUST;
/* One that never lived. */
void machine_abort(struct machine *m, const struct cl_err *why);
/* A guest's end of the body's channel. */
int machine_open_guest(struct machine *m, uint64_t first_stream, struct cl_err *err) CL_MUST;
int machine_take_claim(struct machine *m, const struct machine_claim *claim,
                       struct cl_err *err) CL_MUST;

/* machine_kept_io.c: */
/* It ends: nothing of it is kept that was not left. */
void machine_forget_kept(struct machine *m);

/* STORING, and its VM and network are gone. */
void machine_come_to_rest(struct machine *m);
/* WAKING, and its VM is up. */
void machine_has_woken(struct machine *m);
/* WAKING, and its VM has gone before it was up: its guest is as it was.  False when there is
 * nothing to go back to. */
bool machine_falls_asleep_again(struct machine *m, const struct cl_err *why);

#endif
