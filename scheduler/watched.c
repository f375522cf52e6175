/* scheduler/watched.c - what user code did in its guest becomes records of its tenant's stream. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "audit/redact.h"
#include "base/mem.h"
#include "observability/log.h"
#include "scheduler/rows.h"
#include "scheduler/sched_priv.h"

enum {
    ARENA = 1024 * 1024, /* one event's argv with its digests */
    CALL_ARGS = 3,
    ARG_TEXT = 24,
    CALL_TEXT = 56, /* "clock_gettime=18446744073709551615" */
};

static void add_where(struct rows *r, const struct unit *u, const Cloche__V1__WatchedEvent *w)
{
    const Cloche__V1__GuestEvent *e = w->event;
    rows_add(r, (struct audit_field)AUDIT_STR("context", rows_text(e->context)));
    rows_add(r, (struct audit_field)AUDIT_STR("exec", rows_text(w->exec_id)));
    rows_add(r, (struct audit_field)AUDIT_NUM("guest_ns", e->at_ns));
    rows_add(r, (struct audit_field)AUDIT_NUM("number", e->number));
    rows_add(r, (struct audit_field)AUDIT_STR("unit", u->id));
}

static void add_process(struct rows *r, const Cloche__V1__GuestEvent *e)
{
    rows_add(r, (struct audit_field)AUDIT_STR("comm", e->comm));
    rows_add(r, (struct audit_field)AUDIT_NUM("parent", e->parent));
    rows_add(r, (struct audit_field)AUDIT_NUM("pid", e->pid));
    rows_add(r, (struct audit_field)AUDIT_NUM("uid", e->uid));
}

/* A guest that shares its kernel with user code is not believed as one that does not. */
static enum audit_assurance assurance_of(const struct unit *u)
{
    return u->separation == CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_ISOLATED ? AUDIT_G1
                                                                                    : AUDIT_G0;
}

static int emit(struct unit *u, enum audit_event ev, const struct rows *r, struct cl_err *err)
{
    return rows_emit(r, u, assurance_of(u), ev, err);
}

static int emit_exec(struct unit *u, struct rows *r, const Cloche__V1__GuestEvent *e,
                     struct cl_err *err)
{
    struct cl_arena *arena;
    const char **argv;
    size_t n = CL_MIN(e->n_argv, (size_t)AUDIT_LIST_MAX);
    if (cl_arena_new(ARENA, &arena, err) < 0)
        return -1;
    int rc = audit_redact_argv(arena, u->sched->salt, u->tenant->name, (const char *const *)e->argv,
                               n, &argv, err);
    if (rc == 0) {
        rows_add(r, (struct audit_field)AUDIT_LIST("argv", argv, n));
        rows_add(r, (struct audit_field)AUDIT_BOOL("cut", e->cut));
        rows_add(r, (struct audit_field)AUDIT_STR("path", e->path));
        rc = emit(u, AUDIT_GUEST_EXEC, r, err);
    }
    cl_arena_free(arena);
    return rc;
}

static int emit_address(struct unit *u, struct rows *r, const Cloche__V1__GuestEvent *e,
                        struct cl_err *err)
{
    bool is_bind = e->kind == CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_BIND;
    rows_add(r, (struct audit_field)AUDIT_STR("address", rows_text(e->address)));
    rows_add(r, (struct audit_field)AUDIT_STR("path", rows_text(e->path)));
    if (e->address[0])
        rows_add(r, (struct audit_field)AUDIT_NUM("port", e->port));
    return emit(u, is_bind ? AUDIT_GUEST_BIND : AUDIT_GUEST_CONNECT, r, err);
}

static int emit_denied(struct unit *u, struct rows *r, const Cloche__V1__GuestEvent *e,
                       struct cl_err *err)
{
    char text[CALL_ARGS][ARG_TEXT];
    const char *args[CALL_ARGS];
    size_t n = CL_MIN(e->n_args, (size_t)CALL_ARGS);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(text[i], sizeof text[i], "0x%" PRIx64, e->args[i]);
        args[i] = text[i];
    }
    rows_add(r, (struct audit_field)AUDIT_LIST("args", args, n));
    rows_add(r, (struct audit_field)AUDIT_STR("call", e->call));
    return emit(u, AUDIT_GUEST_DENIED, r, err);
}

/* All that an exec or a code context did, by kind: who reads one knows what the others told. */
static int emit_calls(struct unit *u, struct rows *r, const Cloche__V1__GuestEvent *e,
                      struct cl_err *err)
{
    char text[AUDIT_LIST_MAX][CALL_TEXT];
    const char *calls[AUDIT_LIST_MAX];
    size_t n = CL_MIN(e->n_calls, (size_t)AUDIT_LIST_MAX);
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        const Cloche__V1__GuestCalls *c = e->calls[i];
        (void)snprintf(text[i], sizeof text[i], "%.32s=%" PRIu64, c->call, c->times);
        calls[i] = text[i];
        total += c->times;
    }
    rows_add(r, (struct audit_field)AUDIT_LIST("calls", calls, n));
    rows_add(r, (struct audit_field)AUDIT_BOOL("last", e->last));
    rows_add(r, (struct audit_field)AUDIT_NUM("total", total));
    rows_add(r, (struct audit_field)AUDIT_NUM("uncounted", e->uncounted));
    return emit(u, AUDIT_GUEST_CALLS, r, err);
}

static int emit_event(struct unit *u, const Cloche__V1__WatchedEvent *w, struct rows r,
                      struct cl_err *err)
{
    const Cloche__V1__GuestEvent *e = w->event;
    add_where(&r, u, w);
    if (e->kind == CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_CALLS)
        return emit_calls(u, &r, e, err);
    add_process(&r, e);
    switch ((int)e->kind) { /* of the guest: any value */
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_EXEC:
        return emit_exec(u, &r, e, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_WRITE:
        rows_add(&r, (struct audit_field)AUDIT_BOOL("created", e->created));
        rows_add(&r, (struct audit_field)AUDIT_BOOL("cut", e->cut));
        rows_add(&r, (struct audit_field)AUDIT_STR("path", e->path));
        return emit(u, AUDIT_GUEST_WRITE, &r, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_REMOVE:
        rows_add(&r, (struct audit_field)AUDIT_BOOL("cut", e->cut));
        rows_add(&r, (struct audit_field)AUDIT_BOOL("folder", e->folder));
        rows_add(&r, (struct audit_field)AUDIT_STR("path", e->path));
        return emit(u, AUDIT_GUEST_REMOVE, &r, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_RENAME:
        rows_add(&r, (struct audit_field)AUDIT_BOOL("cut", e->cut));
        rows_add(&r, (struct audit_field)AUDIT_STR("path", e->path));
        rows_add(&r, (struct audit_field)AUDIT_STR("to", e->to));
        return emit(u, AUDIT_GUEST_RENAME, &r, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_READ:
        rows_add(&r, (struct audit_field)AUDIT_BOOL("cut", e->cut));
        rows_add(&r, (struct audit_field)AUDIT_STR("path", e->path));
        return emit(u, AUDIT_GUEST_READ, &r, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_TRUNCATE:
        rows_add(&r, (struct audit_field)AUDIT_BOOL("cut", e->cut));
        rows_add(&r, (struct audit_field)AUDIT_STR("path", e->path));
        rows_add(&r, (struct audit_field)AUDIT_NUM("size", e->size));
        return emit(u, AUDIT_GUEST_TRUNCATE, &r, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_CONNECT:
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_BIND:
        return emit_address(u, &r, e, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_DENIED:
        return emit_denied(u, &r, e, err);
    case CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_TRACE:
        rows_add(&r, (struct audit_field)AUDIT_NUM("target", e->target));
        return emit(u, AUDIT_GUEST_TRACE, &r, err);
    default:
        return cl_fail(err, CL_E_PEER, 0, "a guest's event of kind %d", (int)e->kind);
    }
}

static void emit_count(struct unit *u, const Cloche__V1__WatchCount *c)
{
    struct cl_err err = {0};
    uint64_t over = c->over + u->unrecorded;
    uint64_t gone = over + c->lost + c->missing;
    const struct audit_field fields[] = {
        AUDIT_BOOL("last", c->last),
        AUDIT_NUM("lost", c->lost),
        AUDIT_NUM("missing", c->missing),
        AUDIT_NUM("over", over),
        AUDIT_NUM("recorded", c->seen > gone ? c->seen - gone : 0),
        AUDIT_NUM("seen", c->seen),
        AUDIT_STR("unit", u->id),
    };
    if (audit_emit_as(u->sched->audit, assurance_of(u), u->tenant->name, AUDIT_GUEST_COUNT, fields,
                      CL_COUNT(fields), NULL, NULL, &err) < 0)
        log_event(LOG_AUDIT_REFUSES, "unit=%s text='%s'", u->id, err.text);
}

void unit_watched(struct unit *u, const Cloche__V1__UnitWatched *m, struct receipt *receipt)
{
    struct rows rows = rows_begin(m, receipt);
    for (size_t i = 0; i < m->n_events; i++) {
        struct cl_err err = {0};
        if (m->events[i]->event && rows_have_room(u, &u->tenant->watched_tat_us) &&
            emit_event(u, m->events[i], rows, &err) == 0)
            continue;
        u->unrecorded++;
        if (err.code != CL_OK && err.code != CL_E_PEER) /* a guest shall not fill this log */
            log_event(LOG_AUDIT_REFUSES, "unit=%s text='%s'", u->id, err.text);
    }
    if (m->count)
        emit_count(u, m->count);
    unit_network(u, m, receipt);
}
