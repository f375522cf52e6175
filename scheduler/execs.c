/* scheduler/execs.c - ExecService: processes in a sandbox, relayed to its worker. */
#include <stdio.h>
#include <string.h>

#include "audit/redact.h"
#include "base/mem.h"
#include "scheduler/stream.h"
#include "scheduler/validate.h"

/* Send a command about a sandbox; `done` answers and releases the call. */
static void ask(struct api_call *a, const char *sandbox_id, Cloche__V1__ExecCommand *cmd,
                request_fn *done)
{
    struct cl_err err = {0};
    struct worker *w;
    struct unit *u = api_unit(a, sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    cmd->unit_id = u->id;
    api_hold(a);
    if (worker_request(w, cmd, done, a, &err) < 0)
        done(a, NULL, &err);
}

/* --- Start: recorded before it runs --------------------------------------------------------------
 */

static void on_started(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    Cloche__V1__StartResponse m = CLOCHE__V1__START_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else {
        m.exec_id = answer->exec_id;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void on_recorded(const struct cl_err *err, void *arg)
{
    struct api_call *a = arg;
    const Cloche__V1__StartRequest *r = (const Cloche__V1__StartRequest *)a->request;
    if (err) {
        api_fail(a, err);
    } else {
        Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
        Cloche__V1__ExecStartCommand start = CLOCHE__V1__EXEC_START_COMMAND__INIT;
        char exec_id[CL_ID_MAX], trace[TRACEPARENT_TEXT];
        memcpy(exec_id, a->object, sizeof exec_id); /* api_unit() notes the sandbox instead */
        start.exec_id = exec_id;
        start.command = r->command;
        start.labels = r->labels;
        start.n_labels = r->n_labels;
        start.kill_on_disconnect = r->kill_on_disconnect;
        (void)api_trace(a, trace);
        start.traceparent = trace;
        cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_START;
        cmd.start = &start;
        ask(a, r->sandbox_id, &cmd, on_started);
    }
    api_release(a);
}

static int record_start(struct api_call *a, const struct unit *u, const Cloche__V1__Command *c,
                        struct cl_err *err)
{
    enum { ARENA = 8 * 1024 * 1024 };
    struct cl_arena *arena;
    const char **argv;
    char trace[TRACEPARENT_TEXT];
    if (cl_arena_new(ARENA, &arena, err) < 0)
        return -1;
    int rc = audit_redact_argv(arena, a->s->salt, a->p.tenant, (const char *const *)c->argv,
                               c->n_argv, &argv, err);
    if (rc == 0) {
        const struct audit_field fields[] = {
            AUDIT_LIST("argv", argv, CL_MIN(c->n_argv, (size_t)AUDIT_LIST_MAX)),
            AUDIT_STR("cwd", c->cwd),
            AUDIT_STR("exec", a->object),
            AUDIT_STR("trace", api_trace(a, trace)),
            AUDIT_NUM("uid", strcmp(c->user, "root") == 0 ? 0 : 1000),
            AUDIT_STR("unit", u->id),
        };
        rc = audit_emit(a->s->audit, a->p.tenant, AUDIT_EXEC_START, fields, CL_COUNT(fields),
                        on_recorded, a, err);
    }
    cl_arena_free(arena);
    return rc;
}

static void exec_start(struct api_call *a)
{
    const Cloche__V1__StartRequest *r = (const Cloche__V1__StartRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    if (validate_command(r->command, &err) < 0 ||
        validate_labels(r->labels, r->n_labels, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    struct unit *u = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    char id[CL_ID_MAX];
    cl_id_new("exec", id);
    api_about(a, id);
    api_hold(a);
    if (record_start(a, u, r->command, &err) < 0)
        on_recorded(&err, a);
}

/* --- Attach --------------------------------------------------------------------------------------
 */

static void exec_attach(struct api_call *a)
{
    const Cloche__V1__AttachRequest *r = (const Cloche__V1__AttachRequest *)a->request;
    struct worker *w;
    struct unit *u = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    if (!cl_id_is(r->exec_id, "exec")) {
        api_fail_with(a, CL_E_INVALID, "'%.40s' is no exec id", r->exec_id);
        return;
    }
    struct stream_spec spec = {.kind = STREAM_ATTACH,
                               .no_follow = r->no_follow,
                               .exec_id = r->exec_id,
                               .offsets = {r->stdout_offset, r->stderr_offset}};
    stream_start(a, u, &spec);
}

/* --- List, Signal, Resize, Wait
 * ------------------------------------------------------------------- */

static void on_listed(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    const Cloche__V1__ExecServiceListRequest *r =
        (const Cloche__V1__ExecServiceListRequest *)a->request;
    Cloche__V1__ExecServiceListResponse m = CLOCHE__V1__EXEC_SERVICE_LIST_RESPONSE__INIT;
    size_t page = 0;
    struct cl_err bad = {0};
    if (!err && api_page_size(r->page_size, 100, 1000, &page, &bad) < 0)
        err = &bad;
    if (err) {
        api_fail(a, err);
    } else {
        size_t from = 0; /* oldest first; the token is the last id of the page before */
        for (size_t i = 0; r->page_token[0] && i < answer->n_execs; i++) {
            if (strcmp(answer->execs[i]->id, r->page_token) == 0)
                from = i + 1;
        }
        m.execs = answer->execs + from;
        m.n_execs = CL_MIN(answer->n_execs - from, page);
        if (from + m.n_execs < answer->n_execs)
            m.next_page_token = m.execs[m.n_execs - 1]->id;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void exec_list(struct api_call *a)
{
    const Cloche__V1__ExecServiceListRequest *r =
        (const Cloche__V1__ExecServiceListRequest *)a->request;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExecListCommand list = CLOCHE__V1__EXEC_LIST_COMMAND__INIT;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_LIST;
    cmd.list = &list;
    ask(a, r->sandbox_id, &cmd, on_listed);
}

static void on_signalled(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    const Cloche__V1__SignalRequest *r = (const Cloche__V1__SignalRequest *)a->request;
    Cloche__V1__SignalResponse m = CLOCHE__V1__SIGNAL_RESPONSE__INIT;
    struct cl_err bad = {0};
    const struct audit_field fields[] = {
        AUDIT_STR("by", a->p.key_id), AUDIT_STR("exec", r->exec_id), AUDIT_NUM("signal", r->signal),
        AUDIT_STR("unit", r->sandbox_id)};
    if (!err && audit_emit(a->s->audit, a->p.tenant, AUDIT_EXEC_SIGNAL, fields, CL_COUNT(fields),
                           NULL, NULL, &bad) < 0)
        err = &bad;
    if (err)
        api_fail(a, err);
    else
        api_reply(a, &m.base);
    api_release(a);
}

static void exec_signal(struct api_call *a)
{
    const Cloche__V1__SignalRequest *r = (const Cloche__V1__SignalRequest *)a->request;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExecSignalCommand sig = CLOCHE__V1__EXEC_SIGNAL_COMMAND__INIT;
    if (r->signal < 1 || r->signal > 64) {
        api_fail_with(a, CL_E_INVALID, "signal: 1 to 64");
        return;
    }
    sig.exec_id = r->exec_id;
    sig.signal = r->signal;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_SIGNAL;
    cmd.signal = &sig;
    ask(a, r->sandbox_id, &cmd, on_signalled);
}

static void on_resized(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    Cloche__V1__ResizeResponse m = CLOCHE__V1__RESIZE_RESPONSE__INIT;
    if (err)
        api_fail(a, err);
    else
        api_reply(a, &m.base);
    api_release(a);
}

static void exec_resize(struct api_call *a)
{
    const Cloche__V1__ResizeRequest *r = (const Cloche__V1__ResizeRequest *)a->request;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExecResizeCommand size = CLOCHE__V1__EXEC_RESIZE_COMMAND__INIT;
    size.exec_id = r->exec_id;
    size.size = r->size;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_RESIZE;
    cmd.resize = &size;
    ask(a, r->sandbox_id, &cmd, on_resized);
}

static void on_waited(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    Cloche__V1__WaitResponse m = CLOCHE__V1__WAIT_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else {
        m.result = answer->result;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void exec_wait(struct api_call *a)
{
    const Cloche__V1__WaitRequest *r = (const Cloche__V1__WaitRequest *)a->request;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    Cloche__V1__ExecWaitCommand wait = CLOCHE__V1__EXEC_WAIT_COMMAND__INIT;
    wait.exec_id = r->exec_id;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_WAIT;
    cmd.wait = &wait;
    ask(a, r->sandbox_id, &cmd, on_waited);
}

static void stdin_message(struct api_call *a, const ProtobufCMessage *msg)
{
    const Cloche__V1__ExecServiceWriteStdinRequest *m =
        (const Cloche__V1__ExecServiceWriteStdinRequest *)msg;
    upload_bytes(a, m->sandbox_id, m->exec_id, m->data.data, m->data.len, m->eof);
}

#define METHOD(name) "/cloche.v1.ExecService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method exec_api[] = {
    {METHOD("Start"), TYPES(start_request, start_response), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = exec_start},
    {METHOD("Attach"), TYPES(attach_request, attach_response), .scope = SCOPE_RUN,
     .server_streams = true, .lasts = true, .handle = exec_attach, .on_drain = stream_drain,
     .on_gone = stream_gone},
    {METHOD("List"), TYPES(exec_service_list_request, exec_service_list_response),
     .scope = SCOPE_READ, .handle = exec_list},
    {METHOD("Signal"), TYPES(signal_request, signal_response), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = exec_signal},
    {METHOD("WriteStdin"),
     TYPES(exec_service_write_stdin_request, exec_service_write_stdin_response), .scope = SCOPE_RUN,
     .wakes = true, .client_streams = true, .handle = upload_stdin_exec,
     .on_message = stdin_message, .on_half_close = upload_half_close, .on_gone = upload_gone},
    {METHOD("Resize"), TYPES(resize_request, resize_response), .scope = SCOPE_RUN, .wakes = true,
     .handle = exec_resize},
    {METHOD("Wait"), TYPES(wait_request, wait_response), .scope = SCOPE_RUN, .handle = exec_wait},
};
const size_t exec_api_n = CL_COUNT(exec_api);
