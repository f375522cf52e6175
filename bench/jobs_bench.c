/* bench/jobs_bench.c - jobs a second through scheduler, books and audit log, with a worker that
 * does nothing: every job is submitted, admitted, reserved, assigned, started, ended and settled.
 *
 * usage: jobs_bench API_ENDPOINT WORKER_ENDPOINT KEY IN_FLIGHT SECONDS
 */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/id.h"
#include "bench/stats.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/worker.pb-c.h"
#include "rpc/channel.h"

enum { IN_FLIGHT_MAX = 900, SAMPLES_MAX = 2000000 }; /* a tenant's queue holds 1,000 */

struct bench {
    struct cl_loop *loop;
    struct rpc_channel *api, *workers;
    struct rpc_call *session;
    bool greeted, failed;
    uint64_t in_flight, target, submitted, accepted, settled, stop_ns;
    uint64_t *latencies;
    size_t n_latencies;
};

struct submit {
    struct bench *b;
    uint64_t t0;
};

static void fail(struct bench *b, const char *what, const struct cl_err *err)
{
    if (!b->failed)
        (void)fprintf(stderr, "jobs_bench: %s: %s\n", what, err ? err->text : "ended");
    b->failed = true;
}

static void on_drain(struct rpc_call *call, void *arg)
{
    (void)call, (void)arg;
}

/* --- the worker that does nothing ----------------------------------------------------------------
 */

static void send_body(struct bench *b, Cloche__V1__SessionRequest *m)
{
    struct cl_err err = {0};
    if (rpc_call_send(b->session, &m->base, &err) < 0)
        fail(b, "session", &err);
}

static void on_assign(struct bench *b, const Cloche__V1__Assign *a)
{
    Cloche__V1__SessionRequest m = CLOCHE__V1__SESSION_REQUEST__INIT;
    Cloche__V1__AssignAnswer answer = CLOCHE__V1__ASSIGN_ANSWER__INIT;
    Cloche__V1__UnitStarted started = CLOCHE__V1__UNIT_STARTED__INIT;
    Cloche__V1__UnitEnded ended = CLOCHE__V1__UNIT_ENDED__INIT;
    Cloche__V1__ExecResult result = CLOCHE__V1__EXEC_RESULT__INIT;
    answer.lease_id = started.lease_id = ended.lease_id = a->lease_id;
    answer.fence = started.fence = ended.fence = a->fence;
    started.source = (char *)(uintptr_t) "none";
    m.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_ASSIGNED;
    m.assigned = &answer;
    send_body(b, &m);
    m.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_STARTED;
    m.started = &started;
    send_body(b, &m);
    result.outcome = CLOCHE__V1__OUTCOME__OUTCOME_EXITED;
    result.reason = CLOCHE__V1__REASON__REASON_FINISHED;
    ended.tenant = a->tenant;
    ended.unit_id = a->unit_id;
    ended.result = &result;
    ended.code_started = true;
    m.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_ENDED;
    m.ended = &ended;
    send_body(b, &m);
}

static void send_load(struct bench *b)
{
    Cloche__V1__SessionRequest m = CLOCHE__V1__SESSION_REQUEST__INIT;
    Cloche__V1__WorkerLoad load = CLOCHE__V1__WORKER_LOAD__INIT;
    load.capacity_vcpu_milli = UINT64_C(1) << 40;
    load.capacity_memory_mib = UINT64_C(1) << 40;
    load.slots = UINT32_MAX;
    load.closed = (char *)(uintptr_t) "";
    m.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_LOAD;
    m.load = &load;
    send_body(b, &m);
}

static void top_up(struct bench *b);

static void on_session(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call;
    struct bench *b = arg;
    const Cloche__V1__SessionResponse *m = (const Cloche__V1__SessionResponse *)msg;
    switch ((int)m->body_case) {
    case CLOCHE__V1__SESSION_RESPONSE__BODY_HELLO:
        send_load(b);
        b->greeted = true;
        top_up(b);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_ASSIGN:
        on_assign(b, m->assign);
        break;
    case CLOCHE__V1__SESSION_RESPONSE__BODY_ENDED_ACK:
        b->settled++;
        b->in_flight--;
        if (b->settled % 1000 == 0)
            send_load(b); /* the scheduler counts what it sent since the last report */
        top_up(b);
        break;
    default:
        break;
    }
}

static void on_session_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    fail(arg, "session", status);
}

static int open_session(struct bench *b, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_session, on_drain, on_session_end};
    struct rpc_call_spec spec = {.path = "/cloche.v1.WorkerService/Session",
                                 .out = &cloche__v1__session_response__descriptor};
    Cloche__V1__SessionRequest m = CLOCHE__V1__SESSION_REQUEST__INIT;
    Cloche__V1__WorkerHello hello = CLOCHE__V1__WORKER_HELLO__INIT;
    char id[CL_ID_MAX];
    cl_id_new("wrk", id);
    hello.protocol_major = 1;
    hello.worker_id = id;
    hello.driver = (char *)(uintptr_t) "none";
    m.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_HELLO;
    m.hello = &hello;
    if (rpc_channel_call(b->workers, &spec, &events, b, &b->session, err) < 0)
        return -1;
    return rpc_call_send(b->session, &m.base, err);
}

/* --- the clients ---------------------------------------------------------------------------------
 */

static void on_submitted(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call, (void)msg;
    struct submit *s = arg;
    s->b->accepted++;
}

static void on_submit_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct submit *s = arg;
    if (status)
        fail(s->b, "Submit", status);
    else if (s->b->n_latencies < SAMPLES_MAX)
        s->b->latencies[s->b->n_latencies++] = cl_now_ns() - s->t0;
    free(s);
}

static void submit_one(struct bench *b)
{
    static const struct rpc_client_events events = {on_submitted, on_drain, on_submit_end};
    struct rpc_call_spec spec = {.path = "/cloche.v1.JobService/Submit",
                                 .out = &cloche__v1__submit_response__descriptor};
    Cloche__V1__SubmitRequest r = CLOCHE__V1__SUBMIT_REQUEST__INIT;
    Cloche__V1__JobSpec job = CLOCHE__V1__JOB_SPEC__INIT;
    Cloche__V1__Command command = CLOCHE__V1__COMMAND__INIT;
    char *argv[] = {(char *)(uintptr_t) "true"};
    struct cl_err err = {0};
    struct rpc_call *call;
    command.argv = argv;
    command.n_argv = 1;
    job.template_ = (char *)(uintptr_t) "base";
    job.command = &command;
    r.spec = &job;
    struct submit *s = calloc(1, sizeof *s);
    if (!s)
        return;
    s->b = b;
    s->t0 = cl_now_ns();
    if (rpc_channel_call(b->api, &spec, &events, s, &call, &err) < 0) {
        fail(b, "Submit", &err);
        free(s);
        return;
    }
    if (rpc_call_send(call, &r.base, &err) < 0)
        fail(b, "Submit", &err);
    rpc_call_close_send(call);
    b->submitted++;
    b->in_flight++;
}

static void top_up(struct bench *b)
{
    while (b->greeted && !b->failed && b->in_flight < b->target && cl_now_ns() < b->stop_ns)
        submit_one(b);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct cl_err err = {0};
    uint64_t seconds;
    char bearer[256];
    if (argc != 6 || cl_parse_u64(argv[4], &b.target, &err) < 0 ||
        cl_parse_u64(argv[5], &seconds, &err) < 0 || b.target > IN_FLIGHT_MAX) {
        (void)fprintf(
            stderr,
            "usage: jobs_bench API_ENDPOINT WORKER_ENDPOINT KEY IN_FLIGHT(<=900) SECONDS\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(bearer, sizeof bearer, "Bearer %s", argv[3]);
    b.latencies = calloc(SAMPLES_MAX, sizeof *b.latencies);
    uint64_t start = cl_now_ns();
    b.stop_ns = start + seconds * CL_NS_PER_S;
    if (!b.latencies || cl_loop_new(&b.loop, &err) < 0 ||
        rpc_channel_new(b.loop, argv[1], NULL, &b.api, &err) < 0 ||
        rpc_channel_new(b.loop, argv[2], NULL, &b.workers, &err) < 0 ||
        rpc_channel_set_metadata(b.api, "authorization", bearer, &err) < 0 ||
        open_session(&b, &err) < 0) {
        (void)fprintf(stderr, "jobs_bench: %s\n", err.text);
        return 1;
    }
    while (!b.failed && (cl_now_ns() < b.stop_ns || b.in_flight > 0) &&
           cl_now_ns() < b.stop_ns + 20 * CL_NS_PER_S)
        cl_loop_turn(b.loop, 100 * CL_NS_PER_MS);
    double took = (double)(cl_now_ns() - start) / 1e9;
    (void)printf("jobs settled: %llu of %llu submitted, %.0f jobs/s with %llu in flight\n",
                 (unsigned long long)b.settled, (unsigned long long)b.submitted,
                 (double)b.settled / took, (unsigned long long)b.target);
    stats_print("Submit: call -> durable and audited", b.latencies, b.n_latencies);
    return b.failed || b.settled != b.submitted ? 1 : 0;
}
