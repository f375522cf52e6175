/* tests/integration/rpc/test_tls.c - TLS between our client and server: whom each believes, and
 * the worker's identity from its certificate.  openssl(1) makes the certificates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/tls.h"
#include "tests/integration/rpc/interop.pb-c.h"

#define CHECK(cond) assert_true(cond)
#define WAIT_NS (20 * CL_NS_PER_S)

static char dir[64];

struct world {
    struct cl_loop *loop;
    struct rpc_server *server;
    SSL_CTX *server_tls;
    int port;
    char worker_id[64];
    int calls;
};

struct seen {
    int messages, ends;
    size_t bytes;
    struct cl_err err;
};

static const char *file(const char *name, char out[static 128])
{
    (void)snprintf(out, 128, "%s/%s", dir, name);
    return out;
}

static int shell(const char *cmd)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "cd %s && (%s) >/dev/null 2>&1", dir, cmd);
    return system(line);
}

/* A CA; a server for localhost; a worker "w1"; and a stranger's CA with its own worker. */
static int make_certificates(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/cloche-tls-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    static const char script[] =
        "new='openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2';"
        "leaf='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x';"
        "for ca in ca evil; do $new -keyout $ca.key -out $ca.pem -subj /CN=$ca; done;"
        "sign() { printf 'subjectAltName=%s' \"$3\" > ext;"
        " $leaf -keyout $2.key -out csr;"
        " openssl x509 -req -in csr -CA $1.pem -CAkey $1.key -CAcreateserial -days 2"
        " -extfile ext -out $2.pem; };"
        "sign ca server DNS:localhost,IP:127.0.0.1; sign ca worker URI:worker:w1;"
        "sign evil forged URI:worker:w1; sign ca other DNS:elsewhere";
    return shell(script) == 0 ? 0 : -1;
}

static int remove_certificates(void **state)
{
    (void)state;
    return cl_remove_tree(dir, NULL);
}

static void on_unary(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct world *w = service;
    const Grpc__Testing__SimpleRequest *req = (const Grpc__Testing__SimpleRequest *)msg;
    Grpc__Testing__SimpleResponse reply;
    grpc__testing__simple_response__init(&reply);
    reply.payload = req->payload;
    w->calls++;
    (void)snprintf(w->worker_id, sizeof w->worker_id, "%s", rpc_call_peer(call)->worker_id);
    rpc_call_reply(call, &reply.base);
}

static const struct rpc_method methods[] = {{
    .path = "/t/Unary",
    .in = &grpc__testing__simple_request__descriptor,
    .out = &grpc__testing__simple_response__descriptor,
    .on_message = on_unary,
}};

static void start(struct world *w, const char *cert, const char *key, const char *ca)
{
    char a[128], b[128], c[128];
    struct cl_err err = {0};
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    struct tls_files files = {file(cert, a), file(key, b), ca ? file(ca, c) : NULL};
    *w = (struct world){0};
    CHECK(tls_server_new(&files, &w->server_tls, &err) == 0);
    CHECK(cl_loop_new(&w->loop, &err) == 0);
    CHECK(rpc_server_new(w->loop, &w->server, &err) == 0);
    CHECK(rpc_server_add(w->server, methods, 1, w, -1, &err) == 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&sa, n) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&sa, &n) == 0);
    w->port = ntohs(sa.sin_port);
    CHECK(rpc_server_listen(w->server, fd, w->server_tls, 0, &err) == 0);
}

static void stop(struct world *w)
{
    rpc_server_free(w->server);
    cl_loop_turn(w->loop, CL_NS_PER_MS);
    cl_loop_free(w->loop);
    SSL_CTX_free(w->server_tls);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call;
    struct seen *s = arg;
    const Grpc__Testing__SimpleResponse *r = (const Grpc__Testing__SimpleResponse *)msg;
    s->messages++;
    s->bytes = r->payload ? r->payload->body.len : 0;
}

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct seen *s = arg;
    s->ends++;
    if (status)
        s->err = *status;
}

/* One call of a fresh client, which echoes `bytes` bytes. */
static struct seen call_targets(struct world *w, const char *targets, struct tls_files files,
                                size_t bytes)
{
    static const struct rpc_client_events events = {on_message, NULL, on_end};
    struct cl_err err = {0};
    struct seen s = {0};
    SSL_CTX *tls = NULL;
    struct rpc_channel *channel = NULL;
    struct rpc_call *call = NULL;
    CHECK(tls_client_new(&files, &tls, &err) == 0);
    CHECK(rpc_channel_new(w->loop, targets, tls, &channel, &err) == 0);
    struct rpc_call_spec spec = {
        .path = "/t/Unary", .fail_fast = true, .out = &grpc__testing__simple_response__descriptor};
    CHECK(rpc_channel_call(channel, &spec, &events, &s, &call, &err) == 0);
    Grpc__Testing__SimpleRequest req;
    Grpc__Testing__Payload payload;
    grpc__testing__simple_request__init(&req);
    grpc__testing__payload__init(&payload);
    payload.body.data = calloc(1, bytes + 1);
    payload.body.len = bytes;
    for (size_t i = 0; i < bytes; i++)
        payload.body.data[i] = (uint8_t)(i * 7);
    req.payload = &payload;
    CHECK(rpc_call_send(call, &req.base, &err) == 0);
    free(payload.body.data);
    rpc_call_close_send(call);
    for (uint64_t end = cl_now_ns() + WAIT_NS; s.ends == 0 && cl_now_ns() < end;)
        cl_loop_turn(w->loop, 10 * CL_NS_PER_MS);
    rpc_channel_free(channel);
    cl_loop_turn(w->loop, CL_NS_PER_MS);
    SSL_CTX_free(tls);
    CHECK(s.ends == 1);
    return s;
}

static struct seen call_once(struct world *w, const char *host, struct tls_files files,
                             size_t bytes)
{
    char target[64];
    (void)snprintf(target, sizeof target, "%s:%d", host, w->port);
    return call_targets(w, target, files, bytes);
}

static void test_a_known_server_is_believed(void **state)
{
    (void)state;
    struct world w;
    char ca[128];
    start(&w, "server.pem", "server.key", NULL);
    struct tls_files files = {.ca = file("ca.pem", ca)};
    struct seen s = call_once(&w, "localhost", files, 3000000);
    CHECK(s.err.code == CL_OK && s.messages == 1 && s.bytes == 3000000);
    CHECK(w.worker_id[0] == '\0');
    s = call_once(&w, "127.0.0.1", files, 10);
    CHECK(s.err.code == CL_OK && s.messages == 1);
    stop(&w);
}

static void test_a_strangers_ca_is_not(void **state)
{
    (void)state;
    struct world w;
    char ca[128];
    start(&w, "server.pem", "server.key", NULL);
    struct seen s = call_once(&w, "localhost", (struct tls_files){.ca = file("evil.pem", ca)}, 10);
    CHECK(s.err.code == CL_E_UNAVAILABLE && w.calls == 0);
    CHECK(strstr(s.err.text, "certificate verify failed") != NULL);
    stop(&w);
}

static void test_another_host_name_is_not(void **state)
{
    (void)state;
    struct world w;
    char ca[128];
    start(&w, "other.pem", "other.key", NULL);
    struct seen s = call_once(&w, "localhost", (struct tls_files){.ca = file("ca.pem", ca)}, 10);
    CHECK(s.err.code == CL_E_UNAVAILABLE && w.calls == 0);
    stop(&w);
}

/* The certificate does not name 127.0.0.2, where the same server listens too. */
static void test_each_of_several_targets_is_checked_against_its_own_host(void **state)
{
    (void)state;
    struct world w;
    char ca[128], targets[128];
    struct cl_err err = {0};
    start(&w, "server.pem", "server.key", NULL);
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1),
                             .sin_port = htons((uint16_t)w.port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && listen(fd, 16) == 0);
    CHECK(rpc_server_listen(w.server, fd, w.server_tls, 0, &err) == 0);
    struct tls_files files = {.ca = file("ca.pem", ca)};
    CHECK(call_once(&w, "127.0.0.2", files, 10).err.code == CL_E_UNAVAILABLE && w.calls == 0);
    (void)snprintf(targets, sizeof targets, "127.0.0.2:%d,127.0.0.2:%d", w.port, w.port);
    struct seen s = call_targets(&w, targets, files, 10);
    CHECK(s.err.code == CL_E_UNAVAILABLE && w.calls == 0);
    CHECK(strstr(s.err.text, "any of 2 targets") && strstr(s.err.text, "certificate verify"));
    (void)snprintf(targets, sizeof targets, "127.0.0.2:%d,localhost:%d", w.port, w.port);
    s = call_targets(&w, targets, files, 10);
    CHECK(s.err.code == CL_OK && s.messages == 1 && w.calls == 1);
    stop(&w);
}

static void test_a_worker_is_known_by_its_certificate(void **state)
{
    (void)state;
    struct world w;
    char ca[128], cert[128], key[128];
    start(&w, "server.pem", "server.key", "ca.pem");
    struct tls_files files = {file("worker.pem", cert), file("worker.key", key),
                              file("ca.pem", ca)};
    struct seen s = call_once(&w, "localhost", files, 10);
    CHECK(s.err.code == CL_OK);
    assert_string_equal(w.worker_id, "w1");
    stop(&w);
}

static void test_forged_and_missing_worker_certificates_are_refused(void **state)
{
    (void)state;
    struct world w;
    char ca[128], cert[128], key[128];
    start(&w, "server.pem", "server.key", "ca.pem");
    struct tls_files files = {file("forged.pem", cert), file("forged.key", key),
                              file("ca.pem", ca)};
    CHECK(call_once(&w, "localhost", files, 10).err.code == CL_E_UNAVAILABLE);
    files.cert = files.key = NULL;
    CHECK(call_once(&w, "localhost", files, 10).err.code == CL_E_UNAVAILABLE);
    CHECK(w.calls == 0);
    stop(&w);
}

static void test_missing_files_are_named(void **state)
{
    (void)state;
    SSL_CTX *tls = NULL;
    struct cl_err err;
    char cert[128];
    struct tls_files files = {.cert = file("nope.pem", cert)};
    CHECK(tls_server_new(&files, &tls, &err) < 0 && strstr(err.text, "nope.pem"));
    files = (struct tls_files){.ca = cert};
    CHECK(tls_client_new(&files, &tls, &err) < 0 && strstr(err.text, "nope.pem"));
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    if (system("openssl version >/dev/null 2>&1") != 0) {
        (void)printf("skipped: openssl(1) is not installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_known_server_is_believed),
        cmocka_unit_test(test_a_strangers_ca_is_not),
        cmocka_unit_test(test_another_host_name_is_not),
        cmocka_unit_test(test_each_of_several_targets_is_checked_against_its_own_host),
        cmocka_unit_test(test_a_worker_is_known_by_its_certificate),
        cmocka_unit_test(test_forged_and_missing_worker_certificates_are_refused),
        cmocka_unit_test(test_missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
