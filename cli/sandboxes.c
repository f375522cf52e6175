/* cli/sandboxes.c - sandboxes: create, list, get, kill, extend, pause, resume, fork; exec in them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/text.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/pages.h"
#include "cli/run.h"
#include "cli/spec.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "proto/copy.h"
#include "rpc/one_key.h"

enum {
    SANDBOX_PAGE = 100,
    FORKS_MAX = 64, /* of one command; a slip of the finger takes no more of the quota */
    CREATE_TIMEOUT_S = 180,
    PAUSE_TIMEOUT_S = 180,
    FORK_TIMEOUT_S = 180
};

static json_t *sandbox_json(const Cloche__V1__Sandbox *s)
{
    char left[VALUE_TEXT] = "", image[VALUE_TEXT] = "";
    uint64_t now = cl_wall_ns(), created = s->created ? s->created->unix_ns : 0,
             expires = s->expires ? s->expires->unix_ns : 0;
    json_t *labels = json_object();
    for (size_t i = 0; i < s->n_labels; i++)
        (void)json_object_set_new(labels, s->labels[i]->key, out_string(s->labels[i]->value));
    if (expires > now && s->state != CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED)
        value_age_text(expires - now, left);
    if (s->image_bytes)
        cl_text_bytes(s->image_bytes, image);
    const Cloche__V1__Resources *r = s->resources;
    json_t *allow = json_array();
    for (size_t i = 0; s->network_grant && i < s->network_grant->n_allow; i++)
        (void)json_array_append_new(allow, out_string(s->network_grant->allow[i]));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:i, s:i, "
                     "s:s, s:I, s:s, s:s}",
                     "id", s->id, "tenant", s->tenant, "template", s->template_, "state",
                     value_state((int)s->state), "created", out_time(created), "expires",
                     out_time(expires), "worker", s->worker_id, "driver", s->driver,
                     "guest_separation", value_separation((int)s->guest_separation), "reason",
                     value_reason((int)s->reason), "labels", labels, "network", allow, "left", left,
                     "vcpus", (int)(r ? r->vcpus : 0), "memory_mib", (int)(r ? r->memory_mib : 0),
                     "on_idle", value_idle_name((int)s->on_idle, s->wake_on_use), "image_bytes",
                     (json_int_t)s->image_bytes, "image", image, "forked_from", s->forked_from);
}

static int print_sandbox(const struct cli_opts *o, const Cloche__V1__Sandbox *s)
{
    static const struct out_col lines[] = {{"id", "id"},
                                           {"tenant", "tenant"},
                                           {"template", "template"},
                                           {"state", "state"},
                                           {"reason", "reason"},
                                           {"created", "created"},
                                           {"expires", "expires"},
                                           {"on_idle", "on idle"},
                                           {"image", "image"},
                                           {"forked_from", "forked from"},
                                           {"worker", "worker"},
                                           {"driver", "driver"},
                                           {"guest_separation", "guests"},
                                           {"network", "network"},
                                           {"vcpus", "vCPUs"},
                                           {"memory_mib", "MiB"}};
    return out_object(o->json, sandbox_json(s), lines, CL_COUNT(lines));
}

static int cmd_create(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method create =
        CLIENT_METHOD("SandboxService", "Create", create_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(spec_freep) struct spec *spec = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__CreateRequest req = CLOCHE__V1__CREATE_REQUEST__INIT;
    struct value_idle idle;
    const char *template;
    if (value_idle(o->on_idle, &idle, &err) < 0 || spec_template(o, a, &template, &err) < 0 ||
        spec_new(o, template, a, &spec, &err) < 0 || client_open(o, &client, &err) < 0)
        return cli_report(&err);
    req.template_ = spec->job.template_;
    req.snapshot = spec->job.snapshot;
    req.resources = &spec->resources;
    req.n_labels = spec->job.n_labels;
    req.labels = spec->job.labels;
    req.ttl_ns = o->ttl;
    req.on_idle = idle.action;
    req.wake_on_use = idle.wakes;
    req.network = spec->job.network;
    req.network_grant = spec->job.network_grant;
    req.idempotency_key = pb_text(o->idempotency_key);
    if (client_unary(client, &create, &req.base, CREATE_TIMEOUT_S * CL_NS_PER_S, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__Sandbox *s = ((const Cloche__V1__CreateResponse *)msg)->sandbox;
    if (o->json)
        (void)out_json(sandbox_json(s));
    else
        (void)puts(s->id);
    pb_free(msg);
    return EXIT_OK;
}

static int list_page(const struct cli_opts *o, const struct args *a, struct client *client,
                     char token[static VALUE_NAME], json_t *rows, struct cl_err *err)
{
    (void)a;
    static const struct client_method list =
        CLIENT_METHOD("SandboxService", "List", sandbox_service_list_response);
    Cloche__V1__SandboxServiceListRequest req = CLOCHE__V1__SANDBOX_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = SANDBOX_PAGE;
    req.page_token = token;
    req.include_ended = o->all;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__SandboxServiceListResponse *m =
        (const Cloche__V1__SandboxServiceListResponse *)msg;
    for (size_t i = 0; i < m->n_sandboxes; i++)
        (void)json_array_append_new(rows, sandbox_json(m->sandboxes[i]));
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int cmd_list(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {
        {"id", "ID"},       {"template", "TEMPLATE"}, {"state", "STATE"},  {"left", "LEFT"},
        {"image", "IMAGE"}, {"reason", "REASON"},     {"driver", "DRIVER"}};
    int code = EXIT_OK;
    json_t *rows = pages_all(o, a, list_page, 0, &code);
    return rows ? out_rows(o->json, rows, cols, CL_COUNT(cols)) : code;
}

static int cmd_get(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method get =
        CLIENT_METHOD("SandboxService", "Get", sandbox_service_get_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__SandboxServiceGetRequest req = CLOCHE__V1__SANDBOX_SERVICE_GET_REQUEST__INIT;
    req.sandbox_id = pb_text(a->pos[0]);
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &get, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    int code = print_sandbox(o, ((const Cloche__V1__SandboxServiceGetResponse *)msg)->sandbox);
    pb_free(msg);
    return code;
}

static int cmd_end(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method end = CLIENT_METHOD("SandboxService", "Kill", kill_response);
    struct cl_err err = {0};
    int code = EXIT_OK;
    CL_AUTO(client_freep) struct client *client = NULL;
    if (client_open(o, &client, &err) < 0)
        return cli_report(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < a->n_pos; i++) {
        Cloche__V1__KillRequest req = CLOCHE__V1__KILL_REQUEST__INIT;
        req.sandbox_id = pb_text(a->pos[i]);
        if (client_do(client, &end, &req.base, &err) < 0)
            code = cli_report(&err);
        else
            (void)json_array_append_new(rows, json_string(a->pos[i]));
    }
    if (o->json)
        (void)out_json(json_pack("{s:o}", "killed", rows));
    else
        json_decref(rows);
    return code;
}

static int cmd_extend(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method extend =
        CLIENT_METHOD("SandboxService", "Extend", extend_response);
    static const struct out_col lines[] = {{"expires", "expires"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__ExtendRequest req = CLOCHE__V1__EXTEND_REQUEST__INIT;
    req.sandbox_id = pb_text(a->pos[0]);
    req.ttl_ns = o->ttl;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &extend, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__ExtendResponse *m = (const Cloche__V1__ExtendResponse *)msg;
    int code = out_object(o->json,
                          json_pack("{s:s, s:o}", "id", a->pos[0], "expires",
                                    out_time(m->expires ? m->expires->unix_ns : 0)),
                          lines, CL_COUNT(lines));
    pb_free(msg);
    return code;
}

static int cmd_pause(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method pause =
        CLIENT_METHOD("SandboxService", "Pause", pause_response);
    static const struct out_col lines[] = {
        {"id", "id"}, {"state", "state"}, {"image", "image"}, {"expires", "kept until"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__PauseRequest req = CLOCHE__V1__PAUSE_REQUEST__INIT;
    req.sandbox_id = pb_text(a->pos[0]);
    req.keep_ns = o->keep;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &pause, &req.base, PAUSE_TIMEOUT_S * CL_NS_PER_S, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__Sandbox *s = ((const Cloche__V1__PauseResponse *)msg)->sandbox;
    int code = out_object(o->json, sandbox_json(s), lines, CL_COUNT(lines));
    pb_free(msg);
    return code;
}

static int cmd_resume(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method resume =
        CLIENT_METHOD("SandboxService", "Resume", resume_response);
    static const struct out_col lines[] = {
        {"id", "id"}, {"state", "state"}, {"was_paused", "was paused"}, {"expires", "expires"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__ResumeRequest req = CLOCHE__V1__RESUME_REQUEST__INIT;
    req.sandbox_id = pb_text(a->pos[0]);
    req.ttl_ns = o->ttl;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &resume, &req.base, PAUSE_TIMEOUT_S * CL_NS_PER_S, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__ResumeResponse *m = (const Cloche__V1__ResumeResponse *)msg;
    json_t *row = sandbox_json(m->sandbox);
    (void)json_object_set_new(row, "was_paused", json_boolean(m->was_paused));
    int code = out_object(o->json, row, lines, CL_COUNT(lines));
    pb_free(msg);
    return code;
}

/* One a line and at once: who reads them can begin with the first while the next one is made. */
static int put_fork(const struct cli_opts *o, const Cloche__V1__Sandbox *s, struct cl_err *err)
{
    if (o->json) {
        json_t *row = sandbox_json(s);
        (void)json_dumpf(row, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(row);
    } else {
        (void)puts(s->id);
    }
    return fflush(stdout) == 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "print '%s'", s->id);
}

/* Counts what was made, also when it cannot be printed. */
static int fork_once(const struct cli_opts *o, struct client *client,
                     const Cloche__V1__ForkRequest *req, uint64_t *made, struct cl_err *err)
{
    static const struct client_method method =
        CLIENT_METHOD("SandboxService", "Fork", fork_response);
    ProtobufCMessage *msg = NULL;
    if (client_unary(client, &method, &req->base, FORK_TIMEOUT_S * CL_NS_PER_S, &msg, err) < 0)
        return -1;
    *made += 1;
    int rc = put_fork(o, ((const Cloche__V1__ForkResponse *)msg)->sandbox, err);
    pb_free(msg);
    return rc;
}

/* Before anything is made: the count, and the key of the last one, which is the longest. */
static int check_forks(const struct cli_opts *o, char key[static RPC_KEY], struct cl_err *err)
{
    if (o->count < 1 || o->count > FORKS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "--count: between 1 and %d", FORKS_MAX);
    return rpc_nth_key(o->idempotency_key, o->count, key, err);
}

static int cmd_fork(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    char key[RPC_KEY], moment[RPC_WORD] = "";
    uint64_t made = 0;
    CL_AUTO(spec_freep) struct spec *spec = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__ForkRequest req = CLOCHE__V1__FORK_REQUEST__INIT;
    if (check_forks(o, key, &err) < 0 || spec_new(o, NULL, a, &spec, &err) < 0 ||
        client_open(o, &client, &err) < 0)
        return cli_report(&err);
    req.sandbox_id = pb_text(a->pos[0]);
    req.ttl_ns = o->ttl;
    req.n_labels = spec->job.n_labels;
    req.labels = spec->job.labels;
    req.idempotency_key = key;
    if (o->count > 1) /* then the sandbox stands still once */
        rpc_word(o->idempotency_key, moment);
    req.moment = moment;
    while (made < o->count) {
        if (rpc_nth_key(o->idempotency_key, made + 1, key, &err) == 0 &&
            fork_once(o, client, &req, &made, &err) == 0)
            continue;
        if (made > 0)
            (void)cl_wrap(&err, "made %" PRIu64 " of %" PRIu64 " forks", made, o->count);
        return cli_report(&err);
    }
    return EXIT_OK;
}

static const struct arg_opt create_opts[] = {
    OPT_JSON,
    OPTS_RESOURCES,
    {"ttl", 0, ARG_DURATION, OPT(ttl), "10m",
     "idle time after which it ends (default 300 s, at most 24 h)"},
    {"on-idle", 0, ARG_STRING, OPT(on_idle), "WHAT",
     "after that time: end (default); pause: paused when idle, and woken by the next use; or "
     "pause-until-resumed; paused ones are kept for 24 h"},
    {"label", 'l', ARG_LIST, OPT(labels), "k=v", "a label; repeatable"},
    {"idempotency-key", 0, ARG_STRING, OPT(idempotency_key), "KEY",
     "the same key within 24 h is the same sandbox"},
};
static const struct arg_opt list_opts[] = {
    OPT_JSON, {"all", 'a', ARG_FLAG, OPT(all), NULL, "ended ones too"}};
static const struct arg_opt json_opts[] = {OPT_JSON};
static const struct arg_opt extend_opts[] = {
    OPT_JSON,
    {"ttl", 0, ARG_DURATION, OPT(ttl), "10m", "time to live from now on (default 300 s)"}};
static const struct arg_opt pause_opts[] = {
    OPT_JSON,
    {"keep", 0, ARG_DURATION, OPT(keep), "7d",
     "how long it is kept before it ends (default 24h, at most 30d)"}};
static const struct arg_opt resume_opts[] = {
    OPT_JSON,
    {"ttl", 0, ARG_DURATION, OPT(ttl), "10m",
     "idle time to live from now on (default: as before, at most 24 h)"}};
static const struct arg_opt fork_opts[] = {
    OPT_JSON,
    {"count", 'n', ARG_U64, OPT(count), "N",
     "how many to make, all of one moment, 1-64 (default 1)"},
    {"ttl", 0, ARG_DURATION, OPT(ttl), "10m",
     "idle time after which each ends (default: that of SANDBOX, at most 24 h)"},
    {"label", 'l', ARG_LIST, OPT(labels), "k=v", "a label; repeatable"},
    {"idempotency-key", 0, ARG_STRING, OPT(idempotency_key), "KEY",
     "the same key within 24 h is the same sandboxes"},
};
static const struct arg_opt exec_opts[] = {OPTS_COMMAND};

const struct cli_command sandbox_commands[] = {
    {"exec", "[OPTIONS] SANDBOX -- COMMAND [ARG...]", "run a command in a sandbox",
     "The options and exit codes are those of `cloche run`.\n\n"
     "  cloche exec sbx_01... -- ls -l /tmp\n  cloche exec -it sbx_01... -- bash\n",
     SPEC_TAIL(exec_opts, 1, 1), cmd_exec, true},
    {"sandbox create", "[OPTIONS] [TEMPLATE]", "start a sandbox and print its id",
     "  id=$(cloche sandbox create python --ttl 10m)\n"
     "  id=$(cloche sandbox create python --on-idle pause)   # idle: at rest, until it is used\n"
     "  id=$(cloche sandbox create --snapshot with-wheels)   # of `cloche snapshot create`\n",
     SPEC(create_opts, 0, 1), cmd_create, false},
    {"sandbox list", "[--all] [--json]", "list sandboxes", NULL, SPEC(list_opts, 0, 0), cmd_list,
     false},
    {"sandbox get", "SANDBOX", "look at a sandbox", NULL, SPEC(json_opts, 1, 1), cmd_get, false},
    {"sandbox kill", "SANDBOX...", "end sandboxes", NULL, SPEC(json_opts, 1, ARGS_POS), cmd_end,
     false},
    {"sandbox extend", "--ttl 10m SANDBOX", "set a sandbox's time to live", NULL,
     SPEC(extend_opts, 1, 1), cmd_extend, false},
    {"sandbox pause", "[--keep 7d] SANDBOX", "put a sandbox to rest, with all that it holds",
     "Its memory goes to its worker's disk, encrypted; processes, files and the variables of "
     "`cloche\n"
     "repl` are kept, and nothing runs.  It holds no vCPU, memory or sandbox of the quota then, "
     "but\n"
     "its image, of some MiB, as disk.  Commands that run stand still and go on when it does; "
     "connections\n"
     "of its network end.  It ends when its time is over, with the next start of its host, or with "
     "an\n"
     "upgrade of its monitor.  Meanwhile it can be forked: prepared once, it is a template of "
     "one's "
     "own.\n\n"
     "  cloche sandbox pause sbx_01...\n"
     "  cloche sandbox pause --keep 7d sbx_01...       # a week instead of a day\n"
     "  cloche sandbox list --json | jq '.[] | select(.state == \"paused\").id'\n",
     SPEC(pause_opts, 1, 1), cmd_pause, false},
    {"sandbox resume", "[--ttl 10m] SANDBOX", "let a paused sandbox go on where it was",
     "One that runs just goes on; with --ttl that is `cloche sandbox extend`.  When the quota or "
     "its\n"
     "worker has no room for it now, it stays paused.\n\n"
     "  cloche sandbox resume sbx_01... && cloche exec sbx_01... -- uptime\n"
     "  cloche sandbox resume --ttl 1h sbx_01...\n",
     SPEC(resume_opts, 1, 1), cmd_resume, false},
    {"sandbox fork", "[OPTIONS] SANDBOX", "make running copies of a sandbox as it is now",
     "A copy has the memory, processes, files and variables of `cloche repl` that SANDBOX has at "
     "that\n"
     "moment; both go on from there, and neither sees what the other does.  It counts against the "
     "quota\n"
     "as one that is created.  Prints each id, or with --json each sandbox, as a line when it "
     "runs.\n\n"
     "With --count the copies are made one after the other, all of one moment: SANDBOX stands\n"
     "still once, and what it does after that is in none of them.  When one cannot be made, those\n"
     "before it have been printed and stay; the error says how many they are.\n\n"
     "One that is paused stays so: its copies begin where it rests.\n\n"
     "  id=$(cloche sandbox fork sbx_01...)\n"
     "  for id in $(cloche sandbox fork -n 4 sbx_01...); do cloche exec $id -- ./try; done\n"
     "  cloche sandbox list --json | jq '.[] | select(.forked_from == \"sbx_01...\").id'\n",
     SPEC(fork_opts, 1, 1), cmd_fork, false},
    {"rm", "SANDBOX...", "end sandboxes and drop what they hold", NULL,
     SPEC(json_opts, 1, ARGS_POS), cmd_end, false},
};
const size_t sandbox_commands_n = CL_COUNT(sandbox_commands);
