/* tests/integration/redis/test_stress.c - random lives of units by four clients at a time; every
 * answer is checked against what the books promise, and at the end the books must close.
 *
 * Usage: test_stress [operations] [seed]; 60,000 by default, 1,000,000 before a release.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "policy/quota.h"
#include "redis/books_registry.h"
#include "tests/integration/redis/server.h"

enum { CLIENTS = 4, SLOTS = 40, TENANTS = 3, TTL_LONG_MS = 120000, TTL_SHORT_MS = 4 };

enum phase { NONE, QUEUED, HELD, RESTS, LOST, ENDED };

struct slot {
    struct books *books;
    const char *tenant;
    char id[CL_ID_MAX], lease[CL_ID_MAX], lease2[CL_ID_MAX]; /* lease2: that it moves to */
    uint64_t fence, held_at_ns;
    uint64_t asked_ms; /* of a pause or resume: how long its lease is to go on */
    uint32_t attempt;
    enum phase phase;
    bool busy, short_ttl, cancelled, wrong, ending, started;
    uint64_t settled_fence;
};

static struct cl_loop *loop;
static struct books *clients[CLIENTS];
static struct slot slots[CLIENTS * SLOTS];
static const char *const tenants[TENANTS] = {"alpha", "beta", "gamma"};
static const uint64_t limits[BOOKS_DIM_NR] = {20000, 5000, 17, 4000000000000, 1000000000000, 9000};
static uint64_t ops, want_ops, violations, seed_state;
static struct {
    uint64_t granted, refused, finished, stale, requeued_held, lost_seen, rate, queue, checks,
        cancelled, direct, paused, resumed, moved;
} count;
static uint64_t top_fence[TENANTS];

static uint64_t rnd(uint64_t n)
{
    seed_state ^= seed_state << 13;
    seed_state ^= seed_state >> 7;
    seed_state ^= seed_state << 17;
    return seed_state % n;
}

static void violate(const struct slot *s, const char *what)
{
    violations++;
    if (violations < 20)
        (void)fprintf(stderr, "violation: %s: %s unit %s lease %s fence %" PRIu64 "\n", what,
                      s ? s->tenant : "", s ? s->id : "", s ? s->lease : "", s ? s->fence : 0);
}

static void idle(struct slot *s)
{
    s->busy = false;
    ops++;
}

static size_t tenant_index(const struct slot *s)
{
    size_t i = 0;
    while (strcmp(tenants[i], s->tenant) != 0)
        i++;
    return i;
}

static void hold(struct slot *s, uint64_t fence, uint32_t attempt)
{
    size_t t = tenant_index(s);
    count.granted++;
    if (attempt != s->attempt + 1)
        violate(s, "the attempt does not follow");
    if (fence <= s->fence)
        violate(s, "the fence goes back");
    s->attempt = attempt;
    s->fence = fence;
    s->phase = HELD;
    s->started = false;
    s->held_at_ns = cl_now_ns();
    top_fence[t] = CL_MAX(top_fence[t], fence);
}

/* --- answers -------------------------------------------------------------------------------- */

static void on_admit(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (res) {
        bool direct = res->state == BOOKS_STARTING;
        if (strcmp(res->id, s->id) != 0 || (direct ? !s->lease[0] : res->state != BOOKS_QUEUED))
            violate(s, "admitted as another");
        s->phase = QUEUED;
        if (direct)
            hold(s, res->fence, res->attempt);
        count.direct += direct;
    } else if (err->code == CL_E_QUOTA) {
        count.refused++;
    } else if (err->code == CL_E_RATE) {
        count.rate++;
    } else if (err->code == CL_E_QUEUE) {
        count.queue++;
    } else {
        violate(s, err->text);
    }
    idle(s);
}

static void on_reserve(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (res) {
        if (s->cancelled)
            violate(s, "a cancelled unit was reserved");
        hold(s, res->fence, res->attempt);
    } else if (err->code == CL_E_QUOTA) {
        count.refused++;
    } else if (err->code == CL_E_CANCELLED) {
        if (!s->cancelled)
            violate(s, "not cancelled");
        count.cancelled++;
    } else {
        violate(s, err->text);
    }
    idle(s);
}

static void on_started(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err || (v == BOOKS_STALE && !s->short_ttl))
        violate(s, "start of a held lease refused");
    if (v == BOOKS_STALE)
        s->phase = LOST;
    else
        s->started = true;
    idle(s);
}

/* It was paused or resumed, and its lease ends at another time. */
static void change_rest_done(struct slot *s, bool resumed)
{
    s->phase = resumed ? HELD : RESTS;
    if (resumed)
        s->short_ttl = s->asked_ms == TTL_SHORT_MS;
    else if (s->asked_ms == TTL_LONG_MS)
        s->short_ttl = false;
    if (s->asked_ms == TTL_SHORT_MS)
        s->held_at_ns = cl_now_ns();
}

/* Pause or resume, by where it was. */
static void on_rest(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    bool rested = s->phase == RESTS;
    if (err && err->code == CL_E_STATE && !rested && !s->started)
        count.refused++;
    else if (err && err->code == CL_E_QUOTA && (rested || s->started))
        count.refused++;
    else if (err)
        violate(s, err->text);
    else if (v == BOOKS_STALE && s->short_ttl)
        s->phase = LOST;
    else if (v != BOOKS_ACCEPTED || (!rested && !s->started))
        violate(s, "pause or resume of a held lease refused, or too early");
    else
        change_rest_done(s, rested);
    count.paused += s->phase == RESTS && !rested;
    count.resumed += s->phase == HELD && rested;
    idle(s);
}

static void on_move(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err && err->code == CL_E_STATE && (s->phase == HELD || s->cancelled)) {
        count.refused++;
    } else if (err) {
        violate(s, err->text);
    } else if (v == BOOKS_STALE && s->short_ttl) {
        s->phase = LOST;
    } else if (v != BOOKS_ACCEPTED || s->phase != RESTS || s->cancelled) {
        violate(s, "the move of a held lease refused, or of one that does not rest");
    } else {
        memcpy(s->lease, s->lease2, sizeof s->lease);
        s->fence++;
        count.moved++;
    }
    idle(s);
}

static void on_renew(const uint8_t *held, size_t n, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err || n != 2)
        violate(s, "renew failed");
    else if (held[1])
        violate(s, "a wrong fence was renewed");
    else if (!held[0] && !s->short_ttl)
        violate(s, "a held lease expired early");
    else if (held[0])
        s->short_ttl = false;
    else
        s->phase = LOST;
    idle(s);
}

static void on_finish(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err) {
        violate(s, err->text);
    } else if (s->wrong) {
        if (v != BOOKS_STALE)
            violate(s, "a wrong fence was accepted");
    } else if (v == BOOKS_ACCEPTED) {
        count.finished++;
        s->phase = ENDED;
        s->settled_fence = s->fence;
    } else if (v == BOOKS_STALE && s->short_ttl) {
        count.stale++;
        s->phase = LOST;
    } else {
        violate(s, "finish of a held lease refused");
    }
    idle(s);
}

static void on_again(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err || v != BOOKS_ALREADY)
        violate(s, "a repetition was not recognised");
    s->phase = NONE;
    idle(s);
}

static void on_requeue(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err || v != BOOKS_ACCEPTED)
        violate(s, "requeue refused");
    else
        s->phase = QUEUED;
    idle(s);
}

static void on_end(enum books_verdict v, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    if (err || v != BOOKS_ACCEPTED)
        violate(s, "end refused");
    s->phase = NONE;
    idle(s);
}

static void on_cancel(const struct books_unit *rows, size_t n, const char *next,
                      const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    (void)next;
    if (err || n != 1 || !rows[0].cancel)
        violate(s, "cancel failed");
    s->cancelled = true;
    idle(s);
}

static void on_reap(const struct books_unit *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    (void)next;
    bool found = false;
    for (size_t i = 0; !err && i < n; i++)
        found |= strcmp(rows[i].id, s->id) == 0 && rows[i].fence == s->fence && rows[i].reaped;
    if (!found)
        violate(s, err ? err->text : "a lost unit is not reported");
    count.lost_seen++;
    s->wrong = found; /* reused: the next step may decide */
    idle(s);
}

static void on_check(const struct books_drift *d, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    static const struct books_drift none;
    if (err || memcmp(d, &none, sizeof none) != 0)
        violate(s, err ? err->text : "drift");
    count.checks++;
    idle(s);
}

static void on_usage(const struct books_usage *u, const struct cl_err *err, void *arg)
{
    struct slot *s = arg;
    for (size_t i = 0; !err && i < BOOKS_DIM_NR; i++) {
        if (u->held[i] + u->spent[i] > limits[i])
            violate(s, "over a limit");
    }
    if (err)
        violate(s, err->text);
    count.checks++;
    idle(s);
}

/* --- steps ---------------------------------------------------------------------------------- */

static const struct books_end used = {
    .cpu_ms = 3, .egress_bytes = 5, .outcome = 1, .terminal = "t", .terminal_n = 1};

static int step_none(struct slot *s)
{
    cl_id_new("job", s->id);
    s->lease[0] = '\0';
    s->fence = s->attempt = 0;
    s->cancelled = s->short_ttl = s->wrong = false;
    s->tenant = tenants[rnd(TENANTS)];
    if (rnd(2) == 0)
        cl_id_new("lease", s->lease);
    s->short_ttl = s->lease[0] && rnd(5) == 0;
    struct books_admit req = {
        .tenant = s->tenant,
        .id = s->id,
        .kind = BOOKS_JOB,
        .need = {500 + rnd(2000), 1 + rnd(700), 1, rnd(1000), rnd(1000), rnd(1000)},
        .spec = "spec",
        .spec_n = 4,
        .global_queue_max = 100,
        .refuse_over_quota = rnd(4) == 0,
        .lease = s->lease[0] ? s->lease : NULL,
        .worker = "wrk_1",
        .ttl_ms = s->short_ttl ? TTL_SHORT_MS : TTL_LONG_MS};
    return books_admit(s->books, &req, on_admit, s, NULL);
}

static int step_queued(struct slot *s)
{
    uint64_t r = s->ending ? 0 : rnd(100);
    if (r < 5 || (s->cancelled && r < 50))
        return books_end_unleased(s->books, s->tenant, s->id, &used, on_end, s, NULL);
    if (r < 8)
        return books_cancel(s->books, s->tenant, s->id, on_cancel, s, NULL);
    cl_id_new("lease", s->lease);
    s->short_ttl = rnd(5) == 0;
    struct books_reserve req = {.tenant = s->tenant,
                                .id = s->id,
                                .lease = s->lease,
                                .worker = "wrk_1",
                                .ttl_ms = s->short_ttl ? TTL_SHORT_MS : TTL_LONG_MS};
    return books_reserve(s->books, &req, on_reserve, s, NULL);
}

static int change_rest(struct slot *s)
{
    struct books_hold h = {s->tenant, s->id, s->lease, s->fence};
    uint64_t r = rnd(10);
    s->asked_ms = r < 2 ? TTL_SHORT_MS : r < 6 || s->phase == RESTS ? TTL_LONG_MS : 0;
    struct books_rest rest = {.disk_mib = rnd(700), .lease_ms = s->asked_ms};
    return s->phase == RESTS ? books_resume(s->books, &h, &rest, on_rest, s, NULL)
                             : books_pause(s->books, &h, &rest, on_rest, s, NULL);
}

static int move(struct slot *s)
{
    struct books_hold h = {s->tenant, s->id, s->lease, s->fence};
    struct books_move to = {s->lease2, "wrk_2"};
    cl_id_new("lease", s->lease2);
    return books_move(s->books, &h, &to, on_move, s, NULL);
}

static int step_held(struct slot *s)
{
    struct books_hold h = {s->tenant, s->id, s->lease, s->fence};
    struct books_pair pairs[2] = {{s->tenant, s->lease, s->fence},
                                  {s->tenant, s->lease, s->fence - 1}};
    uint64_t r = s->ending ? 50 : rnd(100);
    if (s->short_ttl && r < 60) { /* a silent crash: wait until it is surely over */
        if (cl_now_ns() - s->held_at_ns < 2 * TTL_SHORT_MS * CL_NS_PER_MS) {
            s->busy = false;
            return 0;
        }
        s->phase = LOST;
        s->wrong = false;
        return books_reap(s->books, s->tenant, 1000, on_reap, s, NULL);
    }
    s->wrong = false;
    if (!s->ending && rnd(s->phase == RESTS ? 3 : 4) == 0)
        return change_rest(s);
    if (!s->ending && rnd(s->phase == RESTS ? 4 : 40) == 0)
        return move(s);
    if (r < 15)
        return books_started(s->books, &h, &(struct books_start){"how", 3}, on_started, s, NULL);
    if (r < 30)
        return books_renew(s->books, pairs, 2, TTL_LONG_MS, on_renew, s, NULL);
    if (r < 40) {
        s->wrong = true;
        h.fence++;
        return books_finish(s->books, &h, &used, on_finish, s, NULL);
    }
    if (r >= 85 && !s->short_ttl) {
        count.requeued_held++;
        return books_requeue(s->books, &h, &used, on_requeue, s, NULL);
    }
    return books_finish(s->books, &h, &used, on_finish, s, NULL);
}

static int step_lost(struct slot *s)
{
    struct books_hold h = {s->tenant, s->id, s->lease, s->fence};
    if (!s->wrong)
        return books_reap(s->books, s->tenant, 1000, on_reap, s, NULL);
    s->wrong = false;
    if (!s->ending && rnd(2) == 0)
        return books_requeue(s->books, &h, NULL, on_requeue, s, NULL);
    return books_end_unleased(s->books, s->tenant, s->id, &used, on_end, s, NULL);
}

static int step(struct slot *s)
{
    struct books_hold h = {s->tenant, s->id, s->lease, s->fence};
    s->busy = true;
    if (!s->ending && rnd(400) == 0)
        return books_check(s->books, tenants[rnd(TENANTS)], on_check, s, NULL);
    if (!s->ending && rnd(50) == 0)
        return books_usage(s->books, tenants[rnd(TENANTS)], on_usage, s, NULL);
    switch (s->phase) {
    case NONE:
        return step_none(s);
    case QUEUED:
        return step_queued(s);
    case HELD:
    case RESTS:
        return step_held(s);
    case LOST:
        return step_lost(s);
    case ENDED:
        return books_finish(s->books, &h, &used, on_again, s, NULL);
    }
    return -1;
}

static void turn(void)
{
    for (size_t i = 0; i < CL_COUNT(slots); i++) {
        struct slot *s = &slots[i];
        if (s->busy || (s->ending && s->phase == NONE))
            continue;
        if (step(s) < 0) {
            violate(s, "a call was refused locally");
            s->busy = false;
        }
    }
    cl_loop_turn(loop, CL_NS_PER_MS);
}

/* --- the whole ------------------------------------------------------------------------------ */

static int waiting;
static struct books_usage last_usage;
static void on_put(bool created, const struct cl_err *err, void *arg)
{
    (void)created, (void)arg;
    CL_ASSERT(!err);
    waiting--;
}
static void on_last_usage(const struct books_usage *u, const struct cl_err *err, void *arg)
{
    (void)arg;
    CL_ASSERT(!err);
    last_usage = *u;
    waiting--;
}

static void make_tenants(void)
{
    for (size_t i = 0; i < TENANTS; i++) {
        struct books_tenant t = {.limits = {.period_ms = 3200000000,
                                            .rate_interval_us = i == 0 ? 300 : 0,
                                            .rate_burst = 20,
                                            .queue_max = 40}};
        (void)snprintf(t.name, sizeof t.name, "%s", tenants[i]);
        memcpy(t.limits.dim, limits, sizeof limits);
        waiting++;
        CL_ASSERT(books_tenant_put(clients[0], &t, on_put, NULL, NULL) == 0);
    }
    while (waiting > 0)
        cl_loop_turn(loop, CL_NS_PER_MS);
}

static void drain(void)
{
    bool open = true;
    for (size_t i = 0; i < CL_COUNT(slots); i++)
        slots[i].ending = true;
    while (open) {
        turn();
        open = false;
        for (size_t i = 0; i < CL_COUNT(slots); i++)
            open |= slots[i].busy || slots[i].phase != NONE;
    }
}

static uint64_t close_books(void)
{
    uint64_t reaped = 0;
    for (size_t i = 0; i < TENANTS; i++) {
        struct slot s = {.tenant = tenants[i]};
        waiting++;
        CL_ASSERT(books_usage(clients[0], tenants[i], on_last_usage, NULL, NULL) == 0);
        while (waiting > 0)
            cl_loop_turn(loop, CL_NS_PER_MS);
        reaped += last_usage.reaped_total;
        bool zero = last_usage.queued == 0 && last_usage.leases == 0 && last_usage.reaped == 0 &&
                    last_usage.live == 0;
        for (size_t d = 0; d < BOOKS_DIM_NR; d++)
            zero = zero && last_usage.held[d] == 0;
        if (!zero)
            violate(&s, "something is held at the end");
        s.busy = true;
        CL_ASSERT(books_check(clients[0], tenants[i], on_check, &s, NULL) == 0);
        while (s.busy)
            cl_loop_turn(loop, CL_NS_PER_MS);
    }
    return reaped;
}

int main(int argc, char **argv)
{
    struct server server;
    want_ops = argc > 1 ? strtoull(argv[1], NULL, 10) : 60000;
    seed_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 88172645463325252u;
    if (!server_start(&server, ""))
        return 77;
    CL_ASSERT(cl_loop_new(&loop, NULL) == 0);
    for (size_t i = 0; i < CLIENTS; i++) {
        struct books_conf conf = {.target = server.target};
        CL_ASSERT(books_new(loop, &conf, &clients[i], NULL) == 0);
        while (!books_is_ready(clients[i]))
            cl_loop_turn(loop, CL_NS_PER_MS);
    }
    make_tenants();
    for (size_t i = 0; i < CL_COUNT(slots); i++)
        slots[i].books = clients[i % CLIENTS];
    uint64_t start = cl_now_ns();
    while (ops < want_ops)
        turn();
    uint64_t took = cl_now_ns() - start;
    drain();
    uint64_t reaped = close_books();
    if (count.granted != count.finished + count.requeued_held + reaped) {
        violations++;
        (void)fprintf(stderr, "violation: granted is not finished + requeued + reaped\n");
    }
    (void)printf("%" PRIu64 " operations in %.1f s: %" PRIu64 " granted = %" PRIu64
                 " finished + %" PRIu64 " requeued + %" PRIu64 " reaped; refused %" PRIu64
                 " quota %" PRIu64 " rate %" PRIu64 " queue %" PRIu64 " cancelled; %" PRIu64
                 " stale; %" PRIu64 " paused, %" PRIu64 " resumed, %" PRIu64 " moved; %" PRIu64
                 " checks; %" PRIu64 " violations\n",
                 ops, (double)took / 1e9, count.granted, count.finished, count.requeued_held,
                 reaped, count.refused, count.rate, count.queue, count.cancelled, count.stale,
                 count.paused, count.resumed, count.moved, count.checks, violations);
    for (size_t i = 0; i < CLIENTS; i++)
        books_free(clients[i]);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    server_stop(&server);
    return violations ? 1 : 0;
}
