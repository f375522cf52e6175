/* A machine is made, booted, saved and restored again and again; each time one more of the calls
 * that this takes fails.  It must say which, and leave nothing behind.
 *
 * The linker puts the functions __wrap_X here before X of libc (ld --wrap). */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/integration/vmm/guest.h"

enum { CALLS_MAX = 2000, VCPUS = 2 };

/* --- calls that fail ---------------------------------------------------------------------------
 */

static long left = -1; /* calls until one fails; negative = none does */
static bool has_failed;
static pthread_t main_thread;

/* Those of the vCPUs' threads are not set-up. */
static bool fails(void)
{
    if (left < 0 || !pthread_equal(pthread_self(), main_thread) || left-- > 0)
        return false;
    has_failed = true;
    errno = EIO;
    return true;
}

#define WRAP(type, name, bad, parameters, arguments) \
    type __real_##name parameters; \
    type __wrap_##name parameters; \
    type __wrap_##name parameters \
    { \
        return fails() ? (bad) : __real_##name arguments; \
    }
/* What libc declares is not all prototypes of ours. */
WRAP(int, ioctl, -1, (int fd, unsigned long request, void *arg), (fd, request, arg))
WRAP(void *, mmap, MAP_FAILED, (void *at, size_t n, int prot, int flags, int fd, off_t offset),
     (at, n, prot, flags, fd, offset))
WRAP(ssize_t, pread, -1, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
WRAP(ssize_t, pwrite, -1, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
WRAP(int, eventfd, -1, (unsigned count, int flags), (count, flags))
WRAP(int, fstat, -1, (int fd, struct stat *st), (fd, st))
WRAP(int, ftruncate, -1, (int fd, off_t size), (fd, size))
WRAP(int, sigaction, -1, (int sig, const struct sigaction *act, struct sigaction *old),
     (sig, act, old))
WRAP(int, pthread_create, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
     (thread, attr, fn, arg))

/* --- what is done ------------------------------------------------------------------------------
 */

GUEST(idle, "1: jmp 1b\n");

struct files {
    struct guest guest; /* of fds only */
    int state_fd;
};

static int boot_and_save_by(const struct files *f, bool pvh, struct cl_err *err)
{
    struct vm_config config = guest_config(&f->guest, VCPUS);
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    config.pvh = pvh;
    if (vm_create(&config, &vm, err) < 0 || vm_boot(vm, err) < 0 || vm_run(vm, err) < 0 ||
        vm_pause(vm, err) < 0)
        return -1;
    return vm_save(vm, f->state_fd, err);
}

static int boot_and_save(const struct files *f, struct cl_err *err)
{
    return boot_and_save_by(f, false, err);
}

static int boot_by_pvh_and_save(const struct files *f, struct cl_err *err)
{
    return boot_and_save_by(f, true, err);
}

static int restore(const struct files *f, struct cl_err *err)
{
    struct vm_config config = guest_config(&f->guest, VCPUS);
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    config.restore = true;
    config.state_fd = f->state_fd;
    if (vm_create(&config, &vm, err) < 0 || vm_restore(vm, err) < 0 || vm_run(vm, err) < 0)
        return -1;
    return vm_pause(vm, err);
}

static int count_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

/* Until nothing is left to fail.  Some failures are borne: an extension that is not there, a guest
 * without a clock.  All others are said. */
static void fail_each(const struct files *f, int (*act)(const struct files *, struct cl_err *),
                      void (*arm)(long nth), bool (*was_hit)(void))
{
    long nth = 0, borne = 0;
    for (bool hit = true; hit; nth++) {
        struct cl_err err = {0};
        int before = count_fds();
        arm(nth);
        int rc = act(f, &err);
        hit = was_hit();
        arm(-1);
        if (rc < 0 && (!hit || !err.text[0]))
            fail_msg("call %ld: '%s'", nth, err.text);
        if (count_fds() != before)
            fail_msg("call %ld: %d fds, %d before: %s", nth, count_fds(), before, err.text);
        borne += hit && rc == 0;
        assert_true(nth < CALLS_MAX);
    }
    printf("%ld calls failed, %ld of them borne\n", nth - 1, borne);
    assert_true(nth > 1 && borne < nth / 2);
}

static void arm_calls(long nth)
{
    has_failed = false;
    left = nth;
}

static bool call_failed(void)
{
    return has_failed;
}

static void test_each_call_of_a_boot_and_a_save(void **state)
{
    fail_each(*state, boot_and_save, arm_calls, call_failed);
}

static void test_each_call_of_a_boot_by_pvh(void **state)
{
    fail_each(*state, boot_by_pvh_and_save, arm_calls, call_failed);
}

static void test_each_call_of_a_restore(void **state)
{
    struct cl_err err = {0};
    assert_int_equal(boot_and_save(*state, &err), 0);
    fail_each(*state, restore, arm_calls, call_failed);
}

static void test_each_allocation(void **state)
{
    fail_each(*state, boot_and_save, cl_test_fail_alloc, cl_test_alloc_failed);
    fail_each(*state, restore, cl_test_fail_alloc, cl_test_alloc_failed);
}

static int open_files(void **state)
{
    static struct files f;
    main_thread = pthread_self();
    guest_open(&f.guest, guest_idle, guest_idle_end, 1);
    vm_free(f.guest.vm);
    f.guest.vm = NULL;
    f.state_fd = memfd_create("state", MFD_CLOEXEC);
    assert_true(f.state_fd >= 0);
    *state = &f;
    return 0;
}

static int close_files(void **state)
{
    struct files *f = *state;
    guest_close(&f->guest);
    (void)close(f->state_fd);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_of_a_boot_and_a_save),
        cmocka_unit_test(test_each_call_of_a_boot_by_pvh),
        cmocka_unit_test(test_each_call_of_a_restore),
        cmocka_unit_test(test_each_allocation),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, open_files, close_files);
}
