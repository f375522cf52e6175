/* tests/unit/mcp/test_session.c - ids that nobody remembers and nobody can make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mcp/session.h"

static const uint8_t secret[MCP_SECRET] = {1, 2, 3}, other_secret[MCP_SECRET] = {3, 2, 1};
static const uint8_t nonce[MCP_SESSION_NONCE] = {9};

static void test_a_session_is_its_principals_until_it_expires(void **state)
{
    (void)state;
    char s[MCP_SESSION_TEXT];
    mcp_session_make(secret, "acme/k1", nonce, 1000, s);
    assert_true(mcp_session_is_valid(secret, "acme/k1", s, 999));
    assert_false(mcp_session_is_valid(secret, "acme/k1", s, 1000));
    assert_false(mcp_session_is_valid(secret, "acme/k2", s, 999));
    assert_false(mcp_session_is_valid(other_secret, "acme/k1", s, 999));
}

static void test_no_altered_byte_passes(void **state)
{
    (void)state;
    char s[MCP_SESSION_TEXT], bad[MCP_SESSION_TEXT];
    mcp_session_make(secret, "acme/k1", nonce, 1000, s);
    for (size_t i = 0; i < strlen(s); i++) {
        for (int bit = 0; bit < 7; bit++) {
            memcpy(bad, s, sizeof bad);
            bad[i] = (char)(bad[i] ^ 1 << bit);
            assert_false(mcp_session_is_valid(secret, "acme/k1", bad, 1));
        }
        memcpy(bad, s, sizeof bad);
        bad[i] = '\0'; /* cut */
        assert_false(mcp_session_is_valid(secret, "acme/k1", bad, 1));
    }
    assert_false(mcp_session_is_valid(secret, "acme/k1", "", 1));
    assert_false(mcp_session_is_valid(secret, "acme/k1", "s1-", 1));
}

static void test_purposes_do_not_share_a_digest(void **state)
{
    (void)state;
    char a[MCP_DIGEST_TEXT], b[MCP_DIGEST_TEXT];
    mcp_digest(secret, "seat", "x", a);
    mcp_digest(secret, "sandbox", "x", b);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_session_is_its_principals_until_it_expires),
        cmocka_unit_test(test_no_altered_byte_passes),
        cmocka_unit_test(test_purposes_do_not_share_a_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
