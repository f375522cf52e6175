/* tests/unit/cli/test_prune.c - which builds go, and which stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cli/plan.h"
#include "cli/prune.h"

#define OLD "00000000000000aa"
#define OLDER "00000000000000bb"
#define NOW "00000000000000cc"

static struct bench {
    char dir[sizeof "/tmp/cloche-prune-XXXXXX"];
    int worker; /* its lock of the folder */
} b;

static const char *in(const char *what)
{
    static char path[PATH_TEXT];
    path_join(path, b.dir, what);
    return path;
}

static bool there(const char *what)
{
    return access(in(what), F_OK) == 0;
}

static void make_build(const char *what)
{
    char path[PATH_TEXT];
    assert_int_equal(cl_mkdir_p(in(what), 0755, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/rootfs.img", in(what));
    assert_int_equal(cl_file_write(path, "0123", 4, 0644, NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){.dir = "/tmp/cloche-prune-XXXXXX"};
    if (!mkdtemp(b.dir))
        return -1;
    make_build("app/" OLD);
    make_build("app/" OLDER);
    make_build("app/" NOW);
    make_build("other/" OLD);
    assert_int_equal(symlink(NOW, in("app/current")), 0);
    assert_int_equal(symlink(OLD, in("other/current")), 0);
    return cl_lock_folder(b.dir, false, &b.worker, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    if (b.worker >= 0)
        (void)close(b.worker);
    return cl_remove_tree(b.dir, NULL);
}

/* The state that is said of a build; NULL: nothing is. */
static const char *state_of(const json_t *rows, const char *build)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "build")), build) == 0)
            return json_string_value(json_object_get(row, "state"));
    }
    return NULL;
}

static json_t *must_prune(struct prune_options o)
{
    json_t *rows = NULL;
    o.dir = b.dir;
    assert_int_equal(prune(&o, &rows, NULL), 0);
    return rows;
}

static void test_what_nothing_needs_goes(void **state)
{
    (void)state;
    json_t *rows = must_prune((struct prune_options){0});
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(state_of(rows, OLD), "removed");
    assert_string_equal(state_of(rows, OLDER), "removed");
    assert_true(json_integer_value(json_object_get(json_array_get(rows, 0), "bytes")) > 0);
    json_decref(rows);
    assert_false(there("app/" OLD) || there("app/" OLDER));
    assert_true(there("app/" NOW "/rootfs.img") && there("other/" OLD "/rootfs.img"));
}

static void test_what_is_locked_stays(void **state)
{
    (void)state;
    int fd;
    assert_int_equal(cl_lock_folder(in("app/" OLD), false, &fd, NULL), 0);
    json_t *rows = must_prune((struct prune_options){.name = "app"});
    assert_string_equal(state_of(rows, OLD), "in use");
    assert_string_equal(state_of(rows, OLDER), "removed");
    json_decref(rows);
    assert_true(there("app/" OLD "/rootfs.img"));
    assert_int_equal(close(fd), 0);
    rows = must_prune((struct prune_options){.name = "app"});
    assert_string_equal(state_of(rows, OLD), "removed");
    json_decref(rows);
}

static void test_without_a_worker_nobody_knows(void **state)
{
    (void)state;
    struct prune_options o = {.dir = b.dir};
    struct cl_err err = {0};
    json_t *rows = NULL;
    assert_int_equal(close(b.worker), 0);
    b.worker = -1;
    assert_int_equal(prune(&o, &rows, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "--force"));
    assert_true(there("app/" OLD));
    o.force = true;
    assert_int_equal(prune(&o, &rows, &err), 0);
    json_decref(rows);
    assert_false(there("app/" OLD));
}

static void test_a_look_changes_nothing(void **state)
{
    (void)state;
    json_t *rows = must_prune((struct prune_options){.dry_run = true});
    assert_string_equal(state_of(rows, OLD), "not needed");
    json_decref(rows);
    assert_true(there("app/" OLD) && there("app/" OLDER));
    assert_false(there(".putting"));
}

static void test_a_template_that_was_removed_goes_with_its_builds(void **state)
{
    (void)state;
    int fd;
    assert_int_equal(unlink(in("app/current")), 0);
    assert_int_equal(cl_lock_folder(in("app/" NOW), false, &fd, NULL), 0);
    json_decref(must_prune((struct prune_options){0}));
    assert_true(there("app/" NOW));
    assert_int_equal(close(fd), 0);
    json_decref(must_prune((struct prune_options){0}));
    assert_false(there("app"));
    assert_true(there("other"));
}

static void test_what_is_no_build_is_not_touched(void **state)
{
    (void)state;
    make_build("app/00000000000000aa.old");
    make_build("app/0000000000000XYZ");
    make_build(".cache/rootfs");
    make_build("Lost+found/" OLD);
    assert_int_equal(symlink("app", in("link")), 0);
    json_decref(must_prune((struct prune_options){0}));
    assert_true(there("app/00000000000000aa.old") && there("app/0000000000000XYZ"));
    assert_true(there(".cache/rootfs") && there("Lost+found/" OLD));
}

static void test_a_name_that_is_none_is_told(void **state)
{
    (void)state;
    struct prune_options o = {.dir = b.dir, .name = "none"};
    struct cl_err err = {0};
    json_t *rows = NULL;
    assert_int_equal(prune(&o, &rows, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_nothing_needs_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_locked_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_worker_nobody_knows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_look_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_template_that_was_removed_goes_with_its_builds,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_no_build_is_not_touched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_name_that_is_none_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
