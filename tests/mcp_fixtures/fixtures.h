/* tests/mcp_fixtures/fixtures.h - what the conformance suite wants a server to offer; the words are
 * in fixtures.json.
 *
 * Owns:    the parsed text, for the life of the process.
 * Thread:  the loop's.
 */
#ifndef CL_TESTS_MCP_FIXTURES_H
#define CL_TESTS_MCP_FIXTURES_H

#include "mcp/tool.h"

/* A part of fixtures.json: "results", "prompts", ...  Borrowed. */
const json_t *fixture(const char *part, const char *name);
/* What the call asks for: its params.name. */
const char *fixture_name(const struct mcp_call *c);
int fixtures_open(struct mcp_extra *ret, struct cl_err *err) CL_MUST;

/* questions.c: a tool that asks the client on its stream and waits (MCP 2025-11-25). */
void question_run(struct mcp_call *c);
void question_answered(const json_t *response);
/* A copy in which "{name}" has become the argument of that name. */
json_t *filled(const json_t *text, const json_t *args);

/* asks.c: results that ask the client first (MCP 2026-07-28, input_required).  True when it has
 * answered; false when all that is wanted is there. */
bool ask_first(struct mcp_call *c);

#endif
