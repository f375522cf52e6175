/* tests/fuzz/fuzz_h2.c - a whole server connection under a hostile peer: frames, flow control,
 * header blocks, gRPC framing, calls that end early.
 *
 * Input: records (h2_peer.h).
 * Fails when a connection outlives its peer, or a call its connection.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "rpc/proto/health.pb-c.h"
#include "rpc/server.h"
#include "tests/fuzz/h2_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TURNS_MAX = 100000 };

/* --- a service with a call of each shape ----------------------------------------------------- */

static void say(struct rpc_call *call)
{
    Grpc__Health__V1__HealthCheckResponse msg;
    grpc__health__v1__health_check_response__init(&msg);
    if (rpc_call_send(call, &msg.base, NULL) < 0)
        rpc_call_finish(call, NULL);
}

static void on_echo(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)msg, (void)service;
    if (!rpc_call_is_full(call))
        say(call);
}

static void on_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, NULL);
}

static const struct rpc_method methods[] = {{
    .path = "/t/Echo",
    .in = &grpc__health__v1__health_check_request__descriptor,
    .out = &grpc__health__v1__health_check_response__descriptor,
    .client_streams = true,
    .server_streams = true,
    .on_message = on_echo,
    .on_half_close = on_half_close,
}};

static struct cl_loop *loop;
static struct rpc_server *server;
static struct sockaddr_un address; /* in the abstract namespace, chosen by the kernel */
static socklen_t address_len = sizeof address;

static void start_server(void)
{
    sa_family_t family = AF_UNIX;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&family, sizeof family) < 0 ||
        listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &address_len) < 0 ||
        cl_loop_new(&loop, NULL) < 0 || rpc_server_new(loop, &server, NULL) < 0 ||
        rpc_server_add(server, methods, CL_COUNT(methods), NULL, -1, NULL) < 0 ||
        rpc_server_listen(server, fd, NULL, 0, NULL) < 0)
        abort();
}

/* --- the hostile peer ------------------------------------------------------------------------ */

static int connect_to_server(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, address_len) < 0)
        abort();
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!server)
        start_server();
    CL_AUTO(cl_closep) int fd = connect_to_server();
    send_records(loop, fd, data, n, NULL);
    (void)shutdown(fd, SHUT_WR);
    for (int turns = 0; read_answers(fd) || rpc_server_open_calls(server) > 0; turns++) {
        if (turns == TURNS_MAX)
            abort();
        cl_loop_turn(loop, turns < 16 ? 0 : CL_NS_PER_MS);
    }
    return 0;
}
