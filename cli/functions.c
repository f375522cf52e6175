/* cli/functions.c - functions: create, list, rm; and `call`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/capture.h"
#include "cli/cell.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/pages.h"
#include "cli/run.h"
#include "cli/snapshots.h"
#include "cli/spec.h"
#include "cloche/v1/function.pb-c.h"
#include "proto/copy.h"

enum {
    SOURCE_MAX = 1024 * 1024,
    CALL_TIMEOUT_S = 60,  /* the service's default */
    LOAD_TIMEOUT_S = 300, /* the same of a source */
};

/* A file, or stdin for "-", as text with its NUL. */
static int read_text(const char *path, struct cl_buf *text, struct cl_err *err)
{
    if (strcmp(path, "-") == 0)
        path = "/dev/stdin";
    if (cl_file_read(AT_FDCWD, path, text, err) < 0)
        return -1;
    if (text->len && memchr(text->data, '\0', text->len))
        return cl_fail(err, CL_E_INVALID, 0, "'%s' holds a NUL: it is no text", path);
    return cl_buf_append(text, "", 1, err);
}

static json_t *text_json(const ProtobufCBinaryData *bytes)
{
    struct capture c;
    capture_init(&c);
    if (bytes->len > 0)
        capture_add(&c, 0, bytes->data, bytes->len);
    json_t *text = capture_text(&c, 0);
    capture_fini(&c);
    return text;
}

/* For people; the result alone is on stdout. */
static void show_run(const ProtobufCBinaryData streams[static 2],
                     const Cloche__V1__CellError *error, Cloche__V1__CellOutcome outcome,
                     const char *message)
{
    bool expected = outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK ||
                    outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_ERROR;
    for (size_t i = 0; i < 2; i++)
        if (streams[i].len > 0)
            (void)fwrite(streams[i].data, 1, streams[i].len, stderr);
    if (error)
        cell_show_error(error);
    if (!expected || message[0])
        cli_say("it ended: %s%s%s", cell_outcome_text(outcome), message[0] ? ", " : "", message);
}

static int read_language(const char *name, Cloche__V1__Language *ret_language, struct cl_err *err)
{
    *ret_language = cell_language(name);
    return *ret_language
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "--language %s: python or javascript", name);
}

/* --- create ------------------------------------------------------------------------------------
 */

static const char *language_of_file(const char *path)
{
    size_t n = strlen(path);
    bool js =
        (n > 3 && strcmp(path + n - 3, ".js") == 0) || (n > 4 && strcmp(path + n - 4, ".mjs") == 0);
    return js ? "javascript" : "python";
}

static int show_created(const struct cli_opts *o,
                        const Cloche__V1__FunctionServiceCreateResponse *m)
{
    int code = m->function ? EXIT_OK : cell_exit_code(m->outcome, 0);
    if (o->json) {
        json_t *made = m->function ? snapshot_json(m->function) : json_null();
        (void)out_json(json_pack("{s:o, s:s, s:o, s:s, s:o, s:o}", "function", made, "outcome",
                                 cell_outcome_text(m->outcome), "error", cell_error_json(m->error),
                                 "message", m->message, "stdout", text_json(&m->stdout), "stderr",
                                 text_json(&m->stderr)));
        return code;
    }
    show_run((ProtobufCBinaryData[]){m->stdout, m->stderr}, m->error, m->outcome, m->message);
    if (m->function)
        (void)puts(m->function->id);
    return code;
}

static int cmd_create(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method create =
        CLIENT_METHOD("FunctionService", "Create", function_service_create_response);
    Cloche__V1__FunctionServiceCreateRequest req =
        CLOCHE__V1__FUNCTION_SERVICE_CREATE_REQUEST__INIT;
    CL_AUTO(spec_freep) struct spec *spec = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    struct cl_err err = {0};
    struct cl_buf source;
    ProtobufCMessage *msg = NULL;
    uint64_t load_ns = o->timeout ? o->timeout : LOAD_TIMEOUT_S * CL_NS_PER_S;
    int code;
    cl_buf_init(&source, SOURCE_MAX + 1);
    const char *language = o->language ? o->language : language_of_file(a->pos[1]);
    if (read_language(language, &req.language, &err) < 0 ||
        read_text(a->pos[1], &source, &err) < 0 || spec_new(o, o->template, a, &spec, &err) < 0 ||
        client_open(o, &client, &err) < 0) {
        code = cli_report(&err);
    } else {
        req.name = pb_text(a->pos[0]);
        req.source = (char *)source.data;
        req.entry = pb_text(o->entry);
        req.template_ = pb_text(o->template);
        req.snapshot = pb_text(o->snapshot);
        req.resources = spec->job.resources;
        req.network_grant = spec->job.network_grant;
        req.n_labels = spec->job.n_labels;
        req.labels = spec->job.labels;
        req.keep_ns = o->keep;
        req.replace = o->replace;
        req.timeout_ns = o->timeout;
        if (client_unary(client, &create, &req.base, load_ns + SNAPSHOT_TIMEOUT_S * CL_NS_PER_S,
                         &msg, &err) < 0)
            code = cli_report(&err);
        else
            code = show_created(o, (const Cloche__V1__FunctionServiceCreateResponse *)msg);
    }
    if (msg)
        pb_free(msg);
    cl_buf_fini(&source);
    return code;
}

/* --- list --------------------------------------------------------------------------------------
 */

/* Those of the snapshots that are one, with what it calls beside the rest. */
static json_t *only_functions(json_t *snapshots)
{
    json_t *rows = json_array(), *row;
    size_t i;
    json_array_foreach(snapshots, i, row)
    {
        json_t *function = json_object_get(row, "function");
        if (!json_is_object(function))
            continue;
        (void)json_object_update_missing(row, function);
        (void)json_array_append(rows, row);
    }
    json_decref(snapshots);
    return rows;
}

static int cmd_list(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {
        {"name", "NAME"}, {"entry", "ENTRY"}, {"language", "LANGUAGE"}, {"template", "TEMPLATE"},
        {"age", "AGE"},   {"left", "LEFT"},   {"image", "IMAGE"},       {"id", "ID"}};
    int code = EXIT_OK;
    json_t *rows = pages_all(o, a, snapshot_page, 0, &code);
    return rows ? out_rows(o->json, only_functions(rows), cols, CL_COUNT(cols)) : code;
}

/* --- call --------------------------------------------------------------------------------------
 */

/* Each word that is JSON is that, every other one a string. */
static char *words_json(const struct args *a)
{
    json_t *list = json_array();
    for (size_t i = 1; i < a->n_pos; i++) {
        json_t *value = json_loads(a->pos[i], JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
        (void)json_array_append_new(list, value ? value : out_string(a->pos[i]));
    }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

static int fill_arguments(const struct cli_opts *o, const struct args *a, struct cl_buf *text,
                          struct cl_err *err)
{
    if (o->arguments && a->n_pos > 1)
        return cl_fail(err, CL_E_INVALID, 0, "--args or arguments of its own: one of them");
    if (o->arguments && strcmp(o->arguments, "-") == 0)
        return read_text("-", text, err);
    char *words = o->arguments ? NULL : words_json(a);
    const char *json = o->arguments ? o->arguments : words ? words : "";
    int rc = cl_buf_append(text, json, strlen(json) + 1, err);
    free(words); /* jansson's */
    return rc;
}

static int show_called(const struct cli_opts *o, const Cloche__V1__CallResponse *m)
{
    if (o->json) {
        json_t *result =
            m->result[0] ? json_loads(m->result, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        (void)out_json(
            json_pack("{s:s, s:o, s:o, s:s, s:o, s:o, s:I, s:I, s:I, s:s}", "outcome",
                      cell_outcome_text(m->outcome), "result", result ? result : json_null(),
                      "error", cell_error_json(m->error), "message", m->message, "stdout",
                      text_json(&m->stdout), "stderr", text_json(&m->stderr), "stdout_bytes",
                      (json_int_t)(m->stdout_total ? m->stdout_total->bytes : 0), "stderr_bytes",
                      (json_int_t)(m->stderr_total ? m->stderr_total->bytes : 0), "wall_ns",
                      (json_int_t)m->wall_ns, "sandbox", m->sandbox_id));
        return cell_exit_code(m->outcome, 0);
    }
    show_run((ProtobufCBinaryData[]){m->stdout, m->stderr}, m->error, m->outcome, m->message);
    if (m->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK)
        (void)puts(m->result);
    return cell_exit_code(m->outcome, 0);
}

static int cmd_call(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method call =
        CLIENT_METHOD("FunctionService", "Call", call_response);
    Cloche__V1__CallRequest req = CLOCHE__V1__CALL_REQUEST__INIT;
    CL_AUTO(client_freep) struct client *client = NULL;
    struct cl_err err = {0};
    struct cl_buf arguments;
    ProtobufCMessage *msg = NULL;
    uint64_t limit_ns = o->timeout ? o->timeout : CALL_TIMEOUT_S * CL_NS_PER_S;
    int code;
    cl_buf_init(&arguments, SOURCE_MAX + 1);
    req.function = pb_text(a->pos[0]);
    req.entry = pb_text(o->entry);
    req.timeout_ns = o->timeout;
    if ((o->language && read_language(o->language, &req.language, &err) < 0) ||
        fill_arguments(o, a, &arguments, &err) < 0 || client_open(o, &client, &err) < 0) {
        code = cli_report(&err);
    } else {
        req.arguments = (char *)arguments.data;
        if (client_unary(client, &call, &req.base, limit_ns + SNAPSHOT_TIMEOUT_S * CL_NS_PER_S,
                         &msg, &err) < 0)
            code = cli_report_as(&err, EXIT_CLOCHE);
        else
            code = show_called(o, (const Cloche__V1__CallResponse *)msg);
    }
    if (msg)
        pb_free(msg);
    cl_buf_fini(&arguments);
    return code;
}

/* --- the table ---------------------------------------------------------------------------------
 */

static const struct arg_opt create_opts[] = {
    OPT_JSON,
    {"entry", 0, ARG_STRING, OPT(entry), "FUNCTION",
     "what a call calls (default: NAME, with _ for what it cannot have)"},
    {"template", 0, ARG_STRING, OPT(template), "NAME",
     "what FILE is loaded in (default python), unless that is a --snapshot"},
    {"language", 0, ARG_STRING, OPT(language), "NAME",
     "python or javascript (default: by FILE's suffix)"},
    {"timeout", 0, ARG_DURATION, OPT(timeout), "30s", "for loading it (default 300s)"},
    {"replace", 0, ARG_FLAG, OPT(replace), NULL,
     "take NAME from whoever has it, once this one is there"},
    {"keep", 0, ARG_DURATION, OPT(keep), "7d",
     "how long it is kept after its last call (default 30d, which is the most)"},
    {"label", 'l', ARG_LIST, OPT(labels), "k=v", "a label; repeatable"},
    OPTS_RESOURCES,
};
static const struct arg_opt list_opts[] = {
    OPT_JSON, {"all", 'a', ARG_FLAG, OPT(all), NULL, "ended ones too"}};
static const struct arg_opt json_opts[] = {OPT_JSON};
static const struct arg_opt call_opts[] = {
    OPT_JSON,
    {"args", 0, ARG_STRING, OPT(arguments), "JSON",
     "all arguments: an array, or an object for arguments by name; - reads stdin"},
    {"entry", 0, ARG_STRING, OPT(entry), "FUNCTION", "another function of the same code"},
    {"timeout", 0, ARG_DURATION, OPT(timeout), "30s", "interrupt it after this long (default 60s)"},
    {"language", 0, ARG_STRING, OPT(language), "NAME", "of a snapshot that is no function"},
};

const struct cli_command function_commands[] = {
    {"call", "[OPTIONS] FUNCTION [ARGUMENT...]", "call a function in a virtual machine of its own",
     "Each ARGUMENT that is JSON is that value, every other one a string. What it returns is on "
     "stdout as\n"
     "JSON; what it prints is on stderr. FUNCTION is one of `cloche function list`, or any "
     "snapshot, with\n"
     "--entry for what to call in it.\n\n"
     "  cloche call add 2 3\n"
     "  cloche call add --args '{\"a\": 2, \"b\": 3}'\n"
     "  cloche call resize --args - < request.json | jq .width\n\n"
     "Exit code: 0, 1 when it raised, 124 at the time limit, 125 when Cloche failed or refused.\n",
     SPEC(call_opts, 1, ARGS_POS), cmd_call, true},
    {"function create", "[OPTIONS] NAME FILE", "load code once, to call its functions later",
     "FILE (- is stdin) runs in a new sandbox, which is kept as snapshot NAME: imports, models "
     "and\n"
     "variables are there, in each call anew. A call takes milliseconds, and what it leaves behind "
     "no\n"
     "other call can see.\n\n"
     "  printf 'def add(a, b):\\n    return a + b\\n' > add.py\n"
     "  cloche function create add add.py && cloche call add 2 3\n",
     SPEC(create_opts, 2, 2), cmd_create, false},
    {"function list", "[--all] [--json]", "list functions", NULL, SPEC(list_opts, 0, 0), cmd_list,
     false},
    {"function rm", "FUNCTION...", "delete functions; calls under way go on", NULL,
     SPEC(json_opts, 1, ARGS_POS), snapshot_rm, false},
};
const size_t function_commands_n = CL_COUNT(function_commands);
