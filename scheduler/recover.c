/* scheduler/recover.c - back from the books: the units of every tenant at start, and every second
 * the leases that ran out.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "redis/books_recover.h"
#include "scheduler/ends.h"
#include "scheduler/lead.h"
#include "scheduler/snapshots.h"

enum {
    PAGE = 500,
    REAP_MAX = 128,
    /* Tenants that are read at a time: each asks twice and waits, and who takes over has to be
     * quick.  Each may have a page of records under way. */
    LANES = 16,
};

struct recovery;

/* One tenant that is being read: first what the log lacks, then what lives. */
struct lane {
    struct recovery *r;
    char tenant[BOOKS_NAME]; /* "" = it is free */
};

struct recovery {
    struct sched *s;
    char tenants_after[BOOKS_NAME];
    char names[PAGE][BOOKS_NAME];
    size_t n_names, next_name;
    bool more_tenants;
    struct lane lanes[LANES];
    size_t busy;       /* lanes */
    struct cl_err why; /* what failed first; the others are waited for */
    size_t units, ends;
};

static void read_tenants(struct recovery *r);
static void advance(struct recovery *r);

/* The next time that the books open it starts anew. */
static void give_up(struct recovery *r, const struct cl_err *err)
{
    log_event(LOG_REDIS_DOWN, "text='recovery: %s'", err->text);
    cl_free(r);
}

static void free_up(struct lane *l, const struct cl_err *err)
{
    l->tenant[0] = '\0';
    l->r->busy--;
    if (err && l->r->why.code == CL_OK)
        l->r->why = *err;
}

/* Of a callback: the recovery may be over after it. */
static void end_lane(struct lane *l, const struct cl_err *err)
{
    struct recovery *r = l->r;
    free_up(l, err);
    advance(r);
}

static enum phase phase_of(enum books_state state)
{
    switch (state) {
    case BOOKS_QUEUED:
        return PHASE_QUEUED;
    case BOOKS_STARTING:
        return PHASE_ASSIGNING;
    case BOOKS_RUNNING:
    case BOOKS_PAUSED:
        return PHASE_RUNNING;
    case BOOKS_ENDED:
        return PHASE_ENDED;
    }
    return PHASE_ENDED;
}

/* Of one that has been started: what runs it. */
static void restore_start(struct unit *u, const struct books_unit *row)
{
    Cloche__V1__StartRecord *m = cloche__v1__start_record__unpack(NULL, row->start_n, row->start);
    u->started_wall_ns = row->started_ms * CL_NS_PER_MS;
    if (!m)
        return; /* its worker knows */
    (void)snprintf(u->vm, sizeof u->vm, "%s", m->vm);
    (void)snprintf(u->driver, sizeof u->driver, "%s", m->driver);
    u->separation = m->guest_separation;
    pb_free(&m->base);
}

static int restore(struct sched *s, const struct books_unit *row, struct cl_err *err)
{
    struct tenant *t = cl_map_get(s->tenants, row->tenant);
    struct unit *u;
    if (cl_map_get(s->units, row->id) || !t)
        return 0;
    Cloche__V1__UnitRecord *rec = cloche__v1__unit_record__unpack(NULL, row->spec_n, row->spec);
    if (!rec || !rec->spec || rec->version != 1) {
        if (rec)
            pb_free(&rec->base);
        return cl_fail(err, CL_E_UNIMPL, 0, "its record is of a newer release");
    }
    if (unit_new(s, t, row->id, row->kind, rec, &u, err) < 0) {
        pb_free(&rec->base);
        return -1;
    }
    u->phase = phase_of(row->state);
    u->paused = row->state == BOOKS_PAUSED;
    u->started = row->state == BOOKS_RUNNING || u->paused;
    u->cancel = row->cancel;
    u->fence = row->fence;
    u->attempt = row->attempt;
    u->created_ns = row->created_us * CL_NS_PER_US;
    if (u->started)
        restore_start(u, row);
    if (unit_set_lease(u, row->lease, err) < 0)
        return -1;
    (void)snprintf(u->worker_id, sizeof u->worker_id, "%s", row->worker);
    memcpy(u->need, row->need, sizeof u->need);
    if (u->cancel && u->paused)
        unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
    else if (u->paused && u->kind == BOOKS_SNAPSHOT)
        snapshot_is_whole(u);
    if (u->phase != PHASE_QUEUED)
        return 0; /* its worker says Hello, or its lease runs out */
    if (u->cancel)
        unit_end_queued(u, CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED,
                        CLOCHE__V1__REASON__REASON_REQUESTED, "cancelled");
    else
        return unit_enqueue(u, true, err);
    return 0;
}

static void on_units(const struct books_unit *rows, size_t n, const char *next,
                     const struct cl_err *err, void *arg);
static void on_ends(const struct books_unit *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg);

static int read_live(struct lane *l, const char *token, struct cl_err *err)
{
    const struct books_list page = {.tenant = l->tenant, .token = token, .n = PAGE};
    return books_live(l->r->s->books, &page, on_units, l, err);
}

static int read_ends(struct lane *l, const char *token, struct cl_err *err)
{
    const struct books_list page = {.tenant = l->tenant, .token = token, .n = PAGE};
    return books_unlogged(l->r->s->books, &page, on_ends, l, err);
}

static void on_units(const struct books_unit *rows, size_t n, const char *next,
                     const struct cl_err *err, void *arg)
{
    struct lane *l = arg;
    struct cl_err bad = {0};
    for (size_t i = 0; !err && i < n; i++) {
        if (restore(l->r->s, &rows[i], &bad) < 0)
            log_event(LOG_RECOVERED, "unit=%s text='left alone: %s'", rows[i].id, bad.text);
        else
            l->r->units++;
    }
    bad = (struct cl_err){0};
    if (err || !next[0])
        end_lane(l, err);
    else if (read_live(l, next, &bad) < 0)
        end_lane(l, &bad);
}

/* Before this process ends any itself. */
static void on_ends(const struct books_unit *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    struct lane *l = arg;
    struct cl_err bad = {0};
    for (size_t i = 0; !err && i < n; i++)
        ends_tell_recovered(l->r->s, &rows[i]);
    l->r->ends += err ? 0 : n;
    if (err)
        end_lane(l, err);
    else if ((next[0] ? read_ends(l, next, &bad) : read_live(l, "", &bad)) < 0)
        end_lane(l, &bad);
}

static struct lane *free_lane(struct recovery *r)
{
    for (size_t i = 0; i < LANES; i++)
        if (!r->lanes[i].tenant[0])
            return &r->lanes[i];
    return NULL;
}

static void finish(struct recovery *r)
{
    log_event(LOG_RECOVERED, "units=%zu tenants=%zu ends=%zu", r->units,
              cl_map_count(r->s->tenants), r->ends);
    r->s->recovered = true;
    sched_serve(r->s);
    units_dispatch_soon(r->s);
    cl_free(r);
}

/* The next tenants of this page; behind them the next page, or the end. */
static void advance(struct recovery *r)
{
    struct lane *l;
    struct cl_err err = {0};
    while (r->why.code == CL_OK && r->next_name < r->n_names && (l = free_lane(r)) != NULL) {
        *l = (struct lane){.r = r};
        memcpy(l->tenant, r->names[r->next_name++], sizeof l->tenant);
        r->busy++;
        if (read_ends(l, "", &err) < 0)
            free_up(l, &err);
    }
    if (r->busy > 0)
        return;
    if (r->why.code)
        give_up(r, &r->why);
    else if (r->more_tenants)
        read_tenants(r);
    else
        finish(r);
}

static void on_tenants(const struct books_tenant *rows, size_t n, const char *next,
                       const struct cl_err *err, void *arg)
{
    struct recovery *r = arg;
    struct cl_err bad = {0};
    struct tenant *t;
    if (err) {
        give_up(r, err);
        return;
    }
    r->n_names = r->next_name = 0;
    for (size_t i = 0; i < n && r->n_names < PAGE; i++) {
        if (tenant_cache(r->s, &rows[i], &t, &bad) < 0)
            log_event(LOG_RECOVERED, "tenant=%s text='left alone: %s'", rows[i].name, bad.text);
        else
            memcpy(r->names[r->n_names++], rows[i].name, BOOKS_NAME);
    }
    (void)snprintf(r->tenants_after, sizeof r->tenants_after, "%s", next);
    r->more_tenants = next[0];
    advance(r);
}

static void read_tenants(struct recovery *r)
{
    struct cl_err err = {0};
    if (books_tenant_list(r->s->books, r->tenants_after, PAGE, on_tenants, r, &err) < 0)
        give_up(r, &err);
}

int units_recover(struct sched *s, struct cl_err *err)
{
    struct recovery *r = cl_zalloc(sizeof *r);
    if (!r)
        return cl_fail(err, CL_E_NOMEM, 0, "recovery");
    r->s = s;
    read_tenants(r);
    return 0;
}

/* --- the reaper --------------------------------------------------------------------------------
 */

static void on_reaped(const struct books_unit *rows, size_t n, const char *next,
                      const struct cl_err *err, void *arg)
{
    (void)next;
    struct sched *s = arg;
    if (err)
        return; /* in a second again */
    for (size_t i = 0; i < n; i++) {
        struct unit *u = unit_find(s, rows[i].tenant, rows[i].id);
        if (u && u->fence == rows[i].fence)
            unit_reaped(u);
    }
}

void on_reap(void *sched)
{
    struct sched *s = sched;
    size_t at = 0;
    if (!books_is_ready(s->books) || !s->recovered)
        return;
    for (struct tenant *t; (t = cl_map_next(s->tenants, &at, NULL)) != NULL;) {
        if (t->n_units > 0)
            (void)!books_reap(s->books, t->name, REAP_MAX, on_reaped, s, NULL);
    }
}
