/* tests/integration/rpc/test_loopback.c - our client against our server, over a unix socket, in
 * one loop: every kind of call, every kind of end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/loop.h"
#include "base/mem.h"
#include "rpc/pool.h"
#include "rpc/server.h"
#include "tests/integration/rpc/interop.pb-c.h"
#include "tests/integration/rpc/test_service.h"

#define WAIT_NS (20 * CL_NS_PER_S)
#define CHECK(cond) assert_true(cond)

struct world {
    struct cl_loop *loop;
    struct rpc_server *server;
    struct rpc_channel *channel;
    char path[64];
    char target[80];
    int drained, ups, downs, observed, last_status;
};

/* What a client call saw. */
struct seen {
    struct rpc_call *call;
    int messages, drains, ends;
    size_t bytes, pause_after;
    bool ok;
    struct cl_err err;
    void (*then)(struct seen *seen);
};

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    struct seen *s = arg;
    s->messages++;
    if (msg->descriptor == &grpc__testing__streaming_output_call_response__descriptor) {
        const Grpc__Testing__StreamingOutputCallResponse *r =
            (const Grpc__Testing__StreamingOutputCallResponse *)msg;
        s->bytes += r->payload ? r->payload->body.len : 0;
    } else if (msg->descriptor == &grpc__testing__streaming_input_call_response__descriptor) {
        s->bytes = (size_t)((const Grpc__Testing__StreamingInputCallResponse *)msg)
                       ->aggregated_payload_size;
    }
    if (s->pause_after > 0 && s->bytes >= s->pause_after)
        rpc_call_pause(call, true);
    if (s->then)
        s->then(s);
}

static void on_drain(struct rpc_call *call, void *arg)
{
    (void)call;
    ((struct seen *)arg)->drains++;
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

static const struct rpc_client_events events = {on_message, on_drain, on_end};

static void on_state(void *arg, const struct cl_err *err)
{
    struct world *w = arg;
    if (err)
        w->downs++;
    else
        w->ups++;
}

static void on_observe(void *arg, const struct rpc_call *call, int status, uint64_t ns)
{
    (void)call, (void)ns;
    struct world *w = arg;
    w->observed++;
    w->last_status = status;
}

static void serve(struct world *w)
{
    struct cl_err err = {0};
    int fd = -1;
    CHECK(rpc_server_new(w->loop, &w->server, &err) == 0);
    CHECK(test_service_add(w->server, &err) == 0);
    CHECK(cl_unix_listen(w->path, 0600, &fd, &err) == 0);
    CHECK(rpc_server_listen(w->server, fd, NULL, 7, &err) == 0);
    rpc_server_observe(w->server, on_observe, w);
}

static int set_up(void **state)
{
    struct cl_err err = {0};
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return -1;
    (void)snprintf(w->path, sizeof w->path, "/tmp/cloche-rpc-%d.sock", (int)getpid());
    (void)snprintf(w->target, sizeof w->target, "unix:%s", w->path);
    CHECK(cl_loop_new(&w->loop, &err) == 0);
    serve(w);
    CHECK(rpc_channel_new(w->loop, w->target, NULL, &w->channel, &err) == 0);
    rpc_channel_on_state(w->channel, on_state, w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    rpc_channel_free(w->channel);
    rpc_server_free(w->server);
    cl_loop_turn(w->loop, CL_NS_PER_MS);
    cl_loop_free(w->loop);
    (void)unlink(w->path);
    free(w);
    return 0;
}

#define RUN_UNTIL(w, cond) \
    do { \
        uint64_t give_up_ = cl_now_ns() + WAIT_NS; \
        while (!(cond) && cl_now_ns() < give_up_) \
            cl_loop_turn((w)->loop, 10 * CL_NS_PER_MS); \
        CHECK(cond); \
    } while (0)

static void run_for(struct world *w, uint64_t ns)
{
    for (uint64_t end = cl_now_ns() + ns; cl_now_ns() < end;)
        cl_loop_turn(w->loop, CL_NS_PER_MS);
}

static void call_with(struct world *w, struct seen *s, struct rpc_call_spec spec)
{
    struct cl_err err = {0};
    CHECK(rpc_channel_call(w->channel, &spec, &events, s, &s->call, &err) == 0);
}

#define SERVICE "/grpc.testing.TestService/"

static void start_unary(struct world *w, struct seen *s, int32_t size, struct rpc_call_spec spec)
{
    Grpc__Testing__SimpleRequest req;
    grpc__testing__simple_request__init(&req);
    req.response_size = size;
    spec.path = SERVICE "UnaryCall";
    spec.out = &grpc__testing__simple_response__descriptor;
    call_with(w, s, spec);
    CHECK(rpc_call_send(s->call, &req.base, NULL) == 0);
    rpc_call_close_send(s->call);
}

static void start_duplex(struct world *w, struct seen *s, struct rpc_call_spec spec)
{
    spec.path = SERVICE "FullDuplexCall";
    spec.out = &grpc__testing__streaming_output_call_response__descriptor;
    call_with(w, s, spec);
}

/* Ask for n messages of `size` bytes. */
static void ask(struct seen *s, size_t n, int32_t size)
{
    enum { ASK_MAX = 1024 };
    static Grpc__Testing__ResponseParameters one, *many[ASK_MAX];
    Grpc__Testing__StreamingOutputCallRequest req;
    grpc__testing__response_parameters__init(&one);
    grpc__testing__streaming_output_call_request__init(&req);
    one.size = size;
    CHECK(n <= ASK_MAX);
    for (size_t i = 0; i < n; i++)
        many[i] = &one;
    req.n_response_parameters = n;
    req.response_parameters = many;
    CHECK(rpc_call_send(s->call, &req.base, NULL) == 0);
}

/* What the service was sent first of that name: it says it. */
static char said_metadata[16];

static void keep_metadata(struct seen *s)
{
    const char *value = rpc_call_metadata(s->call, "x-grpc-test-echo-initial");
    (void)snprintf(said_metadata, sizeof said_metadata, "%s", value ? value : "");
}

static void test_a_call_s_own_metadata_goes_instead_of_the_channel_s(void **state)
{
    static const char *const name = "x-grpc-test-echo-initial";
    struct world *w = *state;
    struct rpc_metadata other = {"x-other", "o"}, own = {name, "own"};
    const struct rpc_metadata *pairs[] = {&other, &own, &other};
    for (size_t i = 0; i < CL_COUNT(pairs); i++) {
        struct seen s = {.then = keep_metadata};
        CHECK(rpc_channel_set_metadata(w->channel, name, "channel's", NULL) == 0);
        start_unary(w, &s, 1, (struct rpc_call_spec){.metadata = pairs[i], .n_metadata = 1});
        RUN_UNTIL(w, s.ends == 1);
        CHECK(s.ok && s.messages == 1);
        assert_string_equal(said_metadata, pairs[i] == &own ? "own" : "channel's");
    }
}

static void test_unary_waits_for_the_connection_and_answers(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    start_unary(w, &s, 1000, (struct rpc_call_spec){0});
    CHECK(!rpc_channel_is_up(w->channel));
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == 1);
    RUN_UNTIL(w, w->ups == 1);
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == 0);
    CHECK(w->observed == 1 && w->last_status == 0);
}

static void test_client_stream_is_summed(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    Grpc__Testing__StreamingInputCallRequest req;
    Grpc__Testing__Payload payload;
    static uint8_t body[70000];
    grpc__testing__streaming_input_call_request__init(&req);
    grpc__testing__payload__init(&payload);
    payload.body = (ProtobufCBinaryData){sizeof body, body};
    req.payload = &payload;
    call_with(
        w, &s,
        (struct rpc_call_spec){.path = SERVICE "StreamingInputCall",
                               .out = &grpc__testing__streaming_input_call_response__descriptor});
    for (int i = 0; i < 20; i++)
        CHECK(rpc_call_send(s.call, &req.base, NULL) == 0);
    CHECK(rpc_call_is_full(s.call));
    rpc_call_close_send(s.call);
    CHECK(rpc_call_send(s.call, &req.base, NULL) < 0);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.bytes == 20 * sizeof body);
}

static void pong(struct seen *s)
{
    if (s->messages < 50)
        ask(s, 1, 100);
    else
        rpc_call_close_send(s->call);
}

static void test_bidi_ping_pong(void **state)
{
    struct world *w = *state;
    struct seen s = {.then = pong};
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, 1, 100);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == 50 && s.bytes == 5000);
}

static void test_gzip_both_ways(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    Grpc__Testing__SimpleRequest req;
    Grpc__Testing__BoolValue yes;
    Grpc__Testing__Payload payload;
    static uint8_t body[50000];
    grpc__testing__simple_request__init(&req);
    grpc__testing__bool_value__init(&yes);
    grpc__testing__payload__init(&payload);
    yes.value = true;
    payload.body = (ProtobufCBinaryData){sizeof body, body};
    req.payload = &payload;
    req.expect_compressed = req.response_compressed = &yes;
    req.response_size = 50000;
    call_with(w, &s,
              (struct rpc_call_spec){.path = SERVICE "UnaryCall",
                                     .gzip = true,
                                     .out = &grpc__testing__simple_response__descriptor});
    rpc_call_compress(s.call, true);
    CHECK(rpc_call_send(s.call, &req.base, NULL) == 0);
    CHECK(rpc_call_queued(s.call) < 1000);
    rpc_call_close_send(s.call);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == 1);
}

static void test_cancel_reaches_the_server_and_ends_later(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, 1, 10);
    RUN_UNTIL(w, s.messages == 1);
    rpc_call_cancel(s.call);
    CHECK(s.ends == 0);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(!s.ok && s.err.code == CL_E_CANCELLED);
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == 0);
    CHECK(w->last_status == 1);
}

static void test_deadline_ends_both_sides(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    start_duplex(w, &s, (struct rpc_call_spec){.deadline_ns = cl_now_ns() + 50 * CL_NS_PER_MS});
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.err.code == CL_E_DEADLINE);
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == 0);
}

static void test_unknown_method_carries_details(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    call_with(
        w, &s,
        (struct rpc_call_spec){.path = SERVICE "Nope", .out = &grpc__testing__empty__descriptor});
    rpc_call_close_send(s.call);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.err.code == CL_E_UNIMPL);
    CHECK(strstr(s.err.text, "Nope") != NULL);
}

static void test_slow_reader_holds_the_writer_back(void **state)
{
    enum { N = 1000, SIZE = 100000 };
    struct world *w = *state;
    struct seen s = {.pause_after = 1};
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, N, SIZE);
    rpc_call_close_send(s.call);
    run_for(w, 300 * CL_NS_PER_MS);
    CHECK(s.messages == 1 && s.ends == 0); /* 100 MB are due, and wait on the server's side */
    s.pause_after = 0;
    rpc_call_pause(s.call, false);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == N && s.bytes == (size_t)N * SIZE);
}

static void test_paused_call_gets_its_end_after_the_messages(void **state)
{
    struct world *w = *state;
    struct seen s = {.pause_after = 1};
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, 3, 10);
    rpc_call_close_send(s.call);
    run_for(w, 50 * CL_NS_PER_MS);
    CHECK(s.messages == 1 && s.ends == 0);
    s.pause_after = 0;
    rpc_call_pause(s.call, false);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == 3);
}

static void test_message_over_the_limit_ends_with_toobig(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    start_unary(w, &s, 5 * 1024 * 1024, (struct rpc_call_spec){0});
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.err.code == CL_E_TOOBIG && s.messages == 0);
    struct seen again = {0};
    start_unary(w, &again, 10, (struct rpc_call_spec){0});
    RUN_UNTIL(w, again.ends == 1);
    CHECK(again.ok);
}

static void test_writer_that_ignores_full_is_cut_off(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    Grpc__Testing__StreamingOutputCallRequest req;
    Grpc__Testing__Payload payload;
    static uint8_t body[1024 * 1024];
    grpc__testing__streaming_output_call_request__init(&req);
    grpc__testing__payload__init(&payload);
    payload.body = (ProtobufCBinaryData){sizeof body, body};
    req.payload = &payload;
    start_duplex(w, &s, (struct rpc_call_spec){0});
    struct cl_err err = {0};
    int sent = 0;
    while (sent < 100 && rpc_call_send(s.call, &req.base, &err) == 0)
        sent++;
    CHECK(sent < 17 && err.code == CL_E_TOOBIG);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.err.code == CL_E_TOOBIG);
}

static void test_fail_fast_does_not_wait_for_a_dead_server(void **state)
{
    struct world *w = *state;
    rpc_server_free(w->server);
    w->server = NULL;
    (void)unlink(w->path);
    struct seen fast = {0}, patient = {0};
    start_unary(w, &fast, 1, (struct rpc_call_spec){.fail_fast = true});
    start_unary(w, &patient, 1, (struct rpc_call_spec){0});
    RUN_UNTIL(w, fast.ends == 1);
    CHECK(fast.err.code == CL_E_UNAVAILABLE && patient.ends == 0);
    serve(w);
    RUN_UNTIL(w, patient.ends == 1);
    CHECK(patient.ok);
}

static void test_channel_comes_back_after_the_server(void **state)
{
    struct world *w = *state;
    rpc_channel_connect(w->channel);
    RUN_UNTIL(w, w->ups == 1);
    struct seen s = {0};
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, 1, 1);
    RUN_UNTIL(w, s.messages == 1);
    rpc_server_free(w->server);
    serve(w);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.err.code == CL_E_UNAVAILABLE);
    RUN_UNTIL(w, w->ups == 2);
    CHECK(w->downs >= 1);
}

static void on_drained(void *arg)
{
    ((struct world *)arg)->drained++;
}

static void test_drain_lets_calls_finish_and_refuses_new_ones(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, 1, 1);
    RUN_UNTIL(w, s.messages == 1);
    rpc_server_drain(w->server, on_drained, w);
    CHECK(w->drained == 0);
    RUN_UNTIL(w, w->downs >= 1);
    struct seen late = {0};
    start_unary(w, &late, 1, (struct rpc_call_spec){.fail_fast = true});
    RUN_UNTIL(w, late.ends == 1);
    CHECK(late.err.code == CL_E_UNAVAILABLE);
    ask(&s, 2, 1);
    rpc_call_close_send(s.call);
    RUN_UNTIL(w, s.ends == 1);
    CHECK(s.ok && s.messages == 3);
    RUN_UNTIL(w, w->drained == 1);
}

static void keep_open(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)call, (void)msg, (void)service;
}

static void test_drain_does_not_wait_for_what_lasts(void **state)
{
    static const struct rpc_method lasting = {
        .path = "/test.Lasting/Watch",
        .in = &grpc__testing__streaming_output_call_request__descriptor,
        .out = &grpc__testing__streaming_output_call_response__descriptor,
        .client_streams = true,
        .server_streams = true,
        .lasts = true,
        .on_message = keep_open};
    struct world *w = *state;
    struct seen s = {0}, watcher = {0};
    struct cl_err err = {0};
    CHECK(rpc_server_add(w->server, &lasting, 1, NULL, -1, &err) == 0);
    call_with(
        w, &watcher,
        (struct rpc_call_spec){.path = lasting.path,
                               .out = &grpc__testing__streaming_output_call_response__descriptor});
    start_duplex(w, &s, (struct rpc_call_spec){0});
    ask(&s, 1, 1);
    RUN_UNTIL(w, s.messages == 1 && rpc_server_open_calls(w->server) == 2);
    rpc_server_drain(w->server, on_drained, w);
    run_for(w, CL_NS_PER_S); /* for the other it waits */
    CHECK(w->drained == 0 && s.ends == 0);
    rpc_call_close_send(s.call);
    RUN_UNTIL(w, w->drained == 1 && s.ends == 1);
    CHECK(s.ok && watcher.ends == 0 && rpc_server_open_calls(w->server) == 1);
    rpc_call_cancel(watcher.call);
    RUN_UNTIL(w, watcher.ends == 1);
}

static void test_free_of_the_channel_ends_every_call(void **state)
{
    struct world *w = *state;
    struct seen open = {0}, waiting = {0};
    start_duplex(w, &open, (struct rpc_call_spec){0});
    ask(&open, 1, 1);
    RUN_UNTIL(w, open.messages == 1);
    start_duplex(w, &waiting, (struct rpc_call_spec){0});
    rpc_channel_free(w->channel);
    w->channel = NULL;
    CHECK(open.ends == 1 && open.err.code == CL_E_CANCELLED);
    CHECK(waiting.ends == 1 && waiting.err.code == CL_E_CANCELLED);
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == 0);
}

static void test_more_calls_than_streams_queue_up(void **state)
{
    enum { N = 350 };
    struct world *w = *state;
    static struct seen s[N];
    int ends = 0;
    memset(s, 0, sizeof s);
    for (size_t i = 0; i < N; i++)
        start_unary(w, &s[i], 10, (struct rpc_call_spec){0});
    for (uint64_t end = cl_now_ns() + WAIT_NS; ends < N && cl_now_ns() < end;) {
        cl_loop_turn(w->loop, 10 * CL_NS_PER_MS);
        ends = 0;
        for (size_t i = 0; i < N; i++)
            ends += s[i].ends;
    }
    CHECK(ends == N);
    for (size_t i = 0; i < N; i++)
        CHECK(s[i].ok && s[i].messages == 1);
}

/* Long ones on one connection hold up what comes after them; with a pool they do not. */
static void test_a_pool_has_room_beside_long_calls(void **state)
{
    enum { LONG = 2 * RPC_STREAMS_MAX };
    struct world *w = *state;
    static struct seen s[LONG];
    struct seen last = {0};
    struct cl_err err = {0};
    struct rpc_pool *pool = NULL;
    struct rpc_channel *alone = w->channel;
    memset(s, 0, sizeof s);
    CHECK(rpc_pool_new(w->loop, w->target, NULL, LONG + 1, &pool, &err) == 0);
    for (size_t i = 0; i < LONG; i++) {
        w->channel = rpc_pool_pick(pool);
        CHECK((w->channel == rpc_pool_first(pool)) == (i < RPC_STREAMS_MAX));
        start_duplex(w, &s[i], (struct rpc_call_spec){0});
    }
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == LONG);
    w->channel = rpc_pool_pick(pool);
    start_unary(w, &last, 10, (struct rpc_call_spec){0});
    RUN_UNTIL(w, last.ends == 1);
    CHECK(last.ok && rpc_server_open_calls(w->server) == LONG);
    rpc_call_cancel(s[0].call);
    RUN_UNTIL(w, s[0].ends == 1);
    CHECK(rpc_pool_pick(pool) == rpc_pool_first(pool)); /* where there is room again */
    rpc_pool_free(pool);
    for (size_t i = 1; i < LONG; i++)
        CHECK(s[i].ends == 1 && s[i].err.code == CL_E_CANCELLED);
    w->channel = alone;
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == 0);
}

/* Client and server share the loop, so each failure strikes one of them; the call ends either way
 * and the next one works. */
static void test_every_failed_allocation_ends_the_call_and_nothing_else(void **state)
{
    struct world *w = *state;
    Grpc__Testing__SimpleRequest req;
    grpc__testing__simple_request__init(&req);
    req.response_size = 100;
    for (long nth = 0;; nth++) {
        struct rpc_call_spec spec = {.path = SERVICE "UnaryCall",
                                     .out = &grpc__testing__simple_response__descriptor,
                                     .deadline_ns = cl_now_ns() + 2 * CL_NS_PER_S};
        struct seen s = {0};
        cl_test_fail_alloc(nth);
        if (rpc_channel_call(w->channel, &spec, &events, &s, &s.call, NULL) == 0) {
            if (rpc_call_send(s.call, &req.base, NULL) == 0)
                rpc_call_close_send(s.call);
            RUN_UNTIL(w, s.ends == 1);
        }
        bool hit = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        if (!hit) {
            CHECK(s.ok && s.messages == 1 && nth > 10);
            break;
        }
    }
    RUN_UNTIL(w, rpc_server_open_calls(w->server) == 0);
}

/* --- two calls of one connection ----------------------------------------------------------------
 */

/* The server's side: the size of each message as it comes, whichever call's. */
struct arrivals {
    size_t n, size[64];
};

static void on_arrival(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)call;
    struct arrivals *a = service;
    const Grpc__Testing__StreamingInputCallRequest *m =
        (const Grpc__Testing__StreamingInputCallRequest *)msg;
    CHECK(a->n < CL_COUNT(a->size));
    a->size[a->n++] = m->payload->body.len;
}

static void on_no_more(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, NULL);
}

static const struct rpc_method arrival_methods[] = {
    {.path = "/cloche.testing.Order/Send",
     .in = &grpc__testing__streaming_input_call_request__descriptor,
     .out = &grpc__testing__streaming_input_call_response__descriptor,
     .client_streams = true,
     .server_streams = true,
     .on_message = on_arrival,
     .on_half_close = on_no_more},
};

static void begin_order(struct world *w, struct seen *s)
{
    call_with(
        w, s,
        (struct rpc_call_spec){.path = arrival_methods[0].path,
                               .out = &grpc__testing__streaming_input_call_response__descriptor});
}

static void begin_two(struct world *w, struct arrivals *a, struct seen *first, struct seen *second)
{
    CHECK(rpc_server_add(w->server, arrival_methods, 1, a, -1, NULL) == 0);
    begin_order(w, first);
    begin_order(w, second);
}

static void send_sized(struct rpc_call *call, size_t n)
{
    static uint8_t body[200000];
    Grpc__Testing__StreamingInputCallRequest req;
    Grpc__Testing__Payload payload;
    grpc__testing__streaming_input_call_request__init(&req);
    grpc__testing__payload__init(&payload);
    payload.body = (ProtobufCBinaryData){n, body};
    req.payload = &payload;
    CHECK(rpc_call_send(call, &req.base, NULL) == 0);
}

static void test_one_call_goes_after_another(void **state)
{
    struct world *w = *state;
    struct seen first = {0}, second = {0};
    struct arrivals a = {0};
    begin_two(w, &a, &first, &second);
    send_sized(first.call, 1000); /* HTTP/2 prefers who has sent less so far */
    send_sized(second.call, 1);
    RUN_UNTIL(w, a.n == 2);
    for (size_t round = 0; round < 10; round++) {
        size_t large = round % 2 ? 200000 : 300; /* more than a turn takes, and less */
        a.n = 0;
        send_sized(first.call, large);
        rpc_call_after(second.call, first.call);
        send_sized(second.call, 2);
        RUN_UNTIL(w, a.n == 2);
        CHECK(a.size[0] == large && a.size[1] == 2);
    }
    a.n = 0;
    send_sized(second.call, 3);
    rpc_call_after(second.call, first.call); /* nothing waits there */
    RUN_UNTIL(w, a.n == 1);
    rpc_call_close_send(first.call);
    rpc_call_close_send(second.call);
    RUN_UNTIL(w, first.ends == 1 && second.ends == 1);
}

static void test_who_goes_after_a_call_that_ends_waits_no_longer(void **state)
{
    struct world *w = *state;
    struct seen first = {0}, second = {0};
    struct arrivals a = {0};
    begin_two(w, &a, &first, &second);
    send_sized(first.call, 10);
    send_sized(second.call, 10);
    RUN_UNTIL(w, a.n == 2);
    send_sized(first.call, 20);
    rpc_call_after(second.call, first.call);
    send_sized(second.call, 2);
    rpc_call_close_send(second.call);
    rpc_call_cancel(first.call);
    RUN_UNTIL(w, first.ends == 1 && second.ends == 1);
    CHECK(second.ok && a.n >= 3 && a.size[a.n - 1] == 2);
    begin_order(w, &first);
    begin_order(w, &second);
    send_sized(first.call, 20);
    rpc_call_after(second.call, first.call);
    send_sized(second.call, 2);
    rpc_call_cancel(second.call); /* who waits may leave */
    rpc_call_close_send(first.call);
    RUN_UNTIL(w, first.ends == 2 && second.ends == 2);
    CHECK(first.ok && !second.ok);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_one_call_goes_after_another),
        T(test_who_goes_after_a_call_that_ends_waits_no_longer),
        T(test_a_call_s_own_metadata_goes_instead_of_the_channel_s),
        T(test_unary_waits_for_the_connection_and_answers),
        T(test_client_stream_is_summed),
        T(test_bidi_ping_pong),
        T(test_gzip_both_ways),
        T(test_cancel_reaches_the_server_and_ends_later),
        T(test_deadline_ends_both_sides),
        T(test_unknown_method_carries_details),
        T(test_slow_reader_holds_the_writer_back),
        T(test_paused_call_gets_its_end_after_the_messages),
        T(test_message_over_the_limit_ends_with_toobig),
        T(test_writer_that_ignores_full_is_cut_off),
        T(test_fail_fast_does_not_wait_for_a_dead_server),
        T(test_channel_comes_back_after_the_server),
        T(test_drain_lets_calls_finish_and_refuses_new_ones),
        T(test_drain_does_not_wait_for_what_lasts),
        T(test_free_of_the_channel_ends_every_call),
        T(test_more_calls_than_streams_queue_up),
        T(test_a_pool_has_room_beside_long_calls),
        T(test_every_failed_allocation_ends_the_call_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
