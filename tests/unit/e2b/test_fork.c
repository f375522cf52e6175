/* tests/unit/e2b/test_fork.c - what the SDKs say about forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/fork.h"
#include "mcp/json.h"

enum { DAY_S = 86400 };

static void test_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t seconds; /* 0 = refused */
        size_t count;
    } rows[] = {{"{}", 15, 1},
                {"{\"timeout\":null,\"count\":null}", 15, 1},
                {"{\"timeout\":300}", 300, 1},
                {"{\"count\":3}", 15, 3},
                {"{\"timeout\":1,\"count\":20,\"other\":true}", 1, 20},
                {"{\"timeout\":86400,\"count\":1}", 86400, 1},
                {"{\"timeout\":0}", 0, 0},
                {"{\"timeout\":-1}", 0, 0},
                {"{\"timeout\":86401}", 0, 0},
                {"{\"timeout\":1.5}", 0, 0},
                {"{\"timeout\":\"15\"}", 0, 0},
                {"{\"count\":0}", 0, 0},
                {"{\"count\":21}", 0, 0},
                {"{\"count\":-3}", 0, 0},
                {"{\"count\":2.0}", 0, 0},
                {"{\"count\":true}", 0, 0},
                {"{\"count\":9223372036854775807}", 0, 0}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        json_t *body = NULL;
        struct cl_err err = {0};
        struct e2b_fork got = {.seconds = 77, .count = 77};
        assert_int_equal(mcp_json_parse(rows[i].text, strlen(rows[i].text), &body, NULL), 0);
        bool good = rows[i].seconds > 0;
        if (e2b_fork_read(body, DAY_S, &got, &err) != (good ? 0 : -1))
            fail_msg("%s: %s", rows[i].text, err.text);
        assert_int_equal(err.code, good ? CL_OK : CL_E_INVALID);
        assert_int_equal(got.seconds, good ? rows[i].seconds : 77);
        assert_int_equal(got.count, good ? rows[i].count : 77);
        json_decref(body);
    }
    struct e2b_fork got;
    assert_int_equal(e2b_fork_read(NULL, DAY_S, &got, NULL), 0);
    assert_int_equal(got.count, 1);
}

static void test_what_room_and_worker_say_is_of_one_fork(void **state)
{
    (void)state;
    static const enum cl_code all[] = {CL_E_INVALID, CL_E_UNAUTH, CL_E_DENIED, CL_E_NOTFOUND,
                                       CL_E_EXISTS,  CL_E_STATE,  CL_E_UNIMPL},
                              one[] = {CL_E_QUOTA,  CL_E_RATE,     CL_E_QUEUE, CL_E_UNAVAILABLE,
                                       CL_E_NOMEM,  CL_E_DEADLINE, CL_E_SYS,   CL_E_PEER,
                                       CL_E_TOOBIG, CL_E_GUEST,    CL_OK};
    for (size_t i = 0; i < CL_COUNT(all); i++)
        assert_true(e2b_fork_ends_all(all[i]));
    for (size_t i = 0; i < CL_COUNT(one); i++)
        assert_false(e2b_fork_ends_all(one[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_what_room_and_worker_say_is_of_one_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
