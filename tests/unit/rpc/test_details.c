/* tests/unit/rpc/test_details.c - errors to google.rpc.Status and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "rpc/details.h"

static void round_trip(const struct cl_err *what, struct cl_err *ret_back)
{
    struct cl_buf buf;
    cl_buf_init(&buf, 8192);
    assert_int_equal(details_encode(what, &buf, NULL), 0);
    details_decode(cl_err_info(what->code)->grpc, what->text, buf.data, buf.len, ret_back);
    cl_buf_fini(&buf);
}

static void test_every_code_comes_back(void **state)
{
    (void)state;
    for (unsigned code = CL_OK + 1; code < CL_E_NR; code++) {
        struct cl_err what, back;
        (void)cl_fail(&what, (enum cl_code)code, 0, "text %u", code);
        what.retry_ms = code * 1001;
        (void)snprintf(what.subject, sizeof what.subject, "cpu-%u", code);
        round_trip(&what, &back);
        assert_int_equal(back.code, code);
        assert_string_equal(back.text, what.text);
        assert_string_equal(back.subject, what.subject);
        assert_int_equal(back.retry_ms, what.retry_ms);
    }
}

static void test_the_longest_error_fits(void **state)
{
    (void)state;
    struct cl_err what = {.code = CL_E_QUOTA, .retry_ms = 86400000}, back;
    memset(what.text, 'x', sizeof what.text - 1);
    memset(what.subject, 'y', sizeof what.subject - 1);
    round_trip(&what, &back);
    assert_string_equal(back.text, what.text);
    assert_string_equal(back.subject, what.subject);
}

static void test_text_cut_inside_a_character_stays_utf8(void **state)
{
    (void)state;
    struct cl_err what = {.code = CL_E_RATE, .subject = "a\xe2\x98"}, back;
    (void)snprintf(what.text, sizeof what.text, "cut \xe2\x98");
    round_trip(&what, &back);
    assert_int_equal(back.code, CL_E_RATE); /* not refused as bad UTF-8 */
    assert_string_equal(back.subject, "a");
    (void)snprintf(what.subject, sizeof what.subject, "a\xff-bcdefg");
    round_trip(&what, &back);
    assert_string_equal(back.subject, "a?-bcdefg");
}

static void test_other_peoples_details_map_by_status(void **state)
{
    (void)state;
    struct cl_err back;
    details_decode(7, "no", NULL, 0, &back);
    assert_int_equal(back.code, CL_E_DENIED);
    assert_string_equal(back.text, "no");
    details_decode(99, "?", (const uint8_t *)"\xff\xff junk", 7, &back);
    assert_int_equal(back.code, CL_E_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_comes_back),
        cmocka_unit_test(test_the_longest_error_fits),
        cmocka_unit_test(test_text_cut_inside_a_character_stays_utf8),
        cmocka_unit_test(test_other_peoples_details_map_by_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
