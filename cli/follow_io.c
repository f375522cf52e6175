/* cli/follow_io.c - see cli/follow.h. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/follow_priv.h"
#include "cli/values.h"
#include "proto/copy.h"

#define RETRY_NS (300 * CL_NS_PER_MS)
#define PATIENCE_NS (60 * CL_NS_PER_S)
#define HINT_NS (5 * CL_NS_PER_S)

static void open_stream(struct follow *f);

/* --- ends
 * ------------------------------------------------------------------------------------------ */

static void check_done(struct follow *f)
{
    if ((f->finished || f->failed) && sink_is_empty(&f->sinks[0]) && sink_is_empty(&f->sinks[1]))
        cl_loop_stop(client_loop(f->client));
}

static bool is_done(const struct follow *f)
{
    return (f->finished || f->failed) && sink_is_empty(&f->sinks[0]) && sink_is_empty(&f->sinks[1]);
}

void follow_fail(struct follow *f, const struct cl_err *err)
{
    if (!f->failed && !f->finished)
        f->err = *err;
    f->failed = f->failed || !f->finished;
    check_done(f);
}

static void on_drained(void *arg)
{
    struct follow *f = arg;
    if (f->call)
        rpc_call_pause(f->call, false);
    check_done(f);
}

/* --- what comes
 * -------------------------------------------------------------------------------------- */

static void take_output(struct follow *f, const Cloche__V1__Output *o)
{
    int i = o->stream == CLOCHE__V1__STREAM__STREAM_STDERR;
    struct cl_err err = {0};
    uint64_t have = f->offset[i];
    size_t skip = o->offset < have ? (size_t)CL_MIN(have - o->offset, (uint64_t)o->data.len) : 0;
    if (o->offset > have)
        cli_say("%" PRIu64 " bytes of %s were lost before byte %" PRIu64, o->offset - have,
                i ? "stderr" : "stdout", o->offset);
    f->offset[i] = CL_MAX(have, o->offset + o->data.len);
    if (skip == o->data.len)
        return;
    if (f->spec->capture) {
        capture_add(f->spec->capture, i, o->data.data + skip, o->data.len - skip);
        return;
    }
    if (sink_write(&f->sinks[i], o->data.data + skip, o->data.len - skip, &err) < 0 &&
        !f->pipe_gone) {
        f->pipe_gone = true; /* as a local program it would die of SIGPIPE */
        if (err.sys != EPIPE)
            cli_say("%s", err.text);
        if (f->spec->in_charge)
            follow_cancel(f, SIGPIPE);
        else
            f->finished = true;
    }
    if (f->call && !sink_is_empty(&f->sinks[i]))
        rpc_call_pause(f->call, true);
}

static void take_started(struct follow *f, const Cloche__V1__JobStarted *s)
{
    if (f->out->attempt != 0 && s->attempt != f->out->attempt)
        cli_say("attempt %u was lost; attempt %u starts from the beginning", f->out->attempt,
                s->attempt);
    if (s->attempt != f->out->attempt)
        f->offset[0] = f->offset[1] = 0;
    f->out->attempt = s->attempt;
    (void)snprintf(f->out->worker, sizeof f->out->worker, "%s", s->worker_id);
    (void)snprintf(f->out->driver, sizeof f->out->driver, "%s", s->driver);
    f->started = true;
    if (f->spec->forward_stdin)
        feed_start(&f->feed, f);
    if (f->spec->tty)
        follow_resize(f);
}

static void take_result(struct follow *f, const Cloche__V1__ExecResult *r)
{
    struct cl_err err = {0};
    ProtobufCMessage *copy = NULL;
    if (!r)
        (void)cl_fail(&err, CL_E_PEER, 0, "the service sent an end without a result");
    if (!r || pb_copy(&r->base, &copy, &err) < 0) {
        follow_fail(f, &err);
        return;
    }
    f->out->result = (Cloche__V1__ExecResult *)copy;
    f->finished = true;
    feed_stop(&f->feed);
    check_done(f);
}

static void take_run(struct follow *f, const Cloche__V1__RunResponse *m)
{
    switch ((int)m->event_case) {
    case CLOCHE__V1__RUN_RESPONSE__EVENT_ACCEPTED:
        (void)snprintf(f->out->id, sizeof f->out->id, "%s", m->accepted->job_id);
        f->accepted = true;
        if (f->out->interrupted)
            follow_cancel(f, f->out->interrupted);
        break;
    case CLOCHE__V1__RUN_RESPONSE__EVENT_STARTED:
        take_started(f, m->started);
        break;
    case CLOCHE__V1__RUN_RESPONSE__EVENT_OUTPUT:
        take_output(f, m->output);
        break;
    case CLOCHE__V1__RUN_RESPONSE__EVENT_ENDED:
        take_result(f, m->ended->result);
        break;
    default:
        break; /* of a newer service */
    }
}

static void take_watch(struct follow *f, const Cloche__V1__WatchResponse *m)
{
    switch ((int)m->event_case) {
    case CLOCHE__V1__WATCH_RESPONSE__EVENT_STARTED:
        take_started(f, m->started);
        break;
    case CLOCHE__V1__WATCH_RESPONSE__EVENT_OUTPUT:
        take_output(f, m->output);
        break;
    case CLOCHE__V1__WATCH_RESPONSE__EVENT_ENDED:
        take_result(f, m->ended->result);
        break;
    default:
        break;
    }
}

static void take_attach(struct follow *f, const Cloche__V1__AttachResponse *m)
{
    if ((int)m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT)
        take_output(f, m->output);
    else if ((int)m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED)
        take_result(f, m->ended);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call;
    struct follow *f = arg;
    if (f->finished || f->failed)
        return;
    cl_timer_stop(&f->patience);
    feed_again(&f->feed);
    if (msg->descriptor == &cloche__v1__run_response__descriptor)
        take_run(f, (const Cloche__V1__RunResponse *)msg);
    else if (msg->descriptor == &cloche__v1__watch_response__descriptor)
        take_watch(f, (const Cloche__V1__WatchResponse *)msg);
    else
        take_attach(f, (const Cloche__V1__AttachResponse *)msg);
}

/* --- streams that end and begin again
 * ----------------------------------------------------------------- */

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct follow *f = arg;
    struct cl_err err;
    f->call = NULL;
    if (f->finished || f->failed)
        return;
    if (!status && f->spec->no_follow) {
        f->finished = true;
        check_done(f);
    } else if (!status) {
        (void)cl_fail(&err, CL_E_PEER, 0, "the stream ended without a result");
        follow_fail(f, &err);
    } else if (status->code == CL_E_UNAVAILABLE && client_was_up(f->client)) {
        f->err = *status;
        if (!cl_timer_is_armed(&f->patience))
            cl_timer_start(&f->patience, PATIENCE_NS);
        cl_timer_start(&f->retry, RETRY_NS);
    } else {
        follow_fail(f, status);
    }
}

static void open_stream(struct follow *f)
{
    static const struct rpc_client_events events = {.on_message = on_message, .on_end = on_end};
    struct cl_err err = {0};
    if (follow_open(f, &events, &err) < 0)
        follow_fail(f, &err);
}

static void on_retry(void *arg)
{
    open_stream(arg);
}

static void on_patience(void *arg)
{
    struct follow *f = arg;
    struct cl_err err;
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0,
                  "the service did not come back within 60 s (%.200s)%s%s", f->err.text,
                  f->out->id[0] ? "\nlook later with: cloche logs -f " : "", f->out->id);
    follow_fail(f, &err);
}

/* --- signals
 * ------------------------------------------------------------------------------------------- */

/* A program may take its time, or the signal, as it likes; its guest may have stopped answering. */
static void on_hint(void *arg)
{
    struct follow *f = arg;
    if (!f->finished && !f->failed)
        cli_say("it has not ended since the signal\n  remedy: the same again leaves it running");
}

static void on_interrupt(int signo, void *arg)
{
    struct follow *f = arg;
    bool again = f->out->interrupted != 0;
    f->out->interrupted = signo;
    if (again || !f->spec->in_charge) {
        f->finished = true;
        cl_buf_clear(&f->sinks[0].waiting);
        cl_buf_clear(&f->sinks[1].waiting);
        check_done(f);
    } else {
        cl_timer_start(&f->hint, HINT_NS);
        if (f->spec->kind == FOLLOW_EXEC || f->accepted)
            follow_cancel(f, signo);
    }
}

static void on_winch(int signo, void *arg)
{
    (void)signo;
    struct follow *f = arg;
    if (f->started || f->spec->kind == FOLLOW_EXEC)
        follow_resize(f);
}

static int watch_signals(struct follow *f, struct cl_err *err)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct cl_loop *loop = client_loop(f->client);
    for (size_t i = 0; i < CL_COUNT(signals); i++)
        if (cl_loop_on_signal(loop, signals[i], on_interrupt, f, err) < 0)
            return -1;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTTIN, SIG_IGN);
    return f->spec->tty ? cl_loop_on_signal(loop, SIGWINCH, on_winch, f, err) : 0;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */

static void say_truncated(const Cloche__V1__StreamTotal *t, const char *name)
{
    if (t && t->truncated)
        cli_say("%s was cut: %" PRIu64 " of %" PRIu64 " bytes were kept", name, t->kept_bytes,
                t->bytes);
}

/* What the exit code alone does not say. */
static void say_result(const struct follow *f, const Cloche__V1__ExecResult *r)
{
    const char *text = r->message && r->message[0] ? r->message : value_reason((int)r->reason);
    say_truncated(r->stdout, "stdout");
    say_truncated(r->stderr, "stderr");
    if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT)
        cli_say("the time limit passed\n  remedy: allow more with --timeout");
    else if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED)
        cli_say("the guest ran out of memory\n  remedy: allow more with --memory");
    else if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_FAILED)
        cli_say("Cloche could not run it: %s\n  remedy: %s", text,
                r->reason == CLOCHE__V1__REASON__REASON_WORKER_LOST
                    ? "run it again, or let Cloche do so with --retry N"
                    : "see `cloche status` and `cloche doctor`");
    else if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED && !f->out->interrupted &&
             !f->pipe_gone)
        cli_say("somebody cancelled it");
    else if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_NOT_FOUND ||
             r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_NOT_EXECUTABLE)
        cli_say("%s", r->message && r->message[0]
                          ? r->message
                          : "the command cannot be executed in this template");
}

static void settle(struct follow *f)
{
    const Cloche__V1__ExecResult *r = f->out->result;
    if (r && f->spec->in_charge)
        say_result(f, r);
    f->out->exit_code = f->out->interrupted ? EXIT_SIGNAL + f->out->interrupted
                        : f->pipe_gone      ? EXIT_SIGNAL + SIGPIPE
                        : r                 ? value_exit_code(r)
                                            : EXIT_OK;
}

static int follow_init(struct follow *f, struct cl_err *err)
{
    struct cl_loop *loop = client_loop(f->client);
    if (f->spec->job_id)
        (void)snprintf(f->out->id, sizeof f->out->id, "%s", f->spec->job_id);
    if (f->spec->exec_id)
        (void)snprintf(f->out->id, sizeof f->out->id, "%s", f->spec->exec_id);
    if (sink_init(&f->sinks[0], loop, STDOUT_FILENO, on_drained, f, err) < 0 ||
        sink_init(&f->sinks[1], loop, STDERR_FILENO, on_drained, f, err) < 0 ||
        cl_timer_init(&f->retry, loop, on_retry, f, err) < 0 ||
        cl_timer_init(&f->patience, loop, on_patience, f, err) < 0 ||
        cl_timer_init(&f->hint, loop, on_hint, f, err) < 0 || watch_signals(f, err) < 0)
        return -1;
    return f->spec->tty ? tty_raw(&f->tty, err) : 0;
}

static void follow_fini(struct follow *f)
{
    /* Their handler points to f.  What comes after (ending a sandbox) is not to be interrupted. */
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    for (size_t i = 0; i < CL_COUNT(signals); i++)
        (void)signal(signals[i], SIG_IGN);
    tty_restore(&f->tty);
    f->failed = true;
    feed_stop(&f->feed);
    if (f->call)
        rpc_call_cancel(f->call);
    /* The cancelled calls end in the next turns; they must not outlive f. */
    for (int i = 0; i < 50 && (f->call || f->feed.call); i++)
        cl_loop_turn(client_loop(f->client), 10 * CL_NS_PER_MS);
    cl_fd_watch_fini(&f->feed.watch);
    cl_timer_fini(&f->retry);
    cl_timer_fini(&f->patience);
    cl_timer_fini(&f->hint);
    sink_fini(&f->sinks[0]);
    sink_fini(&f->sinks[1]);
}

int follow(struct client *c, const struct follow_spec *spec, struct follow_result *ret,
           struct cl_err *err)
{
    struct follow f = {.client = c, .spec = spec, .out = ret};
    *ret = (struct follow_result){0};
    int rc = follow_init(&f, err);
    if (rc == 0) {
        (void)fflush(stdout);
        open_stream(&f);
        if (spec->kind == FOLLOW_EXEC && spec->forward_stdin && !f.failed)
            feed_start(&f.feed, &f);
        while (!is_done(&f))
            cl_loop_run(client_loop(c));
        if (f.failed && !ret->interrupted)
            rc = -1;
    }
    if (rc < 0 && f.failed && err)
        *err = f.err;
    tty_restore(&f.tty);
    if (rc == 0)
        settle(&f);
    follow_fini(&f);
    return rc;
}
