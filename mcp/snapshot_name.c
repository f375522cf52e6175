/* mcp/snapshot_name.c - see mcp/snapshot_name.h. */
#include "mcp/snapshot_name.h"

#include <stdio.h>
#include <string.h>

#include "mcp/session.h"

_Static_assert(MCP_SNAPSHOT_OWN_NAME + MCP_SNAPSHOT_OWNER == MCP_SNAPSHOT_NAME - 1,
               "a name and its owner fit");

/* Without a secret: it guards nothing, and every gateway and `cloche mcp` must come to the same. */
static void owner_of(const char *principal, char out[static MCP_SNAPSHOT_OWNER + 1])
{
    static const uint8_t nothing[MCP_SECRET] = {0};
    char digest[MCP_DIGEST_TEXT];
    mcp_digest(nothing, "snapshots", principal, digest);
    (void)snprintf(out, MCP_SNAPSHOT_OWNER + 1, ".%.*s", MCP_SNAPSHOT_OWNER - 1, digest);
}

int mcp_snapshot_name(const char *principal, const char *name,
                      char ret_name[static MCP_SNAPSHOT_NAME], struct cl_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    char owner[MCP_SNAPSHOT_OWNER + 1];
    size_t n = strlen(name);
    if (n == 0 || n > MCP_SNAPSHOT_OWN_NAME || strspn(name, letters) != n ||
        strchr("._-", name[0]) || strncmp(name, "snp_", 4) == 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the name of a snapshot is 1 to %d of a-z, 0-9, '.', '_' and '-', the first "
                       "a letter or digit, not snp_... (as numpy-ready)",
                       MCP_SNAPSHOT_OWN_NAME);
    owner_of(principal, owner);
    (void)snprintf(ret_name, MCP_SNAPSHOT_NAME, "%s%s", name, owner);
    return 0;
}

void mcp_snapshot_own_name(const char *principal, const char *known,
                           char out[static MCP_SNAPSHOT_NAME])
{
    char owner[MCP_SNAPSHOT_OWNER + 1];
    size_t n = strlen(known);
    owner_of(principal, owner);
    bool is_own = n > MCP_SNAPSHOT_OWNER && strcmp(known + n - MCP_SNAPSHOT_OWNER, owner) == 0;
    (void)snprintf(out, MCP_SNAPSHOT_NAME, "%.*s",
                   (int)(is_own ? n - MCP_SNAPSHOT_OWNER : CL_MIN(n, MCP_SNAPSHOT_NAME - 1)),
                   known);
}
