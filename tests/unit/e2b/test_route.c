/* tests/unit/e2b/test_route.c - paths and queries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/call_priv.h"

static void test_paths_and_ids(void **state)
{
    (void)state;
    struct e2b_ids ids;
    bool other;
    const struct e2b_route *r =
        e2b_route_find(E2B_POST, "/v2/sandboxes/sbx_1/connect", &ids, &other);
    assert_non_null(r);
    assert_ptr_equal(r->run, e2b_sandbox_connect);
    assert_string_equal(ids.id, "sbx_1");
    r = e2b_route_find(E2B_POST, "/sandboxes/sbx_1/pause", &ids, &other);
    assert_ptr_equal(r->run, e2b_sandbox_pause);
    r = e2b_route_find(E2B_POST, "/sandboxes/sbx_1/resume", &ids, &other);
    assert_ptr_equal(r->run, e2b_sandbox_resume);
    assert_null(e2b_route_find(E2B_GET, "/sandboxes/sbx_1/pause", &ids, &other));
    assert_true(other);
    r = e2b_route_find(E2B_POST, "/sandboxes/sbx_1/snapshots", &ids, &other);
    assert_ptr_equal(r->run, e2b_snapshot_create);
    r = e2b_route_find(E2B_GET, "/snapshots", &ids, &other);
    assert_ptr_equal(r->run, e2b_snapshot_list);
    r = e2b_route_find(E2B_DELETE, "/templates/numpy.ready_1", &ids, &other);
    assert_ptr_equal(r->run, e2b_snapshot_delete);
    assert_string_equal(ids.id, "numpy.ready_1");
    r = e2b_route_find(E2B_PUT, "/templates/my.app/files/0a9f", &ids, &other);
    assert_ptr_equal(r->run, e2b_template_upload);
    assert_string_equal(ids.id, "my.app");
    assert_string_equal(ids.below, "0a9f");
    r = e2b_route_find(E2B_GET, "/templates/tags/builds/x/status", &ids, &other);
    assert_ptr_equal(r->run, e2b_template_status);
    assert_string_equal(ids.below, "x");
    r = e2b_route_find(E2B_DELETE, "/templates/tags", &ids, &other);
    assert_ptr_equal(r->run, e2b_not_there);
    r = e2b_route_find(E2B_GET, "/templates/aliases/a", &ids, &other);
    assert_ptr_equal(r->run, e2b_template_exists);
    assert_string_equal(ids.id, "a");
    assert_string_equal(ids.below, "");
    r = e2b_route_find(E2B_GET, "/sandboxes", &ids, &other);
    assert_ptr_equal(r->run, e2b_sandbox_list);
    assert_string_equal(ids.id, "");
    static const char *const nowhere[] = {"/",
                                          "",
                                          "/mcp",
                                          "/sandboxes/",
                                          "/sandboxes/a/b",
                                          "/sandboxes//timeout",
                                          "/sandboxes/../timeout",
                                          "/templates/..",
                                          "/templates/.a",
                                          "/templates/a%3Av1",
                                          "/templates/",
                                          "/templates/a/files",
                                          "/templates/a/files/",
                                          "/templates//files/a",
                                          "/templates/a/files/a/b",
                                          "/v2/templates/a/builds/..",
                                          "/sandboxes/a b",
                                          "/sandboxes/a%2e",
                                          "/contexts/a/restart/",
                                          "/process.Process/Start/x"};
    for (size_t i = 0; i < CL_COUNT(nowhere); i++) {
        assert_null(e2b_route_find(E2B_GET, nowhere[i], &ids, &other));
        assert_false(other);
        assert_false(e2b_serves(nowhere[i]));
    }
    assert_null(e2b_route_find(E2B_DELETE, "/files", &ids, &other));
    assert_true(other); /* by another verb */
    assert_true(e2b_serves("/files"));
    assert_true(e2b_streams_body(E2B_POST, "/files"));
    assert_false(e2b_streams_body(E2B_GET, "/files"));
    assert_true(e2b_streams_body(E2B_PUT, "/templates/a/files/b"));
    assert_false(e2b_streams_body(E2B_GET, "/templates/a/files/b"));
    assert_false(e2b_streams_body(E2B_POST, "/execute"));
    assert_false(e2b_streams_body(E2B_POST, "/nothing"));
}

static void test_an_id_has_a_length(void **state)
{
    (void)state;
    char path[128] = "/sandboxes/";
    struct e2b_ids ids;
    bool other;
    memset(path + strlen(path), 'a', E2B_ID_MAX - 1);
    assert_non_null(e2b_route_find(E2B_GET, path, &ids, &other));
    path[strlen(path)] = 'a';
    assert_null(e2b_route_find(E2B_GET, path, &ids, &other));
}

static void test_queries(void **state)
{
    (void)state;
    char out[16];
    assert_int_equal(e2b_query_get("a=1&path=%2Fx+y%C3%BC&b", "path", out, sizeof out), 1);
    assert_string_equal(out, "/x y\xc3\xbc");
    assert_int_equal(e2b_query_get("a=1&b", "b", out, sizeof out), 1);
    assert_string_equal(out, "");
    assert_int_equal(e2b_query_get("apath=1", "path", out, sizeof out), 0);
    assert_int_equal(e2b_query_get(NULL, "path", out, sizeof out), 0);
    assert_int_equal(e2b_query_get("", "path", out, sizeof out), 0);
    static const char *const bad[] = {"path=%", "path=%2", "path=%zz", "path=%00", "path=%2&x"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(e2b_query_get(bad[i], "path", out, sizeof out), -1);
    assert_int_equal(e2b_query_get("path=0123456789abcdef", "path", out, sizeof out), -1);
    assert_int_equal(e2b_query_get("path=0123456789abcde", "path", out, sizeof out), 1);
}

static void test_decoding_in_place(void **state)
{
    (void)state;
    char twice[] = "a%2520b";
    assert_true(e2b_decode(twice));
    assert_string_equal(twice, "a%20b");
    assert_true(e2b_decode(twice));
    assert_string_equal(twice, "a b");
    char bad[] = "100%";
    assert_false(e2b_decode(bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_and_ids),
        cmocka_unit_test(test_an_id_has_a_length),
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_decoding_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
