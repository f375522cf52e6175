/* scheduler/creation.c - see scheduler/creation.h. */
#include "scheduler/creation.h"

#include "base/mem.h"
#include "scheduler/cancel.h"
#include "scheduler/move.h"

static void release(struct creation *c)
{
    if (--c->refs > 0)
        return;
    struct api_call *a = c->a;
    cl_timer_fini(&c->kick);
    cl_free(c);
    api_release(a);
}

static void tell(struct creation *c, struct unit *u, const struct cl_err *err)
{
    creation_fn *fn = c->fn;
    c->fn = NULL;
    if (fn)
        fn(c->arg, u, err);
}

static void tell_ended(struct creation *c, struct unit *u)
{
    const Cloche__V1__ExecResult *r = u->terminal ? u->terminal->result : NULL;
    struct cl_err err = u->refused;
    if (err.code == CL_OK && r && r->reason == CLOCHE__V1__REASON__REASON_NO_TEMPLATE)
        (void)cl_fail(&err, CL_E_NOTFOUND, 0, "%s", r->message);
    else if (err.code == CL_OK)
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "the %s ended before it %s: %s",
                      books_kind_name(u->kind), u->kind == BOOKS_SNAPSHOT ? "was whole" : "ran",
                      r ? r->message : "");
    tell(c, NULL, &err);
}

static bool is_there(const struct unit *u)
{
    return u->phase == PHASE_RUNNING && u->started &&
           (u->kind != BOOKS_SNAPSHOT || (u->paused && !u->cancel));
}

static void on_kick(void *arg)
{
    struct creation *c = arg;
    struct unit *u = c->f.unit;
    if (!u)
        return;
    if (u->phase == PHASE_ENDED)
        tell_ended(c, u);
    else if (is_there(u))
        tell(c, u, NULL);
}

static void on_change(struct follower *f)
{
    cl_timer_start(&((struct creation *)(void *)f)->kick, 0);
}
_Static_assert(offsetof(struct creation, f) == 0, "on_change() relies on it");

/* Its caller leaves, and does not follow it any more: unless another one waits for it or has got
 * it, nobody knows its id, so nobody could end it. */
static void leave(struct unit *u, bool replayed)
{
    if (cl_list_empty(&u->followers) && !(replayed && is_there(u)))
        cancel_unmade(u);
}

static void on_submitted(void *arg, struct unit *u, bool replayed, const struct cl_err *err)
{
    struct creation *c = arg;
    struct cl_err over = {0};
    if (!u && !err) {
        (void)cl_fail(&over, CL_E_STATE, 0, "what this idempotency key made has ended ('%s')",
                      c->a->object);
        err = &over;
    }
    c->replayed = replayed;
    if (err) {
        tell(c, NULL, err);
    } else if (c->dropped) {
        leave(u, replayed);
    } else {
        unit_follow(u, &c->f);
        cl_timer_start(&c->kick, 0);
    }
    release(c);
}

struct creation *creation_new(struct api_call *a, creation_fn *fn, void *arg)
{
    struct cl_err err = {0};
    struct creation *c = cl_zalloc(sizeof *c);
    if (!c || cl_timer_init(&c->kick, a->s->loop, on_kick, c, &err) < 0) {
        cl_free(c);
        api_fail_with(a, CL_E_NOMEM, "creation");
        return NULL;
    }
    c->refs = 1;
    c->a = a;
    c->fn = fn;
    c->arg = arg;
    c->f.on_change = on_change;
    cl_list_init(&c->f.link);
    cloche__v1__job_spec__init(&c->spec);
    cloche__v1__resources__init(&c->resources);
    api_hold(a);
    return c;
}

void creation_copy_spec(struct creation *c, const struct unit *of)
{
    const Cloche__V1__JobSpec *spec = of->record->spec;
    unit_sizes(of, &c->resources);
    c->spec.template_ = spec->template_;
    c->spec.resources = &c->resources;
    c->spec.network = spec->network;
    c->spec.network_grant = spec->network_grant;
}

void creation_submit(struct creation *c, struct submit_spec *spec)
{
    spec->spec = &c->spec;
    spec->refuse_over_quota = spec->waits = true;
    c->refs++;
    submit(c->a, spec, on_submitted, c);
}

void creation_drop(struct creation *c, bool leaves)
{
    if (!c)
        return;
    struct unit *u = c->f.unit;
    unit_unfollow(&c->f);
    cl_timer_stop(&c->kick);
    c->fn = NULL;
    c->dropped = true;
    if (leaves && u)
        leave(u, c->replayed);
    release(c);
}

/* --- a call that does nothing else ------------------------------------------------------------ */

static void on_made(void *arg, struct unit *u, const struct cl_err *err)
{
    struct creation *c = arg;
    if (err)
        api_fail(c->a, err);
    else
        c->reply(c->a, u);
}

struct creation *creation_call(struct api_call *a, creation_reply_fn *reply)
{
    struct creation *c = creation_new(a, on_made, NULL);
    if (!c)
        return NULL;
    c->arg = c;
    c->reply = reply;
    a->state = c;
    return c;
}

void creation_gone(struct api_call *a, const struct cl_err *why)
{
    struct creation *c = a->state;
    a->state = NULL;
    creation_drop(c, why != NULL);
}
