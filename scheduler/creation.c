/* scheduler/creation.c - see scheduler/creation.h. */
#include "scheduler/creation.h"

#include "base/mem.h"
#include "scheduler/cancel.h"
#include "scheduler/move.h"

static void creation_free(struct creation *c)
{
    struct api_call *a = c->a;
    unit_unfollow(&c->f);
    cl_timer_fini(&c->kick);
    a->state = NULL;
    cl_free(c);
    api_release(a);
}

static void fail_ended(struct api_call *a, const struct unit *u)
{
    const Cloche__V1__ExecResult *r = u->terminal ? u->terminal->result : NULL;
    if (u->refused.code)
        api_fail(a, &u->refused);
    else if (r && r->reason == CLOCHE__V1__REASON__REASON_NO_TEMPLATE)
        api_fail_with(a, CL_E_NOTFOUND, "%s", r->message);
    else
        api_fail_with(a, CL_E_UNAVAILABLE, "the %s ended before it %s: %s",
                      books_kind_name(u->kind), u->kind == BOOKS_SNAPSHOT ? "was whole" : "ran",
                      r ? r->message : "");
}

static bool is_there(const struct unit *u)
{
    return u->phase == PHASE_RUNNING && u->started &&
           (u->kind != BOOKS_SNAPSHOT || (u->paused && !u->cancel));
}

static void on_kick(void *arg)
{
    struct creation *c = arg;
    const struct unit *u = c->f.unit;
    if (c->a->replied || !u)
        return;
    if (u->phase == PHASE_ENDED)
        fail_ended(c->a, u);
    else if (is_there(u))
        c->reply(c->a, u);
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
    struct api_call *a = arg;
    struct creation *c = a->state;
    if (err)
        api_fail(a, err);
    else if (!u)
        api_fail_with(a, CL_E_STATE, "what this idempotency key made has ended ('%s')", a->object);
    if (!c && u)
        leave(u, replayed);
    if (!c || !u)
        return;
    c->replayed = replayed;
    unit_follow(u, &c->f);
    cl_timer_start(&c->kick, 0);
}

struct creation *creation_new(struct api_call *a,
                              void (*reply)(struct api_call *a, const struct unit *u))
{
    struct cl_err err = {0};
    struct creation *c = cl_zalloc(sizeof *c);
    if (!c || cl_timer_init(&c->kick, a->s->loop, on_kick, c, &err) < 0) {
        cl_free(c);
        api_fail_with(a, CL_E_NOMEM, "creation");
        return NULL;
    }
    c->a = a;
    c->reply = reply;
    c->f.on_change = on_change;
    cl_list_init(&c->f.link);
    cloche__v1__job_spec__init(&c->spec);
    cloche__v1__resources__init(&c->resources);
    a->state = c;
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
    submit(c->a, spec, on_submitted, c->a);
}

void creation_gone(struct api_call *a, const struct cl_err *why)
{
    struct creation *c = a->state;
    if (!c)
        return;
    struct unit *u = c->f.unit;
    unit_unfollow(&c->f);
    if (why && u)
        leave(u, c->replayed);
    creation_free(c);
}
