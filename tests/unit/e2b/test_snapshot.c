/* tests/unit/e2b/test_snapshot.c - what the SDKs say about snapshots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/snapshot.h"
#include "mcp/json.h"

static void test_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum cl_code code;
        const char *name;
    } rows[] = {{"{}", CL_OK, ""},
                {"{\"name\":null,\"memory\":null}", CL_OK, ""},
                {"{\"name\":\"\"}", CL_OK, ""},
                {"{\"name\":\"ready\"}", CL_OK, "ready"},
                {"{\"name\":\"Not A/Name\",\"other\":1}", CL_OK, "Not A/Name"},
                {"{\"name\":\"ready\",\"memory\":true}", CL_OK, "ready"},
                {"{\"name\":\"ready\",\"memory\":false}", CL_E_UNIMPL, NULL},
                {"{\"memory\":\"full\"}", CL_E_INVALID, NULL},
                {"{\"memory\":0}", CL_E_INVALID, NULL},
                {"{\"name\":1}", CL_E_INVALID, NULL},
                {"{\"name\":[\"ready\"]}", CL_E_INVALID, NULL},
                {"{\"name\":\"a\\u0000b\"}", CL_E_INVALID, NULL}};
    const char *name = "untouched";
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        json_t *body = NULL;
        struct cl_err err = {0};
        name = "untouched";
        assert_int_equal(mcp_json_parse(rows[i].text, strlen(rows[i].text), &body, NULL), 0);
        int rc = e2b_snapshot_read(body, &name, &err);
        if ((rc == 0) != (rows[i].code == CL_OK) || err.code != rows[i].code)
            fail_msg("%s: %d, %s", rows[i].text, (int)err.code, err.text);
        assert_string_equal(name, rows[i].name ? rows[i].name : "untouched");
        json_decref(body);
    }
    assert_int_equal(e2b_snapshot_read(NULL, &name, NULL), 0);
    assert_string_equal(name, "");
}

static void test_what_no_template_can_be_called(void **state)
{
    (void)state;
    char word[65];
    static const char *const meant[] = {
        "snp_0123456789abcdefghjkmnpqrs", "numpy.ready", "a_b", "0", "7-a", "a.", "snp_"};
    static const char *const not_meant[] = {
        "",   "base", "numpy-ready", "a",        "Numpy.ready", ".ready",
        "-a", "_a",   "a b",         "team/a.b", "a.b:v1",      "\xc3\xa4.b"};
    for (size_t i = 0; i < CL_COUNT(meant); i++)
        assert_true(e2b_snapshot_is_meant(meant[i]));
    for (size_t i = 0; i < CL_COUNT(not_meant); i++)
        assert_false(e2b_snapshot_is_meant(not_meant[i]));
    memset(word, '.', sizeof word);
    word[0] = 'a';
    word[64] = '\0';
    assert_false(e2b_snapshot_is_meant(word));
    word[63] = '\0';
    assert_true(e2b_snapshot_is_meant(word));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_what_no_template_can_be_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
