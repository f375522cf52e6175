/* scheduler/submit.c - see scheduler/submit.h. */
#include "scheduler/submit.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "audit/redact.h"
#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "rpc/call.h"
#include "scheduler/place.h"
#include "scheduler/validate.h"

enum { SHA256_BYTES = 32, SANDBOX_LIFE_H = 24, SANDBOX_TTL_DEFAULT_S = 300 };

struct submission {
    struct api_call *a; /* held */
    submit_fn *fn;
    void *arg;
    enum books_kind kind;
    bool refuse_over_quota, waits;
    struct tenant *tenant;
    Cloche__V1__UnitRecord *record; /* owned until a unit takes it */
    struct quota_need need;
    uint8_t digest[SHA256_BYTES];
    char idem[BOOKS_IDEM_MAX + 1], id[CL_ID_MAX];
    struct unit_lease lease;     /* asked for with the admission; id "" = none */
    struct room_promise promise; /* linked while it is asked for */
    struct unit *unit;
};

static void finish(struct submission *x, bool replayed, const struct cl_err *err)
{
    x->fn(x->arg, x->unit, replayed, err);
    if (x->record)
        pb_free(&x->record->base);
    api_release(x->a);
    cl_free(x);
}

static void on_unmade(const struct books_unit *rows, size_t n, const char *next,
                      const struct cl_err *err, void *arg)
{
    (void)rows, (void)n, (void)next, (void)err;
    (void)arg; /* its end follows */
}

static void withdraw(struct submission *x, const char *why, const struct cl_err *err)
{
    struct books *books = x->a->s->books;
    if (x->idem[0]) /* who asks again by the key is not told that it was made */
        (void)!books_unmake(books, x->tenant->name, x->id, on_unmade, NULL, NULL);
    unit_withdraw(x->unit, why);
    x->unit = NULL;
    finish(x, false, err);
}

/* The record is in the log: the job may go. */
static void on_recorded(const struct cl_err *err, void *arg)
{
    struct submission *x = arg;
    struct cl_err bad = {0};
    bool reserved = x->unit->phase == PHASE_RESERVING;
    if (err) {
        withdraw(x, "the audit log did not take its record", err);
        return;
    }
    if (!reserved && unit_enqueue(x->unit, false, &bad) < 0) {
        withdraw(x, bad.text, &bad);
        return;
    }
    metrics_add(x->a->s->metrics, METRIC_UNITS_ACCEPTED, books_kind_name(x->kind), NULL, 1);
    log_event(LOG_JOB_ACCEPTED, "unit=%s tenant=%s template=%s", x->id, x->tenant->name,
              x->unit->record->spec->template_);
    if (reserved)
        unit_assign(x->unit);
    finish(x, false, NULL);
}

static int emit_admission(struct submission *x, const char *const *argv, size_t n,
                          struct cl_err *err)
{
    char digest[2 * SHA256_BYTES + 1];
    cl_hex(x->digest, SHA256_BYTES, digest);
    const char *fork_of = x->unit->record->fork_of, *trace = x->unit->record->traceparent;
    const struct audit_field fields[] = {
        AUDIT_LIST("argv", argv, CL_MIN(n, (size_t)AUDIT_LIST_MAX)),
        AUDIT_STR("fork_of", fork_of[0] ? fork_of : NULL),
        AUDIT_STR("key", x->a->p.key_id),
        AUDIT_STR("kind", books_kind_name(x->kind)),
        AUDIT_STR("spec_sha256", digest),
        AUDIT_STR("subject", x->a->p.subject[0] ? x->a->p.subject : NULL),
        AUDIT_STR("template", x->unit->record->spec->template_),
        AUDIT_STR("trace", trace[0] ? trace : NULL),
        AUDIT_STR("unit", x->id),
    };
    return audit_emit(x->a->s->audit, x->tenant->name, AUDIT_UNIT_ADMIT, fields, CL_COUNT(fields),
                      on_recorded, x, err);
}

static int record_admission(struct submission *x, struct cl_err *err)
{
    enum { ARENA = 8 * 1024 * 1024 };
    const Cloche__V1__Command *c = x->unit->record->spec->command;
    struct cl_arena *arena;
    const char **argv = NULL;
    size_t n = c ? c->n_argv : 0;
    if (cl_arena_new(ARENA, &arena, err) < 0)
        return -1;
    int rc = n ? audit_redact_argv(arena, x->a->s->salt, x->tenant->name,
                                   (const char *const *)c->argv, n, &argv, err)
               : 0;
    if (rc == 0)
        rc = emit_admission(x, argv, n, err);
    cl_arena_free(arena);
    return rc;
}

static bool got_lease(struct submission *x, const struct books_admitted *res)
{
    cl_list_unlink(&x->promise.link);
    if (!res || res->replay || res->state != BOOKS_STARTING || !x->lease.id[0]) {
        worker_room_return(x->a->s, x->lease.worker, x->need.dim);
        return false;
    }
    x->lease.fence = res->fence;
    x->lease.attempt = res->attempt;
    return true;
}

static void on_admitted(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    struct submission *x = arg;
    struct sched *s = x->a->s;
    struct cl_err bad = {0};
    bool leased = got_lease(x, res);
    if (err) {
        finish(x, false, err);
        return;
    }
    api_about(x->a, res->id);
    if (res->replay) {
        x->unit = unit_find(s, x->tenant->name, res->id);
        finish(x, true, NULL);
        return;
    }
    if (unit_new(s, x->tenant, x->id, x->kind, x->record, &x->unit, &bad) < 0) {
        finish(x, false, &bad); /* it stays in the books, and a restart finds it */
        return;
    }
    x->record = NULL;
    memcpy(x->unit->need, x->need.dim, sizeof x->unit->need);
    x->unit->refuse_over_quota = x->kind != BOOKS_JOB;
    if ((leased && unit_reserved(x->unit, &x->lease, &bad) < 0) || record_admission(x, &bad) < 0)
        on_recorded(&bad, x);
}

static int hash_request(struct submission *x, struct cl_err *err)
{
    size_t n = protobuf_c_message_get_packed_size(x->a->request);
    uint8_t *bytes = cl_zalloc(n);
    if (!bytes)
        return cl_fail(err, CL_E_NOMEM, 0, "request");
    (void)protobuf_c_message_pack(x->a->request, bytes);
    int ok = EVP_Digest(bytes, n, x->digest, NULL, EVP_sha256(), NULL);
    cl_free(bytes);
    return ok == 1 ? 0 : cl_fail(err, CL_E_SYS, 0, "digest");
}

static uint64_t queue_deadline(const struct submission *x)
{
    uint64_t wait = x->record->spec->max_queue_wait_ns;
    uint64_t rpc = x->a->call ? rpc_call_deadline_ns(x->a->call) : 0, now = cl_now_ns();
    if (wait == 0 && x->waits && rpc > now)
        wait = rpc - now;
    return wait ? cl_wall_ns() + wait : 0;
}

/* When nobody waits and a worker has room, the books admit and reserve in one step. */
static void ask_for_lease(struct submission *x)
{
    struct sched *s = x->a->s;
    const char *template = worker_warm_template(x->record), *fork_of = x->record->fork_of;
    if (!fairq_is_clear(s->queue, x->tenant->name))
        return;
    struct worker *w = fork_of[0] ? worker_place_fork(s, x->tenant, fork_of, x->need.dim)
                                  : worker_place(s, x->tenant, template, x->need.dim);
    if (!w)
        return;
    cl_id_new("lease", x->lease.id);
    (void)snprintf(x->lease.worker, sizeof x->lease.worker, "%s", w->id);
    worker_room_take(w, x->tenant, template, x->need.dim);
    x->promise = (struct room_promise){
        .worker = x->lease.worker, .template = template, .tenant = x->tenant, .need = x->need.dim};
    cl_list_push(&s->promises, &x->promise.link);
}

static int admit(struct submission *x, struct cl_err *err)
{
    const Cloche__V1__JobSpec *spec = x->record->spec;
    const struct worker_template *t = worker_template_find(x->a->s, spec->template_);
    struct spec_frame frame = {.is_job = x->kind == BOOKS_JOB,
                               .is_copy = x->record->fork_of[0] != '\0',
                               .life_ns = x->kind != BOOKS_JOB ? SANDBOX_LIFE_H * 3600 * CL_NS_PER_S
                                          : spec->command      ? spec->command->timeout_ns
                                                               : 0,
                               .vcpus = t ? t->vcpus : 0,
                               .memory_mib = t ? t->memory_mib : 0};
    if (validate_spec(spec, &frame, &x->tenant->limits, &x->need, err) < 0 ||
        hash_request(x, err) < 0)
        return -1;
    x->record->queue_deadline_unix_ns = queue_deadline(x);
    if (x->kind == BOOKS_SNAPSHOT) /* nothing runs in it, and its disk counts once it is whole */
        x->need = (struct quota_need){0};
    cl_id_new(books_kind_prefix(x->kind), x->id);
    size_t n = protobuf_c_message_get_packed_size(&x->record->base);
    uint8_t *bytes = cl_zalloc(n);
    if (!bytes)
        return cl_fail(err, CL_E_NOMEM, 0, "record");
    (void)protobuf_c_message_pack(&x->record->base, bytes);
    ask_for_lease(x);
    struct books_admit req = {.tenant = x->tenant->name,
                              .id = x->id,
                              .kind = x->kind,
                              .spec = bytes,
                              .spec_n = n,
                              .idem_key = x->idem[0] ? x->idem : NULL,
                              .idem_hash = x->idem[0] ? x->digest : NULL,
                              .global_queue_max = x->a->s->o->queue_max,
                              .refuse_over_quota = x->refuse_over_quota,
                              .lease = x->lease.id[0] ? x->lease.id : NULL,
                              .worker = x->lease.worker,
                              .ttl_ms = x->a->s->o->lease_ttl / CL_NS_PER_MS};
    memcpy(req.need, x->need.dim, sizeof req.need);
    int rc = books_admit(x->a->s->books, &req, on_admitted, x, err);
    if (rc < 0)
        (void)got_lease(x, NULL);
    cl_free(bytes);
    return rc;
}

static void on_tenant(void *arg, struct tenant *t, const struct cl_err *err)
{
    struct submission *x = arg;
    struct cl_err bad = {0};
    if (err) {
        finish(x, false, err);
        return;
    }
    x->tenant = t;
    if (admit(x, &bad) < 0)
        finish(x, false, &bad);
}

static int make_record(struct submission *x, const struct submit_spec *spec, struct cl_err *err)
{
    Cloche__V1__UnitRecord r = CLOCHE__V1__UNIT_RECORD__INIT;
    ProtobufCMessage *copy;
    char trace[TRACEPARENT_TEXT];
    r.version = 1;
    r.spec = (Cloche__V1__JobSpec *)(uintptr_t)spec->spec;
    r.ttl_ns = spec->kind == BOOKS_SANDBOX && spec->ttl_ns == 0
                   ? SANDBOX_TTL_DEFAULT_S * CL_NS_PER_S
                   : spec->ttl_ns;
    r.pause_on_idle = spec->pause_on_idle;
    r.wake_on_use = spec->wake_on_use;
    r.fork_of = (char *)(uintptr_t)(spec->fork_of ? spec->fork_of : "");
    r.fork_moment = (char *)(uintptr_t)(spec->fork_moment ? spec->fork_moment : "");
    r.name = (char *)(uintptr_t)(spec->name ? spec->name : "");
    r.replaces = spec->replaces;
    r.function = (Cloche__V1__FunctionEntry *)(uintptr_t)spec->function;
    r.subject = x->a->p.subject;
    r.key_id = x->a->p.key_id;
    (void)api_trace(x->a, trace);
    r.traceparent = trace;
    if (pb_copy(&r.base, &copy, err) < 0)
        return -1;
    x->record = (Cloche__V1__UnitRecord *)copy;
    return 0;
}

void submit(struct api_call *a, const struct submit_spec *spec, submit_fn *fn, void *arg)
{
    struct cl_err err = {0};
    if (!spec->spec || strlen(spec->idempotency_key) > BOOKS_IDEM_MAX || !a->s->recovered) {
        (void)cl_fail(&err, !spec->spec || a->s->recovered ? CL_E_INVALID : CL_E_UNAVAILABLE, 0,
                      "%s",
                      !spec->spec        ? "spec: is missing"
                      : !a->s->recovered ? "the scheduler still reads its books"
                                         : "idempotency_key: at most 255 bytes");
        fn(arg, NULL, false, &err);
        return;
    }
    struct submission *x = cl_zalloc(sizeof *x);
    if (!x) {
        (void)cl_fail(&err, CL_E_NOMEM, 0, "submission");
        fn(arg, NULL, false, &err);
        return;
    }
    x->a = a;
    x->fn = fn;
    x->arg = arg;
    x->kind = spec->kind;
    x->refuse_over_quota = spec->refuse_over_quota;
    x->waits = spec->waits;
    cl_list_init(&x->promise.link);
    (void)snprintf(x->idem, sizeof x->idem, "%s", spec->idempotency_key);
    api_hold(a);
    if (make_record(x, spec, &err) < 0)
        finish(x, false, &err);
    else
        tenant_get(a->s, a->p.tenant, on_tenant, x);
}
