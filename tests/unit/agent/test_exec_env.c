/* tests/unit/agent/test_exec_env.c - agent/exec_env.h. */
#include "agent/exec_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static char command[] = "true";
static char *argv_true[] = {command};

static Cloche__V1__GuestExec request(void)
{
    Cloche__V1__GuestExec req;
    cloche__v1__guest_exec__init(&req);
    req.argv = argv_true;
    req.n_argv = 1;
    return req;
}

static const char *value_of(const struct exec_env *env, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->envp[i], name, len) == 0 && env->envp[i][len] == '=')
            return env->envp[i] + len + 1;
    return NULL;
}

static void test_the_baseline_is_there(void **state)
{
    (void)state;
    Cloche__V1__GuestExec req = request();
    CL_AUTO(exec_env_freep) struct exec_env *env = NULL;
    assert_int_equal(exec_env_new(&req, "/tmp/t", &env, NULL), 0);
    assert_string_equal(value_of(env, "HOME"), "/home/user");
    assert_string_equal(value_of(env, "TMPDIR"), "/tmp/t");
    assert_string_equal(value_of(env, "LANG"), "C.UTF-8");
    assert_string_equal(value_of(env, "TERM"), "dumb");
    assert_string_equal(env->cwd, "/home/user");
    assert_null(env->envp[env->n]);
    assert_string_equal(env->argv[0], "true");
    assert_null(env->argv[1]);
}

static void test_the_request_wins_over_the_baseline(void **state)
{
    (void)state;
    char home[] = "HOME", value[] = "/x", name[] = "A", empty[] = "";
    Cloche__V1__GuestEnv a, b;
    cloche__v1__guest_env__init(&a);
    cloche__v1__guest_env__init(&b);
    a.name = home;
    a.value = value;
    b.name = name;
    b.value = empty;
    Cloche__V1__GuestEnv *rows[] = {&a, &b, &b};
    Cloche__V1__GuestExec req = request();
    req.env = rows;
    req.n_env = CL_COUNT(rows);
    req.user = CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT;
    CL_AUTO(exec_env_freep) struct exec_env *env = NULL;
    assert_int_equal(exec_env_new(&req, "/tmp/t", &env, NULL), 0);
    assert_string_equal(value_of(env, "HOME"), "/x");
    assert_string_equal(value_of(env, "A"), "");
    assert_int_equal(env->n, 8);
    assert_string_equal(env->cwd, "/root");
}

static void test_bad_requests_are_refused(void **state)
{
    (void)state;
    struct exec_env *env = NULL;
    struct cl_err err = {0};
    Cloche__V1__GuestExec none;
    cloche__v1__guest_exec__init(&none);
    assert_int_equal(exec_env_new(&none, "/tmp/t", &env, &err), -1);
    Cloche__V1__GuestExec who = request();
    who.user = (Cloche__V1__GuestUser)99;
    assert_int_equal(exec_env_new(&who, "/tmp/t", &env, &err), -1);
    char name[] = "A=B";
    Cloche__V1__GuestEnv row;
    cloche__v1__guest_env__init(&row);
    Cloche__V1__GuestEnv *rows[] = {&row};
    row.name = name;
    Cloche__V1__GuestExec bad = request();
    bad.env = rows;
    bad.n_env = 1;
    assert_int_equal(exec_env_new(&bad, "/tmp/t", &env, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_null(env);
}

static void test_new_survives_each_failed_allocation(void **state)
{
    (void)state;
    Cloche__V1__GuestExec req = request();
    for (long nth = 0;; nth++) {
        CL_AUTO(exec_env_freep) struct exec_env *env = NULL;
        struct cl_err err = {0};
        cl_test_fail_alloc(nth);
        int rc = exec_env_new(&req, "/tmp/t", &env, &err);
        bool failed = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        if (!failed) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc < 0 && env == NULL && err.code == CL_E_NOMEM);
    }
}

static void test_temporary_names_differ(void **state)
{
    (void)state;
    char a[EXEC_TMPDIR_LEN], b[EXEC_TMPDIR_LEN];
    exec_env_tmpdir(a);
    exec_env_tmpdir(b);
    assert_string_not_equal(a, b);
    assert_int_equal(strncmp(a, "/tmp/exec-", 10), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_baseline_is_there),
        cmocka_unit_test(test_the_request_wins_over_the_baseline),
        cmocka_unit_test(test_bad_requests_are_refused),
        cmocka_unit_test(test_new_survives_each_failed_allocation),
        cmocka_unit_test(test_temporary_names_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
