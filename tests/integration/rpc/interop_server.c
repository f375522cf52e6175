/* tests/integration/rpc/interop_server.c - a server with grpc.testing.TestService for other
 * people's clients.
 *
 *   interop_server PORT [CERT KEY [CA]] [--set FILE]   PORT 0 = any; prints "port N" when ready
 *
 * SIGTERM drains, a second one stops.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/buf.h"
#include "base/fs.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "tests/integration/rpc/test_service.h"

struct program {
    struct cl_loop *loop;
    struct rpc_server *server;
    int stops;
};

static void die(const struct cl_err *err)
{
    (void)fprintf(stderr, "interop_server: %s\n", err->text);
    exit(1);
}

static int listen_on(int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, 512) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &n) < 0) {
        perror("interop_server: listen");
        exit(1);
    }
    (void)printf("port %u\n", ntohs(sa.sin_port));
    (void)fflush(stdout);
    return fd;
}

static void on_drained(void *arg)
{
    struct program *p = arg;
    cl_loop_stop(p->loop);
}

static void on_signal(int signo, void *arg)
{
    (void)signo;
    struct program *p = arg;
    if (p->stops++ == 0)
        rpc_server_drain(p->server, on_drained, p);
    else
        cl_loop_stop(p->loop);
}

int main(int argc, char **argv)
{
    struct program p = {0};
    struct cl_err err;
    struct cl_buf set;
    SSL_CTX *tls = NULL;
    cl_buf_init(&set, CL_MIB);
    if (argc > 3 && strcmp(argv[argc - 2], "--set") == 0) {
        if (cl_file_read(AT_FDCWD, argv[argc - 1], &set, &err) < 0)
            die(&err);
        argc -= 2;
    }
    if (argc < 2)
        return 2;
    (void)signal(SIGPIPE, SIG_IGN);
    struct tls_files files = {.cert = argc > 3 ? argv[2] : NULL,
                              .key = argc > 3 ? argv[3] : NULL,
                              .ca = argc > 4 ? argv[4] : NULL};
    uint64_t port;
    if (cl_parse_u64(argv[1], &port, &err) < 0 ||
        (files.cert && tls_server_new(&files, &tls, &err) < 0))
        die(&err);
    if (cl_loop_new(&p.loop, &err) < 0 || rpc_server_new(p.loop, &p.server, &err) < 0 ||
        test_service_add(p.server, &err) < 0 ||
        (set.len > 0 && rpc_server_set_reflection(p.server, set.data, set.len, &err) < 0) ||
        cl_loop_on_signal(p.loop, SIGTERM, on_signal, &p, &err) < 0 ||
        rpc_server_listen(p.server, listen_on((int)port), tls, 0, &err) < 0)
        die(&err);
    rpc_server_set_health(p.server, "grpc.testing.TestService", true);
    cl_loop_run(p.loop);
    rpc_server_free(p.server);
    cl_loop_free(p.loop);
    SSL_CTX_free(tls);
    cl_buf_fini(&set);
    return 0;
}
