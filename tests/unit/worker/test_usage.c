/* worker/usage.h: whatever comes, the series reaches back to the beginning, loses no CPU time, and
 * is finest where it is newest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "worker/usage.h"

static struct usage_sample sample(uint64_t span_ms)
{
    return (struct usage_sample){.span_ns = span_ms * CL_NS_PER_MS};
}

static void add(struct usage *u, struct usage_sample s)
{
    struct cl_err err = {0};
    if (usage_add(u, &s, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_series(void **state)
{
    (void)state;
    enum { ALL = 100000, SPAN_MS = 5000, PEAK = 777 };
    struct usage u = {0};
    for (uint64_t i = 0; i < ALL; i++) {
        struct usage_sample s = sample(SPAN_MS);
        s.at_ns = (i + 1) * s.span_ns;
        s.cpu_ns = i;
        s.memory_used = s.scratch_used = i == 3 ? PEAK : 1;
        s.processes = i == 3 ? 9 : 1;
        s.memory_total = i;
        add(&u, s);
        assert_true(u.n <= USAGE_MAX && (i < USAGE_MAX || u.n >= USAGE_MAX / 2));
    }
    uint64_t at_ns = 0, cpu_ns = 0;
    for (size_t i = 0; i < u.n; i++) {
        const struct usage_sample *s = &u.samples[i];
        at_ns += s->span_ns;
        cpu_ns += s->cpu_ns;
        assert_int_equal(s->at_ns, at_ns); /* no gap, in order, the latest end of what was joined */
        assert_int_equal(s->memory_total, at_ns / (SPAN_MS * CL_NS_PER_MS) - 1);
        assert_true(i == 0 || s->span_ns <= u.samples[i - 1].span_ns ||
                    s->span_ns == 2 * SPAN_MS * CL_NS_PER_MS);
        if (i >= u.n - USAGE_MAX / 2)
            assert_int_equal(s->span_ns, SPAN_MS * CL_NS_PER_MS);
    }
    assert_int_equal(at_ns, ALL * SPAN_MS * CL_NS_PER_MS);
    assert_int_equal(cpu_ns, (uint64_t)ALL * (ALL - 1) / 2);
    assert_int_equal(u.samples[0].memory_used, PEAK);
    assert_int_equal(u.samples[0].scratch_used, PEAK);
    assert_int_equal(u.samples[0].processes, 9);
    assert_int_equal(u.samples[1].memory_used, 1);
    usage_fini(&u);
}

static void test_asked_often(void **state)
{
    (void)state;
    struct usage u = {0};
    add(&u, sample(5000));
    for (unsigned i = 0; i < 100; i++) { /* in 10 s */
        struct usage_sample s = sample(100);
        s.cpu_ns = 1;
        s.memory_used = 100 - i;
        add(&u, s);
        assert_int_equal(u.samples[u.n - 1].memory_used, 100 - i); /* it is of now */
    }
    assert_int_equal(u.n, 1 + 10);
    assert_int_equal(u.samples[0].span_ns, 5000 * CL_NS_PER_MS);
    for (size_t i = 1; i < u.n; i++) {
        assert_int_equal(u.samples[i].span_ns, 1000 * CL_NS_PER_MS);
        assert_int_equal(u.samples[i].cpu_ns, 10);
    }
    usage_fini(&u);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct usage u = {0};
    struct usage_sample s = sample(5000);
    struct cl_err err = {0};
    cl_test_fail_alloc(0);
    assert_int_equal(usage_add(&u, &s, &err), -1);
    cl_test_fail_alloc(-1);
    assert_int_equal(err.code, CL_E_NOMEM);
    assert_int_equal(u.n, 0);
    add(&u, s);
    assert_int_equal(u.n, 1);
    usage_fini(&u);
}

static void test_a_copy_goes_on(void **state)
{
    (void)state;
    enum { N = 7 };
    struct usage u = {0}, copy = {0}, none = {0};
    struct cl_err err = {0};
    for (uint64_t i = 0; i < N; i++) {
        struct usage_sample s = sample(5000);
        s.cpu_ns = i;
        add(&u, s);
    }
    assert_int_equal(usage_copy(&copy, &none, &err), 0);
    assert_int_equal(copy.n, 0);
    cl_test_fail_alloc(0);
    assert_int_equal(usage_copy(&copy, &u, &err), -1);
    cl_test_fail_alloc(-1);
    assert_int_equal(usage_copy(&copy, &u, &err), 0);
    assert_int_equal(copy.n, N);
    assert_memory_equal(copy.samples, u.samples, N * sizeof *u.samples);
    usage_fini(&u);
    add(&copy, sample(5000));
    assert_int_equal(copy.n, N + 1);
    usage_fini(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_series),
        cmocka_unit_test(test_asked_often),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_a_copy_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
