/* gateway/port_access.h - which credential a proxied request carries, and where it is.
 *
 * The first of: the secret in the host's name, E2b-Traffic-Access-Token, the parameter
 * `cloche_link`, the cookie of that name.  Whether it is good is the scheduler's to say; that a
 * link or an access token is of another sandbox is told here, so that it goes no further.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure; hostile input.
 */
#ifndef CL_GATEWAY_PORT_ACCESS_H
#define CL_GATEWAY_PORT_ACCESS_H

#include "e2b/token.h"
#include "gateway/port_host.h"
#include "gateway/port_message.h"

struct port_access {
    int status;       /* 0: the credential is there.  302: the cookie is to be set.  Else refused */
    const char *text; /* static; of a refusal */
    char link[PORT_LINK];               /* of 302: the cookie's value */
    char credential[E2B_PLAIN_MAX + 8]; /* "Bearer ..."; wipe it after use */
};

struct port_asked {
    const struct port_message *request; /* whose head is complete */
    const struct port_host *host;       /* of its Host */
    const char *domain;                 /* that it is below */
    const uint8_t *secret;              /* E2B_SECRET bytes: opens E2B's tokens */
    bool tls;
};

void port_access_find(const struct port_asked *asked, struct port_access *ret_access);

#endif
