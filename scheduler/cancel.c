/* scheduler/cancel.c - see scheduler/cancel.h. */
#include "scheduler/cancel.h"

#include "base/mem.h"

enum { END_WAIT_S = 5 };

struct cancel {
    struct follower f;  /* of the unit, until it has ended */
    struct api_call *a; /* borrowed: cancel_gone() comes before its end */
    struct cancel_spec spec;
    struct cl_timer answer;
};
_Static_assert(offsetof(struct cancel, f) == 0, "on_change() relies on it");

static void on_answer(void *arg)
{
    struct cancel *x = arg;
    api_reply(x->a, x->spec.reply);
}

static void on_change(struct follower *f)
{
    struct cancel *x = (struct cancel *)(void *)f;
    if (f->unit->phase == PHASE_ENDED)
        cl_timer_start(&x->answer, 0);
}

static void on_noted(const struct books_unit *rows, size_t n, const char *next,
                     const struct cl_err *err, void *arg)
{
    (void)rows, (void)n, (void)next;
    struct api_call *a = arg;
    struct cancel *x = a->state; /* NULL: the client has left, and its wish holds */
    struct unit *u = err ? NULL : unit_find(a->s, a->p.tenant, a->object);
    if (x && err && err->code == CL_E_NOTFOUND)
        api_fail_with(a, CL_E_NOTFOUND, "no %s '%.40s'", books_kind_name(x->spec.kind), a->object);
    else if (err)
        api_fail(a, err);
    else if (x && !u)
        api_reply(a, x->spec.reply);
    if (x && u) {
        unit_follow(u, &x->f);
        cl_timer_start(&x->answer, END_WAIT_S * CL_NS_PER_S);
    }
    if (u)
        unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
    api_release(a);
}

void cancel_unit(struct api_call *a, const struct cancel_spec *spec)
{
    struct cl_err err = {0};
    api_about(a, spec->id);
    if (!cl_id_is(spec->id, books_kind_prefix(spec->kind))) {
        api_fail_with(a, CL_E_INVALID, "'%.40s' is no %s id", spec->id,
                      books_kind_name(spec->kind));
        return;
    }
    struct cancel *x = cl_zalloc(sizeof *x);
    if (!x || cl_timer_init(&x->answer, a->s->loop, on_answer, x, &err) < 0) {
        cl_free(x);
        api_fail_with(a, CL_E_NOMEM, "cancel");
        return;
    }
    x->a = a;
    x->spec = *spec;
    x->f.on_change = on_change;
    cl_list_init(&x->f.link);
    a->state = x;
    api_hold(a); /* until on_noted() */
    if (books_cancel(a->s->books, a->p.tenant, spec->id, on_noted, a, &err) < 0) {
        api_fail(a, &err);
        api_release(a);
    }
}

void cancel_gone(struct api_call *a, const struct cl_err *why)
{
    (void)why;
    struct cancel *x = a->state;
    if (!x)
        return;
    unit_unfollow(&x->f);
    cl_timer_fini(&x->answer);
    a->state = NULL;
    cl_free(x);
}

static void on_abandoned(const struct books_unit *rows, size_t n, const char *next,
                         const struct cl_err *err, void *arg)
{
    (void)rows, (void)n, (void)next, (void)err;
    (void)arg; /* unit_cancel() did the work; this is the durable wish */
}

static bool is_over(const struct unit *u)
{
    return u->phase >= PHASE_SETTLING || u->sched->stopping;
}

void cancel_abandoned(struct unit *u)
{
    if (is_over(u))
        return;
    (void)!books_cancel(u->sched->books, u->tenant->name, u->id, on_abandoned, NULL, NULL);
    unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
}

void cancel_unmade(struct unit *u)
{
    if (is_over(u))
        return;
    (void)!books_unmake(u->sched->books, u->tenant->name, u->id, on_abandoned, NULL, NULL);
    unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
}
