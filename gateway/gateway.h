/* gateway/gateway.h - the gateway's process: an MCP server behind an HTTP listener, in front of one
 * scheduler.
 *
 * Owns:    the channel, the MCP server, the listener, the metrics.
 * Borrows: the loop, the options, `extra`.
 * Thread:  the loop's.
 */
#ifndef CL_GATEWAY_GATEWAY_H
#define CL_GATEWAY_GATEWAY_H

#include "base/loop.h"
#include "gateway/options.h"
#include "mcp/tool.h"

struct gateway;

int gateway_new(struct cl_loop *loop, const struct gateway_options *options,
                const struct mcp_extra *extra, struct gateway **ret_gateway,
                struct cl_err *err) CL_MUST;
/* SIGHUP: load the certificates again; new connections use them.  On an error nothing changes. */
int gateway_reload(struct gateway *g, struct cl_err *err) CL_MUST;
/* Take no more; `done` runs when the calls in flight have ended, or after the option `drain`. */
void gateway_stop(struct gateway *g, void (*done)(void *arg), void *arg);
void gateway_free(struct gateway *g);
/* The program, with what a build adds to the product's tools; NULL in the product. */
int gateway_main(int argc, char **argv, const struct mcp_extra *extra);

#endif
