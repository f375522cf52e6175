/* base/addr.c - see base/addr.h. */
#include "base/addr.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"

enum { GIVEN_FIRST = 3, GIVEN_MAX = 16 }; /* sd_listen_fds(3) */

/* Split at the last colon; brackets around an IPv6 address go.  Returns the port's text or NULL. */
static const char *split(const char *text, char host[static CL_ADDR_HOST])
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || !colon[1] || n >= CL_ADDR_HOST)
        return NULL;
    bool bracketed = n > 1 && text[0] == '[' && colon[-1] == ']';
    (void)snprintf(host, CL_ADDR_HOST, "%.*s", (int)(bracketed ? n - 2 : n), text + bracketed);
    return colon + 1;
}

int cl_addr_parse(const char *text, struct cl_addr *ret_addr, struct cl_err *err)
{
    struct cl_addr addr = {.host = ""};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    const char *port = split(text, addr.host);
    if (!port)
        return cl_fail(err, CL_E_INVALID, 0, "'%.128s' is no HOST:PORT", text);
    const char *node = addr.host[0] ? addr.host : NULL;
    int rc = getaddrinfo(node, port, &hints, &list);
    if (rc == EAI_NONAME && node) {
        hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
        rc = getaddrinfo(node, port, &hints, &list);
    }
    if (rc != 0)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "resolve '%.128s': %s", text, gai_strerror(rc));
    memcpy(&addr.sa, list->ai_addr, list->ai_addrlen);
    addr.len = list->ai_addrlen;
    freeaddrinfo(list);
    *ret_addr = addr;
    return 0;
}

/* A descriptor of its own for the socket that was given for this address, or -1. */
static int given_listener(const struct cl_addr *addr)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || strtol(pid, NULL, 10) != getpid())
        return -1;
    long end = GIVEN_FIRST + CL_MIN(strtol(count, NULL, 10), GIVEN_MAX);
    for (int fd = GIVEN_FIRST; fd < end; fd++) {
        struct sockaddr_storage sa = {0};
        socklen_t len = sizeof sa;
        if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0 || len != addr->len ||
            memcmp(&sa, &addr->sa, len) != 0)
            continue;
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
        return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    return -1;
}

static int bound_socket(const struct cl_addr *addr)
{
    int on = 1;
    CL_AUTO(cl_closep)
    int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (const struct sockaddr *)&addr->sa, addr->len) < 0)
        return -1;
    return cl_steal_fd(&fd);
}

int cl_tcp_bind(const char *address, int *ret_fd, struct cl_err *err)
{
    struct cl_addr addr;
    if (cl_addr_parse(address, &addr, err) < 0)
        return -1;
    CL_AUTO(cl_closep) int fd = given_listener(&addr);
    if (fd < 0)
        fd = bound_socket(&addr);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "listen on '%.128s'", address);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

int cl_tcp_listen(const char *address, int backlog, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_tcp_bind(address, &fd, err) < 0)
        return -1;
    if (listen(fd, backlog) < 0)
        return cl_fail(err, CL_E_SYS, errno, "listen on '%.128s'", address);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

uint16_t cl_tcp_port(int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t n = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &n) < 0)
        return 0;
    if (ss.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
    return ss.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&ss)->sin_port) : 0;
}
