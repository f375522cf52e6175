/* agent/contexts.c - see agent/contexts.h. */
#include "agent/contexts.h"

#include <errno.h>
#include <string.h>

#include "agent/text.h"

/* Cgroups of contexts are numbered far above those of streams. */
#define SERIAL_BASE (UINT64_C(1) << 63)

void contexts_init(struct contexts *cs, const struct room_world *world)
{
    *cs = (struct contexts){.world = world, .serial = SERIAL_BASE};
}

static struct context *find(const struct contexts *cs, const char *id)
{
    for (size_t i = 0; i < CL_COUNT(cs->all); i++)
        if (cs->all[i] && !context_is_deleted(cs->all[i]) &&
            strcmp(context_id(cs->all[i]), id) == 0)
            return cs->all[i];
    return NULL;
}

static int make(struct contexts *cs, struct context_spec *spec, uint32_t max,
                struct context **ret_context, struct cl_err *err)
{
    size_t used = 0;
    struct context **slot = NULL;
    for (size_t i = 0; i < CL_COUNT(cs->all); i++) {
        if (cs->all[i])
            used++;
        else if (!slot)
            slot = &cs->all[i];
    }
    if (!slot || (max > 0 && used >= max))
        return cl_fail(err, CL_E_TOOBIG, EDQUOT, "%zu code contexts", used);
    spec->serial = cs->serial++;
    if (context_new(cs->world, spec, slot, err) < 0)
        return -1;
    *ret_context = *slot;
    return 0;
}

static int answer(uint64_t stream, Cloche__V1__GuestContextResult *body, struct gate *gate,
                  struct chan *chan, struct cl_err *err)
{
    GUEST_FRAME(frame, stream, CONTEXT_RESULT, context_result, body);
    gate_close(gate, stream);
    return chan_send(chan, &frame, err);
}

static int answer_errno(uint64_t stream, int error, char *why, struct gate *gate, struct chan *chan,
                        struct cl_err *err)
{
    Cloche__V1__GuestContextResult body = CLOCHE__V1__GUEST_CONTEXT_RESULT__INIT;
    text_repair(why);
    body.error_number = error;
    body.error = why;
    return answer(stream, &body, gate, chan, err);
}

static int list(const struct contexts *cs, uint64_t stream, struct gate *gate, struct chan *chan,
                struct cl_err *err)
{
    Cloche__V1__GuestContextResult body = CLOCHE__V1__GUEST_CONTEXT_RESULT__INIT;
    Cloche__V1__GuestContext rows[CONTEXTS_MAX], *at[CONTEXTS_MAX];
    body.contexts = at;
    for (size_t i = 0; i < CL_COUNT(cs->all); i++) {
        if (!cs->all[i] || context_is_deleted(cs->all[i]))
            continue;
        at[body.n_contexts] = &rows[body.n_contexts];
        context_describe(cs->all[i], &rows[body.n_contexts++]);
    }
    return answer(stream, &body, gate, chan, err);
}

static int create(struct contexts *cs, uint64_t stream, const Cloche__V1__GuestContextOp *op,
                  struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct cl_err failure = {0};
    struct context *c = NULL;
    struct context_spec spec = {
        .id = op->id, .language = op->language, .cwd = op->cwd, .env = op->env, .n_env = op->n_env};
    int rc = find(cs, op->id) ? cl_fail(&failure, CL_E_EXISTS, EEXIST, "context '%s'", op->id)
                              : make(cs, &spec, op->contexts_max, &c, &failure);
    if (rc < 0)
        return answer_errno(stream, failure.sys ? failure.sys : EINVAL, failure.text, gate, chan,
                            err);
    (void)context_await_ready(c, stream); /* it is new: nothing else waits */
    return 0;
}

static int change(struct context *c, uint64_t stream, const Cloche__V1__GuestContextOp *op,
                  struct gate *gate, struct chan *chan, struct cl_err *err)
{
    static char busy[] = "another operation on this context is under way";
    Cloche__V1__GuestContextResult body = CLOCHE__V1__GUEST_CONTEXT_RESULT__INIT;
    if (op->kind == CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_RESTART) {
        if (context_await_ready(c, stream) < 0)
            return answer_errno(stream, EBUSY, busy, gate, chan, err);
        context_restart(c);
        return 0;
    }
    if (op->kind == CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_DELETE)
        context_delete(c);
    else
        body.was_running = context_interrupt(c);
    return answer(stream, &body, gate, chan, err);
}

int contexts_op(struct contexts *cs, uint64_t stream, const Cloche__V1__GuestContextOp *op,
                struct gate *gate, struct chan *chan, struct cl_err *err)
{
    static char nothing[] = "no such context", unknown[] = "no such operation";
    if (op->kind == CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_LIST)
        return list(cs, stream, gate, chan, err);
    if (op->kind == CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_CREATE)
        return create(cs, stream, op, gate, chan, err);
    if (op->kind < CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_RESTART ||
        op->kind > CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_INTERRUPT)
        return answer_errno(stream, EINVAL, unknown, gate, chan, err);
    struct context *c = find(cs, op->id);
    return c ? change(c, stream, op, gate, chan, err)
             : answer_errno(stream, ENOENT, nothing, gate, chan, err);
}

static int refuse(uint64_t stream, int error, char *why, struct gate *gate, struct chan *chan,
                  struct cl_err *err)
{
    Cloche__V1__GuestCellEnded body = CLOCHE__V1__GUEST_CELL_ENDED__INIT;
    text_repair(why);
    body.end = CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_REFUSED;
    body.error_number = error;
    body.error = why;
    GUEST_FRAME(frame, stream, CELL_ENDED, cell_ended, &body);
    gate_close(gate, stream);
    return chan_send(chan, &frame, err);
}

int contexts_run(struct contexts *cs, uint64_t stream, const Cloche__V1__GuestCell *cell,
                 struct gate *gate, struct chan *chan, struct cl_err *err)
{
    static char nothing[] = "no such context";
    struct cl_err failure = {0};
    struct context *c = find(cs, cell->id);
    struct context_spec spec = {.id = cell->id, .language = cell->language, .cwd = ""};
    if (!c && cell->language == CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_UNSPECIFIED)
        return refuse(stream, ENOENT, nothing, gate, chan, err);
    if (!c && make(cs, &spec, cell->contexts_max, &c, &failure) < 0)
        return refuse(stream, failure.sys ? failure.sys : EINVAL, failure.text, gate, chan, err);
    return context_run(c, stream, cell, gate, chan, err);
}

void contexts_reset(struct contexts *cs, uint64_t stream)
{
    for (size_t i = 0; i < CL_COUNT(cs->all); i++)
        if (cs->all[i])
            context_reset(cs->all[i], stream);
}

void contexts_reseed(struct contexts *cs)
{
    for (size_t i = 0; i < CL_COUNT(cs->all); i++)
        if (cs->all[i])
            context_reseed(cs->all[i]);
}

const char *contexts_by_cgroup(const struct contexts *cs, uint64_t cgroup)
{
    for (size_t i = 0; i < CL_COUNT(cs->all); i++)
        if (cs->all[i] && context_cgroup(cs->all[i]) == cgroup)
            return context_id(cs->all[i]);
    return "";
}

struct room *contexts_largest(const struct contexts *cs)
{
    struct room *largest = NULL;
    for (size_t i = 0; i < CL_COUNT(cs->all); i++)
        if (cs->all[i])
            largest = room_larger(largest, context_room(cs->all[i]));
    return largest;
}

void contexts_wait(const struct contexts *cs, struct gate *gate, const struct chan *chan,
                   struct waits *waits)
{
    for (size_t i = 0; i < CL_COUNT(cs->all); i++)
        if (cs->all[i])
            context_wait(cs->all[i], gate, chan, waits);
}

int contexts_turn(struct contexts *cs, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(cs->all); i++) {
        if (!cs->all[i])
            continue;
        if (context_turn(cs->all[i], gate, chan, err) < 0)
            return -1;
        if (context_is_gone(cs->all[i])) {
            context_free(cs->all[i]);
            cs->all[i] = NULL;
        }
    }
    return 0;
}
