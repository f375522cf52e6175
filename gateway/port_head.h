/* gateway/port_head.h - the heads of proxied messages, written anew for whom they are for.
 *
 * Fields for the next hop alone stay here (Connection, what it names, Keep-Alive, TE, Proxy-*), and
 * so do our credentials: the cookie and the parameter `cloche_link`, and E2b-Traffic-Access-Token.
 * Each message says `Connection: close`: one request, one connection on both sides.  Everything
 * else passes in its order, Authorization too, which is the application's.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure; hostile input on both sides.
 * Source:  RFC 9110 section 7.6, RFC 6265, RFC 7239.
 */
#ifndef CL_GATEWAY_PORT_HEAD_H
#define CL_GATEWAY_PORT_HEAD_H

#include "base/buf.h"
#include "gateway/port_host.h"
#include "gateway/port_message.h"

/* The cookie's name.  With TLS none but its own origin can set one that begins so (RFC 6265bis
 * section 4.1.3.2). */
#define PORT_COOKIE "cloche_link"
#define PORT_COOKIE_TLS "__Host-cloche_link"

enum {
    /* A head is not longer than it came, but for what we add. */
    PORT_HEAD_OUT = PORT_ANSWER_HEAD + 1024,
};

/* How the request came to us. */
struct port_via {
    const char *peer; /* an address */
    bool tls;
};

/* Does the request ask for another protocol, as WebSocket does? */
bool port_head_upgrades(const struct port_message *m);
/* For the guest. */
int port_head_request(const struct port_message *m, const struct port_via *via, struct cl_buf *out,
                      struct cl_err *err) CL_MUST;
/* For the client.  An answer 101 says `Connection: Upgrade`, others of 1xx say nothing.  Of a page
 * whose address holds a link (`secret`) other sites are not told by Referer, whatever its server
 * would have them told. */
int port_head_answer(const struct port_message *m, bool secret, struct cl_buf *out,
                     struct cl_err *err) CL_MUST;

/* The target without our parameter, with a NUL. */
int port_head_target(const struct port_message *m, struct cl_buf *out, struct cl_err *err) CL_MUST;
/* Our parameter; *ret_n its length; NULL = absent. */
const char *port_head_parameter(const struct port_message *m, size_t *ret_n);
/* The first cookie `name` that is a link of the sandbox; NULL = there is none.  (Siblings of a
 * domain can set each other's: what is not of this one is as if it were not there.) */
const char *port_head_cookie(const struct port_message *m, const char *name, const char *sandbox);

#endif
