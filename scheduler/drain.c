/* scheduler/drain.c - see scheduler/drain.h. */
#include "scheduler/drain.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "observability/log.h"

enum {
    LOOK_EVERY_MS = 1000,
    AT_ONCE = 2, /* from one worker: each stands still meanwhile, and its bytes go through
                    this process */
};

static const unsigned again_s[] = {
    [DRAIN_COST_NOTHING] = 10, [DRAIN_COST_BYTES] = 20, [DRAIN_COST_PAUSE] = 600};

void drain_soon(struct sched *s)
{
    cl_timer_start(&s->moves, 0);
}

void drain_stuck(struct unit *u, const struct cl_err *why, enum drain_cost cost)
{
    struct worker *w = unit_worker(u);
    u->stuck_until_ns = cl_now_ns() + again_s[cost] * CL_NS_PER_S;
    log_event(LOG_MOVE_FAILED, "unit=%s from=%s text='%s'", u->id, u->worker_id, why->text);
    if (w)
        (void)snprintf(w->drain_trouble, sizeof w->drain_trouble, "%s '%s': %s",
                       books_kind_name(u->kind), u->id, why->text);
}

void drain_place_came(struct sched *s)
{
    size_t at = 0;
    uint64_t soon = cl_now_ns() + again_s[DRAIN_COST_NOTHING] * CL_NS_PER_S;
    if (!cl_timer_is_armed(&s->moves))
        return; /* nobody is drained */
    for (struct unit *u; (u = cl_map_next(s->units, &at, NULL)) != NULL;) {
        if (u->stuck_until_ns <= soon)
            u->stuck_until_ns = 0;
    }
    drain_soon(s);
}

static bool is_on(const struct unit *u, const struct worker *w)
{
    return u->phase == PHASE_RUNNING && u->kind != BOOKS_JOB && strcmp(u->worker_id, w->id) == 0;
}

static void drain(struct worker *w)
{
    size_t at = 0;
    unsigned n = 0;
    uint64_t now = cl_now_ns();
    for (const struct unit *u; (u = cl_map_next(w->sched->units, &at, NULL)) != NULL;)
        n += is_on(u, w) && unit_is_moving_away(u);
    at = 0;
    for (struct unit *u; n < AT_ONCE && (u = cl_map_next(w->sched->units, &at, NULL)) != NULL;) {
        if (!is_on(u, w) || u->resting || now < u->stuck_until_ns)
            continue;
        unit_move_away(u);
        n += unit_is_moving_away(u);
    }
}

void on_drain_look(void *sched)
{
    struct sched *s = sched;
    size_t at = 0;
    bool any = false;
    for (struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;) {
        if (!w->draining || !w->call)
            continue;
        any = true;
        drain(w);
    }
    if (any)
        cl_timer_start(&s->moves, LOOK_EVERY_MS * CL_NS_PER_MS);
}
