/* mcp/advice.h - an error as a model needs it: what happened, why, and what to do now.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_MCP_ADVICE_H
#define CL_MCP_ADVICE_H

#include "base/err.h"

enum { MCP_ADVICE = 1024 };

/* Refused because the sandbox is paused: resuming it helps. */
bool mcp_err_is_paused(const struct cl_err *err);
void mcp_advice(const struct cl_err *err, char out[static MCP_ADVICE]);

#endif
