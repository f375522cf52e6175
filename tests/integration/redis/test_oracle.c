/* tests/integration/redis/test_oracle.c - the books decide as policy's arithmetic does: one client,
 * random admissions, reservations, pauses, resumes, moves and ends, each answer compared.
 *
 * Usage: test_oracle [operations]; 6,000 by default.
 */
#include <inttypes.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/id.h"
#include "policy/quota.h"
#include "redis/books_registry.h"
#include "tests/integration/redis/server.h"

enum { UNITS = 60, TTL_MS = 600000 };

struct unit {
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    struct quota_need need, held; /* held: other than need while it rests */
    uint64_t fence, expires_ms;   /* of its lease */
    enum { GONE, WAITS, HELD, RESTS } phase;
    bool started;
};

static struct cl_loop *loop;
static struct books *books;
static struct unit units[UNITS];
static bool answered;
static struct cl_err got_err;
static struct books_reserved reserved;
static struct books_admitted admitted;
static struct books_usage usage;
static struct books_drift drift;
static struct books_unit row; /* looked at last */

static void answer(const struct cl_err *err)
{
    answered = true;
    got_err = err ? *err : (struct cl_err){0};
}
static void on_put(bool created, const struct cl_err *err, void *arg)
{
    (void)created, (void)arg;
    answer(err);
}
static void on_admit(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (res)
        admitted = *res;
    answer(err);
}
static void on_reserve(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (res)
        reserved = *res;
    answer(err);
}
static void on_verdict(enum books_verdict v, const struct cl_err *err, void *arg)
{
    (void)arg;
    CL_ASSERT(err || v == BOOKS_ACCEPTED);
    answer(err);
}
static void on_usage(const struct books_usage *u, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (u)
        usage = *u;
    answer(err);
}
static void on_drift(const struct books_drift *d, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (d)
        drift = *d;
    answer(err);
}
static void on_units(const struct books_unit *rows, size_t n, const char *next,
                     const struct cl_err *err, void *arg)
{
    (void)next, (void)arg;
    row = n == 1 ? rows[0] : (struct books_unit){0};
    answer(err);
}

static void wait_answer(int rc)
{
    CL_ASSERT(rc == 0);
    for (answered = false; !answered;)
        cl_loop_turn(loop, CL_NS_PER_MS);
}

static uint64_t rnd(uint64_t n)
{
    uint64_t r;
    cl_random(&r, sizeof r);
    return r % n;
}

static const struct quota_limits limits = {{20000, 5000, 17, 90000, 100000, 9000}, 3200000000};
enum { RATE_US = 500, BURST = 10 };

static uint64_t tat, refused_rate, refused_quota, granted, paused, resumed, moved;

static bool nobody_waits(void)
{
    for (size_t i = 0; i < UNITS; i++) {
        if (units[i].phase == WAITS)
            return false;
    }
    return true;
}

static void look(const struct unit *u)
{
    wait_answer(books_get(books, "oracle", u->id, 0, on_units, NULL, NULL));
    CL_ASSERT(got_err.code == CL_OK);
}

static void held(struct unit *u, uint64_t fence, struct quota_usage *model)
{
    look(u);
    CL_ASSERT(row.expires_ms == row.changed_us / 1000 + TTL_MS);
    u->expires_ms = row.expires_ms;
    granted++;
    u->fence = fence;
    u->phase = HELD;
    u->started = false;
    u->held = u->need;
    quota_take(model, &u->held);
}

/* The refusal spent a token at a time that only the server knows: wait until that does not matter.
 */
static void refill_rate(void)
{
    uint64_t until = cl_now_ns() + (uint64_t)2 * BURST * RATE_US * CL_NS_PER_US;
    while (cl_now_ns() < until)
        cl_loop_turn(loop, CL_NS_PER_MS);
    tat = 0;
}

static void admit(struct unit *u, struct quota_usage *model)
{
    bool refuse = rnd(3) == 0, direct = rnd(2) == 0;
    struct books_admit req = {.tenant = "oracle",
                              .id = u->id,
                              .kind = BOOKS_JOB,
                              .spec = "s",
                              .spec_n = 1,
                              .refuse_over_quota = refuse,
                              .lease = direct ? u->lease : NULL,
                              .worker = "w",
                              .ttl_ms = TTL_MS};
    struct quota_need need = {{500 + rnd(3000), 1 + rnd(700), 1, rnd(3000), rnd(3000), rnd(1500)}};
    enum quota_dim over = quota_over(model, &limits, &need);
    uint64_t retry;
    u->need = need;
    cl_id_new("job", u->id);
    cl_id_new("lease", u->lease);
    memcpy(req.need, need.dim, sizeof req.need);
    wait_answer(books_admit(books, &req, on_admit, NULL, NULL));
    if (got_err.code == CL_E_RATE) {
        refused_rate++;
        return;
    }
    if (refuse && over != DIM_NR) {
        refused_quota++;
        CL_ASSERT(got_err.code == CL_E_QUOTA && strcmp(got_err.subject, quota_dim_name(over)) == 0);
        CL_ASSERT(got_err.retry_ms > 0);
        refill_rate();
        return;
    }
    CL_ASSERT(got_err.code == CL_OK);
    look(u);
    CL_ASSERT(gcra_step(&tat, row.created_us, RATE_US, BURST,
                        &retry)); /* the oracle lets it through too */
    bool goes = direct && over == DIM_NR && nobody_waits();
    CL_ASSERT(admitted.state == (goes ? BOOKS_STARTING : BOOKS_QUEUED));
    u->phase = WAITS;
    if (goes)
        held(u, admitted.fence, model);
}

static void reserve(struct unit *u, struct quota_usage *model)
{
    struct books_reserve req = {
        .tenant = "oracle", .id = u->id, .lease = u->lease, .worker = "w", .ttl_ms = TTL_MS};
    enum quota_dim over = quota_over(model, &limits, &u->need);
    cl_id_new("lease", u->lease);
    wait_answer(books_reserve(books, &req, on_reserve, NULL, NULL));
    if (over != DIM_NR) {
        refused_quota++;
        CL_ASSERT(got_err.code == CL_E_QUOTA && strcmp(got_err.subject, quota_dim_name(over)) == 0);
        return;
    }
    CL_ASSERT(got_err.code == CL_OK);
    held(u, reserved.fence, model);
}

/* Between HELD and RESTS: `more` has room or not, then it holds `instead`. */
static void change_rest(struct unit *u, struct quota_usage *model)
{
    struct books_hold h = {"oracle", u->id, u->lease, u->fence};
    bool rests = u->phase == RESTS;
    struct books_rest rest = {.disk_mib = rnd(800), .lease_ms = TTL_MS / 2 + rnd(2 * TTL_MS)};
    struct quota_need more = {{0}}, instead = u->need;
    if (rests) {
        memcpy(more.dim, u->need.dim, (DIM_SANDBOXES + 1) * sizeof more.dim[0]);
    } else {
        more.dim[DIM_DISK] = rest.disk_mib;
        memset(instead.dim, 0, (DIM_SANDBOXES + 1) * sizeof instead.dim[0]);
        instead.dim[DIM_DISK] += rest.disk_mib;
    }
    enum quota_dim over = quota_over(model, &limits, &more);
    wait_answer(rests ? books_resume(books, &h, &rest, on_verdict, NULL, NULL)
                      : books_pause(books, &h, &rest, on_verdict, NULL, NULL));
    if (over != DIM_NR) {
        refused_quota++;
        CL_ASSERT(got_err.code == CL_E_QUOTA && strcmp(got_err.subject, quota_dim_name(over)) == 0);
        return;
    }
    CL_ASSERT(got_err.code == CL_OK);
    quota_settle(model, &u->held, 0, 0);
    quota_take(model, &instead);
    u->held = instead;
    u->phase = rests ? HELD : RESTS;
    look(u);
    uint64_t ms = row.changed_us / 1000;
    u->expires_ms = rests ? ms + rest.lease_ms : CL_MAX(u->expires_ms, ms + rest.lease_ms);
    CL_ASSERT(row.expires_ms == u->expires_ms);
    paused += !rests;
    resumed += rests;
}

/* Another worker holds what it holds, until the same time; who runs does not move. */
static void move(struct unit *u)
{
    struct books_hold h = {"oracle", u->id, u->lease, u->fence};
    char lease[CL_ID_MAX];
    struct books_move to = {lease, "w2"};
    cl_id_new("lease", lease);
    wait_answer(books_move(books, &h, &to, on_verdict, NULL, NULL));
    if (u->phase == HELD) {
        CL_ASSERT(got_err.code == CL_E_STATE);
        return;
    }
    CL_ASSERT(got_err.code == CL_OK);
    memcpy(u->lease, lease, sizeof lease);
    u->fence++;
    look(u);
    CL_ASSERT(row.expires_ms == u->expires_ms && row.fence == u->fence);
    moved++;
}

static void start(struct unit *u)
{
    struct books_hold h = {"oracle", u->id, u->lease, u->fence};
    struct books_rest early = {.disk_mib = 1, .force = true};
    wait_answer(books_pause(books, &h, &early, on_verdict, NULL, NULL));
    CL_ASSERT(got_err.code == CL_E_STATE);
    wait_answer(books_started(books, &h, &(struct books_start){"how", 3}, on_verdict, NULL, NULL));
    CL_ASSERT(got_err.code == CL_OK);
    u->started = true;
}

static void finish(struct unit *u, struct quota_usage *model)
{
    struct books_hold h = {"oracle", u->id, u->lease, u->fence};
    struct books_end end = {
        .cpu_ms = rnd(20), .egress_bytes = rnd(20), .outcome = 1, .terminal = "t", .terminal_n = 1};
    bool again = rnd(4) == 0;
    wait_answer(again ? books_requeue(books, &h, &end, on_verdict, NULL, NULL)
                      : books_finish(books, &h, &end, on_verdict, NULL, NULL));
    CL_ASSERT(got_err.code == CL_OK);
    quota_settle(model, &u->held, end.cpu_ms, end.egress_bytes);
    u->phase = again ? WAITS : GONE;
}

static void compare(const struct quota_usage *model)
{
    wait_answer(books_usage(books, "oracle", on_usage, NULL, NULL));
    CL_ASSERT(got_err.code == CL_OK);
    for (int d = 0; d < DIM_NR; d++)
        CL_ASSERT(usage.held[d] == model->held[d] && usage.spent[d] == model->spent[d]);
    static const struct books_drift none;
    wait_answer(books_check(books, "oracle", on_drift, NULL, NULL));
    CL_ASSERT(got_err.code == CL_OK && memcmp(&drift, &none, sizeof none) == 0);
}

static void step(struct unit *u, struct quota_usage *model)
{
    if (u->phase == GONE)
        admit(u, model);
    else if (u->phase == WAITS)
        reserve(u, model);
    else if (rnd(3) == 0)
        finish(u, model);
    else if (rnd(3) == 0)
        move(u);
    else if (u->started)
        change_rest(u, model);
    else
        start(u);
}

int main(int argc, char **argv)
{
    struct server server;
    struct quota_usage model = {{0}, {0}, 0};
    uint64_t want = argc > 1 ? strtoull(argv[1], NULL, 10) : 6000;
    if (!server_start(&server, ""))
        return 77;
    struct books_conf conf = {.target = server.target};
    struct books_tenant t = {.name = "oracle",
                             .limits = {.period_ms = limits.period_ms,
                                        .rate_interval_us = RATE_US,
                                        .rate_burst = BURST,
                                        .queue_max = 1000}};
    memcpy(t.limits.dim, limits.dim, sizeof t.limits.dim);
    CL_ASSERT(cl_loop_new(&loop, NULL) == 0);
    CL_ASSERT(books_new(loop, &conf, &books, NULL) == 0);
    wait_answer(books_tenant_put(books, &t, on_put, NULL, NULL));
    for (uint64_t i = 0; i < want; i++) {
        step(&units[rnd(UNITS)], &model);
        if (i % 20 == 0)
            compare(&model);
    }
    compare(&model);
    (void)printf("%" PRIu64 " operations agree with the oracle: %" PRIu64 " granted, %" PRIu64
                 " over quota, %" PRIu64 " over the rate, %" PRIu64 " paused, %" PRIu64
                 " resumed, %" PRIu64 " moved\n",
                 want, granted, refused_quota, refused_rate, paused, resumed, moved);
    books_free(books);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    server_stop(&server);
    return 0;
}
