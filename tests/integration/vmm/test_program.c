/* cloche-vmm as a person or a script calls it: what it prints, and its exit status. */
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"
#include "vmm/costs.h"
#include "vmm/cpuid.h"
#include "vmm/seccomp.h"

enum { TEXT_MAX = 16384 };

/* Run it with this argument (NULL = none), its stdout and stderr in these files; its status. */
static int run(const char *arg, int out, int err)
{
    int status = 0;
    pid_t pid;
    char *argv[] = {(char *)(uintptr_t)CLOCHE_VMM, (char *)(uintptr_t)arg, NULL}, *env[] = {NULL};
    posix_spawn_file_actions_t files;
    assert_int_equal(posix_spawn_file_actions_init(&files), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1), 0);
    assert_int_equal(posix_spawn(&pid, CLOCHE_VMM, &files, NULL, argv, env), 0);
    (void)posix_spawn_file_actions_destroy(&files);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The same; what it says on both is in the text. */
static int run_text(const char *arg, char text[static TEXT_MAX])
{
    CL_AUTO(cl_closep) int fd = memfd_create("text", MFD_CLOEXEC);
    assert_true(fd >= 0);
    int status = run(arg, fd, fd);
    ssize_t n = pread(fd, text, TEXT_MAX - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    return status;
}

static void test_the_probe_says_yes_or_no_and_why(void **state)
{
    (void)state;
    char text[TEXT_MAX], version[32], digest[32], answer[8], why[200];
    assert_int_equal(run_text("--probe", text), 0);
    assert_int_equal(
        sscanf(text, "cloche-vmm %31s %31[0-9a-f]\n%7s %199[^\n]", version, digest, answer, why),
        4);
    assert_string_equal(version, CLOCHE_VERSION);
    assert_int_equal(strlen(digest), 16);
    assert_true(strcmp(answer, "yes") == 0 || strcmp(answer, "no") == 0);
    assert_true(strlen(why) > 10);
}

/* Where there is a KVM, in figures that can be: a round trip is no shorter than 100 ns anywhere. */
static void test_the_probe_says_what_kvm_takes(void **state)
{
    (void)state;
    char text[TEXT_MAX], by[16];
    unsigned transition, fault, samples;
    assert_int_equal(run_text("--probe", text), 0);
    const char *last = strchr(strchr(text, '\n') + 1, '\n') + 1;
    if (access("/dev/kvm", R_OK | W_OK) < 0) {
        assert_int_equal(strncmp(last, "nocosts /dev/kvm cannot be opened", 33), 0);
        return;
    }
    assert_int_equal(sscanf(last, "costs %u %u %15s %u", &transition, &fault, by, &samples), 4);
    assert_in_range(transition, 100, 10 * 1000 * 1000);
    assert_in_range(fault, 100, 10 * 1000 * 1000);
    assert_string_equal(by, cpuid_host_virtualizes() ? "CPUID" : "SYSCALL");
    assert_int_equal(samples, COSTS_SAMPLES);
}

static void test_every_row_of_the_filters_is_explained(void **state)
{
    (void)state;
    char text[TEXT_MAX];
    assert_int_equal(run_text("--explain-seccomp", text), 0);
    for (int t = 0; t < VMM_THREADS; t++) {
        const struct cl_filter_profile *p = &vmm_profiles[t];
        assert_non_null(strstr(text, p->who));
        for (size_t i = 0; i < p->n; i++) {
            assert_non_null(strstr(text, p->rows[i].name));
            assert_non_null(strstr(text, p->rows[i].why));
        }
    }
}

static void test_what_cannot_be_printed_is_a_failure(void **state)
{
    (void)state;
    CL_AUTO(cl_closep) int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_int_equal(run("--probe", full, STDERR_FILENO), 1);
    assert_int_equal(run("--explain-seccomp", full, STDERR_FILENO), 1);
}

static void test_other_arguments_get_the_usage(void **state)
{
    (void)state;
    static const char *const bad[] = {NULL, "", "x", "2", "-4", "4x", "40000", "--help"};
    char text[TEXT_MAX];
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        assert_int_equal(run_text(bad[i], text), 2);
        assert_non_null(strstr(text, "usage: cloche-vmm"));
    }
}

static void test_a_control_socket_that_is_none_ends_it(void **state)
{
    (void)state;
    char text[TEXT_MAX];
    assert_int_equal(run_text("4", text), 0); /* nobody there to tell */
    assert_string_equal(text, "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_probe_says_yes_or_no_and_why),
        cmocka_unit_test(test_the_probe_says_what_kvm_takes),
        cmocka_unit_test(test_every_row_of_the_filters_is_explained),
        cmocka_unit_test(test_what_cannot_be_printed_is_a_failure),
        cmocka_unit_test(test_other_arguments_get_the_usage),
        cmocka_unit_test(test_a_control_socket_that_is_none_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
