/* tests/unit/base/test_filter.c - base/filter.h: in each filter that is made at build time every
 * row does what it says, and nothing else goes. */
#include "base/filter.h"

#include <errno.h>
#include <linux/kvm.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/seccomp.h"
#include "worker/guard_seccomp.h"

/* An argument that no call can do harm with: no such fd, pid, address or size. */
#define BAD 0x7ffffff0L
enum { CALLS_MAX_VCPU = 12, CALLS_MAX_MAIN = 25, CALLS_MAX_GUARD = 13, CALLS = 460 };
/* x86-64 has no calls between, but two of the kernel's own for traps, which no filter sees. */
enum { GAP_BEGIN = 335, GAP_END = 424 };

static const struct {
    const struct cl_filter_profile *profile;
    const struct cl_filter *filter;
    size_t calls_max;
} all[] = {
    {&vmm_profiles[VMM_THREAD_VCPU], &vmm_filters[VMM_THREAD_VCPU], CALLS_MAX_VCPU},
    {&vmm_profiles[VMM_THREAD_MAIN], &vmm_filters[VMM_THREAD_MAIN], CALLS_MAX_MAIN},
    {&vmm_profiles[VMM_THREAD_TEMPLATE], &vmm_filters[VMM_THREAD_TEMPLATE], CALLS_MAX_MAIN},
    {&guard_profiles[0], &guard_filters[0], CALLS_MAX_GUARD},
};

/* Make the call in a child under the filter; was it let through?  Not every table has an end, so
 * the child ends by an instruction. */
static bool goes_through(const struct cl_filter *filter, long nr, long request)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGILL, SIG_DFL); /* a sanitizer's handlers make calls of their own */
        (void)signal(SIGSEGV, SIG_DFL);
        if (cl_filter_enter(filter) < 0)
            _exit(200);
        (void)syscall(nr, BAD, request, BAD, BAD, BAD, BAD);
        __builtin_trap();
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 200);
    return !(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

static bool has_row(const struct cl_filter_profile *p, int call)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->rows[i].call == call)
            return true;
    return false;
}

static void test_each_row_is_allowed_and_has_a_reason(void **state)
{
    (void)state;
    for (size_t f = 0; f < CL_COUNT(all); f++) {
        const struct cl_filter_profile *p = all[f].profile;
        for (size_t i = 0; i < p->n; i++) {
            const struct cl_filter_row *row = &p->rows[i];
            if (!goes_through(all[f].filter, row->call, row->request ? (long)row->request : BAD))
                fail_msg("%s: %s (%s) is not allowed", p->who, row->name, row->why);
            assert_true(row->why[0] != '\0');
        }
    }
}

static void test_every_other_call_kills(void **state)
{
    (void)state;
    for (size_t f = 0; f < CL_COUNT(all); f++) {
        const struct cl_filter_profile *p = all[f].profile;
        for (int nr = 0; nr < CALLS; nr++)
            if (!(nr >= GAP_BEGIN && nr < GAP_END) && !has_row(p, nr) &&
                goes_through(all[f].filter, nr, BAD))
                fail_msg("%s: call %d is allowed", p->who, nr);
    }
}

static void test_an_ioctl_is_allowed_by_its_request_alone(void **state)
{
    (void)state;
    static const unsigned long others[] = {0,
                                           KVM_CREATE_VM,
                                           KVM_CREATE_VCPU,
                                           KVM_SET_USER_MEMORY_REGION,
                                           KVM_SET_REGS,
                                           KVM_SET_SREGS,
                                           KVM_IRQFD,
                                           KVM_CREATE_DEVICE};
    for (size_t f = 0; f < CL_COUNT(all); f++)
        for (size_t i = 0; i < CL_COUNT(others); i++)
            assert_int_equal(goes_through(all[f].filter, SYS_ioctl, (long)others[i]),
                             others[i] == KVM_SET_USER_MEMORY_REGION &&
                                 all[f].profile == &vmm_profiles[VMM_THREAD_TEMPLATE]);
    assert_false(goes_through(&vmm_filters[VMM_THREAD_MAIN], SYS_ioctl, KVM_RUN));
    assert_true(
        goes_through(&vmm_filters[VMM_THREAD_VCPU], SYS_ioctl, KVM_RUN | 1L << 32)); /* cut off */
}

static size_t distinct_calls(const struct cl_filter_profile *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        size_t first = 0;
        while (p->rows[first].call != p->rows[i].call)
            first++;
        n += first == i;
    }
    return n;
}

static void test_the_tables_are_short(void **state)
{
    (void)state;
    for (size_t f = 0; f < CL_COUNT(all); f++)
        assert_true(distinct_calls(all[f].profile) <= all[f].calls_max);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_is_allowed_and_has_a_reason),
        cmocka_unit_test(test_every_other_call_kills),
        cmocka_unit_test(test_an_ioctl_is_allowed_by_its_request_alone),
        cmocka_unit_test(test_the_tables_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
