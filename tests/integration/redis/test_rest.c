/* tests/integration/redis/test_rest.c - pause and resume in the books, against a real Redis. */
#include "tests/integration/redis/calls.h"

static void pause_unit(const struct books_hold *h, uint64_t disk_mib, bool force)
{
    struct books_rest rest = {.disk_mib = disk_mib, .force = force};
    wait_answer(books_pause(books, h, &rest, on_verdict, NULL, NULL));
}

static void resume_unit(const struct books_hold *h, bool force)
{
    resume_for(h, force, 30000);
}

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
    wait_answer(
        books_started(books, &h, &how, on_verdict, NULL, NULL)); /* said again after a Hello */
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    assert_int_equal(state_of("rest2", id), BOOKS_PAUSED);
    struct books_list req = {.tenant = "rest2", .kind = BOOKS_JOB, .token = "", .n = 5};
    req.states = 1u << BOOKS_RUNNING;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 0);
    req.states = 1u << BOOKS_PAUSED;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    wait_answer(books_live(books, &(struct books_list){.tenant = "rest2", .token = "", .n = 5},
                           on_units, NULL, NULL));
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
    wait_answer(books_started(books, &ha, &how, on_verdict, NULL, NULL));
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
    uint64_t from = cl_now_ns(), ran = 0, leased = 0;
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
        resume_for(&h, false, TTL_MS);
        assert_int_equal(got.verdict, BOOKS_ACCEPTED);
        leased = cl_now_ns();
    }
    while (cl_now_ns() - leased < (TTL_MS + 100) * CL_NS_PER_MS)
        (void)usleep(10000);
    pause_kept(&h, 60000); /* too late, reaped or not */
    assert_int_equal(got.verdict, BOOKS_STALE);
    resume_unit(&h, true);
    assert_int_equal(got.verdict, BOOKS_STALE);
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

/* Its lease ends so long after the unit's newest change. */
static void expect_lease(const char *tenant, const char *id, uint64_t ms)
{
    uint64_t expires_ms = expiry_of(tenant, id);
    assert_int_equal(expires_ms, got.unit[0].changed_us / 1000 + ms);
}

static void test_the_lease_of_one_that_is_kept_needs_no_renewals_until_it_runs(void **state)
{
    (void)state;
    enum { TTL_MS = 1500, KEPT_MS = 600000 };
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("kept", 10, 0, 100);
    start("kept", id, lease, TTL_MS);
    struct books_hold h = hold("kept", id, lease);
    pause_kept(&h, KEPT_MS);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    expect_lease("kept", id, KEPT_MS);
    (void)usleep(2 * TTL_MS * 1000);
    expect_reaped("kept", 0);
    struct books_pair pair = {"kept", lease, h.fence};
    wait_answer(books_renew(books, &pair, 1, TTL_MS, on_renew, NULL, NULL));
    assert_int_equal(got.held[0], 1);
    expect_lease("kept", id, KEPT_MS);
    expect_held("kept", rests);
    resume_for(&h, false, TTL_MS);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    expect_lease("kept", id, TTL_MS);
    check_books_close("kept");
    (void)usleep((TTL_MS + 100) * 1000);
    expect_reaped("kept", 1);
    assert_int_equal(got.unit[0].state, BOOKS_RUNNING);
    expect_held("kept", nothing);
    pause_kept(&h, KEPT_MS);
    assert_int_equal(got.verdict, BOOKS_STALE);
    check_books_close("kept");
}

static void test_what_pauses_or_resumes_again_moves_the_end_of_the_lease(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("kept2", 10, 0, 100);
    start("kept2", id, lease, 30000);
    struct books_hold h = hold("kept2", id, lease);
    uint64_t leased = expiry_of("kept2", id);
    pause_unit(&h, 300, false);
    assert_int_equal(expiry_of("kept2", id), leased); /* it is not kept */
    pause_kept(&h, 60000);
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    uint64_t kept = expiry_of("kept2", id);
    assert_true(kept > leased + 20000);
    pause_kept(&h, 1000); /* never sooner */
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    pause_unit(&h, 300, false);
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    assert_int_equal(expiry_of("kept2", id), kept);
    pause_kept(&h, 120000);
    assert_true(expiry_of("kept2", id) > kept);
    expect_held("kept2", rests);
    struct books_hold wrong = h;
    wrong.fence++;
    resume_for(&wrong, true, 1);
    assert_int_equal(got.verdict, BOOKS_STALE);
    assert_true(expiry_of("kept2", id) > kept);
    resume_for(&h, false, 90000);
    expect_lease("kept2", id, 90000);
    resume_for(&h, false, 1); /* never longer than the newest says */
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    (void)usleep(5000);
    pause_kept(&h, 60000); /* it has ended, if nobody has reaped it */
    assert_int_equal(got.verdict, BOOKS_STALE);
    resume_for(&h, true, 60000);
    assert_int_equal(got.verdict, BOOKS_STALE);
    expect_reaped("kept2", 1);
    check_books_close("kept2");
}

static void test_a_refused_resume_leaves_the_lease_as_it_is(void **state)
{
    (void)state;
    char a[CL_ID_MAX], la[CL_ID_MAX], b[CL_ID_MAX], lb[CL_ID_MAX];
    put_tenant("kept3", 1, 0, 100);
    start("kept3", a, la, 30000);
    struct books_hold h = hold("kept3", a, la);
    pause_kept(&h, 600000);
    uint64_t kept = expiry_of("kept3", a);
    start("kept3", b, lb, 30000);
    resume_for(&h, false, 30000);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_int_equal(expiry_of("kept3", a), kept);
    struct books_hold other = hold("kept3", b, lb);
    struct books_rest rest = {.disk_mib = 99999, .lease_ms = 600000};
    uint64_t leased = expiry_of("kept3", b);
    wait_answer(books_pause(books, &other, &rest, on_verdict, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_int_equal(expiry_of("kept3", b), leased);
    check_books_close("kept3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_paused_unit_holds_disk_and_neither_vcpu_nor_memory_nor_a_sandbox),
        cmocka_unit_test(test_a_paused_unit_is_renewed_listed_cancelled_and_ended_as_any),
        cmocka_unit_test(test_pause_and_resume_are_refused_by_quota_state_and_fence),
        cmocka_unit_test(test_pause_and_resume_take_back_what_expired),
        cmocka_unit_test(test_what_a_lost_unit_is_charged_has_no_time_of_rest),
        cmocka_unit_test(test_the_lease_of_one_that_is_kept_needs_no_renewals_until_it_runs),
        cmocka_unit_test(test_what_pauses_or_resumes_again_moves_the_end_of_the_lease),
        cmocka_unit_test(test_a_refused_resume_leaves_the_lease_as_it_is),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
