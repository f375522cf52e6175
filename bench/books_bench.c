/* bench/books_bench.c - whole jobs (admit, reserve, finish) a second through the books, with
 * appendfsync always, at 1, 32 and 128 in flight; the median of some runs.
 *
 * Usage: books_bench [seconds a run] [runs] [always|everysec|none]
 */
#include <inttypes.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/id.h"
#include "redis/books_lead.h"
#include "redis/books_registry.h"
#include "tests/integration/redis/server.h"

enum { SLOTS_MAX = 128, RUNS_MAX = 32 };

struct slot {
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    uint64_t fence;
};

static struct cl_loop *loop;
static struct books *books;
static struct slot slots[SLOTS_MAX];
static uint64_t jobs, open_jobs;
static bool stop;

static void admit(struct slot *s);

static void on_finish(enum books_verdict v, const struct cl_err *err, void *arg)
{
    CL_ASSERT(!err && v == BOOKS_ACCEPTED);
    jobs++;
    open_jobs--;
    if (!stop)
        admit(arg);
}

static void on_reserve(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    CL_ASSERT(!err);
    struct books_hold h = {"bench", s->id, s->lease, res->fence};
    struct books_end end = {.cpu_ms = 1,
                            .outcome = 1,
                            .terminal = "0123456789012345678901234567890123456789",
                            .terminal_n = 40};
    CL_ASSERT(books_finish(books, &h, &end, on_finish, s, NULL) == 0);
}

static void on_admit(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    (void)res;
    CL_ASSERT(!err);
    cl_id_new("lease", s->lease);
    struct books_reserve req = {
        .tenant = "bench", .id = s->id, .lease = s->lease, .worker = "wrk_1", .ttl_ms = 30000};
    CL_ASSERT(books_reserve(books, &req, on_reserve, s, NULL) == 0);
}

static void admit(struct slot *s)
{
    static const char spec[256];
    cl_id_new("job", s->id);
    struct books_admit req = {.tenant = "bench",
                              .id = s->id,
                              .kind = BOOKS_JOB,
                              .need = {1000, 256, 1, 1000, 0, 512},
                              .spec = spec,
                              .spec_n = sizeof spec};
    open_jobs++;
    CL_ASSERT(books_admit(books, &req, on_admit, s, NULL) == 0);
}

static double run(size_t in_flight, double seconds)
{
    stop = false;
    jobs = 0;
    uint64_t start = cl_now_ns();
    for (size_t i = 0; i < in_flight; i++)
        admit(&slots[i]);
    while ((double)(cl_now_ns() - start) < seconds * 1e9)
        cl_loop_turn(loop, CL_NS_PER_MS);
    stop = true;
    double rate = (double)jobs * 1e9 / (double)(cl_now_ns() - start);
    while (open_jobs > 0)
        cl_loop_turn(loop, CL_NS_PER_MS);
    return rate;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void on_lead(const struct books_leader *leader, const struct cl_err *err, void *arg)
{
    CL_ASSERT(!err && leader->is_us);
    *(bool *)arg = true;
}

/* As a scheduler does: each call is checked against its term. */
static void lead(void)
{
    const struct books_claim claim = {.id = "sch_bench", .ttl_ms = 60000, .proof = "unknown"};
    bool done = false;
    while (!books_is_ready(books))
        cl_loop_turn(loop, CL_NS_PER_MS);
    CL_ASSERT(books_lead(books, &claim, on_lead, &done, NULL) == 0);
    while (!done)
        cl_loop_turn(loop, CL_NS_PER_MS);
}

static void on_put(bool created, const struct cl_err *err, void *arg)
{
    (void)created;
    CL_ASSERT(!err);
    *(bool *)arg = true;
}

int main(int argc, char **argv)
{
    struct server server;
    static const size_t widths[] = {1, 32, 128};
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
    size_t runs = argc > 2 ? strtoul(argv[2], NULL, 10) : 5;
    const char *policy = argc > 3 ? argv[3] : "always";
    runs = CL_MIN(CL_MAX(runs, (size_t)1), (size_t)RUNS_MAX);
    if (!server_start(&server, strcmp(policy, "none") == 0 ? "" : policy))
        return 77;
    struct books_conf conf = {.target = server.target};
    struct books_tenant t = {
        .name = "bench",
        .limits = {.dim = {1 << 30, 1 << 30, 1 << 20, UINT64_C(1) << 50, 1 << 30, 1 << 30},
                   .period_ms = 86400000,
                   .rate_interval_us = 1,
                   .rate_burst = 1000000,
                   .queue_max = 1000}};
    bool done = false;
    CL_ASSERT(cl_loop_new(&loop, NULL) == 0);
    CL_ASSERT(books_new(loop, &conf, &books, NULL) == 0);
    lead();
    CL_ASSERT(books_tenant_put(books, &t, on_put, &done, NULL) == 0);
    while (!done)
        cl_loop_turn(loop, CL_NS_PER_MS);
    (void)printf(
        "appendfsync %s, %.0f s a run, median of %zu (least - most), admit+reserve+finish\n",
        policy, seconds, runs);
    for (size_t w = 0; w < CL_COUNT(widths); w++) {
        double rate[RUNS_MAX];
        for (size_t r = 0; r < runs; r++)
            rate[r] = run(widths[w], seconds);
        qsort(rate, runs, sizeof *rate, by_value);
        (void)printf("%4zu in flight: %8.0f jobs/s (%.0f - %.0f)\n", widths[w], rate[runs / 2],
                     rate[0], rate[runs - 1]);
    }
    books_free(books);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    server_stop(&server);
    return 0;
}
