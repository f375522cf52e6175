/* scheduler/jobs.c - JobService: submit, follow, look, cancel.
 *
 * Run, Watch and Attach share one thing: a stream that follows a process's output through a relay
 * and ends with its result (struct stream, below).
 */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "audit/redact.h"
#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "scheduler/cancel.h"
#include "scheduler/look.h"
#include "scheduler/snapshots.h"
#include "scheduler/stream.h"
#include "scheduler/submit.h"

/* --- Run -------------------------------------------------------------------------------------- */

static void run_submitted(void *arg, struct unit *u, bool replayed, const struct cl_err *err);

/* In a copy of a snapshot, if that is asked for. */
static void submit_job(struct api_call *a, struct submit_spec *spec, submit_fn *fn)
{
    struct snapshot_start start;
    spec->kind = BOOKS_JOB;
    if (spec->spec && spec->spec->snapshot[0]) {
        if (!snapshot_start(a, spec->spec, &start))
            return;
        spec->spec = &start.spec;
        spec->fork_of = start.id;
    }
    submit(a, spec, fn, a);
}

static void job_run(struct api_call *a)
{
    const Cloche__V1__RunRequest *r = (const Cloche__V1__RunRequest *)a->request;
    struct submit_spec spec = {.spec = r->spec,
                               .idempotency_key = r->idempotency_key,
                               .refuse_over_quota = !r->spec || r->spec->max_queue_wait_ns == 0,
                               .waits = !r->detach_on_disconnect};
    submit_job(a, &spec, run_submitted);
}

static void run_submitted(void *arg, struct unit *u, bool replayed, const struct cl_err *err)
{
    (void)replayed;
    struct api_call *a = arg;
    if (err) {
        api_fail(a, err);
        return;
    }
    const Cloche__V1__RunRequest *r = (const Cloche__V1__RunRequest *)a->request;
    struct stream_spec spec = {.kind = STREAM_RUN, .cancel_on_leave = !r->detach_on_disconnect};
    if (!a->call) { /* the client left while it was admitted */
        if (u && spec.cancel_on_leave)
            cancel_abandoned(u);
    } else if (u) {
        stream_start(a, u, &spec);
    } else { /* the job of this idempotency key has ended */
        stream_start_ended(a, a->object, &spec);
    }
}

/* --- Submit ----------------------------------------------------------------------------------- */

static void submitted(void *arg, struct unit *u, bool replayed, const struct cl_err *err)
{
    struct api_call *a = arg;
    if (err) {
        api_fail(a, err);
        return;
    }
    Cloche__V1__SubmitResponse m = CLOCHE__V1__SUBMIT_RESPONSE__INIT;
    m.job_id = a->object;
    m.replayed = replayed;
    m.queue_position = u ? (uint32_t)fairq_tenant_count(a->s->queue, u->tenant->name) : 0;
    api_reply(a, &m.base);
}

static void job_submit(struct api_call *a)
{
    const Cloche__V1__SubmitRequest *r = (const Cloche__V1__SubmitRequest *)a->request;
    struct submit_spec spec = {.spec = r->spec, .idempotency_key = r->idempotency_key};
    submit_job(a, &spec, submitted);
}

/* --- Get and List ----------------------------------------------------------------------------- */

/* A Job message over a row. */
struct job_view {
    Cloche__V1__Job m;
    Cloche__V1__Time created, started, ended;
};

static void view_job(struct job_view *o, const struct look_row *row)
{
    const struct books_unit *b = row->row;
    cloche__v1__job__init(&o->m);
    cloche__v1__time__init(&o->created);
    cloche__v1__time__init(&o->started);
    cloche__v1__time__init(&o->ended);
    o->m.id = (char *)(uintptr_t)b->id;
    o->m.tenant = (char *)(uintptr_t)b->tenant;
    o->m.spec = row->record ? row->record->spec : NULL;
    o->m.state = (Cloche__V1__UnitState)b->state; /* the same numbers */
    o->m.attempt = b->attempt;
    o->created.unix_ns = b->created_us * CL_NS_PER_US;
    o->m.created = &o->created;
    o->m.worker_id = (char *)(uintptr_t)b->worker;
    o->m.cancel_requested = b->cancel;
    if (row->live) {
        o->started.unix_ns = row->live->started_wall_ns;
        o->m.driver = (char *)(uintptr_t)row->live->driver;
        o->m.guest_separation = row->live->separation;
    }
    if (row->terminal) {
        o->started.unix_ns = row->terminal->started_unix_ns;
        o->ended.unix_ns = row->terminal->ended_unix_ns;
        o->m.driver = row->terminal->driver;
        o->m.guest_separation = row->terminal->guest_separation;
        o->m.result = row->terminal->result;
        o->m.ended = &o->ended;
    }
    if (o->started.unix_ns)
        o->m.started = &o->started;
}

static void on_got(struct api_call *a, const struct look_row *row)
{
    struct job_view view;
    Cloche__V1__GetResponse m = CLOCHE__V1__GET_RESPONSE__INIT;
    view_job(&view, row);
    m.job = &view.m;
    api_reply(a, &m.base);
}

static void job_get(struct api_call *a)
{
    look_get(a, BOOKS_JOB, ((const Cloche__V1__GetRequest *)a->request)->job_id, on_got);
}

static void on_listed(struct api_call *a, const struct look_row *rows, size_t n, const char *next)
{
    Cloche__V1__ListResponse m = CLOCHE__V1__LIST_RESPONSE__INIT;
    struct job_view *views = cl_zalloc_array(n, sizeof *views);
    Cloche__V1__Job **list = cl_zalloc_array(n, sizeof *list);
    m.jobs = list;
    m.n_jobs = n;
    m.next_page_token = (char *)(uintptr_t)next;
    for (size_t i = 0; views && list && i < n; i++) {
        view_job(&views[i], &rows[i]);
        list[i] = &views[i].m;
    }
    if (views && list)
        api_reply(a, &m.base);
    else
        api_fail_with(a, CL_E_NOMEM, "list");
    cl_free(views);
    cl_free(list);
}

static void job_list(struct api_call *a)
{
    const Cloche__V1__ListRequest *r = (const Cloche__V1__ListRequest *)a->request;
    look_list(a,
              &(struct look_list){.kind = BOOKS_JOB,
                                  .states = r->state ? 1u << r->state : 0,
                                  .page_size = r->page_size,
                                  .page_token = r->page_token,
                                  .labels = r->labels,
                                  .n_labels = r->n_labels},
              on_listed);
}

/* --- Watch ------------------------------------------------------------------------------------ */

static void job_watch(struct api_call *a)
{
    const Cloche__V1__WatchRequest *r = (const Cloche__V1__WatchRequest *)a->request;
    struct unit *u = unit_find(a->s, a->p.tenant, r->job_id);
    struct stream_spec spec = {.kind = STREAM_WATCH,
                               .attempt = r->attempt,
                               .no_follow = r->no_follow,
                               .offsets = {r->stdout_offset, r->stderr_offset}};
    api_about(a, r->job_id);
    if (u && u->kind == BOOKS_JOB)
        stream_start(a, u, &spec);
    else
        stream_start_ended(a, r->job_id, &spec);
}

/* --- Cancel ----------------------------------------------------------------------------------- */

static void job_cancel(struct api_call *a)
{
    static const Cloche__V1__CancelResponse reply = CLOCHE__V1__CANCEL_RESPONSE__INIT;
    cancel_unit(a, &(struct cancel_spec){
                       .kind = BOOKS_JOB,
                       .id = ((const Cloche__V1__CancelRequest *)a->request)->job_id,
                       .reply = &reply.base,
                   });
}

/* --- stdin and control -------------------------------------------------------------------------
 */

static void stdin_message(struct api_call *a, const ProtobufCMessage *msg)
{
    const Cloche__V1__WriteStdinRequest *m = (const Cloche__V1__WriteStdinRequest *)msg;
    upload_bytes(a, m->job_id, "", m->data.data, m->data.len, m->eof);
}

static void control_done(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    Cloche__V1__ControlResponse m = CLOCHE__V1__CONTROL_RESPONSE__INIT;
    if (err)
        api_fail(a, err);
    else
        api_reply(a, &m.base);
    api_release(a);
}

static void job_control(struct api_call *a)
{
    const Cloche__V1__ControlRequest *r = (const Cloche__V1__ControlRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    struct unit *u = api_unit(a, r->job_id, BOOKS_JOB, &w);
    if (!u)
        return;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExecSignalCommand sig = CLOCHE__V1__EXEC_SIGNAL_COMMAND__INIT;
    Cloche__V1__ExecResizeCommand size = CLOCHE__V1__EXEC_RESIZE_COMMAND__INIT;
    cmd.unit_id = u->id;
    if (r->what_case == CLOCHE__V1__CONTROL_REQUEST__WHAT_SIGNAL && r->signal >= 1 &&
        r->signal <= 64) {
        sig.signal = r->signal;
        cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_SIGNAL;
        cmd.signal = &sig;
    } else if (r->what_case == CLOCHE__V1__CONTROL_REQUEST__WHAT_RESIZE) {
        size.size = r->resize;
        cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_RESIZE;
        cmd.resize = &size;
    } else {
        api_fail_with(a, CL_E_INVALID, "control: give a signal from 1 to 64, or a size");
        return;
    }
    api_hold(a);
    if (worker_request(w, &cmd, control_done, a, &err) < 0)
        control_done(a, NULL, &err);
}

#define METHOD(name) "/cloche.v1.JobService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method job_api[] = {
    {METHOD("Run"), TYPES(run_request, run_response), .scope = SCOPE_RUN, .changes = true,
     .server_streams = true, .lasts = true, .handle = job_run, .on_drain = stream_drain,
     .on_gone = stream_gone},
    {METHOD("Submit"), TYPES(submit_request, submit_response), .scope = SCOPE_RUN, .changes = true,
     .handle = job_submit},
    {METHOD("Get"), TYPES(get_request, get_response), .scope = SCOPE_READ, .handle = job_get},
    {METHOD("List"), TYPES(list_request, list_response), .scope = SCOPE_READ, .handle = job_list},
    {METHOD("Watch"), TYPES(watch_request, watch_response), .scope = SCOPE_READ,
     .server_streams = true, .lasts = true, .handle = job_watch, .on_drain = stream_drain,
     .on_gone = stream_gone},
    {METHOD("Cancel"), TYPES(cancel_request, cancel_response), .scope = SCOPE_RUN, .changes = true,
     .handle = job_cancel, .on_gone = cancel_gone},
    {METHOD("WriteStdin"), TYPES(write_stdin_request, write_stdin_response), .scope = SCOPE_RUN,
     .client_streams = true, .handle = upload_stdin_job, .on_message = stdin_message,
     .on_half_close = upload_half_close, .on_gone = upload_gone},
    {METHOD("Control"), TYPES(control_request, control_response), .scope = SCOPE_RUN,
     .handle = job_control},
};
const size_t job_api_n = CL_COUNT(job_api);
