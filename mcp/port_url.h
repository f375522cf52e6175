/* mcp/port_url.h - the address under which a gateway serves a port of a sandbox.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_MCP_PORT_URL_H
#define CL_MCP_PORT_URL_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { PORT_URL_MAX = 512 };

/* Behind a gateway that serves `domain`: "[http://|https://]DOMAIN[:PORT]".  With http (what
 * localhost is by default) the link stands in the host name; with https, where a wildcard
 * certificate covers one label only, in the query, and the gateway makes a cookie of it.  `link` as
 * PortService.CreateLink answers it.  INVALID when one of them is none. */
int port_url(const char *domain, const char *link, uint32_t port, char ret_url[static PORT_URL_MAX],
             struct cl_err *err) CL_MUST;

#endif
