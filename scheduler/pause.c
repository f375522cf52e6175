/* scheduler/pause.c - Pause and Resume of SandboxService, the rest of idle sandboxes and their
 * waking by use, what workers say of it, the rest of those that move to another worker, and that
 * of snapshots, which are at rest all their life.
 *
 *   pause:    its worker is asked ─► the books note it ─► PAUSED
 *               │ no                   │ no quota
 *               ▼                      ▼
 *             refused ◄──── its worker resumes it
 *
 *   resume:   the books take ─► its worker is asked ─► RUNNING
 *               │ no quota        │ no
 *               ▼                 ▼
 *             refused ◄──── the books take it back
 *
 *   move:     pause, if it runs ─► move.c, one worker after the other ─► resume, if it ran
 *
 * A call that needs one that was idle begins a resume, or joins the change under way: a pause for
 * idleness, then it is woken after that; or a resume.  A pause that is refused lets it go on.
 *
 * Owns:    a struct resting, at most one a unit, until its last answer.  It belongs to the unit and
 *          not to the client: one that leaves gets no answer, and what was begun is brought to an
 *          end.  When the unit ends first, the next answer finds `u` NULL and frees it.
 * Borrows: the unit; the calls that wait, which unlink themselves when they end.
 * Thread:  the loop's.
 * Every step ends: a worker answers or its session breaks, the books answer by their deadline.
 * Whether a VM rests, its worker knows.  An answer that is lost leaves this process or the books in
 * the wrong until the worker's next Hello or renewal: unit_rest_told().
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "scheduler/cancel.h"
#include "scheduler/drain.h"
#include "scheduler/move.h"
#include "scheduler/place.h"
#include "scheduler/sandboxes.h"
#include "scheduler/snapshots.h"
#include "scheduler/validate.h"

enum {
    BUSY_RETRY_MS = 500,
    USE_MOMENT_MS = 1000, /* a use is with the worker by then */
};

enum asker {
    ASKED_BY_CLIENT,
    ASKED_BY_IDLENESS,
    ASKED_BY_WORKER,
    ASKED_BY_USE,
    ASKED_BY_DRAIN,
    ASKED_BY_BIRTH, /* of a snapshot, which is at rest from its start on */
};

struct resting {
    struct unit *u;     /* borrowed; NULL once it has ended */
    struct api_call *a; /* held; NULL = no client waits for the answer of it */
    enum asker asker;
    bool pauses;              /* else it resumes */
    bool for_idle;            /* of a pause: no client asked for it */
    struct cl_list calls;     /* of struct api_call: they wait for it to run */
    uint64_t keep_ns, ttl_ns; /* of a pause; of a resume, 0 = as before */
    uint64_t image_bytes;     /* of a pause */
    bool kept;                /* of a pause: the image outlives its worker's process */
    bool goes_on;             /* of a pause: only its worker's stop caused it, or its drain */
    struct move *move;        /* of a drain, while one is under way */
    unsigned tries;           /* of a drain: workers that it was tried with */
    uint64_t kept_until_ns;   /* of a pause that the books have noted: as in struct unit */
    uint64_t expires_ns;      /* wall clock; 0 = not said */
    struct cl_err why;        /* the refusal, while what was done is undone */
    char by[API_KEY_ID];      /* for the audit log */
};

/* --- life --------------------------------------------------------------------------------------
 */

static const char *asker_name(enum asker asker)
{
    static const char *const names[] = {"client", "idle", "worker", "use", "drain", "birth"};
    return names[asker];
}

/* a: who caused it, if a client did. */
static struct resting *begin(struct unit *u, bool pauses, enum asker asker, struct api_call *a)
{
    struct resting *x = cl_zalloc(sizeof *x);
    if (!x)
        return NULL;
    *x = (struct resting){.u = u, .asker = asker, .pauses = pauses};
    cl_list_init(&x->calls);
    (void)snprintf(x->by, sizeof x->by, "%s", a ? a->p.key_id : asker_name(asker));
    if (asker == ASKED_BY_CLIENT) {
        x->a = a;
        api_hold(a);
    }
    u->resting = x;
    return x;
}

static void end(struct resting *x)
{
    if (x->move)
        move_abandon(x->move);
    if (x->u)
        x->u->resting = NULL;
    if (x->a)
        api_release(x->a);
    cl_free(x);
}

/* The unit has ended meanwhile: nothing is left to do. */
static bool is_over(struct resting *x)
{
    if (x->u)
        return false;
    end(x);
    return true;
}

/* --- the calls that wait -------------------------------------------------------------------------
 */

static void move_calls(struct cl_list *from, struct cl_list *to)
{
    CL_LIST_FOREACH (node, from) {
        cl_list_unlink(node);
        cl_list_push(to, node);
    }
}

static struct api_call *first_of(struct cl_list *calls)
{
    return CL_LIST_ENTRY(calls->next, struct api_call, waits);
}

static void fail_calls(struct cl_list *calls, const struct cl_err *err)
{
    while (!cl_list_empty(calls)) {
        struct api_call *a = first_of(calls);
        cl_list_unlink(&a->waits);
        api_fail(a, err);
    }
}

static void go_on(struct cl_list *calls)
{
    while (!cl_list_empty(calls)) {
        struct api_call *a = first_of(calls);
        cl_list_unlink(&a->waits);
        api_go_on(a);
    }
}

void unit_rest_over(struct unit *u)
{
    struct resting *x = u->resting;
    struct cl_err err = {0};
    if (!x)
        return;
    u->resting = NULL;
    x->u = NULL;
    (void)cl_fail(&err, CL_E_NOTFOUND, 0, "sandbox '%s' ended while it was being %s", u->id,
                  x->pauses ? "paused" : "resumed");
    if (x->a)
        api_fail(x->a, &err);
    fail_calls(&x->calls, &err);
    if (x->move)
        end(x); /* no answer comes that would */
}

/* --- the two ends ------------------------------------------------------------------------------
 */

static void emit(const struct resting *x)
{
    struct unit *u = x->u;
    const struct audit_field pause[] = {AUDIT_STR("by", x->by), AUDIT_NUM("bytes", x->image_bytes),
                                        AUDIT_STR("unit", u->id),
                                        AUDIT_NUM("keep_ms", x->keep_ns / CL_NS_PER_MS)};
    const struct audit_field resume[] = {AUDIT_STR("by", x->by), AUDIT_STR("unit", u->id)};
    if (x->pauses)
        unit_emit(u, AUDIT_UNIT_PAUSE, pause, CL_COUNT(pause) - (x->keep_ns ? 0 : 1));
    else
        unit_emit(u, AUDIT_UNIT_RESUME, resume, CL_COUNT(resume));
    metrics_add(u->sched->metrics, x->pauses ? METRIC_SANDBOXES_PAUSED : METRIC_SANDBOXES_RESUMED,
                asker_name(x->asker), NULL, 1);
    if (x->pauses)
        log_event(LOG_SANDBOX_PAUSED, "unit=%s bytes=%llu by=%s", u->id,
                  (unsigned long long)x->image_bytes, x->by);
    else
        log_event(LOG_SANDBOX_RESUMED, "unit=%s by=%s", u->id, x->by);
}

static void reply_paused(struct api_call *a, const struct unit *u)
{
    struct sandbox_view view;
    Cloche__V1__PauseResponse m = CLOCHE__V1__PAUSE_RESPONSE__INIT;
    sandbox_view_unit(&view, u);
    m.sandbox = &view.m;
    api_reply(a, &m.base);
}

static void reply_resumed(struct api_call *a, const struct unit *u, bool was_paused)
{
    struct sandbox_view view;
    Cloche__V1__ResumeResponse m = CLOCHE__V1__RESUME_RESPONSE__INIT;
    sandbox_view_unit(&view, u);
    m.sandbox = &view.m;
    m.was_paused = was_paused;
    api_reply(a, &m.base);
}

static void wake(struct unit *u, struct cl_list *calls);
static void let_go_on(struct unit *u);

/* Worker and books agree. */
static void note(struct resting *x)
{
    struct unit *u = x->u;
    bool news = u->paused != x->pauses;
    u->paused = x->pauses;
    u->paused_idle = x->pauses && x->for_idle;
    u->stays_paused =
        x->pauses && (x->asker == ASKED_BY_WORKER ? u->stays_paused && !news : !x->goes_on);
    u->rest_unsure = false;
    u->image_bytes = x->pauses ? x->image_bytes : 0;
    u->kept_until_ns = x->pauses ? x->kept_until_ns : 0;
    if (x->expires_ns)
        u->expires_wall_ns = x->expires_ns;
    if (x->ttl_ns)
        u->record->ttl_ns = x->ttl_ns;
    if (news && u->kind == BOOKS_SNAPSHOT)
        snapshot_is_whole(u);
    else if (news)
        emit(x);
}

/* It is what it was to become: let those who wait go on. */
static void conclude(struct resting *x)
{
    struct unit *u = x->u;
    struct cl_list calls;
    bool goes_on = x->goes_on;
    if (x->asker == ASKED_BY_DRAIN)
        drain_soon(u->sched);
    cl_list_init(&calls);
    move_calls(&x->calls, &calls);
    if (x->a && x->pauses)
        reply_paused(x->a, u);
    else if (x->a)
        reply_resumed(x->a, u, true);
    end(x);
    unit_holds_less(u);
    unit_tell(u);
    if (!u->paused)
        go_on(&calls);
    else if (!cl_list_empty(&calls))
        wake(u, &calls);
    else if (goes_on && !u->stays_paused && !u->cancel)
        let_go_on(u);
}

static void succeed(struct resting *x)
{
    note(x);
    conclude(x);
}

/* What can be had soon, or what its worker sees otherwise, is left to the worker: it asks again,
 * and ends the sandbox when that does not help. */
static void refuse_idle(struct unit *u, const struct cl_err *err)
{
    if (err->code == CL_E_UNAVAILABLE || err->code == CL_E_STATE)
        return;
    const struct audit_field fields[] = {AUDIT_STR("dimension", err->subject),
                                         AUDIT_STR("method", "idle"), AUDIT_STR("unit", u->id)};
    if (err->code == CL_E_QUOTA)
        unit_emit(u, AUDIT_QUOTA_REFUSED, fields, CL_COUNT(fields));
    unit_expire(u);
}

/* Its tenant has used meanwhile what it would need: it rests until somebody resumes it. */
static void refuse_to_go_on(struct unit *u, const struct cl_err *err)
{
    const struct audit_field fields[] = {AUDIT_STR("dimension", err->subject),
                                         AUDIT_STR("method", "worker"), AUDIT_STR("unit", u->id)};
    u->stays_paused = true;
    unit_emit(u, AUDIT_QUOTA_REFUSED, fields, CL_COUNT(fields));
}

/* Nobody knows its id yet. */
static void refuse_birth(struct unit *u, const struct cl_err *err)
{
    u->refused = *err;
    cancel_unmade(u);
}

static void refuse(struct resting *x, const struct cl_err *err)
{
    struct cl_err why = *err; /* it may be x's */
    struct cl_list calls;
    bool runs = x->pauses && !x->u->paused;
    cl_list_init(&calls);
    move_calls(&x->calls, &calls);
    log_event(LOG_REST_REFUSED, "unit=%s by=%s text='%s'", x->u->id, x->by, err->text);
    if (x->a)
        api_fail(x->a, err);
    else if (x->asker == ASKED_BY_IDLENESS && cl_list_empty(&calls))
        refuse_idle(x->u, err);
    else if (x->asker == ASKED_BY_WORKER && err->code == CL_E_QUOTA && err->subject[0])
        refuse_to_go_on(x->u, err);
    else if (x->asker == ASKED_BY_DRAIN)
        drain_stuck(x->u, err, DRAIN_COST_NOTHING);
    else if (x->asker == ASKED_BY_BIRTH && err->code == CL_E_QUOTA)
        refuse_birth(x->u, err);
    end(x);
    if (runs)
        go_on(&calls);
    else
        fail_calls(&calls, &why);
}

/* --- steps -------------------------------------------------------------------------------------
 */

static int ask_worker(struct unit *u, Cloche__V1__ExecCommand *cmd, request_fn *fn,
                      struct resting *x, struct cl_err *err)
{
    struct worker *w = unit_worker(u);
    if (!w)
        return unit_fail_away(u, err);
    cmd->unit_id = u->id;
    return worker_request(w, cmd, fn, x, err);
}

static void ask_pause(struct resting *x, request_fn *fn)
{
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__PauseCommand pause = CLOCHE__V1__PAUSE_COMMAND__INIT;
    struct cl_err err = {0};
    pause.keep_ns = x->keep_ns;
    pause.if_idle = x->asker == ASKED_BY_IDLENESS;
    pause.goes_on = x->goes_on;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_PAUSE;
    cmd.pause = &pause;
    if (ask_worker(x->u, &cmd, fn, x, &err) < 0)
        fn(x, NULL, &err);
}

static void ask_resume(struct resting *x, uint64_t ttl_ns, request_fn *fn)
{
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ResumeCommand resume = CLOCHE__V1__RESUME_COMMAND__INIT;
    struct cl_err err = {0};
    resume.ttl_ns = ttl_ns;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_RESUME;
    cmd.resume = &resume;
    if (ask_worker(x->u, &cmd, fn, x, &err) < 0)
        fn(x, NULL, &err);
}

/* How long a paused one still lasts.  expires_ns: what its worker says (wall clock; 0 = nothing),
 * which has a limit, as it holds its tenant's disk quota until then. */
static uint64_t left_ns(uint64_t expires_ns)
{
    uint64_t now = cl_wall_ns();
    if (!expires_ns)
        return PAUSE_KEEP_S * CL_NS_PER_S;
    return expires_ns > now ? CL_MIN(expires_ns - now, PAUSE_KEEP_MAX_S * CL_NS_PER_S) : 0;
}

/* The lease of one that is kept lasts a TTL longer than it does: a worker that is there ends it. */
static void note_pause(struct resting *x, bool force, books_verdict_fn *fn)
{
    struct books_hold hold = unit_hold(x->u);
    uint64_t lease_ns = x->kept ? left_ns(x->expires_ns) + x->u->sched->o->lease_ttl : 0;
    struct books_rest rest = {.disk_mib = (x->image_bytes + CL_MIB - 1) / CL_MIB,
                              .force = force,
                              .lease_ms = lease_ns / CL_NS_PER_MS};
    struct cl_err err = {0};
    x->kept_until_ns = x->kept ? cl_wall_ns() + lease_ns : 0;
    /* The mark of its start is lost when Redis was away just then. */
    unit_mark_started(x->u);
    if (books_pause(x->u->sched->books, &hold, &rest, fn, x, &err) < 0)
        fn(BOOKS_STALE, &err, x);
}

static void note_resume(struct resting *x, bool force, books_verdict_fn *fn)
{
    struct books_hold hold = unit_hold(x->u);
    struct books_rest rest = {.force = force, .lease_ms = x->u->sched->o->lease_ttl / CL_NS_PER_MS};
    struct cl_err err = {0};
    if (books_resume(x->u->sched->books, &hold, &rest, fn, x, &err) < 0)
        fn(BOOKS_STALE, &err, x);
}

/* Why the books did not do it; false = they did. */
static bool was_refused(const struct resting *x, enum books_verdict verdict,
                        const struct cl_err *err, struct cl_err *ret_why)
{
    if (err) {
        *ret_why = *err;
        /* Without an answer they may have done it. */
        x->u->rest_unsure |= err->code != CL_E_QUOTA;
    } else if (verdict == BOOKS_STALE) {
        (void)cl_fail(ret_why, CL_E_NOTFOUND, 0, "the lease of sandbox '%s' is gone: it ends",
                      x->u->id);
    }
    return err || verdict == BOOKS_STALE;
}

/* The books follow what its worker says. */
static void on_followed(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct resting *x = arg;
    if (is_over(x))
        return;
    if (was_refused(x, verdict, err, &x->why))
        refuse(x, &x->why); /* with the next renewal again */
    else
        succeed(x);
}

/* --- pause -------------------------------------------------------------------------------------
 */

/* When it did not resume, the next renewal says so, and the books follow. */
static void on_undone(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct resting *x = arg;
    (void)err;
    if (is_over(x))
        return;
    if (answer && answer->expires)
        x->u->expires_wall_ns = answer->expires->unix_ns;
    refuse(x, &x->why);
}

static void try_to_move(struct resting *x);

static void on_pause_noted(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct resting *x = arg;
    if (is_over(x))
        return;
    if (was_refused(x, verdict, err, &x->why)) {
        ask_resume(x, 0, on_undone);
    } else if (x->asker == ASKED_BY_DRAIN) {
        note(x);
        try_to_move(x);
    } else {
        succeed(x);
    }
}

static void on_rests(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct resting *x = arg;
    if (is_over(x))
        return;
    if (err) {
        refuse(x, err);
        return;
    }
    x->image_bytes = answer->image_bytes;
    x->kept = answer->kept;
    x->expires_ns = answer->expires ? answer->expires->unix_ns : 0;
    if (!x->u->paused || x->u->rest_unsure)
        note_pause(x, x->asker == ASKED_BY_DRAIN, on_pause_noted); /* its tenant did not ask */
    else if (x->kept)
        note_pause(x, true, on_followed); /* the books know, but not for how long */
    else
        succeed(x);
}

static int fail_busy(const struct unit *u, struct cl_err *err)
{
    (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "sandbox '%s' is just being %s: ask again in a moment",
                  u->id,
                  u->resting->asker == ASKED_BY_DRAIN ? "moved to another worker"
                  : u->resting->pauses                ? "paused"
                                                      : "resumed");
    err->retry_ms = BUSY_RETRY_MS;
    return -1;
}

/* Can one that is not paused be asked to? */
static int check_running(const struct unit *u, struct cl_err *err)
{
    const struct worker *w = unit_worker(u);
    if (u->resting)
        return fail_busy(u, err);
    if (u->phase != PHASE_RUNNING || !u->started)
        return cl_fail(err, CL_E_STATE, 0, "sandbox '%s' does not run yet: wait for Create", u->id);
    if (!w || !w->call)
        return unit_fail_away(u, err);
    return 0;
}

static int check_pause(const struct unit *u, struct cl_err *err)
{
    if (check_running(u, err) < 0)
        return -1;
    if (unit_worker(u)->minor < WORKER_MINOR_PAUSE)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "the worker of '%s' is of an older release, which cannot pause: upgrade it",
                       u->id);
    return 0;
}

/* Does it rest for being idle, or will it in a moment, until its next use? */
static bool use_wakes(const struct unit *u)
{
    const struct resting *x = u->resting;
    if (x && !x->pauses && x->asker == ASKED_BY_WORKER)
        return true; /* it is about to go on */
    if (x && x->asker == ASKED_BY_DRAIN && x->goes_on)
        return true; /* as soon as it is elsewhere */
    return u->record->wake_on_use && (x && x->pauses ? x->for_idle : u->paused && u->paused_idle);
}

void sandbox_pause(struct api_call *a)
{
    const Cloche__V1__PauseRequest *r = (const Cloche__V1__PauseRequest *)a->request;
    struct cl_err err = {0};
    uint64_t keep_ns;
    if (validate_keep(r->keep_ns, &keep_ns, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    struct unit *u = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, NULL);
    if (!u)
        return;
    /* One that a use would wake is paused by a client from now on: its worker is told. */
    if (u->paused && !u->resting && !use_wakes(u)) {
        u->stays_paused = true;
        reply_paused(a, u);
        return;
    }
    struct resting *x = NULL;
    if (check_pause(u, &err) == 0 && !(x = begin(u, true, ASKED_BY_CLIENT, a)))
        (void)cl_fail(&err, CL_E_NOMEM, 0, "pause");
    if (!x) {
        api_fail(a, &err);
        return;
    }
    x->keep_ns = keep_ns;
    ask_pause(x, on_rests);
}

void unit_idle(struct unit *u)
{
    struct cl_err err = {0};
    struct resting *x;
    if (!u->record->pause_on_idle || u->kind != BOOKS_SANDBOX || u->cancel || u->paused ||
        check_pause(u, &err) < 0)
        return;
    if (cl_now_ns() - u->used_ns < USE_MOMENT_MS * CL_NS_PER_MS)
        return; /* what its worker does not know yet; it tells again */
    x = begin(u, true, ASKED_BY_IDLENESS, NULL);
    if (!x)
        return; /* it tells again */
    x->for_idle = true;
    x->keep_ns = PAUSE_KEEP_S * CL_NS_PER_S;
    ask_pause(x, on_rests);
}

/* --- resume ------------------------------------------------------------------------------------
 */

static void on_taken_back(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct resting *x = arg;
    struct cl_err ignored = {0};
    if (is_over(x))
        return;
    x->u->rest_unsure = was_refused(x, verdict, err, &ignored);
    x->u->kept_until_ns = x->kept_until_ns;
    refuse(x, &x->why);
}

/* Its image is as good as before, and so is its lease from now on. */
static void take_back(struct resting *x)
{
    x->image_bytes = x->u->image_bytes;
    x->expires_ns = x->u->expires_wall_ns;
    note_pause(x, true, on_taken_back);
}

static void on_woken(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct resting *x = arg;
    if (is_over(x))
        return;
    if (answer) {
        x->expires_ns = answer->expires ? answer->expires->unix_ns : 0;
        succeed(x);
        return;
    }
    const struct worker *w = unit_worker(x->u);
    x->why = *err;
    if (w && w->call) {
        take_back(x);
        return;
    }
    /* Nobody knows whether it runs: it holds what it would need until its worker is back. */
    x->u->rest_unsure = true;
    refuse(x, &x->why);
}

static void on_resume_noted(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct resting *x = arg;
    if (is_over(x))
        return;
    if (was_refused(x, verdict, err, &x->why)) {
        refuse(x, &x->why);
        return;
    }
    x->kept = x->u->kept_until_ns > 0;
    x->u->kept_until_ns = 0; /* its lease is that of one that runs */
    if (unit_worker(x->u)) {
        ask_resume(x, x->ttl_ns, on_woken);
    } else { /* it has left since, and does not know of this */
        (void)unit_fail_away(x->u, &x->why);
        take_back(x);
    }
}

static void on_kept(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    const Cloche__V1__ResumeRequest *r = (const Cloche__V1__ResumeRequest *)a->request;
    struct unit *u = unit_find(a->s, a->p.tenant, a->object);
    if (err) {
        api_fail(a, err);
    } else if (!u) {
        api_fail_with(a, CL_E_NOTFOUND, "sandbox '%s' has just ended", a->object);
    } else {
        sandbox_extended(u, answer, r->ttl_ns ? r->ttl_ns : u->record->ttl_ns);
        reply_resumed(a, u, false);
    }
    api_release(a);
}

/* It runs, as far as this process knows: its worker may be about to pause it for one that died. */
static void keep_running(struct api_call *a, struct unit *u, uint64_t ttl_ns)
{
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ResumeCommand resume = CLOCHE__V1__RESUME_COMMAND__INIT;
    struct cl_err err = {0};
    if (check_running(u, &err) < 0) {
        api_fail(a, &err);
    } else if (unit_worker(u)->minor >= WORKER_MINOR_PAUSE) {
        resume.ttl_ns = ttl_ns;
        cmd.unit_id = u->id;
        cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_RESUME;
        cmd.resume = &resume;
        api_hold(a);
        if (worker_request(unit_worker(u), &cmd, on_kept, a, &err) < 0)
            on_kept(a, NULL, &err);
    } else if (ttl_ns) {
        sandbox_ask_extend(a, u, ttl_ns, on_kept);
    } else {
        reply_resumed(a, u, false);
    }
}

void sandbox_resume(struct api_call *a)
{
    const Cloche__V1__ResumeRequest *r = (const Cloche__V1__ResumeRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    if (validate_ttl(r->ttl_ns, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    struct unit *u = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    if (u->resting && (use_wakes(u) || unit_is_moving_away(u))) {
        sandbox_wake(a, u); /* and then it is asked for again */
        return;
    }
    if (!u->paused || u->resting) {
        keep_running(a, u, r->ttl_ns);
        return;
    }
    struct resting *x = begin(u, false, ASKED_BY_CLIENT, a);
    if (!x) {
        api_fail_with(a, CL_E_NOMEM, "resume");
        return;
    }
    x->ttl_ns = r->ttl_ns;
    note_resume(x, false, on_resume_noted);
}

/* --- use ---------------------------------------------------------------------------------------
 */

static void wake(struct unit *u, struct cl_list *calls)
{
    struct cl_err err = {0};
    struct resting *x = NULL;
    if (!unit_worker(u))
        (void)unit_fail_away(u, &err);
    else if (!(x = begin(u, false, ASKED_BY_USE, first_of(calls))))
        (void)cl_fail(&err, CL_E_NOMEM, 0, "resume");
    if (!x) {
        fail_calls(calls, &err);
        return;
    }
    move_calls(calls, &x->calls);
    note_resume(x, false, on_resume_noted);
}

struct unit *sandbox_use(const struct api_call *a, const char *id)
{
    struct unit *u = unit_find(a->s, a->p.tenant, id);
    if (!u || u->kind != BOOKS_SANDBOX || u->cancel || u->phase != PHASE_RUNNING)
        return NULL; /* the method says why not */
    u->used_ns = cl_now_ns();
    return use_wakes(u) ? u : NULL;
}

void sandbox_wake(struct api_call *a, struct unit *u)
{
    struct cl_list calls;
    api_about(a, u->id);
    if (u->resting) {
        cl_list_push(&u->resting->calls, &a->waits);
    } else {
        cl_list_init(&calls);
        cl_list_push(&calls, &a->waits);
        wake(u, &calls);
    }
}

/* --- to another worker -------------------------------------------------------------------------
 */

/* Who can have it and was not asked yet; NULL and why there is nobody. */
static struct worker *next_taker(struct resting *x)
{
    struct unit *u = x->u;
    if (u->paused && !x->kept) {
        (void)cl_fail(&x->why, CL_E_UNIMPL, 0,
                      "it is paused in its worker's memory only: its agent was not held, or that "
                      "worker keeps nothing (--paused-keys)");
        return NULL;
    }
    struct worker *w = unit_worker(u) ? worker_place_move(u, x->goes_on, x->tries++) : NULL;
    if (!w && x->why.code == CL_OK)
        (void)cl_fail(&x->why, CL_E_UNAVAILABLE, 0,
                      "no other worker takes work, has its template in the driver '%s'%s%s",
                      u->driver, u->need[BOOKS_EGRESS] > 0 ? ", gives network" : "",
                      x->goes_on ? ", and has room for it" : "");
    return w;
}

static enum drain_cost cost_of(const struct resting *x)
{
    if (x->u->paused && x->goes_on)
        return DRAIN_COST_PAUSE;
    return x->tries > 1 ? DRAIN_COST_BYTES : DRAIN_COST_NOTHING;
}

static void on_moved(void *arg, const struct cl_err *why)
{
    struct resting *x = arg;
    x->move = NULL;
    if (!why) {
        conclude(x);
        return;
    }
    x->why = *why;
    try_to_move(x);
}

/* Or it stays where it is. */
static void try_to_move(struct resting *x)
{
    struct worker *to = x->u->cancel ? NULL : next_taker(x);
    if (to && move_begin(x->u, to, on_moved, x, &x->move, &x->why) == 0)
        return;
    if (!x->u->cancel)
        drain_stuck(x->u, &x->why, cost_of(x));
    conclude(x);
}

void unit_move_away(struct unit *u)
{
    struct resting *x;
    if (u->phase != PHASE_RUNNING || !u->started || u->kind == BOOKS_JOB || u->cancel ||
        u->resting || (u->kind == BOOKS_SNAPSHOT && !u->paused) ||
        !(x = begin(u, true, ASKED_BY_DRAIN, NULL)))
        return;
    x->keep_ns = PAUSE_KEEP_S * CL_NS_PER_S;
    x->goes_on = !u->paused;
    x->kept = u->kept_until_ns > 0;
    x->for_idle = u->paused && u->paused_idle;
    if (u->paused || !worker_place_move(u, true, 0))
        try_to_move(x); /* not paused for nothing */
    else
        ask_pause(x, on_rests);
}

bool unit_is_moving_away(const struct unit *u)
{
    return u->resting && u->resting->asker == ASKED_BY_DRAIN;
}

/* --- the worker's word -------------------------------------------------------------------------
 */

/* Longer than the books let its lease go on? */
static bool is_kept_longer(const struct unit *u, const Cloche__V1__RunningUnit *m)
{
    return m->paused && m->kept && cl_wall_ns() + left_ns(m->expires_unix_ns) > u->kept_until_ns;
}

/* It ran when its worker was stopped, which is there again. */
static void let_go_on(struct unit *u)
{
    struct resting *x = begin(u, false, ASKED_BY_WORKER, NULL);
    if (x)
        note_resume(x, false, on_resume_noted);
}

/* As its worker says. */
static struct resting *begin_told(struct unit *u, enum asker asker,
                                  const Cloche__V1__RunningUnit *m)
{
    struct resting *x = begin(u, m->paused, asker, NULL);
    if (!x)
        return NULL;
    x->for_idle = m->paused_for_idle;
    x->image_bytes = m->image_bytes;
    x->kept = m->kept;
    x->goes_on = m->goes_on;
    x->expires_ns = m->expires_unix_ns;
    return x;
}

void unit_begins_at_rest(struct unit *u, const Cloche__V1__RunningUnit *m)
{
    struct resting *x = m->paused && !u->resting ? begin_told(u, ASKED_BY_BIRTH, m) : NULL;
    if (x)
        note_pause(x, false, on_followed);
}

void unit_rest_told(struct unit *u, const Cloche__V1__RunningUnit *m)
{
    if (u->phase != PHASE_RUNNING || !u->started || u->kind == BOOKS_JOB || u->resting)
        return;
    if (m->paused == u->paused && !u->rest_unsure && !is_kept_longer(u, m)) {
        u->image_bytes = m->paused ? m->image_bytes : 0; /* the books do not keep these */
        u->paused_idle = m->paused && m->paused_for_idle;
        if (m->goes_on && !u->stays_paused)
            let_go_on(u);
        return;
    }
    struct resting *x = begin_told(u, ASKED_BY_WORKER, m);
    if (!x)
        return;
    if (m->paused)
        note_pause(x, true, on_followed);
    else
        note_resume(x, true, on_followed);
}
