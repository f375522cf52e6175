/* cli/otlp: addresses, headers and answers of a collector. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/otlp.h"

static void test_an_address_gets_the_path_of_traces(void **state)
{
    (void)state;
    static const struct {
        const char *to, *want;
    } rows[] = {
        {"http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"},
        {"https://otel.example.org/", "https://otel.example.org/v1/traces"},
        {"https://example.org/otlp/v1/traces?a=b", "https://example.org/otlp/v1/traces?a=b"},
    };
    char out[OTLP_URL], longer[OTLP_URL + 16];
    struct cl_err err = {0};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(otlp_url(rows[i].to, out, &err), 0);
        assert_string_equal(out, rows[i].want);
    }
    assert_int_equal(otlp_url("127.0.0.1:4318", out, &err), -1);
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    memcpy(longer, "http://", 7);
    assert_int_equal(otlp_url(longer, out, &err), -1);
}

static void test_headers(void **state)
{
    (void)state;
    struct otlp_headers h;
    struct cl_err err = {0};
    assert_int_equal(otlp_headers(NULL, &h, &err), 0);
    assert_int_equal(h.n, 0);
    assert_int_equal(otlp_headers("", &h, &err), 0);
    assert_int_equal(h.n, 0);
    assert_int_equal(otlp_headers("api-key = a%20b ,x-scope=a=b", &h, &err), 0);
    assert_int_equal(h.n, 2);
    assert_string_equal(h.at[0].name, "api-key");
    assert_string_equal(h.at[0].value, "a b");
    assert_string_equal(h.at[1].name, "x-scope");
    assert_string_equal(h.at[1].value, "a=b");
}

static void test_what_is_no_header_is_refused_without_its_value(void **state)
{
    (void)state;
    static const char *const bad[] = {"secret",      "a=secret,b",       "=secret",
                                      "a b=secret",  "a=secret%",        "a=secret%0",
                                      "a=secret%zz", "a=secret%0d%0aB:c"};
    char many[OTLP_HEADERS_TEXT + 8] = "";
    struct otlp_headers h;
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_err err = {0};
        assert_int_equal(otlp_headers(bad[i], &h, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_null(strstr(err.text, "secret"));
    }
    for (size_t i = 0; i <= OTLP_HEADERS; i++)
        memcpy(many + 4 * i, "a=b,", 5);
    assert_int_equal(otlp_headers(many, &h, NULL), -1);
    memset(many, 'a', sizeof many - 1);
    assert_int_equal(otlp_headers(many, &h, NULL), -1);
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        int status;
        enum otlp_verdict want;
    } rows[] = {{200, OTLP_TAKEN},   {202, OTLP_TAKEN},   {429, OTLP_AGAIN},   {503, OTLP_AGAIN},
                {400, OTLP_BAD},     {413, OTLP_BAD},     {500, OTLP_BAD},     {401, OTLP_REFUSED},
                {404, OTLP_REFUSED}, {302, OTLP_REFUSED}, {415, OTLP_REFUSED}, {504, OTLP_AGAIN}};
    for (size_t i = 0; i < CL_COUNT(rows); i++)
        assert_int_equal(otlp_judge(rows[i].status), rows[i].want);
}

static size_t rejected(const char *body, char why[static CL_ERR_TEXT])
{
    return otlp_rejected(body, strlen(body), why);
}

static void test_what_was_not_taken(void **state)
{
    (void)state;
    char why[CL_ERR_TEXT];
    assert_int_equal(otlp_rejected(NULL, 0, why), 0);
    assert_int_equal(rejected("{}", why), 0);
    assert_int_equal(rejected("no JSON", why), 0);
    assert_int_equal(rejected("{\"partialSuccess\":{}}", why), 0);
    assert_int_equal(
        rejected("{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"old\"}}", why),
        3);
    assert_string_equal(why, "old");
    assert_int_equal(rejected("{\"partialSuccess\":{\"rejectedSpans\":2}}", why), 2);
    assert_string_equal(why, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_address_gets_the_path_of_traces),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_what_is_no_header_is_refused_without_its_value),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_what_was_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
