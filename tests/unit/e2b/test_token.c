/* tests/unit/e2b/test_token.c - a sealed grant comes back whole, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/token.h"

static const uint8_t secret[E2B_SECRET] = "0123456789abcdef0123456789abcde";
static const uint8_t other[E2B_SECRET] = "0123456789abcdef0123456789abcdf";
static struct e2b_grant grant, back;
static char token[E2B_TOKEN_MAX];

static void seal(const char *sandbox, const char *credential, const char *env)
{
    assert_int_equal(e2b_grant_make(sandbox, credential, env, &grant, NULL), 0);
    assert_int_equal(e2b_token_seal(secret, &grant, token, NULL), 0);
}

static void test_back_and_forth(void **state)
{
    (void)state;
    char env[E2B_PLAIN_MAX];
    memset(env, 'e', sizeof env);
    for (size_t n = 0; n < 70; n++) { /* each length of base64's last piece */
        env[n] = '\0';
        seal("sbx_1", "Bearer clk_a_b", env);
        assert_int_equal(e2b_token_open(secret, token, &back, NULL), 0);
        assert_string_equal(back.sandbox, "sbx_1");
        assert_string_equal(back.credential, "Bearer clk_a_b");
        assert_string_equal(back.env, env);
        env[n] = 'e';
    }
    env[E2B_PLAIN_MAX - 3] = '\0';
    seal("sbx_1", "B", env);
    assert_true(strlen(token) < sizeof token);
    assert_int_equal(e2b_token_open(secret, token, &back, NULL), 0);
    assert_string_equal(back.env, env);
    struct cl_err err = {0};
    assert_int_equal(e2b_grant_make("sbx_1", "Be", env, &grant, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
}

static void test_a_place_goes_along(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"root", "/app"}, {"", "/app"}, {"root", ""}, {"", ""}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(e2b_grant_make("sbx_1", "Bearer a", "{\"A\":\"b\"}", &grant, NULL), 0);
        assert_int_equal(e2b_grant_set_place(&grant, rows[i][0], rows[i][1], NULL), 0);
        assert_int_equal(e2b_token_seal(secret, &grant, token, NULL), 0);
        assert_int_equal(e2b_token_open(secret, token, &back, NULL), 0);
        assert_string_equal(back.credential, "Bearer a");
        assert_string_equal(back.env, "{\"A\":\"b\"}");
        assert_string_equal(back.user, rows[i][0]);
        assert_string_equal(back.cwd, rows[i][1]);
        assert_int_equal(back.n, grant.n);
    }
    char long_path[E2B_PLAIN_MAX];
    memset(long_path, 'p', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    struct cl_err err = {0};
    assert_int_equal(e2b_grant_make("sbx_1", "Bearer a", "", &grant, NULL), 0);
    assert_int_equal(e2b_grant_set_place(&grant, "", long_path, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
}

static void test_no_two_are_alike(void **state)
{
    (void)state;
    char first[E2B_TOKEN_MAX];
    seal("sbx_1", "Bearer a", "");
    memcpy(first, token, sizeof first);
    seal("sbx_1", "Bearer a", "");
    assert_string_not_equal(first, token);
    assert_null(strstr(token, "Bearer"));
}

static void refused(const char *text)
{
    struct cl_err err = {0};
    assert_int_equal(e2b_token_open(secret, text, &back, &err), -1);
    assert_int_equal(err.code, CL_E_UNAUTH);
}

static void test_strangers_tokens_are_refused(void **state)
{
    (void)state;
    refused("");
    refused("cle2b_");
    refused("cle2b_====");
    refused("clk_0123456789abcdef");
    seal("sbx_1", "Bearer a", "{\"A\":\"b\"}");
    assert_int_equal(e2b_token_open(other, token, &back, NULL), -1);
    size_t n = strlen(token);
    for (size_t i = 0; i < n; i++) { /* each character, another one */
        char was = token[i];
        token[i] = was == 'A' ? 'B' : 'A';
        /* base64's last character has bits that mean nothing */
        if (e2b_token_open(secret, token, &back, NULL) == 0)
            assert_true(i + 3 >= n && strcmp(back.credential, "Bearer a") == 0);
        token[i] = was;
    }
    for (size_t i = 0; i < n; i++) { /* each shorter one */
        char was = token[i];
        token[i] = '\0';
        refused(token);
        token[i] = was;
    }
    char longest[E2B_TOKEN_MAX + 64];
    memset(longest, 'A', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memcpy(longest, "cle2b_", 6);
    refused(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_and_forth),
        cmocka_unit_test(test_a_place_goes_along),
        cmocka_unit_test(test_no_two_are_alike),
        cmocka_unit_test(test_strangers_tokens_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
