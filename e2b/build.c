/* e2b/build.c - the work of a build: see e2b/build_priv.h.
 *
 *   find the base -> Create -> archives -> step after step -> start -> ready? -> snapshot -> the
 * end
 *
 * It is a call of the API like any other, with a transport that has nobody to answer to.  A step
 * that runs something is an exec, followed to its end; archives go from the one sandbox to the
 * other as fast as that takes them.
 */
#include "e2b/build_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/file.pb-c.h"
#include "e2b/box_priv.h"
#include "e2b/labels.h"
#include "e2b/network.h"
#include "e2b/origin.h"
#include "e2b/text.h"

enum {
    CREATE_S = 120,
    SNAPSHOT_S = 120,
    READY_S = 300,
    GRACE_S = 30, /* for an end to reach us */
    LINE = 1024,
    ARGS = 12,
    BUILD_NET = 512,
    STEPS_MIB = 512, /* of the disk, that the steps may fill */
};

/* What a command says, in lines. */
struct voice {
    struct lines {
        char text[LINE];
        size_t n;
    } out, err;
    char last[200]; /* line that had something in it */
};

/* How an exec ended. */
struct outcome {
    bool is_known, is_good;
    char text[160];
};

struct work {
    struct e2b_build *build; /* borrowed: it lives as long as we do */
    struct e2b_recipe recipe;
    struct e2b_origin origin;
    struct e2b_place place;
    struct e2b_step step;
    size_t at;      /* which step it is, from 1 */
    char label[16]; /* of the log: "base", a step from 1, "finalize" */
    char box[CL_ID_MAX];
    struct voice voice;
    struct outcome outcome;
    e2b_run_fn *then;           /* when the exec has ended */
    struct rpc_call *from, *to; /* the channel's: an archive's; from: while it is not read */
    uint64_t until_ns;
    const char *ready_text;               /* the command that says whether it is ready */
    char ready_line[E2B_BUILD_UUID + 16]; /* what is printed then; "" = nothing is waited for */
    bool is_ready, awaits_ready;
    bool with_network, is_cut_off; /* the tenant may have none */
};

/* --- the end ------------------------------------------------------------------------------------
 */

static void end_stage(struct e2b_call *c)
{
    const struct work *w = c->work;
    if (w->build->stage[0])
        e2b_box_kill(c, w->build->stage);
    w->build->stage[0] = '\0';
}

static void finish(struct e2b_call *c, enum e2b_build_state state)
{
    const struct work *w = c->work;
    struct e2b_build *b = w->build;
    if (w->box[0])
        e2b_box_kill(c, w->box);
    end_stage(c);
    e2b_build_end(b, state);
    e2b_reply(c, 204, NULL);
}

static __attribute__((format(printf, 2, 3))) void say(struct e2b_call *c, const char *format, ...)
{
    const struct work *w = c->work;
    char text[LINE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e2b_build_say(w->build, "info", w->label, e2b_text_json(text, strlen(text)));
}

static __attribute__((format(printf, 2, 3))) void fail(struct e2b_call *c, const char *format, ...)
{
    const struct work *w = c->work;
    struct e2b_build *b = w->build;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(b->reason, sizeof b->reason, format, args);
    va_end(args);
    (void)snprintf(b->step, sizeof b->step, "%s", w->label);
    e2b_build_say(b, "error", w->label, e2b_text_json(b->reason, strlen(b->reason)));
    finish(c, E2B_BUILD_FAILED);
}

/* Whatever ends a call elsewhere has ended this one. */
static void on_reply(void *arg, const struct web_reply *reply)
{
    struct e2b_build *b = arg;
    if (b->state != E2B_BUILD_RUNNING)
        return;
    (void)snprintf(b->reason, sizeof b->reason, "the build could not go on: %.*s", (int)reply->n,
                   reply->data);
    e2b_build_end(b, E2B_BUILD_FAILED);
}

/* 0, or the build has failed. */
static int ask(struct e2b_call *c, const struct e2b_ask *what, struct rpc_call **ret_rpc)
{
    struct cl_err err = {0};
    if (e2b_ask_try(c, what, ret_rpc, &err) == 0)
        return 0;
    fail(c, "%s", err.text);
    return -1;
}

/* --- a command ----------------------------------------------------------------------------------
 */

static void say_line(struct e2b_call *c, struct lines *l)
{
    struct work *w = c->work;
    struct voice *v = &w->voice;
    size_t n = l->n > 0 && l->text[l->n - 1] == '\r' ? l->n - 1 : l->n;
    size_t ready = strlen(w->ready_line);
    l->n = 0;
    if (ready > 0 && n >= ready && memcmp(l->text + n - ready, w->ready_line, ready) == 0) {
        w->is_ready = true;
        n -= ready;
        if (n == 0)
            return;
    }
    if (n > 0)
        (void)snprintf(v->last, sizeof v->last, "%.*s", (int)n, l->text);
    e2b_build_say(w->build, l == &v->err ? "warn" : "info", w->label, e2b_text_json(l->text, n));
}

static void take_output(struct e2b_call *c, const Cloche__V1__Output *m)
{
    struct work *w = c->work;
    struct voice *v = &w->voice;
    struct lines *l = m->stream == CLOCHE__V1__STREAM__STREAM_STDERR ? &v->err : &v->out;
    for (size_t i = 0; i < m->data.len; i++) {
        bool ends = m->data.data[i] == '\n';
        if (!ends)
            l->text[l->n++] = (char)m->data.data[i];
        if (ends || l->n == LINE)
            say_line(c, l);
    }
}

/* What it said without an end of line. */
static void say_rest(struct e2b_call *c)
{
    struct work *w = c->work;
    struct voice *v = &w->voice;
    if (v->out.n > 0)
        say_line(c, &v->out);
    if (v->err.n > 0)
        say_line(c, &v->err);
}

static void take_end(struct outcome *o, const Cloche__V1__ExecResult *r)
{
    bool exited = r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_EXITED;
    o->is_known = true;
    o->is_good = exited && r->exit_code == 0;
    if (exited)
        (void)snprintf(o->text, sizeof o->text, "exit status %d", r->exit_code);
    else if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT)
        (void)snprintf(o->text, sizeof o->text, "the time is over");
    else if (r->outcome == CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED)
        (void)snprintf(o->text, sizeof o->text, "out of memory");
    else if (r->message[0])
        (void)snprintf(o->text, sizeof o->text, "%.150s", r->message);
    else
        (void)snprintf(o->text, sizeof o->text, "signal %d", r->signal);
}

static void on_event(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    const Cloche__V1__AttachResponse *m = (const Cloche__V1__AttachResponse *)msg;
    struct work *w = c->work;
    (void)rpc;
    if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_OUTPUT)
        take_output(c, m->output);
    else if (m->event_case == CLOCHE__V1__ATTACH_RESPONSE__EVENT_ENDED)
        take_end(&w->outcome, m->ended);
}

static void on_detached(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct work *w = c->work;
    (void)reply;
    say_rest(c);
    if (w->outcome.is_known)
        w->then(c);
    else
        fail(c, "%s", err ? err->text : "a command's output ended before its result");
}

static int
attach(struct e2b_call *c, const char *exec_id,
       void (*on_message)(struct e2b_call *, const ProtobufCMessage *, struct rpc_call *),
       void (*on_end)(struct e2b_call *, const ProtobufCMessage *, const struct cl_err *))
{
    static const struct e2b_method method = E2B_RPC("ExecService", "Attach", attach_response);
    struct work *w = c->work;
    Cloche__V1__AttachRequest m = CLOCHE__V1__ATTACH_REQUEST__INIT;
    m.sandbox_id = w->box;
    m.exec_id = e2b_pb(exec_id);
    return ask(c,
               &(struct e2b_ask){.method = &method,
                                 .request = &m.base,
                                 .timeout_ns = (E2B_BUILD_S + GRACE_S) * CL_NS_PER_S,
                                 .on_message = on_message,
                                 .on_end = on_end},
               NULL);
}

static void on_started(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err)
        fail(c, "%s", err->text);
    else
        (void)!attach(c, ((const Cloche__V1__StartResponse *)reply)->exec_id, on_event,
                      on_detached);
}

struct command {
    const char *argv[ARGS]; /* NULL ends it */
    const char *user;
    const char *cwd;  /* NULL = the place's */
    uint64_t seconds; /* 0 = as long as the build may take */
};

typedef void end_fn(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err);

/* At the place, with its environment. */
static void start(struct e2b_call *c, const struct command *what, end_fn *on_end)
{
    static const struct e2b_method method = E2B_RPC("ExecService", "Start", start_response);
    struct work *w = c->work;
    Cloche__V1__StartRequest m = CLOCHE__V1__START_REQUEST__INIT;
    Cloche__V1__Command command = CLOCHE__V1__COMMAND__INIT;
    struct cl_err err = {0};
    struct e2b_env env;
    char *argv[ARGS];
    uint64_t now = cl_now_ns(), left = w->until_ns > now ? w->until_ns - now : 1;
    if (e2b_env_make(w->place.env, NULL, &env, &err) < 0) {
        fail(c, "%s", err.text);
        return;
    }
    for (; what->argv[command.n_argv]; command.n_argv++)
        argv[command.n_argv] = e2b_pb(what->argv[command.n_argv]);
    command.argv = argv;
    command.env = env.list;
    command.n_env = env.n;
    command.cwd = what->cwd ? e2b_pb(what->cwd) : w->place.cwd;
    command.user = e2b_pb(what->user);
    command.timeout_ns = what->seconds ? what->seconds * CL_NS_PER_S : left;
    m.sandbox_id = w->box;
    m.command = &command;
    w->outcome = (struct outcome){.is_known = false};
    w->voice.last[0] = '\0';
    (void)!ask(c, &(struct e2b_ask){.method = &method, .request = &m.base, .on_end = on_end}, NULL);
    e2b_env_free(&env);
}

static void run(struct e2b_call *c, const struct command *what, e2b_run_fn *then)
{
    struct work *w = c->work;
    w->then = then;
    start(c, what, on_started);
}

/* --- the snapshot -------------------------------------------------------------------------------
 */

static void on_kept(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const struct work *w = c->work;
    (void)reply;
    if (err) {
        fail(c, "snapshot: %s", err->text);
        return;
    }
    say(c, "template %s is ready", w->build->name);
    finish(c, E2B_BUILD_READY);
}

static void keep(struct e2b_call *c)
{
    static const struct e2b_method create =
        E2B_RPC("SnapshotService", "Create", snapshot_service_create_response);
    struct work *w = c->work;
    struct e2b_place_labels labels;
    Cloche__V1__SnapshotServiceCreateRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    Cloche__V1__Label label = CLOCHE__V1__LABEL__INIT, *list[E2B_PLACE_LABELS + 1] = {&label};
    (void)snprintf(w->place.template_, sizeof w->place.template_, "%s", w->build->name);
    e2b_place_write(&w->place, &labels);
    m.sandbox_id = w->box;
    m.name = w->build->name;
    m.replace = true;
    label.key = e2b_pb(E2B_LABEL_BUILD);
    label.value = w->build->id;
    memcpy(list + 1, labels.list, labels.n * sizeof *list);
    m.labels = list;
    m.n_labels = labels.n + 1;
    (void)!ask(c,
               &(struct e2b_ask){.method = &create,
                                 .request = &m.base,
                                 .timeout_ns = SNAPSHOT_S * CL_NS_PER_S,
                                 .on_end = on_kept},
               NULL);
}

/* --- what runs when sandboxes begin -------------------------------------------------------------
 *
 * One exec, as only what a command began itself sees its processes.  It stays when the command that
 * it was for has become a daemon.  Arguments: START READY, either may be empty, and the line that
 * says that READY succeeded.  The SDKs' wait_for_port asks ss and wait_for_process pgrep, which few
 * images have: the kernel says the same.
 */
static const char start_script[] =
    "command -v ss >/dev/null || ss() {\n"
    "    local port; printf -v port ':%04X' \"${4#:}\"\n"
    "    grep -shiE \"^ *[0-9]+: [0-9A-F]+$port [0-9A-F:]+ 0A\" /proc/net/tcp /proc/net/tcp6\n"
    "}\n"
    "command -v pgrep >/dev/null || pgrep() { grep -shE -- \"$1\" /proc/[0-9]*/comm; }\n"
    "export -f ss pgrep 2>/dev/null\n"
    "start= said=\n"
    "[ -z \"$1\" ] || { /bin/bash -c \"$1\" & start=$!; }\n"
    "until why=$(/bin/bash -c \"$2\" 2>&1 >/dev/null); do\n"
    "    [ \"$why\" = \"$said\" ] || { said=$why; printf '%s\\n' \"$why\" >&2; }\n"
    "    [ -z \"$start\" ] || kill -0 $start 2>/dev/null || { wait $start || exit; start=; }\n"
    "    sleep 0.2\n"
    "done\n"
    "echo \"$3\"\n"
    "[ -z \"$start\" ] || wait $start || exit\n"
    "exec sleep infinity\n";

static void fail_start(struct e2b_call *c)
{
    const struct work *w = c->work;
    const char *last = w->voice.last;
    fail(c, "the start command ended: %s%s%s", w->outcome.text, last[0] ? ": " : "", last);
}

static void on_start_event(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    struct work *w = c->work;
    on_event(c, msg, rpc);
    if (w->awaits_ready && w->is_ready) {
        w->awaits_ready = false;
        keep(c);
    } else if (w->awaits_ready && w->outcome.is_known) {
        fail_start(c);
    }
}

/* Once it is ready it goes on unheard. */
static void on_start_detached(struct e2b_call *c, const ProtobufCMessage *reply,
                              const struct cl_err *err)
{
    const struct work *w = c->work;
    (void)reply;
    if (w->awaits_ready)
        fail(c, "%s", err ? err->text : "the start command's output ended");
}

static void on_start(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err)
        fail(c, "the start command: %s", err->text);
    else
        (void)!attach(c, ((const Cloche__V1__StartResponse *)reply)->exec_id, on_start_event,
                      on_start_detached);
}

static void fail_slow(struct e2b_call *c)
{
    const struct work *w = c->work;
    const char *last = w->voice.last;
    if (w->awaits_ready)
        fail(c, "not ready after %d s: %.200s%s%s", READY_S, w->ready_text, last[0] ? ": " : "",
             last);
}

static void finalize(struct e2b_call *c)
{
    struct work *w = c->work;
    (void)snprintf(w->label, sizeof w->label, "finalize");
    if (!w->recipe.start && !w->recipe.ready) {
        keep(c);
        return;
    }
    w->ready_text = w->recipe.ready ? w->recipe.ready : "sleep 20"; /* as E2B waits */
    if (w->recipe.start)
        say(c, "[finalize] START %.200s", w->recipe.start);
    (void)snprintf(w->ready_line, sizeof w->ready_line, "cloche-ready-%s", w->build->id);
    w->awaits_ready = true;
    e2b_after(c, READY_S * CL_NS_PER_S, fail_slow);
    start(c,
          &(struct command){.argv = {"/bin/bash", "-l", "-c", start_script, "start",
                                     w->recipe.start ? w->recipe.start : "", w->ready_text,
                                     w->ready_line},
                            .user = w->place.user,
                            .seconds = E2B_LIFE_S},
          on_start);
}

/* --- steps --------------------------------------------------------------------------------------
 */

static void next_step(struct e2b_call *c);

static void on_step(struct e2b_call *c)
{
    const struct work *w = c->work;
    char text[200];
    if (w->outcome.is_good) {
        next_step(c);
        return;
    }
    e2b_step_text(&w->step, text, sizeof text);
    fail(c, "step %zu: %s: %s%s%s", w->at, text, w->outcome.text, w->voice.last[0] ? ": " : "",
         w->voice.last);
}

/* What COPY of a Dockerfile does: a folder's content goes into the folder TO; files go into it if
 * it is one, ends in a slash, or they are several, else TO is what the file is called.  Folders
 * that are there stay whose they are.  Arguments: ARCHIVE SOURCE TO OWNER MODE LAST; the archive
 * goes once no other step wants it. */
static const char copy_script[] =
    "set -euo pipefail\n"
    "archive=$1 source=$2 to=$3 owner=$4 mode=$5 last=$6 into=\n"
    "files=$(mktemp -d)\n"
    "trap 'rm -rf -- \"$files\" ${last:+\"$archive\"}' EXIT\n"
    "tar -xf \"$archive\" -C \"$files\" --no-same-owner\n"
    "cd -- \"$files\"\n"
    "shopt -s globstar dotglob nullglob\n"
    "IFS=\n"
    "found=(\"$source\")\n"
    "[ -e \"$source\" ] || [ -L \"$source\" ] || found=($source)\n"
    "[ ${#found[@]} -gt 0 ] || { echo \"nothing is called $source\" >&2; exit 1; }\n"
    "[ -z \"$mode\" ] || chmod -R -- \"$mode\" \"${found[@]}\"\n"
    "chown -hR -- \"$owner\" \"${found[@]}\"\n"
    "case $to in */) into=1 ;; esac\n"
    "if [ ${#found[@]} -gt 1 ] || [ -d \"$to\" ]; then into=1; fi\n"
    "make() {\n"
    "    [ -d \"$1\" ] || { make \"$(dirname -- \"$1\")\"; mkdir -- \"$1\"; chown -- \"$owner\" "
    "\"$1\"; }\n"
    "}\n"
    "for one in \"${found[@]}\"; do\n"
    "    if [ -d \"$one\" ] && [ ! -L \"$one\" ]; then\n"
    "        make \"$to\"\n"
    "        tar -C \"$one\" -cf - . | tar -C \"$to\" -xpf - --no-overwrite-dir\n"
    "    elif [ \"$into\" ]; then\n"
    "        make \"$to\"\n"
    "        cp -a -- \"$one\" \"$to/\"\n"
    "    else\n"
    "        make \"$(dirname -- \"$to\")\"\n"
    "        cp -a -- \"$one\" \"$to\"\n"
    "    fi\n"
    "done\n";

/* No step of from..end wants it. */
static bool is_unused(const struct work *w, const char *archive, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        const char *other = e2b_recipe_archive(&w->recipe, i);
        if (other && strcmp(other, archive) == 0)
            return false;
    }
    return true;
}

static void copy_files(struct e2b_call *c)
{
    const struct work *w = c->work;
    char archive[E2B_PATH_MAX];
    bool is_last = is_unused(w, w->step.hash, w->at, w->recipe.n);
    e2b_archive_path(w->step.hash, archive);
    run(c,
        &(struct command){.argv = {"/bin/bash", "-c", copy_script, "copy", archive, w->step.text,
                                   w->step.to, w->step.owner, w->step.mode, is_last ? "1" : ""},
                          .user = "root",
                          .cwd = "/"},
        on_step);
}

/* A folder that is not there belongs to whoever works in it. */
static const char workdir_script[] =
    "[ -d \"$1\" ] || { mkdir -p -- \"$1\" && chown -- \"$2\" \"$1\"; }";

static void make_workdir(struct e2b_call *c)
{
    const struct work *w = c->work;
    const char *owner = strcmp(w->step.user, "root") == 0 ? "0:0" : "1000:1000";
    run(c,
        &(struct command){.argv = {"/bin/sh", "-c", workdir_script, "workdir", w->step.to, owner},
                          .user = "root",
                          .cwd = "/"},
        on_step);
}

static void do_step(struct e2b_call *c)
{
    const struct work *w = c->work;
    switch (w->step.kind) {
    case E2B_RUN:
        run(c,
            &(struct command){.argv = {"/bin/bash", "-l", "-c", w->step.text},
                              .user = w->step.user},
            on_step);
        break;
    case E2B_COPY:
        copy_files(c);
        break;
    case E2B_WORKDIR:
        make_workdir(c);
        break;
    case E2B_ENV:
    case E2B_USER:
        next_step(c);
        break;
    }
}

static void next_step(struct e2b_call *c)
{
    struct work *w = c->work;
    struct cl_err err = {0};
    char text[200];
    if (w->at == w->recipe.n) {
        finalize(c);
        return;
    }
    (void)snprintf(w->label, sizeof w->label, "%zu", ++w->at);
    if (e2b_recipe_step(&w->recipe, w->at - 1, &w->place, &w->step, &err) < 0) {
        fail(c, "%s", err.text);
        return;
    }
    e2b_step_text(&w->step, text, sizeof text);
    say(c, "[builder %zu/%zu] %s", w->at, w->recipe.n, text);
    do_step(c);
}

/* --- archives -----------------------------------------------------------------------------------
 *
 * All of them come before the first step, however long the steps take: then the other sandbox ends.
 */

static void next_archive(struct e2b_call *c);

static void on_written(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct work *w = c->work;
    (void)reply;
    w->to = NULL;
    if (err)
        fail(c, "step %zu: COPY: %s", w->at, err->text);
    else
        next_archive(c);
}

static void on_room(struct e2b_call *c, struct rpc_call *rpc)
{
    struct work *w = c->work;
    (void)rpc;
    if (w->from)
        rpc_call_pause(w->from, false);
    w->from = NULL;
}

/* Where the other side takes no more, its end says why. */
static void pass(struct work *w, const Cloche__V1__WriteRequest *m)
{
    if (w->to && (rpc_call_send(w->to, &m->base, NULL) < 0 || m->commit)) {
        rpc_call_close_send(w->to);
        w->to = NULL;
    }
}

static void on_piece(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    const Cloche__V1__ReadResponse *from = (const Cloche__V1__ReadResponse *)msg;
    Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
    struct work *w = c->work;
    m.data = from->data;
    pass(w, &m);
    if (!w->to || !rpc_call_is_full(w->to))
        return;
    w->from = rpc;
    rpc_call_pause(rpc, true);
}

static void fail_missing(struct e2b_call *c)
{
    const struct work *w = c->work;
    fail(c, "step %zu: COPY: its files were not uploaded", w->at);
}

static void on_read(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
    struct work *w = c->work;
    (void)reply;
    w->from = NULL;
    m.commit = true;
    if (err && err->code == CL_E_NOTFOUND)
        fail_missing(c);
    else if (err)
        fail(c, "step %zu: COPY: %s", w->at, err->text);
    else
        pass(w, &m);
}

static void read_archive(struct e2b_call *c, char *path)
{
    static const struct e2b_method read = E2B_RPC("FileService", "Read", read_response);
    Cloche__V1__ReadRequest m = CLOCHE__V1__READ_REQUEST__INIT;
    const struct work *w = c->work;
    m.sandbox_id = w->build->stage;
    m.path = path;
    m.user = e2b_pb("root");
    (void)!ask(c,
               &(struct e2b_ask){.method = &read,
                                 .request = &m.base,
                                 .timeout_ns = E2B_BUILD_S * CL_NS_PER_S,
                                 .on_message = on_piece,
                                 .on_end = on_read},
               NULL);
}

static void pass_archive(struct e2b_call *c, const char *hash)
{
    static const struct e2b_method write = E2B_RPC("FileService", "Write", write_response);
    Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
    struct work *w = c->work;
    char path[E2B_PATH_MAX];
    if (ask(c,
            &(struct e2b_ask){.method = &write,
                              .keep_open = true,
                              .timeout_ns = E2B_BUILD_S * CL_NS_PER_S,
                              .on_drain = on_room,
                              .on_end = on_written},
            &w->to) < 0)
        return;
    e2b_archive_path(hash, path);
    m.sandbox_id = w->box;
    m.path = path;
    m.user = e2b_pb("root");
    pass(w, &m);
    read_archive(c, path);
}

static void begin_steps(struct e2b_call *c)
{
    struct work *w = c->work;
    end_stage(c);
    w->at = 0;
    next_step(c);
}

/* Each of them once. */
static void next_archive(struct e2b_call *c)
{
    struct work *w = c->work;
    const char *hash = NULL;
    while (!hash && w->at < w->recipe.n) {
        hash = e2b_recipe_archive(&w->recipe, w->at++);
        if (hash && !is_unused(w, hash, 0, w->at - 1))
            hash = NULL;
    }
    if (!hash) {
        begin_steps(c);
        return;
    }
    (void)snprintf(w->label, sizeof w->label, "%zu", w->at);
    if (w->build->stage[0])
        pass_archive(c, hash);
    else
        fail_missing(c);
}

/* --- the base -----------------------------------------------------------------------------------
 */

static void create(struct e2b_call *c);

static void on_created(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct work *w = c->work;
    if (err && err->code == CL_E_DENIED && w->with_network) {
        w->with_network = false;
        w->is_cut_off = true;
        create(c);
        return;
    }
    if (err) {
        fail(c, "%s", err->text);
        return;
    }
    if (w->is_cut_off)
        say(c, "[base] without network: the tenant's limits have none");
    (void)snprintf(w->box, sizeof w->box, "%s",
                   ((const Cloche__V1__CreateResponse *)reply)->sandbox->id);
    next_archive(c);
}

static void create(struct e2b_call *c)
{
    static const struct e2b_method method = E2B_RPC("SandboxService", "Create", create_response);
    struct work *w = c->work;
    Cloche__V1__CreateRequest m = CLOCHE__V1__CREATE_REQUEST__INIT;
    Cloche__V1__Resources size = CLOCHE__V1__RESOURCES__INIT;
    Cloche__V1__Label label = CLOCHE__V1__LABEL__INIT, *labels[] = {&label};
    Cloche__V1__NetworkGrant grant = CLOCHE__V1__NETWORK_GRANT__INIT;
    char text[BUILD_NET], *rules[E2B_NETWORK_RULES], *rest = text;
    (void)snprintf(text, sizeof text, "%s", c->server->conf.build_net);
    while (grant.n_allow < E2B_NETWORK_RULES && (rules[grant.n_allow] = strsep(&rest, ",")) != NULL)
        grant.n_allow++;
    grant.allow = rules;
    w->place = w->origin.place;
    size.vcpus = w->build->vcpus;
    size.memory_mib = w->build->memory_mib;
    size.disk_mib = w->build->free_mib ? w->build->free_mib + STEPS_MIB : 0;
    label.key = e2b_pb(E2B_LABEL_BUILD);
    label.value = w->build->id;
    m.template_ = w->origin.template_;
    m.snapshot = w->origin.snapshot;
    m.resources = size.vcpus || size.memory_mib || size.disk_mib ? &size : NULL;
    if (w->with_network)
        m.network_grant = &grant;
    else if (w->origin.is_built && w->origin.has_network)
        m.network = CLOCHE__V1__NETWORK__NETWORK_NONE;
    m.labels = labels;
    m.n_labels = 1;
    m.ttl_ns = E2B_BUILD_IDLE_S * CL_NS_PER_S;
    (void)!ask(c,
               &(struct e2b_ask){.method = &method,
                                 .request = &m.base,
                                 .timeout_ns = CREATE_S * CL_NS_PER_S,
                                 .on_end = on_created},
               NULL);
}

/* A snapshot without a network card can have no network. */
static void begin(struct e2b_call *c)
{
    struct work *w = c->work;
    if (!w->origin.template_[0] && !w->origin.snapshot[0]) {
        fail(c,
             "no template here was made of the image '%.100s': on the host, `cloche template build "
             "NAME --image %.100s` makes one",
             w->recipe.image, w->recipe.image);
        return;
    }
    w->with_network =
        c->server->conf.build_net[0] && (!w->origin.snapshot[0] || w->origin.has_network);
    create(c);
}

static const struct web_transport transport = {.reply = on_reply};

static struct e2b_call *new_call(struct e2b_build *b, const struct e2b_call *asker,
                                 struct cl_err *err)
{
    static const struct e2b_route route = {.plane = PLANE_CONTROL};
    struct e2b_call *c;
    struct e2b_request in = {.traceparent = asker->in.traceparent};
    if (e2b_call_new(b->server, &in, &transport, b, &c, err) < 0)
        return NULL;
    c->in = (struct e2b_request){.can_stream = true};
    c->route = &route;
    c->user = "user";
    c->body = json_incref(asker->body);
    if (e2b_grant_make("", asker->grant->credential, "", c->grant, err) == 0)
        return c;
    e2b_call_leave(c);
    return NULL;
}

int e2b_build_run(struct e2b_build *b, const struct e2b_call *asker,
                  const struct e2b_recipe *recipe, struct cl_err *err)
{
    struct e2b_call *c = new_call(b, asker, err);
    if (!c)
        return -1;
    b->state = E2B_BUILD_RUNNING;
    cl_timer_stop(&b->timer);
    struct work *w = e2b_work_new(c, sizeof *w, cl_free);
    if (!w)
        return 0; /* the build has ended, and says so */
    w->build = b;
    w->recipe = *recipe;
    w->until_ns = cl_now_ns() + E2B_BUILD_S * CL_NS_PER_S;
    (void)snprintf(w->label, sizeof w->label, "base");
    say(c, "[base] FROM %.200s", recipe->base ? recipe->base : recipe->image);
    if (recipe->base)
        e2b_origin_find(c, recipe->base, &w->origin, begin);
    else
        e2b_origin_find_image(c, recipe->image, &w->origin, begin);
    return 0;
}
