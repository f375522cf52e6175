/* tests/unit/worker/test_template_watch.c - worker/template_watch.h: what a look tries, and what
 * not.
 */
#include "worker/template_watch.h"

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

static struct bench {
    char dir[64], tried[1024];
    struct cl_loop *loop;
    int n;
} b;

static int keep(void *arg, const char *name, struct cl_err *err)
{
    (void)arg;
    b.n++;
    size_t n = strlen(b.tried);
    (void)snprintf(b.tried + n, sizeof b.tried - n, "%s ", name);
    return strcmp(name, "none") == 0 ? cl_fail(err, CL_E_NOTFOUND, 0, "not built") : 0;
}

static void forget(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    fail(); /* nothing goes within one look */
}

static void make(const char *name, const char *build, bool is_of_image)
{
    char path[256], to[256];
    (void)snprintf(path, sizeof path, "%s/%s/%s", b.dir, name, build);
    assert_int_equal(cl_mkdir_p(path, 0755, NULL), 0);
    if (is_of_image) {
        (void)snprintf(to, sizeof to, "%s/source", path);
        assert_int_equal(cl_file_write(to, "image=x\n", 8, 0644, NULL), 0);
    }
    (void)snprintf(to, sizeof to, "%s/%s/current", b.dir, name);
    assert_int_equal(symlink(build, to), 0);
}

static void look(const char *names)
{
    struct template_watch *w = NULL;
    struct template_watch_options options = {
        .dir = b.dir, .names = names, .keep = keep, .forget = forget};
    b.n = 0;
    b.tried[0] = '\0';
    assert_int_equal(template_watch_new(&options, b.loop, &w, NULL), 0);
    template_watch_free(w);
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){.dir = "/tmp/template-watch.XXXXXX"};
    return mkdtemp(b.dir) && cl_loop_new(&b.loop, NULL) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cl_loop_free(b.loop);
    return cl_remove_tree(b.dir, NULL);
}

static void test_names_are_tried_in_their_order(void **state)
{
    (void)state;
    make("base", "0123456789abcdef", false);
    look("python, base,,none,base");
    assert_string_equal(b.tried, "python base none ");
}

static void test_images_are_those_of_container_images(void **state)
{
    (void)state;
    make("base", "0123456789abcdef", false);
    make("app", "0123456789abcdef", true);
    make("Not-a-name", "0123456789abcdef", true);
    look("base,images");
    assert_string_equal(b.tried, "base app ");
    look("images,app");
    assert_string_equal(b.tried, "app ");
}

/* Who takes builds away asks for it alone (cli/prune.c). */
static void test_the_folder_is_locked_while_it_is_watched(void **state)
{
    (void)state;
    struct template_watch *w = NULL;
    struct template_watch_options options = {
        .dir = b.dir, .names = "base", .keep = keep, .forget = forget};
    struct cl_err err = {0};
    int fd;
    assert_int_equal(template_watch_new(&options, b.loop, &w, NULL), 0);
    assert_int_equal(cl_lock_folder(b.dir, true, &fd, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    template_watch_free(w);
    assert_int_equal(cl_lock_folder(b.dir, true, &fd, NULL), 0);
    assert_int_equal(close(fd), 0);
}

static void test_there_is_a_limit(void **state)
{
    (void)state;
    char name[32];
    for (int i = 0; i < TEMPLATE_WATCH_MAX + 5; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        make(name, "0123456789abcdef", true);
    }
    look("images");
    assert_int_equal(b.n, TEMPLATE_WATCH_MAX);
}

static void test_which_build_is_current(void **state)
{
    (void)state;
    char build[TEMPLATE_BUILD], path[128];
    make("base", "0123456789abcdef", false);
    template_current(b.dir, "base", build);
    assert_string_equal(build, "0123456789abcdef");
    template_current(b.dir, "none", build);
    assert_string_equal(build, "");
    (void)snprintf(path, sizeof path, "%s/folder/current", b.dir);
    assert_int_equal(cl_mkdir_p(path, 0755, NULL), 0);
    template_current(b.dir, "folder", build);
    assert_string_equal(build, "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names_are_tried_in_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_images_are_those_of_container_images, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_folder_is_locked_while_it_is_watched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_there_is_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_which_build_is_current, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
