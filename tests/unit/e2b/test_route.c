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
    char id[E2B_ID_MAX];
    bool other;
    const struct e2b_route *r = e2b_route_find(E2B_POST, "/v2/sandboxes/sbx_1/connect", id, &other);
    assert_non_null(r);
    assert_ptr_equal(r->run, e2b_sandbox_connect);
    assert_string_equal(id, "sbx_1");
    r = e2b_route_find(E2B_POST, "/sandboxes/sbx_1/pause", id, &other);
    assert_ptr_equal(r->run, e2b_sandbox_pause);
    r = e2b_route_find(E2B_POST, "/sandboxes/sbx_1/resume", id, &other);
    assert_ptr_equal(r->run, e2b_sandbox_resume);
    assert_null(e2b_route_find(E2B_GET, "/sandboxes/sbx_1/pause", id, &other));
    assert_true(other);
    r = e2b_route_find(E2B_POST, "/sandboxes/sbx_1/snapshots", id, &other);
    assert_ptr_equal(r->run, e2b_snapshot_create);
    r = e2b_route_find(E2B_GET, "/snapshots", id, &other);
    assert_ptr_equal(r->run, e2b_snapshot_list);
    r = e2b_route_find(E2B_DELETE, "/templates/numpy.ready_1", id, &other);
    assert_ptr_equal(r->run, e2b_snapshot_delete);
    assert_string_equal(id, "numpy.ready_1");
    r = e2b_route_find(E2B_GET, "/sandboxes", id, &other);
    assert_ptr_equal(r->run, e2b_sandbox_list);
    assert_string_equal(id, "");
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
                                          "/sandboxes/a b",
                                          "/sandboxes/a%2e",
                                          "/contexts/a/restart/",
                                          "/process.Process/Start/x"};
    for (size_t i = 0; i < CL_COUNT(nowhere); i++) {
        assert_null(e2b_route_find(E2B_GET, nowhere[i], id, &other));
        assert_false(other);
        assert_false(e2b_serves(nowhere[i]));
    }
    assert_null(e2b_route_find(E2B_DELETE, "/files", id, &other));
    assert_true(other); /* by another verb */
    assert_true(e2b_serves("/files"));
    assert_true(e2b_streams_body(E2B_POST, "/files"));
    assert_false(e2b_streams_body(E2B_GET, "/files"));
    assert_false(e2b_streams_body(E2B_POST, "/execute"));
    assert_false(e2b_streams_body(E2B_POST, "/nothing"));
}

static void test_an_id_has_a_length(void **state)
{
    (void)state;
    char path[128] = "/sandboxes/", id[E2B_ID_MAX];
    bool other;
    memset(path + strlen(path), 'a', E2B_ID_MAX - 1);
    assert_non_null(e2b_route_find(E2B_GET, path, id, &other));
    path[strlen(path)] = 'a';
    assert_null(e2b_route_find(E2B_GET, path, id, &other));
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
