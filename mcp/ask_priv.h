/* mcp/ask_priv.h - the gRPC calls that one MCP call has open.
 *
 * Owns:    each ask; it lives until its rpc_call has ended, which may be after its MCP call.
 * Thread:  the server's loop.
 */
#ifndef CL_MCP_ASK_PRIV_H
#define CL_MCP_ASK_PRIV_H

#include "mcp/tool.h"

/* Forget and cancel all of them: no callback of theirs runs any more. */
void mcp_asks_drop(struct mcp_call *c);
/* As mcp_ask(), and an error is returned instead of ending the call. */
int mcp_ask_try(struct mcp_call *c, const struct mcp_ask_spec *spec, struct rpc_call **ret_rpc,
                struct cl_err *err) CL_MUST;

#endif
