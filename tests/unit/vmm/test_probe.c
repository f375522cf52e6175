/* tests/unit/vmm/test_probe.c - vmm/probe.h: what is told of a KVM that is none, and in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "vmm/probe.h"

#define SOON_NS (50 * CL_NS_PER_MS)

static void hangs(int out_fd)
{
    (void)out_fd;
    (void)sleep(60);
}

static void hangs_later(int out_fd)
{
    struct probe_report r = {.can = true, .why = "so far", .costs_why = "not yet"};
    assert_int_equal(write(out_fd, &r, sizeof r), sizeof r);
    hangs(out_fd);
}

static void dies(int out_fd)
{
    (void)out_fd;
    _exit(3);
}

static void looks_at_null(int out_fd)
{
    probe_look("/dev/null", out_fd);
}

static void looks_at_nothing(int out_fd)
{
    probe_look("/nonexistent/kvm", out_fd);
}

static void test_a_kvm_that_hangs_is_not_waited_for(void **state)
{
    (void)state;
    struct probe_report r;
    uint64_t begin_ns = cl_now_ns();
    probe_within(hangs, SOON_NS, &r);
    assert_true(cl_now_ns() - begin_ns < 20 * SOON_NS);
    assert_false(r.can || r.is_measured);
    assert_non_null(strstr(r.why, "KVM did not answer in time"));
    assert_non_null(strstr(r.costs_why, "KVM did not answer in time"));
}

static void test_what_was_told_before_is_kept(void **state)
{
    (void)state;
    struct probe_report r;
    probe_within(hangs_later, 4 * SOON_NS, &r);
    assert_true(r.can);
    assert_false(r.is_measured);
    assert_string_equal(r.why, "so far");
    assert_string_equal(r.costs_why, "not yet");
}

static void test_an_end_without_a_word_is_told(void **state)
{
    (void)state;
    struct probe_report r;
    probe_within(dies, 100 * SOON_NS, &r);
    assert_false(r.can || r.is_measured);
    assert_non_null(strstr(r.why, "ended the process that asked it"));
}

static void test_what_is_no_kvm_is_named(void **state)
{
    (void)state;
    struct probe_report r;
    probe_within(looks_at_null, 100 * SOON_NS, &r);
    assert_false(r.can || r.is_measured);
    assert_non_null(strstr(r.why, "not /dev/kvm"));
    assert_string_equal(r.costs_why, r.why);
    probe_within(looks_at_nothing, 100 * SOON_NS, &r);
    assert_false(r.can || r.is_measured);
    assert_non_null(strstr(r.why, "/nonexistent/kvm cannot be opened: "));
    assert_string_equal(r.costs_why, r.why);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kvm_that_hangs_is_not_waited_for),
        cmocka_unit_test(test_what_was_told_before_is_kept),
        cmocka_unit_test(test_an_end_without_a_word_is_told),
        cmocka_unit_test(test_what_is_no_kvm_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
