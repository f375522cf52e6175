/* tests/integration/redis/test_move.c - the lease of a paused unit goes to another worker, against
 * a real Redis. */
#include "tests/integration/redis/calls.h"

/* A paused unit on wrk_1, and the hold that it has once it was moved to wrk_2. */
struct moving {
    char id[CL_ID_MAX], lease[CL_ID_MAX], lease2[CL_ID_MAX];
    struct books_hold from, to;
};

static void rest_for(struct moving *m, const char *tenant, uint64_t ttl_ms, uint64_t kept_ms)
{
    start(tenant, m->id, m->lease, ttl_ms);
    cl_id_new("lease", m->lease2);
    m->from = hold(tenant, m->id, m->lease);
    m->to = (struct books_hold){tenant, m->id, m->lease2, m->from.fence + 1};
    pause_kept(&m->from, kept_ms);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
}

static void move_to(const struct books_hold *h, const char *lease, const char *worker)
{
    struct books_move to = {lease, worker};
    wait_answer(books_move(books, h, &to, on_verdict, NULL, NULL));
}

static void expect_move(const struct moving *m, enum books_verdict want)
{
    move_to(&m->from, m->lease2, "wrk_2");
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.verdict, want);
}

static void expect_move_refused(const struct moving *m, enum cl_code want)
{
    move_to(&m->from, m->lease2, "wrk_2");
    assert_int_equal(got.err.code, want);
}

static void expect_at(const struct books_hold *h, enum books_state state, const char *worker)
{
    assert_int_equal(state_of(h->tenant, h->id), state);
    assert_string_equal(got.unit[0].lease, h->lease);
    assert_string_equal(got.unit[0].worker, worker);
    assert_int_equal(got.unit[0].fence, h->fence);
    assert_int_equal(got.unit[0].attempt, 1);
}

static bool renewed(const struct books_hold *h)
{
    struct books_pair pair = {h->tenant, h->lease, h->fence};
    wait_answer(books_renew(books, &pair, 1, 30000, on_renew, NULL, NULL));
    return got.held[0];
}

/* None of what its old worker may say is taken. */
static void expect_stale(const struct books_hold *h)
{
    assert_false(renewed(h));
    wait_answer(books_started(books, h, &how, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
    pause_kept(h, 60000);
    assert_int_equal(got.verdict, BOOKS_STALE);
    resume_for(h, true, 30000);
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_requeue(books, h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_finish(books, h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
}

static void test_a_moved_unit_is_held_by_its_new_lease_alone(void **state)
{
    (void)state;
    struct moving m;
    put_tenant("move", 10, 0, 100);
    rest_for(&m, "move", 30000, 600000);
    uint64_t kept = expiry_of("move", m.id);
    expect_move(&m, BOOKS_ACCEPTED);
    expect_at(&m.to, BOOKS_PAUSED, "wrk_2");
    assert_int_equal(got.unit[0].expires_ms, kept);
    expect_held("move", rests);
    assert_int_equal(got.usage.leases, 1);
    check_books_close("move");
    expect_stale(&m.from);
    assert_true(renewed(&m.to));
    expect_at(&m.to, BOOKS_PAUSED, "wrk_2");
    assert_int_equal(got.unit[0].expires_ms, kept);
    resume_for(&m.to, false, 30000);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    expect_held("move", runs);
    expect_stale(&m.from);
    pause_kept(&m.to, 60000);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    expect_held("move", rests);
    check_books_close("move");
    wait_answer(books_finish(books, &m.to, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_finish(books, &m.to, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    expect_stale(&m.from);
    expect_held("move", nothing);
    check_books_close("move");
}

static void test_a_move_that_is_said_again_is_known_also_when_it_runs_there(void **state)
{
    (void)state;
    struct moving m;
    put_tenant("move2", 10, 0, 100);
    rest_for(&m, "move2", 30000, 60000);
    expect_move(&m, BOOKS_ACCEPTED);
    expect_move(&m, BOOKS_ALREADY);
    resume_for(&m.to, false, 30000);
    uint64_t leased = expiry_of("move2", m.id);
    expect_move(&m, BOOKS_ALREADY);
    expect_at(&m.to, BOOKS_RUNNING, "wrk_2");
    assert_int_equal(got.unit[0].expires_ms, leased);
    expect_held("move2", runs);
    move_to(&m.from, m.lease2, "wrk_3"); /* not what was said before */
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_finish(books, &m.to, &ended, on_verdict, NULL, NULL));
    expect_move(&m, BOOKS_STALE);
    check_books_close("move2");
}

static void test_only_a_paused_unit_that_is_to_go_on_is_moved(void **state)
{
    (void)state;
    struct moving m;
    put_tenant("move3", 10, 0, 100);
    admit("move3", m.id);
    cl_id_new("lease", m.lease);
    cl_id_new("lease", m.lease2);
    m.from = (struct books_hold){"move3", m.id, m.lease, 0};
    expect_move(&m, BOOKS_STALE); /* it waits */
    reserve("move3", m.id, m.lease, 30000);
    m.from = hold("move3", m.id, m.lease);
    expect_move_refused(&m, CL_E_STATE);
    wait_answer(books_started(books, &m.from, &how, on_verdict, NULL, NULL));
    expect_move_refused(&m, CL_E_STATE);
    pause_kept(&m.from, 0);
    resume_for(&m.from, false, 30000);
    expect_move_refused(&m, CL_E_STATE);
    pause_kept(&m.from, 0);
    wait_answer(books_cancel(books, "move3", m.id, on_units, NULL, NULL));
    expect_move_refused(&m, CL_E_STATE);
    expect_at(&m.from, BOOKS_PAUSED, "wrk_1");
    expect_held("move3", rests);
    assert_true(renewed(&m.from));
    wait_answer(books_requeue(books, &m.from, NULL, on_verdict, NULL, NULL));
    expect_move(&m, BOOKS_STALE);
    check_books_close("move3");
}

static void test_a_move_is_refused_by_lease_fence_unit_and_tenant(void **state)
{
    (void)state;
    struct moving m, other, wrong;
    put_tenant("move4", 10, 0, 100);
    rest_for(&m, "move4", 30000, 60000);
    rest_for(&other, "move4", 30000, 60000);
    wrong = m;
    wrong.from.fence++;
    expect_move(&wrong, BOOKS_STALE);
    wrong = m;
    wrong.from.lease = m.lease2;
    expect_move(&wrong, BOOKS_STALE);
    wrong = m;
    wrong.from.id = other.id;
    expect_move(&wrong, BOOKS_STALE);
    cl_id_new("job", wrong.id);
    wrong.from.id = wrong.id;
    expect_move_refused(&wrong, CL_E_NOTFOUND);
    wrong = m;
    wrong.from.tenant = "nobody";
    expect_move_refused(&wrong, CL_E_NOTFOUND);
    move_to(&m.from, other.lease, "wrk_2");
    assert_int_equal(got.err.code, CL_E_INVALID);
    move_to(&m.from, m.lease, "wrk_2");
    assert_int_equal(got.err.code, CL_E_INVALID);
    expect_at(&m.from, BOOKS_PAUSED, "wrk_1");
    expect_at(&other.from, BOOKS_PAUSED, "wrk_1");
    assert_true(renewed(&m.from) && renewed(&other.from));
    check_books_close("move4");
    struct cl_err err = {0};
    struct books_move bad = {"no-lease", "wrk_2"};
    assert_int_equal(books_move(books, &m.from, &bad, on_verdict, NULL, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
}

static void
test_a_lease_that_has_expired_is_not_moved_and_a_moved_one_is_reaped_as_any(void **state)
{
    (void)state;
    enum { TTL_MS = 1500 };
    struct moving late, m;
    put_tenant("move5", 10, 0, 100);
    rest_for(&late, "move5", TTL_MS, 0);
    rest_for(&m, "move5", TTL_MS, 0);
    expect_move(&m, BOOKS_ACCEPTED);
    (void)usleep((TTL_MS + 100) * 1000);
    expect_move(&late, BOOKS_STALE); /* reaped or not */
    expect_move(&m, BOOKS_STALE);
    expect_reaped("move5", 2);
    expect_move(&late, BOOKS_STALE);
    expect_move(&m, BOOKS_STALE);
    expect_at(&m.to, BOOKS_PAUSED, "wrk_2");
    assert_true(got.unit[0].reaped);
    expect_held("move5", nothing);
    expect_stale(&m.from);
    assert_false(renewed(&m.to));
    check_books_close("move5");
    wait_answer(books_requeue(books, &m.to, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    char lease[CL_ID_MAX];
    cl_id_new("lease", lease);
    reserve("move5", m.id, lease, 30000);
    assert_true(got.reserved.fence > m.to.fence);
    assert_int_equal(got.reserved.attempt, 2);
    expect_move(&m, BOOKS_STALE);
    check_books_close("move5");
}

static void test_a_unit_moves_on_and_back(void **state)
{
    (void)state;
    struct moving m;
    put_tenant("move6", 1, 0, 100);
    rest_for(&m, "move6", 30000, 600000);
    uint64_t kept = expiry_of("move6", m.id);
    struct moving first = m;
    first.from.lease = first.lease; /* m's changes */
    for (int i = 0; i < 4; i++) {
        const char *worker = i % 2 == 0 ? "wrk_2" : "wrk_1";
        move_to(&m.from, m.lease2, worker);
        assert_int_equal(got.verdict, BOOKS_ACCEPTED);
        expect_at(&m.to, BOOKS_PAUSED, worker);
        assert_int_equal(got.unit[0].expires_ms, kept);
        expect_held("move6", rests);
        check_books_close("move6");
        memcpy(m.lease, m.lease2, sizeof m.lease);
        cl_id_new("lease", m.lease2);
        m.from.fence++;
        m.to.fence++;
    }
    expect_move(&first, BOOKS_STALE);
    resume_for(&m.from, false, 30000);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_finish(books, &m.from, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    start("move6", id, lease, 30000); /* the only sandbox is free again */
    assert_true(got.reserved.fence > m.from.fence);
    check_books_close("move6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_moved_unit_is_held_by_its_new_lease_alone),
        cmocka_unit_test(test_a_move_that_is_said_again_is_known_also_when_it_runs_there),
        cmocka_unit_test(test_only_a_paused_unit_that_is_to_go_on_is_moved),
        cmocka_unit_test(test_a_move_is_refused_by_lease_fence_unit_and_tenant),
        cmocka_unit_test(
            test_a_lease_that_has_expired_is_not_moved_and_a_moved_one_is_reaped_as_any),
        cmocka_unit_test(test_a_unit_moves_on_and_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
