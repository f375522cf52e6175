/* cli/jobs.c - jobs: run, ps, logs, kill. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/capture.h"
#include "cli/client.h"
#include "cli/follow.h"
#include "cli/output.h"
#include "cli/pages.h"
#include "cli/run.h"
#include "cli/values.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "proto/copy.h"

enum { PS_PAGE = 100, PS_ALL_MAX = 100000 };

/* --- ps ------------------------------------------------------------------------------------------
 */

static json_t *argv_json(const Cloche__V1__Job *job)
{
    json_t *list = json_array();
    const Cloche__V1__Command *c = job->spec ? job->spec->command : NULL;
    for (size_t i = 0; c && i < c->n_argv; i++)
        (void)json_array_append_new(list, out_string(c->argv[i]));
    return list;
}

static json_t *labels_json(const Cloche__V1__Job *job)
{
    json_t *o = json_object();
    for (size_t i = 0; job->spec && i < job->spec->n_labels; i++)
        (void)json_object_set_new(o, job->spec->labels[i]->key,
                                  out_string(job->spec->labels[i]->value));
    return o;
}

static uint64_t ns_of(const Cloche__V1__Time *t)
{
    return t ? t->unix_ns : 0;
}

static json_t *job_json(const Cloche__V1__Job *job)
{
    char age[VALUE_TEXT] = "", ended[VALUE_TEXT + 8] = "";
    uint64_t now = cl_wall_ns(), created = ns_of(job->created);
    value_age_text(now > created ? now - created : 0, age);
    if (job->result)
        (void)snprintf(ended, sizeof ended, "%d", value_exit_code(job->result));
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s}",
        "id", job->id, "tenant", job->tenant, "kind", "job", "template",
        job->spec ? job->spec->template_ : "", "state", value_state((int)job->state), "attempt",
        (int)job->attempt, "created", out_time(created), "started", out_time(ns_of(job->started)),
        "ended", out_time(ns_of(job->ended)), "worker", job->worker_id, "driver", job->driver,
        "guest_separation", value_separation((int)job->guest_separation), "argv", argv_json(job),
        "labels", labels_json(job), "result", job->result ? result_json(job->result) : json_null(),
        "age", age, "exit", ended);
}

/* One page; adds its rows that are wanted. */
static int ps_page(const struct cli_opts *o, const struct args *a, struct client *client,
                   char token[static VALUE_NAME], json_t *rows, struct cl_err *err)
{
    (void)a;
    static const struct client_method list = CLIENT_METHOD("JobService", "List", list_response);
    Cloche__V1__ListRequest req = CLOCHE__V1__LIST_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = PS_PAGE;
    req.page_token = token;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__ListResponse *m = (const Cloche__V1__ListResponse *)msg;
    for (size_t i = 0; i < m->n_jobs; i++)
        if (o->all || m->jobs[i]->state != CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED)
            (void)json_array_append_new(rows, job_json(m->jobs[i]));
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int cmd_ps(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {{"id", "ID"},
                                          {"template", "TEMPLATE"},
                                          {"state", "STATE"},
                                          {"exit", "EXIT"},
                                          {"age", "AGE"},
                                          {"driver", "DRIVER"},
                                          {"guest_separation", "GUESTS"},
                                          {"argv", "COMMAND"}};
    int code = EXIT_OK;
    json_t *rows = pages_all(o, a, ps_page, PS_ALL_MAX, &code);
    return rows ? out_rows(o->json, rows, cols, CL_COUNT(cols)) : code;
}

/* --- logs
 * ------------------------------------------------------------------------------------------ */

static int cmd_logs(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct follow_result result;
    CL_AUTO(client_freep) struct client *client = NULL;
    struct follow_spec spec = {.kind = FOLLOW_WATCH, .job_id = a->pos[0], .no_follow = !o->follow};
    CL_AUTO(capture_fini) struct capture capture;
    capture_init(&capture);
    if (o->json)
        spec.capture = &capture;
    if (client_open(o, &client, &err) < 0 || follow(client, &spec, &result, &err) < 0)
        return cli_report(&err);
    if (o->json)
        (void)out_json(capture_json(&capture, &result, "job"));
    int code = result.interrupted ? result.exit_code : EXIT_OK;
    pb_free(result.result ? &result.result->base : NULL);
    return code;
}

/* --- kill
 * ------------------------------------------------------------------------------------------ */

static int kill_one(struct client *client, const char *id, struct cl_err *err)
{
    static const struct client_method cancel =
        CLIENT_METHOD("JobService", "Cancel", cancel_response);
    static const struct client_method end = CLIENT_METHOD("SandboxService", "Kill", kill_response);
    if (strncmp(id, "sbx_", 4) == 0) {
        Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
        m.sandbox_id = pb_text(id);
        return client_do(client, &end, &m.base, err);
    }
    if (strncmp(id, "snp_", 4) == 0)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "'%.40s' is a snapshot, in which nothing runs\n`cloche snapshot rm` deletes it", id);
    Cloche__V1__CancelRequest m = CLOCHE__V1__CANCEL_REQUEST__INIT;
    m.job_id = pb_text(id);
    return client_do(client, &cancel, &m.base, err);
}

static int cmd_kill(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    CL_AUTO(client_freep) struct client *client = NULL;
    int code = EXIT_OK;
    if (client_open(o, &client, &err) < 0)
        return cli_report(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < a->n_pos; i++) {
        if (kill_one(client, a->pos[i], &err) < 0)
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

/* --- rows
 * ------------------------------------------------------------------------------------------ */

static const struct arg_opt run_opts[] = {
    OPTS_COMMAND,
    OPTS_RESOURCES,
    {"upload", 0, ARG_STRING, OPT(upload), "DIR",
     "copy what is in DIR into the working folder first"},
    {"retry", 0, ARG_U64, OPT(retry), "N", "start it again up to N times when its worker is lost"},
    {"queue-wait", 0, ARG_DURATION, OPT(queue_wait), "1m",
     "wait this long for quota instead of being refused"},
    {"idempotency-key", 0, ARG_STRING, OPT(idempotency_key), "KEY",
     "the same key within 24 h is the same job"},
};
static const struct arg_opt ps_opts[] = {OPT_JSON,
                                         {"all", 'a', ARG_FLAG, OPT(all), NULL, "ended ones too"}};
static const struct arg_opt logs_opts[] = {
    OPT_JSON, {"follow", 'f', ARG_FLAG, OPT(follow), NULL, "stay until it ends"}};
static const struct arg_opt json_opts[] = {OPT_JSON};

const struct cli_command job_commands[] = {
    {"run", "[OPTIONS] [TEMPLATE] -- COMMAND [ARG...]", "run a command in a fresh microVM",
     "Output, stdin, exit code and Ctrl-C are those of the command.\n\n"
     "  cloche run python -- python3 -c 'print(6*7)'\n"
     "  echo hello | cloche run base -- tr a-z A-Z\n"
     "  cloche run -it python -- bash\n"
     "  cloche run --upload . --timeout 2m --memory 1GiB python -- python3 main.py\n"
     "  id=$(cloche run --detach base -- sleep 60); cloche logs -f $id\n"
     "  cloche run --snapshot with-wheels -- python3 main.py\n\n"
     "Exit codes: the command's own; 128+n when signal n ended it; 124 at its time limit;\n"
     "125 when Cloche failed or refused; 126 not executable; 127 not found; 130 after Ctrl-C.\n",
     SPEC_TAIL(run_opts, 0, 1), cmd_run, true},
    {"ps", "[--all] [--json]", "list jobs", "  cloche ps --all --json | jq '.[].id'\n",
     SPEC(ps_opts, 0, 0), cmd_ps, false},
    {"logs", "[-f] JOB", "show a job's output", "  cloche logs -f job_01...\n",
     SPEC(logs_opts, 1, 1), cmd_logs, false},
    {"kill", "ID...", "end jobs or sandboxes", "  cloche kill job_01... sbx_01...\n",
     SPEC(json_opts, 1, ARGS_POS), cmd_kill, false},
};
const size_t job_commands_n = CL_COUNT(job_commands);
