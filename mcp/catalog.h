/* mcp/catalog.h - the tools: what tools/list shows and who runs them.
 *
 * Owns:    the parsed texts.
 * Thread:  any after it was made.  Pure.
 */
#ifndef CL_MCP_CATALOG_H
#define CL_MCP_CATALOG_H

#include "mcp/alias.h"

enum { MCP_TOOLS_PAGE = 50 };

struct mcp_tool {
    const char *name;    /* borrowed from the text */
    const json_t *spec;  /* borrowed from the text: as tools/list shows it */
    const json_t *input; /* its inputSchema */
    mcp_run_fn *run;
    bool reads_only;               /* the scope `read` is enough */
    const struct mcp_alias *alias; /* NULL = a tool of our own name */
};

struct mcp_catalog;
/* The product's tools, its aliases if asked for (one of a tool's own name takes its place), and
 * those of extra (may be NULL).  A tool without a function, or a function without a tool, is a bug.
 */
int mcp_catalog_new(const struct mcp_extra *extra, bool aliases, struct mcp_catalog **ret_catalog,
                    struct cl_err *err) CL_MUST;
void mcp_catalog_free(struct mcp_catalog *c);
const struct mcp_tool *mcp_catalog_find(const struct mcp_catalog *c, const char *name);
/* A page after `cursor` (NULL = the first); NULL for a cursor that is none.  Both are new. */
json_t *mcp_catalog_page(const struct mcp_catalog *c, const char *cursor, char ret_next[static 16]);

#endif
