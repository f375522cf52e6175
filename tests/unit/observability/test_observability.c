/* observability/: the log's fields and the metrics' text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "observability/log.h"
#include "observability/metrics.h"

static void test_no_text_becomes_a_field(void **state)
{
    (void)state;
    char out[256];
    (void)log_format_fields(out, sizeof out, "text='%s' n=%d", "a' b=\"c\"\n", -7);
    assert_string_equal(out, "\"text\":\"a' b=\\u0022c\\u0022\\u000a\",\"n\":\"-7\"");
    (void)log_format_fields(out, sizeof out, "id=%.4s k=%llu", "abcdefgh", 5ULL);
    assert_string_equal(out, "\"id\":\"abcd\",\"k\":\"5\"");
    (void)log_format_fields(out, sizeof out, "lag=%lld", -5LL);
    assert_string_equal(out, "\"lag\":\"-5\"");
}

static void test_bytes_that_are_not_utf8_stay_json(void **state)
{
    (void)state;
    char out[64];
    (void)log_format_fields(out, sizeof out, "text=%s", "a\xff\xc3");
    assert_string_equal(out, "\"text\":\"a??\"");
}

static void test_a_small_buffer_never_holds_half_an_escape(void **state)
{
    (void)state;
    char out[16];
    for (size_t n = 1; n < sizeof out; n++) {
        size_t len = log_format_fields(out, n, "t=%s", "\n\n\n");
        assert_true(len < n);
        assert_int_equal(strlen(out), len);
    }
}

static char text[65536];

static void render(struct metrics *m)
{
    struct cl_err err = {0};
    struct cl_buf b;
    cl_buf_init(&b, sizeof text - 1);
    assert_int_equal(metrics_render(m, &b, &err), 0);
    memcpy(text, b.data, b.len);
    text[b.len] = '\0';
    cl_buf_fini(&b);
}

static void test_metrics_have_prometheus_form(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct metrics *m;
    assert_int_equal(metrics_new(&m, &err), 0);
    metrics_add(m, METRIC_RPC_CALLS, "/a\"b", "0", 2);
    metrics_add(m, METRIC_RPC_CALLS, "/a\"b", "0", 1);
    metrics_set(m, METRIC_QUEUE_DEPTH, NULL, NULL, 9);
    metrics_observe(m, METRIC_QUEUE_SECONDS, NULL, NULL, 60 * CL_NS_PER_US);
    render(m);
    assert_non_null(strstr(text, "# TYPE cloche_rpc_calls_total counter\n"
                                 "cloche_rpc_calls_total{method=\"/a\\\"b\",code=\"0\"} 3\n"));
    assert_non_null(strstr(text, "cloche_queue_depth 9\n"));
    assert_non_null(strstr(text, "cloche_queue_wait_seconds_bucket{le=\"5e-05\"} 0\n"));
    assert_non_null(strstr(text, "cloche_queue_wait_seconds_bucket{le=\"0.0001\"} 1\n"));
    assert_non_null(strstr(text, "cloche_queue_wait_seconds_bucket{le=\"+Inf\"} 1\n"));
    assert_non_null(strstr(text, "cloche_queue_wait_seconds_sum 0.000060000\n"));
    metrics_free(m);
}

static void test_invented_labels_do_not_grow_without_bound(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct metrics *m;
    assert_int_equal(metrics_new(&m, &err), 0);
    for (int i = 0; i < 10 * METRICS_SERIES; i++) {
        char label[32];
        (void)snprintf(label, sizeof label, "m%d", i);
        metrics_add(m, METRIC_RPC_CALLS, label, "0", 1);
    }
    render(m);
    int lines = 0;
    for (const char *at = text; (at = strstr(at, "\ncloche_rpc_calls_total{")) != NULL; at++)
        lines++;
    assert_int_equal(lines, METRICS_SERIES);
    assert_non_null(strstr(text, "{method=\"other\",code=\"other\"}"));
    metrics_free(m);
    metrics_add(NULL, METRIC_RPC_CALLS, "x", "0", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_text_becomes_a_field),
        cmocka_unit_test(test_bytes_that_are_not_utf8_stay_json),
        cmocka_unit_test(test_a_small_buffer_never_holds_half_an_escape),
        cmocka_unit_test(test_metrics_have_prometheus_form),
        cmocka_unit_test(test_invented_labels_do_not_grow_without_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
