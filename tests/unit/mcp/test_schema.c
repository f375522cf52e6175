/* tests/unit/mcp/test_schema.c - arguments against the schemas of tools.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "mcp/catalog.h"
#include "mcp/schema.h"

static struct mcp_catalog *catalog;

static void arguments(const char *tool, const char *text, const char *complaint)
{
    struct cl_err err = {0};
    json_t *v = NULL;
    assert_int_equal(mcp_json_parse(text, strlen(text), &v, &err), 0);
    const struct mcp_tool *t = mcp_catalog_find(catalog, tool);
    assert_non_null(t);
    int rc = mcp_schema_check(t->input, v, &err);
    if ((rc == 0) != (complaint == NULL) || (complaint && !strstr(err.text, complaint)))
        fail_msg("%s %s: %s, want %s", tool, text, err.text, complaint ? complaint : "none");
    json_decref(v);
}

static void test_arguments_are_checked_against_what_the_model_is_told(void **state)
{
    (void)state;
    arguments("exec", "{\"command\":\"ls\"}", NULL);
    arguments("exec", "{\"argv\":[\"ls\",\"-l\"],\"env\":{\"A\":\"b\"},\"timeout_seconds\":1.5}",
              NULL);
    arguments("exec", "{\"argv\":[\"ls\",1]}", "argv[1]: want a string, got integer");
    arguments("exec", "{\"argv\":[]}", "argv: has 0 items");
    arguments("exec", "{\"env\":{\"A\":1}}", "env.A: want a string");
    arguments("exec", "{\"timeout_seconds\":1e9}", "timeout_seconds: between 0.1 and 86400");
    arguments("exec", "{\"user\":\"daemon\"}", "user: want one of user, root");
    arguments("exec", "{\"comand\":\"ls\"}", "comand: this tool has none of that name");
    arguments("exec", "{\"command\":\"a\\u0000b\"}", "U+0000");
    arguments("exec", "{\"command\":\"\"}", "must not be empty");
    arguments("exec", "{\"max_output_bytes\":2048.0}", NULL);
    arguments("exec", "{\"max_output_bytes\":2048.5}", "want an integer");
    arguments("exec", "{\"max_output_bytes\":3e93}", "max_output_bytes: between 1024 and 1048576");
    arguments("exec", "{\"timeout_seconds\":3e93}", "timeout_seconds: between 0.1 and 86400");
    arguments("file_read", "{}", "path: is missing and required");
    arguments("file_read", "[]", "want an object");
}

static void test_pausing_is_for_a_sandbox_that_is_named(void **state)
{
    (void)state;
    arguments("sandbox_pause", "{\"sandbox_id\":\"sbx_1\"}", NULL);
    arguments("sandbox_pause", "{\"sandbox_id\":\"sbx_1\",\"keep_seconds\":2592000}", NULL);
    arguments("sandbox_pause", "{\"sandbox_id\":\"sbx_1\",\"keep_seconds\":2592001}",
              "keep_seconds: between 1 and 2592000");
    arguments("sandbox_pause", "{}", "sandbox_id: is missing and required");
    arguments("sandbox_resume", "{\"sandbox_id\":\"sbx_1\",\"ttl_seconds\":60}", NULL);
    arguments("sandbox_resume", "{\"sandbox_id\":\"sbx_1\",\"ttl_seconds\":0}",
              "ttl_seconds: between 1 and 86400");
    arguments("sandbox_resume", "{\"ttl_seconds\":60}", "sandbox_id: is missing and required");
    arguments("sandbox_create", "{\"on_idle\":\"pause\"}", NULL);
    arguments("sandbox_create", "{\"on_idle\":\"sleep\"}", "on_idle: want one of end, pause");
}

static void test_a_copy_is_of_a_sandbox_that_is_named(void **state)
{
    (void)state;
    arguments("sandbox_fork", "{\"sandbox_id\":\"sbx_1\"}", NULL);
    arguments("sandbox_fork", "{\"sandbox_id\":\"sbx_1\",\"ttl_seconds\":86400}", NULL);
    arguments("sandbox_fork", "{\"sandbox_id\":\"sbx_1\",\"ttl_seconds\":86401}",
              "ttl_seconds: between 1 and 86400");
    arguments("sandbox_fork", "{\"ttl_seconds\":60}", "sandbox_id: is missing and required");
    arguments("sandbox_fork", "{\"sandbox_id\":7}", "sandbox_id: want a string");
    arguments("sandbox_fork", "{\"sandbox_id\":\"sbx_1\",\"count\":2}",
              "count: this tool has none of that name");
}

static void test_a_snapshot_has_a_name_or_none(void **state)
{
    (void)state;
    arguments("snapshot_create", "{}", NULL);
    arguments("snapshot_create",
              "{\"sandbox_id\":\"sbx_1\",\"name\":\"numpy-ready\",\"replace\":true,"
              "\"keep_seconds\":2592000}",
              NULL);
    arguments("snapshot_create", "{\"name\":\"\"}", "name: must not be empty");
    arguments("snapshot_create", "{\"name\":\"a1234567890123456789012345678901234567890123456\"}",
              "name: at most 46 bytes");
    arguments("snapshot_create", "{\"replace\":1}", "replace: want a boolean");
    arguments("snapshot_create", "{\"keep_seconds\":2592001}",
              "keep_seconds: between 1 and 2592000");
    arguments("snapshot_create", "{\"snapshot\":\"x\"}",
              "snapshot: this tool has none of that name");
    arguments("snapshot_list", "{\"cursor\":\"x\"}", NULL);
    arguments("snapshot_list", "{\"cursor\":1}", "cursor: want a string");
    arguments("snapshot_delete", "{\"snapshot\":\"numpy-ready\"}", NULL);
    arguments("snapshot_delete", "{}", "snapshot: is missing and required");
    arguments("sandbox_create", "{\"snapshot\":\"numpy-ready\",\"ttl_seconds\":60}", NULL);
    arguments("sandbox_create", "{\"snapshot\":\"\"}", "snapshot: must not be empty");
}

static void test_an_address_is_of_a_port_that_there_is(void **state)
{
    (void)state;
    arguments("port_url", "{\"sandbox_id\":\"sbx_1\",\"port\":8000}", NULL);
    arguments("port_url", "{\"sandbox_id\":\"sbx_1\",\"port\":0}", "port: between 1 and 65535");
    arguments("port_url", "{\"sandbox_id\":\"sbx_1\"}", "port: is missing and required");
}

static void hints(const char *tool, bool reads, bool destroys, bool repeats)
{
    const json_t *a = json_object_get(mcp_catalog_find(catalog, tool)->spec, "annotations");
    assert_int_equal(json_is_true(json_object_get(a, "readOnlyHint")), reads);
    assert_int_equal(json_is_true(json_object_get(a, "destructiveHint")), destroys);
    assert_int_equal(json_is_true(json_object_get(a, "idempotentHint")), repeats);
}

static void test_what_may_be_repeated_and_what_destroys(void **state)
{
    (void)state;
    hints("sandbox_pause", false, false, true);
    hints("sandbox_resume", false, false, true);
    hints("sandbox_fork", false, false, false);
    hints("sandbox_kill", false, true, true);
    hints("snapshot_create", false, true, false); /* one that it replaces */
    hints("snapshot_list", true, false, true);
    hints("snapshot_delete", false, true, true);
    hints("sandbox_list", true, false, true);
    hints("exec", false, true, false);
}

static void test_every_tool_teaches(void **state)
{
    (void)state;
    char next[16];
    json_t *page = mcp_catalog_page(catalog, NULL, next);
    assert_true(json_array_size(page) >= 20);
    assert_string_equal(next, "");
    for (size_t i = 0; i < json_array_size(page); i++) {
        const json_t *t = json_array_get(page, i), *p;
        const char *name;
        json_t *props = json_object_get(json_object_get(t, "inputSchema"), "properties"), *one;
        assert_true(strlen(mcp_json_text(t, "description")) > 60);
        assert_non_null(json_object_get(t, "outputSchema"));
        p = json_object_get(t, "annotations");
        assert_true(json_is_boolean(json_object_get(p, "readOnlyHint")));
        json_object_foreach(props, name, one)
        {
            if (!mcp_json_text(one, "description"))
                fail_msg("%s.%s is not described", mcp_json_text(t, "name"), name);
        }
    }
    json_decref(page);
    assert_null(mcp_catalog_page(catalog, "t50", next));
    assert_null(mcp_catalog_page(catalog, "", next));
    assert_null(mcp_catalog_find(catalog, "test_simple_text"));
}

static void test_aliases_are_there_only_when_asked_for(void **state)
{
    (void)state;
    struct mcp_catalog *plain = NULL;
    assert_int_equal(mcp_catalog_new(NULL, false, &plain, NULL), 0);
    for (size_t i = 0; i < mcp_aliases_n; i++) {
        const struct mcp_tool *with = mcp_catalog_find(catalog, mcp_aliases[i].name);
        const struct mcp_tool *without = mcp_catalog_find(plain, mcp_aliases[i].name);
        assert_non_null(with);
        assert_ptr_equal(with->alias, &mcp_aliases[i]);
        assert_true(!without || !without->alias);
    }
    assert_null(mcp_catalog_find(plain, "sandbox_start"));
    mcp_catalog_free(plain);
}

static int open_catalog(void **state)
{
    (void)state;
    return mcp_catalog_new(NULL, true, &catalog, NULL);
}

static int close_catalog(void **state)
{
    (void)state;
    mcp_catalog_free(catalog);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments_are_checked_against_what_the_model_is_told),
        cmocka_unit_test(test_pausing_is_for_a_sandbox_that_is_named),
        cmocka_unit_test(test_a_copy_is_of_a_sandbox_that_is_named),
        cmocka_unit_test(test_a_snapshot_has_a_name_or_none),
        cmocka_unit_test(test_an_address_is_of_a_port_that_there_is),
        cmocka_unit_test(test_what_may_be_repeated_and_what_destroys),
        cmocka_unit_test(test_every_tool_teaches),
        cmocka_unit_test(test_aliases_are_there_only_when_asked_for),
    };
    return cmocka_run_group_tests(tests, open_catalog, close_catalog);
}
