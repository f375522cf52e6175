/* scheduler/units.c - the life of one unit in this process: queue, reservation, assignment, end.
 *
 *   QUEUED ─► RESERVING ─► ASSIGNING ─► RUNNING ─► SETTLING ─► ENDED
 *     ▲  └──────┴──(quota, no room)        │           ▲
 *     └── requeued (refused, worker lost) ─┴───────────┘
 *
 * Every step that others rely on is first written to the books; what is here is soft state.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "scheduler/ends.h"
#include "scheduler/move.h"
#include "scheduler/place.h"
#include "scheduler/snapshots.h"

enum {
    QUOTA_WAIT_MAX_MS =
        1000, /* look again at least this often; an end of the tenant looks at once */
    REFUSED_WAIT_MS = 200,
    FORK_WAIT_MS = 1000,
    BOOKS_WAIT_MS = 200,
    RESERVING_MAX =
        64, /* reservations in flight: enough to fill a fsync, few enough to stay fair */
    DEFAULT_ATTEMPTS = 3,
};

static void settle(struct unit *u, const Cloche__V1__ExecResult *result,
                   const Cloche__V1__UnitEnded *m);
static void requeue(struct unit *u, const char *why, const struct books_end *used);

/* Did a worker take it before?  Then it waits again through no fault of its own, and its place in
 * the queue has no limit. */
static bool was_held(const struct unit *u)
{
    return u->attempt > u->refusals;
}

/* --- events ----------------------------------------------------------------------------------- */

void unit_follow(struct unit *u, struct follower *f)
{
    f->unit = u;
    cl_list_push(&u->followers, &f->link);
}

static void free_unit(struct unit *u)
{
    cl_timer_fini(&u->timer);
    pb_free(&u->record->base);
    if (u->terminal)
        pb_free(&u->terminal->base);
    cl_free(u);
}

void unit_unfollow(struct follower *f)
{
    struct unit *u = f->unit;
    if (!u)
        return;
    f->unit = NULL;
    cl_list_unlink(&f->link);
    if (u->phase == PHASE_ENDED && cl_list_empty(&u->followers))
        cl_timer_start(&u->timer, 0); /* freed outside of every callback */
}

void unit_tell(struct unit *u)
{
    CL_LIST_FOREACH (node, &u->followers) {
        struct follower *f = CL_LIST_ENTRY(node, struct follower, link);
        f->on_change(f);
    }
}

void unit_emit(struct unit *u, enum audit_event ev, const struct audit_field *fields, size_t n)
{
    struct cl_err err = {0};
    if (audit_emit(u->sched->audit, u->tenant->name, ev, fields, n, NULL, NULL, &err) < 0)
        log_event(LOG_AUDIT_REFUSES, "unit=%s text='%s'", u->id, err.text);
}

/* The log claims no more than the worker has said. */
static const char *separation_name(Cloche__V1__GuestSeparation separation)
{
    static const char *const names[] = {"unspecified", "isolated", "shared"};
    return (size_t)separation < CL_COUNT(names) ? names[separation] : names[0];
}

Cloche__V1__UnitState unit_state(const struct unit *u)
{
    static const Cloche__V1__UnitState states[] = {
        [PHASE_QUEUED] = CLOCHE__V1__UNIT_STATE__UNIT_STATE_QUEUED,
        [PHASE_RESERVING] = CLOCHE__V1__UNIT_STATE__UNIT_STATE_QUEUED,
        [PHASE_ASSIGNING] = CLOCHE__V1__UNIT_STATE__UNIT_STATE_STARTING,
        [PHASE_RUNNING] = CLOCHE__V1__UNIT_STATE__UNIT_STATE_RUNNING,
        [PHASE_SETTLING] = CLOCHE__V1__UNIT_STATE__UNIT_STATE_RUNNING,
        [PHASE_ENDED] = CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED,
    };
    return u->phase == PHASE_RUNNING && u->paused ? CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED
                                                  : states[u->phase];
}

struct worker *unit_worker(const struct unit *u)
{
    return u->worker_id[0] ? cl_map_get(u->sched->workers, u->worker_id) : NULL;
}

int unit_fail_away(const struct unit *u, struct cl_err *err)
{
    if (u->kind == BOOKS_SNAPSHOT)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "snapshot '%s' is on worker '%s', which is not connected: it can be used "
                       "when that is back",
                       u->id, u->worker_id);
    if (u->phase == PHASE_RUNNING && u->paused)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "sandbox '%s' is paused, and its worker '%s' is not connected: it can go on "
                       "when that is back",
                       u->id, u->worker_id);
    return cl_fail(err, CL_E_UNAVAILABLE, 0, "the worker of '%s' is not connected now", u->id);
}

struct unit *unit_find(struct sched *s, const char *tenant, const char *id)
{
    struct unit *u = cl_map_get(s->units, id);
    return u && strcmp(u->tenant->name, tenant) == 0 ? u : NULL;
}

struct unit *unit_find_lease(struct sched *s, const char *lease, uint64_t fence)
{
    struct unit *u = cl_map_get(s->leases, lease);
    return u && u->fence == fence ? u : NULL;
}

static void forget_lease(struct unit *u)
{
    if (u->lease[0])
        (void)cl_map_del(u->sched->leases, u->lease);
}

int unit_set_lease(struct unit *u, const char *lease, struct cl_err *err)
{
    forget_lease(u);
    (void)snprintf(u->lease, sizeof u->lease, "%s", lease);
    return lease[0] ? cl_map_put(u->sched->leases, lease, u, err) : 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

void unit_holds_less(struct unit *u)
{
    u->tenant->blocked_until_ns = 0;
    fairq_unblock(u->sched->queue, u->tenant->name);
    units_dispatch_soon(u->sched);
}

static void become_ended(struct unit *u)
{
    struct sched *s = u->sched;
    const Cloche__V1__ExecResult *r = u->terminal->result;
    fairq_remove(s->queue, &u->item);
    u->phase = PHASE_ENDED;
    (void)cl_map_del(s->units, u->id);
    forget_lease(u);
    snapshot_is_over(u);
    u->tenant->n_units--;
    log_event(LOG_JOB_ENDED, "unit=%s tenant=%s outcome=%s reason=%s", u->id, u->tenant->name,
              outcome_name(r->outcome), reason_name(r->reason));
    ends_tell(u);
    metrics_add(s->metrics, METRIC_UNITS_ENDED, books_kind_name(u->kind), outcome_name(r->outcome),
                1);
    cl_timer_stop(&u->timer);
    unit_rest_over(u);
    unit_tell(u);
    if (cl_list_empty(&u->followers))
        cl_timer_start(&u->timer, 0);
    unit_holds_less(u);
}

/* Make u->terminal from a result; m (may be NULL) has the tails. */
static int make_terminal(struct unit *u, const Cloche__V1__ExecResult *result,
                         const Cloche__V1__UnitEnded *m, struct cl_err *err)
{
    Cloche__V1__TerminalRecord t = CLOCHE__V1__TERMINAL_RECORD__INIT;
    ProtobufCMessage *copy;
    t.version = 1;
    t.result = (Cloche__V1__ExecResult *)(uintptr_t)result;
    t.worker_id = u->worker_id;
    t.driver = u->driver;
    t.guest_separation = u->separation;
    t.started_unix_ns = u->started_wall_ns;
    t.ended_unix_ns = u->ended_wall_ns = cl_wall_ns();
    if (m) {
        t.stdout_tail = m->stdout_tail;
        t.stderr_tail = m->stderr_tail;
    }
    if (pb_copy(&t.base, &copy, err) < 0)
        return -1;
    if (u->terminal)
        pb_free(&u->terminal->base);
    u->terminal = (Cloche__V1__TerminalRecord *)copy;
    return 0;
}

static uint8_t *pack(const ProtobufCMessage *m, size_t *ret_n)
{
    *ret_n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = cl_zalloc(*ret_n);
    if (bytes)
        (void)protobuf_c_message_pack(m, bytes);
    return bytes;
}

struct books_hold unit_hold(const struct unit *u)
{
    return (struct books_hold){u->tenant->name, u->id, u->lease, u->fence};
}

static void acknowledge(struct unit *u)
{
    struct worker *w = unit_worker(u);
    Cloche__V1__EndedAck ack = CLOCHE__V1__ENDED_ACK__INIT;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    ack.lease_id = u->lease;
    ack.fence = u->fence;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_ENDED_ACK;
    m.ended_ack = &ack;
    if (w)
        (void)!worker_send(w, &m, NULL); /* unsent: the worker reports again at its next Hello */
}

/* Unknown outcome for 15 s: the worker reports again, or the lease expires.  That of one that is
 * kept may last for days: the books are told again. */
static void not_settled(struct unit *u, const struct cl_err *err)
{
    log_event(LOG_REDIS_DOWN, "unit=%s text='%s'", u->id, err->text);
    if (u->kept_until_ns && err->code != CL_E_NOTFOUND)
        cl_timer_start(&u->timer, BOOKS_WAIT_MS * CL_NS_PER_MS);
    else
        u->phase = PHASE_RUNNING;
}

static void on_settled(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct unit *u = arg;
    if (err) {
        not_settled(u, err);
        return;
    }
    acknowledge(u);
    if (verdict == BOOKS_STALE) {
        const struct audit_field fields[] = {AUDIT_NUM("fence", u->fence),
                                             AUDIT_STR("lease", u->lease), AUDIT_STR("unit", u->id),
                                             AUDIT_STR("worker", u->worker_id)};
        unit_emit(u, AUDIT_UNIT_STALE, fields, CL_COUNT(fields));
        u->phase = PHASE_RUNNING; /* the reaper decides */
        return;
    }
    become_ended(u);
}

/* Of its end, as u->terminal has it. */
static void tell_books(struct unit *u)
{
    struct cl_err err = {0};
    size_t n;
    uint8_t *bytes = pack(&u->terminal->base, &n);
    struct books_hold hold = unit_hold(u);
    struct books_end end = {.cpu_ms = u->end_cpu_ms,
                            .egress_bytes = u->end_egress,
                            .outcome = (uint8_t)u->terminal->result->outcome,
                            .terminal = bytes,
                            .terminal_n = bytes ? n : 0};
    if (!bytes || books_finish(u->sched->books, &hold, &end, on_settled, u, &err) < 0)
        not_settled(u, &err);
    cl_free(bytes);
}

static void settle(struct unit *u, const Cloche__V1__ExecResult *result,
                   const Cloche__V1__UnitEnded *m)
{
    struct cl_err err = {0};
    cl_timer_stop(&u->timer);
    u->phase = PHASE_SETTLING;
    u->end_cpu_ms = m ? m->cpu_ms : 0;
    u->end_egress = m ? m->sent_bytes : 0;
    if (make_terminal(u, result, m, &err) == 0) {
        tell_books(u);
        return;
    }
    log_event(LOG_REDIS_DOWN, "unit=%s text='%s'", u->id, err.text);
    u->phase = PHASE_RUNNING;
}

static void on_end_unleased(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct unit *u = arg;
    if (err || verdict == BOOKS_STALE) { /* try again: nothing else will end it */
        u->phase = PHASE_QUEUED;
        cl_timer_start(&u->timer, BOOKS_WAIT_MS * CL_NS_PER_MS);
        return;
    }
    become_ended(u);
}

void unit_end_queued(struct unit *u, Cloche__V1__Outcome outcome, Cloche__V1__Reason reason,
                     const char *message)
{
    struct cl_err err = {0};
    Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
    r.outcome = outcome;
    r.reason = reason;
    r.message = (char *)(uintptr_t)message;
    fairq_remove(u->sched->queue, &u->item);
    u->phase = PHASE_SETTLING;
    size_t n;
    uint8_t *bytes = make_terminal(u, &r, NULL, &err) == 0 ? pack(&u->terminal->base, &n) : NULL;
    struct books_end end = {
        .outcome = (uint8_t)outcome, .terminal = bytes, .terminal_n = bytes ? n : 0};
    if (!bytes || books_end_unleased(u->sched->books, u->tenant->name, u->id, &end, on_end_unleased,
                                     u, &err) < 0)
        on_end_unleased(BOOKS_STALE, &err, u);
    cl_free(bytes);
}

void unit_withdraw(struct unit *u, const char *why)
{
    Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
    r.outcome = CLOCHE__V1__OUTCOME__OUTCOME_FAILED;
    r.reason = CLOCHE__V1__REASON__REASON_REQUESTED;
    r.message = (char *)(uintptr_t)why;
    if (u->phase == PHASE_QUEUED) {
        unit_end_queued(u, r.outcome, r.reason, why);
        return;
    }
    worker_room_return(u->sched, u->worker_id, u->need);
    settle(u, &r, NULL);
}

/* --- back to the queue ------------------------------------------------------------------------ */

static void wait_a_moment(struct unit *u, uint64_t ms)
{
    u->phase = PHASE_QUEUED;
    cl_timer_start(&u->timer, ms * CL_NS_PER_MS);
}

static void arm_queue_deadline(struct unit *u)
{
    uint64_t deadline = u->record->queue_deadline_unix_ns, now = cl_wall_ns();
    if (deadline)
        cl_timer_start(&u->timer, deadline > now ? deadline - now : 0);
}

static void put_back(struct unit *u)
{
    struct cl_err err = {0};
    u->phase = PHASE_QUEUED;
    if (!fairq_item_is_queued(&u->item) &&
        fairq_requeue(u->sched->queue, u->tenant->name, &u->item, &err) < 0)
        wait_a_moment(u, REFUSED_WAIT_MS);
    else if (!was_held(u))
        arm_queue_deadline(u);
    units_dispatch_soon(u->sched);
}

static void on_requeued(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct unit *u = arg;
    if (err || verdict == BOOKS_STALE) {
        if (err)
            log_event(LOG_REDIS_DOWN, "unit=%s text='%s'", u->id, err->text);
        u->phase = PHASE_RUNNING; /* the lease runs out, then the reaper brings it back */
        return;
    }
    acknowledge(u);
    u->started = false;
    u->worker_id[0] = '\0';
    unit_tell(u);
    if (u->cancel) {
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED,
                        CLOCHE__V1__REASON__REASON_REQUESTED, "cancelled");
        return;
    }
    if (u->refusals > 0 && u->refusals % SCHED_TRIES == 0)
        wait_a_moment(u, REFUSED_WAIT_MS);
    else
        put_back(u);
}

/* used: what its attempt took; NULL = nothing that anybody knows of. */
static void requeue(struct unit *u, const char *why, const struct books_end *used)
{
    struct cl_err err = {0};
    struct books_hold hold = unit_hold(u);
    u->phase = PHASE_SETTLING;
    metrics_add(u->sched->metrics, METRIC_UNITS_REQUEUED, NULL, NULL, 1);
    log_event(LOG_JOB_REQUEUED, "unit=%s attempt=%u text='%s'", u->id, u->attempt, why);
    const struct audit_field fields[] = {AUDIT_NUM("attempt", u->attempt),
                                         AUDIT_NUM("fence", u->fence), AUDIT_STR("reason", why),
                                         AUDIT_STR("unit", u->id)};
    unit_emit(u, AUDIT_UNIT_REQUEUE, fields, CL_COUNT(fields));
    if (books_requeue(u->sched->books, &hold, used, on_requeued, u, &err) < 0)
        on_requeued(BOOKS_STALE, &err, u);
}

/* May a unit that lost its worker be started once more? */
static bool may_retry(const struct unit *u, bool code_started)
{
    uint32_t max = u->record->spec->max_attempts;
    if (u->kind != BOOKS_JOB || u->cancel)
        return false;
    return code_started ? max > u->attempt
                        : (max ? CL_MAX(max, (uint32_t)1) : DEFAULT_ATTEMPTS) > u->attempt;
}

/* --- dispatch --------------------------------------------------------------------------------- */

void units_dispatch_soon(struct sched *s)
{
    if (!cl_timer_is_armed(&s->kick))
        cl_timer_start(&s->kick, 0);
}

void unit_sizes(const struct unit *u, Cloche__V1__Resources *ret)
{
    const Cloche__V1__Resources *asked = u->record->spec->resources;
    cloche__v1__resources__init(ret);
    if (u->kind == BOOKS_SNAPSHOT && asked) { /* which holds no such quota */
        ret->vcpus = asked->vcpus;
        ret->memory_mib = asked->memory_mib;
    } else {
        ret->vcpus = (uint32_t)(u->need[BOOKS_VCPU] / 1000);
        ret->memory_mib = (uint32_t)u->need[BOOKS_MEM];
    }
    ret->disk_mib = asked ? asked->disk_mib : 0;
}

void unit_assignment(const struct unit *u, struct assignment *o)
{
    const Cloche__V1__JobSpec *spec = u->record->spec;
    Cloche__V1__Assign *a = &o->m;
    cloche__v1__assign__init(a);
    unit_sizes(u, &o->resources);
    a->kind = (Cloche__V1__UnitKind)u->kind; /* the same numbers */
    a->tenant = u->tenant->name;
    a->unit_id = (char *)(uintptr_t)u->id;
    a->lease_id = (char *)(uintptr_t)u->lease;
    a->fence = u->fence;
    a->attempt = u->attempt;
    a->template_ = spec->template_;
    a->resources = &o->resources;
    a->command = spec->command;
    a->ttl_ns = u->record->ttl_ns;
    a->pause_on_idle = u->record->pause_on_idle;
    a->traceparent = u->record->traceparent;
    a->guest_separation = tenant_separation(u->tenant);
    a->count_calls = u->tenant->limits.count_calls != 0;
    a->fork_of = u->record->fork_of;
    a->fork_moment = u->record->fork_moment;
    if (spec->network_grant && u->kind != BOOKS_SNAPSHOT) {
        o->grant = *spec->network_grant;
        o->grant.egress_bytes = u->need[BOOKS_EGRESS];
        a->network_grant = &o->grant;
    }
}

static int send_assign(struct unit *u, struct worker *w, struct cl_err *err)
{
    struct assignment a;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    unit_assignment(u, &a);
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_ASSIGN;
    m.assign = &a.m;
    return worker_send(w, &m, err);
}

static void block_tenant(struct unit *u, uint64_t retry_ms)
{
    uint64_t ms = retry_ms ? CL_MIN(retry_ms, (uint64_t)QUOTA_WAIT_MAX_MS) : QUOTA_WAIT_MAX_MS;
    u->tenant->blocked_until_ns = cl_now_ns() + ms * CL_NS_PER_MS;
    fairq_block(u->sched->queue, u->tenant->name);
    cl_timer_start(&u->sched->kick, CL_MIN(ms, (uint64_t)50) * CL_NS_PER_MS);
}

static void not_reserved(struct unit *u, const struct cl_err *err)
{
    struct cl_err bad = {0};
    if (err->code == CL_E_QUOTA && u->refuse_over_quota) {
        u->refused = *err;
        if (u->refused.retry_ms == 0) /* nobody knows when something ends; then is a good time */
            u->refused.retry_ms = QUOTA_WAIT_MAX_MS;
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED,
                        CLOCHE__V1__REASON__REASON_REQUESTED, err->text);
        return;
    }
    if (err->code == CL_E_CANCELLED || err->code == CL_E_STATE || err->code == CL_E_NOTFOUND) {
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED,
                        CLOCHE__V1__REASON__REASON_REQUESTED, "cancelled");
        return;
    }
    u->phase = PHASE_QUEUED;
    if (fairq_unpop(u->sched->queue, u->tenant->name, &u->item, &bad) < 0) {
        wait_a_moment(u, BOOKS_WAIT_MS);
        return;
    }
    if (err->code == CL_E_QUOTA)
        block_tenant(u, err->retry_ms);
    else
        cl_timer_start(&u->sched->kick, BOOKS_WAIT_MS * CL_NS_PER_MS);
}

int unit_reserved(struct unit *u, const struct unit_lease *lease, struct cl_err *err)
{
    u->phase = PHASE_RESERVING;
    u->fence = lease->fence;
    u->attempt = lease->attempt;
    (void)snprintf(u->worker_id, sizeof u->worker_id, "%s", lease->worker);
    return unit_set_lease(u, lease->id, err);
}

void unit_assign(struct unit *u)
{
    struct sched *s = u->sched;
    struct cl_err bad = {0};
    struct worker *w = unit_worker(u);
    const struct audit_field fields[] = {
        AUDIT_NUM("attempt", u->attempt), AUDIT_NUM("fence", u->fence),
        AUDIT_STR("lease", u->lease), AUDIT_STR("unit", u->id), AUDIT_STR("worker", u->worker_id)};
    unit_emit(u, AUDIT_UNIT_DISPATCH, fields, CL_COUNT(fields));
    u->phase = PHASE_ASSIGNING;
    if (u->cancel || !w || send_assign(u, w, &bad) < 0) {
        worker_room_return(s, u->worker_id, u->need);
        requeue(u, u->cancel ? "cancelled" : "its worker left", NULL);
        return;
    }
    u->driver[0] = '\0'; /* what ran the attempt before says nothing of this one */
    u->separation = CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_UNSPECIFIED;
    if (u->attempt == 1 && cl_wall_ns() > u->created_ns)
        metrics_observe(s->metrics, METRIC_QUEUE_SECONDS, NULL, NULL, cl_wall_ns() - u->created_ns);
    log_event(LOG_JOB_DISPATCHED, "unit=%s tenant=%s worker=%s attempt=%u", u->id, u->tenant->name,
              w->id, u->attempt);
    unit_tell(u);
}

static void on_reserved(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    struct unit *u = arg;
    struct sched *s = u->sched;
    s->reserving--;
    units_dispatch_soon(s);
    if (err) {
        worker_room_return(s, u->worker_id, u->need);
        u->worker_id[0] = '\0';
        not_reserved(u, err);
        return;
    }
    u->fence = res->fence;
    u->attempt = res->attempt;
    unit_assign(u);
}

static bool may_go(const char *tenant, const struct fairq_item *head, void *arg)
{
    (void)head;
    struct sched *s = arg;
    const struct tenant *t = cl_map_get(s->tenants, tenant);
    return t && cl_now_ns() >= t->blocked_until_ns;
}

static void unblock_due(struct sched *s)
{
    size_t at = 0;
    for (struct tenant *t; (t = cl_map_next(s->tenants, &at, NULL)) != NULL;) {
        if (t->blocked_until_ns && cl_now_ns() >= t->blocked_until_ns) {
            t->blocked_until_ns = 0;
            fairq_unblock(s->queue, t->name);
        } else if (t->blocked_until_ns && !cl_timer_is_armed(&s->kick)) {
            cl_timer_start(&s->kick, 20 * CL_NS_PER_MS);
        }
    }
}

static bool is_fork(const struct unit *u)
{
    return u->record->fork_of[0] != '\0';
}

/* One that can be on one worker only would keep all others waiting: it stands aside for a moment, a
 * job as often as it takes, others for as long as a worker's word on its room may be late. */
static void pass_fork(struct unit *u)
{
    bool waits = u->kind == BOOKS_JOB ||
                 cl_wall_ns() - u->created_ns < FORK_WAIT_MS * (uint64_t)CL_NS_PER_MS;
    if (waits && unit_find(u->sched, u->tenant->name, u->record->fork_of)) {
        wait_a_moment(u, REFUSED_WAIT_MS);
        return;
    }
    (void)cl_fail(&u->refused, CL_E_UNAVAILABLE, 0,
                  "its worker has no room for a copy of '%.40s' now, or has not got it any more",
                  u->record->fork_of);
    unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED, CLOCHE__V1__REASON__REASON_REQUESTED,
                    u->refused.text);
}

/* Reserve for the unit on a worker that has room; false = it stays where it is. */
static bool dispatch_one(struct sched *s, struct unit *u)
{
    struct cl_err err = {0};
    struct worker *w = is_fork(u) ? worker_place_fork(s, u->tenant, u->record->fork_of, u->need)
                                  : worker_place(s, u->tenant, u->record->spec->template_, u->need);
    if (!w && is_fork(u)) {
        pass_fork(u);
        return true;
    }
    if (!w)
        return false;
    char lease[CL_ID_MAX];
    cl_id_new("lease", lease);
    if (unit_set_lease(u, lease, &err) < 0)
        return false;
    (void)snprintf(u->worker_id, sizeof u->worker_id, "%s", w->id);
    struct books_reserve req = {u->tenant->name, u->id, u->lease, w->id,
                                s->o->lease_ttl / CL_NS_PER_MS};
    if (books_reserve(s->books, &req, on_reserved, u, &err) < 0)
        return false;
    u->phase = PHASE_RESERVING;
    s->reserving++;
    worker_room_take(w, u->tenant, worker_warm_template(u->record), u->need);
    return true;
}

void on_dispatch(void *sched)
{
    struct sched *s = sched;
    if (!books_is_ready(s->books) || !s->recovered)
        return;
    unblock_due(s);
    while (s->reserving < RESERVING_MAX) {
        struct fairq_item *item = fairq_pop(s->queue, may_go, s);
        if (!item)
            return;
        struct unit *u = CL_CONTAINER(item, struct unit, item);
        struct cl_err err = {0};
        if (dispatch_one(s, u))
            continue;
        /* No room: the head waits for it, and nobody overtakes the fairest. */
        if (fairq_unpop(s->queue, u->tenant->name, &u->item, &err) < 0)
            wait_a_moment(u, REFUSED_WAIT_MS);
        return;
    }
}

/* --- what workers say --------------------------------------------------------------------------
 */

void unit_assigned(struct unit *u, const Cloche__V1__AssignAnswer *m, struct worker *w)
{
    (void)w;
    if (u->phase != PHASE_ASSIGNING || m->fence != u->fence)
        return;
    if (!m->refused[0]) {
        u->phase = PHASE_RUNNING;
        if (u->cancel)
            unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
        unit_tell(u);
        return;
    }
    if (m->permanent || (is_fork(u) && u->kind != BOOKS_JOB)) { /* nobody else can make a copy */
        Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
        r.outcome = CLOCHE__V1__OUTCOME__OUTCOME_FAILED;
        r.reason = is_fork(u) ? CLOCHE__V1__REASON__REASON_START_FAILED
                              : CLOCHE__V1__REASON__REASON_NO_TEMPLATE;
        r.message = m->refused;
        settle(u, &r, NULL);
        return;
    }
    u->refusals++;
    requeue(u, m->refused, NULL);
}

static void on_marked(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    (void)verdict, (void)err, (void)arg; /* what follows, a pause or its end, says it again */
}

void unit_mark_started(struct unit *u)
{
    Cloche__V1__StartRecord m = CLOCHE__V1__START_RECORD__INIT;
    struct books_hold hold = unit_hold(u);
    struct books_start start;
    m.version = 1;
    m.vm = u->vm;
    m.driver = u->driver;
    m.guest_separation = u->separation;
    uint8_t *bytes = pack(&m.base, &start.about_n);
    start.about = bytes;
    if (bytes)
        (void)!books_started(u->sched->books, &hold, &start, on_marked, NULL, NULL);
    cl_free(bytes);
}

static void emit_vm_start(struct unit *u, const Cloche__V1__UnitStarted *m)
{
    const Cloche__V1__NetworkGrant *grant = u->record->spec->network_grant;
    const char *allow[NET_RULES_MAX];
    size_t n = grant ? CL_MIN(grant->n_allow, CL_COUNT(allow)) : 0;
    for (size_t i = 0; i < n; i++)
        allow[i] = grant->allow[i];
    const char *calls = m->calls[0] ? m->calls : "not counted: its worker is too old";
    const struct audit_field fields[] = {
        AUDIT_STR("calls", u->tenant->limits.count_calls ? calls : NULL),
        AUDIT_STR("driver", u->driver),
        AUDIT_STR("guest_separation", separation_name(u->separation)),
        AUDIT_STR("image_sha256", m->image_key),
        AUDIT_NUM("memory_mib", u->need[BOOKS_MEM]),
        AUDIT_STR("monitor_build", m->monitor_build[0] ? m->monitor_build : NULL),
        AUDIT_STR("monitor_sha256", m->monitor_sha256[0] ? m->monitor_sha256 : NULL),
        AUDIT_STR("network", n > 0 ? "granted" : "none"),
        AUDIT_STR("snapshot", m->snapshot_key[0] ? m->snapshot_key : NULL),
        AUDIT_STR("source", m->source),
        AUDIT_STR("unit", u->id),
        AUDIT_STR("unwatched", m->unwatched[0] ? m->unwatched : NULL),
        AUDIT_NUM("vcpu_milli", u->need[BOOKS_VCPU]),
        AUDIT_STR("vm", u->vm),
        AUDIT_NUM("egress_bytes", u->need[BOOKS_EGRESS]),
        AUDIT_LIST("network_allow", allow, n),
    };
    unit_emit(u, AUDIT_VM_START, fields, CL_COUNT(fields) - (n > 0 ? 0 : 2));
}

static void emit_vm_end(struct unit *u, const Cloche__V1__UnitEnded *m)
{
    uint64_t now = cl_wall_ns();
    const struct audit_field fields[] = {
        AUDIT_NUM("cpu_ms", m->cpu_ms),
        AUDIT_STR("reason", reason_name(m->result->reason)),
        AUDIT_STR("unit", u->id),
        AUDIT_STR("vm", u->vm),
        AUDIT_NUM("wall_ms", u->started_wall_ns && now > u->started_wall_ns
                                 ? (now - u->started_wall_ns) / CL_NS_PER_MS
                                 : 0),
        AUDIT_NUM("received_bytes", m->received_bytes),
        AUDIT_NUM("sent_bytes", m->sent_bytes),
    };
    if (u->vm[0])
        unit_emit(u, AUDIT_VM_END, fields,
                  CL_COUNT(fields) - (u->record->spec->network_grant ? 0 : 2));
    u->vm[0] = '\0';
}

void unit_started(struct unit *u, const Cloche__V1__UnitStarted *m)
{
    if (m->fence != u->fence || u->phase > PHASE_RUNNING || u->started)
        return; /* workers repeat it after each Hello */
    u->phase = PHASE_RUNNING;
    u->started = true;
    u->started_wall_ns = cl_wall_ns();
    if (u->kind != BOOKS_SNAPSHOT)
        (void)snprintf(u->vm, sizeof u->vm, "%s", m->vm);
    (void)snprintf(u->driver, sizeof u->driver, "%s", m->driver);
    u->separation = m->guest_separation;
    if (u->record->ttl_ns)
        u->expires_wall_ns = u->started_wall_ns + u->record->ttl_ns;
    unit_mark_started(u);
    const struct audit_field fields[] = {AUDIT_NUM("attempt", u->attempt),
                                         AUDIT_NUM("fence", u->fence), AUDIT_STR("unit", u->id),
                                         AUDIT_STR("worker", u->worker_id)};
    unit_emit(u, AUDIT_UNIT_START, fields, CL_COUNT(fields));
    if (u->kind != BOOKS_SNAPSHOT) /* that has no VM */
        emit_vm_start(u, m);
    else if (m->rest)
        unit_begins_at_rest(u, m->rest);
    unit_tell(u);
}

void unit_ended(struct unit *u, const Cloche__V1__UnitEnded *m, struct worker *w)
{
    if (u->phase == PHASE_SETTLING || u->phase == PHASE_ENDED)
        return; /* a repeated report */
    if (m->fence != u->fence || strcmp(m->lease_id, u->lease) != 0)
        return;
    if (u->moving) {
        move_note_end(u->moving, m);
        return;
    }
    (void)snprintf(u->worker_id, sizeof u->worker_id, "%s", w->id);
    emit_vm_end(u, m);
    struct books_end used = {.cpu_ms = m->cpu_ms, .egress_bytes = m->sent_bytes};
    Cloche__V1__Reason reason = m->result->reason;
    bool ours = reason == CLOCHE__V1__REASON__REASON_WORKER_LOST ||
                reason == CLOCHE__V1__REASON__REASON_VM_DIED ||
                reason == CLOCHE__V1__REASON__REASON_START_FAILED;
    if (ours && may_retry(u, m->code_started))
        requeue(u, m->result->message, &used);
    else
        settle(u, m->result, m);
}

void unit_lost(struct unit *u)
{
    if ((u->phase != PHASE_ASSIGNING && u->phase != PHASE_RUNNING) || u->moving)
        return;
    if (may_retry(u, u->started)) {
        requeue(u, "its worker came back without it", NULL);
        return;
    }
    Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
    static char text[] = "its worker or host died",
                came_back[] = "it was at rest, and its worker came back without it";
    r.outcome =
        u->cancel ? CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED : CLOCHE__V1__OUTCOME__OUTCOME_FAILED;
    r.reason = CLOCHE__V1__REASON__REASON_WORKER_LOST;
    r.message = u->paused ? came_back : text;
    settle(u, &r, NULL);
}

void unit_reaped(struct unit *u)
{
    metrics_add(u->sched->metrics, METRIC_UNITS_REAPED, NULL, NULL, 1);
    if (u->phase == PHASE_SETTLING || u->phase == PHASE_QUEUED || u->phase == PHASE_ENDED)
        return;
    if (may_retry(u, u->started)) {
        requeue(u, "its lease expired", NULL);
        return;
    }
    unit_end_queued(
        u, u->cancel ? CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED : CLOCHE__V1__OUTCOME__OUTCOME_FAILED,
        CLOCHE__V1__REASON__REASON_WORKER_LOST,
        u->paused ? "it was at rest, and its worker did not come back" : "its worker or host died");
}

/* --- what clients say --------------------------------------------------------------------------
 */

static void send_end(const struct unit *u, struct worker *w, Cloche__V1__Reason reason)
{
    Cloche__V1__EndUnit end = CLOCHE__V1__END_UNIT__INIT;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    end.lease_id = (char *)(uintptr_t)u->lease;
    end.fence = u->fence;
    end.reason = reason;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_END;
    m.end = &end;
    (void)!worker_send(w, &m, NULL);
}

void unit_expire(struct unit *u)
{
    struct worker *w = unit_worker(u);
    if (u->phase == PHASE_RUNNING && w)
        send_end(u, w, CLOCHE__V1__REASON__REASON_EXPIRED);
}

/* Paused, as surely as can be, and nobody is there who would end it. */
static bool rests_alone(const struct unit *u)
{
    return u->phase == PHASE_RUNNING && u->paused && (u->kept_until_ns || !u->rest_unsure) &&
           !unit_worker(u);
}

/* Its lease is gone with that: its worker drops it when it comes back. */
static void end_alone(struct unit *u, Cloche__V1__Reason reason)
{
    static char text[] = "ended on request while its worker was away";
    Cloche__V1__ExecResult r = CLOCHE__V1__EXEC_RESULT__INIT;
    r.outcome = CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED;
    r.reason = reason;
    r.message = text;
    settle(u, &r, NULL);
}

void unit_cancel(struct unit *u, Cloche__V1__Reason reason)
{
    u->cancel = true;
    if (u->moving)
        return; /* move.c looks at the flag */
    if (u->phase == PHASE_QUEUED) {
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED, reason, "cancelled");
        return;
    }
    struct worker *w = unit_worker(u);
    if (u->phase == PHASE_RUNNING && w)
        send_end(u, w, reason);
    else if (rests_alone(u))
        end_alone(u, reason);
    /* else on_reserved(), unit_assigned() and the reaper look at the flag */
}

static const char *why_it_waited(const struct unit *u)
{
    if (!worker_any_for(u->sched, u->tenant))
        return "it waited in the queue until its deadline: its tenant wants isolated guests, and "
               "no "
               "worker has them (--guest-separation of `cloche tenant create`)";
    if (u->need[BOOKS_EGRESS] > 0 && !worker_any_network(u->sched))
        return "it waited in the queue until its deadline: no worker gives network to its VMs "
               "(--network of cloche-worker)";
    return "it waited in the queue until its deadline";
}

static void on_unit_timer(void *arg)
{
    struct unit *u = arg;
    if (u->phase == PHASE_ENDED) {
        if (cl_list_empty(&u->followers))
            free_unit(u);
        return;
    }
    if (u->phase == PHASE_SETTLING && u->kept_until_ns)
        tell_books(u);
    if (u->phase != PHASE_QUEUED)
        return;
    uint64_t deadline = u->record->queue_deadline_unix_ns, now = cl_wall_ns();
    if (u->cancel)
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED,
                        CLOCHE__V1__REASON__REASON_REQUESTED, "cancelled");
    else if (deadline && now >= deadline && !was_held(u))
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED,
                        CLOCHE__V1__REASON__REASON_QUEUE_DEADLINE, why_it_waited(u));
    else
        put_back(u);
}

/* --- birth -------------------------------------------------------------------------------------
 */

int unit_new(struct sched *s, struct tenant *t, const char *id, enum books_kind kind,
             Cloche__V1__UnitRecord *record, struct unit **ret_unit, struct cl_err *err)
{
    struct unit *u = cl_zalloc(sizeof *u);
    if (!u)
        return cl_fail(err, CL_E_NOMEM, 0, "unit");
    u->sched = s;
    u->tenant = t;
    u->kind = kind;
    u->phase = PHASE_QUEUED;
    u->created_ns = cl_wall_ns();
    cl_list_init(&u->followers);
    fairq_item_init(&u->item, 1);
    (void)snprintf(u->id, sizeof u->id, "%s", id);
    if (cl_timer_init(&u->timer, s->loop, on_unit_timer, u, err) < 0 ||
        cl_map_put(s->units, id, u, err) < 0) {
        cl_timer_fini(&u->timer);
        cl_free(u);
        return -1;
    }
    u->record = record; /* ours from here on */
    t->n_units++;
    *ret_unit = u;
    return 0;
}

int unit_enqueue(struct unit *u, bool restore, struct cl_err *err)
{
    struct sched *s = u->sched;
    int rc = restore ? fairq_restore(s->queue, u->tenant->name, &u->item, err)
                     : fairq_push(s->queue, u->tenant->name, &u->item, err);
    if (rc < 0)
        return -1;
    arm_queue_deadline(u);
    units_dispatch_soon(s);
    return 0;
}

void units_free_all(struct sched *s)
{
    size_t at = 0;
    for (struct unit *u; (u = cl_map_next(s->units, &at, NULL)) != NULL;)
        free_unit(u);
}
