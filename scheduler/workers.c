/* scheduler/workers.c - the workers' sessions, placement, and commands that wait for an answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "scheduler/drain.h"
#include "scheduler/ends.h"
#include "scheduler/place.h"
#include "scheduler/relays.h"

enum {
    PROTOCOL_MAJOR = 1,
    PROTOCOL_MINOR = WORKER_MINOR_RECEIPTS,
    REQUEST_KEY = 24,
    HELLO_UNITS_MAX = 1000,
    MOVE_CHOICES = 64, /* of these the best */
};

int worker_send(struct worker *w, Cloche__V1__SessionResponse *m, struct cl_err *err)
{
    if (!w->call)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the worker is not connected");
    return rpc_call_send(w->call, &m->base, err);
}

/* --- placement -------------------------------------------------------------------------------- */

/* A guest whose user code can reach its kernel is for tenants that said so. */
static bool may_have(const struct tenant *t, Cloche__V1__GuestSeparation separation)
{
    return separation != CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED ||
           tenant_separation(t) == separation;
}

static bool is_for(const struct worker *w, const struct tenant *t)
{
    return may_have(t, w->separation);
}

bool worker_any_for(struct sched *s, const struct tenant *t)
{
    size_t at = 0;
    bool connected = false;
    for (struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;) {
        if (w->call && is_for(w, t))
            return true;
        connected |= w->call != NULL;
    }
    return !connected;
}

bool worker_any_network(struct sched *s)
{
    size_t at = 0;
    bool connected = false;
    for (struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;) {
        if (w->call && w->network)
            return true;
        connected |= w->call != NULL;
    }
    return !connected;
}

static bool fits(const struct worker *w, const uint64_t *need)
{
    return w->call && !w->closed[0] && (need[BOOKS_EGRESS] == 0 || w->network) &&
           (need[BOOKS_SANDBOXES] == 0 || w->used_slots < w->slots) &&
           w->used_vcpu + need[BOOKS_VCPU] <= w->cap_vcpu &&
           w->used_mem + need[BOOKS_MEM] <= w->cap_mem;
}

/* Its template of that name that this tenant may have and that is made; best one with a warm VM. */
static struct worker_template *best_template(struct worker *w, const struct tenant *tenant,
                                             const char *name)
{
    struct worker_template *best = NULL;
    for (size_t i = 0; i < w->n_templates; i++) {
        struct worker_template *t = &w->templates[i];
        bool is_it = !t->building && strcmp(t->name, name) == 0 && may_have(tenant, t->separation);
        if (is_it && (!best || (t->warm && !best->warm)))
            best = t;
    }
    return best;
}

/* Dominant share after the unit, in thousandths; a warm VM of its template counts as less. */
static uint64_t score(struct worker *w, const struct tenant *tenant, const char *template,
                      const uint64_t *need)
{
    uint64_t vcpu = (w->used_vcpu + need[BOOKS_VCPU]) * 1000 / CL_MAX(w->cap_vcpu, (uint64_t)1);
    uint64_t mem = (w->used_mem + need[BOOKS_MEM]) * 1000 / CL_MAX(w->cap_mem, (uint64_t)1);
    const struct worker_template *t = best_template(w, tenant, template);
    return CL_MAX(vcpu, mem) + (!t ? 2000 : t->warm ? 0 : 1000);
}

struct worker *worker_place(struct sched *s, const struct tenant *t, const char *template,
                            const uint64_t *need)
{
    struct worker *best = NULL;
    uint64_t best_score = UINT64_MAX;
    size_t at = 0;
    for (struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;) {
        uint64_t sc = is_for(w, t) && fits(w, need) ? score(w, t, template, need) : UINT64_MAX;
        if (sc < best_score) {
            best = w;
            best_score = sc;
        }
    }
    return best;
}

struct worker *worker_place_fork(struct sched *s, const struct tenant *t, const char *of,
                                 const uint64_t *need)
{
    const struct unit *u = unit_find(s, t->name, of);
    struct worker *w = u && u->phase == PHASE_RUNNING ? unit_worker(u) : NULL;
    return w && w->forks && is_for(w, t) && may_have(t, u->separation) && fits(w, need) ? w : NULL;
}

/* Has it what this sandbox's VM was made from?  Whether of the same snapshot, it says itself. */
static bool has_its_template(const struct worker *w, const struct unit *u)
{
    for (size_t i = 0; i < w->n_templates; i++) {
        const struct worker_template *t = &w->templates[i];
        if (!t->building && strcmp(t->name, u->record->spec->template_) == 0 &&
            strcmp(t->driver, u->driver) == 0 && t->separation == u->separation)
            return true;
    }
    return false;
}

static bool can_take(const struct worker *w, const struct unit *u, bool runs)
{
    return w->call && w->minor >= WORKER_MINOR_MOVE && !w->closed[0] && !w->draining &&
           strcmp(w->id, u->worker_id) != 0 && may_have(u->tenant, u->separation) &&
           has_its_template(w, u) && (u->need[BOOKS_EGRESS] == 0 || w->network) &&
           (!runs || fits(w, u->need));
}

struct choice {
    struct worker *w;
    uint64_t score;
};

static int by_score(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    return x->score != y->score ? x->score < y->score ? -1 : 1 : strcmp(x->w->id, y->w->id);
}

struct worker *worker_place_move(const struct unit *u, bool runs, unsigned skip)
{
    struct choice choices[MOVE_CHOICES];
    size_t at = 0, n = 0;
    for (struct worker *w; (w = cl_map_next(u->sched->workers, &at, NULL)) != NULL;) {
        if (n < MOVE_CHOICES && can_take(w, u, runs))
            choices[n++] =
                (struct choice){w, score(w, u->tenant, u->record->spec->template_, u->need)};
    }
    qsort(choices, n, sizeof choices[0], by_score);
    return skip < n ? choices[skip].w : NULL;
}

const char *worker_warm_template(const Cloche__V1__UnitRecord *record)
{
    return record->fork_of[0] ? "" : record->spec->template_;
}

void worker_room_take(struct worker *w, const struct tenant *tenant, const char *template,
                      const uint64_t *need)
{
    struct worker_template *t = best_template(w, tenant, template);
    if (t && t->warm)
        t->warm--;
    w->used_slots += need[BOOKS_SANDBOXES] > 0;
    w->used_vcpu += need[BOOKS_VCPU];
    w->used_mem += need[BOOKS_MEM];
}

void worker_room_return(struct sched *s, const char *worker_id, const uint64_t *need)
{
    struct worker *w = worker_id[0] ? cl_map_get(s->workers, worker_id) : NULL;
    if (!w)
        return;
    w->used_slots -= CL_MIN(w->used_slots, need[BOOKS_SANDBOXES] > 0);
    w->used_vcpu -= CL_MIN(w->used_vcpu, need[BOOKS_VCPU]);
    w->used_mem -= CL_MIN(w->used_mem, need[BOOKS_MEM]);
}

const struct worker_template *worker_template_find(const struct sched *s, const char *name)
{
    size_t at = 0;
    for (const struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;)
        for (size_t i = 0; i < w->n_templates; i++)
            if (strcmp(w->templates[i].name, name) == 0)
                return &w->templates[i];
    return NULL;
}

/* --- commands with an answer -------------------------------------------------------------------
 */

struct request {
    struct sched *s;
    char key[REQUEST_KEY];
    char worker_id[BOOKS_NAME];
    request_fn *fn; /* NULL = nobody waits for the answer */
    void *arg;
};

int worker_request(struct worker *w, Cloche__V1__ExecCommand *command, request_fn *fn, void *arg,
                   struct cl_err *err)
{
    struct sched *s = w->sched;
    struct request *r = cl_zalloc(sizeof *r);
    if (!r)
        return cl_fail(err, CL_E_NOMEM, 0, "request");
    command->request = ++s->next_request;
    *r = (struct request){.s = s, .fn = fn, .arg = arg};
    (void)snprintf(r->key, sizeof r->key, "%llu", (unsigned long long)command->request);
    (void)snprintf(r->worker_id, sizeof r->worker_id, "%s", w->id);
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_EXEC;
    m.exec = command;
    if (cl_map_put(s->requests, r->key, r, err) < 0) {
        cl_free(r);
        return -1;
    }
    if (worker_send(w, &m, err) < 0) {
        (void)cl_map_del(s->requests, r->key);
        cl_free(r);
        return -1;
    }
    return 0;
}

static void on_answer(struct sched *s, const Cloche__V1__ExecAnswer *a)
{
    char key[REQUEST_KEY];
    (void)snprintf(key, sizeof key, "%llu", (unsigned long long)a->request);
    struct request *r = cl_map_del(s->requests, key);
    if (!r)
        return;
    struct cl_err err = {0};
    if (a->code)
        (void)cl_fail(&err, cl_code_from_grpc((int)a->code), 0, "%s", a->message);
    if (a->code == 8)
        err.code = CL_E_TOOBIG;
    if (r->fn)
        r->fn(r->arg, a->code ? NULL : a, a->code ? &err : NULL);
    cl_free(r);
}

static void fail_requests(struct sched *s, const char *worker_id)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "the worker's connection broke");
    for (bool again = true; again;) { /* the map must not change while it is walked */
        size_t at = 0;
        again = false;
        for (struct request *r; (r = cl_map_next(s->requests, &at, NULL)) != NULL;) {
            if (strcmp(r->worker_id, worker_id) != 0)
                continue;
            (void)cl_map_del(s->requests, r->key);
            if (r->fn)
                r->fn(r->arg, NULL, &err);
            cl_free(r);
            again = true;
            break;
        }
    }
}

/* --- the session -------------------------------------------------------------------------------
 */

/* 0 = nothing can go there; more of it is better. */
static size_t offers(const struct worker *w)
{
    size_t ready = 0;
    for (size_t i = 0; i < w->n_templates; i++)
        ready += !w->templates[i].building;
    return w->closed[0] || w->draining ? 0 : 1 + ready;
}

static void take_load(struct worker *w, const Cloche__V1__WorkerLoad *l)
{
    size_t before = offers(w);
    w->cap_vcpu = l->capacity_vcpu_milli;
    w->cap_mem = l->capacity_memory_mib;
    w->used_vcpu = l->used_vcpu_milli;
    w->used_mem = l->used_memory_mib;
    w->slots = l->slots;
    w->used_slots = l->used_slots;
    (void)snprintf(w->closed, sizeof w->closed, "%s", l->closed);
    w->draining = l->draining;
    if (w->draining)
        drain_soon(w->sched);
    else
        w->drain_trouble[0] = '\0';
    w->n_templates = 0;
    for (size_t i = 0; i < l->n_templates && w->n_templates < SCHED_TEMPLATES_MAX; i++) {
        const Cloche__V1__WorkerTemplate *t = l->templates[i];
        struct worker_template *o = &w->templates[w->n_templates++];
        (void)snprintf(o->name, sizeof o->name, "%s", t->name);
        (void)snprintf(o->snapshot_key, sizeof o->snapshot_key, "%s", t->snapshot_key);
        (void)snprintf(o->verity_root, sizeof o->verity_root, "%s", t->verity_root);
        (void)snprintf(o->kernel, sizeof o->kernel, "%s", t->kernel);
        (void)snprintf(o->driver, sizeof o->driver, "%s", t->driver);
        (void)snprintf(o->image, sizeof o->image, "%s", t->image);
        o->separation = t->guest_separation;
        o->vcpus = t->default_vcpus;
        o->memory_mib = t->default_memory_mib;
        o->warm = t->warm;
        o->building = t->building;
    }
    if (offers(w) > before)
        drain_place_came(w->sched);
    units_dispatch_soon(w->sched);
}

/* What was sent to it and not reported yet is still there: count it on top of a report. */
void worker_count_pending(struct worker *w)
{
    size_t at = 0;
    CL_LIST_FOREACH (node, &w->sched->promises) {
        const struct room_promise *p = CL_LIST_ENTRY(node, struct room_promise, link);
        if (strcmp(p->worker, w->id) == 0)
            worker_room_take(w, p->tenant, p->template, p->need);
    }
    for (struct unit *u; (u = cl_map_next(w->sched->units, &at, NULL)) != NULL;) {
        bool pending = u->phase == PHASE_RESERVING || u->phase == PHASE_ASSIGNING;
        if (!pending || strcmp(u->worker_id, w->id) != 0)
            continue;
        worker_room_take(w, u->tenant, worker_warm_template(u->record), u->need);
    }
}

static int check_identity(struct sched *s, const struct rpc_call *call,
                          const Cloche__V1__WorkerHello *h, struct cl_err *err)
{
    const struct rpc_peer *peer = rpc_call_peer(call);
    if (h->protocol_major != PROTOCOL_MAJOR || h->protocol_minor_min > PROTOCOL_MINOR)
        return cl_fail(
            err, CL_E_PEER, 0,
            "worker speaks protocol %u.%u, this scheduler %d.%d: install the same release on both",
            h->protocol_major, h->protocol_minor_min, PROTOCOL_MAJOR, PROTOCOL_MINOR);
    if (!cl_id_is(h->worker_id, "wrk"))
        return cl_fail(err, CL_E_INVALID, 0, "'%.40s' is no worker id", h->worker_id);
    if (peer->is_unix && peer->uid != 0 && peer->uid != geteuid() &&
        peer->uid != (uid_t)s->o->worker_uid)
        return cl_fail(err, CL_E_DENIED, 0, "uid %u may not be a worker here (--worker-uid)",
                       peer->uid);
    if (!peer->is_unix && strcmp(peer->worker_id, h->worker_id) != 0)
        return cl_fail(err, CL_E_DENIED, 0, "the certificate is for worker '%s', not '%s'",
                       peer->worker_id, h->worker_id);
    return 0;
}

static void say_hello(struct worker *w)
{
    Cloche__V1__SchedulerHello h = CLOCHE__V1__SCHEDULER_HELLO__INIT;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    h.protocol_major = PROTOCOL_MAJOR;
    h.protocol_minor = w->minor;
    h.build = (char *)(uintptr_t)CLOCHE_VERSION;
    h.scheduler_id = w->sched->id;
    h.lease_ttl_ns = w->sched->o->lease_ttl;
    h.renew_every_ns = w->sched->o->renew_every;
    h.self_kill_ns = w->sched->o->self_kill;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_HELLO;
    m.hello = &h;
    (void)!worker_send(w, &m, NULL);
}

/* What it says of one; a process that was started anew knows no more than the books. */
static void note_unit(struct unit *u, const Cloche__V1__RunningUnit *r)
{
    if (r->driver[0]) {
        (void)snprintf(u->driver, sizeof u->driver, "%s", r->driver);
        u->separation = r->guest_separation;
    }
    if (r->expires_unix_ns)
        u->expires_wall_ns = r->expires_unix_ns;
}

/* Units that this worker runs and we had not linked to it (we restarted, it did not). */
static void adopt(struct worker *w, const Cloche__V1__WorkerHello *h)
{
    size_t at = 0;
    for (struct unit *u; (u = cl_map_next(w->sched->units, &at, NULL)) != NULL;) {
        bool here = u->phase == PHASE_ASSIGNING || u->phase == PHASE_RUNNING;
        if (strcmp(u->worker_id, w->id) == 0)
            u->unconfirmed = here && h->n_running < HELLO_UNITS_MAX;
    }
    w->greeting = true;
    for (size_t i = 0; i < h->n_running; i++) {
        const Cloche__V1__RunningUnit *r = h->running[i];
        struct unit *u = unit_find(w->sched, r->tenant, r->unit_id);
        if (!u || u->fence != r->fence || strcmp(u->lease, r->lease_id) != 0)
            continue;
        u->unconfirmed = false;
        (void)snprintf(u->worker_id, sizeof u->worker_id, "%s", w->id);
        note_unit(u, r);
        if (u->phase == PHASE_ASSIGNING)
            u->phase = PHASE_RUNNING;
        if (u->cancel)
            unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
        unit_rest_told(u, r);
        unit_tell(u);
    }
}

static void put_done(const struct cl_err *err, void *arg)
{
    (void)err, (void)arg; /* the registry is for people; the session is the truth */
}

static void on_hello(struct rpc_call *call, struct sched *s, const Cloche__V1__WorkerHello *h)
{
    struct cl_err err = {0};
    struct worker *w = NULL;
    int rc = check_identity(s, call, h, &err);
    if (rc == 0 && !s->recovered) {
        rc = cl_fail(&err, CL_E_UNAVAILABLE, 0, "the scheduler still reads its books");
        err.retry_ms = 500;
    }
    if (rc == 0) {
        w = cl_map_get(s->workers, h->worker_id);
        if (w && w->call &&
            w->call != call) { /* its old connection is not dead yet; the new one counts */
            struct rpc_call *old = w->call;
            w->call = NULL;
            rpc_call_set_user(old, NULL);
            rpc_call_finish(old, NULL);
            fail_requests(s, w->id); /* it answers what was asked in this session only */
            receipts_forget(w);
        }
        if (!w && (w = cl_zalloc(sizeof *w)) != NULL) {
            cl_list_init(&w->receipts);
            rc = cl_map_put(s->workers, h->worker_id, w, &err);
        } else if (!w) {
            rc = cl_fail(&err, CL_E_NOMEM, 0, "worker");
        }
    }
    if (rc < 0) {
        log_event(LOG_WORKER_REFUSED, "worker=%.40s text='%s'", h->worker_id, err.text);
        rpc_call_finish(call, &err);
        return;
    }
    w->sched = s;
    w->call = call;
    w->minor = CL_MIN(h->protocol_minor_max, (uint32_t)PROTOCOL_MINOR);
    w->separation = h->guest_separation;
    w->network = h->network;
    w->forks = h->forks;
    w->snapshots = h->snapshots;
    (void)snprintf(w->id, sizeof w->id, "%s", h->worker_id);
    (void)snprintf(w->driver, sizeof w->driver, "%s", h->driver);
    (void)snprintf(w->host, sizeof w->host, "%s", h->hostname);
    (void)snprintf(w->build, sizeof w->build, "%s", h->build);
    rpc_call_set_user(call, w);
    log_event(LOG_WORKER_UP, "worker=%s driver=%s host='%s' build=%s", w->id, w->driver, w->host,
              w->build);
    const struct audit_field fields[] = {
        AUDIT_STR("build", w->build), AUDIT_STR("driver", w->driver), AUDIT_STR("worker", w->id)};
    if (audit_emit(s->audit, NULL, AUDIT_WORKER_REGISTER, fields, CL_COUNT(fields), NULL, NULL,
                   &err) < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", err.text);
    (void)!books_worker_put(s->books, w->id, w->driver, strlen(w->driver), put_done, NULL, NULL);
    say_hello(w);
    adopt(w, h);
    if (h->load)
        take_load(w, h->load);
}

/* --- leases ------------------------------------------------------------------------------------
 */

static void note_running(struct worker *w, const Cloche__V1__RunningUnit *r)
{
    struct unit *u = unit_find_lease(w->sched, r->lease_id, r->fence);
    if (!u)
        return;
    note_unit(u, r);
    if (strcmp(u->worker_id, w->id) == 0)
        unit_rest_told(u, r);
}

struct renewal {
    struct sched *s;
    char worker_id[BOOKS_NAME];
    uint64_t asked_ns;
    size_t n;
    char (*leases)[CL_ID_MAX]; /* owned */
};

static void on_renewed(const uint8_t *held, size_t n, const struct cl_err *err, void *arg)
{
    struct renewal *r = arg;
    struct worker *w = cl_map_get(r->s->workers, r->worker_id);
    if (!err && w && w->call && n == r->n) {
        Cloche__V1__RenewAck ack = CLOCHE__V1__RENEW_ACK__INIT;
        Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
        char **kept = cl_zalloc_array(n, sizeof *kept), **lost = cl_zalloc_array(n, sizeof *lost);
        ack.lease_ids = kept;
        ack.lost_lease_ids = lost;
        ack.asked_ns = r->asked_ns;
        for (size_t i = 0; kept && lost && i < n; i++) {
            if (held[i])
                kept[ack.n_lease_ids++] = r->leases[i];
            else
                lost[ack.n_lost_lease_ids++] = r->leases[i];
        }
        m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_RENEW_ACK;
        m.renew_ack = &ack;
        (void)!worker_send(w, &m, NULL);
        cl_free(kept);
        cl_free(lost);
    }
    cl_free(r->leases);
    cl_free(r);
}

static void on_renew(struct worker *w, const Cloche__V1__RenewLeases *m)
{
    size_t n = CL_MIN(m->n_leases, (size_t)BOOKS_RENEW_MAX);
    struct renewal *r = cl_zalloc(sizeof *r);
    struct books_pair *pairs = cl_zalloc_array(n, sizeof *pairs);
    if (r)
        r->leases = cl_zalloc_array(n, sizeof *r->leases);
    if (!r || !pairs || !r->leases || n == 0)
        goto out_free;
    r->s = w->sched;
    r->n = n;
    r->asked_ns = m->asked_ns;
    (void)snprintf(r->worker_id, sizeof r->worker_id, "%s", w->id);
    for (size_t i = 0; i < n; i++) {
        note_running(w, m->leases[i]);
        (void)snprintf(r->leases[i], CL_ID_MAX, "%s", m->leases[i]->lease_id);
        pairs[i] =
            (struct books_pair){m->leases[i]->tenant, m->leases[i]->lease_id, m->leases[i]->fence};
    }
    if (books_renew(w->sched->books, pairs, n, w->sched->o->lease_ttl / CL_NS_PER_MS, on_renewed, r,
                    NULL) == 0)
        r = NULL;
out_free:
    if (r)
        cl_free(r->leases);
    cl_free(r);
    cl_free(pairs);
}

/* --- messages ----------------------------------------------------------------------------------
 */

static void ack_unknown(struct worker *w, const Cloche__V1__UnitEnded *e)
{
    Cloche__V1__EndedAck ack = CLOCHE__V1__ENDED_ACK__INIT;
    Cloche__V1__SessionResponse m = CLOCHE__V1__SESSION_RESPONSE__INIT;
    ack.lease_id = e->lease_id;
    ack.fence = e->fence;
    m.body_case = CLOCHE__V1__SESSION_RESPONSE__BODY_ENDED_ACK;
    m.ended_ack = &ack;
    (void)!worker_send(w, &m, NULL);
}

void worker_unit_ended(struct worker *w, const Cloche__V1__UnitEnded *e)
{
    struct unit *u = unit_find(w->sched, e->tenant, e->unit_id);
    if (!e->result)
        return;
    if (u && u->fence == e->fence && strcmp(u->lease, e->lease_id) == 0)
        unit_ended(u, e, w);
    else /* every unit that has not ended is in memory: this one has, or another attempt owns it */
        ack_unknown(w, e);
}

static void hex_of(const Cloche__V1__StreamTotal *t, char out[static 65])
{
    out[0] = '\0';
    if (t && t->sha256.len == 32)
        cl_hex(t->sha256.data, 32, out);
}

static void tell_exec_end(struct worker *w, const Cloche__V1__ExecChanged *c,
                          struct receipt *receipt)
{
    struct cl_err err = {0};
    const Cloche__V1__ExecResult *r = c->result;
    char out[65], errs[65];
    hex_of(r->stdout, out);
    hex_of(r->stderr, errs);
    const struct audit_field fields[] = {
        AUDIT_STR("exec", c->exec_id),
        AUDIT_NUM("exit", (uint64_t)(uint32_t)r->exit_code),
        AUDIT_STR("outcome", outcome_name(r->outcome)),
        AUDIT_NUM("signal", (uint64_t)(uint32_t)r->signal),
        AUDIT_NUM("stderr_bytes", r->stderr ? r->stderr->bytes : 0),
        AUDIT_STR("stderr_sha256", errs),
        AUDIT_NUM("stdout_bytes", r->stdout ? r->stdout->bytes : 0),
        AUDIT_STR("stdout_sha256", out),
        AUDIT_STR("unit", c->unit_id),
        AUDIT_BOOL("again", true),
    };
    size_t n = CL_COUNT(fields) - (c->again ? 0 : 1);
    if (receipt && audit_emit(w->sched->audit, c->tenant, AUDIT_EXEC_END, fields, n,
                              receipt_written, receipt, &err) == 0)
        receipt_awaits(receipt);
    else if (audit_emit(w->sched->audit, c->tenant, AUDIT_EXEC_END, fields, n, NULL, NULL, &err) <
             0) /* what the log has no room for is a gap, and told as one */
        log_event(LOG_AUDIT_REFUSES, "text='%s'", err.text);
}

static void on_exec_changed(struct worker *w, const Cloche__V1__ExecChanged *c)
{
    struct receipt *receipt = receipt_begin(w, c->number);
    const struct unit *u = unit_find(w->sched, c->tenant, c->unit_id);
    if (c->result && u && strcmp(u->worker_id, w->id) == 0)
        tell_exec_end(w, c, receipt);
    receipt_end(receipt);
}

/* What was sent to the worker before its Hello and is neither running there nor was reported as
 * ended since is not there: the Assign was lost, or an earlier worker died before it noted it. */
static void end_unconfirmed(struct worker *w)
{
    size_t at = 0;
    if (!w->greeting)
        return;
    w->greeting = false;
    for (struct unit *u; (u = cl_map_next(w->sched->units, &at, NULL)) != NULL;) {
        if (strcmp(u->worker_id, w->id) != 0)
            continue;
        if (u->unconfirmed)
            unit_lost(u);
        u->unconfirmed = false;
    }
}

/* What is told of a unit that is not here any more is nobody's: the worker need not keep it. */
static void on_watched(struct worker *w, const Cloche__V1__UnitWatched *m)
{
    struct receipt *receipt = receipt_begin(w, m->number);
    struct unit *u = unit_find(w->sched, m->tenant, m->unit_id);
    if (u && strcmp(u->worker_id, w->id) == 0)
        unit_watched(u, m, receipt);
    receipt_end(receipt);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct worker *w = rpc_call_user(call);
    const Cloche__V1__SessionRequest *m = (const Cloche__V1__SessionRequest *)msg;
    struct unit *u;
    if (!w) {
        if (m->body_case == CLOCHE__V1__SESSION_REQUEST__BODY_HELLO)
            on_hello(call, service, m->hello);
        return; /* of a connection that was replaced, or not a Hello: it is about to end */
    }
    switch ((int)m->body_case) {
    case CLOCHE__V1__SESSION_REQUEST__BODY_LOAD:
        take_load(w, m->load);
        worker_count_pending(w);
        end_unconfirmed(w);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_ASSIGNED:
        u = unit_find_lease(w->sched, m->assigned->lease_id, m->assigned->fence);
        if (u)
            unit_assigned(u, m->assigned, w);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_STARTED:
        u = unit_find_lease(w->sched, m->started->lease_id, m->started->fence);
        if (u)
            unit_started(u, m->started);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_ENDED:
        worker_unit_ended(w, m->ended);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_RENEW:
        on_renew(w, m->renew);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_EXEC:
        on_answer(w->sched, m->exec);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_WATCHED:
        on_watched(w, m->watched);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_IDLE:
        u = unit_find_lease(w->sched, m->idle->lease_id, m->idle->fence);
        if (u && strcmp(u->worker_id, w->id) == 0)
            unit_idle(u);
        break;
    case CLOCHE__V1__SESSION_REQUEST__BODY_EXEC_CHANGED:
        on_exec_changed(w, m->exec_changed);
        break;
    default: { /* a second Hello, or what we did not negotiate */
        struct cl_err err = {0};
        (void)cl_fail(&err, CL_E_PEER, 0, "unexpected message %d", (int)m->body_case);
        rpc_call_finish(call, &err);
        break;
    }
    }
}

static void on_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, NULL);
}

/* What it was told to end, and may not have heard: what is paused need not wait for its return. */
static void end_cancelled(struct sched *s, const char *worker_id)
{
    size_t at = 0;
    for (struct unit *u; (u = cl_map_next(s->units, &at, NULL)) != NULL;) {
        if (u->cancel && u->phase == PHASE_RUNNING && strcmp(u->worker_id, worker_id) == 0)
            unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
    }
}

static void on_end(struct rpc_call *call, const struct cl_err *why, void *service)
{
    struct sched *s = service;
    struct worker *w = rpc_call_user(call);
    if (!w || w->call != call)
        return;
    struct cl_err err = {0};
    const char *text = why ? why->text : "it left";
    log_event(LOG_WORKER_DOWN, "worker=%s text='%s'", w->id, text);
    const struct audit_field fields[] = {AUDIT_STR("reason", text), AUDIT_STR("worker", w->id)};
    if (audit_emit(s->audit, NULL, AUDIT_WORKER_LOST, fields, CL_COUNT(fields), NULL, NULL, &err) <
        0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", err.text);
    w->call = NULL;
    (void)cl_map_del(s->workers, w->id);
    fail_requests(s, w->id);
    end_cancelled(s, w->id);
    relays_worker_left(s, w->id);
    receipts_forget(w);
    cl_free(w);
}

const struct rpc_method worker_methods[] = {
    {.path = "/cloche.v1.WorkerService/Session",
     .in = &cloche__v1__session_request__descriptor,
     .out = &cloche__v1__session_response__descriptor,
     .client_streams = true,
     .server_streams = true,
     .lasts = true,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_end = on_end},
};
const size_t worker_methods_count = CL_COUNT(worker_methods);
