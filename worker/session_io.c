/* worker/session_io.c - see worker/session.h. */
#include "worker/disk.h"
#include "worker/session.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/notify.h"
#include "observability/log.h"
#include "worker/command.h"
#include "worker/relay.h"
#include "worker/told.h"

enum {
    PROTOCOL_MAJOR = 1,
    /* 1: UnitWatched, 2: networks, 3: pause, 4: moves and drains, 5: receipts */
    PROTOCOL_MINOR = 5,
    MINOR_RECEIPTS = 5,
    LOAD_EVERY_S = 5,
    LOAD_SOON_MS = 100, /* at most ten a second */
    RENEW_MAX = 1000,   /* of one message: as many as the books renew at once */
    RECONNECT_MS = 300,
    WATCHED_QUEUE_MAX = 1024 * 1024,
};
_Static_assert(TOLD_BYTES_MAX + WATCHED_QUEUE_MAX <= RPC_OUT_MAX * 3 / 4,
               "guests must not be able to end the session, also not one that begins");

/* A lease whose VM an earlier worker left behind. */
struct lost {
    struct cl_list link;
    struct vm_state state;
    char why[CL_ERR_TEXT];
};

struct session {
    struct session_options o;
    struct rpc_channel *channel; /* owned */
    struct rpc_call *call;       /* until its on_end; NULL while there is no session */
    bool greeted;                /* the scheduler said Hello */
    uint32_t minor;              /* of the protocol, as the scheduler said */
    bool leaving;                /* the call was cancelled: what it still brings is not for us */
    struct commands commands;
    struct cl_timer load, renew, reconnect;
    uint64_t asked_ns;     /* when the newest renewal left */
    unsigned n_unanswered; /* renewals of this call */
    uint64_t self_kill_ns, renew_every_ns;
    uint64_t awake_ns;      /* when the load timer ran last */
    char closed[128];       /* why no new work is taken; "" = open */
    bool draining;          /* its host is to be empty; a file in the state folder remembers it */
    char said[CL_ERR_TEXT]; /* why the session ended last, as logged */
    struct told told;
    struct cl_list lost; /* of struct lost */
    size_t n_lost;
};

static int send_body(struct session *s, Cloche__V1__SessionRequest *m)
{
    struct cl_err err = {0};
    if (!s->call)
        return -1;
    if (rpc_call_send(s->call, &m->base, &err) < 0) {
        log_event(LOG_DISCONNECTED, "peer=scheduler text='%s'", err.text);
        rpc_call_cancel(s->call);
        return -1;
    }
    return 0;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): it declares var and names a member */
#define SESSION_REQUEST(var, CASE, member, body) \
    Cloche__V1__SessionRequest var = CLOCHE__V1__SESSION_REQUEST__INIT; \
    var.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_##CASE; \
    var.member = (body)
/* NOLINTEND(bugprone-macro-parentheses) */

/* --- load ----------------------------------------------------------------------------------- */

struct load_message {
    Cloche__V1__WorkerLoad load;
    Cloche__V1__WorkerTemplate templates[POOL_FLAVOURS], *list[POOL_FLAVOURS];
};

static void check_disk(struct session *s)
{
    static const char full[] = "its disk is nearly full";
    uint64_t left;
    if (cl_disk_free(s->o.state_dir, &left, NULL) < 0)
        return;
    if (left < s->o.disk_reserve && !s->closed[0])
        (void)snprintf(s->closed, sizeof s->closed, "%s", full);
    else if (left >= s->o.disk_reserve && strcmp(s->closed, full) == 0)
        s->closed[0] = '\0';
}

/* Why it takes no new work; "" = it does. */
static const char *why_closed(const struct session *s)
{
    return s->draining && !s->closed[0] ? "it is being drained" : s->closed;
}

static void fill_load(struct session *s, struct load_message *m)
{
    struct pool_flavour_info infos[POOL_FLAVOURS];
    size_t n = pool_list(s->o.pool, infos, POOL_FLAVOURS);
    check_disk(s);
    cloche__v1__worker_load__init(&m->load);
    m->load.capacity_vcpu_milli = s->o.capacity_vcpu_milli;
    m->load.capacity_memory_mib = s->o.capacity_memory_mib;
    m->load.used_vcpu_milli = s->o.units->used_vcpu_milli;
    m->load.used_memory_mib = s->o.units->used_memory_mib;
    m->load.slots = s->o.slots;
    m->load.used_slots = s->o.units->used_slots;
    m->load.closed = (char *)(uintptr_t)why_closed(s);
    m->load.draining = s->draining;
    m->load.templates = m->list;
    for (size_t i = 0; i < n; i++) {
        const struct template *t = infos[i].template;
        Cloche__V1__WorkerTemplate *w = &m->templates[i];
        cloche__v1__worker_template__init(w);
        w->building = !infos[i].ready;
        w->name = (char *)(uintptr_t)t->m.name;
        w->snapshot_key = (char *)(uintptr_t)t->snapshot_key;
        w->verity_root = (char *)(uintptr_t)t->m.verity_root;
        w->kernel = (char *)(uintptr_t)t->m.kernel_version;
        w->image = (char *)(uintptr_t)t->m.image;
        w->default_vcpus = t->m.default_vcpus;
        w->default_memory_mib = t->m.default_memory_mib;
        w->warm = infos[i].parked;
        w->driver = (char *)(uintptr_t)t->driver->name;
        w->guest_separation = unit_separation(t->driver->is_shared);
        m->list[m->load.n_templates++] = w;
    }
}

/* The process stood still (SIGSTOP, a starved host): what waits in the socket may be an assignment
 * whose lease has gone to another.  Start over, and hear what holds now. */
static bool leave_after_sleep(struct session *s)
{
    uint64_t now = cl_now_ns(), slept = now - s->awake_ns;
    if (s->leaving || slept <= s->self_kill_ns / 2)
        return s->leaving;
    log_event(LOG_DISCONNECTED, "peer=scheduler text='this worker stood still for %llu ms'",
              (unsigned long long)(slept / CL_NS_PER_MS));
    s->awake_ns = now;
    s->greeted = false;
    s->leaving = s->call != NULL;
    if (s->call)
        rpc_call_cancel(s->call);
    return s->leaving;
}

static void send_load(void *arg)
{
    struct session *s = arg;
    struct load_message m;
    (void)leave_after_sleep(s);
    s->awake_ns = cl_now_ns();
    cl_timer_start(&s->load, CL_MIN(LOAD_EVERY_S * CL_NS_PER_S, s->self_kill_ns / 4));
    pool_renew(s->o.pool, cl_now_ns() + s->self_kill_ns);
    if (!s->greeted)
        return;
    fill_load(s, &m);
    SESSION_REQUEST(body, LOAD, load, &m.load);
    (void)send_body(s, &body);
}

static void load_soon(struct session *s)
{
    if (s->greeted)
        cl_timer_start(&s->load, LOAD_SOON_MS * CL_NS_PER_MS);
}

void session_pool_changed(void *session)
{
    load_soon(session);
}

void session_set_tls(struct session *s, SSL_CTX *tls)
{
    rpc_channel_set_tls(s->channel, tls);
}

void session_set_disk_reserve(struct session *s, uint64_t bytes)
{
    s->o.disk_reserve = bytes;
    load_soon(s);
}

void session_close_for_work(struct session *s, const char *why)
{
    (void)snprintf(s->closed, sizeof s->closed, "%s", why);
    load_soon(s);
}

/* --- units: started, ended ------------------------------------------------------------------- */

static void describe(const struct unit *u, Cloche__V1__RunningUnit *row)
{
    cloche__v1__running_unit__init(row);
    row->tenant = u->assign->tenant;
    row->unit_id = u->assign->unit_id;
    row->lease_id = u->assign->lease_id;
    row->fence = u->assign->fence;
    row->expires_unix_ns = unit_expires_wall_ns(u);
    row->paused = unit_is_paused(u);
    row->image_bytes = unit_image_bytes(u);
    row->paused_for_idle = row->paused && u->paused_for_idle;
    row->kept = row->paused && u->is_kept;
    row->goes_on = row->paused && u->goes_on && !u->units->stopping;
    if (!u->machine)
        return;
    const struct vm_driver *driver = machine_template(u->machine)->driver;
    row->driver = (char *)(uintptr_t)driver->name;
    row->guest_separation = unit_separation(driver->is_shared);
}

static void on_started(void *arg, struct unit *u)
{
    Cloche__V1__UnitStarted m = CLOCHE__V1__UNIT_STARTED__INIT;
    m.lease_id = u->assign->lease_id;
    m.fence = u->assign->fence;
    m.source = (char *)(uintptr_t)u->source;
    m.start_ns = u->ready_ns - u->assigned_ns;
    const struct template *t = machine_template(u->machine);
    m.vm = (char *)(uintptr_t)machine_name(u->machine);
    m.image_key = (char *)(uintptr_t)t->m.image_key;
    m.snapshot_key = (char *)(uintptr_t)t->snapshot_key;
    m.driver = (char *)(uintptr_t)t->driver->name;
    m.guest_separation = unit_separation(t->driver->is_shared);
    const char *unwatched = machine_unwatched(u->machine);
    m.unwatched = (char *)(uintptr_t)(unwatched ? unwatched : "");
    m.calls = (char *)(uintptr_t)machine_calls(u->machine);
    m.monitor_build = (char *)(uintptr_t)t->monitor.build;
    m.monitor_sha256 = (char *)(uintptr_t)t->monitor.sha256;
    Cloche__V1__RunningUnit rest;
    if (unit_is_snapshot(u->assign)) {
        describe(u, &rest);
        m.rest = &rest;
    }
    SESSION_REQUEST(body, STARTED, started, &m);
    (void)send_body(arg, &body);
}

/* The last UNIT_TAIL kept bytes of a stream. */
static size_t read_tail(struct exec *e, enum spool_stream stream, uint8_t out[static UNIT_TAIL])
{
    struct spool_total t;
    spool_total(exec_spool(e), stream, &t);
    uint64_t from = t.kept > UNIT_TAIL ? t.kept - UNIT_TAIL : 0;
    size_t have = 0;
    while (have < UNIT_TAIL) {
        size_t n;
        if (spool_read(exec_spool(e), stream, from + have, out + have, UNIT_TAIL - have, &n, NULL) <
                0 ||
            n == 0)
            break;
        have += n;
    }
    return have;
}

static bool send_watched(struct session *s, struct unit *u, Cloche__V1__UnitWatched *m)
{
    if (!s->greeted || !s->call || s->minor < 1 || rpc_call_queued(s->call) > WATCHED_QUEUE_MAX)
        return false;
    m->tenant = u->assign->tenant;
    m->unit_id = u->assign->unit_id;
    SESSION_REQUEST(body, WATCHED, watched, m);
    bool wants_receipt = s->minor >= MINOR_RECEIPTS && m->n_events + m->n_network > 0;
    if (wants_receipt && !told_keep(&s->told, &body, true))
        return false;
    return send_body(s, &body) == 0 || wants_receipt;
}

static void tell_again(void *arg, Cloche__V1__SessionRequest *m)
{
    (void)send_body(arg, m);
}

static bool on_watched(void *arg, struct unit *u, Cloche__V1__UnitWatched *m)
{
    return send_watched(arg, u, m);
}

/* The sum of what was heard of it, and of what was not. */
static void send_count(struct session *s, struct unit *u)
{
    Cloche__V1__UnitWatched m = CLOCHE__V1__UNIT_WATCHED__INIT;
    Cloche__V1__WatchCount count;
    Cloche__V1__WatchCount network_count;
    if (u->watch.seen > 0) {
        unit_fill_count(&u->watch, true, &count);
        m.count = &count;
    }
    if (u->network.seen > 0) {
        unit_fill_count(&u->network, true, &network_count);
        m.network_count = &network_count;
    }
    if (m.count || m.network_count)
        (void)send_watched(s, u, &m);
}

static void send_ended(struct session *s, struct unit *u)
{
    send_count(s, u);
    Cloche__V1__UnitEnded m = CLOCHE__V1__UNIT_ENDED__INIT;
    Cloche__V1__ExecResult result = CLOCHE__V1__EXEC_RESULT__INIT;
    uint8_t *tails = cl_zalloc(2 * (size_t)UNIT_TAIL);
    m.tenant = u->assign->tenant;
    m.unit_id = u->assign->unit_id;
    m.lease_id = u->assign->lease_id;
    m.fence = u->assign->fence;
    m.code_started = u->code_started;
    m.cpu_ms = u->cpu_ms;
    m.sent_bytes = u->sent_bytes;
    m.received_bytes = u->received_bytes;
    if (u->main)
        result = *exec_result(u->main);
    result.outcome = u->outcome;
    result.reason = u->reason;
    result.message = u->message;
    m.result = &result;
    if (u->main && tails) {
        m.stdout_tail.data = tails;
        m.stdout_tail.len = read_tail(u->main, SPOOL_STDOUT, tails);
        m.stderr_tail.data = tails + UNIT_TAIL;
        m.stderr_tail.len = read_tail(u->main, SPOOL_STDERR, tails + UNIT_TAIL);
    }
    SESSION_REQUEST(body, ENDED, ended, &m);
    (void)send_body(s, &body);
    cl_free(tails);
}

static void on_ended(void *arg, struct unit *u)
{
    struct session *s = arg;
    if (s->greeted)
        send_ended(s, u);
    load_soon(s);
}

static void on_exec_ended(void *arg, struct unit *u, struct exec *e)
{
    struct session *s = arg;
    Cloche__V1__ExecChanged m = CLOCHE__V1__EXEC_CHANGED__INIT;
    m.tenant = u->assign->tenant;
    m.unit_id = u->assign->unit_id;
    m.exec_id = (char *)(uintptr_t)exec_id(e);
    m.result = (Cloche__V1__ExecResult *)(uintptr_t)exec_result(e);
    SESSION_REQUEST(body, EXEC_CHANGED, exec_changed, &m);
    if (s->minor >= MINOR_RECEIPTS)
        (void)told_keep(&s->told, &body, s->greeted);
    if (s->greeted)
        (void)send_body(s, &body);
}

static void on_idle(void *arg, struct unit *u)
{
    Cloche__V1__UnitIdle m = CLOCHE__V1__UNIT_IDLE__INIT;
    const struct session *s = arg;
    if (!s->greeted || s->minor < 3)
        return; /* nobody to hear it; in the end it ends */
    m.lease_id = u->assign->lease_id;
    m.fence = u->assign->fence;
    SESSION_REQUEST(body, IDLE, idle, &m);
    (void)send_body(arg, &body);
}

static void on_room(void *arg)
{
    load_soon(arg);
}

/* A resume comes with a lease, perhaps before a renewal's answer. */
static void on_taken(void *arg, struct unit *u)
{
    struct session *s = arg;
    unit_set_deadline(u, cl_now_ns() + s->self_kill_ns);
    session_renew_now(s);
}

static void on_order(void *arg, struct rpc_call *call)
{
    const struct session *s = arg;
    if (s->call)
        rpc_call_after(call, s->call);
}

const struct unit_events session_unit_events = {on_started, on_ended, on_exec_ended, on_watched,
                                                on_idle,    on_room,  on_taken,      on_order};

static void send_lost(struct session *s, const struct lost *l)
{
    Cloche__V1__UnitEnded m = CLOCHE__V1__UNIT_ENDED__INIT;
    Cloche__V1__ExecResult result = CLOCHE__V1__EXEC_RESULT__INIT;
    result.outcome = CLOCHE__V1__OUTCOME__OUTCOME_FAILED;
    result.reason = CLOCHE__V1__REASON__REASON_WORKER_LOST;
    result.message = (char *)(uintptr_t)l->why;
    m.tenant = (char *)(uintptr_t)l->state.tenant;
    m.unit_id = (char *)(uintptr_t)l->state.unit_id;
    m.lease_id = (char *)(uintptr_t)l->state.lease_id;
    m.fence = l->state.fence;
    m.code_started = l->state.code_started != 0;
    m.result = &result;
    SESSION_REQUEST(body, ENDED, ended, &m);
    (void)send_body(s, &body);
}

int session_report_lost(struct session *s, const struct vm_state *state, const char *why,
                        struct cl_err *err)
{
    if (s->n_lost >= SESSION_LOST_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d lost leases", SESSION_LOST_MAX);
    struct lost *l = cl_zalloc(sizeof *l);
    if (!l)
        return cl_fail(err, CL_E_NOMEM, 0, "lost lease");
    l->state = *state;
    (void)snprintf(l->why, sizeof l->why, "%s", why);
    cl_list_push(&s->lost, &l->link);
    s->n_lost++;
    return 0;
}

static void forget_lost(struct session *s, const char *lease_id)
{
    CL_LIST_FOREACH (node, &s->lost) {
        struct lost *l = CL_LIST_ENTRY(node, struct lost, link);
        if (strcmp(l->state.lease_id, lease_id) != 0)
            continue;
        cl_list_unlink(&l->link);
        cl_free(l);
        s->n_lost--;
    }
}

/* --- leases --------------------------------------------------------------------------------- */

static void send_renewal(struct session *s, Cloche__V1__RenewLeases *m)
{
    SESSION_REQUEST(body, RENEW, renew, m);
    s->n_unanswered++;
    (void)send_body(s, &body);
    m->n_leases = 0;
}

static void send_renew(void *arg)
{
    struct session *s = arg;
    Cloche__V1__RunningUnit rows[RENEW_MAX], *list[RENEW_MAX];
    Cloche__V1__RenewLeases m = CLOCHE__V1__RENEW_LEASES__INIT;
    m.leases = list;
    m.asked_ns = s->asked_ns = cl_now_ns();
    cl_timer_start(&s->renew, s->renew_every_ns);
    CL_LIST_FOREACH (node, &s->o.units->all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (!unit_is_renewed(u))
            continue;
        if (m.n_leases == RENEW_MAX)
            send_renewal(s, &m);
        describe(u, &rows[m.n_leases]);
        list[m.n_leases] = &rows[m.n_leases];
        m.n_leases++;
    }
    if (m.n_leases > 0)
        send_renewal(s, &m);
}

void session_renew_now(struct session *s)
{
    if (s->greeted)
        send_renew(s);
}

bool session_is_renewed(const struct session *s)
{
    return !s->greeted || s->n_unanswered == 0;
}

static void on_renewed(struct session *s, const Cloche__V1__RenewAck *ack)
{
    uint64_t newest_ns = s->asked_ns; /* before what is settled here asks anew */
    uint64_t asked_ns = ack->asked_ns ? CL_MIN(ack->asked_ns, newest_ns) : newest_ns;
    s->n_unanswered -= s->n_unanswered > 0;
    for (size_t i = 0; i < ack->n_lease_ids; i++) {
        struct unit *u = units_find_lease(s->o.units, ack->lease_ids[i]);
        if (!u || !unit_is_live(u))
            continue;
        unit_set_deadline(u, asked_ns + s->self_kill_ns);
        if (u->tentative_ns)
            unit_settle(u);
    }
    for (size_t i = 0; i < ack->n_lost_lease_ids; i++) {
        struct unit *u = units_find_lease(s->o.units, ack->lost_lease_ids[i]);
        if (!u || !unit_is_live(u) || u->tentative_ns > asked_ns) /* not yet, perhaps */
            continue;
        log_event(LOG_LEASE_LOST, "unit=%s lease=%s", u->assign->unit_id, u->assign->lease_id);
        unit_lose(u);
    }
}

/* --- what the scheduler says ------------------------------------------------------------------ */

static int check_room(void *session, const Cloche__V1__Resources *r, struct cl_err *err)
{
    const struct session *s = session;
    const struct units *us = s->o.units;
    uint64_t vcpu = r ? (uint64_t)r->vcpus * 1000 : 0, mem = r ? r->memory_mib : 0;
    bool fits = us->used_slots < s->o.slots &&
                us->used_vcpu_milli + vcpu <= s->o.capacity_vcpu_milli &&
                us->used_memory_mib + mem <= s->o.capacity_memory_mib;
    return fits ? 0 : cl_fail(err, CL_E_QUOTA, 0, "this worker is full");
}

/* All disks full at once must leave the reserve untouched. */
static int check_disk_for(const struct session *s, uint64_t need, const char *what,
                          struct cl_err *err)
{
    uint64_t left;
    uint64_t promised = units_disk_promised(s->o.units);
    if (cl_disk_free(s->o.state_dir, &left, NULL) < 0 ||
        left >= s->o.disk_reserve + promised + need)
        return 0;
    return cl_fail(err, CL_E_QUOTA, 0,
                   "its disk has no room for %s: %llu MiB, where %llu are free, %llu "
                   "promised to others and %llu kept in reserve",
                   what, (unsigned long long)(need / CL_MIB), (unsigned long long)(left / CL_MIB),
                   (unsigned long long)(promised / CL_MIB),
                   (unsigned long long)(s->o.disk_reserve / CL_MIB));
}

static int check_scratch(const struct session *s, const Cloche__V1__Resources *r,
                         struct cl_err *err)
{
    uint64_t need = (r && r->disk_mib ? r->disk_mib : DISK_DEFAULT_MIB) * CL_MIB;
    return check_disk_for(s, need, "the scratch disk", err);
}

static int check_image(void *session, uint64_t bytes, struct cl_err *err)
{
    return check_disk_for(session, bytes, "a paused sandbox", err);
}

/* Its image is as large as its memory at the most; it takes no other room. */
static int check_snapshot(const struct session *s, const Cloche__V1__Assign *a, struct cl_err *err)
{
    uint64_t mib = a->resources ? a->resources->memory_mib : 0;
    return check_disk_for(s, mib * CL_MIB, "a snapshot", err);
}

/* --- drain -------------------------------------------------------------------------------------
 */

static void drain_path(const struct session *s, char path[static PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/draining", s->o.state_dir);
}

/* A worker that is started anew on a host that is to be empty must not fill it. */
static bool was_draining(const struct session *s)
{
    char path[PATH_MAX];
    drain_path(s, path);
    return access(path, F_OK) == 0;
}

static int drain(void *session, bool undo, struct cl_err *err)
{
    struct session *s = session;
    char path[PATH_MAX];
    drain_path(s, path);
    if (undo && unlink(path) < 0 && errno != ENOENT)
        return cl_fail(err, CL_E_SYS, errno, "remove '%s'", path);
    if (!undo && cl_file_write(path, "", 0, 0600, err) < 0)
        return -1;
    s->draining = !undo;
    log_event(LOG_DRAINING, "on=%d", s->draining);
    load_soon(s);
    return 0;
}

static void on_assign(struct session *s, const Cloche__V1__Assign *a)
{
    struct cl_err err = {0};
    struct unit *u;
    const char *closed = why_closed(s);
    int rc = closed[0]             ? cl_fail(&err, CL_E_UNAVAILABLE, 0, "%s", closed)
             : unit_is_snapshot(a) ? check_snapshot(s, a, &err)
                                   : check_room(s, a->resources, &err);
    if (rc == 0)
        rc = check_scratch(s, a->resources, &err);
    if (rc == 0 && a->kind == CLOCHE__V1__UNIT_KIND__UNIT_KIND_JOB && !a->command)
        rc = cl_fail(&err, CL_E_INVALID, 0, "a job without a command");
    if (rc == 0)
        rc = unit_assign(s->o.units, a, cl_now_ns() + s->self_kill_ns, &u, &err);
    Cloche__V1__AssignAnswer m = CLOCHE__V1__ASSIGN_ANSWER__INIT;
    m.lease_id = a->lease_id;
    m.fence = a->fence;
    m.refused = err.text;
    m.permanent = rc < 0 && !cl_err_info(err.code)->retry && err.code != CL_E_STATE &&
                  err.code != CL_E_TOOBIG;
    if (rc < 0)
        log_event(LOG_UNIT_REFUSED, "unit=%s lease=%s text='%s'", a->unit_id, a->lease_id,
                  err.text);
    else
        log_event(LOG_UNIT_ASSIGNED, "unit=%s lease=%s tenant=%s", a->unit_id, a->lease_id,
                  a->tenant);
    SESSION_REQUEST(body, ASSIGNED, assigned, &m);
    (void)send_body(s, &body);
    load_soon(s);
}

static void on_end_unit(struct session *s, const Cloche__V1__EndUnit *m)
{
    struct unit *u = units_find_lease(s->o.units, m->lease_id);
    if (!u || u->assign->fence != m->fence)
        return; /* gone already: its UnitEnded is on the way or was acknowledged */
    unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED, m->reason, "ended on request");
}

static void on_ended_ack(struct session *s, const Cloche__V1__EndedAck *ack)
{
    struct unit *u = units_find_lease(s->o.units, ack->lease_id);
    if (u)
        unit_acknowledged(u);
    forget_lost(s, ack->lease_id);
}

static void on_hello(struct session *s, const Cloche__V1__SchedulerHello *h)
{
    s->greeted = true;
    s->minor = h->protocol_minor;
    s->awake_ns = cl_now_ns(); /* the limit may become shorter now */
    if (h->self_kill_ns)
        s->self_kill_ns = h->self_kill_ns;
    if (h->renew_every_ns)
        s->renew_every_ns = h->renew_every_ns;
    log_event(LOG_CONNECTED, "peer=%s at='%s' build=%s", h->scheduler_id,
              rpc_channel_target(s->channel), h->build);
    cl_notify_status("takes work from %s at %s", h->scheduler_id, rpc_channel_target(s->channel));
    if (s->minor < MINOR_RECEIPTS)
        told_clear(&s->told);
    told_again(&s->told, tell_again, s); /* before the end of what it is about */
    CL_LIST_FOREACH (node, &s->lost)
        send_lost(s, CL_LIST_ENTRY(node, struct lost, link));
    CL_LIST_FOREACH (at, &s->o.units->all) {
        struct unit *u = CL_LIST_ENTRY(at, struct unit, link);
        /* It may have started while nobody listened. */
        if (u->state == UNIT_RUNNING || (unit_is_paused(u) && unit_is_snapshot(u->assign)))
            on_started(s, u);
        if (unit_is_paused(u)) /* a resume comes with a lease, perhaps before a renewal's answer */
            unit_set_deadline(u, s->awake_ns + s->self_kill_ns);
        if (u->state == UNIT_ENDED)
            send_ended(s, u);
    }
    send_renew(s);
    send_load(s);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call;
    struct session *s = arg;
    const Cloche__V1__SessionResponse *m = (const Cloche__V1__SessionResponse *)msg;
    struct cl_err err = {0};
    if (leave_after_sleep(s))
        return;
    switch ((int)m->body_case) {
    case CLOCHE__V1__SESSION_RESPONSE__BODY_HELLO:
        on_hello(s, m->hello);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_ASSIGN:
        on_assign(s, m->assign);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_END:
        on_end_unit(s, m->end);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_ENDED_ACK:
        on_ended_ack(s, m->ended_ack);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_RENEW_ACK:
        on_renewed(s, m->renew_ack);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_OPEN_RELAY:
        if (relay_open(s->o.loop, s->channel, s->o.units, m->open_relay, &err) < 0)
            log_event(LOG_DISCONNECTED, "peer=relay text='%s'", err.text);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_WATCHED_ACK:
        told_confirmed(&s->told, m->watched_ack->number);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_EXEC:
        command_run(&s->commands, m->exec);
        break;
    default: /* a newer scheduler's message that we were not negotiated to get */
        rpc_call_cancel(s->call);
        break;
    }
}

static void on_reply(void *arg, Cloche__V1__ExecAnswer *answer)
{
    SESSION_REQUEST(body, EXEC, exec, answer);
    (void)send_body(arg, &body);
}

/* --- connection ------------------------------------------------------------------------------ */

static void on_drain(struct rpc_call *call, void *arg)
{
    (void)call, (void)arg;
}

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct session *s = arg;
    s->call = NULL;
    s->leaving = false;
    const char *text = status ? status->text : "it ended the session";
    if (s->greeted || strcmp(text, s->said) != 0) /* the same words every 300 ms help nobody */
        log_event(LOG_DISCONNECTED, "peer=scheduler text='%s'", text);
    cl_notify_status("has no scheduler: %s", text);
    (void)snprintf(s->said, sizeof s->said, "%s", text);
    s->greeted = false;
    s->n_unanswered = 0;
    commands_fini(&s->commands);
    commands_init(&s->commands);
    cl_timer_start(&s->reconnect, RECONNECT_MS * CL_NS_PER_MS);
}

static void send_hello(struct session *s)
{
    struct load_message load;
    char host[128] = "";
    (void)gethostname(host, sizeof host - 1);
    fill_load(s, &load);
    Cloche__V1__WorkerHello m = CLOCHE__V1__WORKER_HELLO__INIT;
    m.protocol_major = PROTOCOL_MAJOR;
    m.protocol_minor_max = PROTOCOL_MINOR;
    m.build = (char *)(uintptr_t)CLOCHE_VERSION;
    m.worker_id = (char *)(uintptr_t)s->o.worker_id;
    m.hostname = host;
    m.driver = (char *)(uintptr_t)s->o.driver;
    m.guest_separation = unit_separation(s->o.is_shared);
    m.network = s->o.units->net->binary[0] != '\0';
    m.forks = m.snapshots = true;
    m.load = &load.load;
    m.templates = load.load.templates;
    m.n_templates = load.load.n_templates;
    Cloche__V1__RunningUnit rows[RENEW_MAX], *list[RENEW_MAX];
    m.running = list;
    CL_LIST_FOREACH (node, &s->o.units->all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (u->state == UNIT_KEPT || u->is_given || m.n_running >= RENEW_MAX)
            continue;
        describe(u, &rows[m.n_running]);
        list[m.n_running] = &rows[m.n_running];
        m.n_running++;
    }
    SESSION_REQUEST(body, HELLO, hello, &m);
    (void)send_body(s, &body);
}

static void dial(void *arg)
{
    static const struct rpc_client_events events = {on_message, on_drain, on_end};
    struct session *s = arg;
    struct cl_err err = {0};
    struct rpc_call_spec spec = {.path = "/cloche.v1.WorkerService/Session",
                                 .out = &cloche__v1__session_response__descriptor,
                                 .fail_fast = true}; /* so that we hear, and log, why not */
    if (rpc_channel_call(s->channel, &spec, &events, s, &s->call, &err) < 0) {
        log_event(LOG_DISCONNECTED, "peer=scheduler text='%s'", err.text);
        cl_timer_start(&s->reconnect, RECONNECT_MS * CL_NS_PER_MS);
        return;
    }
    send_hello(s);
}

int session_new(const struct session_options *options, struct session **ret_session,
                struct cl_err *err)
{
    struct session *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "session");
    *s = (struct session){.o = *options,
                          .self_kill_ns = 20 * CL_NS_PER_S,
                          .renew_every_ns = 10 * CL_NS_PER_S,
                          .awake_ns = cl_now_ns()};
    cl_list_init(&s->lost);
    told_init(&s->told);
    s->commands = (struct commands){.loop = options->loop,
                                    .units = options->units,
                                    .host = {.reply = on_reply,
                                             .check_disk = check_image,
                                             .check_room = check_room,
                                             .drain = drain},
                                    .arg = s};
    commands_init(&s->commands);
    s->draining = was_draining(s);
    if (rpc_channel_new(options->loop, options->target, options->tls, &s->channel, err) < 0 ||
        cl_timer_init(&s->load, options->loop, send_load, s, err) < 0 ||
        cl_timer_init(&s->renew, options->loop, send_renew, s, err) < 0 ||
        cl_timer_init(&s->reconnect, options->loop, dial, s, err) < 0) {
        session_free(s);
        return -1;
    }
    cl_timer_start(&s->load, LOAD_EVERY_S * CL_NS_PER_S);
    cl_timer_start(&s->reconnect, 0);
    *ret_session = s;
    return 0;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    cl_timer_stop(&s->reconnect);
    rpc_channel_free(s->channel);
    commands_fini(&s->commands);
    cl_timer_fini(&s->load);
    cl_timer_fini(&s->renew);
    cl_timer_fini(&s->reconnect);
    CL_LIST_FOREACH (node, &s->lost)
        cl_free(CL_LIST_ENTRY(node, struct lost, link));
    told_clear(&s->told);
    cl_free(s);
}
