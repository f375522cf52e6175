/* scheduler/sandboxes.c - SandboxService: create, fork, look, end, extend; see also pause.c. */
#include "scheduler/sandboxes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "scheduler/cancel.h"
#include "scheduler/creation.h"
#include "scheduler/look.h"
#include "scheduler/snapshots.h"
#include "scheduler/validate.h"

/* --- messages --------------------------------------------------------------------------------- */

static void view_live(struct sandbox_view *o, const struct unit *u)
{
    o->m.state = unit_state(u);
    o->m.worker_id = (char *)(uintptr_t)u->worker_id;
    o->m.driver = (char *)(uintptr_t)u->driver;
    o->m.guest_separation = u->separation;
    o->m.image_bytes = u->image_bytes;
    o->expires.unix_ns = u->expires_wall_ns;
    if (u->expires_wall_ns)
        o->m.expires = &o->expires;
}

static void view_spec(struct sandbox_view *o, const Cloche__V1__UnitRecord *r)
{
    if (!r || !r->spec)
        return;
    o->m.template_ = r->spec->template_;
    o->m.resources = r->spec->resources;
    o->m.labels = r->spec->labels;
    o->m.n_labels = r->spec->n_labels;
    o->m.network_grant = r->spec->network_grant;
    o->m.on_idle = r->pause_on_idle ? CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE
                                    : CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_END;
    o->m.wake_on_use = r->wake_on_use;
    o->m.forked_from = r->fork_of;
}

static void view_init(struct sandbox_view *o, const char *id, const char *tenant,
                      uint64_t created_ns)
{
    cloche__v1__sandbox__init(&o->m);
    cloche__v1__time__init(&o->created);
    cloche__v1__time__init(&o->expires);
    o->m.id = (char *)(uintptr_t)id;
    o->m.tenant = (char *)(uintptr_t)tenant;
    o->created.unix_ns = created_ns;
    o->m.created = &o->created;
}

void sandbox_view_unit(struct sandbox_view *o, const struct unit *u)
{
    view_init(o, u->id, u->tenant->name, u->created_ns);
    view_spec(o, u->record);
    view_live(o, u);
}

static void view_row(struct sandbox_view *o, const struct look_row *row)
{
    const struct books_unit *b = row->row;
    view_init(o, b->id, b->tenant, b->created_us * CL_NS_PER_US);
    view_spec(o, row->record);
    o->m.state = (Cloche__V1__UnitState)b->state;
    o->m.worker_id = (char *)(uintptr_t)b->worker;
    if (row->live)
        view_live(o, row->live);
    if (row->terminal && row->terminal->result) {
        o->m.reason = row->terminal->result->reason;
        o->m.driver = row->terminal->driver;
    }
}

enum { MOMENT_MAX = 64 }; /* MACHINE_MOMENT of the worker, which compares it whole */

/* --- Create and Fork: answer when it runs -------------------------------------------------------
 */

static void reply_created(struct api_call *a, const struct unit *u)
{
    struct sandbox_view view;
    Cloche__V1__CreateResponse m = CLOCHE__V1__CREATE_RESPONSE__INIT;
    sandbox_view_unit(&view, u);
    m.sandbox = &view.m;
    api_reply(a, &m.base);
}

static void reply_forked(struct api_call *a, const struct unit *u)
{
    struct sandbox_view view;
    Cloche__V1__ForkResponse m = CLOCHE__V1__FORK_RESPONSE__INIT;
    sandbox_view_unit(&view, u);
    m.sandbox = &view.m;
    api_reply(a, &m.base);
}

static void fill_create(struct creation *c, const Cloche__V1__CreateRequest *r)
{
    c->spec.template_ = r->template_;
    c->spec.resources = r->resources;
    c->spec.labels = r->labels;
    c->spec.n_labels = r->n_labels;
    c->spec.network = r->network;
    c->spec.network_grant = r->network_grant;
    c->spec.snapshot = r->snapshot;
}

static void sandbox_create(struct api_call *a)
{
    const Cloche__V1__CreateRequest *r = (const Cloche__V1__CreateRequest *)a->request;
    struct snapshot_start start;
    struct cl_err err = {0};
    struct creation *c = creation_call(a, reply_created);
    if (!c)
        return;
    bool pauses;
    if (validate_ttl(r->ttl_ns, &err) < 0 ||
        validate_on_idle(r->on_idle, r->wake_on_use, &pauses, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    struct submit_spec spec = {.kind = BOOKS_SANDBOX,
                               .idempotency_key = r->idempotency_key,
                               .ttl_ns = r->ttl_ns,
                               .pause_on_idle = pauses,
                               .wake_on_use = r->wake_on_use};
    fill_create(c, r);
    if (r->snapshot[0]) {
        if (!snapshot_start(a, &c->spec, &start))
            return;
        c->spec = start.spec;
        spec.fork_of = start.id;
    }
    creation_submit(c, &spec);
}

static void sandbox_fork(struct api_call *a)
{
    const Cloche__V1__ForkRequest *r = (const Cloche__V1__ForkRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    struct unit *of = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w);
    struct creation *c = of ? creation_call(a, reply_forked) : NULL;
    if (!c)
        return;
    if (validate_ttl(r->ttl_ns, &err) < 0) {
        api_fail(a, &err);
    } else if (strlen(r->moment) > MOMENT_MAX) {
        api_fail_with(a, CL_E_INVALID, "moment: at most %d bytes", MOMENT_MAX);
    } else if (!w->forks) {
        api_fail_with(a, CL_E_UNIMPL, "the worker of '%.40s' is older than forks", of->id);
    } else {
        creation_copy_spec(c, of);
        c->spec.labels = r->labels;
        c->spec.n_labels = r->n_labels;
        struct submit_spec spec = {.kind = BOOKS_SANDBOX,
                                   .idempotency_key = r->idempotency_key,
                                   .ttl_ns = r->ttl_ns ? r->ttl_ns : of->record->ttl_ns,
                                   .pause_on_idle = of->record->pause_on_idle,
                                   .wake_on_use = of->record->wake_on_use,
                                   .fork_of = of->id,
                                   .fork_moment = r->moment};
        creation_submit(c, &spec);
    }
}

/* --- Get and List -------------------------------------------------------------------------------
 */

static void on_got(struct api_call *a, const struct look_row *row)
{
    struct sandbox_view view;
    Cloche__V1__SandboxServiceGetResponse m = CLOCHE__V1__SANDBOX_SERVICE_GET_RESPONSE__INIT;
    view_row(&view, row);
    m.sandbox = &view.m;
    api_reply(a, &m.base);
}

static void sandbox_get(struct api_call *a)
{
    const Cloche__V1__SandboxServiceGetRequest *r =
        (const Cloche__V1__SandboxServiceGetRequest *)a->request;
    look_get(a, BOOKS_SANDBOX, r->sandbox_id, on_got);
}

static void on_listed(struct api_call *a, const struct look_row *rows, size_t n, const char *next)
{
    Cloche__V1__SandboxServiceListResponse m = CLOCHE__V1__SANDBOX_SERVICE_LIST_RESPONSE__INIT;
    struct sandbox_view *views = cl_zalloc_array(n, sizeof *views);
    Cloche__V1__Sandbox **list = cl_zalloc_array(n, sizeof *list);
    m.sandboxes = list;
    m.n_sandboxes = n;
    m.next_page_token = (char *)(uintptr_t)next;
    for (size_t i = 0; views && list && i < n; i++) {
        view_row(&views[i], &rows[i]);
        list[i] = &views[i].m;
    }
    if (views && list)
        api_reply(a, &m.base);
    else
        api_fail_with(a, CL_E_NOMEM, "list");
    cl_free(views);
    cl_free(list);
}

static void sandbox_list(struct api_call *a)
{
    const Cloche__V1__SandboxServiceListRequest *r =
        (const Cloche__V1__SandboxServiceListRequest *)a->request;
    uint32_t live =
        1u << BOOKS_QUEUED | 1u << BOOKS_STARTING | 1u << BOOKS_RUNNING | 1u << BOOKS_PAUSED;
    look_list(a,
              &(struct look_list){.kind = BOOKS_SANDBOX,
                                  .states = r->include_ended ? 0 : live,
                                  .page_size = r->page_size,
                                  .page_token = r->page_token,
                                  .labels = r->labels,
                                  .n_labels = r->n_labels},
              on_listed);
}

/* --- Kill and Extend ----------------------------------------------------------------------------
 */

static void sandbox_kill(struct api_call *a)
{
    static const Cloche__V1__KillResponse reply = CLOCHE__V1__KILL_RESPONSE__INIT;
    cancel_unit(a, &(struct cancel_spec){
                       .kind = BOOKS_SANDBOX,
                       .id = ((const Cloche__V1__KillRequest *)a->request)->sandbox_id,
                       .reply = &reply.base,
                   });
}

void sandbox_extended(struct unit *u, const Cloche__V1__ExecAnswer *answer, uint64_t ttl_ns)
{
    if (!answer->expires)
        return;
    u->expires_wall_ns = answer->expires->unix_ns;
    u->record->ttl_ns = ttl_ns;
}

void sandbox_ask_extend(struct api_call *a, struct unit *u, uint64_t ttl_ns, request_fn *done)
{
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExtendCommand ext = CLOCHE__V1__EXTEND_COMMAND__INIT;
    struct cl_err err = {0};
    ext.ttl_ns = ttl_ns;
    cmd.unit_id = u->id;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_EXTEND;
    cmd.extend = &ext;
    api_hold(a);
    if (worker_request(unit_worker(u), &cmd, done, a, &err) < 0)
        done(a, NULL, &err);
}

static void on_extended(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    const Cloche__V1__ExtendRequest *r = (const Cloche__V1__ExtendRequest *)a->request;
    Cloche__V1__ExtendResponse m = CLOCHE__V1__EXTEND_RESPONSE__INIT;
    struct unit *u = unit_find(a->s, a->p.tenant, a->object);
    if (err) {
        api_fail(a, err);
    } else {
        if (u)
            sandbox_extended(u, answer, r->ttl_ns);
        m.expires = answer->expires;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void sandbox_extend(struct api_call *a)
{
    const Cloche__V1__ExtendRequest *r = (const Cloche__V1__ExtendRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    struct unit *u = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    if (r->ttl_ns == 0)
        api_fail_with(a, CL_E_INVALID, "ttl_ns: more than 0, at most 24 h");
    else if (validate_ttl(r->ttl_ns, &err) < 0)
        api_fail(a, &err);
    else
        sandbox_ask_extend(a, u, r->ttl_ns, on_extended);
}

/* --- Stats --------------------------------------------------------------------------------------
 */

enum { COUNTERS_MAX = 256 }; /* of a worker that is newer; more is not passed on */

static void on_stats(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    Cloche__V1__StatsResponse m = CLOCHE__V1__STATS_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else if (!answer->stats || answer->stats->n_counters > COUNTERS_MAX) {
        api_fail_with(a, CL_E_PEER, "the worker answered no statistics, or far too many");
    } else {
        m.stats = answer->stats;
        api_reply(a, &m.base);
    }
    api_release(a);
}

/* What a live unit's worker counts of its VM. */
static void ask_about_vm(struct api_call *a, const char *id, Cloche__V1__ExecCommand *cmd,
                         request_fn *on_answer)
{
    enum books_kind kind = cl_id_is(id, "job") ? BOOKS_JOB : BOOKS_SANDBOX;
    struct cl_err err = {0};
    struct worker *w;
    struct unit *u = api_unit(a, id, kind, &w);
    if (!u)
        return;
    cmd->unit_id = u->id;
    api_hold(a);
    if (worker_request(w, cmd, on_answer, a, &err) < 0)
        on_answer(a, NULL, &err);
}

static void vm_stats(struct api_call *a)
{
    const Cloche__V1__StatsRequest *r = (const Cloche__V1__StatsRequest *)a->request;
    Cloche__V1__StatsCommand stats = CLOCHE__V1__STATS_COMMAND__INIT;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_STATS;
    cmd.stats = &stats;
    ask_about_vm(a, r->unit_id, &cmd, on_stats);
}

/* --- Usage --------------------------------------------------------------------------------------
 */

enum { SAMPLES_MAX = 1000 }; /* of a worker that is newer; more is not passed on */

static void on_usage(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    Cloche__V1__UsageResponse m = CLOCHE__V1__USAGE_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else if (answer->vcpus == 0 || answer->n_usage > SAMPLES_MAX) {
        api_fail_with(a, CL_E_PEER, "the worker answered no usage, or far too much");
    } else {
        m.samples = answer->usage;
        m.n_samples = answer->n_usage;
        m.vcpus = answer->vcpus;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void vm_usage(struct api_call *a)
{
    const Cloche__V1__UsageRequest *r = (const Cloche__V1__UsageRequest *)a->request;
    Cloche__V1__UsageCommand usage = CLOCHE__V1__USAGE_COMMAND__INIT;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_USAGE;
    cmd.usage = &usage;
    ask_about_vm(a, r->unit_id, &cmd, on_usage);
}

#define METHOD(name) "/cloche.v1.SandboxService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method sandbox_api[] = {
    {METHOD("Create"), TYPES(create_request, create_response), .scope = SCOPE_RUN, .changes = true,
     .handle = sandbox_create, .on_gone = creation_gone},
    {METHOD("Get"), TYPES(sandbox_service_get_request, sandbox_service_get_response),
     .scope = SCOPE_READ, .handle = sandbox_get},
    {METHOD("List"), TYPES(sandbox_service_list_request, sandbox_service_list_response),
     .scope = SCOPE_READ, .handle = sandbox_list},
    {METHOD("Kill"), TYPES(kill_request, kill_response), .scope = SCOPE_RUN, .changes = true,
     .handle = sandbox_kill, .on_gone = cancel_gone},
    {METHOD("Fork"), TYPES(fork_request, fork_response), .scope = SCOPE_RUN, .changes = true,
     .wakes = true, .handle = sandbox_fork, .on_gone = creation_gone},
    {METHOD("Extend"), TYPES(extend_request, extend_response), .scope = SCOPE_RUN, .changes = true,
     .wakes = true, .handle = sandbox_extend},
    {METHOD("Pause"), TYPES(pause_request, pause_response), .scope = SCOPE_RUN, .changes = true,
     .handle = sandbox_pause},
    {METHOD("Resume"), TYPES(resume_request, resume_response), .scope = SCOPE_RUN, .changes = true,
     .handle = sandbox_resume},
    {METHOD("Stats"), TYPES(stats_request, stats_response), .scope = SCOPE_READ,
     .handle = vm_stats},
    {METHOD("Usage"), TYPES(usage_request, usage_response), .scope = SCOPE_READ,
     .handle = vm_usage},
};
const size_t sandbox_api_n = CL_COUNT(sandbox_api);
