/* scheduler/functions.c - FunctionService: make a function, and call it.
 *
 *   Create:  sandbox ─► cell of the source ─► cell that looks for the entry ─► snapshot ─┐
 *   Call:    copy of the snapshot ─► cell that calls ────────────────────────────────────┤
 *                                             the answer waits for the sandbox's end ◄───┘
 *
 * Each arrow is a step that may fail, and then goes straight to the end.  Whoever leaves takes the
 * sandbox along.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/function.pb-c.h"
#include "proto/copy.h"
#include "scheduler/call_text.h"
#include "scheduler/cancel.h"
#include "scheduler/cell_notes.h"
#include "scheduler/cells.h"
#include "scheduler/creation.h"
#include "scheduler/snapshots.h"
#include "scheduler/validate.h"

enum {
    SOURCE_MAX = 1024 * 1024,
    LOAD_TIMEOUT_S = 300,
    CALL_TIMEOUT_S = 60,
    LOOK_TIMEOUT_S = 60,
    TIMEOUT_MAX_S = 24 * 3600,
    GRACE_S = 60, /* that a sandbox may live longer than what runs in it: for nobody's end of it */
    END_WAIT_S = 5,
    OUTPUT_MAX_MIB = 64, /* of a cell, most of which is only counted */
};

struct function_run {
    struct follower end; /* first; of the sandbox, once it is to end */
    struct api_call *a;  /* held */
    struct creation *sandbox, *snapshot;
    struct cell *cell;
    struct cell_spec spec; /* of the cell */
    void (*on_cell)(struct function_run *x);
    struct cl_buf text;
    struct cell_notes notes;
    Cloche__V1__FunctionEntry entry;
    char entry_text[CALL_ENTRY_MAX + 1], sandbox_id[CL_ID_MAX];
    uint64_t timeout_ns, keep_ns;
    struct cl_timer answer;
    ProtobufCMessage *reply; /* owned: the answer, or ... */
    struct cl_err failed;
};

/* --- the end -----------------------------------------------------------------------------------
 */

static void on_answer(void *arg)
{
    struct function_run *x = arg;
    if (x->reply)
        api_reply(x->a, x->reply);
    else
        api_fail(x->a, &x->failed);
}

static void on_end_change(struct follower *f)
{
    struct function_run *x = (struct function_run *)(void *)f;
    if (f->unit->phase == PHASE_ENDED)
        cl_timer_start(&x->answer, 0);
}
_Static_assert(offsetof(struct function_run, end) == 0, "on_end_change() relies on it");

/* Answer, once the sandbox holds no quota any more; at once when there is no worker to end it. */
static void settle(struct function_run *x, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct unit *u = x->sandbox ? x->sandbox->f.unit : NULL;
    if (!err && pb_copy(reply, &x->reply, &x->failed) < 0)
        err = &x->failed;
    if (err)
        x->failed = *err;
    if (!u || u->phase == PHASE_ENDED || !unit_worker(u)) {
        cl_timer_start(&x->answer, 0);
        return;
    }
    unit_follow(u, &x->end);
    cl_timer_start(&x->answer, END_WAIT_S * CL_NS_PER_S);
    cancel_abandoned(u);
}

static void run_free(struct function_run *x)
{
    struct api_call *a = x->a;
    cell_drop(x->cell);
    unit_unfollow(&x->end);
    creation_drop(x->snapshot, a->reply == NULL || a->reply_err.code != CL_OK);
    creation_drop(x->sandbox, true);
    cl_timer_fini(&x->answer);
    notes_fini(&x->notes);
    cl_buf_fini(&x->text);
    if (x->reply)
        pb_free(x->reply);
    cl_free(x);
    api_release(a);
}

static void function_gone(struct api_call *a, const struct cl_err *why)
{
    (void)why;
    struct function_run *x = a->state;
    a->state = NULL;
    if (x)
        run_free(x);
}

static struct function_run *run_new(struct api_call *a, creation_fn *on_sandbox)
{
    struct cl_err err = {0};
    struct function_run *x = cl_zalloc(sizeof *x);
    if (!x || cl_timer_init(&x->answer, a->s->loop, on_answer, x, &err) < 0) {
        cl_free(x);
        api_fail_with(a, CL_E_NOMEM, "function");
        return NULL;
    }
    x->a = a;
    x->end.on_change = on_end_change;
    cl_list_init(&x->end.link);
    cl_buf_init(&x->text, CALL_TEXT_MAX);
    notes_init(&x->notes);
    cloche__v1__function_entry__init(&x->entry);
    x->entry.entry = x->entry_text;
    api_hold(a);
    a->state = x;
    x->sandbox =
        creation_new(a, on_sandbox, x); /* NULL: the call has failed, and its end follows */
    return x->sandbox ? x : NULL;
}

/* --- cells -------------------------------------------------------------------------------------
 */

static void on_event(void *arg, const Cloche__V1__RunCodeResponse *m)
{
    struct function_run *x = arg;
    if (x->failed.code == CL_OK)
        (void)!notes_take(&x->notes, m, &x->failed);
}

static void on_cell_end(void *arg, const struct cl_err *err)
{
    struct function_run *x = arg;
    cell_drop(x->cell);
    x->cell = NULL;
    if (!err && x->failed.code != CL_OK)
        err = &x->failed;
    if (err)
        settle(x, NULL, err);
    else
        x->on_cell(x);
}

static void run_cell(struct function_run *x, const char *code, uint64_t timeout_ns,
                     void (*then)(struct function_run *x))
{
    static const struct cell_events events = {on_event, on_cell_end};
    struct cl_err err = {0};
    notes_next(&x->notes);
    x->on_cell = then;
    x->spec = (struct cell_spec){
        .sandbox_id = x->sandbox_id,
        .context = cell_language_name(x->entry.language),
        .code = code,
        .timeout_ns = timeout_ns,
        .output_max_bytes = OUTPUT_MAX_MIB * CL_MIB,
    };
    if (cell_run(x->a, &x->spec, &events, x, &x->cell, &err) < 0)
        settle(x, NULL, &err);
}

static int check_timeout(uint64_t asked_ns, uint64_t otherwise_s, uint64_t *ret_ns,
                         struct cl_err *err)
{
    *ret_ns = asked_ns ? asked_ns : otherwise_s * CL_NS_PER_S;
    return *ret_ns <= TIMEOUT_MAX_S * CL_NS_PER_S
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "timeout_ns: at most 24 h");
}

/* x->sandbox's spec is filled. */
static void begin(struct function_run *x, const char *fork_of)
{
    struct submit_spec spec = {
        .kind = BOOKS_SANDBOX,
        .idempotency_key = "",
        .fork_of = fork_of,
        .ttl_ns = CL_MIN(x->timeout_ns + GRACE_S * CL_NS_PER_S, SANDBOX_TTL_MAX_S * CL_NS_PER_S)};
    creation_submit(x->sandbox, &spec);
}

static bool is_running(struct function_run *x, const struct unit *u, const struct cl_err *err)
{
    if (err)
        settle(x, NULL, err);
    else
        (void)snprintf(x->sandbox_id, sizeof x->sandbox_id, "%s", u->id);
    return !err;
}

/* --- Call --------------------------------------------------------------------------------------
 */

static ProtobufCBinaryData bytes_of(const struct cl_buf *b)
{
    return (ProtobufCBinaryData){.data = b->data, .len = b->len};
}

static void on_called(struct function_run *x)
{
    Cloche__V1__CallResponse m = CLOCHE__V1__CALL_RESPONSE__INIT;
    struct cl_err err = {0};
    struct cell_notes *n = &x->notes;
    const char *message;
    if (n->told[NOTE_REFUSED]) {
        (void)cl_fail(&err, CL_E_INVALID, 0, "%.300s", n->told[NOTE_REFUSED]);
        settle(x, NULL, &err);
        return;
    }
    m.outcome = notes_outcome(n, &message);
    m.message = (char *)(uintptr_t)message;
    m.error = notes_error(n);
    if (m.outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK)
        m.result = n->told[NOTE_RESULT];
    m.stdout = bytes_of(&n->out[0]);
    m.stderr = bytes_of(&n->out[1]);
    m.stdout_total = n->end->stdout;
    m.stderr_total = n->end->stderr;
    m.wall_ns = n->end->wall_ns;
    m.sandbox_id = x->sandbox_id;
    settle(x, &m.base, NULL);
}

static void on_copy(void *arg, struct unit *u, const struct cl_err *err)
{
    struct function_run *x = arg;
    if (is_running(x, u, err))
        run_cell(x, (const char *)x->text.data, x->timeout_ns, on_called);
}

/* What is called: as asked, else as the function was made. */
static int fill_call(struct function_run *x, const Cloche__V1__CallRequest *r,
                     const Cloche__V1__FunctionEntry *own, struct cl_err *err)
{
    const char *entry = r->entry[0] ? r->entry : own ? own->entry : "";
    x->entry.language = r->language ? r->language
                        : own       ? own->language
                                    : CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON;
    if (!entry[0])
        return cl_fail(err, CL_E_INVALID, 0,
                       "entry: snapshot '%.63s' was not made as a function, so it has none of its "
                       "own: say what to call",
                       r->function);
    (void)snprintf(x->entry_text, sizeof x->entry_text, "%s", entry);
    if (call_check_language(x->entry.language, err) < 0)
        return -1;
    return call_text(x->entry.language, entry, r->arguments, &x->text, err);
}

static int check_call(const Cloche__V1__CallRequest *r, uint64_t *ret_timeout_ns,
                      struct cl_err *err)
{
    if (r->entry[0] && call_check_entry(r->entry, err) < 0)
        return -1;
    if (r->n_labels >= LABELS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "labels: at most %d", LABELS_MAX - 1);
    if (call_check_arguments(r->arguments, err) < 0)
        return -1;
    return check_timeout(r->timeout_ns, CALL_TIMEOUT_S, ret_timeout_ns, err);
}

static void function_call(struct api_call *a)
{
    const Cloche__V1__CallRequest *r = (const Cloche__V1__CallRequest *)a->request;
    Cloche__V1__Label label = CLOCHE__V1__LABEL__INIT, *labels[LABELS_MAX] = {&label};
    static char key[] = "function";
    struct snapshot_start start;
    struct cl_err err = {0};
    struct function_run *x = run_new(a, on_copy);
    if (!x)
        return;
    if (check_call(r, &x->timeout_ns, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    x->sandbox->spec.snapshot = r->function;
    if (!snapshot_start(a, &x->sandbox->spec, &start))
        return;
    if (fill_call(x, r, start.function, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    label.key = key;
    label.value = r->function;
    x->sandbox->spec = start.spec;
    for (size_t i = 0; i < r->n_labels; i++)
        labels[1 + i] = r->labels[i];
    x->sandbox->spec.labels = labels;
    x->sandbox->spec.n_labels = 1 + r->n_labels;
    begin(x, start.id);
}

/* --- Create ------------------------------------------------------------------------------------
 */

static void answer_created(struct function_run *x, const struct unit *made)
{
    Cloche__V1__FunctionServiceCreateResponse m =
        CLOCHE__V1__FUNCTION_SERVICE_CREATE_RESPONSE__INIT;
    struct snapshot_view view;
    const struct cell_notes *n = &x->notes;
    if (made) {
        snapshot_view_unit(&view, made);
        m.function = &view.m;
    }
    m.outcome = n->end->outcome;
    m.message = n->end->message;
    m.error = n->own;
    if (n->told[NOTE_REFUSED]) {
        m.outcome = CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_ERROR;
        m.message = n->told[NOTE_REFUSED];
    }
    m.stdout = bytes_of(&n->out[0]);
    m.stderr = bytes_of(&n->out[1]);
    settle(x, &m.base, NULL);
}

static bool went_well(const struct cell_notes *n)
{
    return n->end->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK;
}

static void on_snapshot(void *arg, struct unit *u, const struct cl_err *err)
{
    struct function_run *x = arg;
    if (err)
        settle(x, NULL, err);
    else
        answer_created(x, u);
}

static void keep(struct function_run *x)
{
    const Cloche__V1__FunctionServiceCreateRequest *r =
        (const Cloche__V1__FunctionServiceCreateRequest *)x->a->request;
    struct cl_err err = {0};
    struct worker *w;
    struct unit *of = api_unit_find(x->a, x->sandbox_id, BOOKS_SANDBOX, &w, &err);
    if (of && !w->snapshots) {
        (void)cl_fail(&err, CL_E_UNIMPL, 0, "the worker of '%.40s' is older than snapshots",
                      of->id);
        of = NULL;
    }
    if (!of) {
        settle(x, NULL, &err);
        return;
    }
    x->snapshot = creation_new(x->a, on_snapshot, x);
    if (!x->snapshot)
        return;
    creation_copy_spec(x->snapshot, of);
    x->snapshot->spec.labels = r->labels;
    x->snapshot->spec.n_labels = r->n_labels;
    struct submit_spec spec = {.kind = BOOKS_SNAPSHOT,
                               .idempotency_key = "",
                               .ttl_ns = x->keep_ns,
                               .fork_of = of->id,
                               .name = r->name,
                               .replaces = r->replace,
                               .function = &x->entry};
    creation_submit(x->snapshot, &spec);
}

static void on_looked(struct function_run *x)
{
    if (went_well(&x->notes) && x->notes.told[NOTE_FOUND])
        keep(x);
    else
        answer_created(x, NULL);
}

static void on_loaded(struct function_run *x)
{
    struct cl_err err = {0};
    if (!went_well(&x->notes))
        answer_created(x, NULL);
    else if (call_text(x->entry.language, x->entry_text, NULL, &x->text, &err) < 0)
        settle(x, NULL, &err);
    else
        run_cell(x, (const char *)x->text.data, LOOK_TIMEOUT_S * CL_NS_PER_S, on_looked);
}

static void on_fresh(void *arg, struct unit *u, const struct cl_err *err)
{
    struct function_run *x = arg;
    const Cloche__V1__FunctionServiceCreateRequest *r =
        (const Cloche__V1__FunctionServiceCreateRequest *)x->a->request;
    if (is_running(x, u, err))
        run_cell(x, r->source, x->timeout_ns, on_loaded);
}

static int check_create(struct function_run *x, const Cloche__V1__FunctionServiceCreateRequest *r,
                        struct cl_err *err)
{
    if (!r->name[0])
        return cl_fail(err, CL_E_INVALID, 0, "name: a function needs one");
    if (snapshot_check_name(x->a->s, x->a->p.tenant, r->name, r->replace, err) < 0)
        return -1;
    if (!r->source[0] || strlen(r->source) > SOURCE_MAX)
        return cl_fail(err, r->source[0] ? CL_E_TOOBIG : CL_E_INVALID, 0,
                       "source: one byte to 1 MiB");
    x->entry.language = r->language ? r->language : CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON;
    if (r->entry[0])
        (void)snprintf(x->entry_text, sizeof x->entry_text, "%s", r->entry);
    else
        call_entry_of_name(r->name, x->entry_text);
    if (call_check_language(x->entry.language, err) < 0 ||
        call_check_entry(r->entry[0] ? r->entry : x->entry_text, err) < 0 ||
        validate_labels(r->labels, r->n_labels, err) < 0 ||
        check_timeout(r->timeout_ns, LOAD_TIMEOUT_S, &x->timeout_ns, err) < 0)
        return -1;
    return validate_keep(r->keep_ns ? r->keep_ns : PAUSE_KEEP_MAX_S * CL_NS_PER_S, &x->keep_ns,
                         err);
}

static void function_create(struct api_call *a)
{
    static char python[] = "python";
    const Cloche__V1__FunctionServiceCreateRequest *r =
        (const Cloche__V1__FunctionServiceCreateRequest *)a->request;
    struct snapshot_start start = {0};
    struct cl_err err = {0};
    struct function_run *x = run_new(a, on_fresh);
    if (!x)
        return;
    if (check_create(x, r, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    Cloche__V1__JobSpec *spec = &x->sandbox->spec;
    spec->template_ = r->template_[0] || r->snapshot[0] ? r->template_ : python;
    spec->snapshot = r->snapshot;
    spec->resources = r->resources;
    spec->network_grant = r->network_grant;
    if (r->snapshot[0]) {
        if (!snapshot_start(a, spec, &start))
            return;
        *spec = start.spec;
    }
    begin(x, start.id);
}

#define METHOD(name) "/cloche.v1.FunctionService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method function_api[] = {
    {METHOD("Create"), TYPES(function_service_create_request, function_service_create_response),
     .scope = SCOPE_RUN, .changes = true, .handle = function_create, .on_gone = function_gone},
    {METHOD("Call"), TYPES(call_request, call_response), .scope = SCOPE_RUN, .changes = true,
     .handle = function_call, .on_gone = function_gone},
};
const size_t function_api_n = CL_COUNT(function_api);
