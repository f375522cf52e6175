/* cli/reach.h - where programs in sandboxes are reached from outside. */
#ifndef CL_CLI_REACH_H
#define CL_CLI_REACH_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/cli.h"

enum { REACH_DOMAIN = 256 };

/* The gateway's ports-domain, as mcp/port_url.h wants it: --domain, CLOCHE_PORTS_DOMAIN, or that of
 * the gateway which `up` started here. */
int reach_domain(const struct cli_opts *o, char domain[static REACH_DOMAIN],
                 struct cl_err *err) CL_MUST;
/* The gateway itself, without a slash at its end: --url, or the one that `up` started here. */
int reach_gateway(const struct cli_opts *o, char url[static REACH_DOMAIN],
                  struct cl_err *err) CL_MUST;

#endif
