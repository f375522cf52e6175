/* mcp/functions.c - the tool function_call: a function that a snapshot's interpreter has, called in
 * a copy of that which nothing else uses (FunctionService.Call). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "cloche/v1/function.pb-c.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

enum { CALL_TIMEOUT_S = 50 /* clients give up after 60 s */, GRACE_S = 30 };

/* --- the answer ---------------------------------------------------------------------------------
 */

static void add_output(struct mcp_output *o, Cloche__V1__Stream stream, ProtobufCBinaryData bytes)
{
    Cloche__V1__Output m = CLOCHE__V1__OUTPUT__INIT;
    m.stream = stream;
    m.data = bytes;
    if (bytes.len > 0)
        mcp_output_add(o, &m);
}

/* The service keeps the beginning only: what is over is said, too. */
static void correct_total(json_t *o, const char *stream, const Cloche__V1__StreamTotal *total,
                          size_t got)
{
    char name[32];
    if (!total || total->bytes <= got)
        return;
    (void)snprintf(name, sizeof name, "%s_truncated", stream);
    mcp_json_set(o, name, json_true());
    (void)snprintf(name, sizeof name, "%s_bytes_total", stream);
    mcp_json_set(o, name, json_integer((json_int_t)total->bytes));
}

static json_t *structured_of(const Cloche__V1__CallResponse *m, const struct mcp_output *output)
{
    json_t *o = json_pack("{s:s, s:s, s:I}", "sandbox_id", m->sandbox_id, "outcome",
                          mcp_outcome_name(m->outcome), "duration_ms",
                          (json_int_t)(m->wall_ns / CL_NS_PER_MS));
    json_t *result =
        m->result[0] ? json_loads(m->result, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    if (result)
        mcp_json_set(o, "result", result);
    if (m->error)
        mcp_json_set(o, "error", mcp_cell_error(m->error));
    mcp_output_json(output, o);
    correct_total(o, "stdout", m->stdout_total, m->stdout.len);
    correct_total(o, "stderr", m->stderr_total, m->stderr.len);
    return o;
}

static void on_called(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__CallResponse *m = (const Cloche__V1__CallResponse *)reply;
    struct mcp_output output;
    struct cl_err bad = {0};
    if (err || mcp_output_init(&output, c->args, &bad) < 0) {
        mcp_end_tool_error(c, err ? err : &bad);
        return;
    }
    add_output(&output, CLOCHE__V1__STREAM__STREAM_STDOUT, m->stdout);
    add_output(&output, CLOCHE__V1__STREAM__STREAM_STDERR, m->stderr);
    bool returned = m->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK;
    CL_AUTO(cl_freep) char *shown = mcp_output_text(&output);
    struct mcp_result r = {
        .structured = structured_of(m, &output),
        .text = cl_asprintf("%s%s%s%s\n%s%s%s", returned ? m->result : mcp_outcome_name(m->outcome),
                            m->message[0] ? ": " : "", m->message, m->error ? "\n" : "",
                            m->error ? m->error->traceback : "", m->error ? "\n" : "",
                            shown ? shown : ""),
        .is_error = !returned};
    mcp_output_fini(&output);
    mcp_end_tool(c, &r);
}

/* --- the call -----------------------------------------------------------------------------------
 */

static void call_it(struct mcp_call *c)
{
    static const struct mcp_method_of call = MCP_RPC("FunctionService", "Call", call_response);
    Cloche__V1__CallRequest m = CLOCHE__V1__CALL_REQUEST__INIT;
    Cloche__V1__Label owner, *labels[] = {&owner};
    const json_t *list = json_object_get(c->args, "arguments"),
                 *arguments = list ? list : json_object_get(c->args, "named_arguments");
    char *text = arguments ? json_dumps(arguments, JSON_COMPACT) : NULL;
    mcp_owner_label(c, &owner);
    m.function = c->snapshot;
    m.entry = mcp_pb(mcp_json_text(c->args, "function"));
    m.arguments = mcp_pb(text);
    m.language = mcp_language(c->args);
    m.timeout_ns = mcp_seconds_ns(c->args, "timeout_seconds", CALL_TIMEOUT_S);
    m.labels = labels;
    m.n_labels = CL_COUNT(labels);
    mcp_progress(c, "calling");
    struct mcp_ask_spec ask = {.method = &call,
                               .request = &m.base,
                               .timeout_ns = m.timeout_ns + GRACE_S * CL_NS_PER_S,
                               .on_end = on_called};
    (void)!mcp_ask(c, &ask, NULL);
    free(text); /* jansson's */
}

void mcp_tool_function_call(struct mcp_call *c)
{
    struct cl_err err = {0};
    if (json_object_get(c->args, "arguments") && json_object_get(c->args, "named_arguments")) {
        (void)cl_fail(&err, CL_E_INVALID, 0, "arguments or named_arguments: one of them, not both");
        mcp_end_tool_error(c, &err);
        return;
    }
    mcp_snapshot_check(c, call_it);
}
