/* worker/command_io.c - see worker/command.h. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "proto/copy.h"
#include "proto/guest_frame.h"
#include "worker/cell.h"
#include "worker/command.h"
#include "worker/file_info.h"
#include "worker/guest_env.h"
#include "worker/usage.h"

enum { FILES_PER_ANSWER = 1000, COUNTS_WAIT_S = 5, USAGE_WAIT_S = 5 };

/* A command that waits for the guest or for a process. */
struct waiting {
    struct cl_list link;
    struct commands *commands; /* borrowed */
    uint64_t request;
    struct unit *unit; /* held, which is use; NULL = that of a query */
    struct exec *exec; /* Wait */
    struct spool_waiter spool_waiter;
    struct cl_timer kick;         /* answers outside of the spool's callback */
    struct guest_stream *stream;  /* files */
    struct cl_list results;       /* of struct piece: LIST comes in several frames */
    struct vm_counts_query query; /* statistics */
    struct machine_usage_query usage;
    struct unit *counted;      /* borrowed: its VM, which goes first, ends the query */
    struct unit_change change; /* pause and resume, of `counted` */
    char about[CL_ID_MAX];     /* context, for messages; the unit whose usage it is */
};

struct piece {
    struct cl_list link;
    Cloche__V1__GuestFileResult *result; /* owned */
};

static void answer(struct commands *c, uint64_t request, const struct cl_err *err)
{
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    a.request = request;
    a.code = err ? (uint32_t)cl_err_info(err->code)->grpc : 0;
    a.message = err ? (char *)(uintptr_t)err->text : (char *)(uintptr_t) "";
    c->host.reply(c->arg, &a);
}

static void waiting_free(struct waiting *w)
{
    cl_list_unlink(&w->link);
    cl_list_unlink(&w->spool_waiter.link);
    cl_list_unlink(&w->query.link);
    cl_list_unlink(&w->usage.link);
    cl_list_unlink(&w->change.link);
    w->commands->n_waiting--;
    if (w->stream)
        guest_stream_forget(w->stream, "the command ended");
    while (!cl_list_empty(&w->results)) {
        struct piece *p = CL_LIST_ENTRY(w->results.next, struct piece, link);
        cl_list_unlink(&p->link);
        pb_free(&p->result->base);
        cl_free(p);
    }
    cl_timer_fini(&w->kick);
    if (w->exec)
        exec_release(w->exec);
    if (w->unit)
        unit_release(w->unit);
    cl_free(w);
}

static void on_wait_kick(void *arg);
static void counts_late(struct waiting *w);
static void on_usage(void *arg);

/* u: whose use it is; NULL = nobody's. */
static int waiting_new(struct commands *c, struct unit *u, uint64_t request,
                       struct waiting **ret_waiting, struct cl_err *err)
{
    if (c->n_waiting >= COMMANDS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "%d commands wait on this worker", COMMANDS_MAX);
    struct waiting *w = cl_zalloc(sizeof *w);
    if (!w || cl_timer_init(&w->kick, c->loop, on_wait_kick, w, err) < 0) {
        cl_free(w);
        return cl_fail(err, CL_E_NOMEM, 0, "command");
    }
    w->commands = c;
    w->request = request;
    w->unit = u;
    cl_list_init(&w->spool_waiter.link);
    cl_list_init(&w->query.link);
    cl_list_init(&w->usage.link);
    cl_list_init(&w->change.link);
    cl_list_init(&w->results);
    cl_list_push(&c->waiting, &w->link);
    c->n_waiting++;
    if (u)
        unit_hold(u);
    *ret_waiting = w;
    return 0;
}

/* --- wait ----------------------------------------------------------------------------------- */

static void on_wait_kick(void *arg)
{
    struct waiting *w = arg;
    if (w->query.fn) {
        counts_late(w);
        return;
    }
    if (w->usage.fn) { /* the guest does not say */
        on_usage(w);
        return;
    }
    if (w->exec && exec_is_left(w->exec)) {
        struct cl_err err = {0};
        (void)unit_fail_given(&err);
        answer(w->commands, w->request, &err);
        waiting_free(w);
        return;
    }
    if (!w->exec || exec_is_running(w->exec))
        return;
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    a.request = w->request;
    a.result = (Cloche__V1__ExecResult *)(uintptr_t)exec_result(w->exec);
    w->commands->host.reply(w->commands->arg, &a);
    waiting_free(w);
}

static void on_spool(void *arg)
{
    struct waiting *w = arg;
    if (spool_is_closed(exec_spool(w->exec)) || exec_is_left(w->exec))
        cl_timer_start(&w->kick, 0);
}

static int run_wait(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                    struct cl_err *err)
{
    struct exec *e = unit_find_exec(u, cmd->wait->exec_id);
    struct waiting *w;
    if (!e)
        return cl_fail(err, CL_E_NOTFOUND, 0, "no such exec in this sandbox");
    if (waiting_new(c, u, cmd->request, &w, err) < 0)
        return -1;
    w->exec = e;
    exec_hold(e);
    w->spool_waiter = (struct spool_waiter){.fn = on_spool, .arg = w};
    spool_wait(exec_spool(e), &w->spool_waiter);
    cl_timer_start(&w->kick, 0);
    return 0;
}

/* --- files ---------------------------------------------------------------------------------- */

static void send_files(struct waiting *w)
{
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    struct file_info *infos = cl_zalloc_array(FILES_PER_ANSWER, sizeof *infos);
    Cloche__V1__FileInfo **list = cl_zalloc_array(FILES_PER_ANSWER, sizeof *list);
    a.request = w->request;
    a.files = list;
    CL_LIST_FOREACH (node, &w->results) {
        const Cloche__V1__GuestFileResult *r = CL_LIST_ENTRY(node, struct piece, link)->result;
        for (size_t i = 0; infos && list && i < r->n_entries; i++) {
            if (a.n_files == FILES_PER_ANSWER) {
                a.more = true;
                break;
            }
            file_info_fill(&infos[a.n_files], r->entries[i]);
            list[a.n_files] = &infos[a.n_files].message;
            a.n_files++;
        }
    }
    w->commands->host.reply(w->commands->arg, &a);
    cl_free(infos);
    cl_free(list);
}

static void file_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct waiting *w = arg;
    struct cl_err err = {0};
    if (frame->body_case != CLOCHE__V1__GUEST_FRAME__BODY_FILE_RESULT)
        return;
    const Cloche__V1__GuestFileResult *r = frame->file_result;
    struct piece *p = cl_zalloc(sizeof *p);
    ProtobufCMessage *copy = NULL;
    if (r->error_number != 0)
        (void)cl_fail(&err, cl_code_from_errno(r->error_number), 0, "%.200s", r->error);
    else if (!p)
        (void)cl_fail(&err, CL_E_NOMEM, 0, "file list");
    else
        (void)!pb_copy(&r->base, &copy, &err);
    if (!p || !copy) {
        cl_free(p);
        answer(w->commands, w->request, &err);
        waiting_free(w);
        return;
    }
    p->result = (Cloche__V1__GuestFileResult *)copy;
    cl_list_push(&w->results, &p->link);
    if (r->more)
        return;
    send_files(w);
    waiting_free(w);
}

static void file_room(void *arg)
{
    (void)arg;
}

static void file_close(void *arg, const struct cl_err *why)
{
    struct waiting *w = arg;
    struct cl_err err = {0};
    w->stream = NULL;
    if (w->unit && w->unit->is_given)
        (void)unit_fail_given(&err);
    else
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "%s",
                      why ? why->text : "the guest ended the command");
    answer(w->commands, w->request, &err);
    waiting_free(w);
}

static int run_file(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                    struct cl_err *err)
{
    static const struct guest_stream_events events = {file_frame, file_room, file_close};
    const Cloche__V1__FileCommand *f = cmd->file;
    struct waiting *w;
    if (unit_check_runs(u, err) < 0)
        return -1;
    Cloche__V1__GuestFileOp op = CLOCHE__V1__GUEST_FILE_OP__INIT;
    op.kind = (Cloche__V1__GuestFileKind)f->kind;
    op.path = f->path;
    op.to = f->to;
    op.mode = f->mode;
    op.recursive = f->recursive;
    op.limit = CL_MIN(f->limit, (uint32_t)FILES_PER_ANSWER);
    op.after = f->after;
    op.user = strcmp(f->user, "root") == 0 ? CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT
                                           : CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    if (waiting_new(c, u, cmd->request, &w, err) < 0)
        return -1;
    GUEST_FRAME(frame, 0, FILE_OP, file_op, &op);
    if (guest_open(machine_guest(u->machine), &frame, &events, w, &w->stream, err) < 0) {
        waiting_free(w);
        return -1;
    }
    return 0;
}

/* --- code contexts ---------------------------------------------------------------------------- */

enum { CONTEXTS_MAX = 16 }; /* the agent's own bound */

static void send_contexts(struct waiting *w, const Cloche__V1__GuestContextResult *r)
{
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    Cloche__V1__CodeContext rows[CONTEXTS_MAX], *list[CONTEXTS_MAX];
    a.request = w->request;
    a.was_running = r->was_running;
    a.contexts = list;
    for (size_t i = 0; i < r->n_contexts && i < CONTEXTS_MAX; i++) {
        const Cloche__V1__GuestContext *c = r->contexts[i];
        cloche__v1__code_context__init(&rows[i]);
        rows[i].id = c->id;
        rows[i].language = (Cloche__V1__Language)c->language; /* the same numbers */
        rows[i].cwd = c->cwd;
        rows[i].state = (Cloche__V1__ContextState)c->state;
        rows[i].execution_count = c->execution_count;
        list[a.n_contexts++] = &rows[i];
    }
    w->commands->host.reply(w->commands->arg, &a);
}

static void context_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct waiting *w = arg;
    struct cl_err err = {0};
    if (frame->body_case != CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_RESULT)
        return;
    const Cloche__V1__GuestContextResult *r = frame->context_result;
    if (r->error_number != 0) {
        (void)cell_refusal(r->error_number, r->error, w->about, &err);
        answer(w->commands, w->request, &err);
    } else {
        send_contexts(w, r);
    }
    waiting_free(w);
}

static int run_context(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                       struct cl_err *err)
{
    static const struct guest_stream_events events = {context_frame, file_room, file_close};
    const Cloche__V1__ContextCommand *x = cmd->context;
    struct guest_env env;
    struct waiting *w;
    if (unit_begin_code(u, err) < 0)
        return -1;
    Cloche__V1__GuestContextOp op = CLOCHE__V1__GUEST_CONTEXT_OP__INIT;
    op.kind = (Cloche__V1__GuestContextKind)x->kind;
    op.id = x->context_id;
    op.language = (Cloche__V1__GuestLanguage)x->language; /* the same numbers */
    op.cwd = x->cwd;
    op.contexts_max = x->contexts_max;
    if (guest_env_init(&env, x->n_env, err) < 0)
        return -1;
    guest_env_add_all(&env, x->env, x->n_env);
    op.env = env.list;
    op.n_env = env.n;
    int rc = waiting_new(c, u, cmd->request, &w, err);
    GUEST_FRAME(frame, 0, CONTEXT_OP, context_op, &op);
    if (rc == 0) {
        (void)snprintf(w->about, sizeof w->about, "%.40s", x->context_id);
        rc = guest_open(machine_guest(u->machine), &frame, &events, w, &w->stream, err);
        if (rc < 0)
            waiting_free(w);
    }
    guest_env_fini(&env);
    return rc;
}

/* --- statistics ------------------------------------------------------------------------------- */

/* counts == NULL: the monitor has none. */
static void send_stats(struct commands *c, uint64_t request, const struct unit *u,
                       const struct vm_counts *counts)
{
    const struct vm_driver *driver = machine_template(u->machine)->driver;
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    Cloche__V1__VmStats stats = CLOCHE__V1__VM_STATS__INIT;
    Cloche__V1__VmCounter rows[COUNTS_NR], *list[COUNTS_NR];
    struct vm_stats of_host = {0};
    (void)!machine_stats(u->machine, &of_host, NULL); /* zeros say it as well */
    a.request = request;
    a.stats = &stats;
    stats.driver = (char *)(uintptr_t)driver->name;
    stats.guest_separation = unit_separation(driver->is_shared);
    stats.cpu_ns = of_host.cpu_ns;
    stats.memory_bytes = of_host.rss_bytes;
    stats.has_counters = counts != NULL;
    stats.counters = list;
    for (int i = 0; counts && i < COUNTS_NR; i++) {
        if (!(counts->known >> i & 1))
            continue;
        cloche__v1__vm_counter__init(&rows[i]);
        rows[i].name = (char *)(uintptr_t)vm_count_name((enum vm_count)i);
        rows[i].value = counts->of[i];
        list[stats.n_counters++] = &rows[i];
    }
    c->host.reply(c->arg, &a);
}

static void on_counts(void *arg, const struct vm_counts *counts, const struct cl_err *err)
{
    struct waiting *w = arg;
    if (err)
        answer(w->commands, w->request, err);
    else
        send_stats(w->commands, w->request, w->counted, counts);
    waiting_free(w);
}

static void counts_late(struct waiting *w)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_DEADLINE, 0, "the VM's monitor did not answer within %d s",
                  COUNTS_WAIT_S);
    answer(w->commands, w->request, &err);
    waiting_free(w);
}

static int run_stats(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                     struct cl_err *err)
{
    struct waiting *w;
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (!machine_template(u->machine)->driver->ask_counts) {
        send_stats(c, cmd->request, u, NULL);
        return 0;
    }
    if (waiting_new(c, NULL, cmd->request, &w, err) < 0)
        return -1;
    w->counted = u;
    w->query.fn = on_counts;
    w->query.arg = w;
    if (machine_ask_counts(u->machine, &w->query, err) < 0) {
        waiting_free(w);
        return -1;
    }
    cl_timer_start(&w->kick, COUNTS_WAIT_S * CL_NS_PER_S);
    return 0;
}

/* --- usage ------------------------------------------------------------------------------------ */

static void copy_sample(const struct usage_sample *from, Cloche__V1__UsageSample *to,
                        Cloche__V1__Time *at)
{
    cloche__v1__time__init(at);
    cloche__v1__usage_sample__init(to);
    at->unix_ns = from->at_ns;
    to->at = at;
    to->span_ns = from->span_ns;
    to->cpu_ns = from->cpu_ns;
    to->memory_used_bytes = from->memory_used;
    to->memory_cached_bytes = from->memory_cached;
    to->memory_total_bytes = from->memory_total;
    to->scratch_used_bytes = from->scratch_used;
    to->scratch_total_bytes = from->scratch_total;
    to->processes = from->processes;
}

static void send_usage(struct commands *c, uint64_t request, const struct unit *u)
{
    const struct usage *usage = machine_usage(u->machine);
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    Cloche__V1__UsageSample rows[USAGE_MAX], *list[USAGE_MAX];
    Cloche__V1__Time times[USAGE_MAX];
    for (size_t i = 0; i < usage->n; i++) {
        copy_sample(&usage->samples[i], &rows[i], &times[i]);
        list[i] = &rows[i];
    }
    a.request = request;
    a.usage = list;
    a.n_usage = usage->n;
    a.vcpus = machine_template(u->machine)->vcpus;
    c->host.reply(c->arg, &a);
}

static int check_has_usage(const struct unit *u, struct cl_err *err)
{
    return unit_is_paused(u) ? 0 : unit_check_runs(u, err);
}

static void on_usage(void *arg)
{
    struct waiting *w = arg;
    struct cl_err err = {0};
    const struct unit *u = units_find(w->commands->units, w->about);
    if (!u)
        (void)cl_fail(&err, CL_E_NOTFOUND, 0, "the sandbox is not on this worker any more");
    if (!u || check_has_usage(u, &err) < 0)
        answer(w->commands, w->request, &err);
    else
        send_usage(w->commands, w->request, u);
    waiting_free(w);
}

static int run_usage(struct commands *c, const struct unit *u, const Cloche__V1__ExecCommand *cmd,
                     struct cl_err *err)
{
    struct waiting *w;
    if (check_has_usage(u, err) < 0 || waiting_new(c, NULL, cmd->request, &w, err) < 0)
        return -1;
    (void)snprintf(w->about, sizeof w->about, "%s", cmd->unit_id);
    w->usage.fn = on_usage;
    w->usage.arg = w;
    if (machine_ask_usage(u->machine, &w->usage))
        cl_timer_start(&w->kick, USAGE_WAIT_S * CL_NS_PER_S);
    else
        on_usage(w);
    return 0;
}

/* --- pause and resume ------------------------------------------------------------------------- */

static void on_changed(void *arg, const struct cl_err *err)
{
    struct waiting *w = arg;
    if (err) {
        answer(w->commands, w->request, err);
    } else {
        Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
        Cloche__V1__Time expires = CLOCHE__V1__TIME__INIT;
        expires.unix_ns = unit_expires_wall_ns(w->counted);
        a.request = w->request;
        a.image_bytes = unit_image_bytes(w->counted);
        a.kept = unit_is_paused(w->counted) && w->counted->is_kept;
        a.expires = &expires;
        w->commands->host.reply(w->commands->arg, &a);
    }
    waiting_free(w);
}

/* Of a unit that is neither held nor used by it. */
static int waiting_for_change(struct commands *c, struct unit *u, uint64_t request,
                              struct waiting **ret_waiting, struct cl_err *err)
{
    struct waiting *w;
    if (waiting_new(c, NULL, request, &w, err) < 0)
        return -1;
    w->counted = u;
    w->change.done = on_changed;
    w->change.arg = w;
    *ret_waiting = w;
    return 0;
}

/* Its image is as large as its memory at the most. */
static int check_pause(struct commands *c, const struct unit *u,
                       const Cloche__V1__PauseCommand *pause, struct cl_err *err)
{
    if (pause->if_idle && !unit_is_idle(u))
        return cl_fail(err, CL_E_STATE, 0, "the sandbox is in use again");
    if (unit_check_runs(u, err) < 0 || units_check_paused(c->units, err) < 0)
        return -1;
    return c->host.check_disk(c->arg, machine_template(u->machine)->memory_mib * CL_MIB, err);
}

static int run_pause(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                     struct cl_err *err)
{
    struct waiting *w;
    if (u->state != UNIT_PAUSING && u->state != UNIT_PAUSED &&
        check_pause(c, u, cmd->pause, err) < 0)
        return -1;
    if (waiting_for_change(c, u, cmd->request, &w, err) < 0)
        return -1;
    if (unit_pause(u, cmd->pause, &w->change, err) < 0) {
        waiting_free(w);
        return -1;
    }
    return 0;
}

static int run_resume(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                      struct cl_err *err)
{
    struct waiting *w;
    if (unit_is_paused(u) && c->host.check_room(c->arg, u->assign->resources, err) < 0)
        return -1;
    if (waiting_for_change(c, u, cmd->request, &w, err) < 0)
        return -1;
    if (unit_resume(u, cmd->resume->ttl_ns, &w->change, err) < 0) {
        waiting_free(w);
        return -1;
    }
    return 0;
}

/* --- at once -------------------------------------------------------------------------------- */

static int run_start(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                     struct cl_err *err)
{
    struct exec *e;
    if (!cmd->start->command)
        return cl_fail(err, CL_E_INVALID, 0, "no command");
    if (unit_exec(u, cmd->start, &e, err) < 0)
        return -1;
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    a.request = cmd->request;
    a.exec_id = (char *)(uintptr_t)exec_id(e);
    c->host.reply(c->arg, &a);
    return 0;
}

static int run_list(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd)
{
    Cloche__V1__Exec rows[UNIT_EXECS_MAX], *list[UNIT_EXECS_MAX];
    Cloche__V1__Time times[UNIT_EXECS_MAX];
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    a.request = cmd->request;
    a.execs = list;
    CL_LIST_FOREACH (node, &u->execs) {
        const struct exec_slot *slot = CL_LIST_ENTRY(node, struct exec_slot, link);
        const struct exec *e = slot->exec;
        size_t i = a.n_execs++;
        cloche__v1__exec__init(&rows[i]);
        cloche__v1__time__init(&times[i]);
        times[i].unix_ns = exec_started_wall_ns(e);
        rows[i].id = (char *)(uintptr_t)exec_id(e);
        rows[i].sandbox_id = u->assign->unit_id;
        rows[i].argv = exec_command(e)->argv;
        rows[i].n_argv = exec_command(e)->n_argv;
        rows[i].running = exec_is_running(e);
        rows[i].result =
            rows[i].running ? NULL : (Cloche__V1__ExecResult *)(uintptr_t)exec_result(e);
        rows[i].started = &times[i];
        rows[i].labels = slot->start->labels;
        rows[i].n_labels = slot->start->n_labels;
        list[i] = &rows[i];
    }
    c->host.reply(c->arg, &a);
    return 0;
}

static int run_signal(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                      struct cl_err *err)
{
    struct exec *e = unit_find_exec(u, cmd->signal->exec_id);
    if (!e)
        return cl_fail(err, CL_E_NOTFOUND, 0, "no such exec in this sandbox");
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (exec_signal(e, (int)cmd->signal->signal, err) < 0)
        return -1;
    answer(c, cmd->request, NULL);
    return 0;
}

static int run_resize(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                      struct cl_err *err)
{
    struct exec *e = unit_find_exec(u, cmd->resize->exec_id);
    if (!e || !cmd->resize->size)
        return cl_fail(err, CL_E_NOTFOUND, 0, "no such exec in this sandbox, or no size");
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (exec_resize(e, cmd->resize->size->rows, cmd->resize->size->columns, err) < 0)
        return -1;
    answer(c, cmd->request, NULL);
    return 0;
}

static int run_extend(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                      struct cl_err *err)
{
    if (unit_extend(u, cmd->extend->ttl_ns, err) < 0)
        return -1;
    Cloche__V1__Time expires = CLOCHE__V1__TIME__INIT;
    expires.unix_ns = cl_wall_ns() + cmd->extend->ttl_ns;
    Cloche__V1__ExecAnswer a = CLOCHE__V1__EXEC_ANSWER__INIT;
    a.request = cmd->request;
    a.expires = &expires;
    c->host.reply(c->arg, &a);
    return 0;
}

static int run_left(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd)
{
    unit_client_left(u, cmd->left->exec_id);
    answer(c, cmd->request, NULL);
    return 0;
}

static int dispatch(struct commands *c, struct unit *u, const Cloche__V1__ExecCommand *cmd,
                    struct cl_err *err)
{
    switch ((int)cmd->what_case) {
    case CLOCHE__V1__EXEC_COMMAND__WHAT_START:
        return run_start(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_SIGNAL:
        return run_signal(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_RESIZE:
        return run_resize(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_LIST:
        return run_list(c, u, cmd);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_WAIT:
        return run_wait(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_FILE:
        return run_file(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_EXTEND:
        return run_extend(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_CONTEXT:
        return run_context(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_LEFT:
        return run_left(c, u, cmd);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_STATS:
        return run_stats(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_USAGE:
        return run_usage(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_PAUSE:
        return run_pause(c, u, cmd, err);
    case CLOCHE__V1__EXEC_COMMAND__WHAT_RESUME:
        return run_resume(c, u, cmd, err);
    default:
        return cl_fail(err, CL_E_UNIMPL, 0, "this worker does not know that command");
    }
}

/* Of no unit. */
static void run_drain(struct commands *c, const Cloche__V1__ExecCommand *cmd)
{
    struct cl_err err = {0};
    int rc = c->host.drain(c->arg, cmd->drain->undo, &err);
    answer(c, cmd->request, rc < 0 ? &err : NULL);
}

void command_run(struct commands *c, const Cloche__V1__ExecCommand *command)
{
    struct cl_err err = {0};
    if (command->what_case == CLOCHE__V1__EXEC_COMMAND__WHAT_DRAIN) {
        run_drain(c, command);
        return;
    }
    struct unit *u = units_find(c->units, command->unit_id);
    int rc = u ? dispatch(c, u, command, &err)
               : cl_fail(&err, CL_E_NOTFOUND, 0, "the sandbox is not on this worker");
    bool is_use = command->what_case != CLOCHE__V1__EXEC_COMMAND__WHAT_STATS &&
                  command->what_case != CLOCHE__V1__EXEC_COMMAND__WHAT_USAGE &&
                  command->what_case != CLOCHE__V1__EXEC_COMMAND__WHAT_PAUSE;
    if (u && rc == 0 && is_use)
        unit_touch(u);
    if (rc < 0)
        answer(c, command->request, &err);
}

void commands_init(struct commands *c)
{
    cl_list_init(&c->waiting);
    c->n_waiting = 0;
}

void commands_fini(struct commands *c)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "the worker lost its scheduler");
    CL_LIST_FOREACH (node, &c->waiting) {
        struct waiting *w = CL_LIST_ENTRY(node, struct waiting, link);
        answer(c, w->request, &err);
        waiting_free(w);
    }
}
