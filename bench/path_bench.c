/* bench/path_bench.c - what a user waits for: jobs and execs through the whole path.
 *
 * usage: path_bench ENDPOINT KEY run  N PAUSE_MS TEMPLATE CMD...   one job after the other
 *        path_bench ENDPOINT KEY exec N PAUSE_MS TEMPLATE CMD...   execs in one live sandbox
 *        path_bench ENDPOINT KEY code N PAUSE_MS TEMPLATE CODE     Python in a sandbox of its own:
 *                                                                  claim, RunCode, first byte
 *        path_bench ENDPOINT KEY cell N PAUSE_MS TEMPLATE CODE     Python in one live context
 * PAUSE_MS lets the pool refill, so that each job claims a warm VM; 0 measures clones.
 */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/conf.h"
#include "bench/stats.h"
#include "cloche/v1/code.pb-c.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "rpc/channel.h"

enum { SAMPLES_MAX = 10000 };

struct bench {
    struct cl_loop *loop;
    struct rpc_channel *channel;
    uint64_t t0, claimed, first, ended;
    bool done, failed;
    char sandbox[64], exec[64];
    Cloche__V1__Command command;
    char *template, *code;
};

enum mode { MODE_RUN, MODE_EXEC, MODE_CODE, MODE_CELL };

static void fail(struct bench *b, const struct cl_err *err)
{
    (void)fprintf(stderr, "path_bench: %s\n", err->text);
    b->failed = b->done = true;
}

static void on_drain(struct rpc_call *call, void *arg)
{
    (void)call, (void)arg;
}

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct bench *b = arg;
    if (status)
        fail(b, status);
    b->done = true;
}

/* One call to its end. */
static int call(struct bench *b, const char *path, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *out,
                void (*on_message)(struct rpc_call *, const ProtobufCMessage *, void *))
{
    struct rpc_client_events events = {on_message, on_drain, on_end};
    struct rpc_call_spec spec = {.path = path, .out = out};
    struct rpc_call *c;
    struct cl_err err = {0};
    b->done = false;
    if (rpc_channel_call(b->channel, &spec, &events, b, &c, &err) < 0 ||
        rpc_call_send(c, request, &err) < 0) {
        fail(b, &err);
        return -1;
    }
    rpc_call_close_send(c);
    while (!b->done)
        cl_loop_turn(b->loop, CL_NS_PER_S);
    return b->failed ? -1 : 0;
}

static void on_run(struct rpc_call *c, const ProtobufCMessage *msg, void *arg)
{
    (void)c;
    struct bench *b = arg;
    const Cloche__V1__RunResponse *m = (const Cloche__V1__RunResponse *)msg;
    if (m->event_case == CLOCHE__V1__RUN_RESPONSE__EVENT_OUTPUT && !b->first)
        b->first = cl_now_ns();
    if (m->event_case == CLOCHE__V1__RUN_RESPONSE__EVENT_ENDED)
        b->ended = cl_now_ns();
}

static int run_once(struct bench *b)
{
    Cloche__V1__RunRequest r = CLOCHE__V1__RUN_REQUEST__INIT;
    Cloche__V1__JobSpec spec = CLOCHE__V1__JOB_SPEC__INIT;
    spec.template_ = b->template;
    spec.command = &b->command;
    r.spec = &spec;
    b->first = b->ended = 0;
    b->t0 = cl_now_ns();
    return call(b, "/cloche.v1.JobService/Run", &r.base, &cloche__v1__run_response__descriptor,
                on_run);
}

static void on_sandbox(struct rpc_call *c, const ProtobufCMessage *msg, void *arg)
{
    (void)c;
    struct bench *b = arg;
    (void)snprintf(b->sandbox, sizeof b->sandbox, "%s",
                   ((const Cloche__V1__CreateResponse *)msg)->sandbox->id);
}

static void on_started(struct rpc_call *c, const ProtobufCMessage *msg, void *arg)
{
    (void)c;
    struct bench *b = arg;
    (void)snprintf(b->exec, sizeof b->exec, "%s",
                   ((const Cloche__V1__StartResponse *)msg)->exec_id);
}

static void on_attached(struct rpc_call *c, const ProtobufCMessage *msg, void *arg)
{
    (void)c;
    struct bench *b = arg;
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT && !b->first)
        b->first = cl_now_ns();
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED)
        b->ended = cl_now_ns();
}

static void on_nothing(struct rpc_call *c, const ProtobufCMessage *msg, void *arg)
{
    (void)c, (void)msg, (void)arg;
}

static int exec_once(struct bench *b)
{
    Cloche__V1__StartRequest s = CLOCHE__V1__START_REQUEST__INIT;
    Cloche__V1__AttachRequest a = CLOCHE__V1__ATTACH_REQUEST__INIT;
    s.sandbox_id = a.sandbox_id = b->sandbox;
    s.command = &b->command;
    b->first = b->ended = 0;
    b->t0 = cl_now_ns();
    if (call(b, "/cloche.v1.ExecService/Start", &s.base, &cloche__v1__start_response__descriptor,
             on_started) < 0)
        return -1;
    a.exec_id = b->exec;
    return call(b, "/cloche.v1.ExecService/Attach", &a.base,
                &cloche__v1__attach_response__descriptor, on_attached);
}

static int open_sandbox(struct bench *b)
{
    Cloche__V1__CreateRequest r = CLOCHE__V1__CREATE_REQUEST__INIT;
    r.template_ = b->template;
    uint64_t t0 = cl_now_ns();
    if (call(b, "/cloche.v1.SandboxService/Create", &r.base,
             &cloche__v1__create_response__descriptor, on_sandbox) < 0)
        return -1;
    (void)printf("%-44s %8.3f ms\n", "sandbox created", (double)(cl_now_ns() - t0) / 1e6);
    return 0;
}

static void close_sandbox(struct bench *b)
{
    Cloche__V1__KillRequest r = CLOCHE__V1__KILL_REQUEST__INIT;
    r.sandbox_id = b->sandbox;
    (void)call(b, "/cloche.v1.SandboxService/Kill", &r.base, &cloche__v1__kill_response__descriptor,
               on_nothing);
}

static void on_cell(struct rpc_call *c, const ProtobufCMessage *msg, void *arg)
{
    (void)c;
    struct bench *b = arg;
    const Cloche__V1__RunCodeResponse *m = (const Cloche__V1__RunCodeResponse *)msg;
    bool shows = m->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_OUTPUT ||
                 m->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT;
    if (shows && !b->first)
        b->first = cl_now_ns();
    if (m->event_case == CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED)
        b->ended = cl_now_ns();
}

static int run_cell(struct bench *b)
{
    Cloche__V1__RunCodeRequest r = CLOCHE__V1__RUN_CODE_REQUEST__INIT;
    r.sandbox_id = b->sandbox;
    r.language = CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON;
    r.code = b->code;
    b->first = b->ended = 0;
    return call(b, "/cloche.v1.CodeService/RunCode", &r.base,
                &cloche__v1__run_code_response__descriptor, on_cell);
}

static int cell_once(struct bench *b)
{
    b->t0 = cl_now_ns();
    return run_cell(b);
}

/* A sandbox for one cell; what ends it is not part of the time. */
static int code_once(struct bench *b)
{
    Cloche__V1__CreateRequest r = CLOCHE__V1__CREATE_REQUEST__INIT;
    r.template_ = b->template;
    b->t0 = cl_now_ns();
    if (call(b, "/cloche.v1.SandboxService/Create", &r.base,
             &cloche__v1__create_response__descriptor, on_sandbox) < 0)
        return -1;
    b->claimed = cl_now_ns();
    if (run_cell(b) < 0)
        return -1;
    close_sandbox(b);
    return b->failed ? -1 : 0;
}

static const struct {
    const char *name;
    int (*once)(struct bench *b);
    bool in_sandbox; /* one for all */
    const char *first, *end;
} modes[] = {
    [MODE_RUN] = {"run", run_once, false, "job: call -> first output byte",
                  "job: call -> end, VM gone"},
    [MODE_EXEC] = {"exec", exec_once, true, "exec: call -> first output byte", "exec: call -> end"},
    [MODE_CODE] = {"code", code_once, false, "code: claim + RunCode -> first byte",
                   "code: claim + RunCode -> end of the cell"},
    [MODE_CELL] = {"cell", cell_once, true, "cell: RunCode -> first byte", "cell: RunCode -> end"},
};

static int measure(struct bench *b, enum mode mode, uint64_t n, uint64_t pause_ms)
{
    static uint64_t claims[SAMPLES_MAX], firsts[SAMPLES_MAX], ends[SAMPLES_MAX];
    size_t n_claim = 0, n_first = 0, n_end = 0;
    if (modes[mode].in_sandbox && open_sandbox(b) < 0)
        return -1;
    for (uint64_t i = 0; i < n && i < SAMPLES_MAX; i++) {
        for (uint64_t until = cl_now_ns() + pause_ms * CL_NS_PER_MS; cl_now_ns() < until;)
            cl_loop_turn(b->loop, until - cl_now_ns());
        if (modes[mode].once(b) < 0)
            return -1;
        if (b->claimed)
            claims[n_claim++] = b->claimed - b->t0;
        if (b->first)
            firsts[n_first++] = b->first - b->t0;
        if (b->ended)
            ends[n_end++] = b->ended - b->t0;
    }
    if (n_claim > 0)
        stats_print("code: of this the claim (Create)", claims, n_claim);
    stats_print(modes[mode].first, firsts, n_first);
    stats_print(modes[mode].end, ends, n_end);
    if (modes[mode].in_sandbox)
        close_sandbox(b);
    return 0;
}

static int find_mode(const char *name, enum mode *ret_mode)
{
    for (size_t i = 0; i < CL_COUNT(modes); i++) {
        if (strcmp(modes[i].name, name) != 0)
            continue;
        *ret_mode = (enum mode)i;
        return 0;
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct cl_err err = {0};
    uint64_t n, pause_ms;
    enum mode mode;
    char bearer[256];
    if (argc < 8 || find_mode(argv[3], &mode) < 0 || cl_parse_u64(argv[4], &n, &err) < 0 ||
        cl_parse_u64(argv[5], &pause_ms, &err) < 0) {
        (void)fprintf(
            stderr,
            "usage: path_bench ENDPOINT KEY run|exec|code|cell N PAUSE_MS TEMPLATE CMD...\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(bearer, sizeof bearer, "Bearer %s", argv[2]);
    cloche__v1__command__init(&b.command);
    b.template = argv[6];
    b.code = argv[7];
    b.command.argv = argv + 7;
    b.command.n_argv = (size_t)argc - 7;
    if (cl_loop_new(&b.loop, &err) < 0 ||
        rpc_channel_new(b.loop, argv[1], NULL, &b.channel, &err) < 0 ||
        rpc_channel_set_metadata(b.channel, "authorization", bearer, &err) < 0) {
        (void)fprintf(stderr, "path_bench: %s\n", err.text);
        return 1;
    }
    int rc = measure(&b, mode, n, pause_ms);
    rpc_channel_free(b.channel);
    cl_loop_free(b.loop);
    return rc < 0 ? 1 : 0;
}
