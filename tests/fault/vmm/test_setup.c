/* A machine with every device is made, booted, saved and restored again and again; each time one
 * more of the calls that this takes fails.  It must say which, and leave nothing behind.
 *
 * The linker puts the functions __wrap_X here before X of libc (ld --wrap). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/kvm.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/integration/vmm/guest.h"
#include "vmm/probe.h"

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

/* What KVM answers to one request, in place of the real one; a negative errno fails. */
static struct {
    unsigned long request; /* 0 = none */
    int answer;
} forced;

static int force(void)
{
    errno = forced.answer < 0 ? -forced.answer : errno;
    return forced.answer < 0 ? -1 : forced.answer;
}

/* Others have the processor for a while before the n-th KVM_RUN from now, counted from 0. */
static long delayed_run = -1;

static void delay(unsigned long request)
{
    if (request == KVM_RUN && delayed_run >= 0 && delayed_run-- == 0)
        (void)usleep(100 * 1000);
}

/* Every other read and write is interrupted by a signal. */
static bool interrupts, was_interrupted;

static bool is_interrupted(void)
{
    was_interrupted = interrupts && !was_interrupted;
    if (was_interrupted)
        errno = EINTR;
    return was_interrupted;
}

#define WRAP(type, name, bad, instead, parameters, arguments) \
    type __real_##name parameters; \
    type __wrap_##name parameters; \
    type __wrap_##name parameters \
    { \
        if (fails()) \
            return bad; \
        instead; \
        return __real_##name arguments; \
    }
#define INTERRUPTED \
    if (is_interrupted()) \
    return -1
#define FORCED \
    delay(request); \
    if (forced.request == request) \
    return force()
#define NOTHING (void)0
/* What libc declares is not all prototypes of ours. */
WRAP(int, ioctl, -1, FORCED, (int fd, unsigned long request, void *arg), (fd, request, arg))
WRAP(void *, mmap, MAP_FAILED, NOTHING,
     (void *at, size_t n, int prot, int flags, int fd, off_t offset),
     (at, n, prot, flags, fd, offset))
WRAP(ssize_t, pread, -1, INTERRUPTED, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
WRAP(ssize_t, pwrite, -1, INTERRUPTED, (int fd, const void *from, size_t n, off_t at),
     (fd, from, n, at))
WRAP(int, open, -1, NOTHING, (const char *path, int flags), (path, flags))
WRAP(int, eventfd, -1, NOTHING, (unsigned count, int flags), (count, flags))
WRAP(int, fstat, -1, NOTHING, (int fd, struct stat *st), (fd, st))
WRAP(off_t, lseek, -1, NOTHING, (int fd, off_t to, int whence), (fd, to, whence))
WRAP(int, ftruncate, -1, NOTHING, (int fd, off_t size), (fd, size))
WRAP(int, sigaction, -1, NOTHING, (int sig, const struct sigaction *act, struct sigaction *old),
     (sig, act, old))
WRAP(int, pthread_create, EAGAIN, NOTHING,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
     (thread, attr, fn, arg))

/* --- what is done ------------------------------------------------------------------------------
 */

GUEST(idle, "1: jmp 1b\n");

struct files {
    struct guest guest; /* of fds only */
    int state_fd, disk_fd, channel[2], wire[2];
};

/* With every device there is. */
static struct vm_config config_of(const struct files *f)
{
    struct vm_config config = guest_config(&f->guest, VCPUS);
    config.root_fd = config.scratch_fd = f->disk_fd;
    config.channel_fd = f->channel[0];
    config.net_fd = f->wire[0];
    config.mac[0] = 2; /* of no vendor */
    return config;
}

static int boot_and_save_by(const struct files *f, bool pvh, struct cl_err *err)
{
    struct vm_config config = config_of(f);
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    config.entry = pvh ? VM_ENTRY_PVH : VM_ENTRY_ANY;
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
    struct vm_config config = config_of(f);
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

static struct probe_report look(void)
{
    struct probe_report r = {.can = false};
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    probe_look("/dev/kvm", ends[1]);
    (void)close(ends[1]);
    while (read(ends[0], &r, sizeof r) == (ssize_t)sizeof r)
        continue;
    (void)close(ends[0]);
    return r;
}

/* Tiny machines, made and timed; that one is slow is an answer. */
static int probe(const struct files *f, struct cl_err *err)
{
    static const char slow[] = "this KVM interprets guest kernels, ";
    struct probe_report r = look();
    (void)f;
    if (!r.can && strncmp(r.why, slow, strlen(slow)) != 0)
        return cl_fail(err, CL_E_SYS, 0, "%s", r.why);
    return r.is_measured ? 0 : cl_fail(err, CL_E_SYS, 0, "%s", r.costs_why);
}

static void test_each_call_of_a_probe(void **state)
{
    fail_each(*state, probe, arm_calls, call_failed);
}

static void test_a_busy_host_does_not_change_what_a_probe_says(void **state)
{
    (void)state;
    bool can = look().can;
    for (long run = 0; run < 6; run++) {
        delayed_run = run;
        struct probe_report r = look();
        if (r.can != can)
            fail_msg("after a delay before run %ld: %s", run, r.why);
    }
    delayed_run = -1;
}

/* Such an answer ends the act, and its error says this. */
static void expect_refusal(const struct files *f, unsigned long request, int answer,
                           int (*act)(const struct files *, struct cl_err *), const char *says)
{
    struct cl_err err = {0};
    forced.request = request;
    forced.answer = answer;
    int rc = act(f, &err);
    forced.request = 0;
    if (rc != -1 || !strstr(err.text, says))
        fail_msg("%d: '%s', wanted '%s'", rc, err.text, says);
}

static void test_what_kvm_says_too_little_to_is_named(void **state)
{
    const struct files *f = *state;
    expect_refusal(f, KVM_GET_API_VERSION, 11, boot_and_save, "KVM's API has version 11");
    expect_refusal(f, KVM_GET_API_VERSION, 11, probe, "KVM's API has version 11");
    expect_refusal(f, KVM_GET_MSRS, 1, boot_and_save, "read model-specific register 0x");
    expect_refusal(f, KVM_SET_MSRS, 0, boot_and_save, "write model-specific register 0x");
    expect_refusal(f, KVM_RUN, 0, probe, "ended by exit ");
    expect_refusal(f, KVM_RUN, -EIO, probe, "KVM_RUN");
}

static void test_a_signal_between_is_borne(void **state)
{
    const struct files *f = *state;
    struct cl_err err = {0};
    interrupts = true;
    int rc = boot_and_save(f, &err);
    rc = rc < 0 ? rc : boot_by_pvh_and_save(f, &err);
    rc = rc < 0 ? rc : restore(f, &err);
    interrupts = false;
    if (rc < 0)
        fail_msg("%s", err.text);
}

static void test_a_processor_that_kvm_does_not_run_ends_the_machine(void **state)
{
    const struct files *f = *state;
    struct cl_err err = {0};
    struct guest g = {0};
    struct vm_report report;
    struct vm_config config = config_of(f);
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    assert_int_equal(vm_create(&config, &vm, &err), 0);
    assert_int_equal(vm_boot(vm, &err), 0);
    forced.request = KVM_RUN;
    forced.answer = -EIO;
    g.vm = vm;
    assert_int_equal(vm_run(vm, &err), 0);
    guest_await_end(&g, &report);
    forced.request = 0;
    assert_int_equal(report.end, VM_FAILED);
    assert_non_null(strstr(report.err.text, ": KVM_RUN: "));
}

static int open_files(void **state)
{
    static struct files f;
    main_thread = pthread_self();
    guest_open(&f.guest, guest_idle, guest_idle_end, 1);
    vm_free(f.guest.vm);
    f.guest.vm = NULL;
    f.state_fd = memfd_create("state", MFD_CLOEXEC);
    f.disk_fd = memfd_create("disk", MFD_CLOEXEC);
    assert_true(f.state_fd >= 0 && f.disk_fd >= 0);
    assert_int_equal(ftruncate(f.disk_fd, 1 << 20), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f.channel), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, f.wire), 0);
    *state = &f;
    return 0;
}

static int close_files(void **state)
{
    struct files *f = *state;
    guest_close(&f->guest);
    (void)close(f->state_fd);
    (void)close(f->disk_fd);
    for (int i = 0; i < 2; i++) {
        (void)close(f->channel[i]);
        (void)close(f->wire[i]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_of_a_boot_and_a_save),
        cmocka_unit_test(test_each_call_of_a_boot_by_pvh),
        cmocka_unit_test(test_each_call_of_a_restore),
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_each_call_of_a_probe),
        cmocka_unit_test(test_a_busy_host_does_not_change_what_a_probe_says),
        cmocka_unit_test(test_what_kvm_says_too_little_to_is_named),
        cmocka_unit_test(test_a_signal_between_is_borne),
        cmocka_unit_test(test_a_processor_that_kvm_does_not_run_ends_the_machine),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, open_files, close_files);
}
