/* mcp/listen.h - subscriptions/listen: a stream on which a client hears that its tasks have ended.
 *
 *   CHECKING --each task looked at--> LISTENING --its time is over, draining--> ENDED with a result
 *      | one is unknown                  | the client leaves
 *      +--> an error, nothing was sent   +--> ENDED
 *
 * The first message acknowledges what will be told: taskIds, and toolsListChanged, which never
 * happens here.  Then each task is told once, in full, when it has ended; one that had ended before
 * is told at once.
 *
 * Owns:    per call a list of tasks, and one stream of the scheduler for each that still runs.
 * Thread:  the server's loop.
 * Source:  MCP 2026-07-28, subscriptions/listen; extension io.modelcontextprotocol/tasks.
 */
#ifndef CL_MCP_LISTEN_H
#define CL_MCP_LISTEN_H

#include "mcp/tool.h"

enum {
    MCP_LISTEN_TASKS = 6,         /* of one stream: each costs a stream of the scheduler */
    MCP_LISTENS_OF_PRINCIPAL = 8, /* these last: one key would hold all connections with them */
    MCP_LISTEN_S = 1800,          /* then it ends in order, and the client listens anew with a
                                     credential that is looked at anew */
};

mcp_run_fn mcp_listen;
/* The stream ends with its result; for calls that are none nothing happens. */
void mcp_listen_finish(struct mcp_call *c);

struct mcp_listening;
/* Its call is dead.  NULL is a no-op, for both. */
void mcp_listening_stop(struct mcp_listening *l);
void mcp_listening_free(struct mcp_listening *l);

#endif
