/* tests/unit/cli/test_drain.c - which worker is drained, what is said of it, and when it is over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/drain.h"

static Cloche__V1__Worker worker(const char *id, const char *host)
{
    Cloche__V1__Worker w = CLOCHE__V1__WORKER__INIT;
    w.id = (char *)(uintptr_t)id;
    w.hostname = (char *)(uintptr_t)host;
    return w;
}

static void test_a_worker_is_named_by_its_id_or_by_a_host_that_has_one(void **state)
{
    (void)state;
    /* One names its host like another's id: the id counts. */
    Cloche__V1__Worker w[] = {worker("wrk_1", "a"), worker("wrk_2", "b"), worker("wrk_3", "b"),
                              worker("wrk_4", "wrk_1")};
    Cloche__V1__Worker *list[] = {&w[0], &w[1], &w[2], &w[3]};
    Cloche__V1__ListWorkersResponse m = CLOCHE__V1__LIST_WORKERS_RESPONSE__INIT;
    const Cloche__V1__Worker *found = NULL;
    struct cl_err err = {0};
    m.workers = list;
    m.n_workers = CL_COUNT(list);
    assert_int_equal(drain_find(&m, "wrk_3", &found, &err), 0);
    assert_ptr_equal(found, &w[2]);
    assert_int_equal(drain_find(&m, "wrk_1", &found, &err), 0);
    assert_ptr_equal(found, &w[0]);
    assert_int_equal(drain_find(&m, "a", &found, &err), 0);
    assert_ptr_equal(found, &w[0]);
    assert_int_equal(drain_find(&m, "b", &found, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_string_equal(err.text, "2 workers are on host 'b'\nname one of: wrk_2 wrk_3");
    assert_int_equal(drain_find(&m, "c", &found, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    assert_ptr_equal(found, &w[0]);
    assert_ptr_equal(drain_by_id(&m, "wrk_2"), &w[1]);
    assert_null(drain_by_id(&m, "a"));
}

/* However many there are, the text has an end. */
static void test_candidates_are_cut_where_the_text_ends(void **state)
{
    (void)state;
    Cloche__V1__Worker w = worker("wrk_01arz3ndektsv4rrffq69g5fav", "b");
    Cloche__V1__Worker *list[50];
    Cloche__V1__ListWorkersResponse m = CLOCHE__V1__LIST_WORKERS_RESPONSE__INIT;
    const Cloche__V1__Worker *found = NULL;
    struct cl_err err = {0};
    for (size_t i = 0; i < CL_COUNT(list); i++)
        list[i] = &w;
    m.workers = list;
    m.n_workers = CL_COUNT(list);
    assert_int_equal(drain_find(&m, "b", &found, &err), -1);
    assert_non_null(strstr(err.text, "50 workers"));
    assert_true(strlen(err.text) < CL_ERR_TEXT - 1);
}

static void test_what_is_left_is_a_sentence(void **state)
{
    (void)state;
    static const struct {
        struct drain_counts n;
        const char *text;
    } rows[] = {
        {{0, 0, 0}, "nothing is left"},
        {{1, 0, 0}, "1 job is left"},
        {{2, 0, 0}, "2 jobs are left"},
        {{0, 1, 0}, "1 sandbox is left"},
        {{0, 5, 0}, "5 sandboxes are left"},
        {{0, 0, 1}, "1 snapshot is left"},
        {{1, 1, 0}, "1 job and 1 sandbox are left"},
        {{2, 5, 0}, "2 jobs and 5 sandboxes are left"},
        {{0, 1, 2}, "1 sandbox and 2 snapshots are left"},
        {{1, 2, 1}, "1 job, 2 sandboxes and 1 snapshot are left"},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX},
         "4294967295 jobs, 4294967295 sandboxes and 4294967295 snapshots are left"},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        char text[DRAIN_TEXT];
        drain_left(&rows[i].n, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void expect_state(const Cloche__V1__Worker *w, const char *want)
{
    char text[DRAIN_TEXT];
    drain_state(w, text);
    assert_string_equal(text, want);
}

static void test_a_worker_is_open_closed_draining_or_drained(void **state)
{
    (void)state;
    Cloche__V1__Worker w = worker("wrk_1", "a");
    char full[] = "disk full", why[] = "no room";
    w.sandboxes = 7;
    expect_state(&w, "open");
    w.closed = full;
    expect_state(&w, "disk full");
    w.draining = true;
    w.jobs = 1;
    w.sandboxes = 2;
    expect_state(&w, "draining, 3 left");
    w.drain_trouble = why;
    expect_state(&w, "draining, 3 left: no room");
    w.jobs = w.sandboxes = 0;
    expect_state(&w, "drained");
}

static void test_what_is_new_is_said_once(void **state)
{
    (void)state;
    struct drain d = {0};
    Cloche__V1__Worker w = worker("wrk_1", "a");
    char first[] = "no room", second[] = "no template", none[] = "", text[DRAIN_TEXT];
    w.sandboxes = 2;
    assert_true(drain_news(&d, &w, text));
    assert_string_equal(text, "2 sandboxes are left");
    assert_false(drain_news(&d, &w, text));
    w.drain_trouble = first;
    w.sandboxes = 1;
    assert_true(drain_news(&d, &w, text));
    assert_string_equal(text, "1 sandbox is left");
    assert_true(drain_news(&d, &w, text));
    assert_string_equal(text, "not all could be moved yet: no room");
    assert_false(drain_news(&d, &w, text));
    w.drain_trouble = second;
    assert_true(drain_news(&d, &w, text));
    assert_string_equal(text, "not all could be moved yet: no template");
    w.drain_trouble = none;
    assert_false(drain_news(&d, &w, text));
    w.drain_trouble = second; /* it is over, and has come again */
    assert_true(drain_news(&d, &w, text));
    assert_false(drain_news(&d, &w, text));
}

static void test_it_is_over_when_it_is_empty_undone_or_gone_for_long(void **state)
{
    (void)state;
    enum { LONG = DRAIN_PATIENCE_S };
    struct drain d = {.seen_ns = 0};
    Cloche__V1__Worker w = worker("wrk_1", "a");
    w.draining = true;
    w.jobs = 1;
    assert_int_equal(drain_look(&d, &w, 5 * CL_NS_PER_S), DRAIN_GOES_ON);
    assert_int_equal(drain_look(&d, NULL, (LONG + 4) * CL_NS_PER_S), DRAIN_GOES_ON);
    assert_int_equal(drain_look(&d, NULL, (LONG + 5) * CL_NS_PER_S), DRAIN_GONE);
    w.draining = false;
    w.jobs = 0; /* it has just come, and has not said that it drains: it is not empty */
    assert_int_equal(drain_look(&d, &w, (LONG + 4) * CL_NS_PER_S), DRAIN_GOES_ON);
    assert_int_equal(drain_look(&d, &w, (LONG + 5) * CL_NS_PER_S), DRAIN_UNDONE);
    w.draining = true;
    w.sandboxes = 1;
    assert_int_equal(drain_look(&d, &w, (LONG + 6) * CL_NS_PER_S), DRAIN_GOES_ON);
    assert_int_equal(drain_look(&d, NULL, (LONG + 7) * CL_NS_PER_S), DRAIN_GOES_ON);
    w.sandboxes = 0;
    assert_int_equal(drain_look(&d, &w, (LONG + 8) * CL_NS_PER_S), DRAIN_EMPTY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_is_named_by_its_id_or_by_a_host_that_has_one),
        cmocka_unit_test(test_candidates_are_cut_where_the_text_ends),
        cmocka_unit_test(test_what_is_left_is_a_sentence),
        cmocka_unit_test(test_a_worker_is_open_closed_draining_or_drained),
        cmocka_unit_test(test_what_is_new_is_said_once),
        cmocka_unit_test(test_it_is_over_when_it_is_empty_undone_or_gone_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
