/* scheduler/ends.c - see scheduler/ends.h. */
#include "scheduler/ends.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "redis/books_recover.h"

enum {
    ENDS_MAX = 65536,
    FLUSH_MS = 25,   /* at most so many calls of the books as that makes, for each tenant */
    AGAIN_MS = 1000, /* they did not answer */
};

/* One end on its way. */
struct told {
    struct cl_list link; /* of ends->logged, or of a batch */
    struct ends *ends;
    char tenant[BOOKS_NAME];
    char id[CL_ID_MAX];
};

struct ends {
    struct sched *s;
    struct cl_list logged; /* of struct told: the books are to hear of them */
    size_t n_logged;
    struct cl_timer flush;
};

/* One call of the books. */
struct batch {
    struct ends *ends;
    struct cl_list told; /* of struct told, of one tenant */
};

/* --- names --------------------------------------------------------------------------------------
 */

const char *outcome_name(Cloche__V1__Outcome outcome)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&cloche__v1__outcome__descriptor, (int)outcome);
    return v ? v->name + strlen("OUTCOME_") : "UNKNOWN";
}

const char *reason_name(Cloche__V1__Reason reason)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&cloche__v1__reason__descriptor, (int)reason);
    return v ? v->name + strlen("REASON_") : "UNKNOWN";
}

/* --- the books ----------------------------------------------------------------------------------
 */

static void note_logged(struct ends *e, struct told *t, uint64_t flush_ms)
{
    if (e->n_logged == ENDS_MAX) {
        cl_free(t);
        return;
    }
    cl_list_push(&e->logged, &t->link);
    e->n_logged++;
    if (!cl_timer_is_armed(&e->flush))
        cl_timer_start(&e->flush, flush_ms * CL_NS_PER_MS);
}

static void on_noted(const struct cl_err *err, void *arg)
{
    struct batch *b = arg;
    bool again = err && !b->ends->s->stopping;
    CL_LIST_FOREACH (node, &b->told) {
        struct told *t = CL_LIST_ENTRY(node, struct told, link);
        cl_list_unlink(node);
        if (again)
            note_logged(b->ends, t, AGAIN_MS);
        else
            cl_free(t);
    }
    cl_free(b);
}

/* Those of the first one's tenant. */
static int flush_some(struct ends *e, struct cl_err *err)
{
    char(*ids)[CL_ID_MAX] = cl_zalloc_array(BOOKS_PAGE_MAX, sizeof *ids);
    struct batch *b = cl_zalloc(sizeof *b);
    const char *tenant = CL_LIST_ENTRY(e->logged.next, struct told, link)->tenant;
    size_t n = 0;
    if (!ids || !b) {
        cl_free(ids);
        cl_free(b);
        return cl_fail(err, CL_E_NOMEM, 0, "ends of units");
    }
    b->ends = e;
    cl_list_init(&b->told);
    CL_LIST_FOREACH (node, &e->logged) {
        struct told *t = CL_LIST_ENTRY(node, struct told, link);
        if (n == BOOKS_PAGE_MAX || strcmp(t->tenant, tenant) != 0)
            continue;
        memcpy(ids[n++], t->id, sizeof t->id);
        cl_list_unlink(node);
        cl_list_push(&b->told, node);
        e->n_logged--;
    }
    const struct books_ids units = {tenant, (const char(*)[CL_ID_MAX])ids, n};
    int rc = books_logged(e->s->books, &units, on_noted, b, err);
    cl_free(ids);
    if (rc < 0)
        on_noted(err, b);
    return rc;
}

void ends_flush(struct ends *e)
{
    struct cl_err err = {0};
    cl_timer_stop(&e->flush);
    while (!cl_list_empty(&e->logged)) {
        if (flush_some(e, &err) < 0) {
            cl_timer_start(&e->flush, AGAIN_MS * CL_NS_PER_MS);
            return;
        }
    }
}

static void on_flush(void *arg)
{
    ends_flush(arg);
}

/* --- the log ------------------------------------------------------------------------------------
 */

/* The next scheduler tells those again that it is not known to have. */
static void on_logged(const struct cl_err *err, void *arg)
{
    struct told *t = arg;
    if (err)
        cl_free(t);
    else
        note_logged(t->ends, t, FLUSH_MS);
}

/* What the log is told of an end. */
struct end {
    const char *tenant, *unit;
    uint32_t attempt;
    uint64_t fence;
    const Cloche__V1__ExecResult *result;
    bool recovered;
};

static void tell(struct sched *s, const struct end *end)
{
    const Cloche__V1__ExecResult *r = end->result;
    const struct audit_field fields[] = {
        AUDIT_NUM("attempt", end->attempt),
        AUDIT_NUM("cpu_ms", r->usage ? r->usage->cpu_ns / CL_NS_PER_MS : 0),
        AUDIT_NUM("exit", (uint64_t)(uint32_t)r->exit_code),
        AUDIT_NUM("fence", end->fence),
        AUDIT_STR("outcome", outcome_name(r->outcome)),
        AUDIT_STR("reason", reason_name(r->reason)),
        AUDIT_NUM("signal", (uint64_t)(uint32_t)r->signal),
        AUDIT_STR("unit", end->unit),
        AUDIT_NUM("recovered", 1),
    };
    struct cl_err err = {0};
    struct told *t = cl_zalloc(sizeof *t);
    if (t) {
        t->ends = s->ends;
        (void)snprintf(t->tenant, sizeof t->tenant, "%s", end->tenant);
        (void)snprintf(t->id, sizeof t->id, "%s", end->unit);
    }
    if (audit_emit(s->audit, end->tenant, AUDIT_UNIT_END, fields,
                   CL_COUNT(fields) - (end->recovered ? 0 : 1), t ? on_logged : NULL, t, &err) == 0)
        return;
    cl_free(t);
    log_event(LOG_AUDIT_REFUSES, "unit=%s text='%s'", end->unit, err.text);
}

void ends_tell(struct unit *u)
{
    const struct end end = {.tenant = u->tenant->name,
                            .unit = u->id,
                            .attempt = u->attempt,
                            .fence = u->fence,
                            .result = u->terminal->result};
    tell(u->sched, &end);
}

void ends_tell_recovered(struct sched *s, const struct books_unit *row)
{
    Cloche__V1__ExecResult unknown = CLOCHE__V1__EXEC_RESULT__INIT;
    Cloche__V1__TerminalRecord *m =
        cloche__v1__terminal_record__unpack(NULL, row->terminal_n, row->terminal);
    struct end end = {.tenant = row->tenant,
                      .unit = row->id,
                      .attempt = row->attempt,
                      .fence = row->fence,
                      .result = m && m->result ? m->result : &unknown,
                      .recovered = true};
    unknown.outcome = (Cloche__V1__Outcome)row->outcome;
    tell(s, &end);
    if (m)
        pb_free(&m->base);
}

/* --- life ---------------------------------------------------------------------------------------
 */

int ends_new(struct sched *s, struct ends **ret_ends, struct cl_err *err)
{
    struct ends *e = cl_zalloc(sizeof *e);
    if (!e)
        return cl_fail(err, CL_E_NOMEM, 0, "ends of units");
    e->s = s;
    cl_list_init(&e->logged);
    if (cl_timer_init(&e->flush, s->loop, on_flush, e, err) < 0) {
        cl_free(e);
        return -1;
    }
    *ret_ends = e;
    return 0;
}

void ends_free(struct ends *e)
{
    if (!e)
        return;
    CL_LIST_FOREACH (node, &e->logged)
        cl_free(CL_LIST_ENTRY(node, struct told, link));
    cl_timer_fini(&e->flush);
    cl_free(e);
}
