/* mcp/exec.c - the tools exec, exec_start, exec_poll and exec_signal, and tasks, which are execs
 * under another name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "cloche/v1/exec.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"
#include "mcp/exec_priv.h"
#include "mcp/tasks.h"
#include "mcp/tools_priv.h"

enum {
    EXEC_TIMEOUT_S = 50, /* clients give up after 60 s */
    START_TIMEOUT_S = 3600,
    GRACE_S = 30, /* for the end of a command to reach us */
    STDIN_PIECE = 256 * 1024,
    ENV_MAX = 1024, /* variables of one call */
    SIGKILL_NR = 9,
};

static const struct mcp_method_of start_method = MCP_RPC("ExecService", "Start", start_response);
static const struct mcp_method_of attach_method = MCP_RPC("ExecService", "Attach", attach_response);

/* --- the command --------------------------------------------------------------------------------
 */

/* What the schema cannot say; looked at before a sandbox is made for nothing.  false: has ended. */
static bool has_command(struct mcp_call *c)
{
    struct cl_err err = {0};
    if (!json_object_get(mcp_args(c), "command") != !json_object_get(mcp_args(c), "argv"))
        return true;
    (void)cl_fail(&err, CL_E_INVALID, 0, "give exactly one of the arguments command and argv");
    mcp_end_tool_error(c, &err);
    return false;
}

static int read_argv(const json_t *args, Cloche__V1__Command *m, struct cl_err *err)
{
    const char *line = mcp_json_text(args, "command");
    const json_t *list = json_object_get(args, "argv");
    m->n_argv = line ? 3 : json_array_size(list);
    m->argv = cl_zalloc_array(m->n_argv, sizeof *m->argv);
    if (!m->argv)
        return cl_fail(err, CL_E_NOMEM, 0, "arguments");
    for (size_t i = 0; list && i < m->n_argv; i++)
        m->argv[i] = mcp_pb(json_string_value(json_array_get(list, i)));
    if (line) {
        m->argv[0] = mcp_pb("/bin/sh");
        m->argv[1] = mcp_pb("-c");
        m->argv[2] = mcp_pb(line);
    }
    return 0;
}

static int read_env(const json_t *args, Cloche__V1__Command *m, struct cl_err *err)
{
    json_t *env = json_object_get(args, "env"), *value;
    const char *name;
    size_t n = json_object_size(env);
    if (n > ENV_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "argument env: at most %d variables", ENV_MAX);
    Cloche__V1__EnvVar *vars = cl_zalloc_array(n, sizeof *vars);
    m->env = cl_zalloc_array(n, sizeof *m->env);
    if (!vars || !m->env) {
        cl_free(vars);
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    }
    json_object_foreach(env, name, value)
    {
        cloche__v1__env_var__init(&vars[m->n_env]);
        vars[m->n_env].name = mcp_pb(name);
        vars[m->n_env].value = mcp_pb(json_string_value(value));
        m->env[m->n_env] = &vars[m->n_env];
        m->n_env++;
    }
    if (n == 0)
        cl_free(vars);
    return 0;
}

static void command_fini(Cloche__V1__Command *m)
{
    if (m->n_env > 0)
        cl_free(m->env[0]);
    cl_free(m->env);
    cl_free(m->argv);
}

/* --- starting -----------------------------------------------------------------------------------
 */

struct exec_work {
    struct mcp_output output;
    char exec_id[CL_ID_MAX];
    uint64_t offsets[2];        /* exec_poll: where its cursor is */
    struct rpc_call *stdin_rpc; /* the channel's; NULL once all was sent */
    size_t stdin_sent;
    bool is_task;
};

static void work_free(void *obj)
{
    struct exec_work *w = obj;
    mcp_output_fini(&w->output);
    cl_free(w);
}

static struct exec_work *new_work(struct mcp_call *c)
{
    struct cl_err err = {0};
    struct exec_work *w = cl_zalloc(sizeof *w);
    if (w && mcp_output_init(&w->output, mcp_args(c), &err) == 0) {
        mcp_set_work(c, w, work_free);
        return w;
    }
    cl_free(w);
    (void)cl_fail(&err, CL_E_NOMEM, 0, "exec");
    mcp_end_tool_error(c, &err);
    return NULL;
}

/* What is being started cannot be ended before its name is known: take_started() does it. */
static void undo_later(struct mcp_call *c)
{
    (void)c;
}

static void ask_start(struct mcp_call *c, bool dies_with_us, uint64_t default_s,
                      void (*on_end)(struct mcp_call *, const ProtobufCMessage *,
                                     const struct cl_err *))
{
    const json_t *args = mcp_args(c);
    Cloche__V1__StartRequest m = CLOCHE__V1__START_REQUEST__INIT;
    Cloche__V1__Command command = CLOCHE__V1__COMMAND__INIT;
    struct cl_err err = {0};
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.command = &command;
    m.kill_on_disconnect = dies_with_us;
    command.cwd = mcp_pb(mcp_json_text(args, "cwd"));
    command.user = mcp_pb(mcp_json_text(args, "user"));
    command.timeout_ns = mcp_seconds_ns(args, "timeout_seconds", default_s);
    command.open_stdin = json_object_get(args, "stdin") != NULL;
    struct mcp_ask_spec ask = {.method = &start_method, .request = &m.base, .on_end = on_end};
    int rc = read_argv(args, &command, &err);
    if (rc == 0)
        rc = read_env(args, &command, &err);
    if (rc == 0)
        rc = mcp_ask_try(c, &ask, NULL, &err);
    if (rc == 0)
        c->undo = undo_later;
    command_fini(&command);
    if (rc < 0)
        mcp_end_tool_error(c, &err);
}

/* --- stdin --------------------------------------------------------------------------------------
 */

static void feed(struct mcp_call *c, struct rpc_call *rpc)
{
    struct exec_work *w = mcp_work(c);
    const json_t *text = json_object_get(mcp_args(c), "stdin");
    const char *bytes = json_string_value(text);
    size_t n = json_string_length(text);
    while (w->stdin_rpc && !rpc_call_is_full(rpc)) {
        Cloche__V1__ExecServiceWriteStdinRequest m =
            CLOCHE__V1__EXEC_SERVICE_WRITE_STDIN_REQUEST__INIT;
        if (w->stdin_sent == 0) {
            m.sandbox_id = mcp_pb(mcp_box(c));
            m.exec_id = w->exec_id;
        }
        m.data.data = (uint8_t *)(uintptr_t)(bytes + w->stdin_sent);
        m.data.len = CL_MIN(n - w->stdin_sent, (size_t)STDIN_PIECE);
        w->stdin_sent += m.data.len;
        m.eof = w->stdin_sent == n;
        if (rpc_call_send(rpc, &m.base, NULL) < 0 || m.eof) {
            rpc_call_close_send(rpc);
            w->stdin_rpc = NULL;
        }
    }
}

static void on_fed(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply, (void)err; /* a command may end without reading it all: its result says how */
    ((struct exec_work *)mcp_work(c))->stdin_rpc = NULL;
}

/* 0, or the call has ended. */
static int open_stdin(struct mcp_call *c)
{
    static const struct mcp_method_of write =
        MCP_RPC("ExecService", "WriteStdin", exec_service_write_stdin_response);
    struct exec_work *w = mcp_work(c);
    if (!json_object_get(mcp_args(c), "stdin"))
        return 0;
    struct mcp_ask_spec ask = {
        .method = &write, .keep_open = true, .on_drain = feed, .on_end = on_fed};
    if (mcp_ask(c, &ask, &w->stdin_rpc) < 0)
        return -1;
    feed(c, w->stdin_rpc);
    return 0;
}

/* --- results ------------------------------------------------------------------------------------
 */

static const char *const outcomes[] = {"unknown",        "exited",     "signalled",
                                       "timed_out",      "oom_killed", "not_found",
                                       "not_executable", "cancelled",  "failed"};

static const char *outcome_name(const Cloche__V1__ExecResult *r)
{
    return (size_t)r->outcome < CL_COUNT(outcomes) ? outcomes[r->outcome] : outcomes[0];
}

static void result_json(const Cloche__V1__ExecResult *r, json_t *o)
{
    bool timed_out = r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT;
    bool oom = r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED;
    mcp_json_set(o, "outcome", json_string(outcome_name(r)));
    mcp_json_set(o, "exit_code", json_integer(r->exit_code));
    if (r->signal)
        mcp_json_set(o, "signal", json_integer(r->signal));
    mcp_json_set(o, "timed_out", json_boolean(timed_out));
    mcp_json_set(o, "oom_killed", json_boolean(oom));
    if (!r->usage)
        return;
    mcp_json_set(o, "duration_ms", json_integer((json_int_t)(r->usage->wall_ns / CL_NS_PER_MS)));
    mcp_json_set(o, "cpu_ms", json_integer((json_int_t)(r->usage->cpu_ns / CL_NS_PER_MS)));
    mcp_json_set(o, "peak_memory_bytes", json_integer((json_int_t)r->usage->peak_memory_bytes));
}

/* How it ended, and what can be done about it. */
static void describe(const Cloche__V1__ExecResult *r, char *out, size_t size)
{
    switch (r->outcome) {
    case CLOCHE__V1__OUTCOME__OUTCOME_EXITED:
        (void)snprintf(out, size, "exit code %d", r->exit_code);
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_SIGNALED:
        (void)snprintf(out, size, "killed by signal %d", r->signal);
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT:
        (void)snprintf(out, size,
                       "timed out and was killed: allow more with timeout_seconds, or use "
                       "exec_start for long work");
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED:
        (void)snprintf(out, size,
                       "out of memory: use less, or make a larger sandbox (sandbox_create with "
                       "memory_mib)");
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_NOT_FOUND:
        (void)snprintf(out, size, "no such program in this sandbox (exit code 127)");
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_NOT_EXECUTABLE:
        (void)snprintf(out, size, "the program cannot be executed (exit code 126)");
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED:
        (void)snprintf(out, size, "cancelled");
        break;
    case CLOCHE__V1__OUTCOME__OUTCOME_FAILED:
    case CLOCHE__V1__OUTCOME__OUTCOME_UNSPECIFIED:
    case _CLOCHE__V1__OUTCOME_IS_INT_SIZE:
        (void)snprintf(out, size, "the sandbox could not run it to its end: %.200s", r->message);
        break;
    }
}

/* Where all of a stream is, when less of it was shown. */
static void link_stream(const struct mcp_call *c, const char *exec_id, const char *stream,
                        const struct mcp_capture *cut, json_t *content)
{
    char uri[160], name[32];
    if (!mcp_capture_is_cut(cut))
        return;
    (void)snprintf(uri, sizeof uri, "cloche://%s/%s/%s", mcp_box(c), exec_id, stream);
    (void)snprintf(name, sizeof name, "%s of the command", stream);
    (void)json_array_append_new(
        content, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "type", "resource_link", "uri", uri,
                           "name", name, "mimeType", "text/plain", "description",
                           "All of it; a range with ?offset=BYTES&length=BYTES", "size",
                           (json_int_t)cut->total));
}

static bool is_failure(const Cloche__V1__ExecResult *r)
{
    return r->outcome != CLOCHE__V1__OUTCOME__OUTCOME_EXITED || r->exit_code != 0;
}

static void build_result(struct mcp_call *c, const Cloche__V1__ExecResult *r,
                         struct mcp_result *ret)
{
    struct exec_work *w = mcp_work(c);
    char how[320], note[160];
    CL_AUTO(cl_freep) char *shown = mcp_output_text(&w->output);
    describe(r, how, sizeof how);
    mcp_box_note(c, note, sizeof note);
    *ret = (struct mcp_result){
        .structured = json_pack("{s:s, s:s}", "sandbox_id", mcp_box(c), "exec_id", w->exec_id),
        .text = cl_asprintf("%s\n%s\n%s", how, note, shown ? shown : ""),
        .content = json_array(),
        .is_error = is_failure(r)};
    result_json(r, ret->structured);
    mcp_output_json(&w->output, ret->structured);
    link_stream(c, w->exec_id, "stdout", &w->output.out, ret->content);
    link_stream(c, w->exec_id, "stderr", &w->output.err, ret->content);
}

/* --- exec ---------------------------------------------------------------------------------------
 */

static void on_event(struct mcp_call *c, const ProtobufCMessage *msg)
{
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    struct exec_work *w = mcp_work(c);
    char text[96];
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT) {
        mcp_output_add(&w->output, m->output);
        (void)snprintf(text, sizeof text, "running, %" PRIu64 " bytes of output",
                       w->output.out.total + w->output.err.total);
        mcp_progress(c, text);
    } else if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED) {
        struct mcp_result r;
        build_result(c, m->ended, &r);
        c->undo = NULL;
        mcp_end_tool(c, &r);
    }
}

static void on_detached(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct cl_err lost = {0};
    if (!err)
        (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "the command's output ended before its result");
    mcp_end_tool_error(c, err ? err : &lost);
}

static void on_given_up(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply, (void)err; /* it has ended already, or its time limit ends it */
    c->undo = NULL;
    mcp_call_kill(c);
}

/* Nobody will ever look at it.  To take back the Attach alone would not do: one that the scheduler
 * has not begun to serve has never been. */
static void give_up(struct mcp_call *c, const char *exec_id)
{
    static const struct mcp_method_of signal = MCP_RPC("ExecService", "Signal", signal_response);
    Cloche__V1__SignalRequest m = CLOCHE__V1__SIGNAL_REQUEST__INIT;
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.exec_id = mcp_pb(exec_id);
    m.signal = SIGKILL_NR;
    mcp_asks_drop(c);
    c->undo = undo_later; /* no second time */
    struct mcp_ask_spec ask = {.method = &signal, .request = &m.base, .on_end = on_given_up};
    if (mcp_ask_try(c, &ask, NULL, NULL) < 0)
        on_given_up(c, NULL, NULL);
}

static void undo_exec(struct mcp_call *c)
{
    give_up(c, ((struct exec_work *)mcp_work(c))->exec_id);
}

/* Its id; NULL: it did not start, or nobody wants it any more, and the call ends. */
static const char *take_started(struct mcp_call *c, const ProtobufCMessage *reply,
                                const struct cl_err *err)
{
    const Cloche__V1__StartResponse *started = (const Cloche__V1__StartResponse *)reply;
    c->undo = NULL;
    if (err)
        mcp_end_tool_error(c, err);
    else if (c->is_left)
        give_up(c, started->exec_id);
    else
        return started->exec_id;
    return NULL;
}

static void on_started(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct exec_work *w = mcp_work(c);
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    const char *id = take_started(c, reply, err);
    if (!id)
        return;
    (void)snprintf(w->exec_id, sizeof w->exec_id, "%s", id);
    if (w->is_task) {
        mcp_task_answer(c, w->exec_id);
        return;
    }
    c->undo = undo_exec;
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.exec_id = w->exec_id;
    uint64_t limit_ns = mcp_seconds_ns(mcp_args(c), "timeout_seconds", EXEC_TIMEOUT_S);
    struct mcp_ask_spec ask = {.method = &attach_method,
                               .request = &m.base,
                               .timeout_ns = limit_ns + GRACE_S * CL_NS_PER_S,
                               .on_message = on_event,
                               .on_end = on_detached};
    mcp_progress(c, "running");
    if (open_stdin(c) == 0)
        (void)!mcp_ask(c, &ask, NULL);
}

static void exec_in_box(struct mcp_call *c)
{
    struct exec_work *w = mcp_work(c);
    ask_start(c, !w->is_task, EXEC_TIMEOUT_S, on_started);
}

void mcp_tool_exec(struct mcp_call *c)
{
    struct exec_work *w = has_command(c) ? new_work(c) : NULL;
    if (!w)
        return;
    /* Longer than a client waits: a task, where the client knows them. */
    w->is_task = mcp_task_is_wanted(c) && !json_object_get(mcp_args(c), "stdin") &&
                 mcp_seconds_ns(mcp_args(c), "timeout_seconds", 0) > 60 * CL_NS_PER_S;
    mcp_box_need(c, exec_in_box);
}

/* --- exec_start ---------------------------------------------------------------------------------
 */

static void on_background(struct mcp_call *c, const ProtobufCMessage *reply,
                          const struct cl_err *err)
{
    char note[160];
    const char *id = take_started(c, reply, err);
    if (!id)
        return;
    mcp_box_note(c, note, sizeof note);
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:s}", "sandbox_id", mcp_box(c), "exec_id", id),
        .text = cl_asprintf("started\n%s\nexec_id: %s\nLook at it with exec_poll, end it with "
                            "exec_signal.",
                            note, id)};
    mcp_end_tool(c, &r);
}

static void start_in_box(struct mcp_call *c)
{
    ask_start(c, false, START_TIMEOUT_S, on_background);
}

void mcp_tool_exec_start(struct mcp_call *c)
{
    if (has_command(c))
        mcp_box_need(c, start_in_box);
}

/* --- looking at one -----------------------------------------------------------------------------
 */

struct look {
    struct exec_work exec; /* first: build_result() sees only that */
    mcp_look_fn *done;
    struct mcp_result result;
    bool has_ended;
};
_Static_assert(offsetof(struct look, exec) == 0, "the work is seen as either");

static void look_free(void *obj)
{
    struct look *w = obj;
    json_decref(w->result.structured);
    json_decref(w->result.content);
    cl_free(w->result.text);
    work_free(w);
}

static void on_look_event(struct mcp_call *c, const ProtobufCMessage *msg)
{
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    struct look *w = mcp_work(c);
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT) {
        mcp_output_add(&w->exec.output, m->output);
    } else if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED && !w->has_ended) {
        build_result(c, m->ended, &w->result);
        w->has_ended = true;
    }
}

static void on_look_end(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct look *w = mcp_work(c);
    struct mcp_result result = w->result;
    w->result = (struct mcp_result){0};
    if (err && !w->has_ended)
        mcp_end_tool_error(c, err);
    else
        w->done(c, w->has_ended ? &result : NULL);
}

void mcp_exec_look(struct mcp_call *c, const char *exec_id, mcp_look_fn *done)
{
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    struct cl_err err = {0};
    struct look *w = cl_zalloc(sizeof *w);
    if (!w || mcp_output_init(&w->exec.output, mcp_args(c), &err) < 0) {
        cl_free(w);
        (void)cl_fail(&err, CL_E_NOMEM, 0, "exec");
        mcp_end_tool_error(c, &err);
        return;
    }
    w->done = done;
    (void)snprintf(w->exec.exec_id, sizeof w->exec.exec_id, "%.39s", exec_id);
    mcp_set_work(c, w, look_free);
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.exec_id = w->exec.exec_id;
    m.no_follow = true;
    struct mcp_ask_spec ask = {.method = &attach_method,
                               .request = &m.base,
                               .on_message = on_look_event,
                               .on_end = on_look_end};
    (void)!mcp_ask(c, &ask, NULL);
}

/* --- exec_poll ----------------------------------------------------------------------------------
 */

/* "o123e45": positions in stdout and stderr. */
static int read_cursor(const json_t *args, uint64_t ret[static 2], struct cl_err *err)
{
    const char *text = mcp_json_text(args, "cursor");
    char *end = NULL;
    if (!text)
        return 0;
    if (text[0] == 'o')
        ret[0] = strtoull(text + 1, &end, 10);
    if (end && *end == 'e')
        ret[1] = strtoull(end + 1, &end, 10);
    else
        end = NULL;
    return end && *end == '\0'
               ? 0
               : cl_fail(err, CL_E_INVALID, 0,
                         "argument cursor: pass the cursor of an earlier exec_poll");
}

static void answer_poll(struct mcp_call *c, const Cloche__V1__ExecResult *result)
{
    struct exec_work *w = mcp_work(c);
    char cursor[64], how[320] = "still running";
    CL_AUTO(cl_freep) char *shown = mcp_output_text(&w->output);
    if (result)
        describe(result, how, sizeof how);
    (void)snprintf(cursor, sizeof cursor, "o%" PRIu64 "e%" PRIu64,
                   w->offsets[0] + w->output.out.total, w->offsets[1] + w->output.err.total);
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:s, s:b, s:s}", "sandbox_id", mcp_box(c), "exec_id",
                                w->exec_id, "running", !result, "cursor", cursor),
        .text = cl_asprintf("%s\ncursor: %s\n%s", how, cursor, shown ? shown : ""),
        .content = json_array()};
    if (result)
        result_json(result, r.structured);
    mcp_output_json(&w->output, r.structured);
    link_stream(c, w->exec_id, "stdout", &w->output.out, r.content);
    link_stream(c, w->exec_id, "stderr", &w->output.err, r.content);
    mcp_end_tool(c, &r);
}

static void on_poll_event(struct mcp_call *c, const ProtobufCMessage *msg)
{
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    struct exec_work *w = mcp_work(c);
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT)
        mcp_output_add(&w->output, m->output);
    else if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED)
        answer_poll(c, m->ended);
}

static void on_poll_end(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err && err->code != CL_E_DEADLINE) /* the wait is over: it still runs */
        mcp_end_tool_error(c, err);
    else
        answer_poll(c, NULL);
}

static void poll_in_box(struct mcp_call *c)
{
    struct exec_work *w = mcp_work(c);
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    uint64_t wait_ns = mcp_seconds_ns(mcp_args(c), "wait_seconds", 0);
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.exec_id = w->exec_id;
    m.stdout_offset = w->offsets[0];
    m.stderr_offset = w->offsets[1];
    m.no_follow = wait_ns == 0;
    struct mcp_ask_spec ask = {.method = &attach_method,
                               .request = &m.base,
                               .timeout_ns = wait_ns,
                               .on_message = on_poll_event,
                               .on_end = on_poll_end};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_exec_poll(struct mcp_call *c)
{
    struct cl_err err = {0};
    struct exec_work *w = new_work(c);
    if (!w)
        return;
    (void)snprintf(w->exec_id, sizeof w->exec_id, "%.39s", mcp_json_text(mcp_args(c), "exec_id"));
    if (read_cursor(mcp_args(c), w->offsets, &err) < 0)
        mcp_end_tool_error(c, &err);
    else
        mcp_box_check(c, mcp_json_text(mcp_args(c), "sandbox_id"), poll_in_box);
}

/* --- exec_signal --------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    uint32_t number; /* of Linux on x86-64, as in the guest */
} signals[] = {{"TERM", 15}, {"KILL", 9},  {"INT", 2},   {"HUP", 1},  {"QUIT", 3},
               {"USR1", 10}, {"USR2", 12}, {"STOP", 19}, {"CONT", 18}};

static const char *signal_of(const struct mcp_call *c)
{
    const char *name = mcp_json_text(mcp_args(c), "signal");
    return name ? name : signals[0].name;
}

static void on_signalled(struct mcp_call *c, const ProtobufCMessage *reply,
                         const struct cl_err *err)
{
    (void)reply;
    const char *exec_id = mcp_json_text(mcp_args(c), "exec_id"), *name = signal_of(c);
    if (err) {
        mcp_end_tool_error(c, err);
        return;
    }
    struct mcp_result r = {.structured = json_pack("{s:s, s:s, s:s}", "sandbox_id", mcp_box(c),
                                                   "exec_id", exec_id, "signal", name),
                           .text = cl_asprintf("sent %s to %s", name, exec_id)};
    mcp_end_tool(c, &r);
}

static void signal_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of signal = MCP_RPC("ExecService", "Signal", signal_response);
    Cloche__V1__SignalRequest m = CLOCHE__V1__SIGNAL_REQUEST__INIT;
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.exec_id = mcp_pb(mcp_json_text(mcp_args(c), "exec_id"));
    for (size_t i = 0; i < CL_COUNT(signals); i++) {
        if (strcmp(signals[i].name, signal_of(c)) == 0)
            m.signal = signals[i].number;
    }
    struct mcp_ask_spec ask = {.method = &signal, .request = &m.base, .on_end = on_signalled};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_exec_signal(struct mcp_call *c)
{
    mcp_box_check(c, mcp_json_text(mcp_args(c), "sandbox_id"), signal_in_box);
}
