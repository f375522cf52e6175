/* tests/unit/gateway/test_endpoint.c - Host, Origin, path, types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/endpoint.h"

static const struct endpoint plain = {.hosts = "", .origins = ""},
                             open_ = {.hosts = "a.org, b.org", .origins = "https://c.org"},
                             any = {.hosts = "*", .origins = ""};

static int check(const struct endpoint *e, const char *host, const char *origin)
{
    const char *text;
    struct http_request r = {.verb = VERB_POST,
                             .path = "/mcp",
                             .fields = {[FIELD_HOST] = host, [FIELD_ORIGIN] = origin}};
    return endpoint_check(e, &r, &text);
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const ours[] = {"localhost", "LOCALHOST:80", "127.0.0.1:7780", "[::1]",
                                       "[::1]:1"};
    static const char *const strange[] = {"evil.org",
                                          "localhost.evil.org",
                                          "127.0.0.1.evil.org",
                                          "localhost:",
                                          "localhost:x",
                                          "",
                                          "[::1",
                                          "a.org",
                                          "localhost:80@evil.org"};
    for (size_t i = 0; i < CL_COUNT(ours); i++)
        assert_int_equal(check(&plain, ours[i], NULL), 0);
    for (size_t i = 0; i < CL_COUNT(strange); i++)
        assert_int_equal(check(&plain, strange[i], NULL), 403);
    assert_int_equal(check(&plain, NULL, NULL), 403);
    assert_int_equal(check(&open_, "b.org:443", NULL), 0);
    assert_int_equal(check(&open_, "xb.org", NULL), 403);
    assert_int_equal(check(&any, "whatever.org", NULL), 0);
}

static void test_names_of_ports_are_for_nothing_here(void **state)
{
    (void)state;
    static const struct endpoint e = {.hosts = "*", .origins = "", .ports = "box.org"};
    static const char name[] = "80-sbx_0123456789abcdefghjkmnpqrs.box.org:7780";
    assert_int_equal(check(&e, name, NULL), 421);
    assert_int_equal(check(&e, "box.org", NULL), 0);
    assert_int_equal(check(&e, "80-sbx_short.box.org", NULL), 0);
    assert_int_equal(check(&any, name, NULL), 0);
}

/* A page of ours, under a name of ours; not when every name is. */
static void test_an_origin_that_is_the_host(void **state)
{
    (void)state;
    assert_int_equal(check(&open_, "a.org", "https://a.org"), 0);
    assert_int_equal(check(&open_, "a.org:8443", "https://A.org:8443"), 0);
    assert_int_equal(check(&open_, "a.org", "https://b.org"), 403);
    assert_int_equal(check(&open_, "a.org", "https://a.org:8443"), 403);
    assert_int_equal(check(&open_, "a.org", "ftp://a.org"), 403);
    assert_int_equal(check(&any, "evil.org", "http://evil.org"), 403);
}

static void test_origins(void **state)
{
    (void)state;
    assert_int_equal(check(&plain, "localhost", "http://localhost:3000"), 0);
    assert_int_equal(check(&plain, "localhost", "https://127.0.0.1"), 0);
    assert_int_equal(check(&plain, "localhost", "http://evil.org"), 403);
    assert_int_equal(check(&plain, "localhost", "null"), 403);
    assert_int_equal(check(&plain, "localhost", ""), 403);
    assert_int_equal(check(&open_, "a.org", "https://c.org"), 0);
    assert_int_equal(check(&open_, "a.org", "http://c.org"), 403);
}

static void test_verbs_paths_and_types(void **state)
{
    (void)state;
    const char *text;
    struct http_request r = {
        .verb = VERB_GET, .path = "/mcp", .fields = {[FIELD_HOST] = "localhost"}};
    assert_int_equal(endpoint_check(&plain, &r, &text), 405);
    r.verb = VERB_DELETE;
    assert_int_equal(endpoint_check(&plain, &r, &text), 0);
    memcpy(r.path, "/mcp/", 6);
    assert_int_equal(endpoint_check(&plain, &r, &text), 404);
    r.verb = VERB_POST;
    assert_int_equal(endpoint_check_types(&r, &text), 415);
    r.fields[FIELD_CONTENT_TYPE] = "application/json; charset=utf-8";
    assert_int_equal(endpoint_check_types(&r, &text), 406);
    r.fields[FIELD_ACCEPT] = "text/event-stream, application/json;q=0.9";
    assert_int_equal(endpoint_check_types(&r, &text), 0);
    assert_true(endpoint_takes_stream(&r));
    r.fields[FIELD_ACCEPT] = "*/*";
    assert_int_equal(endpoint_check_types(&r, &text), 0);
    r.fields[FIELD_ACCEPT] = "application/json";
    assert_false(endpoint_takes_stream(&r));
    r.fields[FIELD_CONTENT_TYPE] = "application/jsonp";
    assert_int_equal(endpoint_check_types(&r, &text), 415);
}

static void test_pages_of_other_origins(void **state)
{
    (void)state;
    const char *text;
    struct http_request r = {.verb = VERB_OPTIONS,
                             .path = "/anything",
                             .fields = {[FIELD_HOST] = "a.org",
                                        [FIELD_ORIGIN] = "https://c.org",
                                        [FIELD_CORS_METHOD] = "POST",
                                        [FIELD_CORS_HEADERS] = "authorization, X-Api-Key,a_b"}};
    assert_true(endpoint_is_preflight(&r));
    assert_int_equal(endpoint_check(&open_, &r, &text), 0);
    assert_string_equal(endpoint_reader(&open_, &r), "https://c.org");
    assert_string_equal(endpoint_asked_fields(&r), r.fields[FIELD_CORS_HEADERS]);
    static const char *const strange[] = {"https://d.org", "http://c.org", "https://c.org.evil.org",
                                          "null", ""};
    for (size_t i = 0; i < CL_COUNT(strange); i++) {
        r.fields[FIELD_ORIGIN] = strange[i];
        assert_int_equal(endpoint_check(&open_, &r, &text), 403);
        assert_null(endpoint_reader(&open_, &r));
    }
    r.fields[FIELD_ORIGIN] = "http://localhost:3000";
    assert_string_equal(endpoint_reader(&open_, &r), "http://localhost:3000");
    r.fields[FIELD_HOST] = "evil.org";
    assert_int_equal(endpoint_check(&open_, &r, &text), 403);
    r.fields[FIELD_HOST] = "a.org";
    r.verb = VERB_POST;
    assert_false(endpoint_is_preflight(&r));
    r.verb = VERB_OPTIONS;
    r.fields[FIELD_CORS_METHOD] = NULL;
    assert_false(endpoint_is_preflight(&r));
    assert_int_equal(endpoint_check(&open_, &r, &text), 404);
    r.fields[FIELD_ORIGIN] = NULL;
    assert_null(endpoint_reader(&open_, &r));
}

static void test_fields_that_are_asked_for(void **state)
{
    (void)state;
    char longer[ENDPOINT_ASKED_MAX + 2];
    struct http_request r = {.verb = VERB_OPTIONS};
    static const char *const bad[] = {NULL, "", "a:b", "a\"b", "a;b", "x\ty"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        r.fields[FIELD_CORS_HEADERS] = bad[i];
        assert_null(endpoint_asked_fields(&r));
    }
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    r.fields[FIELD_CORS_HEADERS] = longer;
    assert_null(endpoint_asked_fields(&r));
    r.fields[FIELD_CORS_HEADERS] = longer + 1;
    assert_non_null(endpoint_asked_fields(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_of_other_origins),
        cmocka_unit_test(test_fields_that_are_asked_for),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_names_of_ports_are_for_nothing_here),
        cmocka_unit_test(test_an_origin_that_is_the_host),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_verbs_paths_and_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
