/* tests/unit/agent/test_thrash.c - agent/thrash.h: what is standing still, and what is work. */
#include "agent/thrash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"

/* What goes on in a guest; a look comes every two seconds. */
struct life {
    uint64_t cache_bytes;
    uint64_t reread_pages, missed_pages, faults, user_ms; /* a second */
};

static const struct life standing = {.cache_bytes = CL_MIB,
                                     .reread_pages = 1000,
                                     .missed_pages = 1000,
                                     .faults = 250,
                                     .user_ms = 40};

/* Measured in 192 MiB: two hogs and a reader of a file that leave next to no cache; then one who
 * reads a file of 40 MiB in order, by read() and by mmap(), and here and there in one of 400. */
static const struct life bare[] = {
    {164 * CL_KIB, .reread_pages = 14140, .missed_pages = 0, .faults = 372, .user_ms = 15},
    {152 * CL_KIB, .reread_pages = 14070, .missed_pages = 0, .faults = 370, .user_ms = 16},
    {484 * CL_KIB, .reread_pages = 12250, .missed_pages = 1037, .faults = 345, .user_ms = 29},
};
static const struct life work[] = {
    {3040 * CL_KIB, .reread_pages = 171584, .missed_pages = 7, .faults = 3, .user_ms = 117},
    {3040 * CL_KIB, .reread_pages = 18405, .missed_pages = 9, .faults = 6, .user_ms = 127},
    {8588 * CL_KIB, .reread_pages = 20500, .missed_pages = 84, .faults = 644, .user_ms = 48},
};

static void live(struct thrash_look *look, const struct life *life, uint64_t ms)
{
    look->limit_bytes = 100 * CL_MIB;
    look->cache_bytes = life->cache_bytes;
    look->now_ns += ms * CL_NS_PER_MS;
    look->reread_pages += life->reread_pages * ms / 1000;
    look->missed_pages += life->missed_pages * ms / 1000;
    look->faults += life->faults * ms / 1000;
    look->user_ns += life->user_ms * ms / 1000 * CL_NS_PER_MS;
}

/* Seconds until something must end; 0 = nothing within two minutes. */
static unsigned time_of(struct thrash *t, struct thrash_look *look, const struct life *life)
{
    for (unsigned s = 0; s < 120; s += 2) {
        if (thrash_is_on(t, look))
            return s;
        live(look, life, 2000);
    }
    return 0;
}

static unsigned alone(const struct life *life)
{
    struct thrash t = {0};
    struct thrash_look look = {.now_ns = CL_NS_PER_S, .reread_pages = 5000};
    live(&look, life, 1);
    return time_of(&t, &look, life);
}

static void who_stands_still_ends(void **state)
{
    (void)state;
    struct life slow = standing, nothing = standing;
    assert_int_equal(alone(&standing), 10);
    slow.missed_pages = 100; /* 2560 pages are ten times a MiB */
    assert_int_equal(alone(&slow), 26);
    nothing.cache_bytes = 0;
    assert_int_equal(alone(&nothing), 10);
    for (size_t i = 0; i < CL_COUNT(bare); i++)
        assert_int_equal(alone(&bare[i]), 10);
}

static void who_gets_on_does_not(void **state)
{
    (void)state;
    struct life computes = standing, streams = standing, reads = standing, roomy = standing,
                idle = standing;
    computes.user_ms = 170;
    assert_int_equal(alone(&computes), 0);
    reads.faults = 50; /* a file of a little more than the cache, again and again */
    assert_int_equal(alone(&reads), 0);
    streams.missed_pages = 10; /* pages of a large file are not missed soon */
    assert_int_equal(alone(&streams), 0);
    roomy.cache_bytes = 13 * CL_MIB;
    roomy.missed_pages = roomy.reread_pages = 100000;
    roomy.faults = 25000;
    assert_int_equal(alone(&roomy), 0);
    idle.cache_bytes = idle.reread_pages = idle.missed_pages = 0;
    assert_int_equal(alone(&idle), 0);
    for (size_t i = 0; i < CL_COUNT(work); i++)
        assert_int_equal(alone(&work[i]), 0);
}

static void a_time_of_it_ends_when_memory_is_found(void **state)
{
    (void)state;
    struct thrash t = {0};
    struct thrash_look look = {.now_ns = CL_NS_PER_S};
    struct life roomy = standing;
    roomy.cache_bytes = 13 * CL_MIB;
    for (int i = 0; i < 4; i++) {
        live(&look, &standing, 2000);
        assert_false(thrash_is_on(&t, &look));
    }
    live(&look, &roomy, 2000);
    assert_int_equal(time_of(&t, &look, &standing), 10);
    /* The same, for the next that must end. */
    live(&look, &standing, 2000);
    assert_int_equal(time_of(&t, &look, &standing), 10);
}

static void a_cache_that_comes_back_is_not_gone(void **state)
{
    (void)state;
    struct thrash t = {0};
    struct thrash_look look = {.now_ns = CL_NS_PER_S};
    for (int i = 0; i < 60; i++) {
        struct life now = bare[0];
        if (i % 4 == 0)
            now.cache_bytes = 3 * CL_MIB;
        live(&look, &now, 2000);
        assert_false(thrash_is_on(&t, &look));
    }
    assert_in_range(time_of(&t, &look, &bare[0]), 10, 72);
}

static void what_was_long_ago_does_not_count(void **state)
{
    (void)state;
    struct thrash t = {0};
    struct thrash_look look = {.now_ns = CL_NS_PER_S};
    struct life works = standing;
    works.user_ms = 900;
    for (unsigned s = 0; s < 600; s += 2) {
        live(&look, &works, 2000);
        assert_false(thrash_is_on(&t, &look));
    }
    unsigned took = time_of(&t, &look, &standing);
    assert_in_range(took, 10, 70);
}

static void a_pause_is_no_time_of_it(void **state)
{
    (void)state;
    struct thrash t = {0};
    struct thrash_look look = {.now_ns = CL_NS_PER_S};
    for (int i = 0; i < 20; i++) {
        live(&look, &standing, 8000);
        assert_false(thrash_is_on(&t, &look));
    }
}

static void what_is_not_known_ends_nobody(void **state)
{
    (void)state;
    struct thrash t = {0};
    struct thrash_look look = {.now_ns = CL_NS_PER_S}, unknown = {0};
    for (int i = 0; i < 20; i++) {
        live(&look, &standing, 2000);
        assert_false(thrash_is_on(&t, i % 4 == 3 ? &unknown : &look));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_stands_still_ends),
        cmocka_unit_test(who_gets_on_does_not),
        cmocka_unit_test(a_time_of_it_ends_when_memory_is_found),
        cmocka_unit_test(a_cache_that_comes_back_is_not_gone),
        cmocka_unit_test(what_was_long_ago_does_not_count),
        cmocka_unit_test(a_pause_is_no_time_of_it),
        cmocka_unit_test(what_is_not_known_ends_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
