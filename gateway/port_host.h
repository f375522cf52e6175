/* gateway/port_host.h - names that lead to a port of a sandbox: PORT-SANDBOX[.SECRET].DOMAIN.
 *
 * SANDBOX is "sbx_" or "sbx-" (what DNS and some certificates allow) and 26 characters, SECRET that
 * of a link (policy/link.h).  Letters may have either case.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure; hostile input.
 * Source:  RFC 9110 section 4.2.3 (a host has no case), RFC 9112 section 3.2.
 */
#ifndef CL_GATEWAY_PORT_HOST_H
#define CL_GATEWAY_PORT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/util.h"

enum {
    PORT_DOMAIN_MAX = 128,  /* a name has 253 bytes, and ours stand before it */
    PORT_SECRET_CHARS = 52, /* of a link */
    PORT_LINK = 4 + 26 + 1 + PORT_SECRET_CHARS + 1, /* "clp_SANDBOX_SECRET" and NUL */
};

struct port_host {
    uint16_t port;
    char sandbox[CL_ID_MAX];            /* "sbx_...", lower-case */
    char secret[PORT_SECRET_CHARS + 1]; /* lower-case; "" = none in the name */
};

/* Is the value of a Host field such a name?  Its own port must be well-formed and is no more looked
 * at.  `domain` is lower-case; "" or NULL = none is served. */
bool port_host_parse(const char *host, size_t n, const char *domain, struct port_host *ret_host);

/* Where a request's first bytes lead to. */
enum port_sniff {
    PORT_SNIFF_MORE,
    PORT_SNIFF_YES, /* its first Host is such a name */
    PORT_SNIFF_NO,
};
/* *at: 0 for the first bytes; where to look on when more have come behind them. */
enum port_sniff port_sniff(const void *data, size_t n, const char *domain, size_t *at);

/* Is text a link of this sandbox, by its form? */
bool port_link_names(const char *text, size_t n, const char *sandbox);
/* The domain of the option: without its port, if it has one; false unless it is a name. */
bool port_domain_read(const char *option, char domain[static PORT_DOMAIN_MAX]);

#endif
