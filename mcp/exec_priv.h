/* mcp/exec_priv.h - execs for those that show them under another name: tasks and resources.
 *
 * Owns:    nothing.
 * Thread:  the server's loop.
 */
#ifndef CL_MCP_EXEC_PRIV_H
#define CL_MCP_EXEC_PRIV_H

#include "mcp/tool.h"

/* Look at an exec of the call's sandbox without waiting; `done` gets its result as a tool would
 * give it (owned by `done`), or NULL while it runs.  Ends the call itself on an error. */
typedef void mcp_look_fn(struct mcp_call *c, struct mcp_result *result);
void mcp_exec_look(struct mcp_call *c, const char *exec_id, mcp_look_fn *done);

#endif
