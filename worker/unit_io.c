/* worker/unit_io.c - see worker/unit.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "worker/disk.h"
#include "worker/net_words.h"
#include "worker/unit_priv.h"

void unit_set_state(struct unit *u, enum unit_state state)
{
    u->state = state;
    CL_LIST_FOREACH (node, &u->waiters) {
        struct unit_waiter *w = CL_LIST_ENTRY(node, struct unit_waiter, link);
        w->fn(w->arg);
    }
}

Cloche__V1__GuestSeparation unit_separation(bool is_shared)
{
    return is_shared ? CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED
                     : CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_ISOLATED;
}

bool unit_is_live(const struct unit *u)
{
    return u->state < UNIT_ENDED;
}

static bool is_job(const struct unit *u)
{
    return u->assign->kind == CLOCHE__V1__UNIT_KIND__UNIT_KIND_JOB;
}

bool unit_is_snapshot(const Cloche__V1__Assign *assign)
{
    return assign->kind == CLOCHE__V1__UNIT_KIND__UNIT_KIND_SNAPSHOT;
}

static bool is_snapshot(const struct unit *u)
{
    return unit_is_snapshot(u->assign);
}

static void count(struct unit *u, bool add)
{
    if (u->has_room == add)
        return;
    u->has_room = add;
    const Cloche__V1__Resources *r = u->assign->resources;
    uint64_t vcpu = r ? (uint64_t)r->vcpus * 1000 : 0, mem = r ? r->memory_mib : 0;
    struct units *us = u->units;
    us->used_vcpu_milli = add ? us->used_vcpu_milli + vcpu : us->used_vcpu_milli - vcpu;
    us->used_memory_mib = add ? us->used_memory_mib + mem : us->used_memory_mib - mem;
    us->used_slots = add ? us->used_slots + 1 : us->used_slots - 1;
}

static uint64_t disk_bytes(const struct unit *u)
{
    const Cloche__V1__Resources *r = u->assign->resources;
    return (r && r->disk_mib ? r->disk_mib : DISK_DEFAULT_MIB) * CL_MIB;
}

uint64_t units_disk_promised(const struct units *us)
{
    uint64_t sum = 0;
    CL_LIST_FOREACH (node, &us->all) {
        const struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (unit_is_live(u) && !is_snapshot(u)) /* that never takes more */
            sum += u->machine ? machine_disk_promised(u->machine) : disk_bytes(u);
    }
    return sum + us->taking_bytes;
}

/* --- the end -------------------------------------------------------------------------------- */

static void free_slot(struct exec_slot *slot)
{
    cl_list_unlink(&slot->link);
    exec_free(slot->exec);
    if (slot->start)
        pb_free(&slot->start->base);
    cl_free(slot);
}

void unit_free(struct unit *u)
{
    CL_ASSERT(!u->machine && !u->claim && !u->fork && u->users == 0);
    while (!cl_list_empty(&u->execs))
        free_slot(CL_LIST_ENTRY(u->execs.next, struct exec_slot, link));
    if (cl_map_get(u->units->by_id, u->assign->unit_id) == u)
        (void)cl_map_del(u->units->by_id, u->assign->unit_id);
    cl_list_unlink(&u->link);
    cl_timer_fini(&u->timer);
    pb_free(&u->assign->base);
    cl_free(u);
}

static void abort_execs(struct unit *u)
{
    CL_LIST_FOREACH (node, &u->execs) {
        struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        exec_abort(slot->exec, u->outcome ? u->outcome : CLOCHE__V1__OUTCOME__OUTCOME_FAILED,
                   u->reason, u->message);
        exec_forget_output(slot->exec); /* what is read of it from now on dies with this process */
    }
}

static void tell_changes(struct cl_list *changes, const struct cl_err *err)
{
    while (!cl_list_empty(changes)) {
        struct unit_change *c = CL_LIST_ENTRY(changes->next, struct unit_change, link);
        cl_list_unlink(&c->link);
        c->done(c->arg, err);
    }
}

/* The VM is gone, or there never was one. */
static void become_ended(struct unit *u)
{
    struct cl_err over = {0};
    if (u->is_given)
        (void)unit_fail_given(&over);
    else
        (void)cl_fail(&over, CL_E_STATE, 0, "the sandbox ended: %.200s", u->message);
    tell_changes(&u->changes, &over);
    tell_changes(&u->resumes, &over);
    abort_execs(u);
    count(u, false);
    cl_timer_stop(&u->timer);
    if (u->is_given) {
        unit_set_state(u, UNIT_KEPT);
        cl_timer_start(&u->timer, 0);
        return;
    }
    if (u->is_left) {
        unit_set_state(u, UNIT_ENDED);
        return;
    }
    log_event(LOG_UNIT_ENDED, "unit=%s lease=%s outcome=%d reason=%d text='%s'", u->assign->unit_id,
              u->assign->lease_id, (int)u->outcome, (int)u->reason, u->message);
    unit_set_state(u, UNIT_ENDED);
    u->units->events.on_ended(u->units->arg, u);
}

static void end_fork(struct unit *u)
{
    if (!u->fork)
        return;
    u->units->n_forks--;
    fork_cancel(u->fork);
    u->fork = NULL;
}

void unit_end(struct unit *u, Cloche__V1__Outcome outcome, Cloche__V1__Reason reason,
              const char *message)
{
    if (u->state >= UNIT_ENDING)
        return;
    u->outcome = outcome;
    u->reason = reason;
    (void)snprintf(u->message, sizeof u->message, "%s", message);
    bool waiting = u->state == UNIT_CLAIMING;
    (void)!unit_forget_kept(u, NULL); /* one that stays is of no use without its image */
    unit_set_state(u, UNIT_ENDING);
    if (waiting) {
        if (u->claim)
            pool_cancel(u->claim);
        u->claim = NULL;
        end_fork(u);
        become_ended(u);
        return;
    }
    u->cpu_ms =
        (machine_cpu_ns(u->machine) + CL_NS_PER_MS - 1) / CL_NS_PER_MS; /* nothing is free */
    machine_stop(u->machine);
}

static void machine_gone(void *arg, const struct cl_err *why)
{
    struct unit *u = arg;
    u->machine = NULL;
    if (u->state < UNIT_ENDING) {
        u->outcome = CLOCHE__V1__OUTCOME__OUTCOME_FAILED;
        u->reason = u->code_started ? CLOCHE__V1__REASON__REASON_VM_DIED
                                    : CLOCHE__V1__REASON__REASON_START_FAILED;
        (void)snprintf(u->message, sizeof u->message, "%s", why->text);
    }
    become_ended(u);
}

/* Its time to live passed, and that is not its end: the scheduler has to pause it. */
static bool waits_to_be_paused(struct unit *u, uint64_t now)
{
    if (u->state != UNIT_RUNNING || !u->assign->pause_on_idle)
        return false;
    if (u->idle_since_ns == 0)
        u->idle_since_ns = now;
    if (now - u->idle_since_ns > UNIT_IDLE_MAX_S * CL_NS_PER_S)
        return false;
    u->units->events.on_idle(u->units->arg, u);
    cl_timer_start(&u->timer, UNIT_IDLE_EVERY_S * CL_NS_PER_S);
    return true;
}

static void on_timer(void *arg)
{
    struct unit *u = arg;
    if (u->state == UNIT_KEPT) {
        if (u->users > 0)
            cl_timer_start(&u->timer, 10 * CL_NS_PER_S);
        else
            unit_free(u);
        return;
    }
    uint64_t now = cl_now_ns();
    if (u->expires_ns > now) {
        cl_timer_start(&u->timer, u->expires_ns - now);
        return;
    }
    if (unit_is_tentative(u)) { /* whose end would it be? */
        cl_timer_start(&u->timer, CL_NS_PER_S);
        return;
    }
    if (u->state == UNIT_PAUSING || u->state == UNIT_RESUMING || waits_to_be_paused(u, now))
        return;
    unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED, CLOCHE__V1__REASON__REASON_EXPIRED,
             is_snapshot(u) ? "nothing has begun with it for as long as it was to be kept"
             : u->state == UNIT_PAUSED ? "it was paused for as long as it was to be kept"
                                       : "its time to live passed");
}

void unit_acknowledged(struct unit *u)
{
    if (u->state != UNIT_ENDED)
        return;
    unit_set_state(u, UNIT_KEPT);
    cl_timer_start(&u->timer, u->units->keep_ns);
}

/* --- start ---------------------------------------------------------------------------------- */

void unit_exec_ended(void *arg, struct exec *e)
{
    struct exec_slot *slot = arg;
    struct unit *u = slot->unit;
    u->units->events.on_exec_ended(u->units->arg, u, e);
    if (!is_job(u)) {
        unit_touch(u);
        return;
    }
    const Cloche__V1__ExecResult *r = exec_result(e);
    if (r->reason == CLOCHE__V1__REASON__REASON_VM_DIED && u->machine &&
        machine_is_broken(u->machine))
        return; /* it ends, and knows why */
    unit_end(u, r->outcome, r->reason, r->message);
}

static int add_exec(struct unit *u, const Cloche__V1__ExecStartCommand *start,
                    struct exec **ret_exec, struct cl_err *err)
{
    struct exec_slot *slot = cl_zalloc(sizeof *slot);
    ProtobufCMessage *copy;
    if (!slot || pb_copy(&start->base, &copy, err) < 0) {
        cl_free(slot);
        return cl_fail(err, CL_E_NOMEM, 0, "exec");
    }
    cl_list_init(&slot->link);
    slot->unit = u;
    slot->start = (Cloche__V1__ExecStartCommand *)copy;
    struct exec_options options = {
        .loop = u->units->loop,
        .guest = machine_guest(u->machine),
        .spool_dir = u->units->spool_dir,
        .id = start->exec_id,
        .command = start->command,
        .traceparent = start->traceparent[0] ? start->traceparent : u->assign->traceparent,
        .on_end = unit_exec_ended,
        .arg = slot,
    };
    if ((!u->code_started && machine_mark_code_started(u->machine, err) < 0) ||
        exec_start(&options, &slot->exec, err) < 0) {
        free_slot(slot);
        return -1;
    }
    u->code_started = true;
    u->n_execs++;
    cl_list_push(&u->execs, &slot->link);
    *ret_exec = slot->exec;
    return 0;
}

static void machine_ready(void *arg)
{
    struct unit *u = arg;
    struct cl_err err = {0};
    u->ready_ns = cl_now_ns();
    if (is_job(u)) {
        char id[CL_ID_MAX];
        Cloche__V1__ExecStartCommand start = CLOCHE__V1__EXEC_START_COMMAND__INIT;
        cl_id_new("exec", id);
        start.exec_id = id;
        start.command = u->assign->command;
        if (add_exec(u, &start, &u->main, &err) < 0) {
            unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED,
                     CLOCHE__V1__REASON__REASON_START_FAILED, err.text);
            return;
        }
    }
    unit_set_state(u, UNIT_RUNNING);
    unit_touch(u);
    log_event(LOG_UNIT_STARTED, "unit=%s lease=%s source=%s start_us=%llu trace=%s",
              u->assign->unit_id, u->assign->lease_id, u->source,
              (unsigned long long)((u->ready_ns - u->assigned_ns) / CL_NS_PER_US),
              u->assign->traceparent);
    u->units->events.on_started(u->units->arg, u);
}

const struct machine_events unit_machine_events = {machine_ready, machine_gone, unit_watched,
                                                   unit_flowed};

int unit_fill_claim(const struct unit *u, struct net_grant *grant, struct machine_claim *ret_claim,
                    struct cl_err *err)
{
    const Cloche__V1__NetworkGrant *words = u->assign->network_grant;
    *ret_claim = (struct machine_claim){
        .tenant = u->assign->tenant,
        .unit_id = u->assign->unit_id,
        .lease_id = u->assign->lease_id,
        .fence = u->assign->fence,
        .deadline_ns = u->deadline_ns,
        .scratch_bytes = disk_bytes(u),
        .grant = words ? grant : NULL,
        .for_good = is_snapshot(u),
        .count_calls = u->assign->count_calls,
    };
    return words ? net_words_grant(words, u->units->net, grant, err) : 0;
}

static void claimed(void *arg, struct machine *machine, const char *source,
                    const struct cl_err *err)
{
    struct unit *u = arg;
    u->claim = NULL;
    if (!machine) {
        Cloche__V1__Reason reason = err->code == CL_E_DATALOSS /* its image is not what it says */
                                        ? CLOCHE__V1__REASON__REASON_NO_TEMPLATE
                                        : CLOCHE__V1__REASON__REASON_START_FAILED;
        unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED, reason, err->text);
        return;
    }
    struct cl_err e = {0};
    u->machine = machine;
    u->source = source;
    machine_set_events(machine, &unit_machine_events, u);
    unit_set_state(u, UNIT_IDENTIFYING);
    struct machine_claim claim;
    struct net_grant grant;
    if (unit_fill_claim(u, &grant, &claim, &e) < 0 || machine_claim(machine, &claim, &e) < 0)
        unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED, CLOCHE__V1__REASON__REASON_START_FAILED,
                 e.text);
}

/* It is on the disk: its record next. */
static void lay_down(struct unit *u, struct machine *machine)
{
    struct machine_claim claim;
    struct cl_err err = {0};
    u->machine = machine;
    u->source = "fork";
    machine_set_events(machine, &unit_machine_events, u);
    u->expires_ns = cl_now_ns() + u->assign->ttl_ns;
    unit_set_state(u, UNIT_PAUSING);
    if (unit_fill_claim(u, NULL, &claim, &err) < 0 ||
        machine_claim_at_rest(machine, &claim, &err) < 0)
        unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED, CLOCHE__V1__REASON__REASON_START_FAILED,
                 err.text);
    else
        unit_keep(u);
}

static void forked(void *arg, struct machine *machine, const struct cl_err *err)
{
    struct unit *u = arg;
    u->fork = NULL;
    u->units->n_forks--;
    u->code_started = machine != NULL; /* what ran runs on */
    if (machine && is_snapshot(u))
        lay_down(u, machine);
    else
        claimed(u, machine, "fork", err);
}

/* Is it made of what its tenant may have? */
static int check_separation(const struct unit *of, const Cloche__V1__Assign *a, struct cl_err *err)
{
    if (machine_template(of->machine)->driver->is_shared &&
        a->guest_separation != CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED)
        return cl_fail(err, CL_E_STATE, 0, "its tenant wants isolated guests by now");
    return 0;
}

/* A snapshot begins its time anew when something begins with it.  What its record says may be late
 * by a little: it is not written each time. */
static void prolong(struct unit *u)
{
    uint64_t until = cl_now_ns() + u->assign->ttl_ns;
    if (!is_snapshot(u) || u->state != UNIT_PAUSED ||
        until < u->expires_ns + UNIT_PROLONG_S * CL_NS_PER_S)
        return;
    u->expires_ns = until;
    unit_keep_again(u);
}

/* Where it is to be made from; NULL and why it cannot be. */
static struct machine *find_origin(struct units *us, const Cloche__V1__Assign *a,
                                   struct cl_err *err)
{
    struct unit *of = units_find(us, a->fork_of);
    if (us->n_forks >= UNITS_FORKS_MAX)
        (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "%d forks are under way on this worker already",
                      UNITS_FORKS_MAX);
    else if (!of || strcmp(of->assign->tenant, a->tenant) != 0 || is_job(of))
        (void)cl_fail(err, CL_E_NOTFOUND, 0, "no sandbox or snapshot '%s' here", a->fork_of);
    else if ((of->state == UNIT_PAUSED || unit_check_runs(of, err) == 0) &&
             check_separation(of, a, err) == 0) {
        unit_touch(of);
        prolong(of);
        return of->machine;
    }
    return NULL;
}

static int fork_unit(struct unit *u, struct cl_err *err)
{
    struct fork_spec spec = {
        .moment = u->assign->fork_moment, .rests = is_snapshot(u), .fn = forked, .arg = u};
    spec.of = find_origin(u->units, u->assign, &spec.why_not);
    if (fork_start(u->units->loop, &spec, &u->fork, err) < 0)
        return -1;
    u->units->n_forks++;
    return 0;
}

/* An earlier attempt of the same unit here is history: only its output is kept. */
static int check_fence(struct units *us, const Cloche__V1__Assign *a, struct cl_err *err)
{
    const struct unit *old = units_find(us, a->unit_id);
    if (old && old->assign->fence >= a->fence)
        return cl_fail(err, CL_E_STATE, 0, "a newer fence of this unit was seen here");
    if (old && unit_is_live(old))
        return cl_fail(err, CL_E_STATE, 0, "an earlier attempt of this unit has not ended here");
    return 0;
}

/* Room for one more: the oldest output goes first. */
static void drop_oldest_kept(struct units *us)
{
    CL_LIST_FOREACH (node, &us->all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (u->state == UNIT_KEPT && u->users == 0) {
            unit_free(u);
            return;
        }
    }
}

int unit_new(struct units *us, const Cloche__V1__Assign *assign, struct unit **ret_unit,
             struct cl_err *err)
{
    struct unit *u = cl_zalloc(sizeof *u);
    ProtobufCMessage *copy;
    if (!u || pb_copy(&assign->base, &copy, err) < 0) {
        cl_free(u);
        return cl_fail(err, CL_E_NOMEM, 0, "unit");
    }
    *u = (struct unit){.units = us,
                       .assign = (Cloche__V1__Assign *)copy,
                       .state = UNIT_CLAIMING,
                       .source = "",
                       .assigned_ns = cl_now_ns()};
    cl_list_init(&u->link);
    cl_list_init(&u->execs);
    cl_list_init(&u->waiters);
    cl_list_init(&u->changes);
    cl_list_init(&u->resumes);
    cl_list_init(&u->dials_waiting);
    if (cl_timer_init(&u->timer, us->loop, on_timer, u, err) < 0 ||
        cl_map_put(us->by_id, assign->unit_id, u, err) < 0) {
        unit_free(u);
        return -1;
    }
    *ret_unit = u;
    return 0;
}

static int claim_machine(struct unit *u, struct cl_err *err)
{
    const Cloche__V1__Assign *a = u->assign;
    const Cloche__V1__Resources *r = a->resources;
    struct pool_want want = {.template = a->template_,
                             .memory_mib = r ? r->memory_mib : 0,
                             .vcpus = r ? r->vcpus : 0,
                             .network = a->network_grant != NULL,
                             .shared_ok = a->guest_separation ==
                                          CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED};
    return pool_claim(u->units->pool, &want, claimed, u, &u->claim, err);
}

static int check_snapshot(const Cloche__V1__Assign *a, struct cl_err *err)
{
    return a->fork_of[0] && a->ttl_ns && !a->network_grant
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "a snapshot of nothing, or for no time");
}

int unit_assign(struct units *us, const Cloche__V1__Assign *assign, uint64_t deadline_ns,
                struct unit **ret_unit, struct cl_err *err)
{
    struct unit *u;
    if (check_fence(us, assign, err) < 0)
        return -1;
    if (assign->network_grant && !us->net->binary[0])
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "this worker gives no network to its VMs");
    if (unit_is_snapshot(assign) &&
        (check_snapshot(assign, err) < 0 || units_check_paused(us, err) < 0))
        return -1;
    if (cl_map_count(us->by_id) >= UNITS_MAX)
        drop_oldest_kept(us);
    if (unit_new(us, assign, &u, err) < 0)
        return -1;
    u->deadline_ns = deadline_ns;
    if ((assign->fork_of[0] ? fork_unit(u, err) : claim_machine(u, err)) < 0) {
        unit_free(u);
        return -1;
    }
    cl_list_push(&us->all, &u->link);
    if (!is_snapshot(u))
        count(u, true);
    *ret_unit = u;
    return 0;
}

/* --- use ------------------------------------------------------------------------------------ */

struct unit *units_find(struct units *us, const char *unit_id)
{
    return cl_map_get(us->by_id, unit_id);
}

struct unit *units_find_lease(struct units *us, const char *lease_id)
{
    CL_LIST_FOREACH (node, &us->all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (strcmp(u->assign->lease_id, lease_id) == 0)
            return u;
    }
    return NULL;
}

void unit_set_deadline(struct unit *u, uint64_t deadline_ns)
{
    u->deadline_ns = CL_MAX(u->deadline_ns, deadline_ns);
    if (u->machine)
        machine_set_deadline(u->machine, u->deadline_ns);
}

static bool any_exec_runs(const struct unit *u)
{
    for (const struct cl_list *l = u->execs.next; l != &u->execs; l = l->next) {
        const struct exec_slot *slot =
            (const struct exec_slot *)(const void *)l; /* link comes first */
        if (exec_is_running(slot->exec))
            return true;
    }
    return false;
}
_Static_assert(offsetof(struct exec_slot, link) == 0, "any_exec_runs() relies on it");

/* By more than open connections and watched folders. */
static bool is_attended(const struct unit *u)
{
    return u->users > u->n_dials + u->n_watches;
}

static bool is_used(const struct unit *u)
{
    return any_exec_runs(u) || is_attended(u);
}

void unit_touch(struct unit *u)
{
    if (is_job(u) || u->assign->ttl_ns == 0 || u->state > UNIT_RUNNING)
        return;
    u->idle_since_ns = 0;
    u->expires_ns = cl_now_ns() + u->assign->ttl_ns;
    if (is_used(u))
        cl_timer_stop(&u->timer); /* not idle */
    else
        cl_timer_start(&u->timer, u->assign->ttl_ns);
}

uint64_t unit_expires_wall_ns(const struct unit *u)
{
    uint64_t now = cl_now_ns();
    if (is_job(u) || u->assign->ttl_ns == 0 || !unit_is_live(u) || u->expires_ns == 0)
        return 0;
    uint64_t left = u->state == UNIT_RUNNING && is_used(u) ? u->assign->ttl_ns
                    : u->expires_ns > now                  ? u->expires_ns - now
                                                           : 0;
    return cl_wall_ns() + left;
}

int unit_extend(struct unit *u, uint64_t ttl_ns, struct cl_err *err)
{
    if (is_job(u))
        return cl_fail(err, CL_E_STATE, 0, "only a sandbox can be extended");
    if (unit_check_runs(u, err) < 0)
        return -1;
    u->assign->ttl_ns = ttl_ns;
    unit_touch(u);
    return 0;
}

/* Forget the oldest ended exec, so that a sandbox can run any number of them. */
static void drop_oldest_exec(struct unit *u)
{
    CL_LIST_FOREACH (node, &u->execs) {
        struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        if (exec_is_running(slot->exec) || exec_is_held(slot->exec))
            continue;
        free_slot(slot);
        u->n_execs--;
        return;
    }
}

/* --- pause and resume ---------------------------------------------------------------------------
 */

int unit_check_runs(const struct unit *u, struct cl_err *err)
{
    switch (u->state) {
    case UNIT_RUNNING:
        return 0;
    case UNIT_PAUSING:
    case UNIT_PAUSED:
        return u->goes_on
                   ? cl_fail(err, CL_E_UNAVAILABLE, 0,
                             "the sandbox is paused while its worker is started anew, and goes on "
                             "soon")
                   : cl_fail(err, CL_E_STATE, 0, "the sandbox is paused; resume it first");
    case UNIT_RESUMING:
        return cl_fail(err, CL_E_STATE, 0, "the sandbox is being resumed; try again in a moment");
    case UNIT_CLAIMING:
    case UNIT_IDENTIFYING:
    case UNIT_ENDING:
    case UNIT_ENDED:
    case UNIT_KEPT:
        break;
    }
    return cl_fail(err, CL_E_STATE, 0, "the sandbox does not run");
}

bool unit_is_paused(const struct unit *u)
{
    return u->state == UNIT_PAUSED;
}

bool unit_is_tentative(const struct unit *u)
{
    return u->tentative_ns > cl_now_ns();
}

bool unit_is_renewed(const struct unit *u)
{
    return unit_is_live(u) && !u->is_given && u->tentative_ns != UINT64_MAX;
}

bool unit_is_idle(const struct unit *u)
{
    return u->idle_since_ns != 0;
}

uint64_t unit_image_bytes(const struct unit *u)
{
    if (u->state != UNIT_PAUSED)
        return 0;
    /* A sandbox has quota for its disk beside that. */
    return machine_rest_bytes(u->machine) + (is_snapshot(u) ? machine_disk_taken(u->machine) : 0);
}

int units_check_paused(const struct units *us, struct cl_err *err)
{
    unsigned n = 0;
    for (const struct cl_list *l = us->all.next; l != &us->all; l = l->next) {
        enum unit_state state =
            ((const struct unit *)(const void *)l)->state; /* link comes first */
        n += state == UNIT_PAUSING || state == UNIT_PAUSED;
    }
    if (n >= UNITS_PAUSED_MAX)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "%d sandboxes are paused on its worker",
                       UNITS_PAUSED_MAX);
    return 0;
}
_Static_assert(offsetof(struct unit, link) == 0, "units_check_paused() relies on it");

static void run_again(struct unit *u)
{
    u->goes_on = false;
    unit_set_state(u, UNIT_RUNNING);
    unit_touch(u);
}

static void has_resumed(void *arg, const struct cl_err *err)
{
    struct unit *u = arg;
    if (err) {
        count(u, false);
        unit_set_state(u, UNIT_PAUSED);
        uint64_t now = cl_now_ns();
        cl_timer_start(&u->timer, u->expires_ns > now ? u->expires_ns - now : 0);
        u->units->events.on_room(u->units->arg);
    } else {
        run_again(u);
    }
    if (err)
        unit_keep_again(u);
    log_event(LOG_UNIT_RESUMED, "unit=%s text='%s'", u->assign->unit_id, err ? err->text : "");
    tell_changes(&u->changes, err);
}

static int begin_resume(struct unit *u, struct cl_err *err)
{
    if (u->is_moving || unit_is_tentative(u))
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "it is being moved to another worker; try again in a moment");
    if (unit_forget_kept(u, err) < 0)
        return -1;
    if (machine_wake(u->machine, has_resumed, u, err) < 0) {
        unit_keep_again(u);
        return -1;
    }
    count(u, true);
    unit_set_state(u, UNIT_RESUMING);
    u->units->events.on_room(u->units->arg);
    return 0;
}

/* For who asked for that while it was being paused, or tentative. */
static void resume_again(struct unit *u)
{
    struct cl_err err = {0};
    if (cl_list_empty(&u->resumes))
        return;
    if (u->state == UNIT_PAUSED && begin_resume(u, &err) == 0) {
        CL_LIST_FOREACH (node, &u->resumes) {
            cl_list_unlink(node);
            cl_list_push(&u->changes, node);
        }
        return;
    }
    tell_changes(&u->resumes, err.code ? &err : NULL); /* or it runs: it could not be paused */
}

void unit_settle(struct unit *u)
{
    u->tentative_ns = 0;
    log_event(LOG_UNIT_TAKEN, "unit=%s lease=%s", u->assign->unit_id, u->assign->lease_id);
    u->units->events.on_taken(u->units->arg, u);
    resume_again(u);
}

static void tell_paused(struct unit *u, const struct cl_err *err)
{
    log_event(LOG_UNIT_PAUSED, "unit=%s bytes=%llu kept=%d text='%s'", u->assign->unit_id,
              (unsigned long long)unit_image_bytes(u), u->is_kept, err ? err->text : "");
    tell_changes(&u->changes, err);
    resume_again(u);
}

void unit_is_restored(struct unit *u)
{
    uint64_t now = cl_now_ns();
    cl_timer_start(&u->timer, u->expires_ns > now ? u->expires_ns - now : 0);
    unit_set_state(u, UNIT_PAUSED);
}

void unit_rests(struct unit *u)
{
    count(u, false);
    unit_is_restored(u);
    u->units->events.on_room(u->units->arg);
    tell_paused(u, NULL);
    if (is_snapshot(u)) {
        u->ready_ns = cl_now_ns();
        u->units->events.on_started(u->units->arg, u);
    }
}

static void has_paused(void *arg, const struct cl_err *err)
{
    struct unit *u = arg;
    if (err) {
        run_again(u);
        tell_paused(u, err);
        return;
    }
    u->expires_ns = cl_now_ns() + u->keep_ns;
    unit_keep(u);
}

int unit_pause(struct unit *u, const Cloche__V1__PauseCommand *pause, struct unit_change *change,
               struct cl_err *err)
{
    u->goes_on = pause->goes_on;
    if (u->state == UNIT_PAUSED) {
        u->paused_for_idle &= pause->if_idle;
        unit_keep_again(u);
        change->done(change->arg, NULL);
        return 0;
    }
    if (is_job(u))
        return cl_fail(err, CL_E_STATE, 0, "only a sandbox can be paused");
    if (u->state != UNIT_PAUSING &&
        (unit_check_runs(u, err) < 0 || machine_rest(u->machine, has_paused, u, err) < 0))
        return -1;
    if (u->state != UNIT_PAUSING) {
        u->keep_ns = pause->keep_ns;
        u->paused_for_idle = true;
        cl_timer_stop(&u->timer);
        unit_set_state(u, UNIT_PAUSING);
    }
    u->paused_for_idle &= pause->if_idle;
    cl_list_push(&u->changes, &change->link);
    return 0;
}

/* Its scheduler left without a word, and the books are about to say whose it is. */
static bool is_asked_for(const struct unit *u)
{
    return u->tentative_ns != 0 && u->tentative_ns != UINT64_MAX;
}

int unit_resume(struct unit *u, uint64_t ttl_ns, struct unit_change *change, struct cl_err *err)
{
    if (u->state == UNIT_RUNNING) {
        if (ttl_ns && unit_extend(u, ttl_ns, err) < 0)
            return -1;
        change->done(change->arg, NULL);
        return 0;
    }
    if (u->state != UNIT_RESUMING && u->state != UNIT_PAUSED && u->state != UNIT_PAUSING)
        return unit_check_runs(u, err);
    bool waits = u->state == UNIT_PAUSING || is_asked_for(u);
    if (u->state == UNIT_PAUSED && !waits && begin_resume(u, err) < 0)
        return -1;
    u->assign->ttl_ns = ttl_ns ? ttl_ns : u->assign->ttl_ns;
    cl_list_push(waits ? &u->resumes : &u->changes, &change->link);
    return 0;
}

int unit_exec(struct unit *u, const Cloche__V1__ExecStartCommand *start, struct exec **ret_exec,
              struct cl_err *err)
{
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (is_job(u))
        return cl_fail(err, CL_E_STATE, 0, "a job runs one command; make a sandbox for more");
    if (u->n_execs >= UNIT_EXECS_MAX)
        drop_oldest_exec(u);
    if (u->n_execs >= UNIT_EXECS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "%d commands run in this sandbox", UNIT_EXECS_MAX);
    if (add_exec(u, start, ret_exec, err) < 0)
        return -1;
    unit_touch(u);
    return 0;
}

int unit_begin_code(struct unit *u, struct cl_err *err)
{
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (is_job(u))
        return cl_fail(err, CL_E_STATE, 0, "a job runs one command; make a sandbox for code");
    if (!u->code_started && machine_mark_code_started(u->machine, err) < 0)
        return -1;
    u->code_started = true;
    return 0;
}

int unit_begin_dial(struct unit *u, struct unit_waiter *turn, struct cl_err *err)
{
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (!machine_dials(u->machine))
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "the template's agent is older than ports: build the template again");
    if (u->n_dials >= UNIT_DIALS_MAX && u->n_dials_waiting >= UNIT_DIALS_WAIT_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0,
                       "%d connections to this sandbox are open already, and %d wait",
                       UNIT_DIALS_MAX, UNIT_DIALS_WAIT_MAX);
    unit_touch(u);
    if (u->n_dials < UNIT_DIALS_MAX) {
        u->n_dials++;
        return 0;
    }
    cl_list_push(&u->dials_waiting, &turn->link);
    u->n_dials_waiting++;
    return 1;
}

static void leave_line(struct unit *u, struct unit_waiter *turn)
{
    cl_list_unlink(&turn->link);
    u->n_dials_waiting--;
}

void unit_end_dial(struct unit *u, struct unit_waiter *turn)
{
    unit_touch(u);
    if (!cl_list_empty(&turn->link)) {
        leave_line(u, turn);
        return;
    }
    CL_ASSERT(u->n_dials > 0);
    struct cl_list *first = u->dials_waiting.next;
    if (cl_list_empty(&u->dials_waiting)) {
        u->n_dials--;
        return;
    }
    struct unit_waiter *next = CL_LIST_ENTRY(first, struct unit_waiter, link); /* has the place */
    leave_line(u, next);
    next->fn(next->arg);
}

struct exec *unit_find_exec(struct unit *u, const char *id)
{
    if (!id[0])
        return u->main;
    CL_LIST_FOREACH (node, &u->execs) {
        struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        if (strcmp(exec_id(slot->exec), id) == 0)
            return slot->exec;
    }
    return NULL;
}

void unit_client_left(struct unit *u, const char *id)
{
    struct cl_err ignored = {0};
    CL_LIST_FOREACH (node, &u->execs) {
        struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        if (strcmp(exec_id(slot->exec), id) != 0 || !slot->start->kill_on_disconnect ||
            !exec_is_running(slot->exec))
            continue;
        (void)!exec_signal(slot->exec, SIGKILL, &ignored);
        slot->is_abandoned = true;
        unit_keep_again(u); /* at rest it hears of that later */
    }
}

void unit_wait(struct unit *u, struct unit_waiter *w)
{
    cl_list_push(&u->waiters, &w->link);
}

void unit_hold(struct unit *u)
{
    u->users++;
    unit_touch(u);
}

void unit_release(struct unit *u)
{
    CL_ASSERT(u->users > 0);
    u->users--;
    unit_touch(u);
}

int units_init(struct units *us, struct cl_err *err)
{
    cl_list_init(&us->all);
    cl_list_init(&us->takes);
    return cl_map_new(2 * UNITS_MAX, &us->by_id, err);
}

void units_fini(struct units *us)
{
    CL_LIST_FOREACH (node, &us->all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        CL_ASSERT(!unit_is_live(u));
        unit_free(u);
    }
    cl_map_free(us->by_id);
}
