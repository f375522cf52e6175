/* scheduler/lead.c - see scheduler/lead.h. */
#include "scheduler/lead.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/proc.h"
#include "cloche/v1/fleet.pb-c.h"
#include "observability/log.h"
#include "redis/books_lead.h"

enum { LOOK_EVERY_MS = 250 }; /* while it stands by */

enum state { STANDING_BY = 1, LEADING, OVER };

struct lead {
    struct sched *s;
    enum state state;
    bool asking;    /* the books have not answered yet */
    uint64_t epoch; /* of our term, or of the newest other */
    uint64_t dead;  /* the epoch of one that we know to be dead */
    char mark[CL_PROC_MARK];
    char leader[BOOKS_NAME]; /* for whom we stand by, as the log has it */
    uint8_t about[BOOKS_ABOUT_MAX];
    size_t about_n;
    uint64_t asked_ns; /* when the question was sent */
    struct cl_timer timer;
    struct cl_timer term;    /* while others stand by: until they may begin a term */
    void (*done)(void *arg); /* of a resignation */
    void *arg;
};

/* --- our term ------------------------------------------------------------------------------------
 */

static void begin(struct lead *l)
{
    struct sched *s = l->s;
    struct cl_err err = {0};
    char host[64] = "";
    (void)gethostname(host, sizeof host - 1);
    l->state = LEADING;
    log_event(LOG_LEADS, "scheduler=%s group=%s epoch=%llu", s->id, s->o->lead_group,
              (unsigned long long)l->epoch);
    cl_notify_status("leads, epoch %llu", (unsigned long long)l->epoch);
    const struct audit_field fields[] = {AUDIT_NUM("epoch", l->epoch), AUDIT_STR("host", host),
                                         AUDIT_STR("scheduler", s->id)};
    if (audit_emit(s->audit, NULL, AUDIT_SCHEDULER_LEAD, fields, CL_COUNT(fields), NULL, NULL,
                   &err) < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", err.text);
    sched_begin(s);
}

static void end_deposed(struct lead *l, const struct cl_err *why)
{
    l->state = OVER;
    cl_timer_stop(&l->timer);
    cl_timer_stop(&l->term);
    log_event(LOG_DEPOSED, "scheduler=%s epoch=%llu text='%s'", l->s->id,
              (unsigned long long)l->epoch, why->text);
    sched_fail(l->s, why);
}

/* Workers that stayed with this one would not find the next: their leases cannot be renewed here.
 */
static void on_term_over(void *arg)
{
    struct lead *l = arg;
    struct cl_err why = {0};
    (void)cl_fail(
        &why, CL_E_UNAVAILABLE, 0,
        "the books were not heard of for --lead-ttl, and others stand by: one of them may "
        "lead by now; start this one again, to stand by");
    end_deposed(l, &why);
}

/* --- the books' answers --------------------------------------------------------------------------
 */

static void look_later(struct lead *l)
{
    uint64_t ns = l->state == LEADING ? l->s->o->lead_ttl / 3 : LOOK_EVERY_MS * CL_NS_PER_MS;
    cl_timer_start(&l->timer, ns);
}

/* Until somebody else may begin a term, by the time of the books: never less than this. */
static uint64_t term_left(const struct lead *l)
{
    uint64_t end = l->asked_ns + l->s->o->lead_ttl, now = cl_now_ns();
    return end > now ? end - now : 0;
}

static void note_ours(struct lead *l, const struct books_leader *leader)
{
    l->epoch = leader->epoch; /* another one of ours when the books were lost */
    if (l->state == STANDING_BY)
        begin(l);
    if (l->state != LEADING)
        return;
    look_later(l);
    if (leader->others > 0)
        cl_timer_start(&l->term, term_left(l));
    else
        cl_timer_stop(&l->term);
}

static void note_other(struct lead *l, const struct books_leader *leader)
{
    if (l->state == LEADING) {
        struct cl_err why = {0};
        (void)cl_fail(&why, CL_E_STATE, 0,
                      "scheduler '%s' leads since this one was silent: start it again, to stand by",
                      leader->id);
        end_deposed(l, &why);
        return;
    }
    l->epoch = leader->epoch;
    if (strcmp(l->leader, leader->id) != 0) {
        (void)snprintf(l->leader, sizeof l->leader, "%s", leader->id);
        log_event(LOG_STANDS_BY, "scheduler=%s group=%s leader=%s epoch=%llu", l->s->id,
                  l->s->o->lead_group, leader->id, (unsigned long long)leader->epoch);
        cl_notify_status("stands by for %s", leader->id);
    }
    if (l->dead != leader->epoch && cl_proc_mark_is_dead(l->mark, leader->proof)) {
        l->dead = leader->epoch;
        lead_look(l);
    } else {
        look_later(l);
    }
}

static void on_answer(const struct books_leader *leader, const struct cl_err *err, void *arg)
{
    struct lead *l = arg;
    (void)err; /* the books' state is in the log */
    l->asking = false;
    if (l->state == OVER)
        return;
    if (!leader)
        look_later(l);
    else if (leader->is_us)
        note_ours(l, leader);
    else
        note_other(l, leader);
}

void lead_look(struct lead *l)
{
    const struct books_claim claim = {.id = l->s->id,
                                      .dead = l->dead,
                                      .ttl_ms = l->s->o->lead_ttl / CL_NS_PER_MS,
                                      .proof = l->mark,
                                      .about = l->about,
                                      .about_n = l->about_n};
    struct cl_err err = {0};
    if (l->asking || l->state == OVER)
        return;
    l->asking = true;
    l->asked_ns = cl_now_ns();
    if (books_lead(l->s->books, &claim, on_answer, l, &err) < 0)
        on_answer(NULL, &err, l);
}

static void on_timer(void *arg)
{
    lead_look(arg);
}

/* --- life ----------------------------------------------------------------------------------------
 */

bool lead_is_ours(const struct lead *l)
{
    return l->state == LEADING;
}

static void on_resigned(const struct cl_err *err, void *arg)
{
    struct lead *l = arg;
    if (!err)
        log_event(LOG_RESIGNED, "scheduler=%s", l->s->id);
    l->done(l->arg);
}

void lead_resign(struct lead *l, void (*done)(void *arg), void *arg)
{
    struct cl_err err = {0};
    l->done = done;
    l->arg = arg;
    l->state = OVER;
    cl_timer_stop(&l->timer);
    cl_timer_stop(&l->term);
    if (books_resign(l->s->books, l->s->id, on_resigned, l, &err) < 0)
        on_resigned(&err, l);
}

/* What a list says of us. */
static int describe(struct lead *l, struct cl_err *err)
{
    Cloche__V1__Scheduler m = CLOCHE__V1__SCHEDULER__INIT;
    const struct sched_options *o = l->s->o;
    char host[64] = "";
    (void)gethostname(host, sizeof host - 1);
    m.hostname = host;
    m.address = (char *)(uintptr_t)(o->tcp[0] ? o->tcp : o->listen);
    m.build = (char *)(uintptr_t)CLOCHE_VERSION;
    l->about_n = cloche__v1__scheduler__get_packed_size(&m);
    if (l->about_n > sizeof l->about)
        return cl_fail(err, CL_E_TOOBIG, 0, "the address of this scheduler is too long");
    (void)cloche__v1__scheduler__pack(&m, l->about);
    return 0;
}

int lead_new(struct sched *s, struct lead **ret_lead, struct cl_err *err)
{
    struct lead *l = cl_zalloc(sizeof *l);
    if (!l)
        return cl_fail(err, CL_E_NOMEM, 0, "lead");
    l->s = s;
    l->state = STANDING_BY;
    cl_proc_mark(l->mark);
    if (describe(l, err) < 0 || cl_timer_init(&l->timer, s->loop, on_timer, l, err) < 0 ||
        cl_timer_init(&l->term, s->loop, on_term_over, l, err) < 0) {
        cl_timer_fini(&l->timer);
        cl_free(l);
        return -1;
    }
    *ret_lead = l;
    return 0;
}

void lead_free(struct lead *l)
{
    if (!l)
        return;
    cl_timer_fini(&l->timer);
    cl_timer_fini(&l->term);
    cl_free(l);
}
