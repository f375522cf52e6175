/* scheduler/codes.c - CodeService: interpreters in a sandbox, relayed to its worker. */
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/guest.pb-c.h"
#include "scheduler/cells.h"
#include "scheduler/validate.h"

enum {
    CODE_MAX = 1024 * 1024, /* the guest protocol's bound of one command */
    ENV_MAX = 65536,
    CWD_MAX = 1024,
    TIMEOUT_DEFAULT_S = 300,
    OUTPUT_DEFAULT_MIB = 64,
    CONTEXTS_PAGE = 100,
};

static int check_context_id(const char *id, struct cl_err *err)
{
    if (cell_language_of(id) || cl_id_is(id, "ctx"))
        return 0;
    return cl_fail(err, CL_E_INVALID, 0,
                   "'%.40s' is no context id: ctx_..., python, bash or javascript", id);
}

/* --- RunCode ----------------------------------------------------------------------------------
 */

struct run {
    struct api_call *a; /* held */
    struct cell *cell;
    struct cell_spec spec;
};

static void finish(struct run *run, const struct cl_err *err)
{
    if (run->a->replied)
        return;
    run->a->replied = true;
    api_audit(run->a, err);
    if (run->a->call)
        rpc_call_finish(run->a->call, err);
}

static void on_event(void *arg, const Cloche__V1__RunCodeResponse *m)
{
    struct run *run = arg;
    struct cl_err err = {0};
    if (run->a->replied || !run->a->call)
        return;
    if (rpc_call_send(run->a->call, &m->base, &err) < 0)
        finish(run, &err);
    else if (rpc_call_is_full(run->a->call))
        cell_pause(run->cell, true);
}

static void on_end(void *arg, const struct cl_err *err)
{
    finish(arg, err);
}

static int check_run(const Cloche__V1__RunCodeRequest *r, struct cl_err *err)
{
    size_t env = 0, code = strlen(r->code);
    if (!r->context_id[0] == !r->language)
        return cl_fail(err, CL_E_INVALID, 0, "give exactly one of context_id and language");
    if (r->language && !cell_language_name(r->language))
        return cl_fail(err, CL_E_INVALID, 0, "language: PYTHON, BASH or JAVASCRIPT");
    if (code > CODE_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "code: at most 1 MiB; upload a file and run that");
    if (validate_env(r->env, r->n_env, "env.name", &env, err) < 0)
        return -1;
    if (env > ENV_MAX || env > CODE_MAX - code)
        return cl_fail(err, CL_E_TOOBIG, 0, "env: at most %d bytes, and 1 MiB with the code",
                       ENV_MAX);
    if (r->timeout_ns > 24 * 3600 * CL_NS_PER_S)
        return cl_fail(err, CL_E_INVALID, 0, "timeout_ns: at most 24 h");
    if (r->output_max_bytes > CL_GIB)
        return cl_fail(err, CL_E_INVALID, 0, "output_max_bytes: at most 1 GiB");
    return r->context_id[0] ? check_context_id(r->context_id, err) : 0;
}

static struct cell_spec spec_of(const Cloche__V1__RunCodeRequest *r)
{
    return (struct cell_spec){
        .sandbox_id = r->sandbox_id,
        .context = r->language ? cell_language_name(r->language) : r->context_id,
        .code = r->code,
        .timeout_ns = r->timeout_ns ? r->timeout_ns : TIMEOUT_DEFAULT_S * CL_NS_PER_S,
        .output_max_bytes = r->output_max_bytes ? r->output_max_bytes : OUTPUT_DEFAULT_MIB * CL_MIB,
        .env = r->env,
        .n_env = r->n_env,
    };
}

static void code_run(struct api_call *a)
{
    static const struct cell_events events = {on_event, on_end};
    const Cloche__V1__RunCodeRequest *r = (const Cloche__V1__RunCodeRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    if (check_run(r, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    if (!api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w))
        return;
    struct run *run = cl_zalloc(sizeof *run);
    if (!run) {
        api_fail_with(a, CL_E_NOMEM, "cell");
        return;
    }
    run->a = a;
    run->spec = spec_of(r);
    if (cell_run(a, &run->spec, &events, run, &run->cell, &err) < 0) {
        cl_free(run);
        api_fail(a, &err);
        return;
    }
    a->state = run;
    api_hold(a);
}

static void code_drain(struct api_call *a)
{
    struct run *run = a->state;
    if (run)
        cell_pause(run->cell, false);
}

/* The client left before the end: dropping the cell interrupts it. */
static void code_gone(struct api_call *a, const struct cl_err *why)
{
    struct run *run = a->state;
    if (!run)
        return;
    a->state = NULL;
    api_audit(a, why);
    cell_drop(run->cell);
    cl_free(run);
    api_release(a);
}

/* --- contexts ---------------------------------------------------------------------------------
 */

/* Send a command about a context; `done` answers and releases the call. */
static void ask(struct api_call *a, const char *sandbox_id, Cloche__V1__ContextCommand *context,
                request_fn *done)
{
    struct cl_err err = {0};
    struct worker *w;
    struct unit *u = api_unit(a, sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    context->contexts_max = (uint32_t)u->tenant->limits.contexts;
    cmd.unit_id = u->id;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_CONTEXT;
    cmd.context = context;
    api_hold(a);
    if (worker_request(w, &cmd, done, a, &err) < 0)
        done(a, NULL, &err);
}

/* About one context that must be there. */
static void ask_about(struct api_call *a, const char *sandbox_id, char *context_id,
                      Cloche__V1__GuestContextKind kind, request_fn *done)
{
    struct cl_err err = {0};
    Cloche__V1__ContextCommand cmd = CLOCHE__V1__CONTEXT_COMMAND__INIT;
    cmd.kind = (uint32_t)kind;
    cmd.context_id = context_id;
    if (check_context_id(context_id, &err) < 0)
        api_fail(a, &err);
    else
        ask(a, sandbox_id, &cmd, done);
}

/* CREATE and RESTART answer with the one context. */
static void reply_context(struct api_call *a, const Cloche__V1__ExecAnswer *answer,
                          const struct cl_err *err, ProtobufCMessage *m,
                          Cloche__V1__CodeContext **slot)
{
    if (err) {
        api_fail(a, err);
    } else if (answer->n_contexts != 1) {
        api_fail_with(a, CL_E_PEER, "the worker answered with %zu contexts", answer->n_contexts);
    } else {
        *slot = answer->contexts[0];
        api_reply(a, m);
    }
    api_release(a);
}

static void on_created(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    Cloche__V1__CreateContextResponse m = CLOCHE__V1__CREATE_CONTEXT_RESPONSE__INIT;
    reply_context(arg, answer, err, &m.base, &m.context);
}

static int check_create(const Cloche__V1__CreateContextRequest *r, struct cl_err *err)
{
    size_t bytes = 0;
    if (!cell_language_name(r->language))
        return cl_fail(err, CL_E_INVALID, 0, "language: PYTHON, BASH or JAVASCRIPT");
    if (strlen(r->cwd) > CWD_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "cwd: at most %d bytes", CWD_MAX);
    if (validate_env(r->env, r->n_env, "env.name", &bytes, err) < 0)
        return -1;
    return bytes <= ENV_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "env: at most %d bytes", ENV_MAX);
}

static void code_create(struct api_call *a)
{
    const Cloche__V1__CreateContextRequest *r =
        (const Cloche__V1__CreateContextRequest *)a->request;
    Cloche__V1__ContextCommand cmd = CLOCHE__V1__CONTEXT_COMMAND__INIT;
    struct cl_err err = {0};
    char id[CL_ID_MAX];
    if (check_create(r, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    cl_id_new("ctx", id);
    cmd.kind = CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_CREATE;
    cmd.context_id = id;
    cmd.language = r->language;
    cmd.cwd = r->cwd;
    cmd.env = r->env;
    cmd.n_env = r->n_env;
    ask(a, r->sandbox_id, &cmd, on_created);
}

static void on_restarted(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    Cloche__V1__RestartContextResponse m = CLOCHE__V1__RESTART_CONTEXT_RESPONSE__INIT;
    reply_context(arg, answer, err, &m.base, &m.context);
}

static void code_restart(struct api_call *a)
{
    const Cloche__V1__RestartContextRequest *r =
        (const Cloche__V1__RestartContextRequest *)a->request;
    ask_about(a, r->sandbox_id, r->context_id,
              CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_RESTART, on_restarted);
}

static void on_interrupted(void *arg, const Cloche__V1__ExecAnswer *answer,
                           const struct cl_err *err)
{
    struct api_call *a = arg;
    Cloche__V1__InterruptContextResponse m = CLOCHE__V1__INTERRUPT_CONTEXT_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else {
        m.was_running = answer->was_running;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void code_interrupt(struct api_call *a)
{
    const Cloche__V1__InterruptContextRequest *r =
        (const Cloche__V1__InterruptContextRequest *)a->request;
    ask_about(a, r->sandbox_id, r->context_id,
              CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_INTERRUPT, on_interrupted);
}

static void on_deleted(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    Cloche__V1__DeleteContextResponse m = CLOCHE__V1__DELETE_CONTEXT_RESPONSE__INIT;
    if (err)
        api_fail(a, err);
    else
        api_reply(a, &m.base);
    api_release(a);
}

static void code_delete(struct api_call *a)
{
    const Cloche__V1__DeleteContextRequest *r =
        (const Cloche__V1__DeleteContextRequest *)a->request;
    ask_about(a, r->sandbox_id, r->context_id,
              CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_DELETE, on_deleted);
}

static void on_listed(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    const Cloche__V1__ListContextsRequest *r = (const Cloche__V1__ListContextsRequest *)a->request;
    Cloche__V1__ListContextsResponse m = CLOCHE__V1__LIST_CONTEXTS_RESPONSE__INIT;
    size_t page = 0;
    struct cl_err bad = {0};
    if (!err && api_page_size(r->page_size, CONTEXTS_PAGE, CONTEXTS_PAGE, &page, &bad) < 0)
        err = &bad;
    if (err) {
        api_fail(a, err);
    } else {
        size_t from = 0; /* in the order they were made; the token is the last id before */
        for (size_t i = 0; r->page_token[0] && i < answer->n_contexts; i++) {
            if (strcmp(answer->contexts[i]->id, r->page_token) == 0)
                from = i + 1;
        }
        m.contexts = answer->contexts + from;
        m.n_contexts = CL_MIN(answer->n_contexts - from, page);
        if (from + m.n_contexts < answer->n_contexts)
            m.next_page_token = m.contexts[m.n_contexts - 1]->id;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void code_list(struct api_call *a)
{
    const Cloche__V1__ListContextsRequest *r = (const Cloche__V1__ListContextsRequest *)a->request;
    Cloche__V1__ContextCommand cmd = CLOCHE__V1__CONTEXT_COMMAND__INIT;
    cmd.kind = CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_LIST;
    ask(a, r->sandbox_id, &cmd, on_listed);
}

#define METHOD(name) "/cloche.v1.CodeService/" name
#define TYPES(name) \
    .in = &cloche__v1__##name##_request__descriptor, \
    .out = &cloche__v1__##name##_response__descriptor

const struct api_method code_api[] = {
    {METHOD("CreateContext"), TYPES(create_context), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = code_create},
    {METHOD("RunCode"), TYPES(run_code), .scope = SCOPE_RUN, .wakes = true, .changes = true,
     .server_streams = true, .handle = code_run, .on_drain = code_drain, .on_gone = code_gone},
    {METHOD("InterruptContext"), TYPES(interrupt_context), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = code_interrupt},
    {METHOD("RestartContext"), TYPES(restart_context), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = code_restart},
    {METHOD("ListContexts"), TYPES(list_contexts), .scope = SCOPE_READ, .wakes = true,
     .handle = code_list},
    {METHOD("DeleteContext"), TYPES(delete_context), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = code_delete},
};
const size_t code_api_n = CL_COUNT(code_api);
