/* net/names_io.h - the addresses of a name, from the grant's resolvers and nobody else: c-ares.
 *
 * No file of this host (resolv.conf, hosts) has a say.
 * Owns:    the channel and its sockets.
 * Thread:  the loop.
 */
#ifndef CL_NET_NAMES_IO_H
#define CL_NET_NAMES_IO_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "net/dns.h"

struct names;

/* `found` is borrowed until it returns. */
typedef void names_found_fn(void *user, const struct net_dns_answer *found);

/* Servers in host byte order, at least one. */
int names_open(const uint32_t *servers, size_t n, struct names **ret_names,
               struct cl_err *err) CL_MUST;
/* NULL is a no-op.  What is still asked for is found to be SERVFAIL, from within this call. */
void names_close(struct names *names);
/* Calls `found` once, perhaps from within this call. */
void names_ask(struct names *names, const char *name, names_found_fn *found, void *user);
/* As stack_fill() and stack_poll(); of NULL there is nothing to wait for. */
size_t names_fill(struct names *names, struct pollfd *fds, size_t max,
                  uint32_t *timeout_ms) CL_MUST;
void names_poll(struct names *names, const struct pollfd *fds, size_t n);

#endif
