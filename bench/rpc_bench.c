/* bench/rpc_bench.c - the RPC server alone, one thread, for h2load; bench/rpc.sh drives it.
 *
 *   rpc_bench PORT [CERT KEY]      h2c on 127.0.0.1:PORT, or TLS
 */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/conf.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "tests/integration/rpc/test_service.h"

static int listen_on(uint64_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || listen(fd, 512) < 0) {
        perror("rpc_bench: listen");
        return -1;
    }
    return fd;
}

static void on_signal(int signo, void *arg)
{
    (void)signo;
    cl_loop_stop(arg);
}

int main(int argc, char **argv)
{
    struct cl_err err;
    struct cl_loop *loop = NULL;
    struct rpc_server *server = NULL;
    SSL_CTX *tls = NULL;
    uint64_t port = 0;
    struct tls_files files = {.cert = argc > 3 ? argv[2] : NULL, .key = argc > 3 ? argv[3] : NULL};
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 2 || cl_parse_u64(argv[1], &port, &err) < 0)
        return 2;
    int fd = listen_on(port);
    if (fd < 0)
        return 1;
    if ((files.cert && tls_server_new(&files, &tls, &err) < 0) || cl_loop_new(&loop, &err) < 0 ||
        rpc_server_new(loop, &server, &err) < 0 || test_service_add(server, &err) < 0 ||
        cl_loop_on_signal(loop, SIGTERM, on_signal, loop, &err) < 0 ||
        rpc_server_listen(server, fd, tls, 0, &err) < 0) {
        (void)fprintf(stderr, "rpc_bench: %s\n", err.text);
        return 1;
    }
    cl_loop_run(loop);
    rpc_server_free(server);
    cl_loop_free(loop);
    SSL_CTX_free(tls);
    return 0;
}
