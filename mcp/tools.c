/* mcp/tools.c - which function stands behind which tool, and the output that they share. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/own.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

const struct mcp_row mcp_tool_rows[] = {
    {"run_code", mcp_tool_run_code},
    {"exec", mcp_tool_exec},
    {"exec_start", mcp_tool_exec_start},
    {"exec_poll", mcp_tool_exec_poll},
    {"exec_signal", mcp_tool_exec_signal},
    {"sandbox_create", mcp_tool_sandbox_create},
    {"sandbox_list", mcp_tool_sandbox_list},
    {"sandbox_kill", mcp_tool_sandbox_kill},
    {"sandbox_pause", mcp_tool_sandbox_pause},
    {"sandbox_resume", mcp_tool_sandbox_resume},
    {"sandbox_fork", mcp_tool_sandbox_fork},
    {"snapshot_create", mcp_tool_snapshot_create},
    {"snapshot_list", mcp_tool_snapshot_list},
    {"snapshot_delete", mcp_tool_snapshot_delete},
    {"file_read", mcp_tool_file_read},
    {"file_write", mcp_tool_file_write},
    {"file_list", mcp_tool_file_list},
    {"port_url", mcp_tool_port_url},
    {"sandbox_activity", mcp_tool_sandbox_activity},
    {"function_call", mcp_tool_function_call},
};
const size_t mcp_tool_rows_n = CL_COUNT(mcp_tool_rows);

uint64_t mcp_seconds_ns(const json_t *args, const char *name, uint64_t otherwise)
{
    const json_t *v = json_object_get(args, name);
    return json_is_number(v) ? (uint64_t)(json_number_value(v) * 1e9) : otherwise * CL_NS_PER_S;
}

int mcp_output_init(struct mcp_output *o, const json_t *args, struct cl_err *err)
{
    size_t cap = (size_t)mcp_json_u64(args, "max_output_bytes", MCP_OUTPUT_DEFAULT);
    if (mcp_capture_init(&o->out, cap, err) < 0 || mcp_capture_init(&o->err, cap, err) < 0) {
        mcp_output_fini(o);
        return -1;
    }
    return 0;
}

void mcp_output_fini(struct mcp_output *o)
{
    mcp_capture_fini(&o->out);
    mcp_capture_fini(&o->err);
}

void mcp_output_add(struct mcp_output *o, const Cloche__V1__Output *m)
{
    bool is_err = m->stream == CLOCHE__V1__STREAM__STREAM_STDERR;
    mcp_capture_add(is_err ? &o->err : &o->out, m->data.data, m->data.len);
}

static void stream_json(const struct mcp_capture *c, const char *name, json_t *into)
{
    char key[48];
    CL_AUTO(cl_freep) char *text = mcp_capture_text(c);
    mcp_json_set(into, name, json_string(text ? text : ""));
    (void)snprintf(key, sizeof key, "%s_truncated", name);
    mcp_json_set(into, key, json_boolean(!text || mcp_capture_is_cut(c)));
    (void)snprintf(key, sizeof key, "%s_bytes_total", name);
    mcp_json_set(into, key, json_integer((json_int_t)c->total));
}

void mcp_output_json(const struct mcp_output *o, json_t *into)
{
    stream_json(&o->out, "stdout", into);
    stream_json(&o->err, "stderr", into);
}

char *mcp_output_text(const struct mcp_output *o)
{
    CL_AUTO(cl_freep) char *out = mcp_capture_text(&o->out);
    CL_AUTO(cl_freep) char *err = mcp_capture_text(&o->err);
    if (!out || !err)
        return NULL;
    return cl_asprintf("%s%s%s%s", o->out.total ? "--- stdout ---\n" : "", out,
                       o->err.total ? "\n--- stderr ---\n" : "", err);
}
