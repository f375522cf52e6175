/* mcp/advice.h - an error as a model needs it: what happened, why, and what to do now.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_MCP_ADVICE_H
#define CL_MCP_ADVICE_H

#include "base/err.h"

enum { MCP_ADVICE = 1024 };

void mcp_advice(const struct cl_err *err, char out[static MCP_ADVICE]);

#endif
