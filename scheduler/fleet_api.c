/* scheduler/fleet_api.c - FleetService: workers, schedulers, and how hosts join. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/fleet.pb-c.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "redis/books_lead.h"
#include "scheduler/api.h"
#include "scheduler/ca.h"
#include "scheduler/fleet.h"

enum {
    TOKEN_BYTES = 32,
    TOKEN_TEXT = 4 + 2 * TOKEN_BYTES + 1,
    TOKEN_LIFE_MIN = 10,
    WORKERS_PAGE = 1000,
    CLAIM_BYTES = 16, /* of the digest that ties a spent token to its request */
};

/* --- workers ---------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const Cloche__V1__Worker *x = a, *y = b;
    return strcmp(x->id, y->id);
}

/* What each of these has, and why any of it could not be moved; the rows lie in a line, by id. */
static void count_units(struct sched *s, Cloche__V1__Worker *rows, size_t n)
{
    size_t at = 0;
    for (const struct unit *u; (u = cl_map_next(s->units, &at, NULL)) != NULL;) {
        const Cloche__V1__Worker key = {.id = (char *)(uintptr_t)u->worker_id};
        Cloche__V1__Worker *row = bsearch(&key, rows, n, sizeof *rows, by_id);
        if (!row)
            continue;
        *(u->kind == BOOKS_JOB       ? &row->jobs
          : u->kind == BOOKS_SANDBOX ? &row->sandboxes
                                     : &row->snapshots) += 1;
        const struct worker *w = u->stuck_until_ns > 0 ? unit_worker(u) : NULL;
        if (w)
            row->drain_trouble = (char *)(uintptr_t)w->drain_trouble;
    }
}

static void fill_worker(Cloche__V1__Worker *o, const struct worker *w)
{
    cloche__v1__worker__init(o);
    o->id = (char *)(uintptr_t)w->id;
    o->hostname = (char *)(uintptr_t)w->host;
    o->driver = (char *)(uintptr_t)w->driver;
    o->build = (char *)(uintptr_t)w->build;
    o->closed = (char *)(uintptr_t)w->closed;
    o->slots = w->slots;
    o->used_slots = w->used_slots;
    o->capacity_vcpu_milli = w->cap_vcpu;
    o->used_vcpu_milli = w->used_vcpu;
    o->capacity_memory_mib = w->cap_mem;
    o->used_memory_mib = w->used_mem;
    o->draining = w->draining;
}

static void list_workers(struct api_call *a)
{
    const Cloche__V1__ListWorkersRequest *r = (const Cloche__V1__ListWorkersRequest *)a->request;
    Cloche__V1__ListWorkersResponse m = CLOCHE__V1__LIST_WORKERS_RESPONSE__INIT;
    struct cl_err err = {0};
    size_t page, at = 0, n = 0, all = cl_map_count(a->s->workers);
    if (api_page_size(r->page_size, 100, WORKERS_PAGE, &page, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    Cloche__V1__Worker *rows = cl_zalloc_array(all, sizeof *rows);
    Cloche__V1__Worker **list = cl_zalloc_array(all, sizeof *list);
    if (!rows || !list) {
        api_fail_with(a, CL_E_NOMEM, "list");
    } else {
        for (struct worker *w; (w = cl_map_next(a->s->workers, &at, NULL)) != NULL;) {
            if (!r->page_token[0] || strcmp(w->id, r->page_token) > 0)
                fill_worker(&rows[n++], w);
        }
        qsort(rows, n, sizeof *rows, by_id);
        for (size_t i = 0; i < n && i < page; i++)
            list[m.n_workers++] = &rows[i];
        count_units(a->s, rows, m.n_workers);
        m.workers = list;
        if (m.n_workers < n)
            m.next_page_token = rows[m.n_workers - 1].id;
        api_reply(a, &m.base);
    }
    cl_free(rows);
    cl_free(list);
}

/* Its answer says the new state before its next report does. */
static void on_drained(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    const Cloche__V1__DrainWorkerRequest *r = (const Cloche__V1__DrainWorkerRequest *)a->request;
    struct worker *w = cl_map_get(a->s->workers, r->worker_id);
    Cloche__V1__DrainWorkerResponse m = CLOCHE__V1__DRAIN_WORKER_RESPONSE__INIT;
    Cloche__V1__Worker row;
    if (!answer || !w) {
        api_fail_with(a, CL_E_UNAVAILABLE, "worker '%s': %s", r->worker_id,
                      err ? err->text : "it has just left");
    } else {
        w->draining = !r->undo;
        fill_worker(&row, w);
        count_units(a->s, &row, 1);
        m.worker = &row;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void drain_worker(struct api_call *a)
{
    const Cloche__V1__DrainWorkerRequest *r = (const Cloche__V1__DrainWorkerRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w = cl_map_get(a->s->workers, r->worker_id);
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__DrainCommand drain = CLOCHE__V1__DRAIN_COMMAND__INIT;
    api_about(a, r->worker_id);
    if (!w || !w->call) {
        api_fail_with(a, CL_E_UNAVAILABLE,
                      "no worker '%.40s' is connected: `cloche status` lists those that are",
                      r->worker_id);
        return;
    }
    if (w->minor < WORKER_MINOR_MOVE) {
        api_fail_with(a, CL_E_UNIMPL,
                      "worker '%s' is of an older release, which cannot be drained: upgrade it",
                      w->id);
        return;
    }
    w->drain_trouble[0] = '\0'; /* what it reports before its answer is of this drain */
    drain.undo = r->undo;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_DRAIN;
    cmd.drain = &drain;
    api_hold(a);
    if (worker_request(w, &cmd, on_drained, a, &err) < 0)
        on_drained(a, NULL, &err);
}

/* --- schedulers --------------------------------------------------------------------------------
 */

struct scheduler_row {
    Cloche__V1__Scheduler m;
    Cloche__V1__Time since, seen;
};

static Cloche__V1__Scheduler *fill_scheduler(struct scheduler_row *row,
                                             const struct books_scheduler *from)
{
    Cloche__V1__Scheduler *about = cloche__v1__scheduler__unpack(NULL, from->about_n, from->about);
    cloche__v1__scheduler__init(&row->m);
    cloche__v1__time__init(&row->since);
    cloche__v1__time__init(&row->seen);
    row->m.id = (char *)(uintptr_t)from->id;
    row->m.leads = from->leads;
    row->since.unix_ns = from->since_ms * CL_NS_PER_MS;
    row->seen.unix_ns = from->seen_ms * CL_NS_PER_MS;
    row->m.since = from->leads ? &row->since : NULL;
    row->m.seen = &row->seen;
    if (about) {
        row->m.hostname = about->hostname;
        row->m.address = about->address;
        row->m.build = about->build;
    }
    return about;
}

static void on_schedulers(const struct books_scheduler *rows, size_t n, const struct cl_err *err,
                          void *arg)
{
    struct api_call *a = arg;
    Cloche__V1__ListSchedulersResponse m = CLOCHE__V1__LIST_SCHEDULERS_RESPONSE__INIT;
    struct scheduler_row *out = cl_zalloc_array(n, sizeof *out);
    Cloche__V1__Scheduler **list = cl_zalloc_array(n, sizeof *list);
    Cloche__V1__Scheduler **about = cl_zalloc_array(n, sizeof *about);
    if (err) {
        api_fail(a, err);
    } else if (!out || !list || !about) {
        api_fail_with(a, CL_E_NOMEM, "list");
    } else {
        for (; m.n_schedulers < n; m.n_schedulers++) {
            struct scheduler_row *row = &out[m.n_schedulers];
            about[m.n_schedulers] = fill_scheduler(row, &rows[m.n_schedulers]);
            list[m.n_schedulers] = &row->m;
        }
        m.schedulers = list;
        api_reply(a, &m.base);
    }
    for (size_t i = 0; about && i < m.n_schedulers; i++) {
        if (about[i])
            pb_free(&about[i]->base);
    }
    cl_free(out);
    cl_free(list);
    cl_free(about);
    api_release(a);
}

static void list_schedulers(struct api_call *a)
{
    struct cl_err err = {0};
    api_hold(a);
    if (books_scheduler_list(a->s->books, on_schedulers, a, &err) < 0)
        on_schedulers(NULL, 0, &err, a);
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void token_digest(const char *token, char out[static 65])
{
    uint8_t digest[32];
    CL_ASSERT(EVP_Digest(token, strlen(token), digest, NULL, EVP_sha256(), NULL) == 1);
    cl_hex(digest, sizeof digest, out);
}

struct token {
    struct api_call *a; /* held */
    char text[TOKEN_TEXT];
    uint64_t expires_ns;
};

static void on_token(const struct cl_err *err, void *arg)
{
    struct token *t = arg;
    if (err) {
        api_fail(t->a, err);
    } else {
        Cloche__V1__CreateEnrollTokenResponse m = CLOCHE__V1__CREATE_ENROLL_TOKEN_RESPONSE__INIT;
        Cloche__V1__Time expires = CLOCHE__V1__TIME__INIT;
        expires.unix_ns = t->expires_ns;
        m.token = t->text;
        m.expires = &expires;
        api_reply(t->a, &m.base);
    }
    explicit_bzero(t->text, sizeof t->text);
    api_release(t->a);
    cl_free(t);
}

static void create_token(struct api_call *a)
{
    struct cl_err err = {0};
    uint8_t noise[TOKEN_BYTES];
    char digest[65];
    struct token *t = cl_zalloc(sizeof *t);
    if (!t) {
        api_fail_with(a, CL_E_NOMEM, "token");
        return;
    }
    t->a = a;
    api_hold(a);
    cl_random(noise, sizeof noise);
    memcpy(t->text, "ent_", 4);
    cl_hex(noise, sizeof noise, t->text + 4);
    token_digest(t->text, digest);
    t->expires_ns = cl_wall_ns() + TOKEN_LIFE_MIN * 60 * CL_NS_PER_S;
    if (books_enroll_put(a->s->books, digest, a->p.key_id, strlen(a->p.key_id),
                         TOKEN_LIFE_MIN * 60 * 1000, on_token, t, &err) < 0)
        on_token(&err, t);
}

#define METHOD(name) "/cloche.v1.FleetService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method fleet_api[] = {
    {METHOD("ListWorkers"), TYPES(list_workers_request, list_workers_response), .scope = SCOPE_READ,
     .handle = list_workers},
    {METHOD("DrainWorker"), TYPES(drain_worker_request, drain_worker_response),
     .scope = SCOPE_ADMIN, .changes = true, .handle = drain_worker},
    {METHOD("ListSchedulers"), TYPES(list_schedulers_request, list_schedulers_response),
     .scope = SCOPE_ADMIN, .handle = list_schedulers},
    {METHOD("CreateEnrollToken"), TYPES(create_enroll_token_request, create_enroll_token_response),
     .scope = SCOPE_ADMIN, .changes = true, .handle = create_token},
};
const size_t fleet_api_n = CL_COUNT(fleet_api);

/* --- Enroll: the token is the credential ---------------------------------------------------------
 */

struct enrolment {
    struct sched *s;
    struct rpc_call *call;              /* NULL once the host has left */
    Cloche__V1__EnrollRequest *request; /* owned */
    bool waiting;
};

static void enrolment_free(struct enrolment *e)
{
    if (e->call || e->waiting)
        return;
    pb_free(&e->request->base);
    cl_free(e);
}

static void enroll_end(struct enrolment *e, const struct cl_err *err)
{
    if (e->call && err)
        rpc_call_finish(e->call, err);
}

static void enroll_answer(struct enrolment *e, const char *cert, const char *ca)
{
    Cloche__V1__EnrollResponse m = CLOCHE__V1__ENROLL_RESPONSE__INIT;
    m.certificate = (char *)(uintptr_t)cert;
    m.ca = (char *)(uintptr_t)ca;
    m.worker_endpoint = (char *)(uintptr_t)e->s->o->worker_tcp;
    if (e->call)
        rpc_call_reply(e->call, &m.base);
}

static int sign_and_answer(struct enrolment *e, const void *by, size_t by_n, struct cl_err *err)
{
    struct ca_files files = {e->s->o->worker_ca, e->s->o->worker_ca_key};
    struct cl_buf cert, ca;
    char who[BOOKS_KEY_ID];
    (void)snprintf(who, sizeof who, "%.*s", (int)CL_MIN(by_n, sizeof who - 1), (const char *)by);
    cl_buf_init(&cert, CA_PEM_MAX);
    cl_buf_init(&ca, CA_PEM_MAX);
    int rc = ca_sign(&files, e->request->csr, e->request->worker_id, &cert, &ca, err);
    const struct audit_field fields[] = {AUDIT_STR("by", who),
                                         AUDIT_STR("worker", e->request->worker_id)};
    if (rc == 0)
        rc = audit_emit(e->s->audit, NULL, AUDIT_WORKER_ENROLL, fields, CL_COUNT(fields), NULL,
                        NULL, err);
    if (rc == 0 && (cl_buf_append(&cert, "", 1, err) < 0 || cl_buf_append(&ca, "", 1, err) < 0))
        rc = -1;
    if (rc == 0)
        enroll_answer(e, (const char *)cert.data, (const char *)ca.data);
    cl_buf_fini(&cert);
    cl_buf_fini(&ca);
    return rc;
}

static void on_taken(const void *blob, size_t n, const struct cl_err *err, void *arg)
{
    struct enrolment *e = arg;
    struct cl_err bad = {0};
    e->waiting = false;
    if (err || sign_and_answer(e, blob, n, &bad) < 0)
        enroll_end(e, err ? err : &bad);
    enrolment_free(e);
}

static int begin(struct enrolment *e, struct cl_err *err)
{
    char digest[65], claim[2 * CLAIM_BYTES + 1];
    char text[CL_ID_MAX + 2 + 64 + 1];
    uint8_t raw[32];
    const Cloche__V1__EnrollRequest *r = e->request;
    if (!cl_id_is(r->worker_id, "wrk"))
        return cl_fail(err, CL_E_INVALID, 0, "worker_id: '%.40s' is no worker id", r->worker_id);
    if (strncmp(r->token, "ent_", 4) != 0 || strlen(r->token) != TOKEN_TEXT - 1)
        return cl_fail(err, CL_E_UNAUTH, 0, "the token is not valid");
    token_digest(r->token, digest);
    /* A lost answer may be asked for again, but only for the same key and id. */
    if (ca_request_digest(r->csr, raw, err) < 0)
        return -1;
    int n = snprintf(text, sizeof text, "%s ", r->worker_id);
    cl_hex(raw, sizeof raw, text + n);
    CL_ASSERT(EVP_Digest(text, strlen(text), raw, NULL, EVP_sha256(), NULL) == 1);
    cl_hex(raw, CLAIM_BYTES, claim);
    if (books_enroll_take(e->s->books, digest, claim, on_taken, e, err) < 0)
        return -1;
    e->waiting = true;
    return 0;
}

static void on_enroll(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct cl_err err = {0};
    ProtobufCMessage *copy;
    struct enrolment *e = cl_zalloc(sizeof *e);
    if (!e || pb_copy(msg, &copy, &err) < 0) {
        cl_free(e);
        (void)cl_fail(&err, CL_E_NOMEM, 0, "enrolment");
        rpc_call_finish(call, &err);
        return;
    }
    *e = (struct enrolment){
        .s = service, .call = call, .request = (Cloche__V1__EnrollRequest *)copy};
    rpc_call_set_user(call, e);
    if (begin(e, &err) < 0)
        enroll_end(e, &err);
}

static void on_enroll_gone(struct rpc_call *call, const struct cl_err *why, void *service)
{
    (void)why, (void)service;
    struct enrolment *e = rpc_call_user(call);
    if (!e)
        return;
    e->call = NULL;
    enrolment_free(e);
}

const struct rpc_method enroll_methods[] = {
    {.path = METHOD("Enroll"),
     TYPES(enroll_request, enroll_response),
     .on_message = on_enroll,
     .on_end = on_enroll_gone},
};
const size_t enroll_methods_count = CL_COUNT(enroll_methods);
