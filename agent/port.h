/* agent/port.h - which door leads to the worker: the virtio port with our name where the monitor
 * has one (QEMU), else a vsock connection to the host (cloche-vmm).
 *
 * Owns:    nothing; the fd is the caller's.
 * Thread:  start-up only.
 * Both carry the same frames and both survive a snapshot and restore of the VM.
 */
#ifndef CL_AGENT_PORT_H
#define CL_AGENT_PORT_H

#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"

enum { PORT_VSOCK = 1024 /* VSOCK_AGENT_PORT of the monitor */ };

/* Where to look. */
struct port_places {
    const char *ports;           /* folder of sysfs: one folder a port, with its name in `name` */
    const char *devices;         /* folder of their device nodes */
    const struct sockaddr *host; /* address of the host's side */
    socklen_t host_len;
};

/* A guest's own places: /sys, /dev, and port PORT_VSOCK of the host's CID. */
void port_places_init(struct port_places *ret_places);
/* Look once.  The fd is non-blocking and close-on-exec; NOTFOUND while there is neither. */
int port_open(const struct port_places *places, int *ret_fd, struct cl_err *err) CL_MUST;

#endif
