/* tests/unit/worker/test_guest_env.c - worker/guest_env.h. */
#include "worker/guest_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

static void test_variables_are_passed_on_in_their_order(void **state)
{
    (void)state;
    Cloche__V1__EnvVar a = CLOCHE__V1__ENV_VAR__INIT, b = CLOCHE__V1__ENV_VAR__INIT;
    Cloche__V1__EnvVar *vars[] = {&a, &b};
    struct guest_env env;
    a.name = (char *)(uintptr_t) "A";
    a.value = (char *)(uintptr_t) "1";
    b.name = (char *)(uintptr_t) "B";
    b.value = (char *)(uintptr_t) "";
    assert_int_equal(guest_env_init(&env, 1 + CL_COUNT(vars), NULL), 0);
    guest_env_add(&env, "OURS", "0");
    guest_env_add_all(&env, vars, CL_COUNT(vars));
    assert_int_equal(env.n, 3);
    assert_string_equal(env.list[0]->name, "OURS");
    assert_string_equal(env.list[1]->name, "A");
    assert_string_equal(env.list[1]->value, "1");
    assert_string_equal(env.list[2]->name, "B");
    assert_string_equal(env.list[2]->value, "");
    guest_env_fini(&env);
}

static void test_none_is_fine(void **state)
{
    (void)state;
    struct guest_env env;
    assert_int_equal(guest_env_init(&env, 0, NULL), 0);
    guest_env_add_all(&env, NULL, 0);
    assert_int_equal(env.n, 0);
    guest_env_fini(&env);
}

static void test_it_survives_each_failed_allocation(void **state)
{
    (void)state;
    for (long nth = 0;; nth++) {
        struct guest_env env;
        struct cl_err err = {0};
        cl_test_fail_alloc(nth);
        int rc = guest_env_init(&env, 3, &err);
        bool failed = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        guest_env_fini(&env);
        if (!failed) {
            assert_int_equal(rc, 0);
            assert_int_equal(nth, 2);
            return;
        }
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, CL_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_are_passed_on_in_their_order),
        cmocka_unit_test(test_none_is_fine),
        cmocka_unit_test(test_it_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
