/* net/hello.h - the name that a TLS client asks for, out of the first bytes that it sends.
 *
 * A rule by name lets a guest go to an address, and behind one address there may be any number of
 * names (a CDN's).  The name in the ClientHello (server name indication, RFC 6066 section 3) goes
 * in clear, and is what such a host chooses by.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure; hostile input.
 * Source:  RFC 8446 sections 4.1.2 and 5.1, RFC 5246 likewise.
 */
#ifndef CL_NET_HELLO_H
#define CL_NET_HELLO_H

#include <stddef.h>
#include <stdint.h>

#include "policy/net_rule.h"

/* Of all that comes before a hello is whole: those of browsers have 2 KiB.  Without it: memory. */
enum { NET_HELLO_MAX = 16 * 1024 };

enum net_hello {
    NET_HELLO_MORE = 1, /* it is not whole yet */
    NET_HELLO_NOT_TLS,
    NET_HELLO_NAME,    /* it asks for ret_name */
    NET_HELLO_NO_NAME, /* it names nobody, more than one, or what is no host name; or it is broken
                        */
};

/* n > 0 bytes from the begin of the connection on.  The name is lower case. */
enum net_hello net_hello_parse(const uint8_t *bytes, size_t n,
                               char ret_name[static NET_NAME_MAX + 1]);

#endif
