/* gateway/port_dial.h - one call of PortService.Connect: bytes to and from a port of a sandbox.
 *
 * Owns:    itself; after `end` or port_dial_leave() it must not be touched, and goes when the call
 *          has ended.
 * Borrows: the pool.
 * Thread:  the loop's.
 */
#ifndef CL_GATEWAY_PORT_DIAL_H
#define CL_GATEWAY_PORT_DIAL_H

#include "gateway/port_host.h"
#include "rpc/pool.h"

struct port_dial_events {
    /* Bytes of the guest's program. */
    void (*data)(void *arg, const uint8_t *data, size_t n);
    /* No more of them follow. */
    void (*eof)(void *arg);
    /* It takes bytes again. */
    void (*drain)(void *arg);
    /* NULL: in order. */
    void (*end)(void *arg, const struct cl_err *err);
};

struct port_dial_spec {
    struct rpc_pool *pool;
    const struct port_host *host;
    const char *credential; /* "Bearer ...", not kept */
    const struct port_dial_events *events;
    void *arg;
};

struct port_dial;
/* Connect, and send the first bytes. */
int port_dial_new(const struct port_dial_spec *spec, const void *first, size_t n,
                  struct port_dial **ret_dial, struct cl_err *err) CL_MUST;
int port_dial_send(struct port_dial *d, const void *data, size_t n, struct cl_err *err) CL_MUST;
/* No more bytes follow from the client. */
int port_dial_send_eof(struct port_dial *d, struct cl_err *err) CL_MUST;
/* Send no more until `drain`. */
bool port_dial_is_full(const struct port_dial *d);
/* The guest is not read (any more, or again). */
void port_dial_pause(struct port_dial *d, bool paused);
/* Has somebody in the guest taken the connection? */
bool port_dial_is_connected(const struct port_dial *d);
/* No event any more; the connection ends. */
void port_dial_leave(struct port_dial *d);

#endif
