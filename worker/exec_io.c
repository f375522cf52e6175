/* worker/exec_io.c - see worker/exec.h. */
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "proto/copy.h"
#include "proto/guest_frame.h"
#include "worker/exec.h"
#include "worker/guest_env.h"

struct exec {
    char id[CL_ID_MAX];
    Cloche__V1__Command *command; /* owned */
    struct spool *spool;          /* owned */
    struct guest_stream *stream;  /* owned by the guest; NULL once closed */
    uint64_t stream_id;
    exec_ended_fn *on_end;
    void *arg;
    void (*on_room)(void *arg);
    void *room_arg;
    struct cl_timer limit;
    uint64_t limit_at_ns; /* when it fires */
    uint64_t rested_ns;   /* that the limit was put off by */
    unsigned holders;
    bool running;
    bool is_left; /* to the next process */
    uint64_t started_ns, started_wall_ns;
    Cloche__V1__ExecResult result;
    Cloche__V1__Usage usage;
    Cloche__V1__StreamTotal totals[SPOOL_STREAMS];
    uint8_t digests[SPOOL_STREAMS][SPOOL_SHA256];
    char message[CL_ERR_TEXT];
};

static void fill_totals(struct exec *e)
{
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct spool_total t;
        spool_total(e->spool, (enum spool_stream)i, &t);
        memcpy(e->digests[i], t.sha256, sizeof t.sha256);
        cloche__v1__stream_total__init(&e->totals[i]);
        e->totals[i].bytes = t.bytes;
        e->totals[i].kept_bytes = t.kept;
        e->totals[i].truncated = t.kept < t.bytes;
        e->totals[i].sha256.data = e->digests[i];
        e->totals[i].sha256.len = SPOOL_SHA256;
    }
    e->result.stdout = &e->totals[SPOOL_STDOUT];
    e->result.stderr = &e->totals[SPOOL_STDERR];
    e->result.usage = &e->usage;
    e->result.message = e->message;
}

static void finish(struct exec *e)
{
    if (!e->running || e->is_left)
        return;
    e->running = false;
    cl_timer_stop(&e->limit);
    if (e->usage.wall_ns == 0)
        e->usage.wall_ns = cl_now_ns() - e->started_ns;
    /* The totals first: whoever waits on the spool's close reads the result. */
    struct spool *spool = e->spool;
    spool_close(spool);
    fill_totals(e);
    e->on_end(e->arg, e);
}

static void take_result(struct exec *e, const Cloche__V1__GuestExecEnded *end)
{
    static const struct {
        Cloche__V1__Outcome outcome;
        Cloche__V1__Reason reason;
    } map[] = {
        [CLOCHE__V1__GUEST_END__GUEST_END_EXITED] = {CLOCHE__V1__OUTCOME__OUTCOME_EXITED,
                                                     CLOCHE__V1__REASON__REASON_FINISHED},
        [CLOCHE__V1__GUEST_END__GUEST_END_SIGNALED] = {CLOCHE__V1__OUTCOME__OUTCOME_SIGNALED,
                                                       CLOCHE__V1__REASON__REASON_FINISHED},
        [CLOCHE__V1__GUEST_END__GUEST_END_TIMED_OUT] = {CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT,
                                                        CLOCHE__V1__REASON__REASON_FINISHED},
        [CLOCHE__V1__GUEST_END__GUEST_END_OOM_KILLED] = {CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED,
                                                         CLOCHE__V1__REASON__REASON_FINISHED},
        [CLOCHE__V1__GUEST_END__GUEST_END_NOT_FOUND] = {CLOCHE__V1__OUTCOME__OUTCOME_NOT_FOUND,
                                                        CLOCHE__V1__REASON__REASON_FINISHED},
        [CLOCHE__V1__GUEST_END__GUEST_END_NOT_EXECUTABLE] =
            {CLOCHE__V1__OUTCOME__OUTCOME_NOT_EXECUTABLE, CLOCHE__V1__REASON__REASON_FINISHED},
        [CLOCHE__V1__GUEST_END__GUEST_END_FAILED] = {CLOCHE__V1__OUTCOME__OUTCOME_FAILED,
                                                     CLOCHE__V1__REASON__REASON_START_FAILED},
    };
    size_t kind = (size_t)end->end;
    if (kind >= CL_COUNT(map) || map[kind].outcome == CLOCHE__V1__OUTCOME__OUTCOME_UNSPECIFIED)
        kind = CLOCHE__V1__GUEST_END__GUEST_END_FAILED;
    e->result.outcome = map[kind].outcome;
    e->result.reason = map[kind].reason;
    e->result.exit_code = end->exit_code;
    e->result.signal = end->signal;
    e->usage.cpu_ns = end->cpu_ns;
    e->usage.wall_ns = end->wall_ns;
    e->usage.peak_memory_bytes = end->peak_memory_bytes;
    (void)snprintf(e->message, sizeof e->message, "%.300s", end->error);
}

static void on_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct exec *e = arg;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA) {
        const Cloche__V1__GuestData *d = frame->data;
        bool is_err = d->channel == CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDERR;
        spool_append(e->spool, is_err ? SPOOL_STDERR : SPOOL_STDOUT, d->bytes.data, d->bytes.len);
        guest_stream_consume(e->stream, d->bytes.len);
    } else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_EXEC_ENDED) {
        take_result(e, frame->exec_ended);
    }
}

static void on_room(void *arg)
{
    struct exec *e = arg;
    if (e->on_room)
        e->on_room(e->room_arg);
}

static void on_close(void *arg, const struct cl_err *why)
{
    struct exec *e = arg;
    e->stream = NULL;
    if (e->on_room)
        e->on_room(e->room_arg); /* whoever waits learns that nobody listens */
    if (e->running && why && e->result.outcome == CLOCHE__V1__OUTCOME__OUTCOME_UNSPECIFIED) {
        e->result.outcome = CLOCHE__V1__OUTCOME__OUTCOME_FAILED;
        e->result.reason = CLOCHE__V1__REASON__REASON_VM_DIED;
        (void)snprintf(e->message, sizeof e->message, "%s", why->text);
    }
    finish(e);
}

static void start_limit(struct exec *e, uint64_t ns)
{
    e->limit_at_ns = cl_now_ns() + ns;
    cl_timer_start(&e->limit, ns);
}

/* By which the limit is to be put off. */
static uint64_t rest_since(const struct exec *e)
{
    return e->stream ? guest_stream_rested_ns(e->stream) - e->rested_ns : 0;
}

static void on_limit(void *arg)
{
    struct exec *e = arg;
    uint64_t rested = rest_since(e);
    if (rested > 0) {
        e->rested_ns += rested;
        start_limit(e, rested);
        return;
    }
    e->result.outcome = CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT;
    e->result.reason = CLOCHE__V1__REASON__REASON_FINISHED;
    (void)snprintf(e->message, sizeof e->message, "the guest did not end the process at its limit");
    if (e->stream)
        guest_stream_reset(e->stream, "time limit");
}

/* The command's own variables last, so that they win. */
static int build_env(struct guest_env *env, const Cloche__V1__Command *c, const char *traceparent,
                     struct cl_err *err)
{
    enum { OURS = 2 };
    if (guest_env_init(env, c->n_env + OURS, err) < 0)
        return -1;
    if (c->pty)
        guest_env_add(env, "TERM", c->pty->term[0] ? c->pty->term : "xterm-256color");
    if (traceparent && traceparent[0])
        guest_env_add(env, "TRACEPARENT", traceparent);
    guest_env_add_all(env, c->env, c->n_env);
    return 0;
}

static const struct guest_stream_events stream_events = {on_frame, on_room, on_close};

static int open_stream(struct exec *e, const struct exec_options *o, struct cl_err *err)
{
    const Cloche__V1__Command *c = e->command;
    Cloche__V1__GuestExec x = CLOCHE__V1__GUEST_EXEC__INIT;
    Cloche__V1__GuestResize size = CLOCHE__V1__GUEST_RESIZE__INIT;
    struct guest_env env;
    if (build_env(&env, c, o->traceparent, err) < 0)
        return -1;
    if (c->pty) {
        size.rows = c->pty->rows;
        size.columns = c->pty->columns;
        x.pty = &size;
    }
    x.env = env.list;
    x.n_env = env.n;
    x.argv = c->argv;
    x.n_argv = c->n_argv;
    x.cwd = c->cwd;
    x.user = strcmp(c->user, "root") == 0 ? CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT
                                          : CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    x.seccomp = CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_STANDARD;
    x.timeout_ns = c->timeout_ns ? c->timeout_ns : EXEC_TIMEOUT_DEFAULT_S * CL_NS_PER_S;
    x.no_stdin = !c->open_stdin && !c->pty;
    GUEST_FRAME(frame, 0, EXEC, exec, &x);
    int rc = guest_open(o->guest, &frame, &stream_events, e, &e->stream, err);
    guest_env_fini(&env);
    if (rc < 0)
        return -1;
    e->stream_id = guest_stream_id(e->stream);
    e->rested_ns = guest_stream_rested_ns(e->stream);
    start_limit(e, x.timeout_ns + EXEC_TIMEOUT_GRACE_S * CL_NS_PER_S);
    return 0;
}

/* Without its output and its stream. */
static int new_exec(const struct exec_options *options, struct exec **ret_exec, struct cl_err *err)
{
    struct exec *e = cl_zalloc(sizeof *e);
    if (!e)
        return cl_fail(err, CL_E_NOMEM, 0, "exec");
    (void)snprintf(e->id, sizeof e->id, "%s", options->id);
    e->on_end = options->on_end;
    e->arg = options->arg;
    e->started_ns = cl_now_ns();
    e->started_wall_ns = cl_wall_ns();
    cloche__v1__exec_result__init(&e->result);
    cloche__v1__usage__init(&e->usage);
    ProtobufCMessage *copy = NULL;
    int rc = pb_copy(&options->command->base, &copy, err);
    e->command = (Cloche__V1__Command *)copy;
    if (rc < 0 || cl_timer_init(&e->limit, options->loop, on_limit, e, err) < 0) {
        exec_free(e);
        return -1;
    }
    *ret_exec = e;
    return 0;
}

int exec_start(const struct exec_options *options, struct exec **ret_exec, struct cl_err *err)
{
    struct exec *e;
    if (new_exec(options, &e, err) < 0)
        return -1;
    uint64_t cap = e->command->output_max_bytes;
    if (spool_new(options->spool_dir, cap ? cap : EXEC_OUTPUT_DEFAULT_MIB * CL_MIB, &e->spool,
                  err) < 0 ||
        open_stream(e, options, err) < 0) {
        exec_free(e);
        return -1;
    }
    e->running = true;
    *ret_exec = e;
    return 0;
}

void exec_free(struct exec *exec)
{
    if (!exec)
        return;
    CL_ASSERT(!exec->stream);
    cl_timer_fini(&exec->limit);
    spool_free(exec->spool);
    if (exec->command)
        pb_free(&exec->command->base);
    cl_free(exec);
}

void exec_abort(struct exec *exec, Cloche__V1__Outcome outcome, Cloche__V1__Reason reason,
                const char *message)
{
    if (!exec->running)
        return;
    exec->result.outcome = outcome;
    exec->result.reason = reason;
    (void)snprintf(exec->message, sizeof exec->message, "%s", message);
    finish(exec);
}

void exec_hold(struct exec *e)
{
    e->holders++;
}

void exec_release(struct exec *e)
{
    CL_ASSERT(e->holders > 0);
    e->holders--;
}

bool exec_is_held(const struct exec *e)
{
    return e->holders > 0;
}

const char *exec_id(const struct exec *exec)
{
    return exec->id;
}

uint64_t exec_guest_stream(const struct exec *exec)
{
    return exec->stream_id;
}

bool exec_is_running(const struct exec *exec)
{
    return exec->running;
}

struct spool *exec_spool(struct exec *exec)
{
    return exec->spool;
}

const Cloche__V1__Command *exec_command(const struct exec *exec)
{
    return exec->command;
}

uint64_t exec_started_wall_ns(const struct exec *exec)
{
    return exec->started_wall_ns;
}

const Cloche__V1__ExecResult *exec_result(const struct exec *exec)
{
    return &exec->result;
}

static int need_stream(const struct exec *e, struct cl_err *err)
{
    return e->running && e->stream ? 0 : cl_fail(err, CL_E_STATE, 0, "the process has ended");
}

int exec_signal(struct exec *exec, int signo, struct cl_err *err)
{
    return need_stream(exec, err) < 0 ? -1 : guest_stream_signal(exec->stream, signo, err);
}

int exec_resize(struct exec *exec, uint32_t rows, uint32_t columns, struct cl_err *err)
{
    return need_stream(exec, err) < 0 ? -1 : guest_stream_resize(exec->stream, rows, columns, err);
}

bool exec_takes_stdin(struct exec *exec)
{
    return !exec->running || !exec->stream || guest_stream_takes(exec->stream);
}

size_t exec_write_stdin(struct exec *exec, const void *data, size_t n, bool eof)
{
    if (!exec->running || !exec->stream)
        return n; /* nobody listens: what a pipe without a reader would take, without the signal */
    return guest_stream_write(exec->stream, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDIN, data, n,
                              eof);
}

void exec_set_stdin_room(struct exec *exec, void (*on_room_fn)(void *arg), void *arg)
{
    exec->on_room = on_room_fn;
    exec->room_arg = arg;
}

/* --- that outlives its process ------------------------------------------------------------------
 */

int exec_keep_output(struct exec *exec, const char *path, struct cl_err *err)
{
    return spool_name(exec->spool, path, err);
}

void exec_forget_output(struct exec *exec)
{
    spool_unname(exec->spool);
}

static void fill_output(struct exec_kept *row)
{
    row->m.output = &row->output;
    cloche__v1__kept_output__init(&row->output);
    row->output.key.data = row->spool.key;
    row->output.key.len = sizeof row->spool.key;
    row->output.cap = row->spool.cap;
    row->output.streams = row->list;
    row->output.n_streams = SPOOL_STREAMS;
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct spool_kept_lane *lane = &row->spool.lanes[i];
        row->list[i] = &row->lanes[i];
        cloche__v1__kept_bytes__init(&row->lanes[i]);
        row->lanes[i].bytes = lane->bytes;
        row->lanes[i].kept = lane->kept;
        row->lanes[i].sha256.data = lane->digest;
        row->lanes[i].sha256.len = lane->n_digest;
    }
}

void exec_get_kept(const struct exec *exec, struct exec_kept *ret_kept)
{
    uint64_t now = cl_now_ns(), end = exec->limit_at_ns + rest_since(exec);
    cloche__v1__kept_exec__init(&ret_kept->m);
    spool_get_kept(exec->spool, &ret_kept->spool);
    fill_output(ret_kept);
    ret_kept->m.stream = exec->stream_id;
    ret_kept->m.started_unix_ns = exec->started_wall_ns;
    if (exec->running) {
        ret_kept->m.limit_ns = end > now ? end - now : 1;
        return;
    }
    ret_kept->result = exec->result;
    ret_kept->result.stdout = ret_kept->result.stderr = NULL;
    ret_kept->m.result = &ret_kept->result;
}

static void take_output(const Cloche__V1__KeptExec *m, struct spool_kept *ret_kept)
{
    *ret_kept = (struct spool_kept){.cap = m->output->cap, .closed = m->result != NULL};
    memcpy(ret_kept->key, m->output->key.data, sizeof ret_kept->key);
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        const Cloche__V1__KeptBytes *from = m->output->streams[i];
        struct spool_kept_lane *lane = &ret_kept->lanes[i];
        lane->bytes = from->bytes;
        lane->kept = from->kept;
        lane->n_digest = from->sha256.len;
        memcpy(lane->digest, from->sha256.data, lane->n_digest);
    }
}

static void take_end(struct exec *e, const Cloche__V1__ExecResult *from)
{
    e->result.outcome = from->outcome;
    e->result.reason = from->reason;
    e->result.exit_code = from->exit_code;
    e->result.signal = from->signal;
    (void)snprintf(e->message, sizeof e->message, "%s", from->message);
    if (from->usage) {
        e->usage.cpu_ns = from->usage->cpu_ns;
        e->usage.wall_ns = from->usage->wall_ns;
        e->usage.peak_memory_bytes = from->usage->peak_memory_bytes;
    }
    fill_totals(e);
}

static int go_on(struct exec *e, const struct exec_options *o, const Cloche__V1__KeptExec *m,
                 struct cl_err *err)
{
    if (guest_adopt(o->guest, m->stream, &stream_events, e, &e->stream, err) < 0)
        return -1;
    uint64_t now = cl_now_ns(), wall = cl_wall_ns();
    uint64_t since = wall > m->started_unix_ns ? wall - m->started_unix_ns : 0;
    e->started_ns = now - CL_MIN(now, since);
    e->rested_ns = guest_stream_rested_ns(e->stream);
    e->running = true;
    start_limit(e, m->limit_ns);
    return 0;
}

int exec_restore(const struct exec_options *options, const Cloche__V1__KeptExec *m,
                 const char *path, struct exec **ret_exec, struct cl_err *err)
{
    struct exec *e;
    struct spool_kept kept;
    if (new_exec(options, &e, err) < 0)
        return -1;
    e->started_wall_ns = m->started_unix_ns;
    e->stream_id = m->stream;
    take_output(m, &kept);
    int rc = spool_restore(path, &kept, &e->spool, err);
    OPENSSL_cleanse(&kept, sizeof kept);
    if (rc == 0 && m->result)
        take_end(e, m->result);
    else if (rc == 0)
        rc = go_on(e, options, m, err);
    if (rc < 0) {
        exec_free(e);
        return -1;
    }
    *ret_exec = e;
    return 0;
}

void exec_leave(struct exec *exec)
{
    exec->is_left = true;
    spool_leave(exec->spool);
}

void exec_give_away(struct exec *exec)
{
    exec->is_left = true;
    spool_unname(exec->spool);
    spool_wake(exec->spool);
}

bool exec_is_left(const struct exec *exec)
{
    return exec->is_left;
}
