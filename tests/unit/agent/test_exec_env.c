/* tests/unit/agent/test_exec_env.c - agent/exec_env.h. */
#include "agent/exec_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static struct people people; /* of a template without an image of its own */

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
    assert_int_equal(exec_env_new(&req, &people, "/tmp/t", &env, NULL), 0);
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
    assert_int_equal(exec_env_new(&req, &people, "/tmp/t", &env, NULL), 0);
    assert_string_equal(value_of(env, "HOME"), "/x");
    assert_string_equal(value_of(env, "A"), "");
    assert_int_equal(env->n, 8);
    assert_string_equal(env->cwd, "/root");
}

/* What a container image says stands between the two, and its user is `user`. */
static void test_an_image_has_its_say(void **state)
{
    (void)state;
    static const char text[] = "name=node\0home=/home/node\0cwd=/app\0"
                               "env=PATH=/opt/bin:/bin\0env=LANG=C\0env=A=image";
    struct image_conf image;
    struct people theirs;
    char a[] = "A", value[] = "request";
    Cloche__V1__GuestEnv row;
    cloche__v1__guest_env__init(&row);
    row.name = a;
    row.value = value;
    Cloche__V1__GuestEnv *rows[] = {&row};
    Cloche__V1__GuestExec req = request();
    CL_AUTO(exec_env_freep) struct exec_env *user = NULL;
    CL_AUTO(exec_env_freep) struct exec_env *root = NULL;
    assert_int_equal(image_conf_parse(text, sizeof text, &image, NULL), 0);
    assert_int_equal(people_init(&theirs, &image, NULL), 0);
    assert_int_equal(exec_env_new(&req, &theirs, "/tmp/t", &user, NULL), 0);
    assert_string_equal(value_of(user, "USER"), "node");
    assert_string_equal(value_of(user, "HOME"), "/home/node");
    assert_string_equal(value_of(user, "PATH"), "/home/node/.local/bin:/opt/bin:/bin");
    assert_string_equal(value_of(user, "LANG"), "C");
    assert_string_equal(value_of(user, "A"), "image");
    assert_string_equal(user->cwd, "/app");
    assert_int_equal(user->who->id, AGENT_USER_ID);
    req.env = rows;
    req.n_env = 1;
    req.user = CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT;
    assert_int_equal(exec_env_new(&req, &theirs, "/tmp/t", &root, NULL), 0);
    assert_string_equal(value_of(root, "HOME"), "/root");
    assert_string_equal(value_of(root, "PATH"), "/opt/bin:/bin");
    assert_string_equal(value_of(root, "A"), "request");
    assert_string_equal(root->cwd, "/app");
}

static void test_bad_requests_are_refused(void **state)
{
    (void)state;
    struct exec_env *env = NULL;
    struct cl_err err = {0};
    Cloche__V1__GuestExec none;
    cloche__v1__guest_exec__init(&none);
    assert_int_equal(exec_env_new(&none, &people, "/tmp/t", &env, &err), -1);
    Cloche__V1__GuestExec who = request();
    who.user = (Cloche__V1__GuestUser)99;
    assert_int_equal(exec_env_new(&who, &people, "/tmp/t", &env, &err), -1);
    char name[] = "A=B";
    Cloche__V1__GuestEnv row;
    cloche__v1__guest_env__init(&row);
    Cloche__V1__GuestEnv *rows[] = {&row};
    row.name = name;
    Cloche__V1__GuestExec bad = request();
    bad.env = rows;
    bad.n_env = 1;
    assert_int_equal(exec_env_new(&bad, &people, "/tmp/t", &env, &err), -1);
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
        int rc = exec_env_new(&req, &people, "/tmp/t", &env, &err);
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
        cmocka_unit_test(test_an_image_has_its_say),
        cmocka_unit_test(test_bad_requests_are_refused),
        cmocka_unit_test(test_new_survives_each_failed_allocation),
        cmocka_unit_test(test_temporary_names_differ),
    };
    return people_init(&people, &(struct image_conf){0}, NULL) < 0
               ? 1
               : cmocka_run_group_tests(tests, NULL, NULL);
}
