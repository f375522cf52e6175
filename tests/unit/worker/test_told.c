/* worker/told.h: what is kept until it is confirmed, and what is told again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/told.h"

enum { SEEN_MAX = 16 };

struct seen {
    uint64_t number[SEEN_MAX];
    size_t n, execs;
};

static void see(void *arg, Cloche__V1__SessionRequest *body)
{
    struct seen *seen = arg;
    if (body->body_case == CLOCHE__V1__SESSION_REQUEST__BODY_EXEC_CHANGED) {
        assert_string_equal(body->exec_changed->exec_id, "exec_1");
        assert_int_equal(body->exec_changed->again,
                         seen->execs > 0); /* nobody was told it at first */
        seen->execs++;
        return;
    }
    const Cloche__V1__UnitWatched *m = body->watched;
    assert_true(m->again);
    assert_true(seen->n < SEEN_MAX);
    char want[16];
    (void)snprintf(want, sizeof want, "sbx_%u", (unsigned)m->number);
    assert_string_equal(m->unit_id, want); /* a copy: what it was made of is gone */
    seen->number[seen->n++] = m->number;
}

static bool keep(struct told *told, unsigned n)
{
    char unit[16];
    Cloche__V1__UnitWatched m = CLOCHE__V1__UNIT_WATCHED__INIT;
    Cloche__V1__SessionRequest body = CLOCHE__V1__SESSION_REQUEST__INIT;
    (void)snprintf(unit, sizeof unit, "sbx_%u", n);
    m.unit_id = unit;
    body.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_WATCHED;
    body.watched = &m;
    bool kept = told_keep(told, &body, true);
    assert_int_equal(m.number, kept ? n : 0);
    assert_false(m.again);
    return kept;
}

static void test_what_is_not_confirmed_is_told_again(void **state)
{
    (void)state;
    struct told told;
    told_init(&told);
    for (unsigned i = 1; i <= 5; i++)
        assert_true(keep(&told, i));
    told_confirmed(&told, 0);
    told_confirmed(&told, 2);
    told_confirmed(&told, 1); /* goes nowhere back */
    for (int twice = 0; twice < 2; twice++) {
        struct seen seen = {.n = 0};
        told_again(&told, see, &seen);
        assert_int_equal(seen.n, 3);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(seen.number[i], 3 + i);
    }
    assert_true(keep(&told, 6)); /* numbers go on, also behind what was told again */
    told_confirmed(&told, UINT64_MAX);
    assert_int_equal(told.bytes, 0);
    assert_true(cl_list_empty(&told.rows));
    assert_true(keep(&told, 7));
    told_clear(&told);
    assert_int_equal(told.bytes, 0);
    assert_true(keep(&told, 8));
    told_clear(&told);
}

static void test_what_nobody_heard_is_not_told_again(void **state)
{
    (void)state;
    struct told told;
    struct seen seen = {.n = 0};
    Cloche__V1__ExecChanged m = CLOCHE__V1__EXEC_CHANGED__INIT;
    Cloche__V1__SessionRequest body = CLOCHE__V1__SESSION_REQUEST__INIT;
    char exec[] = "exec_1";
    told_init(&told);
    m.exec_id = exec;
    body.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_EXEC_CHANGED;
    body.exec_changed = &m;
    assert_true(told_keep(&told, &body, false));
    assert_int_equal(m.number, 1);
    exec[0] = '\0';
    told_again(&told, see, &seen);
    told_again(&told, see, &seen);
    assert_int_equal(seen.execs, 2);
    told_confirmed(&told, 1);
    told_again(&told, see, &seen);
    assert_int_equal(seen.execs, 2);
}

static void test_there_is_an_end_to_it(void **state)
{
    (void)state;
    struct told told;
    told_init(&told);
    char *long_id = calloc(1, 100001);
    assert_non_null(long_id);
    memset(long_id, 'x', 100000);
    Cloche__V1__UnitWatched m = CLOCHE__V1__UNIT_WATCHED__INIT;
    Cloche__V1__SessionRequest body = CLOCHE__V1__SESSION_REQUEST__INIT;
    m.unit_id = long_id;
    body.body_case = CLOCHE__V1__SESSION_REQUEST__BODY_WATCHED;
    body.watched = &m;
    unsigned n = 0;
    while (told_keep(&told, &body, true))
        n++;
    assert_int_equal(m.number, n); /* nothing was done to it */
    assert_in_range(n, TOLD_BYTES_MAX / 102000, TOLD_BYTES_MAX / 100000);
    assert_true(told.bytes <= TOLD_BYTES_MAX);
    told_confirmed(&told, 1);
    assert_true(told_keep(&told, &body, true));
    assert_int_equal(m.number, n + 1);
    told_clear(&told);
    free(long_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_confirmed_is_told_again),
        cmocka_unit_test(test_what_nobody_heard_is_not_told_again),
        cmocka_unit_test(test_there_is_an_end_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
