/* mcp/alias.c - see mcp/alias.h. */
#include "mcp/alias.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

/* --- arguments ----------------------------------------------------------------------------------
 */

static void copy(const json_t *theirs, const char *name, json_t *ours, const char *as)
{
    json_t *value = json_object_get(theirs, name);
    if (value)
        (void)json_object_set(ours, as, value);
}

/* A sandbox has a name that its owner gave it; the id is as good. */
static void fit_place(struct mcp_call *c, const json_t *theirs, json_t *ours)
{
    const char *name = mcp_json_text(theirs, "sandbox"),
               *space = mcp_json_text(theirs, "namespace");
    if (cl_id_is(name, "sbx"))
        mcp_json_set(ours, "sandbox_id", json_string(name));
    else
        mcp_box_name(c, space ? space : "default", name);
}

static void fit_start(struct mcp_call *c, const json_t *theirs, json_t *ours)
{
    const json_t *config = json_object_get(theirs, "config");
    fit_place(c, theirs, ours);
    copy(config, "image", ours, "template");
    copy(config, "memory", ours, "memory_mib");
    copy(config, "cpus", ours, "cpus");
}

static void fit_code(struct mcp_call *c, const json_t *theirs, json_t *ours)
{
    const char *language = mcp_json_text(theirs, "language");
    fit_place(c, theirs, ours);
    if (language && strcmp(language, "nodejs") == 0)
        mcp_json_set(ours, "language", json_string("javascript"));
}

/* With `args` a program, without them a line. */
static void fit_command(struct mcp_call *c, const json_t *theirs, json_t *ours)
{
    json_t *args = json_object_get(theirs, "args"), *argv;
    fit_place(c, theirs, ours);
    if (!args) {
        copy(theirs, "command", ours, "command");
        return;
    }
    argv = json_array();
    (void)json_array_append(argv, json_object_get(theirs, "command"));
    (void)json_array_extend(argv, args);
    mcp_json_set(ours, "argv", argv);
}

/* One JSON object of what the guest's kernel counts. */
static const char metrics_line[] =
    "read up idle </proc/uptime; read load rest </proc/loadavg; "
    "while read name kib unit; do case $name in MemTotal:) total=$kib;; MemAvailable:) "
    "free=$kib;; esac; done </proc/meminfo; set -- $(df -Pk \"$HOME\" | tail -n 1); "
    "printf '{\"uptime_seconds\":%s,\"load_1m\":%s,\"memory_total_kib\":%s,"
    "\"memory_available_kib\":%s,\"disk_total_kib\":%s,\"disk_available_kib\":%s}' "
    "\"$up\" \"$load\" \"$total\" \"$free\" \"$2\" \"$4\"";

static void fit_metrics(struct mcp_call *c, const json_t *theirs, json_t *ours)
{
    fit_place(c, theirs, ours);
    mcp_json_set(ours, "command", json_string(metrics_line));
}

/* --- results ------------------------------------------------------------------------------------
 */

static void set_text(struct mcp_result *r, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    cl_free(r->text);
    r->text = text ? cl_strdup(text) : NULL;
    free(text);
}

/* The object is the result, and the text is the object. */
static void say(struct mcp_result *r, json_t *object)
{
    set_text(r, object);
    json_decref(r->structured);
    r->structured = object;
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *text = mcp_json_text(o, name);
    return text ? text : "";
}

static void shape_repl(struct mcp_call *c, struct mcp_result *r)
{
    (void)c;
    say(r, json_pack("{s:s}", "replId", text_of(r->structured, "sandbox_id")));
}

/* Pictures are content of their own: `image` says which kind there is. */
static void shape_repl_run(struct mcp_call *c, struct mcp_result *r)
{
    const json_t *error = json_object_get(r->structured, "error"),
                 *image = json_array_get(r->content, 0);
    json_t *o = json_pack(
        "{s:o, s:s, s:s}", "output",
        json_sprintf("%s%s", text_of(r->structured, "stdout"), text_of(r->structured, "stderr")),
        "result", text_of(r->structured, "result"), "replId", mcp_box(c));
    if (error)
        mcp_json_set(o, "error", json_string(text_of(error, "traceback")));
    else if (r->is_error)
        mcp_json_set(o, "error", json_string(text_of(r->structured, "outcome")));
    if (image)
        mcp_json_set(o, "image", json_string(text_of(image, "mimeType")));
    say(r, o);
}

/* Text of a stream as E2B gives it: a list of pieces, empty for nothing. */
static json_t *pieces(const char *text)
{
    return text[0] ? json_pack("[s]", text) : json_array();
}

/* A picture is content of its own: its place there stands for its bytes (0 is the text). */
static json_t *e2b_results(const struct mcp_result *r)
{
    json_t *results = json_array(), *image, *value = json_object_get(r->structured, "result");
    size_t i;
    json_array_foreach(r->content, i, image)
    {
        bool is_jpeg = strcmp(text_of(image, "mimeType"), "image/jpeg") == 0;
        (void)json_array_append_new(results, json_pack("{s:I, s:b}", is_jpeg ? "jpeg" : "png",
                                                       (json_int_t)i + 1, "is_main_result", 0));
    }
    if (value)
        (void)json_array_append_new(results,
                                    json_pack("{s:O, s:b}", "text", value, "is_main_result", 1));
    return results;
}

/* The text is E2B's alone, with the id that the next call needs; the structure has ours beside. */
static void shape_e2b(struct mcp_call *c, struct mcp_result *r)
{
    json_t *error = json_object_get(r->structured, "error"), *nothing = json_null();
    json_t *theirs = json_pack("{s:o, s:{s:o, s:o}, s:O, s:s}", "results", e2b_results(r), "logs",
                               "stdout", pieces(text_of(r->structured, "stdout")), "stderr",
                               pieces(text_of(r->structured, "stderr")), "error",
                               error ? error : nothing, "sandbox_id", mcp_box(c));
    set_text(r, theirs);
    (void)json_object_update(r->structured, theirs);
    json_decref(theirs);
}

static void shape_metrics(struct mcp_call *c, struct mcp_result *r)
{
    const char *text = text_of(r->structured, "stdout");
    json_t *counted = NULL;
    if (r->is_error || mcp_json_parse(text, strlen(text), &counted, NULL) < 0)
        return; /* it tells itself what went wrong */
    if (!json_is_object(counted)) {
        json_decref(counted);
        return;
    }
    mcp_json_set(counted, "sandbox_id", json_string(mcp_box(c)));
    mcp_json_set(counted, "running", json_true());
    say(r, counted);
}

/* --- the table ----------------------------------------------------------------------------------
 */

const struct mcp_alias mcp_aliases[] = {
    /* E2B */
    {.name = "run_code", .run = mcp_tool_run_code, .shape = shape_e2b},
    /* ForeverVM */
    {.name = "create-python-repl", .run = mcp_tool_sandbox_create, .shape = shape_repl},
    {.name = "run-python-in-repl",
     .run = mcp_tool_run_code,
     .args = {{"pythonCode", "code"}, {"replId", "sandbox_id"}},
     .shape = shape_repl_run},
    /* Microsandbox */
    {.name = "sandbox_start", .run = mcp_tool_sandbox_start, .fit = fit_start},
    {.name = "sandbox_stop", .run = mcp_tool_sandbox_stop, .fit = fit_place},
    {.name = "sandbox_run_code",
     .run = mcp_tool_run_code,
     .args = {{"code", "code"}, {"language", "language"}},
     .fit = fit_code},
    {.name = "sandbox_run_command", .run = mcp_tool_exec, .fit = fit_command},
    {.name = "sandbox_get_metrics",
     .run = mcp_tool_exec,
     .fit = fit_metrics,
     .shape = shape_metrics},
};
const size_t mcp_aliases_n = CL_COUNT(mcp_aliases);

void mcp_alias_run(struct mcp_call *c, const struct mcp_alias *alias)
{
    json_t *theirs = c->args;
    if (alias->fit || alias->args[0].ours) {
        c->args = json_object();
        for (size_t i = 0; i < MCP_ALIAS_ARGS && alias->args[i].ours; i++)
            copy(theirs, alias->args[i].theirs, c->args, alias->args[i].ours);
        if (alias->fit)
            alias->fit(c, theirs, c->args);
        c->given = theirs;
    }
    alias->run(c);
}
