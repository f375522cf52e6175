/* worker/stop_io.c - see worker/stop.h. */
#include "worker/stop.h"

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"

#define TICK_NS (10 * CL_NS_PER_MS)
#define KEEP_NS (24 * 3600 * CL_NS_PER_S) /* as long as a pause that says nothing else */

struct pausing {
    struct unit_change change;
    struct stop *stop;
    struct unit *unit;
};

static void end(struct unit *u)
{
    unit_end(u, CLOCHE__V1__OUTCOME__OUTCOME_FAILED, CLOCHE__V1__REASON__REASON_WORKER_LOST,
             "its worker was shut down");
}

static void on_paused(void *arg, const struct cl_err *err)
{
    struct pausing *p = arg;
    p->stop->n_pausing--;
    if (err)
        end(p->unit); /* nothing happens to one that ended meanwhile */
    cl_free(p);
}

static void pause_unit(struct stop *s, struct unit *u)
{
    static const Cloche__V1__PauseCommand command = {
        .base = PROTOBUF_C_MESSAGE_INIT(&cloche__v1__pause_command__descriptor),
        .keep_ns = KEEP_NS};
    struct cl_err err = {0};
    struct pausing *p = cl_zalloc(sizeof *p);
    if (!p) {
        end(u);
        return;
    }
    *p = (struct pausing){.change = {.done = on_paused, .arg = p}, .stop = s, .unit = u};
    cl_list_init(&p->change.link);
    s->n_pausing++;
    if (unit_pause(u, &command, &p->change, &err) < 0)
        on_paused(p, &err);
    else
        u->goes_on = true;
}

/* One step towards its rest or end; is there one more to do? */
static bool advance(struct stop *s, struct unit *u, bool in_time)
{
    switch (u->state) {
    case UNIT_PAUSED:
        if (!u->is_kept)
            end(u);
        return false;
    case UNIT_PAUSING:
    case UNIT_RESUMING:
        if (s->pauses && in_time)
            return true;
        break;
    case UNIT_RUNNING:
        if (s->pauses && in_time && u->assign->kind == CLOCHE__V1__UNIT_KIND__UNIT_KIND_SANDBOX) {
            if (s->n_pausing < STOP_AT_ONCE)
                pause_unit(s, u);
            return u->state != UNIT_ENDING;
        }
        break;
    case UNIT_CLAIMING:
    case UNIT_IDENTIFYING:
        break;
    case UNIT_ENDING:
    case UNIT_ENDED:
    case UNIT_KEPT:
        return false;
    }
    end(u);
    return false;
}

static bool advance_all(struct stop *s)
{
    bool in_time = cl_now_ns() - s->began_ns < STOP_PAUSE_S * CL_NS_PER_S, more = false;
    CL_LIST_FOREACH (node, &s->units->all) {
        if (advance(s, CL_LIST_ENTRY(node, struct unit, link), in_time))
            more = true;
    }
    return more;
}

static bool any_goes_on(const struct stop *s)
{
    CL_LIST_FOREACH (node, &s->units->all) {
        const struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (unit_is_paused(u) && u->goes_on)
            return true;
    }
    return false;
}

/* Their leases are to last while nobody renews them.  False = wait for the scheduler's answer. */
static bool has_been_told(struct stop *s)
{
    uint64_t now = cl_now_ns();
    if (!any_goes_on(s))
        return true;
    if (!s->told_ns) {
        s->told_ns = now;
        session_renew_now(s->session);
        return false;
    }
    return session_is_renewed(s->session) || now - s->told_ns > STOP_TELL_S * CL_NS_PER_S;
}

static unsigned leave_all(struct stop *s)
{
    unsigned n = 0;
    CL_LIST_FOREACH (node, &s->units->all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (!unit_is_paused(u))
            continue;
        n += u->goes_on;
        unit_leave(u);
    }
    return n;
}

static void on_tick(void *arg)
{
    struct stop *s = arg;
    if (advance_all(s) || !has_been_told(s)) {
        cl_timer_start(&s->tick, TICK_NS);
        return;
    }
    unsigned n = leave_all(s);
    if (n > 0)
        log_event(LOG_UNITS_LEFT, "sandboxes=%u ms=%llu", n,
                  (unsigned long long)((cl_now_ns() - s->began_ns) / CL_NS_PER_MS));
    s->done(s->arg);
}

int stop_begin(struct stop *stop, struct cl_err *err)
{
    stop->began_ns = cl_now_ns();
    stop->units->stopping = true;
    if (cl_timer_init(&stop->tick, stop->loop, on_tick, stop, err) < 0)
        return -1;
    cl_timer_start(&stop->tick, 0);
    return 0;
}

void stop_fini(struct stop *stop)
{
    cl_timer_fini(&stop->tick);
}
