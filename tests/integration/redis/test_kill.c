/* tests/integration/redis/test_kill.c - kill -9 of Redis under load with appendfsync always: no
 * acknowledged change may be lost.
 *
 * Usage: test_kill [rounds]; 6 by default.
 */
#include <inttypes.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/id.h"
#include "redis/books_registry.h"
#include "tests/integration/redis/server.h"

enum { SLOTS = 64, UNITS_MAX = 200000 };
enum step { ADMIT, RESERVE, FINISH };

struct slot {
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    uint64_t fence;
    enum step step;
    bool busy;
    size_t unit;
};
struct unit {
    char id[CL_ID_MAX];
    uint8_t acked; /* the highest state that was acknowledged */
};

static struct cl_loop *loop;
static struct books *books;
static struct slot slots[SLOTS];
static struct unit units[UNITS_MAX];
static size_t n_units, lost, acked;
static uint64_t unknown;
static bool stop;

static void on_admit(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    s->busy = false;
    if (err) {
        unknown++;
        return;
    }
    (void)res;
    s->unit = n_units++;
    memcpy(units[s->unit].id, s->id, sizeof s->id);
    units[s->unit].acked = BOOKS_QUEUED;
    acked++;
    s->step = RESERVE;
}

static void on_reserve(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    s->busy = false;
    if (err) {
        unknown++;
        s->step = ADMIT;
        return;
    }
    s->fence = res->fence;
    units[s->unit].acked = BOOKS_STARTING;
    acked++;
    s->step = FINISH;
}

static void on_finish(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    s->busy = false;
    s->step = ADMIT;
    if (err) {
        unknown++;
    } else if (v == BOOKS_STALE) {
        lost++; /* its reservation had been acknowledged */
    } else {
        units[s->unit].acked = BOOKS_ENDED;
        acked++;
    }
}

static void go(struct slot *s)
{
    int rc = -1;
    struct books_end end = {.cpu_ms = 1, .outcome = 1, .terminal = "t", .terminal_n = 1};
    if (s->step == ADMIT) {
        cl_id_new("job", s->id);
        struct books_admit req = {.tenant = "kill",
                                  .id = s->id,
                                  .kind = BOOKS_JOB,
                                  .need = {1, 1, 1, 1, 0, 1},
                                  .spec = "s",
                                  .spec_n = 1};
        rc = books_admit(books, &req, on_admit, s, NULL);
    } else if (s->step == RESERVE) {
        cl_id_new("lease", s->lease);
        struct books_reserve req = {
            .tenant = "kill", .id = s->id, .lease = s->lease, .worker = "w", .ttl_ms = 600000};
        rc = books_reserve(books, &req, on_reserve, s, NULL);
    } else {
        struct books_hold h = {"kill", s->id, s->lease, s->fence};
        rc = books_finish(books, &h, &end, on_finish, s, NULL);
    }
    s->busy = rc == 0;
}

static void turn(void)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (!slots[i].busy && !stop && n_units < UNITS_MAX)
            go(&slots[i]);
    }
    cl_loop_turn(loop, CL_NS_PER_MS);
}

static size_t checked;
static void on_units(const struct books_unit *rows, size_t n, const char *next,
                     const struct cl_err *err, void *arg)
{
    const struct unit *u = arg;
    (void)next;
    checked++;
    if (err || n != 1 || (uint8_t)rows[0].state < u->acked) {
        lost++;
        (void)fprintf(stderr, "lost: %s acknowledged in state %d: %s\n", u->id, u->acked,
                      err ? err->text : "older state");
    }
}

static bool drifted;
static void on_drift(const struct books_drift *d, const struct cl_err *err, void *arg)
{
    static const struct books_drift none;
    *(bool *)arg = true;
    drifted = err || memcmp(d, &none, sizeof none) != 0;
}
static void on_put(bool created, const struct cl_err *err, void *arg)
{
    (void)created;
    CL_ASSERT(!err);
    *(bool *)arg = true;
}

static void wait_for(const bool *flag)
{
    while (!*flag)
        cl_loop_turn(loop, CL_NS_PER_MS);
}

int main(int argc, char **argv)
{
    struct server server;
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 6;
    if (!server_start(&server, "always"))
        return 77;
    struct books_conf conf = {
        .target = server.target, .durability = RDB_DUR_ALWAYS, .deadline_ns = 30 * CL_NS_PER_S};
    struct books_tenant t = {
        .name = "kill",
        .limits = {.dim = {1 << 30, 1 << 30, 1 << 20, 1 << 30, 1 << 30, 1 << 30},
                   .period_ms = 86400000,
                   .queue_max = 1000}};
    bool done = false;
    CL_ASSERT(cl_loop_new(&loop, NULL) == 0);
    CL_ASSERT(books_new(loop, &conf, &books, NULL) == 0);
    CL_ASSERT(books_tenant_put(books, &t, on_put, &done, NULL) == 0);
    wait_for(&done);
    for (long r = 0; r < rounds; r++) {
        uint64_t end = cl_now_ns() + 300 * CL_NS_PER_MS;
        while (cl_now_ns() < end)
            turn();
        server_kill(&server);
        end = cl_now_ns() + 50 * CL_NS_PER_MS;
        while (cl_now_ns() < end)
            turn();
        server_run(&server);
        while (!books_is_ready(books))
            turn();
    }
    stop = true;
    while (books_open_calls(books) > 0)
        cl_loop_turn(loop, CL_NS_PER_MS);
    for (size_t i = 0; i < n_units; i++) {
        while (books_open_calls(books) > 1000)
            cl_loop_turn(loop, CL_NS_PER_MS);
        CL_ASSERT(books_get(books, "kill", units[i].id, 0, on_units, &units[i], NULL) == 0);
    }
    while (checked < n_units)
        cl_loop_turn(loop, CL_NS_PER_MS);
    done = false;
    CL_ASSERT(books_check(books, "kill", on_drift, &done, NULL) == 0);
    wait_for(&done);
    (void)printf("%ld kills: %zu changes acknowledged on %zu units, %zu lost, %" PRIu64
                 " unknown, drift %s\n",
                 rounds, acked, n_units, lost, unknown, drifted ? "yes" : "0");
    books_free(books);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    server_stop(&server);
    return lost || drifted || n_units == 0 ? 1 : 0;
}
