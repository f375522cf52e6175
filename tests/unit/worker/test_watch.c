/* worker/watch.h: what of a guest's events is recorded, and that all others are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/watch.h"

enum {
    EXEC = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_EXEC,
    WRITE = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_WRITE,
    REMOVE = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_REMOVE,
    RENAME = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_RENAME,
    READ = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_READ,
    TRUNCATE = CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_TRUNCATE,
};

static const struct watch_limits limits = {.burst = 10, .interval_us = 1000};

/* n events of a kind in one batch; how many were admitted. */
static unsigned feed(struct watch *w, int kind, unsigned n, uint64_t now_us)
{
    Cloche__V1__GuestEvent event = CLOCHE__V1__GUEST_EVENT__INIT;
    Cloche__V1__GuestEvents batch = CLOCHE__V1__GUEST_EVENTS__INIT;
    unsigned admitted = 0;
    event.kind = (Cloche__V1__GuestEventKind)kind;
    batch.n_events = n;
    batch.seen = w->came + n;
    watch_note(w, &batch);
    for (unsigned i = 0; i < n; i++)
        admitted += watch_admits(w, &limits, watch_class_of(&event), now_us);
    return admitted;
}

static void test_a_burst_passes_and_then_the_rate(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    assert_int_equal(feed(&w, EXEC, 25, 1000000), 10);
    assert_int_equal(w.over, 15);
    assert_int_equal(feed(&w, EXEC, 25, 1003000), 3);
    assert_int_equal(w.over, 37);
    assert_int_equal(feed(&w, EXEC, 25, 9000000), 10);
    assert_int_equal(w.came, 75);
    assert_int_equal(watch_missing(&w), 0);
}

static void test_files_do_not_hide_programs(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    assert_int_equal(feed(&w, WRITE, 100000, 1000000), 10);
    assert_int_equal(feed(&w, REMOVE, 10, 1000000), 0); /* of the same kind */
    assert_int_equal(feed(&w, RENAME, 10, 1000000), 0);
    assert_int_equal(feed(&w, TRUNCATE, 10, 1000000), 0);
    assert_int_equal(feed(&w, EXEC, 10, 1000000), 10);
    assert_int_equal(w.over, 100020);
}

static void test_files_read_hide_none_that_are_written(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    assert_int_equal(feed(&w, READ, 100, 1000000), 10);
    assert_int_equal(feed(&w, WRITE, 10, 1000000), 10);
    assert_int_equal(feed(&w, EXEC, 10, 1000000), 10);
    assert_int_equal(w.over, 90);
}

static void test_no_burst_records_nothing_and_no_interval_all(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    struct watch_limits none = {.burst = 0, .interval_us = 1000}, all = {.burst = 1};
    assert_false(watch_admits(&w, &none, WATCH_FEW, 1));
    for (int i = 0; i < 100; i++)
        assert_true(watch_admits(&w, &all, WATCH_FEW, 1));
    assert_int_equal(w.over, 1);
}

static void test_each_loss_is_news_once(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    (void)feed(&w, EXEC, 5, 1000000);
    assert_false(watch_has_news(&w));
    (void)feed(&w, EXEC, 6, 1000000);
    assert_true(watch_has_news(&w));
    watch_tell(&w);
    assert_false(watch_has_news(&w));
    watch_unheard(&w, 1);
    assert_true(watch_has_news(&w));
    watch_tell(&w);
    Cloche__V1__GuestEvents batch = CLOCHE__V1__GUEST_EVENTS__INIT;
    batch.lost = 3;
    watch_note(&w, &batch);
    assert_true(watch_has_news(&w));
}

static void test_a_guest_that_lies_is_missing_what_it_claims(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    Cloche__V1__GuestEvents batch = CLOCHE__V1__GUEST_EVENTS__INIT;
    batch.seen = 100, batch.lost = 20;
    watch_note(&w, &batch);
    assert_int_equal(watch_missing(&w), 80);
    batch.seen = 10, batch.lost = 0; /* counts do not go back */
    watch_note(&w, &batch);
    assert_int_equal(w.seen, 100);
    assert_int_equal(w.lost, 20);
    batch.seen = UINT64_MAX, batch.lost = UINT64_MAX;
    watch_note(&w, &batch);
    assert_int_equal(watch_missing(&w), 0);
    (void)feed(&w, EXEC, 1, 1000000);
    assert_int_equal(watch_missing(&w), 0);
}

static void test_numbers_tell_what_is_missing(void **state)
{
    (void)state;
    struct watch w = {.came = 0};
    watch_note_number(&w, 1);
    watch_note_number(&w, 2);
    assert_int_equal(watch_missing(&w), 0);
    watch_note_number(&w, 5);
    assert_int_equal(w.seen, 5);
    assert_int_equal(watch_missing(&w), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_burst_passes_and_then_the_rate),
        cmocka_unit_test(test_files_do_not_hide_programs),
        cmocka_unit_test(test_files_read_hide_none_that_are_written),
        cmocka_unit_test(test_numbers_tell_what_is_missing),
        cmocka_unit_test(test_no_burst_records_nothing_and_no_interval_all),
        cmocka_unit_test(test_each_loss_is_news_once),
        cmocka_unit_test(test_a_guest_that_lies_is_missing_what_it_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
