/* e2b/process.c - envd's process.Process: commands are execs.
 *
 * E2B names a process by a number, Cloche by an id: the number is a digest of the id, and found
 * again by looking at the sandbox's execs.  A tag is a label.
 */
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/exec.pb-c.h"
#include "e2b/call_priv.h"

enum {
    GRACE_S = 30, /* for the end of a command to reach us */
    ARGS_MAX = 1024,
    PIECE = 32 * 1024, /* of output in one message, as envd's */
    SIGKILL_NR = 9,
    SIGTERM_NR = 15,
};
#define TAG_LABEL "e2b-tag"

struct process {
    char exec_id[CL_ID_MAX];
    char page[256];
    bool is_pty;
    uint32_t pid; /* that is looked for */
    const char *tag;
    e2b_run_fn *next; /* once it is found */
    json_t *found;    /* owned; all that run */
};

static void process_free(void *obj)
{
    struct process *w = obj;
    json_decref(w->found);
    cl_free(w);
}

static struct process *new_process(struct e2b_call *c)
{
    return e2b_work_new(c, sizeof(struct process), process_free);
}

static uint32_t pid_of(const char *exec_id)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint32_t pid;
    (void)SHA256((const uint8_t *)exec_id, strlen(exec_id), digest);
    memcpy(&pid, digest, sizeof pid);
    pid &= INT32_MAX;
    return pid > 1 ? pid : pid + 2;
}

/* --- what it says -------------------------------------------------------------------------------
 */

static void say(struct e2b_call *c, const char *kind, json_t *what, struct rpc_call *rpc)
{
    e2b_send_message(c, json_pack("{s:{s:o}}", "event", kind, what), rpc);
}

static void beat(struct e2b_call *c)
{
    say(c, "keepalive", json_object(), NULL);
}

static void say_data(struct e2b_call *c, const Cloche__V1__Output *m, struct rpc_call *rpc)
{
    const struct process *w = c->work;
    const char *stream = w->is_pty                                        ? "pty"
                         : m->stream == CLOCHE__V1__STREAM__STREAM_STDERR ? "stderr"
                                                                          : "stdout";
    char coded[4 * ((PIECE + 2) / 3) + 1];
    for (size_t at = 0; at < m->data.len; at += PIECE) {
        size_t n = CL_MIN(m->data.len - at, (size_t)PIECE);
        (void)EVP_EncodeBlock((uint8_t *)coded, m->data.data + at, (int)n);
        say(c, "data", json_pack("{s:s}", stream, coded), rpc);
    }
}

static json_t *end_json(const Cloche__V1__ExecResult *r)
{
    char status[320];
    bool exited = r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_EXITED ||
                  r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_NOT_FOUND ||
                  r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_NOT_EXECUTABLE;
    if (exited)
        (void)snprintf(status, sizeof status, "exit status %d", r->exit_code);
    else if (r->signal)
        (void)snprintf(status, sizeof status, "signal: %d", r->signal);
    else
        (void)snprintf(status, sizeof status, "%s", r->message[0] ? r->message : "killed");
    json_t *o = json_pack("{s:i, s:b, s:s}", "exitCode", exited ? r->exit_code : -1, "exited",
                          exited, "status", status);
    if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED)
        mcp_json_set(o, "error", json_string("out of memory"));
    else if (!exited || r->exit_code != 0)
        mcp_json_set(o, "error", json_string(status));
    return o;
}

static void take_end(struct e2b_call *c, const Cloche__V1__ExecResult *r)
{
    struct cl_err late = {0};
    if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT) {
        (void)cl_fail(&late, CL_E_DEADLINE, 0, "the command's time is over");
        e2b_end_messages(c, &late);
        return;
    }
    say(c, "end", end_json(r), NULL);
    e2b_end_messages(c, NULL);
}

static void on_event(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT)
        say_data(c, m->output, rpc);
    else if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED)
        take_end(c, m->ended);
}

static void on_detached(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct cl_err lost = {0};
    if (!err)
        (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "the command's output ended before its result");
    e2b_fail_in_box(c, err ? err : &lost);
}

/* --- starting and following ---------------------------------------------------------------------
 */

static void follow(struct e2b_call *c)
{
    static const struct e2b_method attach = E2B_RPC("ExecService", "Attach", attach_response);
    const struct process *w = c->work;
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.exec_id = e2b_pb(w->exec_id);
    e2b_begin_messages(c, beat);
    say(c, "start", json_pack("{s:I}", "pid", (json_int_t)pid_of(w->exec_id)), NULL);
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &attach,
                                     .request = &m.base,
                                     .timeout_ns = e2b_limit_ns(c) + GRACE_S * CL_NS_PER_S,
                                     .on_message = on_event,
                                     .on_end = on_detached},
                   NULL);
}

static void on_started(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct process *w = c->work;
    if (err) {
        e2b_fail_in_box(c, err);
        return;
    }
    (void)snprintf(w->exec_id, sizeof w->exec_id, "%s",
                   ((const Cloche__V1__StartResponse *)reply)->exec_id);
    follow(c);
}

static int read_argv(const json_t *process, Cloche__V1__Command *m, struct cl_err *err)
{
    const json_t *args = json_object_get(process, "args");
    const char *cmd = mcp_json_text(process, "cmd");
    size_t n = json_array_size(args);
    if (!cmd || !cmd[0] || n > ARGS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "process.cmd is missing, or has over %d args",
                       ARGS_MAX);
    m->argv = cl_zalloc_array(n + 1, sizeof *m->argv);
    if (!m->argv)
        return cl_fail(err, CL_E_NOMEM, 0, "arguments");
    m->argv[0] = e2b_pb(cmd);
    for (m->n_argv = 1; m->n_argv <= n; m->n_argv++) {
        const char *arg = json_string_value(json_array_get(args, m->n_argv - 1));
        if (!arg)
            return cl_fail(err, CL_E_INVALID, 0, "process.args are texts");
        m->argv[m->n_argv] = e2b_pb(arg);
    }
    return 0;
}

static bool read_size(const json_t *pty, Cloche__V1__Pty *size)
{
    const json_t *o = json_object_get(pty, "size");
    size->rows = (uint32_t)mcp_json_u64(o, "rows", 24);
    size->columns = (uint32_t)mcp_json_u64(o, "cols", 80);
    return json_is_object(pty);
}

static int ask_start(struct e2b_call *c, Cloche__V1__Command *command, struct cl_err *err)
{
    static const struct e2b_method start = E2B_RPC("ExecService", "Start", start_response);
    struct process *w = c->work;
    const json_t *process = json_object_get(c->body, "process");
    Cloche__V1__StartRequest m = CLOCHE__V1__START_REQUEST__INIT;
    Cloche__V1__Label tag = CLOCHE__V1__LABEL__INIT, *labels[] = {&tag};
    Cloche__V1__Pty size = CLOCHE__V1__PTY__INIT;
    struct e2b_env env;
    if (read_argv(process, command, err) < 0 ||
        e2b_env_make(c->grant->env, json_object_get(process, "envs"), &env, err) < 0)
        return -1;
    command->env = env.list;
    command->n_env = env.n;
    const char *cwd = mcp_json_text(process, "cwd");
    command->cwd = e2b_pb(cwd && cwd[0] ? cwd : c->grant->cwd);
    command->user = e2b_pb(c->user);
    command->timeout_ns = e2b_limit_ns(c);
    w->is_pty = read_size(json_object_get(c->body, "pty"), &size);
    command->pty = w->is_pty ? &size : NULL;
    command->open_stdin = w->is_pty || !json_is_false(json_object_get(c->body, "stdin"));
    tag.key = e2b_pb(TAG_LABEL);
    tag.value = e2b_pb(e2b_text(c, "tag"));
    m.sandbox_id = c->grant->sandbox;
    m.command = command;
    m.labels = labels;
    m.n_labels = tag.value[0] ? 1 : 0;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &start, .request = &m.base, .on_end = on_started},
                   NULL);
    e2b_env_free(&env);
    return 0;
}

void e2b_process_start(struct e2b_call *c)
{
    Cloche__V1__Command command = CLOCHE__V1__COMMAND__INIT;
    struct cl_err err = {0};
    if (!new_process(c))
        return;
    if (ask_start(c, &command, &err) < 0)
        e2b_fail(c, &err);
    cl_free(command.argv);
}

/* --- finding one --------------------------------------------------------------------------------
 */

static const char *tag_of(const Cloche__V1__Exec *e)
{
    for (size_t i = 0; i < e->n_labels; i++) {
        if (strcmp(e->labels[i]->key, TAG_LABEL) == 0)
            return e->labels[i]->value;
    }
    return NULL;
}

static bool is_wanted(const struct process *w, const Cloche__V1__Exec *e)
{
    const char *tag = tag_of(e);
    return e->running && (w->tag ? tag && strcmp(tag, w->tag) == 0 : pid_of(e->id) == w->pid);
}

static void ask_list(struct e2b_call *c, void (*on_end)(struct e2b_call *, const ProtobufCMessage *,
                                                        const struct cl_err *))
{
    static const struct e2b_method list =
        E2B_RPC("ExecService", "List", exec_service_list_response);
    const struct process *w = c->work;
    Cloche__V1__ExecServiceListRequest m = CLOCHE__V1__EXEC_SERVICE_LIST_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.page_token = e2b_pb(w->page);
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &list, .request = &m.base, .on_end = on_end},
                   NULL);
}

/* Is there another page? */
static bool take_page(struct process *w, const Cloche__V1__ExecServiceListResponse *m)
{
    size_t n = strlen(m->next_page_token);
    if (n == 0 || n >= sizeof w->page)
        return false;
    memcpy(w->page, m->next_page_token, n + 1);
    return true;
}

static void on_searched(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__ExecServiceListResponse *m =
        (const Cloche__V1__ExecServiceListResponse *)reply;
    struct process *w = c->work;
    struct cl_err unknown = {0};
    for (size_t i = 0; !err && i < m->n_execs; i++) {
        if (!is_wanted(w, m->execs[i]))
            continue;
        (void)snprintf(w->exec_id, sizeof w->exec_id, "%s", m->execs[i]->id);
        w->next(c);
        return;
    }
    if (!err && take_page(w, m)) {
        ask_list(c, on_searched);
        return;
    }
    (void)cl_fail(&unknown, CL_E_NOTFOUND, 0, "no such process runs in this sandbox");
    if (err)
        e2b_fail_in_box(c, err);
    else
        e2b_fail(c, &unknown);
}

static void find(struct e2b_call *c, e2b_run_fn *next)
{
    const json_t *selector = json_object_get(c->body, "process");
    struct process *w = new_process(c);
    if (!w)
        return;
    w->tag = mcp_json_text(selector, "tag");
    w->pid = (uint32_t)mcp_json_u64(selector, "pid", 0);
    w->next = next;
    if (!w->tag && w->pid == 0)
        (void)e2b_fail_invalid(c, "process: want a pid or a tag");
    else
        ask_list(c, on_searched);
}

void e2b_process_connect(struct e2b_call *c)
{
    find(c, follow);
}

static json_t *process_json(const Cloche__V1__Exec *e)
{
    json_t *args = json_array();
    for (size_t k = 1; k < e->n_argv; k++)
        (void)json_array_append_new(args, json_string(e->argv[k]));
    json_t *o = json_pack("{s:{s:s, s:o, s:{}}, s:I}", "config", "cmd", e->n_argv ? e->argv[0] : "",
                          "args", args, "envs", "pid", (json_int_t)pid_of(e->id));
    if (tag_of(e))
        mcp_json_set(o, "tag", json_string(tag_of(e)));
    return o;
}

static void on_all(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__ExecServiceListResponse *m =
        (const Cloche__V1__ExecServiceListResponse *)reply;
    struct process *w = c->work;
    if (err) {
        e2b_fail_in_box(c, err);
        return;
    }
    for (size_t i = 0; i < m->n_execs; i++) {
        if (m->execs[i]->running)
            (void)json_array_append_new(w->found, process_json(m->execs[i]));
    }
    if (take_page(w, m))
        ask_list(c, on_all);
    else
        e2b_reply(c, 200, json_pack("{s:O}", "processes", w->found));
}

void e2b_process_list(struct e2b_call *c)
{
    struct process *w = new_process(c);
    if (!w)
        return;
    w->found = json_array();
    ask_list(c, on_all);
}

/* --- what is done to one ------------------------------------------------------------------------
 */

static void on_done(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        e2b_fail_in_box(c, err);
    else
        e2b_reply(c, 200, json_object());
}

static void signal_it(struct e2b_call *c)
{
    static const struct e2b_method signal = E2B_RPC("ExecService", "Signal", signal_response);
    const struct process *w = c->work;
    const char *name = e2b_text(c, "signal");
    Cloche__V1__SignalRequest m = CLOCHE__V1__SIGNAL_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.exec_id = e2b_pb(w->exec_id);
    m.signal = (uint32_t)mcp_json_u64(c->body, "signal", 0);
    if (name)
        m.signal = strcmp(name, "SIGNAL_SIGKILL") == 0   ? SIGKILL_NR
                   : strcmp(name, "SIGNAL_SIGTERM") == 0 ? SIGTERM_NR
                                                         : 0;
    if (m.signal == 0)
        (void)e2b_fail_invalid(c, "signal: want SIGNAL_SIGTERM or SIGNAL_SIGKILL");
    else
        (void)!e2b_ask(
            c, &(struct e2b_ask){.method = &signal, .request = &m.base, .on_end = on_done}, NULL);
}

void e2b_process_signal(struct e2b_call *c)
{
    find(c, signal_it);
}

static void resize(struct e2b_call *c)
{
    static const struct e2b_method resize = E2B_RPC("ExecService", "Resize", resize_response);
    const struct process *w = c->work;
    Cloche__V1__ResizeRequest m = CLOCHE__V1__RESIZE_REQUEST__INIT;
    Cloche__V1__Pty size = CLOCHE__V1__PTY__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.exec_id = e2b_pb(w->exec_id);
    m.size = &size;
    if (!read_size(json_object_get(c->body, "pty"), &size))
        (void)e2b_fail_invalid(c, "pty.size is missing");
    else
        (void)!e2b_ask(
            c, &(struct e2b_ask){.method = &resize, .request = &m.base, .on_end = on_done}, NULL);
}

void e2b_process_update(struct e2b_call *c)
{
    find(c, resize);
}

/* --- its input ----------------------------------------------------------------------------------
 */

static void write_stdin(struct e2b_call *c, const void *data, size_t n, bool eof)
{
    static const struct e2b_method write =
        E2B_RPC("ExecService", "WriteStdin", exec_service_write_stdin_response);
    const struct process *w = c->work;
    Cloche__V1__ExecServiceWriteStdinRequest m = CLOCHE__V1__EXEC_SERVICE_WRITE_STDIN_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.exec_id = e2b_pb(w->exec_id);
    m.data.data = (uint8_t *)(uintptr_t)data;
    m.data.len = n;
    m.eof = eof;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &write, .request = &m.base, .on_end = on_done},
                   NULL);
}

static void send_input(struct e2b_call *c)
{
    const json_t *input = json_object_get(c->body, "input");
    const char *text = mcp_json_text(input, "stdin");
    text = text ? text : mcp_json_text(input, "pty");
    size_t n = text ? strlen(text) : 0;
    uint8_t *data = cl_zalloc(n / 4 * 3 + 4);
    int got = data && text && n % 4 == 0 && n <= INT32_MAX
                  ? EVP_DecodeBlock(data, (const uint8_t *)text, (int)n)
                  : -1;
    if (got < 0) {
        (void)e2b_fail_invalid(c, "input: want stdin or pty in base64");
    } else {
        got -= n > 1 ? (text[n - 1] == '=') + (text[n - 2] == '=') : 0;
        write_stdin(c, data, (size_t)got, false);
    }
    cl_free(data);
}

void e2b_process_input(struct e2b_call *c)
{
    find(c, send_input);
}

static void close_stdin(struct e2b_call *c)
{
    write_stdin(c, "", 0, true);
}

void e2b_process_close(struct e2b_call *c)
{
    find(c, close_stdin);
}
