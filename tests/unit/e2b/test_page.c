/* tests/unit/e2b/test_page.c - pages of lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/page.h"

static void test_queries(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        size_t limit; /* 0 = refused */
        const char *token;
    } rows[] = {{NULL, 100, ""},
                {"", 100, ""},
                {"limit=", 100, ""},
                {"limit=1", 1, ""},
                {"a=b&limit=1000&nextToken=x%2Fy", 1000, "x/y"},
                {"nextToken=abc", 100, "abc"},
                {"limit=0", 0, ""},
                {"limit=1001", 0, ""},
                {"limit=-1", 0, ""},
                {"limit=ten", 0, ""},
                {"limit=1x", 0, ""},
                {"limit=99999999999999999999", 0, ""},
                {"limit=%zz", 0, ""},
                {"nextToken=%00", 0, ""}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct e2b_page p;
        struct cl_err err = {0};
        bool good = rows[i].limit > 0;
        if (e2b_page_read(rows[i].query, &p, &err) != (good ? 0 : -1))
            fail_msg("%s: %s", rows[i].query ? rows[i].query : "NULL", err.text);
        assert_int_equal(err.code, good ? CL_OK : CL_E_INVALID);
        if (good) {
            assert_int_equal(e2b_page_room(&p), rows[i].limit);
            assert_string_equal(p.token, rows[i].token);
        }
        e2b_page_fini(&p);
    }
}

static void test_a_page_is_full_or_there_is_no_more(void **state)
{
    (void)state;
    struct e2b_page p;
    assert_int_equal(e2b_page_read("limit=2", &p, NULL), 0);
    e2b_page_add(&p, json_integer(1));
    assert_true(e2b_page_goes_on(&p, "next"));
    assert_string_equal(p.token, "next");
    assert_int_equal(e2b_page_room(&p), 1);
    e2b_page_add(&p, json_integer(2));
    assert_false(e2b_page_goes_on(&p, "later"));
    assert_string_equal(p.token, "later"); /* where the client may go on */
    assert_int_equal(e2b_page_room(&p), 0);
    e2b_page_fini(&p);
    assert_int_equal(e2b_page_read("limit=2", &p, NULL), 0);
    assert_false(e2b_page_goes_on(&p, ""));
    assert_string_equal(p.token, "");
    e2b_page_fini(&p);
}

static void test_no_request_asks_for_ever(void **state)
{
    (void)state;
    struct e2b_page p;
    size_t n = 1;
    assert_int_equal(e2b_page_read(NULL, &p, NULL), 0);
    while (e2b_page_goes_on(&p, "next"))
        n++;
    assert_int_equal(n, E2B_PAGE_ASKS);
    assert_string_equal(p.token, "next");
    e2b_page_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_a_page_is_full_or_there_is_no_more),
        cmocka_unit_test(test_no_request_asks_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
