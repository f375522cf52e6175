/* tests/unit/gateway/test_metadata.c - what a client is told about tokens (RFC 9728). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/endpoint.h"
#include "gateway/metadata.h"

static void test_metadata_and_where_they_are(void **state)
{
    (void)state;
    struct metadata m;
    assert_int_equal(
        metadata_make("https://h.org:8443/mcp", "https://a.org, https://b.org/x", &m, NULL), 0);
    assert_non_null(
        strstr(m.challenge, ", resource_metadata=\"https://h.org:8443" METADATA_PATH "/mcp\""));
    json_t *o = json_loads(m.json, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(o, "resource")),
                        "https://h.org:8443/mcp");
    assert_int_equal(json_array_size(json_object_get(o, "authorization_servers")), 2);
    json_decref(o);
}

static void test_what_is_no_url_of_ours_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "/mcp",
                                      "http://h.org/mcp",
                                      "https://h.org/",
                                      "https://h.org/a\"b/mcp",
                                      "https://h.org/a\r\nb/mcp",
                                      "ftp://h.org/mcp"};
    struct metadata m;
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        if (metadata_make(bad[i], "https://a.org", &m, NULL) == 0)
            fail_msg("%s", bad[i]);
    }
    assert_int_equal(metadata_make("https://h.org/mcp", "a.org", &m, NULL), -1);
    assert_int_equal(metadata_make("https://h.org/mcp", "https://a.org,http://b.org", &m, NULL),
                     -1);
    assert_int_equal(metadata_make("http://localhost:1/mcp", "http://127.0.0.1:2", &m, NULL), 0);
}

static void test_they_are_there_only_when_configured(void **state)
{
    (void)state;
    const char *text;
    struct endpoint with = {.hosts = "", .origins = "", .has_metadata = true}, without = with;
    struct http_request r = {
        .verb = VERB_GET, .path = METADATA_PATH "/mcp", .fields = {[FIELD_HOST] = "localhost"}};
    without.has_metadata = false;
    assert_int_equal(endpoint_check(&with, &r, &text), 0);
    assert_true(endpoint_is_metadata(&with, &r));
    assert_int_equal(endpoint_check(&without, &r, &text), 404);
    r.verb = VERB_POST;
    assert_int_equal(endpoint_check(&with, &r, &text), 405);
    r.fields[FIELD_HOST] = "evil.org";
    assert_int_equal(endpoint_check(&with, &r, &text), 403);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metadata_and_where_they_are),
        cmocka_unit_test(test_what_is_no_url_of_ours_is_refused),
        cmocka_unit_test(test_they_are_there_only_when_configured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
