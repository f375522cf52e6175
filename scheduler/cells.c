/* scheduler/cells.c - see scheduler/cells.h. */
#include "scheduler/cells.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/guest.pb-c.h"
#include "scheduler/relays.h"

static const struct {
    Cloche__V1__Language language;
    const char *name;
} languages[] = {
    {CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON, "python"},
    {CLOCHE__V1__LANGUAGE__LANGUAGE_BASH, "bash"},
    {CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT, "javascript"},
};

const char *cell_language_name(Cloche__V1__Language language)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++)
        if (languages[i].language == language)
            return languages[i].name;
    return NULL;
}

Cloche__V1__Language cell_language_of(const char *id)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++)
        if (strcmp(languages[i].name, id) == 0)
            return languages[i].language;
    return CLOCHE__V1__LANGUAGE__LANGUAGE_UNSPECIFIED;
}

struct cell {
    int refs;           /* its caller's, and its record's on the way */
    struct api_call *a; /* held */
    const struct cell_spec *spec;
    const struct cell_events *events;
    void *arg;
    struct relay *relay;
    char id[CL_ID_MAX];
    char unit[CL_ID_MAX], context[CL_ID_MAX]; /* for the record of its end */
    Cloche__V1__Language language;
    bool recorded; /* its beginning, but not yet its end */
    bool over;     /* on_end was told, or nobody wants to know */
};

static void release(struct cell *c)
{
    if (--c->refs > 0)
        return;
    struct api_call *a = c->a;
    cl_free(c);
    api_release(a);
}

static void finish(struct cell *c, const struct cl_err *err)
{
    if (c->over)
        return;
    c->over = true;
    c->events->on_end(c->arg, err);
}

/* e is NULL when nobody knows: the client left, or the worker. */
static void record_end(struct cell *c, const Cloche__V1__CellEnded *e, const char *why)
{
    static const char *const outcomes[] = {"unspecified", "ok",        "error",
                                           "interrupted", "timed_out", "exited",
                                           "oom_killed",  "restarted", "failed"};
    struct cl_err ignored = {0};
    if (!c->recorded)
        return;
    c->recorded = false;
    size_t at = e && (size_t)e->outcome < CL_COUNT(outcomes) ? (size_t)e->outcome : 0;
    const struct audit_field fields[] = {
        AUDIT_STR("cell", c->id),
        AUDIT_STR("context", c->context),
        AUDIT_STR("outcome", e ? outcomes[at] : why),
        AUDIT_NUM("result_bytes", e ? e->result_bytes : 0),
        AUDIT_NUM("stderr_bytes", e && e->stderr ? e->stderr->bytes : 0),
        AUDIT_NUM("stdout_bytes", e && e->stdout ? e->stdout->bytes : 0),
        AUDIT_STR("unit", c->unit),
    };
    const char *language = cell_language_name(c->language);
    metrics_add(c->a->s->metrics, METRIC_CELLS, language ? language : "unknown",
                e ? outcomes[at] : why, 1);
    (void)!audit_emit(c->a->s->audit, c->a->p.tenant, AUDIT_CODE_END, fields, CL_COUNT(fields),
                      NULL, NULL, &ignored); /* kept without ack; a loss becomes a gap record */
}

static void on_relay_message(void *arg, const Cloche__V1__RelayRequest *m)
{
    struct cell *c = arg;
    if (!m->cell || c->over)
        return;
    bool last = m->cell->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED;
    if (m->cell->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_STARTED)
        c->language = m->cell->started->language;
    if (last)
        record_end(c, m->cell->ended, "");
    c->refs++; /* its caller may drop it */
    c->events->on_event(c->arg, m->cell);
    if (last)
        finish(c, NULL);
    release(c);
}

static void on_relay_drain(void *arg)
{
    (void)arg;
}

static void on_relay_end(void *arg, const struct cl_err *why)
{
    struct cell *c = arg;
    c->relay = NULL;
    if (c->over)
        return;
    struct cl_err lost = {0};
    (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "the worker ended the cell without a word");
    record_end(c, NULL, "lost");
    finish(c, why ? why : &lost);
}

static int open_relay(struct cell *c, const struct unit *u, struct worker *w, struct cl_err *err)
{
    static const struct relay_events events = {on_relay_message, on_relay_drain, on_relay_end};
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayCell cell = CLOCHE__V1__RELAY_CELL__INIT;
    cell.context_id = c->context;
    cell.language = cell_language_of(c->context);
    cell.code = (char *)(uintptr_t)c->spec->code;
    cell.timeout_ns = c->spec->timeout_ns;
    cell.output_max_bytes = c->spec->output_max_bytes;
    cell.contexts_max = (uint32_t)u->tenant->limits.contexts;
    cell.env = c->spec->env;
    cell.n_env = c->spec->n_env;
    open.unit_id = (char *)(uintptr_t)u->id;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_CELL;
    open.cell = &cell;
    return relay_open(w, &open, &events, c, &c->relay, err);
}

/* The record is written: now it may run. */
static void on_recorded(const struct cl_err *refused, void *arg)
{
    struct cell *c = arg;
    struct cl_err err = {0};
    struct unit *u = NULL;
    struct worker *w = NULL;
    if (refused)
        err = *refused;
    else
        c->recorded = true;
    if (!refused && !c->over)
        u = api_unit_find(c->a, c->unit, BOOKS_SANDBOX, &w, &err);
    if (!c->over && (!u || open_relay(c, u, w, &err) < 0)) {
        record_end(c, NULL, "lost");
        finish(c, &err);
    } else if (c->over) {
        record_end(c, NULL, "left");
    }
    release(c);
}

static int record_run(struct cell *c, struct cl_err *err)
{
    uint8_t digest[32];
    char hex[65], trace[TRACEPARENT_TEXT];
    size_t n = strlen(c->spec->code);
    if (EVP_Digest(c->spec->code, n, digest, NULL, EVP_sha256(), NULL) != 1)
        return cl_fail(err, CL_E_NOMEM, 0, "digest");
    cl_hex(digest, sizeof digest, hex);
    const struct audit_field fields[] = {
        AUDIT_STR("by", c->a->p.key_id),  AUDIT_NUM("bytes", n),
        AUDIT_STR("cell", c->id),         AUDIT_STR("code_sha256", hex),
        AUDIT_STR("context", c->context), AUDIT_STR("trace", api_trace(c->a, trace)),
        AUDIT_STR("unit", c->unit),
    };
    return audit_emit(c->a->s->audit, c->a->p.tenant, AUDIT_CODE_RUN, fields, CL_COUNT(fields),
                      on_recorded, c, err);
}

int cell_run(struct api_call *a, const struct cell_spec *spec, const struct cell_events *events,
             void *arg, struct cell **ret_cell, struct cl_err *err)
{
    struct cell *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "cell");
    *c = (struct cell){.refs = 2, .a = a, .spec = spec, .events = events, .arg = arg};
    c->language = cell_language_of(spec->context);
    (void)snprintf(c->unit, sizeof c->unit, "%s", spec->sandbox_id);
    (void)snprintf(c->context, sizeof c->context, "%s", spec->context);
    cl_id_new("cell", c->id);
    if (record_run(c, err) < 0) {
        cl_free(c);
        return -1;
    }
    api_hold(a);
    *ret_cell = c;
    return 0;
}

void cell_pause(struct cell *c, bool paused)
{
    if (c->relay)
        relay_pause(c->relay, paused);
}

void cell_drop(struct cell *c)
{
    if (!c)
        return;
    c->over = true;
    record_end(c, NULL, "left");
    if (c->relay)
        relay_drop(c->relay);
    c->relay = NULL;
    release(c);
}
