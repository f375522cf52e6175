/* cli/run.c - `cloche run` and `cloche exec`: a command over there as if it were here. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/capture.h"
#include "cli/files.h"
#include "cli/follow.h"
#include "cli/output.h"
#include "cli/run.h"
#include "cli/spec.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "proto/copy.h"

enum { IDEMPOTENCY_TEXT = 33 };

/* A sandbox of `run --upload` lives at least this long without a call. */
#define UPLOAD_TTL_NS (600 * CL_NS_PER_S)

static void fresh_key(char out[static IDEMPOTENCY_TEXT])
{
    uint8_t bytes[16];
    cl_random(bytes, sizeof bytes);
    cl_hex(bytes, sizeof bytes, out);
}

/* --- following, and what is printed at the end
 * ---------------------------------------------------- */

static int follow_and_print(const struct cli_opts *o, struct client *client,
                            struct follow_spec *spec)
{
    struct cl_err err = {0};
    struct follow_result result;
    CL_AUTO(capture_fini) struct capture capture;
    capture_init(&capture);
    if (o->json)
        spec->capture = &capture;
    int rc = follow(client, spec, &result, &err);
    spec->capture = NULL;
    if (rc < 0) {
        pb_free(result.result ? &result.result->base : NULL);
        return cli_report_as(&err, EXIT_CLOCHE);
    }
    if (o->json)
        (void)out_json(capture_json(&capture, &result, spec->kind == FOLLOW_EXEC ? "exec" : "job"));
    int code = result.exit_code;
    pb_free(result.result ? &result.result->base : NULL);
    return code;
}

/* --- jobs
 * ------------------------------------------------------------------------------------------ */

static int run_detached(const struct cli_opts *o, struct client *client, struct spec *spec,
                        const char *key)
{
    static const struct client_method submit =
        CLIENT_METHOD("JobService", "Submit", submit_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    Cloche__V1__SubmitRequest req = CLOCHE__V1__SUBMIT_REQUEST__INIT;
    req.spec = &spec->job;
    req.idempotency_key = pb_text(key);
    if (client_unary(client, &submit, &req.base, 0, &msg, &err) < 0)
        return cli_report_as(&err, EXIT_CLOCHE);
    const Cloche__V1__SubmitResponse *r = (const Cloche__V1__SubmitResponse *)msg;
    if (o->json)
        (void)out_json(json_pack("{s:s, s:i, s:b}", "job", r->job_id, "queue_position",
                                 (int)r->queue_position, "replayed", r->replayed));
    else
        (void)puts(r->job_id);
    pb_free(msg);
    return EXIT_OK;
}

static int run_attached(const struct cli_opts *o, struct client *client, struct spec *spec,
                        const char *key)
{
    Cloche__V1__RunRequest req = CLOCHE__V1__RUN_REQUEST__INIT;
    req.spec = &spec->job;
    req.idempotency_key = pb_text(key);
    struct follow_spec f = {.kind = FOLLOW_RUN,
                            .run = &req,
                            .forward_stdin = spec->command.open_stdin,
                            .tty = o->tty,
                            .in_charge = true};
    return follow_and_print(o, client, &f);
}

/* --- execs
 * ----------------------------------------------------------------------------------------- */

static int run_exec(const struct cli_opts *o, struct client *client, struct spec *spec,
                    const char *sandbox)
{
    static const struct client_method start = CLIENT_METHOD("ExecService", "Start", start_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    Cloche__V1__StartRequest req = CLOCHE__V1__START_REQUEST__INIT;
    req.sandbox_id = pb_text(sandbox);
    req.command = &spec->command;
    req.n_labels = spec->job.n_labels;
    req.labels = spec->job.labels;
    req.kill_on_disconnect = !o->detach;
    if (client_unary(client, &start, &req.base, 0, &msg, &err) < 0)
        return cli_report_as(&err, EXIT_CLOCHE);
    const char *id = ((const Cloche__V1__StartResponse *)msg)->exec_id;
    struct follow_spec f = {.kind = FOLLOW_EXEC,
                            .sandbox_id = sandbox,
                            .exec_id = id,
                            .forward_stdin = spec->command.open_stdin,
                            .tty = o->tty,
                            .in_charge = true};
    int code = EXIT_OK;
    if (!o->detach)
        code = follow_and_print(o, client, &f);
    else if (o->json)
        code = out_json(json_pack("{s:s, s:s}", "exec", id, "sandbox", sandbox));
    else
        (void)puts(id);
    pb_free(msg);
    return code;
}

/* A job with files: a sandbox of its own, the upload, the command, the end. */
static int run_uploaded(const struct cli_opts *o, struct client *client, struct spec *spec)
{
    static const struct client_method create =
        CLIENT_METHOD("SandboxService", "Create", create_response);
    static const struct client_method end = CLIENT_METHOD("SandboxService", "Kill", kill_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    Cloche__V1__CreateRequest req = CLOCHE__V1__CREATE_REQUEST__INIT;
    req.template_ = spec->job.template_;
    req.snapshot = spec->job.snapshot;
    req.resources = &spec->resources;
    req.n_labels = spec->job.n_labels;
    req.labels = spec->job.labels;
    req.network = spec->job.network;
    req.network_grant = spec->job.network_grant;
    req.ttl_ns = o->timeout + UPLOAD_TTL_NS;
    if (o->detach) {
        (void)cl_fail(&err, CL_E_INVALID, 0,
                      "--detach and --upload exclude each other\nuse `cloche sandbox create`, `cp` "
                      "and `exec --detach`");
        return cli_report_as(&err, EXIT_CLOCHE);
    }
    if (client_unary(client, &create, &req.base, 0, &msg, &err) < 0)
        return cli_report_as(&err, EXIT_CLOCHE);
    const char *id = ((const Cloche__V1__CreateResponse *)msg)->sandbox->id;
    struct copy copy = {.client = client, .sandbox = id, .user = o->user, .recursive = true};
    int code = EXIT_CLOCHE;
    if (copy_up_content(&copy, o->upload, o->workdir ? o->workdir : ".", &err) < 0)
        (void)cli_report(&err);
    else
        code = run_exec(o, client, spec, id);
    Cloche__V1__KillRequest kill_req = CLOCHE__V1__KILL_REQUEST__INIT;
    kill_req.sandbox_id = pb_text(id);
    if (client_do(client, &end, &kill_req.base, &err) < 0)
        cli_say("the sandbox %s could not be ended (%s); it ends by itself", id, err.text);
    pb_free(msg);
    return code;
}

/* --- commands
 * ---------------------------------------------------------------------------------------- */

static int check_command(const struct args *a, struct cl_err *err)
{
    if (a->n_tail == 0)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "no command is given\nwrite it after `--`, as in: cloche run base -- echo hello");
    return 0;
}

int cmd_run(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    char own_key[IDEMPOTENCY_TEXT];
    CL_AUTO(spec_freep) struct spec *spec = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    const char *template;
    if (check_command(a, &err) < 0 || spec_template(o, a, &template, &err) < 0 ||
        spec_new(o, template, a, &spec, &err) < 0 || client_open(o, &client, &err) < 0)
        return cli_report_as(&err, EXIT_CLOCHE);
    fresh_key(own_key);
    const char *key = o->idempotency_key ? o->idempotency_key : own_key;
    if (o->upload)
        return run_uploaded(o, client, spec);
    return (o->detach ? run_detached : run_attached)(o, client, spec, key);
}

int cmd_exec(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    CL_AUTO(spec_freep) struct spec *spec = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    if (check_command(a, &err) < 0 || spec_new(o, NULL, a, &spec, &err) < 0 ||
        client_open(o, &client, &err) < 0)
        return cli_report_as(&err, EXIT_CLOCHE);
    return run_exec(o, client, spec, a->pos[0]);
}
