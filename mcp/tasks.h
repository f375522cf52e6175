/* mcp/tasks.h - the extension io.modelcontextprotocol/tasks: a long exec, looked at later.
 *
 * A task is an exec: its id names the sandbox and the exec, so nothing is remembered here, it is
 * durable as execs are, and whose it is follows from whose the sandbox is.
 * Owns:    nothing.
 * Thread:  the server's loop.
 * Source:  MCP extension io.modelcontextprotocol/tasks (2026-07-28).
 */
#ifndef CL_MCP_TASKS_H
#define CL_MCP_TASKS_H

#include "mcp/tool.h"

#define MCP_TASKS "io.modelcontextprotocol/tasks"

/* Has the client said in this request that it knows tasks? */
bool mcp_task_is_wanted(const struct mcp_call *c);
/* Why a call about tasks is refused to a client that has not said so; returns -1. */
int mcp_task_unwanted(struct mcp_refusal *why);
/* The names in a task's id; false when it is none. */
bool mcp_task_read_id(const char *task, char sandbox[static CL_ID_MAX],
                      char exec[static CL_ID_MAX]);
/* The task of an exec, in full: working without a result, else completed.  Takes what r holds. */
json_t *mcp_task_json(const char *sandbox, const char *exec, struct mcp_result *r);
/* End the call with a task for this exec of its sandbox. */
void mcp_task_answer(struct mcp_call *c, const char *exec_id);
mcp_run_fn mcp_task_get, mcp_task_cancel, mcp_task_update;

#endif
