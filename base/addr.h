/* base/addr.h - HOST:PORT as a socket address.
 *
 * A literal address ("127.0.0.1:80", "[::1]:80", ":80") is taken as it is: no resolver, no name
 * service cache and no netlink socket is asked.  Only a name is looked up.
 * Thread:  start-up for names: the look-up blocks.
 */
#ifndef CL_BASE_ADDR_H
#define CL_BASE_ADDR_H

#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"

enum { CL_ADDR_HOST = 256 }; /* size of a host's text, with its NUL */

struct cl_addr {
    char host[CL_ADDR_HOST]; /* as written, without brackets; "" = any, for listeners */
    struct sockaddr_storage sa;
    socklen_t len;
};

/* INVALID when text is no HOST:PORT, UNAVAILABLE when its name cannot be looked up. */
int cl_addr_parse(const char *text, struct cl_addr *ret_addr, struct cl_err *err) CL_MUST;
/* Bind and listen; non-blocking, close-on-exec.  The caller owns *ret_fd.  When whoever started
 * this process has given it a socket that is bound to the address (sd_listen_fds(3): descriptors
 * from 3 on, LISTEN_PID, LISTEN_FDS), that one. */
int cl_tcp_listen(const char *address, int backlog, int *ret_fd, struct cl_err *err) CL_MUST;
/* The same without listen(2): who connects is refused. */
int cl_tcp_bind(const char *address, int *ret_fd, struct cl_err *err) CL_MUST;
/* The port that a TCP socket is bound to, in host order; 0 when it is none or has none. */
uint16_t cl_tcp_port(int fd);

#endif
