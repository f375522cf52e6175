/* tests/integration/redis/test_books.c - each call of the books against a real Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/id.h"
#include "redis/books_registry.h"
#include "tests/integration/redis/server.h"

static struct server server;
static struct cl_loop *loop;
static struct books *books;

/* What the last callback said. */
static struct {
    int calls;
    struct cl_err err;
    struct books_admitted admitted;
    struct books_reserved reserved;
    enum books_verdict verdict;
    bool created;
    size_t n;
    struct books_unit unit[8];
    char spec[64], terminal[64], next[64];
    struct books_usage usage;
    struct books_drift drift;
    struct books_tenant tenant;
    struct books_key key;
    struct books_worker worker;
    struct books_head head;
    uint8_t held[8];
    char blob[64];
} got;

static void note(const struct cl_err *err)
{
    got.calls++;
    got.err = err ? *err : (struct cl_err){0};
}

static void wait_answer(int rc)
{
    assert_int_equal(rc, 0);
    int before = got.calls;
    uint64_t end = cl_now_ns() + 20 * CL_NS_PER_S;
    while (got.calls == before && cl_now_ns() < end)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(got.calls, before + 1);
}

static void on_done(const struct cl_err *err, void *arg)
{
    (void)arg;
    note(err);
}
static void on_put(bool created, const struct cl_err *err, void *arg)
{
    (void)arg;
    got.created = created;
    note(err);
}
static void on_admit(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (res)
        got.admitted = *res;
    note(err);
}
static void on_reserve(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (res)
        got.reserved = *res;
    note(err);
}
static void on_verdict(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    (void)arg;
    got.verdict = verdict;
    note(err);
}
static void on_units(const struct books_unit *rows, size_t n, const char *next,
                     const struct cl_err *err, void *arg)
{
    (void)arg;
    got.n = n;
    (void)snprintf(got.next, sizeof got.next, "%s", next);
    for (size_t i = 0; i < n && i < CL_COUNT(got.unit); i++)
        got.unit[i] = rows[i];
    if (n > 0 && rows[0].spec)
        (void)snprintf(got.spec, sizeof got.spec, "%.*s", (int)rows[0].spec_n,
                       (const char *)rows[0].spec);
    if (n > 0 && rows[0].terminal)
        (void)snprintf(got.terminal, sizeof got.terminal, "%.*s", (int)rows[0].terminal_n,
                       (const char *)rows[0].terminal);
    note(err);
}
static void on_usage(const struct books_usage *usage, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (usage)
        got.usage = *usage;
    note(err);
}
static void on_drift(const struct books_drift *drift, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (drift)
        got.drift = *drift;
    note(err);
}
static void on_renew(const uint8_t *held, size_t n, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (held)
        memcpy(got.held, held, CL_MIN(n, sizeof got.held));
    note(err);
}
static void on_tenants(const struct books_tenant *rows, size_t n, const char *next,
                       const struct cl_err *err, void *arg)
{
    (void)arg, (void)next;
    got.n = n;
    if (n > 0) {
        got.tenant = rows[0];
        (void)snprintf(got.blob, sizeof got.blob, "%.*s", (int)rows[0].blob_n,
                       (const char *)rows[0].blob);
    }
    note(err);
}
static void on_keys(const struct books_key *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    (void)arg, (void)next;
    got.n = n;
    if (n > 0)
        got.key = rows[0];
    note(err);
}
static void on_workers(const struct books_worker *rows, size_t n, const char *next,
                       const struct cl_err *err, void *arg)
{
    (void)arg, (void)next;
    got.n = n;
    if (n > 0) {
        got.worker = rows[0];
        (void)snprintf(got.blob, sizeof got.blob, "%.*s", (int)rows[0].blob_n,
                       (const char *)rows[0].blob);
    }
    note(err);
}
static void on_blob(const void *blob, size_t n, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (blob)
        (void)snprintf(got.blob, sizeof got.blob, "%.*s", (int)n, (const char *)blob);
    note(err);
}
static void on_head(const struct books_head *head, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (head)
        got.head = *head;
    note(err);
}

/* --- helpers -------------------------------------------------------------------------------- */

static void put_tenant(const char *name, uint64_t sandboxes, uint64_t rate_us, uint64_t queue)
{
    struct books_tenant t = {
        .limits = {.dim = {100000, 100000, sandboxes, 1000000, 1000000, 100000},
                   .period_ms = 86400000,
                   .rate_interval_us = rate_us,
                   .rate_burst = 3,
                   .queue_max = queue},
        .blob = "blob",
        .blob_n = 4,
    };
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    wait_answer(books_tenant_put(books, &t, on_put, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
}

static void admit_keyed(const char *tenant, const char *id, const char *key, uint8_t body)
{
    uint8_t hash[32] = {body};
    struct books_admit req = {.tenant = tenant,
                              .id = id,
                              .kind = BOOKS_JOB,
                              .need = {1000, 256, 1, 5000, 100, 512},
                              .spec = "the spec",
                              .spec_n = 8,
                              .idem_key = key,
                              .idem_hash = key ? hash : NULL};
    wait_answer(books_admit(books, &req, on_admit, NULL, NULL));
}

static void admit(const char *tenant, char id[static CL_ID_MAX])
{
    cl_id_new("job", id);
    admit_keyed(tenant, id, NULL, 0);
    assert_int_equal(got.err.code, CL_OK);
}

static void reserve(const char *tenant, const char *id, const char *lease, uint64_t ttl_ms)
{
    struct books_reserve req = {
        .tenant = tenant, .id = id, .lease = lease, .worker = "wrk_1", .ttl_ms = ttl_ms};
    wait_answer(books_reserve(books, &req, on_reserve, NULL, NULL));
}

static struct books_hold hold(const char *tenant, const char *id, const char *lease)
{
    return (struct books_hold){
        .tenant = tenant, .id = id, .lease = lease, .fence = got.reserved.fence};
}

static const struct books_end ended = {
    .cpu_ms = 7, .egress_bytes = 3, .outcome = 1, .terminal = "gone", .terminal_n = 4};

static void check_books_close(const char *tenant)
{
    static const struct books_drift none;
    wait_answer(books_check(books, tenant, on_drift, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    assert_memory_equal(&got.drift, &none, sizeof none);
}

/* --- tests ---------------------------------------------------------------------------------- */

static void test_a_job_goes_from_admission_to_its_terminal_record(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("acme", 10, 0, 100);
    assert_true(got.created);
    admit("acme", id);
    cl_id_new("lease", lease);
    reserve("acme", id, lease, 30000);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.reserved.attempt, 1);
    uint64_t fence = got.reserved.fence;
    reserve("acme", id, lease, 30000);
    assert_true(got.reserved.replay);
    assert_true(got.reserved.fence == fence);
    struct books_hold h = hold("acme", id, lease);
    wait_answer(books_started(books, &h, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_started(books, &h, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    wait_answer(books_usage(books, "acme", on_usage, NULL, NULL));
    assert_int_equal(got.usage.held[BOOKS_MEM], 256);
    assert_int_equal(got.usage.leases, 1);
    struct books_pair pairs[2] = {{"acme", lease, fence}, {"acme", lease, fence + 1}};
    wait_answer(books_renew(books, pairs, 2, 30000, on_renew, NULL, NULL));
    assert_int_equal(got.held[0], 1);
    assert_int_equal(got.held[1], 0);
    struct books_hold wrong = h;
    wrong.fence++;
    wait_answer(books_finish(books, &wrong, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    wait_answer(
        books_get(books, "acme", id, BOOKS_WITH_SPEC | BOOKS_WITH_TERMINAL, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_int_equal(got.unit[0].state, BOOKS_ENDED);
    assert_int_equal(got.unit[0].outcome, 1);
    assert_string_equal(got.unit[0].worker, "wrk_1");
    assert_string_equal(got.spec, "the spec");
    assert_string_equal(got.terminal, "gone");
    wait_answer(books_usage(books, "acme", on_usage, NULL, NULL));
    assert_int_equal(got.usage.held[BOOKS_MEM], 0);
    assert_int_equal(got.usage.spent[BOOKS_CPU], 7);
    assert_int_equal(got.usage.live, 0);
    check_books_close("acme");
}

static void test_an_idempotency_key_replays_or_refuses_another_body(void **state)
{
    (void)state;
    char a[CL_ID_MAX], b[CL_ID_MAX];
    put_tenant("idem", 10, 0, 100);
    cl_id_new("job", a);
    cl_id_new("job", b);
    admit_keyed("idem", a, "key-1", 1);
    assert_false(got.admitted.replay);
    admit_keyed("idem", b, "key-1", 1);
    assert_true(got.admitted.replay);
    assert_string_equal(got.admitted.id, a);
    admit_keyed("idem", b, "key-1", 2);
    assert_int_equal(got.err.code, CL_E_EXISTS);
    check_books_close("idem");
}

static void test_rate_queue_and_quota_refuse_with_their_own_codes(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("rate", 10, 3600000000, 100);
    for (int i = 0; i < 3; i++)
        admit("rate", id);
    cl_id_new("job", id);
    admit_keyed("rate", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_RATE);
    assert_true(got.err.retry_ms > 3500000 && got.err.retry_ms <= 3600000);
    put_tenant("queue", 1, 0, 2);
    char first[CL_ID_MAX], second[CL_ID_MAX];
    admit("queue", first);
    admit("queue", second);
    cl_id_new("job", id);
    admit_keyed("queue", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_QUEUE);
    cl_id_new("lease", lease);
    reserve("queue", first, lease, 30000);
    assert_int_equal(got.err.code, CL_OK);
    struct books_hold h = hold("queue", first, lease);
    char other[CL_ID_MAX];
    cl_id_new("lease", other);
    reserve("queue", second, other, 30000);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    admit("queue", id);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    wait_answer(books_usage(books, "queue", on_usage, NULL, NULL));
    assert_int_equal(got.usage.queued, 3); /* over its bound of 2: a requeue is never refused */
    put_tenant("small", 0, 0, 2);
    cl_id_new("job", id);
    admit_keyed("small", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    cl_id_new("job", id);
    admit_keyed("nobody", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    check_books_close("queue");
}

static void admit_leased(const char *tenant, const char *id, const char *lease, bool refuse)
{
    struct books_admit req = {.tenant = tenant,
                              .id = id,
                              .kind = BOOKS_JOB,
                              .need = {1000, 256, 1, 5000, 100, 512},
                              .spec = "the spec",
                              .spec_n = 8,
                              .refuse_over_quota = refuse,
                              .lease = lease,
                              .worker = "wrk_1",
                              .ttl_ms = 30000};
    wait_answer(books_admit(books, &req, on_admit, NULL, NULL));
}

static void test_admission_reserves_at_once_when_it_may_and_nobody_waits(void **state)
{
    (void)state;
    char a[CL_ID_MAX], b[CL_ID_MAX], c[CL_ID_MAX], la[CL_ID_MAX], lb[CL_ID_MAX];
    put_tenant("direct", 1, 0, 100);
    cl_id_new("job", a);
    cl_id_new("job", b);
    cl_id_new("job", c);
    cl_id_new("lease", la);
    cl_id_new("lease", lb);
    admit_leased("direct", a, la, false);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.admitted.state, BOOKS_STARTING);
    assert_int_equal(got.admitted.attempt, 1);
    uint64_t fence = got.admitted.fence;
    assert_true(fence > 0);
    admit_leased("direct", a, la, false); /* sent again after a lost answer */
    assert_int_equal(got.admitted.state, BOOKS_STARTING);
    assert_int_equal(got.admitted.fence, fence);
    admit_leased("direct", b, la, false); /* a lease is for one unit */
    assert_int_equal(got.err.code, CL_E_INVALID);
    admit_leased("direct", b, lb, true);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    assert_true(got.err.retry_ms > 0);
    admit_leased("direct", b, NULL, true); /* whether a worker has room or not */
    assert_int_equal(got.err.code, CL_E_QUOTA);
    admit_leased("direct", b, lb, false);
    assert_int_equal(got.admitted.state, BOOKS_QUEUED);
    struct books_hold h = {"direct", a, la, fence};
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    admit_leased("direct", c, la, false); /* b waits, and nobody overtakes it */
    assert_int_equal(got.admitted.state, BOOKS_QUEUED);
    reserve("direct", b, lb, 30000);
    assert_int_equal(got.err.code, CL_OK);
    check_books_close("direct");
}

static void test_an_expired_lease_is_reported_until_someone_decides(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("reap", 10, 0, 100);
    admit("reap", id);
    cl_id_new("lease", lease);
    reserve("reap", id, lease, 1);
    struct books_hold h = hold("reap", id, lease);
    (void)usleep(5000);
    for (int i = 0; i < 2; i++) {
        wait_answer(books_reap(books, "reap", 10, on_units, NULL, NULL));
        assert_int_equal(got.n, 1);
        assert_true(got.unit[0].reaped);
        assert_int_equal(got.unit[0].state, BOOKS_STARTING);
    }
    check_books_close("reap");
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    cl_id_new("lease", lease);
    reserve("reap", id, lease, 1);
    assert_int_equal(got.reserved.attempt, 2);
    (void)usleep(5000);
    wait_answer(books_reap(books, "reap", 10, on_units, NULL, NULL));
    wait_answer(books_end_unleased(books, "reap", id, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_end_unleased(books, "reap", id, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    check_books_close("reap");
}

/* --- pause and resume ------------------------------------------------------------------------- */

static void start(const char *tenant, char id[static CL_ID_MAX], char lease[static CL_ID_MAX],
                  uint64_t ttl_ms)
{
    admit(tenant, id);
    cl_id_new("lease", lease);
    reserve(tenant, id, lease, ttl_ms);
    assert_int_equal(got.err.code, CL_OK);
    struct books_hold h = hold(tenant, id, lease);
    wait_answer(books_started(books, &h, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
}

static void pause_unit(const struct books_hold *h, uint64_t disk_mib, bool force)
{
    struct books_rest rest = {.disk_mib = disk_mib, .force = force};
    wait_answer(books_pause(books, h, &rest, on_verdict, NULL, NULL));
}

static void resume_unit(const struct books_hold *h, bool force)
{
    wait_answer(books_resume(books, h, force, on_verdict, NULL, NULL));
}

static void expect_held(const char *tenant, const uint64_t want[static BOOKS_DIM_NR])
{
    wait_answer(books_usage(books, tenant, on_usage, NULL, NULL));
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        assert_int_equal(got.usage.held[i], want[i]);
}

static enum books_state state_of(const char *tenant, const char *id)
{
    wait_answer(books_get(books, tenant, id, 0, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    return got.unit[0].state;
}

static const uint64_t runs[BOOKS_DIM_NR] = {1000, 256, 1, 5000, 100, 512},
                      rests[BOOKS_DIM_NR] = {0, 0, 0, 5000, 100, 812}, nothing[BOOKS_DIM_NR] = {0};

static void test_a_paused_unit_holds_disk_and_neither_vcpu_nor_memory_nor_a_sandbox(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("rest", 10, 0, 100);
    start("rest", id, lease, 30000);
    struct books_hold h = hold("rest", id, lease);
    expect_held("rest", runs);
    for (int round = 0; round < 2; round++) {
        pause_unit(&h, 300, false);
        assert_int_equal(got.err.code, CL_OK);
        assert_int_equal(got.verdict, BOOKS_ACCEPTED);
        pause_unit(&h, 300, false);
        assert_int_equal(got.verdict, BOOKS_ALREADY);
        assert_int_equal(state_of("rest", id), BOOKS_PAUSED);
        assert_int_equal(got.unit[0].need[BOOKS_DISK], 512);
        expect_held("rest", rests);
        check_books_close("rest");
        resume_unit(&h, false);
        assert_int_equal(got.verdict, BOOKS_ACCEPTED);
        resume_unit(&h, false);
        assert_int_equal(got.verdict, BOOKS_ALREADY);
        assert_int_equal(state_of("rest", id), BOOKS_RUNNING);
        expect_held("rest", runs);
        check_books_close("rest");
    }
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    expect_held("rest", nothing);
    pause_unit(&h, 300, true);
    assert_int_equal(got.verdict, BOOKS_STALE);
    check_books_close("rest");
}

static void test_a_paused_unit_is_renewed_listed_cancelled_and_ended_as_any(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("rest2", 10, 0, 100);
    start("rest2", id, lease, 30000);
    struct books_hold h = hold("rest2", id, lease);
    pause_unit(&h, 300, false);
    struct books_pair pair = {"rest2", lease, h.fence};
    wait_answer(books_renew(books, &pair, 1, 30000, on_renew, NULL, NULL));
    assert_int_equal(got.held[0], 1);
    wait_answer(books_started(books, &h, on_verdict, NULL, NULL)); /* said again after a Hello */
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    assert_int_equal(state_of("rest2", id), BOOKS_PAUSED);
    struct books_list req = {.tenant = "rest2", .kind = BOOKS_JOB, .token = "", .n = 5};
    req.states = 1u << BOOKS_RUNNING;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 0);
    req.states = 1u << BOOKS_PAUSED;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    wait_answer(books_live(books, "rest2", "", 5, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_int_equal(got.unit[0].state, BOOKS_PAUSED);
    wait_answer(books_cancel(books, "rest2", id, on_units, NULL, NULL));
    assert_true(got.unit[0].cancel);
    assert_int_equal(got.unit[0].state, BOOKS_PAUSED);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    expect_held("rest2", nothing);
    check_books_close("rest2");
}

static void test_pause_and_resume_are_refused_by_quota_state_and_fence(void **state)
{
    (void)state;
    char a[CL_ID_MAX], la[CL_ID_MAX], b[CL_ID_MAX], lb[CL_ID_MAX];
    put_tenant("rest3", 1, 0, 100);
    admit("rest3", a);
    cl_id_new("lease", la);
    reserve("rest3", a, la, 30000);
    struct books_hold ha = hold("rest3", a, la), wrong = ha;
    pause_unit(&ha, 300, true);
    assert_int_equal(got.err.code, CL_E_STATE); /* its user code has not started */
    wait_answer(books_started(books, &ha, on_verdict, NULL, NULL));
    wrong.fence++;
    pause_unit(&wrong, 300, false);
    assert_int_equal(got.verdict, BOOKS_STALE);
    wrong = ha;
    cl_id_new("job", b);
    wrong.id = b;
    pause_unit(&wrong, 300, false);
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    pause_unit(&ha, 99489, false); /* one more than it can have */
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "disk_mib");
    assert_int_equal(got.err.retry_ms, 0);
    expect_held("rest3", runs);
    assert_int_equal(state_of("rest3", a), BOOKS_RUNNING);
    pause_unit(&ha, 99488, false);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    resume_unit(&wrong, false);
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    admit("rest3", b); /* the only sandbox and no disk: it waits */
    cl_id_new("lease", lb);
    reserve("rest3", b, lb, 30000);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "disk_mib");
    resume_unit(&ha, false);
    pause_unit(&ha, 300, false);
    reserve("rest3", b, lb, 30000);
    assert_int_equal(got.err.code, CL_OK);
    resume_unit(&ha, false);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    assert_true(got.err.retry_ms > 0);
    assert_int_equal(state_of("rest3", a), BOOKS_PAUSED);
    resume_unit(&ha, true); /* what has happened already may go over */
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    pause_unit(&ha, 200000, true);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    check_books_close("rest3");
}

/* What expired makes room, and a unit that is among the expired ones is not changed any more. */
static void test_pause_and_resume_take_back_what_expired(void **state)
{
    (void)state;
    char a[CL_ID_MAX], la[CL_ID_MAX], b[CL_ID_MAX], lb[CL_ID_MAX];
    put_tenant("rest4", 1, 0, 100);
    start("rest4", a, la, 30000);
    struct books_hold ha = hold("rest4", a, la);
    pause_unit(&ha, 99000, false);
    assert_int_equal(got.err.code, CL_OK);
    resume_unit(&ha, false);
    pause_unit(&ha, 300, false);
    start("rest4", b, lb, 1);
    struct books_hold hb = hold("rest4", b, lb);
    (void)usleep(5000);
    resume_unit(&ha, false);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    pause_unit(&hb, 1, true);
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_end_unleased(books, "rest4", b, &ended, on_verdict, NULL, NULL));
    pause_unit(&ha, 300, false);
    start("rest4", b, lb, 1);
    hb = hold("rest4", b, lb);
    (void)usleep(5000);
    pause_unit(&hb, 98800, false); /* no room but what itself held */
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.verdict, BOOKS_STALE);
    expect_held("rest4", rests);
    check_books_close("rest4");
}

/* 1000 of vcpu_milli: as many ms of CPU as of time in which it ran. */
static void test_what_a_lost_unit_is_charged_has_no_time_of_rest(void **state)
{
    (void)state;
    enum { TTL_MS = 1500, RUNS_MS = 60, RESTS_MS = 500 };
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("rest5", 10, 0, 100);
    uint64_t born = cl_now_ns(), from = born, ran = 0;
    start("rest5", id, lease, TTL_MS);
    struct books_hold h = hold("rest5", id, lease);
    for (int i = 0; i < 2; i++) {
        (void)usleep(RUNS_MS * 1000);
        pause_unit(&h, 300, false);
        assert_int_equal(got.verdict, BOOKS_ACCEPTED);
        ran += cl_now_ns() - from;
        if (i > 0)
            break;
        (void)usleep(RESTS_MS * 1000);
        from = cl_now_ns();
        resume_unit(&h, false);
        assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    }
    while (cl_now_ns() - born < (TTL_MS + 100) * CL_NS_PER_MS)
        (void)usleep(10000);
    wait_answer(books_reap(books, "rest5", 10, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_int_equal(got.unit[0].state, BOOKS_PAUSED);
    assert_true(got.unit[0].reaped);
    expect_held("rest5", nothing);
    assert_in_range(got.usage.spent[BOOKS_CPU], 2 * RUNS_MS - 2, ran / CL_NS_PER_MS + 2);
    check_books_close("rest5");
    resume_unit(&h, true);
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_end_unleased(books, "rest5", id, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    check_books_close("rest5");
}

static void test_lists_are_paged_newest_first_and_filtered(void **state)
{
    (void)state;
    char id[5][CL_ID_MAX];
    put_tenant("list", 10, 0, 100);
    for (int i = 0; i < 5; i++) {
        admit("list", id[i]);
        (void)usleep(2000);
    }
    wait_answer(books_end_unleased(books, "list", id[1], &ended, on_verdict, NULL, NULL));
    struct books_list req = {.tenant = "list", .kind = BOOKS_JOB, .token = "", .n = 2};
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 2);
    assert_string_equal(got.unit[0].id, id[4]);
    char token[64];
    (void)snprintf(token, sizeof token, "%s", got.next);
    req.token = token;
    req.n = 3;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 3);
    assert_string_equal(got.unit[2].id, id[0]);
    assert_string_equal(got.next, "");
    req = (struct books_list){
        .tenant = "list", .kind = BOOKS_JOB, .token = "", .n = 2, .states = 1u << BOOKS_ENDED};
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_string_equal(got.unit[0].id, id[1]);
    req.kind = BOOKS_SANDBOX;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 0);
    wait_answer(books_live(books, "list", "", 3, on_units, NULL, NULL));
    assert_int_equal(got.n, 3);
    assert_string_equal(got.spec, "the spec");
    (void)snprintf(token, sizeof token, "%s", got.next);
    wait_answer(books_live(books, "list", token, 3, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    wait_answer(books_get(books, "acme", id[0], 0, on_units, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND); /* another tenant's */
}

static void test_cancel_marks_a_queued_job_so_that_it_is_not_reserved(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("cancel", 10, 0, 100);
    admit("cancel", id);
    wait_answer(books_cancel(books, "cancel", id, on_units, NULL, NULL));
    assert_int_equal(got.unit[0].state, BOOKS_QUEUED);
    assert_true(got.unit[0].cancel);
    cl_id_new("lease", lease);
    reserve("cancel", id, lease, 1000);
    assert_int_equal(got.err.code, CL_E_CANCELLED);
}

static void test_keys_live_in_their_tenant_and_go_with_it(void **state)
{
    (void)state;
    put_tenant("keys", 10, 0, 100);
    struct books_key key = {.id = "0123456789abcdef",
                            .tenant = "keys",
                            .subject = "ann",
                            .note = "laptop",
                            .mac = {1, 2, 0, 4},
                            .scopes = 5,
                            .expires_ms = 77};
    wait_answer(books_key_put(books, &key, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    wait_answer(books_key_put(books, &key, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    key.scopes = 6;
    wait_answer(books_key_put(books, &key, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_EXISTS);
    const char *ids[] = {"0123456789abcdef", "ffffffffffffffff"};
    wait_answer(books_key_touch(books, ids, 2, on_done, NULL, NULL));
    wait_answer(books_key_get(books, ids[0], on_keys, NULL, NULL));
    assert_string_equal(got.key.note, "laptop");
    assert_int_equal(got.key.scopes, 5);
    assert_int_equal(got.key.mac[3], 4);
    assert_true(got.key.created_ms > 0 && got.key.last_used_ms > 0 && !got.key.revoked);
    wait_answer(books_key_revoke(books, "acme", ids[0], on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_key_revoke(books, NULL, ids[0], on_done, NULL, NULL));
    wait_answer(books_key_list(books, "keys", "", 10, on_keys, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_true(got.key.revoked);
    wait_answer(books_tenant_get(books, "keys", on_tenants, NULL, NULL));
    assert_string_equal(got.blob, "blob");
    assert_int_equal(got.tenant.limits.queue_max, 100);
    wait_answer(books_tenant_delete(books, "keys", on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    wait_answer(books_key_get(books, ids[0], on_keys, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_tenant_list(books, "", 1000, on_tenants, NULL, NULL));
    assert_true(got.n >= 5);
    wait_answer(books_tenant_delete(books, "cancel", on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_STATE);
}

static void test_workers_tokens_and_audit_heads_are_kept(void **state)
{
    (void)state;
    char hash[65];
    uint8_t raw[32] = {9};
    cl_hex(raw, sizeof raw, hash);
    wait_answer(books_worker_put(books, "wrk_1", NULL, 0, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_worker_put(books, "wrk_1", "caps", 4, on_done, NULL, NULL));
    wait_answer(books_worker_put(books, "wrk_1", NULL, 0, on_done, NULL, NULL));
    wait_answer(books_worker_list(books, "", 10, on_workers, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_string_equal(got.blob, "caps");
    assert_true(got.worker.now_ms - got.worker.seen_ms < 10000);
    wait_answer(books_worker_delete(books, "wrk_1", on_done, NULL, NULL));
    wait_answer(books_worker_get(books, "wrk_1", on_workers, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_enroll_put(books, hash, "for w2", 6, 60000, on_done, NULL, NULL));
    wait_answer(books_enroll_take(books, hash, "claim-a", on_blob, NULL, NULL));
    assert_string_equal(got.blob, "for w2");
    wait_answer(books_enroll_take(books, hash, "claim-a", on_blob, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    wait_answer(books_enroll_take(books, hash, "claim-b", on_blob, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_UNAUTH);
    struct books_head head = {.host = "h1", .seq = 9};
    memcpy(head.hash, hash, sizeof hash);
    wait_answer(books_audit_head_set(books, &head, on_done, NULL, NULL));
    head.seq = 3;
    wait_answer(books_audit_head_set(books, &head, on_done, NULL, NULL));
    wait_answer(books_audit_head_get(books, "h1", on_head, NULL, NULL));
    assert_int_equal(got.head.seq, 9);
    assert_string_equal(got.head.hash, hash);
}

static void test_bad_arguments_are_refused_before_they_are_sent(void **state)
{
    (void)state;
    struct cl_err err = {0};
    assert_int_equal(books_get(books, "Bad Name", "job_x", 0, on_units, NULL, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(books_get(books, "acme", "job_x", 0, on_units, NULL, &err), -1);
    assert_string_equal(err.subject, "id");
    assert_int_equal(books_worker_put(books, "a b", "", 0, on_done, NULL, &err), -1);
    assert_int_equal(books_open_calls(books), 0);
}

static void test_an_outage_delays_calls_that_may_wait_and_refuses_the_others(void **state)
{
    (void)state;
    char id[CL_ID_MAX];
    put_tenant("outage", 10, 0, 100);
    admit("outage", id);
    server_kill(&server);
    int before = got.calls;
    for (int i = 0; i < 50 && books_is_ready(books); i++)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    struct cl_err err = {0};
    struct books_admit req = {
        .tenant = "outage", .id = id, .kind = BOOKS_JOB, .spec = "s", .spec_n = 1};
    assert_int_equal(books_admit(books, &req, on_admit, NULL, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    assert_int_equal(books_end_unleased(books, "outage", id, &ended, on_verdict, NULL, &err), 0);
    for (int i = 0; i < 30; i++)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(got.calls, before);
    server_run(&server);
    uint64_t end = cl_now_ns() + 15 * CL_NS_PER_S;
    while (got.calls == before && cl_now_ns() < end)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
}

static enum rdb_state seen;
static char seen_why[CL_ERR_TEXT];
static void on_state(enum rdb_state s, const struct cl_err *why, void *arg)
{
    (void)arg;
    seen = s;
    if (why)
        (void)snprintf(seen_why, sizeof seen_why, "%s", why->text);
}

static void test_a_server_weaker_than_configured_is_refused_with_the_setting(void **state)
{
    (void)state;
    struct server weak;
    assert_true(server_start(&weak, "everysec"));
    struct books *b;
    struct books_conf conf = {
        .target = weak.target, .durability = RDB_DUR_ALWAYS, .on_state = on_state};
    assert_int_equal(books_new(loop, &conf, &b, NULL), 0);
    for (int i = 0; i < 300 && seen != RDB_REFUSED; i++)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(seen, RDB_REFUSED);
    assert_non_null(strstr(seen_why, "appendfsync is 'everysec', want 'always'"));
    books_free(b);
    cl_loop_turn(loop, 0);
    server_stop(&weak);
}

static int set_up(void **state)
{
    (void)state;
    struct books_conf conf = {.durability = RDB_DUR_ALWAYS, .on_state = on_state};
    if (!server_start(&server, "always"))
        exit(77);
    conf.target = server.target;
    CL_ASSERT(cl_loop_new(&loop, NULL) == 0);
    CL_ASSERT(books_new(loop, &conf, &books, NULL) == 0);
    for (int i = 0; i < 500 && !books_is_ready(books); i++)
        cl_loop_turn(loop, 20 * CL_NS_PER_MS);
    if (!books_is_ready(books))
        print_error("the books are not ready: %s\n", seen_why);
    return books_is_ready(books) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    books_free(books);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_goes_from_admission_to_its_terminal_record),
        cmocka_unit_test(test_an_idempotency_key_replays_or_refuses_another_body),
        cmocka_unit_test(test_rate_queue_and_quota_refuse_with_their_own_codes),
        cmocka_unit_test(test_admission_reserves_at_once_when_it_may_and_nobody_waits),
        cmocka_unit_test(test_an_expired_lease_is_reported_until_someone_decides),
        cmocka_unit_test(test_a_paused_unit_holds_disk_and_neither_vcpu_nor_memory_nor_a_sandbox),
        cmocka_unit_test(test_a_paused_unit_is_renewed_listed_cancelled_and_ended_as_any),
        cmocka_unit_test(test_pause_and_resume_are_refused_by_quota_state_and_fence),
        cmocka_unit_test(test_pause_and_resume_take_back_what_expired),
        cmocka_unit_test(test_what_a_lost_unit_is_charged_has_no_time_of_rest),
        cmocka_unit_test(test_lists_are_paged_newest_first_and_filtered),
        cmocka_unit_test(test_cancel_marks_a_queued_job_so_that_it_is_not_reserved),
        cmocka_unit_test(test_keys_live_in_their_tenant_and_go_with_it),
        cmocka_unit_test(test_workers_tokens_and_audit_heads_are_kept),
        cmocka_unit_test(test_bad_arguments_are_refused_before_they_are_sent),
        cmocka_unit_test(test_an_outage_delays_calls_that_may_wait_and_refuses_the_others),
        cmocka_unit_test(test_a_server_weaker_than_configured_is_refused_with_the_setting),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
