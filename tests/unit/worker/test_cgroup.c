/* tests/unit/worker/test_cgroup.c - worker/cgroup.h: what a sweep removes, and what it leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/cgroup.h"

/* Folders stand for groups: one with something in it cannot be removed, either. */
static bool is_there(const struct cgroup_root *root, int i, const char *name)
{
    char path[CGROUP_PATH + 32];
    (void)snprintf(path, sizeof path, "%s/%s", root->dirs[i], name);
    return access(path, F_OK) == 0;
}

static void make(const struct cgroup_root *root, int i, const char *name)
{
    char path[CGROUP_PATH + 32];
    (void)snprintf(path, sizeof path, "%s/%s", root->dirs[i], name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void drop(const struct cgroup_root *root, int i, const char *name)
{
    char path[CGROUP_PATH + 32];
    (void)snprintf(path, sizeof path, "%s/%s", root->dirs[i], name);
    assert_int_equal(rmdir(path), 0);
}

static void a_sweep_takes_what_is_empty(void **state)
{
    (void)state;
    struct cgroup_root root = {.n = 2}, none = {0},
                       gone = {.n = 1, .dirs = {"/tmp/cloche-no-such"}};
    for (int i = 0; i < root.n; i++) {
        (void)snprintf(root.dirs[i], CGROUP_PATH, "/tmp/cloche-test-cgroup.XXXXXX");
        assert_non_null(mkdtemp(root.dirs[i]));
        make(&root, i, "vm-1");
        make(&root, i, "vm-20-net");
        make(&root, i, "vm-3");
        make(&root, i, "another");
    }
    make(&root, 1, "vm-3/held");
    cgroup_root_sweep(&root);
    cgroup_root_sweep(&none);
    cgroup_root_sweep(&gone);
    for (int i = 0; i < root.n; i++) {
        assert_false(is_there(&root, i, "vm-1"));
        assert_false(is_there(&root, i, "vm-20-net"));
        assert_true(is_there(&root, i, "another"));
        assert_int_equal(is_there(&root, i, "vm-3"), i == 1);
    }
    drop(&root, 1, "vm-3/held");
    drop(&root, 1, "vm-3");
    for (int i = 0; i < root.n; i++) {
        drop(&root, i, "another");
        assert_int_equal(rmdir(root.dirs[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sweep_takes_what_is_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
