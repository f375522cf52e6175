/* tests/unit/redis/test_durability.c - which server may be used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "redis/client.h"

static void test_every_weaker_setting_is_named(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct rdb_facts f = {"7.0.15", "yes", "always", "no", "0", "noeviction"};
    assert_int_equal(rdb_check_durability(&f, RDB_DUR_ALWAYS, NULL), 0);
    struct rdb_facts g = {"6.2.0", "no", "no", "yes", "0", "allkeys-lru"};
    assert_int_equal(rdb_check_durability(&g, RDB_DUR_ALWAYS, &err), -1);
    assert_int_equal(err.code, CL_E_STATE);
    static const char *const names[] = {"redis_version", "appendonly", "appendfsync",
                                        "maxmemory-policy"};
    for (size_t i = 0; i < CL_COUNT(names); i++)
        assert_non_null(strstr(err.text, names[i]));
    f.appendfsync[0] = 'n', f.appendfsync[1] = 'o', f.appendfsync[2] = '\0';
    assert_int_equal(rdb_check_durability(&f, RDB_DUR_EVERYSEC, NULL), -1);
    assert_int_equal(rdb_check_durability(&f, RDB_DUR_NONE, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_weaker_setting_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
