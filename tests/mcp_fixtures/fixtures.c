/* tests/mcp_fixtures/fixtures.c - see tests/mcp_fixtures/fixtures.h. */
#include "tests/mcp_fixtures/fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

extern const uint8_t mcp_fixtures_json[];
extern const size_t mcp_fixtures_json_size;

enum { ROWS_MAX = 64 };

/* Set once by main(). */
static json_t *all;
static struct mcp_row rows[ROWS_MAX];

const json_t *fixture(const char *part, const char *name)
{
    const json_t *p = json_object_get(all, part);
    return name ? json_object_get(p, name) : p;
}

const char *fixture_name(const struct mcp_call *c)
{
    const char *name = mcp_json_text(mcp_params(c), "name");
    return name ? name : "";
}

static void refuse(struct mcp_call *c, const char *what)
{
    struct mcp_refusal why = {0};
    (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "no such %s", what);
    mcp_end_error(c, &why);
}

/* --- tools --------------------------------------------------------------------------------------
 */

static void run_static(struct mcp_call *c)
{
    mcp_end(c, json_deep_copy(fixture("results", fixture_name(c))));
}

static void end_text(struct mcp_call *c, const char *text)
{
    mcp_end(c, json_pack("{s:[{s:s, s:s}]}", "content", "type", "text", "text", text));
}

static void run_progress(struct mcp_call *c)
{
    const json_t *token = mcp_progress_token(c);
    for (int i = 0; token && i <= 100; i += 50)
        mcp_notify(c, "notifications/progress",
                   json_pack("{s:O, s:i, s:i, s:s}", "progressToken", token, "progress", i, "total",
                             100, "message", "on the way"));
    end_text(c, "done");
}

/* Modern: only where the request named a level; legacy: setLevel came before. */
static void run_logging(struct mcp_call *c)
{
    static const char *const lines[] = {"Tool execution started", "Tool processing data",
                                        "Tool execution completed"};
    const json_t *meta = json_object_get(mcp_params(c), "_meta");
    bool wanted = mcp_call_era(c) == MCP_LEGACY || json_object_get(meta, MCP_META "logLevel");
    for (size_t i = 0; wanted && i < CL_COUNT(lines); i++)
        mcp_notify(c, "notifications/message",
                   json_pack("{s:s, s:s}", "level", "info", "data", lines[i]));
    end_text(c, "logged");
}

static void run_needs_sampling(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    why.data = json_pack("{s:{s:{}}}", "requiredCapabilities", "sampling");
    (void)mcp_refuse(&why, 400, MCP_E_CAPABILITY, "this tool needs sampling");
    mcp_end_error(c, &why);
}

static void run_ask(struct mcp_call *c)
{
    if (!ask_first(c))
        end_text(c, "Hello, all is answered: state-ok");
}

static const struct mcp_row others[] = {{"test_tool_with_progress", run_progress},
                                        {"test_tool_with_logging", run_logging},
                                        {"test_logging_tool", run_logging},
                                        {"test_missing_capability", run_needs_sampling}};

static mcp_run_fn *runner(const char *name)
{
    for (size_t i = 0; i < CL_COUNT(others); i++) {
        if (strcmp(others[i].name, name) == 0)
            return others[i].run;
    }
    if (fixture("questions", name))
        return question_run;
    return fixture("asks", name) ? run_ask : run_static;
}

/* --- prompts, resources, completion -------------------------------------------------------------
 */

static json_t *listed(const char *what, const char *part)
{
    return json_pack("{s:O, s:i, s:s}", what, fixture(part, NULL), "ttlMs", 60000, "cacheScope",
                     "private");
}

static void prompts_list(struct mcp_call *c)
{
    mcp_end(c, listed("prompts", "prompt_list"));
}

/* "{name}" in every text becomes the argument of that name. */
json_t *filled(const json_t *prompt, const json_t *args)
{
    char *text = json_dumps(prompt, JSON_COMPACT);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)args, name, value)
    {
        char mark[80];
        (void)snprintf(mark, sizeof mark, "{%s}", name);
        char *at = text ? strstr(text, mark) : NULL;
        if (!at)
            continue;
        *at = '\0';
        char *next = cl_asprintf("%s%s%s", text, json_string_value(value), at + strlen(mark));
        free(text);
        text = next ? strdup(next) : NULL;
        cl_free(next);
    }
    json_t *done = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return done ? done : json_object();
}

static void prompts_get(struct mcp_call *c)
{
    const json_t *prompt = fixture("prompts", fixture_name(c));
    if (!prompt)
        refuse(c, "prompt");
    else if (!ask_first(c))
        mcp_end(c, filled(prompt, json_object_get(mcp_params(c), "arguments")));
}

static void resources_list(struct mcp_call *c)
{
    mcp_end(c, listed("resources", "resource_list"));
}

static void resources_read(struct mcp_call *c)
{
    const char *uri = mcp_json_text(mcp_params(c), "uri");
    const json_t *one = uri ? fixture("resources", uri) : NULL;
    if (one) {
        mcp_end(c, json_pack("{s:[O], s:i, s:s}", "contents", one, "ttlMs", 60000, "cacheScope",
                             "private"));
        return;
    }
    struct mcp_refusal why = {0};
    why.data = json_pack("{s:s}", "uri", uri ? uri : "");
    (void)mcp_refuse(&why, 200, MCP_E_PARAMS, "no such resource");
    mcp_end_error(c, &why);
}

static void complete(struct mcp_call *c)
{
    mcp_end(c, json_pack("{s:{s:[], s:i, s:b}}", "completion", "values", "total", 0, "hasMore", 0));
}

/* Legacy only; the other era has no such method. */
static void subscribe(struct mcp_call *c)
{
    struct mcp_refusal why = {0};
    if (mcp_call_era(c) == MCP_LEGACY) {
        mcp_end(c, json_object());
        return;
    }
    (void)mcp_refuse(&why, 404, MCP_E_METHOD, "no such method");
    mcp_end_error(c, &why);
}

static const struct mcp_row methods[] = {
    {"prompts/list", prompts_list},     {"prompts/get", prompts_get},
    {"resources/list", resources_list}, {"resources/read", resources_read},
    {"resources/subscribe", subscribe}, {"resources/unsubscribe", subscribe},
    {"completion/complete", complete}};

int fixtures_open(struct mcp_extra *ret, struct cl_err *err)
{
    if (mcp_json_parse((const char *)mcp_fixtures_json, mcp_fixtures_json_size, &all, err) < 0)
        return -1;
    const json_t *tools = fixture("tools", NULL);
    size_t n = json_array_size(tools);
    if (n > ROWS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d tools", ROWS_MAX);
    for (size_t i = 0; i < n; i++) {
        rows[i].name = mcp_json_text(json_array_get(tools, i), "name");
        rows[i].run = runner(rows[i].name);
    }
    *ret = (struct mcp_extra){.tools_json = json_dumps(tools, JSON_COMPACT),
                              .tools = rows,
                              .n_tools = n,
                              .methods = methods,
                              .n_methods = CL_COUNT(methods),
                              .on_response = question_answered,
                              .capabilities_json = "{\"prompts\":{},\"completions\":{}}"};
    return ret->tools_json ? 0 : cl_fail(err, CL_E_NOMEM, 0, "tools");
}
