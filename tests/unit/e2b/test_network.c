/* tests/unit/e2b/test_network.c - what `network` of a new sandbox says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/network.h"
#include "mcp/json.h"

static int read_text(const char *text, struct e2b_network *ret, struct cl_err *err)
{
    json_t *v = NULL;
    assert_int_equal(mcp_json_parse(text, strlen(text), &v, NULL), 0);
    int rc = e2b_network_read(json_object_get(v, "n"), ret, err);
    json_decref(v);
    return rc;
}

static void test_what_is_served(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *first;
        bool is_private;
    } rows[] = {
        {"{}", 0, "", false},
        {"{\"n\":null}", 0, "", false},
        {"{\"n\":{}}", 0, "", false},
        {"{\"n\":{\"allowOut\":null,\"denyOut\":null,\"rules\":null}}", 0, "", false},
        {"{\"n\":{\"allowPublicTraffic\":true}}", 0, "", false},
        {"{\"n\":{\"allowPublicTraffic\":null}}", 0, "", false},
        {"{\"n\":{\"allowPublicTraffic\":false}}", 0, "", true},
        {"{\"n\":{\"allowOut\":[\"a.org\",\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}}", 2, "a.org:*",
         false},
        {"{\"n\":{\"allowOut\":[\"0.0.0.0/0\"],\"denyOut\":[\"0.0.0.0/0\"],"
         "\"allowPublicTraffic\":false}}",
         1, "public", true},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct e2b_network got;
        assert_int_equal(read_text(rows[i].text, &got, NULL), 0);
        assert_int_equal(got.n, rows[i].n);
        assert_int_equal(got.is_private, rows[i].is_private);
        if (got.n > 0)
            assert_string_equal(got.text[0], rows[i].first);
    }
}

static void test_what_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum cl_code code;
    } rows[] = {
        {"{\"n\":[]}", CL_E_INVALID},
        {"{\"n\":{\"allowPublicTraffic\":\"no\"}}", CL_E_INVALID},
        {"{\"n\":{\"allowPublicTraffic\":false,\"maskRequestHost\":\"a\"}}", CL_E_UNIMPL},
        {"{\"n\":{\"allowOut\":[\"a\"]}}", CL_E_UNIMPL},
        {"{\"n\":{\"allowOut\":[],\"denyOut\":[\"0.0.0.0/0\"]}}", CL_E_UNIMPL},
        {"{\"n\":{\"denyOut\":[\"0.0.0.0/0\"]}}", CL_E_UNIMPL},
        {"{\"n\":{\"allowOut\":[\"a\"],\"denyOut\":[\"1.1.1.1\"]}}", CL_E_UNIMPL},
        {"{\"n\":{\"allowOut\":[\"a\"],\"denyOut\":[\"0.0.0.0/0\",\"b\"]}}", CL_E_UNIMPL},
        {"{\"n\":{\"allowOut\":[\"a\"],\"denyOut\":[\"0.0.0.0/0\"],\"egressProxy\":{}}}",
         CL_E_UNIMPL},
        {"{\"n\":{\"allowOut\":[1],\"denyOut\":[\"0.0.0.0/0\"]}}", CL_E_INVALID},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct e2b_network got;
        struct cl_err err = {0};
        assert_int_equal(read_text(rows[i].text, &got, &err), -1);
        assert_int_equal(err.code, rows[i].code);
    }
}

static void test_rules_have_limits(void **state)
{
    (void)state;
    json_t *allow = json_array(), *longer = json_array();
    char name[E2B_NETWORK_RULE_TEXT + 1];
    struct e2b_network got;
    struct cl_err err = {0};
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i <= E2B_NETWORK_RULES; i++)
        assert_int_equal(json_array_append_new(allow, json_string("a.org")), 0);
    assert_int_equal(json_array_append_new(longer, json_string(name)), 0);
    json_t *many = json_pack("{s:o, s:[s]}", "allowOut", allow, "denyOut", "0.0.0.0/0");
    json_t *wide = json_pack("{s:o, s:[s]}", "allowOut", longer, "denyOut", "0.0.0.0/0");
    assert_int_equal(e2b_network_read(many, &got, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(e2b_network_read(wide, &got, &err), -1);
    json_decref(many);
    json_decref(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_served),
        cmocka_unit_test(test_what_is_not),
        cmocka_unit_test(test_rules_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
