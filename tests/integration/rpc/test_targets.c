/* tests/integration/rpc/test_targets.c - a channel with several targets: which it uses, and how
 * soon it leaves one that is gone, or that stands still.  Times are checked against limits that a
 * slow machine keeps and the patience of a channel with one target does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/loop.h"
#include "base/own.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "tests/integration/rpc/interop.pb-c.h"
#include "tests/integration/rpc/test_service.h"

enum { PLACES = 3 };
#define WAIT_NS (20 * CL_NS_PER_S)
#define CHECK(cond) assert_true(cond)

/* A place where a server may listen. */
struct place {
    struct rpc_server *server;
    char path[64], target[80];
};

struct world {
    struct cl_loop *loop;
    struct place places[PLACES];
    struct rpc_channel *channel;
    int ups, downs;
    struct cl_err down;
};

struct seen {
    struct rpc_call *call;
    int messages, ends;
    bool ok;
    struct cl_err err;
    char peer[64];
};

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)msg;
    struct seen *s = arg;
    s->messages++;
    (void)snprintf(s->peer, sizeof s->peer, "%s", rpc_call_peer(call)->address);
}

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct seen *s = arg;
    s->ends++;
    s->ok = status == NULL;
    if (status)
        s->err = *status;
}

static void on_state(void *arg, const struct cl_err *err)
{
    struct world *w = arg;
    if (!err) {
        w->ups++;
        return;
    }
    w->downs++;
    w->down = *err;
}

static void serve_on(struct cl_loop *loop, struct place *p)
{
    struct cl_err err = {0};
    int fd = -1;
    CHECK(rpc_server_new(loop, &p->server, &err) == 0);
    CHECK(test_service_add(p->server, &err) == 0);
    CHECK(cl_unix_listen(p->path, 0600, &fd, &err) == 0);
    CHECK(rpc_server_listen(p->server, fd, NULL, 0, &err) == 0);
}

static void serve(struct world *w, size_t i)
{
    serve_on(w->loop, &w->places[i]);
}

static void leave(struct world *w, size_t i)
{
    rpc_server_free(w->places[i].server);
    w->places[i].server = NULL;
    (void)unlink(w->places[i].path);
}

static int set_up(void **state)
{
    struct cl_err err = {0};
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return -1;
    CHECK(cl_loop_new(&w->loop, &err) == 0);
    for (size_t i = 0; i < PLACES; i++) {
        struct place *p = &w->places[i];
        (void)snprintf(p->path, sizeof p->path, "/tmp/cloche-targets-%d-%zu", (int)getpid(), i);
        (void)snprintf(p->target, sizeof p->target, "unix:%s", p->path);
    }
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    rpc_channel_free(w->channel);
    for (size_t i = 0; i < PLACES; i++)
        leave(w, i);
    cl_loop_turn(w->loop, CL_NS_PER_MS);
    cl_loop_free(w->loop);
    free(w);
    return 0;
}

static void open_list(struct world *w, const char *list)
{
    struct cl_err err = {0};
    CHECK(rpc_channel_new(w->loop, list, NULL, &w->channel, &err) == 0);
    rpc_channel_on_state(w->channel, on_state, w);
}

/* A channel to the first `n` places. */
static void open_places(struct world *w, size_t n)
{
    char list[PLACES * 80] = "";
    for (size_t i = 0, used = 0; i < n; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? "," : "",
                                 w->places[i].target);
    open_list(w, list);
}

#define RUN_UNTIL_BY(w, cond, ns) \
    do { \
        uint64_t give_up_ = cl_now_ns() + (ns); \
        while (!(cond) && cl_now_ns() < give_up_) \
            cl_loop_turn((w)->loop, 10 * CL_NS_PER_MS); \
        CHECK(cond); \
    } while (0)
#define RUN_UNTIL(w, cond) RUN_UNTIL_BY(w, cond, WAIT_NS)

static void run_for(struct world *w, uint64_t ns)
{
    for (uint64_t end = cl_now_ns() + ns; cl_now_ns() < end;)
        cl_loop_turn(w->loop, CL_NS_PER_MS);
}

static bool is_up_at(const struct world *w, size_t i)
{
    return rpc_channel_is_up(w->channel) &&
           strcmp(rpc_channel_target(w->channel), w->places[i].target) == 0;
}

#define SERVICE "/grpc.testing.TestService/"
static const struct rpc_client_events events = {on_message, NULL, on_end};

static void start_unary(struct world *w, struct seen *s, bool fail_fast)
{
    struct cl_err err = {0};
    struct rpc_call_spec spec = {.path = SERVICE "UnaryCall",
                                 .out = &grpc__testing__simple_response__descriptor,
                                 .fail_fast = fail_fast};
    Grpc__Testing__SimpleRequest req;
    grpc__testing__simple_request__init(&req);
    req.response_size = 10;
    CHECK(rpc_channel_call(w->channel, &spec, &events, s, &s->call, &err) == 0);
    CHECK(rpc_call_send(s->call, &req.base, &err) == 0);
    rpc_call_close_send(s->call);
}

/* A call that stays open, and has had an answer. */
static void start_duplex(struct world *w, struct seen *s)
{
    struct cl_err err = {0};
    struct rpc_call_spec spec = {.path = SERVICE "FullDuplexCall",
                                 .out = &grpc__testing__streaming_output_call_response__descriptor};
    Grpc__Testing__ResponseParameters one, *list[] = {&one};
    Grpc__Testing__StreamingOutputCallRequest req;
    grpc__testing__response_parameters__init(&one);
    grpc__testing__streaming_output_call_request__init(&req);
    one.size = 1;
    req.n_response_parameters = 1;
    req.response_parameters = list;
    CHECK(rpc_channel_call(w->channel, &spec, &events, s, &s->call, &err) == 0);
    CHECK(rpc_call_send(s->call, &req.base, &err) == 0);
    RUN_UNTIL(w, s->messages == 1);
}

static void check_call_at(struct world *w, size_t i)
{
    struct seen s = {0};
    start_unary(w, &s, true);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == 1);
    assert_string_equal(s.peer, w->places[i].target);
}

/* A TCP port of loopback: bound, and listening or not. */
static int tcp_port(bool listening, char target[static 32])
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&sa, n) == 0);
    CHECK(!listening || listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&sa, &n) == 0);
    (void)snprintf(target, 32, "127.0.0.1:%d", ntohs(sa.sin_port));
    return fd;
}

/* --- which one ---------------------------------------------------------------------------------
 */

static void test_the_first_that_answers_is_used_and_nobody_hears_of_the_others(void **state)
{
    struct world *w = *state;
    char refusing[32], list[256];
    int fd = tcp_port(false, refusing);
    (void)snprintf(list, sizeof list, "%s,%s,%s", w->places[0].target, refusing,
                   w->places[1].target);
    serve(w, 1);
    open_list(w, list);
    check_call_at(w, 1);
    CHECK(is_up_at(w, 1));
    RUN_UNTIL(w, w->ups == 1);
    CHECK(w->downs == 0);
    (void)close(fd);
}

static void test_the_next_one_follows_one_that_was_closed(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < PLACES; i++)
        serve(w, i);
    open_places(w, PLACES);
    rpc_channel_connect(w->channel);
    RUN_UNTIL(w, is_up_at(w, 0));
    struct seen s = {0};
    start_duplex(w, &s);
    leave(w, 0);
    serve(w, 0); /* it is back at once, and still it is not its turn */
    RUN_UNTIL(w, is_up_at(w, 1));
    CHECK(s.ends == 1 && s.err.code == CL_E_UNAVAILABLE);
    check_call_at(w, 1);
    run_for(w, 1200 * CL_NS_PER_MS); /* steady: what failed before is forgotten */
    leave(w, 1);
    leave(w, 2);
    RUN_UNTIL(w, is_up_at(w, 0));
    check_call_at(w, 0);
    CHECK(w->downs == 2);
}

static void test_who_says_goodbye_is_left_and_may_finish(void **state)
{
    struct world *w = *state;
    serve(w, 0);
    serve(w, 1);
    open_places(w, 2);
    struct seen s = {0};
    start_duplex(w, &s);
    CHECK(is_up_at(w, 0));
    run_for(w, 1200 * CL_NS_PER_MS);
    rpc_server_drain(w->places[0].server, NULL, NULL);
    rpc_channel_connect(w->channel);
    RUN_UNTIL(w, is_up_at(w, 1));
    check_call_at(w, 1);
    CHECK(s.ends == 0);
    rpc_call_close_send(s.call);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok);
}

static void test_when_all_refuse_a_call_hears_it_once_and_a_patient_one_waits(void **state)
{
    struct world *w = *state;
    struct seen fast = {0}, patient = {0};
    open_places(w, PLACES);
    start_unary(w, &fast, true);
    start_unary(w, &patient, false);
    RUN_UNTIL(w, fast.ends == 1);
    CHECK(fast.err.code == CL_E_UNAVAILABLE && patient.ends == 0);
    CHECK(strstr(fast.err.text, "connect to any of 3 targets: ") == fast.err.text);
    for (size_t i = 0; i < PLACES; i++)
        CHECK(strstr(fast.err.text, w->places[i].target) != NULL);
    RUN_UNTIL(w, w->downs >= 1);
    CHECK(strstr(w->down.text, "any of 3") != NULL);
    serve(w, 2);
    RUN_UNTIL(w, patient.ends == 1);
    CHECK(patient.ok && fast.ends == 1);
    assert_string_equal(patient.peer, w->places[2].target);
}

/* --- one that comes and goes -------------------------------------------------------------------
 */

struct flapping {
    int fd, peer, n;
};

/* SETTINGS, and FIN: up for a moment. */
static void on_flap(int fd, int what, void *arg)
{
    static const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    (void)what;
    struct flapping *f = arg;
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0)
        return;
    CHECK(send(peer, settings, sizeof settings, MSG_NOSIGNAL) == sizeof settings);
    (void)shutdown(peer, SHUT_WR);
    cl_closep(&f->peer);
    f->peer = peer;
    f->n++;
}

static void test_one_that_comes_and_goes_is_not_asked_without_a_pause(void **state)
{
    struct world *w = *state;
    struct cl_err err = {0};
    struct flapping f = {.peer = -1};
    struct cl_fd_watch watch = {0};
    char target[32], list[256];
    f.fd = tcp_port(true, target);
    CHECK(cl_fd_watch_init(&watch, w->loop, f.fd, CL_READ, on_flap, &f, &err) == 0);
    (void)snprintf(list, sizeof list, "%s,%s", target, w->places[0].target);
    open_list(w, list);
    rpc_channel_connect(w->channel);
    RUN_UNTIL(w, f.n >= 3);
    int before = f.n;
    run_for(w, CL_NS_PER_S);
    CHECK(f.n - before < 100);
    cl_fd_watch_fini(&watch);
    cl_closep(&f.peer);
    (void)close(f.fd);
}

/* --- one that does not answer ------------------------------------------------------------------
 */

static void test_one_that_never_greets_is_given_up_after_three_seconds(void **state)
{
    struct world *w = *state;
    char silent[2][32], list[256];
    int fds[2] = {tcp_port(true, silent[0]), tcp_port(true, silent[1])};
    (void)snprintf(list, sizeof list, "%s,%s,%s", silent[0], silent[1], w->places[0].target);
    serve(w, 0);
    open_list(w, list);
    struct seen s = {0};
    uint64_t began = cl_now_ns();
    start_unary(w, &s, true);
    RUN_UNTIL_BY(w, s.ends == 1, 19 * CL_NS_PER_S); /* twice the usual 10 s are more */
    CHECK(s.ok && w->downs == 0);
    CHECK(cl_now_ns() - began >= 6 * CL_NS_PER_S);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* A server in a process of its own, which is up. */
static pid_t fork_server(struct place *p)
{
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    struct cl_loop *loop = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || cl_loop_new(&loop, NULL) < 0)
        _exit(1);
    serve_on(loop, p);
    cl_loop_run(loop);
    _exit(0);
}

static void end_child(pid_t pid)
{
    int status = 0;
    CHECK(kill(pid, SIGCONT) == 0 && kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static void test_one_that_stands_still_is_left(void **state)
{
    struct world *w = *state;
    pid_t pid = fork_server(&w->places[0]);
    open_places(w, 2);
    rpc_channel_connect(w->channel);
    RUN_UNTIL(w, is_up_at(w, 0)); /* the other does not listen yet, as a stand-by */
    serve(w, 1);
    struct seen s = {0};
    start_duplex(w, &s);
    CHECK(kill(pid, SIGSTOP) == 0);
    RUN_UNTIL_BY(w, is_up_at(w, 1), 40 * CL_NS_PER_S); /* healthy: 7; with one target: 80 */
    CHECK(s.ends == 1 && s.err.code == CL_E_UNAVAILABLE);
    CHECK(strstr(s.err.text, "does not answer pings") != NULL);
    check_call_at(w, 1);
    end_child(pid);
    check_call_at(w, 1);
    CHECK(w->ups == 2);
}

/* Long enough for more PINGs than a server would bear if they came too close. */
static void test_an_idle_connection_stays(void **state)
{
    struct world *w = *state;
    serve(w, 0);
    open_places(w, 2);
    rpc_channel_connect(w->channel);
    RUN_UNTIL(w, is_up_at(w, 0));
    run_for(w, 18 * CL_NS_PER_S);
    CHECK(is_up_at(w, 0) && w->ups == 1 && w->downs == 0);
    check_call_at(w, 0);
}

/* --- lists and single targets ------------------------------------------------------------------
 */

static void test_a_bad_list_is_refused(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *list, *text;
    } bad[] = {
        {"unix:/a,,unix:/b", "number 2 is empty"},
        {"unix:/a,", "number 2 is empty"},
        {"unix:/1,unix:/2,unix:/3,unix:/4,unix:/5,unix:/6,unix:/7,unix:/8,unix:/9",
         "'unix:/9' is one more than 8"},
        {"unix:/a,b", "'b' is no HOST:PORT"},
    };
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_err err = {0};
        struct rpc_channel *channel = NULL;
        CHECK(rpc_channel_new(w->loop, bad[i].list, NULL, &channel, &err) < 0 && !channel);
        CHECK(err.code == CL_E_INVALID && strstr(err.text, bad[i].text) != NULL);
    }
}

static void test_one_target_fails_in_its_own_words(void **state)
{
    struct world *w = *state;
    struct seen fast = {0}, patient = {0};
    char want[96];
    (void)snprintf(want, sizeof want, "connect to %s: ", w->places[0].target);
    open_places(w, 1);
    start_unary(w, &fast, true);
    start_unary(w, &patient, false);
    RUN_UNTIL(w, fast.ends == 1);
    CHECK(fast.err.code == CL_E_UNAVAILABLE && patient.ends == 0);
    CHECK(strncmp(fast.err.text, want, strlen(want)) == 0);
    serve(w, 0);
    RUN_UNTIL(w, patient.ends == 1);
    CHECK(patient.ok);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_the_first_that_answers_is_used_and_nobody_hears_of_the_others),
        T(test_the_next_one_follows_one_that_was_closed),
        T(test_who_says_goodbye_is_left_and_may_finish),
        T(test_when_all_refuse_a_call_hears_it_once_and_a_patient_one_waits),
        T(test_one_that_comes_and_goes_is_not_asked_without_a_pause),
        T(test_one_that_never_greets_is_given_up_after_three_seconds),
        T(test_one_that_stands_still_is_left),
        T(test_an_idle_connection_stays),
        T(test_a_bad_list_is_refused),
        T(test_one_target_fails_in_its_own_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
