/* cli/forward.h - ports of a sandbox on this host: `sandbox forward`, `sandbox
 * url`.
 *
 * Owns:    while it runs: its listeners and connections.
 * Thread:  the only one.
 */
#ifndef CL_CLI_FORWARD_H
#define CL_CLI_FORWARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/client.h"

enum { FORWARD_ADDRESS = 280, FORWARD_PORTS = 16 };

struct forward_port {
    char address[FORWARD_ADDRESS]; /* HOST:PORT to listen at; port 0 = any that is free */
    uint32_t port;                 /* in the sandbox */
};

/* "8000", "9000:8000" or "HOST:9000:8000"; without a host it is loopback's.  Pure. */
int forward_parse(const char *word, struct forward_port *ret, struct cl_err *err) CL_MUST;
/* 1 to 65535.  Pure. */
int forward_port_number(const char *word, uint32_t *ret_port, struct cl_err *err) CL_MUST;

/* Listen, and connect whoever comes, until SIGINT or SIGTERM (0), or the sandbox is gone (-1). */
int forward_run(struct client *c, const char *sandbox, const struct forward_port *ports, size_t n,
                bool json, struct cl_err *err) CL_MUST;

#endif
