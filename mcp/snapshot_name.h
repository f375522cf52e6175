/* mcp/snapshot_name.h - names of snapshots, each principal's own.
 *
 * The scheduler's names are a tenant's; here two keys of it may have the same one, and neither
 * finds, takes or replaces the other's.  So the scheduler knows each with its owner behind it:
 * "NAME.<16 hex digits of a digest of the principal>", which people can read, and use elsewhere.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_MCP_SNAPSHOT_NAME_H
#define CL_MCP_SNAPSHOT_NAME_H

#include "base/err.h"
#include "base/util.h"

enum {
    MCP_SNAPSHOT_NAME = 64,     /* of the scheduler, and NUL */
    MCP_SNAPSHOT_OWNER = 17,    /* the dot and the digits */
    MCP_SNAPSHOT_OWN_NAME = 46, /* what is left to a caller */
};

/* What the scheduler calls the principal's own.  INVALID when `name` is none. */
int mcp_snapshot_name(const char *principal, const char *name,
                      char ret_name[static MCP_SNAPSHOT_NAME], struct cl_err *err) CL_MUST;
/* What the principal calls one that the scheduler calls `known`: another's name is left as it is.
 */
void mcp_snapshot_own_name(const char *principal, const char *known,
                           char out[static MCP_SNAPSHOT_NAME]);

#endif
