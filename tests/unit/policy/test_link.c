/* tests/unit/policy/test_link.c - links to ports of a sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "policy/link.h"

static const uint8_t pepper[32] = {7}, other[32] = {8};
static const struct link_facts facts = {.sandbox = "sbx_01jabcdefghjkmnpqrstvwxyz0",
                                        .key_id = "0123456789abcdef",
                                        .port = 8000,
                                        .expires_s = 2000000000};

static void make(const struct link_facts *f, char text[static LINK_TEXT])
{
    struct cl_err err = {0};
    assert_int_equal(link_make(f, pepper, sizeof pepper, text, &err), 0);
}

static int try(const char *text, const uint8_t *with, uint64_t now_s, struct link_facts *ret)
{
    struct cl_err err = {0};
    int rc = link_open(text, with, sizeof pepper, now_s, ret, &err);
    if (rc < 0)
        assert_int_equal(err.code, CL_E_UNAUTH);
    return rc;
}

static void test_what_is_made_opens_and_says_the_same(void **state)
{
    (void)state;
    char text[LINK_TEXT];
    struct link_facts back;
    make(&facts, text);
    assert_int_equal(strlen(text), LINK_TEXT - 1);
    assert_memory_equal(text, "clp_01jabcdefghjkmnpqrstvwxyz0_", 31);
    assert_int_equal(strspn(text + 31, "0123456789abcdefghjkmnpqrstvwxyz"), LINK_SECRET - 1);
    assert_true(LINK_SECRET - 1 <= 63); /* a label of a host name */
    assert_int_equal(try(text, pepper, 1999999999, &back), 0);
    assert_string_equal(back.sandbox, facts.sandbox);
    assert_string_equal(back.key_id, facts.key_id);
    assert_int_equal(back.port, 8000);
    assert_int_equal(back.expires_s, 2000000000);
}

static void test_it_ends_at_its_time_or_never(void **state)
{
    (void)state;
    char text[LINK_TEXT];
    struct link_facts back, forever = facts;
    make(&facts, text);
    assert_int_equal(try(text, pepper, 2000000000, &back), -1);
    forever.expires_s = 0;
    forever.port = 0;
    make(&forever, text);
    assert_int_equal(try(text, pepper, UINT64_MAX, &back), 0);
    assert_int_equal(back.port, 0);
}

static void test_no_character_can_be_another(void **state)
{
    (void)state;
    static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyzA_-.il ";
    char text[LINK_TEXT], changed[LINK_TEXT];
    struct link_facts back;
    make(&facts, text);
    for (size_t i = 0; i < LINK_TEXT - 1; i++) {
        for (const char *c = letters; *c; c++) {
            memcpy(changed, text, sizeof text);
            changed[i] = *c;
            if (*c != text[i])
                assert_int_equal(try(changed, pepper, 1, &back), -1);
        }
        memcpy(changed, text, sizeof text);
        changed[i] = '\0';
        assert_int_equal(try(changed, pepper, 1, &back), -1);
    }
    assert_int_equal(try(text, other, 1, &back), -1);
    assert_int_equal(try("", pepper, 1, &back), -1);
}

static void test_facts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    char text[LINK_TEXT];
    struct cl_err err = {0};
    struct link_facts bad[] = {facts, facts, facts, facts};
    (void)snprintf(bad[0].sandbox, sizeof bad[0].sandbox, "job_01jabcdefghjkmnpqrstvwxyz0");
    (void)snprintf(bad[1].key_id, sizeof bad[1].key_id, "token");
    bad[2].port = 65536;
    bad[3].expires_s = UINT64_C(1) << 40;
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        assert_int_equal(link_make(&bad[i], pepper, sizeof pepper, text, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_made_opens_and_says_the_same),
        cmocka_unit_test(test_it_ends_at_its_time_or_never),
        cmocka_unit_test(test_no_character_can_be_another),
        cmocka_unit_test(test_facts_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
