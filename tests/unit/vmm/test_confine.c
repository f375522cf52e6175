/* What a monitor gives up, on kernels with each version of Landlock and without.
 *
 * The linker puts __wrap_syscall and __wrap_prctl before libc's (ld --wrap): the kernel is made up,
 * so that this process keeps what it has. */
#include "vmm/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

enum { CREATE_RULESET = 444, RESTRICT_SELF = 446 };

/* linux/landlock.h, struct landlock_ruleset_attr. */
struct handled {
    uint64_t files, net, scopes;
};

static struct {
    long abi; /* 0 = no Landlock */
    bool prctl_fails, create_fails, restrict_fails;
    struct handled handled;
    bool no_core, no_privileges, entered;
    int fd;
} host;

long __wrap_syscall(long nr, ...);
int __wrap_prctl(int option, ...);

static long fails(void)
{
    errno = EIO;
    return -1;
}

static long create_ruleset(const struct handled *handled, size_t n)
{
    if (!handled) {
        errno = EOPNOTSUPP;
        return host.abi > 0 ? host.abi : -1;
    }
    if (host.create_fails)
        return fails();
    assert_int_equal(n, sizeof host.handled);
    host.handled = *handled;
    host.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return host.fd;
}

long __wrap_syscall(long nr, ...)
{
    va_list ap;
    va_start(ap, nr);
    long first = va_arg(ap, long);
    long second = va_arg(ap, long);
    va_end(ap);
    if (nr == CREATE_RULESET)
        return create_ruleset((const void *)first, (size_t)second);
    assert_int_equal(nr, RESTRICT_SELF);
    assert_int_equal((int)first, host.fd);
    host.entered = !host.restrict_fails;
    return host.restrict_fails ? fails() : 0;
}

int __wrap_prctl(int option, ...)
{
    va_list ap;
    va_start(ap, option);
    int value = va_arg(ap, int);
    va_end(ap);
    host.no_core |= option == PR_SET_DUMPABLE && value == 0;
    host.no_privileges |= option == PR_SET_NO_NEW_PRIVS && value == 1;
    return host.prctl_fails ? (int)fails() : 0;
}

static struct cl_err confine(int want)
{
    struct cl_err err = {0};
    host.fd = -1;
    assert_int_equal(confine_process(&err), want);
    if (host.fd >= 0)
        assert_int_equal(fcntl(host.fd, F_GETFD), -1); /* the ruleset is closed */
    return err;
}

/* Documentation/userspace-api/landlock.rst: what each version added. */
static void test_all_that_the_kernel_can_refuse_is_refused(void **state)
{
    (void)state;
    static const struct handled want[] = {
        {0x1fff, 0, 0}, /* 13 rights */
        {0x3fff, 0, 0}, /* REFER */
        {0x7fff, 0, 0}, /* TRUNCATE */
        {0x7fff, 3, 0}, /* TCP: bind and connect */
        {0xffff, 3, 0}, /* IOCTL_DEV */
        {0xffff, 3, 3}, /* abstract sockets, signals */
        {0xffff, 3, 3}, /* and one to come */
    };
    for (size_t i = 0; i < CL_COUNT(want); i++) {
        memset(&host, 0, sizeof host);
        host.abi = (long)i + 1;
        (void)confine(0);
        assert_true(host.entered && host.no_core && host.no_privileges);
        assert_int_equal(host.handled.files, want[i].files);
        assert_int_equal(host.handled.net, want[i].net);
        assert_int_equal(host.handled.scopes, want[i].scopes);
    }
}

static void test_a_kernel_without_landlock_will_do(void **state)
{
    (void)state;
    memset(&host, 0, sizeof host);
    (void)confine(0);
    assert_true(host.no_core && host.no_privileges && !host.entered);
}

static void test_what_cannot_be_given_up_ends_it(void **state)
{
    (void)state;
    memset(&host, 0, sizeof host);
    host.prctl_fails = true;
    assert_non_null(strstr(confine(-1).text, "give up core files"));
    memset(&host, 0, sizeof host);
    host.abi = 1;
    host.create_fails = true;
    assert_non_null(strstr(confine(-1).text, "Landlock ruleset"));
    host.create_fails = false;
    host.restrict_fails = true;
    assert_non_null(strstr(confine(-1).text, "enter Landlock"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_the_kernel_can_refuse_is_refused),
        cmocka_unit_test(test_a_kernel_without_landlock_will_do),
        cmocka_unit_test(test_what_cannot_be_given_up_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
