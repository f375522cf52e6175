/* cli/follow_calls.c - the calls that a follow makes, by what it follows; see cli/follow_priv.h. */
#include "base/clock.h"
#include "cli/follow_priv.h"

enum { SMALL_CALL_S = 10 };

static int call_with(struct follow *f, const struct client_method *m,
                     const ProtobufCMessage *request, const struct rpc_client_events *events,
                     struct cl_err *err)
{
    /* While the service restarts the call waits for the connection; the first one does not. */
    struct rpc_call_spec spec = {
        .path = m->path, .out = m->out, .fail_fast = !client_was_up(f->client)};
    struct rpc_call *call = NULL;
    if (rpc_channel_call(client_channel(f->client), &spec, events, f, &call, err) < 0)
        return -1;
    if (rpc_call_send(call, request, err) < 0) {
        rpc_call_cancel(call);
        return -1;
    }
    rpc_call_close_send(call);
    f->call = call;
    return 0;
}

int follow_open(struct follow *f, const struct rpc_client_events *events, struct cl_err *err)
{
    static const struct client_method run = CLIENT_METHOD("JobService", "Run", run_response);
    static const struct client_method watch = CLIENT_METHOD("JobService", "Watch", watch_response);
    static const struct client_method attach =
        CLIENT_METHOD("ExecService", "Attach", attach_response);
    if (f->spec->kind == FOLLOW_EXEC) {
        Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
        m.sandbox_id = pb_text(f->spec->sandbox_id);
        m.exec_id = pb_text(f->spec->exec_id);
        m.stdout_offset = f->offset[0];
        m.stderr_offset = f->offset[1];
        m.no_follow = f->spec->no_follow;
        return call_with(f, &attach, &m.base, events, err);
    }
    if (f->spec->kind == FOLLOW_RUN && !f->accepted)
        return call_with(f, &run, &f->spec->run->base, events, err);
    Cloche__V1__WatchRequest m = CLOCHE__V1__WATCH_REQUEST__INIT;
    m.job_id = f->out->id;
    m.attempt = f->out->attempt;
    m.stdout_offset = f->offset[0];
    m.stderr_offset = f->offset[1];
    m.no_follow = f->spec->no_follow;
    return call_with(f, &watch, &m.base, events, err);
}

/* --- small calls whose answer says nothing -------------------------------------------------------
 */

static void small_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call, (void)msg, (void)arg;
}

static void small_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    const char *what = arg;
    if (status && what && status->code != CL_E_CANCELLED) /* not when we leave ourselves */
        cli_say("%s: %s", what, status->text);
}

static void fire(struct follow *f, const struct client_method *m, const ProtobufCMessage *request,
                 const char *what)
{
    static const struct rpc_client_events events = {.on_message = small_message,
                                                    .on_end = small_end};
    struct rpc_call_spec spec = {
        .path = m->path, .out = m->out, .deadline_ns = cl_now_ns() + SMALL_CALL_S * CL_NS_PER_S};
    struct rpc_call *call = NULL;
    if (rpc_channel_call(client_channel(f->client), &spec, &events, (void *)(uintptr_t)what, &call,
                         NULL) < 0)
        return;
    if (rpc_call_send(call, request, NULL) < 0)
        rpc_call_cancel(call);
    else
        rpc_call_close_send(call);
}

void follow_cancel(struct follow *f, int signo)
{
    static const struct client_method cancel =
        CLIENT_METHOD("JobService", "Cancel", cancel_response);
    static const struct client_method kill_exec =
        CLIENT_METHOD("ExecService", "Signal", signal_response);
    if (f->spec->kind == FOLLOW_EXEC) {
        Cloche__V1__SignalRequest m = CLOCHE__V1__SIGNAL_REQUEST__INIT;
        m.sandbox_id = pb_text(f->spec->sandbox_id);
        m.exec_id = pb_text(f->spec->exec_id);
        m.signal = (uint32_t)signo;
        fire(f, &kill_exec, &m.base, "the signal could not be sent (again to leave)");
        return;
    }
    Cloche__V1__CancelRequest m = CLOCHE__V1__CANCEL_REQUEST__INIT;
    m.job_id = f->out->id;
    fire(f, &cancel, &m.base, "the job could not be cancelled (again to leave)");
}

void follow_resize(struct follow *f)
{
    static const struct client_method control =
        CLIENT_METHOD("JobService", "Control", control_response);
    static const struct client_method resize =
        CLIENT_METHOD("ExecService", "Resize", resize_response);
    Cloche__V1__Pty size = CLOCHE__V1__PTY__INIT;
    tty_size(&size.rows, &size.columns);
    if (f->spec->kind == FOLLOW_EXEC) {
        Cloche__V1__ResizeRequest m = CLOCHE__V1__RESIZE_REQUEST__INIT;
        m.sandbox_id = pb_text(f->spec->sandbox_id);
        m.exec_id = pb_text(f->spec->exec_id);
        m.size = &size;
        fire(f, &resize, &m.base, NULL);
        return;
    }
    Cloche__V1__ControlRequest m = CLOCHE__V1__CONTROL_REQUEST__INIT;
    m.job_id = f->out->id;
    m.what_case = CLOCHE__V1__CONTROL_REQUEST__WHAT_RESIZE;
    m.resize = &size;
    fire(f, &control, &m.base, NULL);
}
