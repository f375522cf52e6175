/* tests/unit/worker/test_kept_is.c - of which units there are records: sandboxes and snapshots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/kept.h"

#define ID "_01arz3ndektsv4rrffq69g5fav"

enum {
    JOB = CLOCHE__V1__UNIT_KIND__UNIT_KIND_JOB,
    SANDBOX = CLOCHE__V1__UNIT_KIND__UNIT_KIND_SANDBOX,
    SNAPSHOT = CLOCHE__V1__UNIT_KIND__UNIT_KIND_SNAPSHOT,
};

static void test_an_id_and_a_kind_that_belong_together(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        int kind;
        uint64_t ttl_ns;
        bool is_id, is;
    } rows[] = {
        {"sbx" ID, SANDBOX, 1, true, true},
        {"sbx" ID, SANDBOX, 0, true, true},
        {"sbx" ID, SNAPSHOT, 1, true, false},
        {"sbx" ID, JOB, 1, true, false},
        {"snp" ID, SNAPSHOT, 1, true, true},
        {"snp" ID, SNAPSHOT, 0, true, false}, /* it would end at once, or never */
        {"snp" ID, SANDBOX, 1, true, false},
        {"snp" ID, 4, 1, true, false},
        {"job" ID, JOB, 1, false, false},
        {"snp_1", SNAPSHOT, 1, false, false},
        {"", 0, 0, false, false},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        Cloche__V1__Assign a = CLOCHE__V1__ASSIGN__INIT;
        a.unit_id = (char *)(uintptr_t)rows[i].id;
        a.kind = (Cloche__V1__UnitKind)rows[i].kind;
        a.ttl_ns = rows[i].ttl_ns;
        assert_int_equal(kept_is_id(rows[i].id), rows[i].is_id);
        assert_int_equal(kept_is(&a), rows[i].is);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_id_and_a_kind_that_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
