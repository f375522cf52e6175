/* mcp/tools_priv.h - the functions behind tools.json, and what they share.
 *
 * Owns:    nothing.
 * Thread:  the server's loop.
 */
#ifndef CL_MCP_TOOLS_PRIV_H
#define CL_MCP_TOOLS_PRIV_H

#include "cloche/v1/code.pb-c.h"
#include "cloche/v1/common.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "mcp/capture.h"
#include "mcp/tool.h"

mcp_run_fn mcp_tool_run_code, mcp_tool_exec, mcp_tool_exec_start, mcp_tool_exec_poll,
    mcp_tool_exec_signal;
mcp_run_fn mcp_tool_sandbox_create, mcp_tool_sandbox_list, mcp_tool_sandbox_kill,
    mcp_tool_sandbox_pause, mcp_tool_sandbox_resume, mcp_tool_sandbox_fork;
/* Those of aliases: of a sandbox that the caller named. */
mcp_run_fn mcp_tool_sandbox_start, mcp_tool_sandbox_stop;
mcp_run_fn mcp_tool_snapshot_create, mcp_tool_snapshot_list, mcp_tool_snapshot_delete;
mcp_run_fn mcp_tool_file_read, mcp_tool_file_write, mcp_tool_file_list, mcp_tool_port_url;
mcp_run_fn mcp_tool_sandbox_activity, mcp_tool_function_call;

enum { MCP_OUTPUT_DEFAULT = 32 * 1024, MCP_OUTPUT_MIN = 1024 };

/* The call means the sandbox of this name, among those of its principal. */
void mcp_box_name(struct mcp_call *c, const char *space, const char *name);
/* Do these labels say that what has them is this caller's, or his whole tenant's? */
bool mcp_is_mine(const struct mcp_call *c, Cloche__V1__Label *const *labels, size_t n);
/* The one that says so; borrows the call's principal. */
void mcp_owner_label(struct mcp_call *c, Cloche__V1__Label *ret_label);
/* Do the arguments name a sandbox, or is there a place for a default one?  Without either
 * mcp_box_need() makes one that nobody finds again. */
bool mcp_box_is_meant(const struct mcp_call *c);
/* Is the snapshot that the argument `snapshot` names (by id, or by name) this caller's?  Goes on
 * with its id in call->snapshot, or ends the call as for one that does not exist. */
void mcp_snapshot_check(struct mcp_call *c, mcp_run_fn *next);
/* Of the argument `language`. */
Cloche__V1__Language mcp_language(const json_t *args);
/* Name, value and traceback. */
json_t *mcp_cell_error(const Cloche__V1__CellError *m);
/* "ok", "timed_out": as the tools' results have it. */
const char *mcp_outcome_name(Cloche__V1__CellOutcome outcome);
json_t *mcp_rules_json(const Cloche__V1__NetworkGrant *m);
/* A number of seconds as nanoseconds; `otherwise` (seconds) when it is not given. */
uint64_t mcp_seconds_ns(const json_t *args, const char *name, uint64_t otherwise);

/* Both streams of a process. */
struct mcp_output {
    struct mcp_capture out, err;
};
int mcp_output_init(struct mcp_output *o, const json_t *args, struct cl_err *err) CL_MUST;
void mcp_output_fini(struct mcp_output *o);
void mcp_output_add(struct mcp_output *o, const Cloche__V1__Output *m);
/* Members stdout, stderr, their totals and whether they are cut. */
void mcp_output_json(const struct mcp_output *o, json_t *into);
/* The part of a text that shows it. */
char *mcp_output_text(const struct mcp_output *o) CL_MUST;

#endif
