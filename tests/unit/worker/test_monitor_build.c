/* tests/unit/worker/test_monitor_build.c - worker/monitor_build.h: copies are found by what is in
 * them, and those that nobody needs go. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "worker/monitor_build.h"

static char home[] = "/tmp/cloche-monitor.XXXXXX";
static char dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    memcpy(home + sizeof home - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(home));
    (void)snprintf(dir, sizeof dir, "%s/monitors", home);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return cl_remove_tree(home, NULL);
}

/* A program of this text, copied. */
static struct monitor_build copy(const char *text)
{
    struct monitor_build m;
    struct cl_err err = {0};
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/cloche-vmm", home);
    assert_int_equal(cl_file_write(path, text, strlen(text), 0755, &err), 0);
    assert_int_equal(monitor_copy(dir, path, &m, &err), 0);
    return m;
}

static bool is_found(const struct monitor_build *m)
{
    struct monitor_build found;
    struct cl_err err = {0};
    if (monitor_find(dir, m->sha256, &found, &err) < 0) {
        assert_int_equal(err.code, CL_E_NOTFOUND);
        return false;
    }
    assert_string_equal(found.path, m->path);
    assert_string_equal(found.sha256, m->sha256);
    return true;
}

static void test_a_copy_outlives_its_program(void **state)
{
    (void)state;
    struct stat st;
    struct monitor_build one = copy("one"), two = copy("two"), again = copy("one");
    assert_string_equal(one.sha256,
                        "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    assert_string_equal(again.path, one.path);
    assert_string_not_equal(one.path, two.path);
    assert_true(is_found(&one) && is_found(&two));
    assert_int_equal(stat(one.path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555); /* VMs have uids of their own */
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_a_spoiled_copy_is_none(void **state)
{
    (void)state;
    struct monitor_build one = copy("one");
    assert_int_equal(cl_file_write(one.path, "ome", 3, 0555, NULL), 0);
    assert_false(is_found(&one));
    assert_true(copy("one").sha256[0] && is_found(&one)); /* made again */
    assert_int_equal(unlink(one.path), 0);
    assert_false(is_found(&one));
}

static void test_no_program_is_said(void **state)
{
    (void)state;
    struct monitor_build m;
    struct cl_err err = {0};
    assert_int_equal(monitor_copy(dir, "/nonexistent/cloche-vmm", &m, &err), -1);
    assert_non_null(strstr(err.text, "/nonexistent/cloche-vmm"));
}

static bool is_that(const void *arg, const char *sha256)
{
    return arg && strcmp(arg, sha256) == 0;
}

static void set_made(const struct monitor_build *m, time_t at)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", dir, m->sha256);
    const struct timespec times[2] = {{.tv_sec = at}, {.tv_sec = at}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_the_newest_stay_and_what_is_needed(void **state)
{
    (void)state;
    enum { COPIES = MONITORS_NEWEST + 3 };
    struct monitor_build copies[COPIES];
    char text[2] = "a", stranger[PATH_MAX];
    for (int i = 0; i < COPIES; i++, text[0]++) {
        copies[i] = copy(text);
        set_made(&copies[i], 1000 + i);
    }
    (void)snprintf(stranger, sizeof stranger, "%s/notes", dir);
    assert_int_equal(cl_file_write(stranger, "x", 1, 0600, NULL), 0);
    monitor_sweep(dir, is_that, copies[1].sha256);
    for (int i = 0; i < COPIES; i++)
        assert_int_equal(is_found(&copies[i]), i == 1 || i >= COPIES - MONITORS_NEWEST);
    assert_int_equal(access(stranger, F_OK), 0);
    monitor_sweep("/nonexistent", is_that, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_copy_outlives_its_program, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_spoiled_copy_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_program_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_newest_stay_and_what_is_needed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
