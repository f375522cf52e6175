/* tests/unit/cli/test_spec.c - requests from options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/spec.h"

static char *tail[] = {(char *)(uintptr_t) "ls", (char *)(uintptr_t) "-l"};
static const struct args words = {.tail = tail, .n_tail = 2};

static void test_options_land_in_the_message(void **state)
{
    (void)state;
    struct cli_opts o = {.cpus = 2,
                         .memory = 512 * CL_MIB,
                         .disk = CL_GIB + 1,
                         .timeout = 5,
                         .retry = 2,
                         .workdir = "/tmp",
                         .env = {{"A=1", "B="}, 2},
                         .labels = {{"k=v"}, 1}};
    struct spec *s = NULL;
    assert_int_equal(spec_new(&o, "base", &words, &s, NULL), 0);
    assert_string_equal(s->job.template_, "base");
    assert_int_equal(s->resources.vcpus, 2);
    assert_int_equal(s->resources.memory_mib, 512);
    assert_int_equal(s->resources.disk_mib, 1025);
    assert_int_equal(s->job.max_attempts, 3);
    assert_int_equal(s->command.n_argv, 2);
    assert_string_equal(s->command.cwd, "/tmp");
    assert_string_equal(s->command.env[1]->name, "B");
    assert_string_equal(s->command.env[1]->value, "");
    assert_string_equal(s->job.labels[0]->value, "v");
    assert_null(s->command.pty);
    spec_free(s);
}

static void test_a_terminal_has_a_size(void **state)
{
    (void)state;
    struct cli_opts o = {.tty = true};
    struct spec *s = NULL;
    assert_int_equal(spec_new(&o, "base", &words, &s, NULL), 0);
    assert_non_null(s->command.pty);
    assert_true(s->command.pty->rows > 0 && s->command.pty->columns > 0);
    assert_true(s->command.open_stdin);
    spec_free(s);
}

static void test_a_detached_job_has_no_stdin(void **state)
{
    (void)state;
    struct cli_opts o = {.detach = true, .interactive = true};
    struct spec *s = NULL;
    assert_int_equal(spec_new(&o, "base", &words, &s, NULL), 0);
    assert_false(s->command.open_stdin);
    spec_free(s);
}

static void test_nonsense_is_refused_with_the_option(void **state)
{
    (void)state;
    static const struct {
        struct cli_opts o;
        const char *says;
    } rows[] = {
        {{.memory = 512}, "--memory"},     {{.disk = UINT64_MAX}, "--disk"},
        {{.cpus = 65}, "--cpus"},          {{.retry = 5000}, "--retry"},
        {{.env = {{"nope"}, 1}}, "--env"}, {{.labels = {{"=x"}, 1}}, "--label"},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct spec *s = NULL;
        struct cl_err err = {0};
        assert_int_equal(spec_new(&rows[i].o, "base", &words, &s, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_null(s);
    }
}

static void test_a_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct cli_opts o = {0};
    struct spec *s = NULL;
    struct cl_err err = {0};
    cl_test_fail_alloc(0);
    int rc = spec_new(&o, "base", &words, &s, &err);
    cl_test_fail_alloc(-1);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, CL_E_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_land_in_the_message),
        cmocka_unit_test(test_a_terminal_has_a_size),
        cmocka_unit_test(test_a_detached_job_has_no_stdin),
        cmocka_unit_test(test_nonsense_is_refused_with_the_option),
        cmocka_unit_test(test_a_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
