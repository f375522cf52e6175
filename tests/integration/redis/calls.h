/* tests/integration/redis/calls.h - the books and a Redis of the test's own; each call waits for
 * its answer, which is in `got` then.
 *
 * Owns:    the server, the loop and the books, from set_up() to tear_down().
 * Thread:  the test's.
 */
#ifndef CL_TEST_REDIS_CALLS_H
#define CL_TEST_REDIS_CALLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/id.h"
#include "redis/books_recover.h"
#include "redis/books_registry.h"
#include "tests/integration/redis/server.h"

static struct server server;
static struct cl_loop *loop;
static struct books *books;
static const struct books_start how = {"how", 3};

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
    char spec[64], start[64], terminal[64], next[64];
    struct books_usage usage;
    struct books_drift drift;
    struct books_tenant tenant;
    struct books_key key;
    struct books_worker worker;
    struct books_head head;
    uint8_t held[8];
    char blob[64];
} got;

static inline void note(const struct cl_err *err)
{
    got.calls++;
    got.err = err ? *err : (struct cl_err){0};
}

static inline void wait_answer(int rc)
{
    assert_int_equal(rc, 0);
    int before = got.calls;
    uint64_t end = cl_now_ns() + 20 * CL_NS_PER_S;
    while (got.calls == before && cl_now_ns() < end)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(got.calls, before + 1);
}

static inline void on_done(const struct cl_err *err, void *arg)
{
    (void)arg;
    note(err);
}
static inline void on_put(bool created, const struct cl_err *err, void *arg)
{
    (void)arg;
    got.created = created;
    note(err);
}
static inline void on_admit(const struct books_admitted *res, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (res)
        got.admitted = *res;
    note(err);
}
static inline void on_reserve(const struct books_reserved *res, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (res)
        got.reserved = *res;
    note(err);
}
static inline void on_verdict(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    (void)arg;
    got.verdict = verdict;
    note(err);
}
static inline void on_units(const struct books_unit *rows, size_t n, const char *next,
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
    if (n > 0 && rows[0].start)
        (void)snprintf(got.start, sizeof got.start, "%.*s", (int)rows[0].start_n,
                       (const char *)rows[0].start);
    if (n > 0 && rows[0].terminal)
        (void)snprintf(got.terminal, sizeof got.terminal, "%.*s", (int)rows[0].terminal_n,
                       (const char *)rows[0].terminal);
    note(err);
}
static inline void on_usage(const struct books_usage *usage, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (usage)
        got.usage = *usage;
    note(err);
}
static inline void on_drift(const struct books_drift *drift, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (drift)
        got.drift = *drift;
    note(err);
}
static inline void on_renew(const uint8_t *held, size_t n, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (held)
        memcpy(got.held, held, CL_MIN(n, sizeof got.held));
    note(err);
}
/* --- helpers -------------------------------------------------------------------------------- */

static inline void put_tenant(const char *name, uint64_t sandboxes, uint64_t rate_us,
                              uint64_t queue)
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

static inline void admit_keyed(const char *tenant, const char *id, const char *key, uint8_t body)
{
    uint8_t hash[32] = {body};
    struct books_admit req = {.tenant = tenant,
                              .id = id,
                              .kind = cl_id_is(id, "sbx") ? BOOKS_SANDBOX : BOOKS_JOB,
                              .need = {1000, 256, 1, 5000, 100, 512},
                              .spec = "the spec",
                              .spec_n = 8,
                              .idem_key = key,
                              .idem_hash = key ? hash : NULL};
    wait_answer(books_admit(books, &req, on_admit, NULL, NULL));
}

static inline void admit(const char *tenant, char id[static CL_ID_MAX])
{
    cl_id_new("job", id);
    admit_keyed(tenant, id, NULL, 0);
    assert_int_equal(got.err.code, CL_OK);
}

static inline void reserve(const char *tenant, const char *id, const char *lease, uint64_t ttl_ms)
{
    struct books_reserve req = {
        .tenant = tenant, .id = id, .lease = lease, .worker = "wrk_1", .ttl_ms = ttl_ms};
    wait_answer(books_reserve(books, &req, on_reserve, NULL, NULL));
}

static inline struct books_hold hold(const char *tenant, const char *id, const char *lease)
{
    return (struct books_hold){
        .tenant = tenant, .id = id, .lease = lease, .fence = got.reserved.fence};
}

static const struct books_end ended = {
    .cpu_ms = 7, .egress_bytes = 3, .outcome = 1, .terminal = "gone", .terminal_n = 4};

static inline void check_books_close(const char *tenant)
{
    static const struct books_drift none;
    wait_answer(books_check(books, tenant, on_drift, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    assert_memory_equal(&got.drift, &none, sizeof none);
}

/* --- units that rest -------------------------------------------------------------------------- */

static inline void start(const char *tenant, char id[static CL_ID_MAX],
                         char lease[static CL_ID_MAX], uint64_t ttl_ms)
{
    admit(tenant, id);
    cl_id_new("lease", lease);
    reserve(tenant, id, lease, ttl_ms);
    assert_int_equal(got.err.code, CL_OK);
    struct books_hold h = hold(tenant, id, lease);
    wait_answer(books_started(books, &h, &how, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
}

static inline void pause_kept(const struct books_hold *h, uint64_t lease_ms)
{
    struct books_rest rest = {.disk_mib = 300, .force = true, .lease_ms = lease_ms};
    wait_answer(books_pause(books, h, &rest, on_verdict, NULL, NULL));
}

static inline void resume_for(const struct books_hold *h, bool force, uint64_t ttl_ms)
{
    struct books_rest rest = {.force = force, .lease_ms = ttl_ms};
    wait_answer(books_resume(books, h, &rest, on_verdict, NULL, NULL));
}

static inline void expect_held(const char *tenant, const uint64_t want[static BOOKS_DIM_NR])
{
    wait_answer(books_usage(books, tenant, on_usage, NULL, NULL));
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        assert_int_equal(got.usage.held[i], want[i]);
}

static inline enum books_state state_of(const char *tenant, const char *id)
{
    wait_answer(books_get(books, tenant, id, 0, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    return got.unit[0].state;
}

static inline uint64_t expiry_of(const char *tenant, const char *id)
{
    (void)state_of(tenant, id);
    return got.unit[0].expires_ms;
}

static inline void expect_reaped(const char *tenant, size_t n)
{
    wait_answer(books_reap(books, tenant, 10, on_units, NULL, NULL));
    assert_int_equal(got.n, n);
}

/* What the unit of start() holds; rests: with the image of pause_kept(). */
static const uint64_t runs[BOOKS_DIM_NR] = {1000, 256, 1, 5000, 100, 512},
                      rests[BOOKS_DIM_NR] = {0, 0, 0, 5000, 100, 812}, nothing[BOOKS_DIM_NR] = {0};

/* --- the server ------------------------------------------------------------------------------- */

static enum rdb_state seen;
static char seen_why[CL_ERR_TEXT];
static inline void on_state(enum rdb_state s, const struct cl_err *why, void *arg)
{
    (void)arg;
    seen = s;
    if (why)
        (void)snprintf(seen_why, sizeof seen_why, "%s", why->text);
}

static inline int set_up(void **state)
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

static inline int tear_down(void **state)
{
    (void)state;
    books_free(books);
    cl_loop_turn(loop, 0);
    cl_loop_free(loop);
    server_stop(&server);
    return 0;
}

#endif
