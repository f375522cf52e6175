/* tests/unit/mcp/test_message.c - JSON within limits, the envelope, the eras. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/mem.h"
#include "mcp/message.h"

static int parse(const char *text, struct mcp_message *m, struct mcp_refusal *why)
{
    *why = (struct mcp_refusal){0};
    return mcp_message_parse(text, strlen(text), m, why);
}

static void refused(const char *text, int http, int code)
{
    struct mcp_message m;
    struct mcp_refusal why;
    assert_int_equal(parse(text, &m, &why), -1);
    if (why.http != http || why.code != code)
        fail_msg("%s: %d %d, want %d %d (%s)", text, why.http, why.code, http, code, why.text);
    mcp_message_fini(&m);
}

static void test_json_is_bounded_before_it_is_parsed(void **state)
{
    (void)state;
    enum { DEEP = MCP_JSON_DEPTH + 1, MANY = MCP_JSON_VALUES + 8 };
    char deep[DEEP + 1], *many = cl_zalloc(MANY + 1);
    struct cl_err err = {0};
    memset(deep, '[', DEEP);
    deep[DEEP] = '\0';
    assert_int_equal(mcp_json_scan(deep, DEEP, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_int_equal(mcp_json_scan(deep, DEEP - 1, NULL), 0);
    memset(many, ',', MANY);
    assert_int_equal(mcp_json_scan(many, MANY, NULL), -1);
    cl_free(many);
    /* What is in a string is no structure. */
    assert_int_equal(mcp_json_scan("\"[[[[\\\"[\"", 10, NULL), 0);
}

static void test_json_is_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{\"a\":1,\"a\":2}",
                                      "NaN",
                                      "[1,]",
                                      "{\"a\":\"\xff\"}",
                                      "\"\\ud800\"",
                                      "1e999",
                                      "{} {}",
                                      "nul"};
    json_t *v = NULL;
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(mcp_json_parse(bad[i], strlen(bad[i]), &v, NULL), -1);
    assert_int_equal(mcp_json_parse("{\"a\":\"x\\u0000y\",\"b\":7}", 22, &v, NULL), 0);
    assert_null(mcp_json_text(v, "a")); /* a text with U+0000 is no text of ours */
    assert_int_equal(mcp_json_u64(v, "b", 1), 7);
    assert_int_equal(mcp_json_u64(v, "c", 1), 1);
    json_decref(v);
}

static void test_the_envelope(void **state)
{
    (void)state;
    struct mcp_message m;
    struct mcp_refusal why;
    refused("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}]", 400, MCP_E_REQUEST);
    refused("{\"id\":1,\"method\":\"x\"}", 400, MCP_E_REQUEST);
    refused("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}", 400, MCP_E_REQUEST);
    refused("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"x\"}", 400, MCP_E_REQUEST);
    refused("{\"jsonrpc\":\"2.0\",\"id\":1}", 400, MCP_E_REQUEST);
    refused("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", 400, MCP_E_REQUEST);
    refused("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":[]}", 400, MCP_E_REQUEST);
    refused("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"_meta\":1}}", 400,
            MCP_E_PARAMS);
    refused("{", 400, MCP_E_PARSE);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"x\"}", &m, &why), 0);
    assert_int_equal(m.kind, MCP_REQUEST);
    mcp_message_fini(&m);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"method\":\"x\"}", &m, &why), 0);
    assert_int_equal(m.kind, MCP_NOTIFICATION);
    mcp_message_fini(&m);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", &m, &why), 0);
    assert_int_equal(m.kind, MCP_RESPONSE);
    mcp_message_fini(&m);
}

#define META_(version) \
    "\"_meta\":{\"" MCP_META "protocolVersion\":\"" version "\",\"" MCP_META \
    "clientCapabilities\":{}}"
#define CALL(meta) \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/" \
    "call\",\"params\":{\"name\":\"ex\xc3\xa9\"" meta "}}"

static void era(const char *text, const struct mcp_headers *h, int code, enum mcp_era want)
{
    struct mcp_message m;
    struct mcp_refusal why;
    enum mcp_era got = 0;
    assert_int_equal(parse(text, &m, &why), 0);
    int rc = mcp_era_check(&m, h, &got, &why);
    if (why.code != code || (rc == 0) != (code == 0) || (code == 0 && got != want))
        fail_msg("code %d, want %d: %s", why.code, code, why.text);
    json_decref(why.data);
    mcp_message_fini(&m);
}

static void test_the_era_is_said_by_each_request(void **state)
{
    (void)state;
    struct mcp_headers h = {
        .version = MCP_MODERN_VERSION, .method = "tools/call", .name = "=?base64?ZXjDqQ==?="};
    struct mcp_headers plain = {.version = MCP_LEGACY_VERSION}, old = {.version = "2024-11-05"},
                       none = {0};
    era(CALL("," META_("2026-07-28")), &h, 0, MCP_MODERN);
    era(CALL("," META_("2026-07-28")), NULL, 0, MCP_MODERN); /* stdio has no headers */
    era(CALL("," META_("v9")), NULL, MCP_E_VERSION, 0);
    era(CALL(""), &h, MCP_E_PARAMS, 0);
    era(CALL(""), &plain, 0, MCP_LEGACY);
    era(CALL(""), &none, 0, MCP_LEGACY);
    era(CALL(""), &old, MCP_E_REQUEST, 0);
    h.name = "=?base64?ZXjDqQ?=";
    era(CALL("," META_("2026-07-28")), &h, MCP_E_HEADER, 0);
    h.name = "other";
    era(CALL("," META_("2026-07-28")), &h, MCP_E_HEADER, 0);
    h.name = NULL;
    era(CALL("," META_("2026-07-28")), &h, MCP_E_HEADER, 0);
}

#define TRACE(digit) "00-" digit "bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static void trace(const char *meta, const struct mcp_headers *h, const char *want)
{
    char text[512], got[TRACEPARENT_TEXT] = "x";
    struct mcp_message m;
    struct mcp_refusal why;
    (void)snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"%s}", meta);
    assert_int_equal(parse(text, &m, &why), 0);
    mcp_trace_find(&m, h, got);
    assert_string_equal(got, want);
    mcp_message_fini(&m);
}
#define TRACE_OF(value) ",\"params\":{\"_meta\":{\"traceparent\":" value "}}"

static void test_a_trace_in_meta_comes_before_the_headers(void **state)
{
    (void)state;
    struct mcp_headers none = {0}, bad = {.traceparent = "x"}, h = {.traceparent = TRACE("a")};
    trace("", NULL, "");
    trace("", &none, "");
    trace("", &bad, "");
    trace("", &h, TRACE("a"));
    trace(",\"params\":{\"_meta\":{}}", &h, TRACE("a"));
    trace(TRACE_OF("\"" TRACE("4") "\""), NULL, TRACE("4"));
    trace(TRACE_OF("\"" TRACE("4") "\""), &h, TRACE("4"));
    trace(TRACE_OF("\"" TRACE("4") "\""), &bad, TRACE("4"));
    trace(TRACE_OF("\"x\""), &h, TRACE("a")); /* as if it had not come */
    trace(TRACE_OF("7"), &h, TRACE("a"));
    trace(TRACE_OF("\"" TRACE("4") "\\u0000\""), NULL, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_is_bounded_before_it_is_parsed),
        cmocka_unit_test(test_json_is_strict),
        cmocka_unit_test(test_the_envelope),
        cmocka_unit_test(test_the_era_is_said_by_each_request),
        cmocka_unit_test(test_a_trace_in_meta_comes_before_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
