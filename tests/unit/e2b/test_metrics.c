/* tests/unit/e2b/test_metrics.c - what a sandbox used, as E2B's SDKs read it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "e2b/metrics.h"

static void test_periods(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        bool good;
        uint64_t start, end;
    } rows[] = {{NULL, true, 0, UINT64_MAX},
                {"", true, 0, UINT64_MAX},
                {"start=", true, 0, UINT64_MAX},
                {"start=17", true, 17, UINT64_MAX},
                {"end=18&x=y", true, 0, 18},
                {"start=17&end=18", true, 17, 18},
                {"start=18446744073709551615", true, UINT64_MAX, UINT64_MAX},
                {"start=18446744073709551616", false, 0, 0},
                {"start=-1", false, 0, 0},
                {"start=1.5", false, 0, 0},
                {"end=now", false, 0, 0},
                {"end=%31%zz", false, 0, 0},
                {"end=%00", false, 0, 0},
                {"end=0000000000000000000000000001", false, 0, 0}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct e2b_period p;
        struct cl_err err = {0};
        if (e2b_period_read(rows[i].query, &p, &err) != (rows[i].good ? 0 : -1))
            fail_msg("%s: %s", rows[i].query ? rows[i].query : "NULL", err.text);
        assert_int_equal(err.code, rows[i].good ? CL_OK : CL_E_INVALID);
        if (rows[i].good)
            assert_true(p.start == rows[i].start && p.end == rows[i].end);
    }
}

enum { SAMPLES = 4 };

struct answer {
    Cloche__V1__UsageResponse m;
    Cloche__V1__UsageSample samples[SAMPLES], *list[SAMPLES];
    Cloche__V1__Time times[SAMPLES];
};

/* One a second, the first at 1 s. */
static const Cloche__V1__UsageResponse *answer_of(struct answer *a, uint32_t vcpus)
{
    cloche__v1__usage_response__init(&a->m);
    for (size_t i = 0; i < SAMPLES; i++) {
        cloche__v1__usage_sample__init(&a->samples[i]);
        cloche__v1__time__init(&a->times[i]);
        a->times[i].unix_ns = (i + 1) * CL_NS_PER_S + 999999999;
        a->samples[i].at = &a->times[i];
        a->samples[i].span_ns = CL_NS_PER_S;
        a->list[i] = &a->samples[i];
    }
    a->m.samples = a->list;
    a->m.n_samples = SAMPLES;
    a->m.vcpus = vcpus;
    return &a->m;
}

static void test_periods_choose(void **state)
{
    (void)state;
    static const struct {
        struct e2b_period period;
        size_t n;
        int first;
    } rows[] = {{{0, UINT64_MAX}, 4, 1}, {{2, 3}, 2, 2}, {{4, UINT64_MAX}, 1, 4},
                {{0, 1}, 1, 1},          {{5, 9}, 0, 0}, {{3, 2}, 0, 0}};
    struct answer a;
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        json_t *list = e2b_metrics_of(answer_of(&a, 1), &rows[i].period);
        assert_int_equal(json_array_size(list), rows[i].n);
        if (rows[i].n > 0)
            assert_int_equal(
                json_integer_value(json_object_get(json_array_get(list, 0), "timestampUnix")),
                rows[i].first);
        json_decref(list);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        uint64_t cpu_ns, span_ns;
        uint32_t vcpus;
        double percent;
    } rows[] = {{CL_NS_PER_S / 3, CL_NS_PER_S, 1, 33.33},
                {CL_NS_PER_S / 3, CL_NS_PER_S, 2, 16.67},
                {CL_NS_PER_S, CL_NS_PER_S, 1, 100},
                {3 * CL_NS_PER_S, CL_NS_PER_S, 1, 100},
                {UINT64_MAX, 1, 1, 100},
                {0, CL_NS_PER_S, 1, 0},
                {5, 0, 1, 0},
                {5, 5, 0, 0}};
    const struct e2b_period all = {0, UINT64_MAX};
    struct answer a;
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        (void)answer_of(&a, rows[i].vcpus);
        a.samples[0].cpu_ns = rows[i].cpu_ns;
        a.samples[0].span_ns = rows[i].span_ns;
        a.samples[0].memory_used_bytes = 1;
        a.samples[0].memory_total_bytes = UINT64_MAX; /* of a worker that lies */
        a.samples[0].memory_cached_bytes = 3;
        a.samples[0].scratch_used_bytes = 4;
        a.samples[0].scratch_total_bytes = 5;
        a.samples[1].at = NULL; /* ... or says nothing */
        json_t *list = e2b_metrics_of(&a.m, &all), *first = json_array_get(list, 0);
        assert_int_equal(json_array_size(list), SAMPLES - 1);
        double percent = json_real_value(json_object_get(first, "cpuUsedPct"));
        if (percent < rows[i].percent - 0.001 || percent > rows[i].percent + 0.001)
            fail_msg("%zu: %f", i, percent);
        json_t *want = json_pack(
            "{s:s, s:i, s:i, s:i, s:I, s:i, s:i, s:i}", "timestamp", "1970-01-01T00:00:01.999999Z",
            "timestampUnix", 1, "cpuCount", (int)rows[i].vcpus, "memUsed", 1, "memTotal",
            (json_int_t)INT64_MAX, "memCache", 3, "diskUsed", 4, "diskTotal", 5);
        assert_int_equal(json_object_del(first, "cpuUsedPct"), 0);
        if (!json_equal(first, want))
            fail_msg("%s", json_dumps(first, 0));
        json_decref(want);
        json_decref(list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_periods_choose),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
