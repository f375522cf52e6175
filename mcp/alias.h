/* mcp/alias.h - our tools under the names, arguments and results that other systems gave theirs,
 * for prompts and habits that come from there.
 *
 * An alias renames arguments, runs the tool, and renames what came of it; it makes nothing of its
 * own, so whose a sandbox is, quotas and the audit log are those of the tool.  Off unless asked
 * for. Owns:    nothing. Thread:  the server's loop. Source:  the tools of forevervm-mcp, of
 * Microsandbox's own MCP server and of E2B's.
 */
#ifndef CL_MCP_ALIAS_H
#define CL_MCP_ALIAS_H

#include "mcp/tool.h"

enum { MCP_ALIAS_ARGS = 4 };

struct mcp_alias {
    const char *name;
    mcp_run_fn *run; /* the tool's own */
    struct {
        const char *theirs, *ours;
    } args[MCP_ALIAS_ARGS];
    /* What a renaming cannot say; optional. */
    void (*fit)(struct mcp_call *c, const json_t *theirs, json_t *ours);
    /* The result as theirs looks; NULL = as ours.  Not for errors: their text is what counts. */
    void (*shape)(struct mcp_call *c, struct mcp_result *r);
};

extern const struct mcp_alias mcp_aliases[];
extern const size_t mcp_aliases_n;
/* The call's arguments fit the alias's schema: make them the tool's, and run it. */
void mcp_alias_run(struct mcp_call *c, const struct mcp_alias *alias);

#endif
