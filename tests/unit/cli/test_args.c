/* tests/unit/cli/test_args.c - a command line from a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/args.h"

struct values {
    bool json, interactive, tty;
    const char *name;
    uint64_t n, bytes, ns;
    struct arg_list env;
};

#define AT(field) offsetof(struct values, field)
static const struct arg_opt opts[] = {
    {"json", 0, ARG_FLAG, AT(json), NULL, ""},
    {"interactive", 'i', ARG_FLAG, AT(interactive), NULL, ""},
    {"tty", 't', ARG_FLAG, AT(tty), NULL, ""},
    {"name", 'n', ARG_STRING, AT(name), "X", ""},
    {"number", 0, ARG_U64, AT(n), "N", ""},
    {"memory", 'm', ARG_BYTES, AT(bytes), "N", ""},
    {"timeout", 0, ARG_DURATION, AT(ns), "T", ""},
    {"env", 'e', ARG_LIST, AT(env), "K=V", ""},
};
static const struct arg_spec plain = {opts, CL_COUNT(opts), 0, 2, false};
static const struct arg_spec tailed = {opts, CL_COUNT(opts), 1, 1, true};

struct parsed {
    struct values v;
    struct args a;
    struct cl_err err;
    int rc;
};

static struct parsed parse(const struct arg_spec *spec, int argc, const char **argv)
{
    struct parsed p = {0};
    p.rc = args_parse(spec, argc, (char **)(uintptr_t)argv, &p.v, &p.a, &p.err);
    return p;
}
#define PARSE(spec, ...) \
    parse(spec, (int)CL_COUNT(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

static void test_values_come_in_both_forms(void **state)
{
    (void)state;
    struct parsed p =
        PARSE(&plain, "--name", "a", "--number=7", "-m", "512MiB", "--timeout", "30s", "-nb");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.v.name, "b");
    assert_int_equal(p.v.n, 7);
    assert_int_equal(p.v.bytes, 512 * CL_MIB);
    assert_int_equal(p.v.ns, 30 * CL_NS_PER_S);
}

static void test_flags_cluster(void **state)
{
    (void)state;
    struct parsed p = PARSE(&plain, "-it", "--json");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.interactive && p.v.tty && p.v.json);
    p = PARSE(&plain, "-itn", "x");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.v.name, "x");
}

static void test_lists_keep_their_order(void **state)
{
    (void)state;
    struct parsed p = PARSE(&plain, "-e", "A=1", "--env=B=2");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.env.n, 2);
    assert_string_equal(p.v.env.v[0], "A=1");
    assert_string_equal(p.v.env.v[1], "B=2");
}

static void test_the_command_is_left_alone(void **state)
{
    (void)state;
    struct parsed p = PARSE(&tailed, "--json", "base", "--", "ls", "--json", "-l");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.a.n_pos, 1);
    assert_int_equal(p.a.n_tail, 3);
    assert_string_equal(p.a.tail[1], "--json");
    p = PARSE(&tailed, "base", "ls", "-l", "--", "x");
    assert_int_equal(p.a.n_tail, 4);
    assert_string_equal(p.a.tail[1], "-l");
    p = PARSE(&tailed, "base", "--json", "--", "ls");
    assert_true(p.v.json);
    assert_int_equal(p.a.n_tail, 1);
}

static void test_a_tail_may_be_missing(void **state)
{
    (void)state;
    struct parsed p = PARSE(&tailed, "base");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.a.n_tail, 0);
    p = PARSE(&tailed, "base", "--");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.a.n_tail, 0);
}

static void test_a_dash_alone_is_a_word(void **state)
{
    (void)state;
    struct parsed p = PARSE(&plain, "-", "--", "-x");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.a.n_pos, 2);
    assert_string_equal(p.a.pos[1], "-x");
}

static void test_mistakes_name_the_word(void **state)
{
    (void)state;
    static const struct {
        const char *argv[3];
        int argc;
        const char *says;
    } rows[] = {
        {{"--nope"}, 1, "--nope"},
        {{"-x"}, 1, "-x"},
        {{"--name"}, 1, "--name"},
        {{"-n"}, 1, "-n"},
        {{"--json=1"}, 1, "no value"},
        {{"--number", "x"}, 2, "--number"},
        {{"--memory=12parsecs"}, 1, "--memory"},
        {{"a", "b", "c"}, 3, "'c'"},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct parsed p = parse(&plain, rows[i].argc, (const char **)(uintptr_t)rows[i].argv);
        assert_int_equal(p.rc, -1);
        assert_int_equal(p.err.code, CL_E_INVALID);
        assert_non_null(strstr(p.err.text, rows[i].says));
    }
}

static void test_missing_positionals_are_refused(void **state)
{
    (void)state;
    struct parsed p = PARSE(&tailed, "--json");
    assert_int_equal(p.rc, -1);
    p = PARSE(&tailed, "--", "ls");
    assert_int_equal(p.rc, -1);
}

static void test_help_wins_but_not_in_the_command(void **state)
{
    (void)state;
    struct parsed p = PARSE(&tailed, "--help");
    assert_int_equal(p.rc, 0);
    assert_true(p.a.help);
    p = PARSE(&tailed, "base", "--", "ls", "--help");
    assert_false(p.a.help);
}

static void test_a_list_has_a_limit(void **state)
{
    (void)state;
    const char *argv[2 * (ARGS_LIST + 1)];
    for (size_t i = 0; i < CL_COUNT(argv); i += 2) {
        argv[i] = "-e";
        argv[i + 1] = "A=1";
    }
    struct parsed p = parse(&plain, (int)CL_COUNT(argv), argv);
    assert_int_equal(p.rc, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_in_both_forms),
        cmocka_unit_test(test_flags_cluster),
        cmocka_unit_test(test_lists_keep_their_order),
        cmocka_unit_test(test_the_command_is_left_alone),
        cmocka_unit_test(test_a_tail_may_be_missing),
        cmocka_unit_test(test_a_dash_alone_is_a_word),
        cmocka_unit_test(test_mistakes_name_the_word),
        cmocka_unit_test(test_missing_positionals_are_refused),
        cmocka_unit_test(test_help_wins_but_not_in_the_command),
        cmocka_unit_test(test_a_list_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
