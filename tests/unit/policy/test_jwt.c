/* Tokens: what a good one becomes, and every way to be refused. */
#include "policy/jwt.h"

#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NOW = 1800000000 };

static EVP_PKEY *rsa, *p256, *ed;
static char set_text[8192];
static struct jwks *keys;
static struct jwt_rules rules = {.issuer = "https://as.test",
                                 .audience = "https://cloche.test/mcp",
                                 .tenant_claim = "org",
                                 .skew_s = 30};
static struct principal who;
static struct cl_err err;

/* --- an authorization server ---------------------------------------------------------------- */

static size_t encode(const void *data, size_t n, char *out)
{
    int len = EVP_EncodeBlock((unsigned char *)out, data, (int)n);
    for (int i = 0; i < len; i++) {
        out[i] = out[i] == '+' ? '-' : out[i] == '/' ? '_' : out[i];
        if (out[i] == '=')
            len = i;
    }
    out[len] = '\0';
    return (size_t)len;
}

static void encode_number(const BIGNUM *n, int size, char *out)
{
    unsigned char bytes[1024];
    int len = size ? BN_bn2binpad(n, bytes, size) : BN_bn2bin(n, bytes);
    assert_true(len > 0);
    (void)encode(bytes, (size_t)len, out);
}

static void make_keys(void)
{
    char n[1400], e[16], x[64], y[64], ex[64];
    unsigned char raw[32];
    size_t len = sizeof raw;
    BIGNUM *bn = NULL, *be = NULL, *bx = NULL, *by = NULL;
    rsa = EVP_RSA_gen(2048);
    p256 = EVP_EC_gen("prime256v1");
    ed = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    assert_true(rsa && p256 && ed);
    assert_true(EVP_PKEY_get_bn_param(rsa, OSSL_PKEY_PARAM_RSA_N, &bn) &&
                EVP_PKEY_get_bn_param(rsa, OSSL_PKEY_PARAM_RSA_E, &be) &&
                EVP_PKEY_get_bn_param(p256, OSSL_PKEY_PARAM_EC_PUB_X, &bx) &&
                EVP_PKEY_get_bn_param(p256, OSSL_PKEY_PARAM_EC_PUB_Y, &by) &&
                EVP_PKEY_get_raw_public_key(ed, raw, &len));
    encode_number(bn, 0, n);
    encode_number(be, 0, e);
    encode_number(bx, 32, x);
    encode_number(by, 32, y);
    (void)encode(raw, len, ex);
    (void)snprintf(
        set_text, sizeof set_text,
        "{\"keys\":["
        "{\"kty\":\"RSA\",\"kid\":\"r1\",\"use\":\"sig\",\"alg\":\"RS256\",\"n\":\"%s\",\"e\":\"%"
        "s\"},"
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"e1\",\"x\":\"%s\",\"y\":\"%s\"},"
        "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"o1\",\"x\":\"%s\"},"
        "{\"kty\":\"oct\",\"kid\":\"h1\",\"k\":\"AAAA\"},"
        "{\"kty\":\"RSA\",\"kid\":\"enc\",\"use\":\"enc\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}",
        n, e, x, y, ex);
    BN_free(bn);
    BN_free(be);
    BN_free(bx);
    BN_free(by);
}

static size_t sign(EVP_PKEY *key, const char *text, unsigned char *sig, size_t max)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t n = max;
    assert_true(EVP_DigestSignInit(ctx, NULL, key == ed ? NULL : EVP_sha256(), NULL, key) == 1);
    assert_true(EVP_DigestSign(ctx, sig, &n, (const unsigned char *)text, strlen(text)) == 1);
    EVP_MD_CTX_free(ctx);
    if (key != p256)
        return n;
    const unsigned char *p = sig;
    ECDSA_SIG *s = d2i_ECDSA_SIG(NULL, &p, (long)n);
    assert_true(BN_bn2binpad(ECDSA_SIG_get0_r(s), sig, 32) == 32);
    assert_true(BN_bn2binpad(ECDSA_SIG_get0_s(s), sig + 32, 32) == 32);
    ECDSA_SIG_free(s);
    return 64;
}

static const char *token(EVP_PKEY *key, const char *header, const char *claims)
{
    static char out[16384];
    unsigned char sig[512];
    size_t n = encode(header, strlen(header), out);
    out[n++] = '.';
    (void)encode(claims, strlen(claims), out + n);
    size_t sig_n = sign(key, out, sig, sizeof sig);
    n = strlen(out);
    out[n++] = '.';
    (void)encode(sig, sig_n, out + n);
    return out;
}

#define RS "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"at+jwt\"}"
#define ES "{\"alg\":\"ES256\",\"kid\":\"e1\"}"
#define ED "{\"alg\":\"EdDSA\",\"kid\":\"o1\",\"typ\":\"JWT\"}"
#define WHO "\"iss\":\"https://as.test\",\"aud\":\"https://cloche.test/mcp\",\"sub\":\"alice\""
#define GOOD "{" WHO ",\"org\":\"acme\",\"scope\":\"openid sandbox:run\",\"exp\":1800000100}"

static int verify(const char *text)
{
    err = (struct cl_err){0};
    return jwt_verify(keys, &rules, text, NOW, &who, &err);
}

static void refused(const char *text, enum cl_code code, const char *why)
{
    assert_int_equal(verify(text), -1);
    if (err.code != code || !strstr(err.text, why))
        fail_msg("want '%s', got %d '%s'", why, err.code, err.text);
}

/* --- tests ---------------------------------------------------------------------------------- */

static void test_each_algorithm_is_taken(void **state)
{
    (void)state;
    struct {
        EVP_PKEY *key;
        const char *header;
    } rows[] = {{rsa, RS}, {p256, ES}, {ed, ED}, {ed, "{\"alg\":\"EdDSA\"}"}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(verify(token(rows[i].key, rows[i].header, GOOD)), 0);
        assert_string_equal(who.tenant, "acme");
        assert_string_equal(who.subject, "jwt:alice");
        assert_string_equal(who.key_id, "token");
        assert_int_equal(who.scopes, SCOPE_RUN);
    }
    assert_int_equal(jwks_count(keys), 3); /* `oct` and `enc` are not for us */
}

static void test_any_changed_byte_is_refused(void **state)
{
    (void)state;
    char text[4096];
    const char *good = token(ed, ED, GOOD);
    size_t n = strlen(good);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "%s", good);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        if (strcmp(text, good) != 0)
            assert_int_equal(verify(text), -1);
        (void)snprintf(text, sizeof text, "%.*s", (int)i, good);
        assert_int_equal(verify(text), -1);
    }
}

static void test_the_token_does_not_choose_how_it_is_checked(void **state)
{
    (void)state;
    refused(token(rsa, "{\"alg\":\"none\"}", GOOD), CL_E_UNAUTH, "not signed with");
    refused(token(rsa, "{\"alg\":\"HS256\",\"kid\":\"r1\"}", GOOD), CL_E_UNAUTH, "not signed with");
    refused(token(rsa, "{\"alg\":\"ES256\",\"kid\":\"r1\"}", GOOD), CL_E_UNAUTH, "no key");
    refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r2\"}", GOOD), CL_E_UNAUTH, "no key");
    refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":7}", GOOD), CL_E_UNAUTH, "'kid'");
    refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"enc\"}", GOOD), CL_E_UNAUTH, "no key");
    refused(token(ed, "{\"alg\":\"EdDSA\",\"crit\":[\"b64\"],\"b64\":false}", GOOD), CL_E_UNAUTH,
            "extensions");
    refused(token(ed, "{\"alg\":\"EdDSA\",\"typ\":\"logout+jwt\"}", GOOD), CL_E_UNAUTH, "type");
    refused(token(ed, "{\"alg\":\"EdDSA\",\"alg\":\"EdDSA\"}", GOOD), CL_E_UNAUTH, "header");
    EVP_PKEY *other = EVP_RSA_gen(2048);
    refused(token(other, RS, GOOD), CL_E_UNAUTH, "signature");
    EVP_PKEY_free(other);
}

static void test_claims_must_be_for_us_and_now(void **state)
{
    (void)state;
    static const struct {
        const char *claims, *why;
    } rows[] = {
        {"{\"iss\":\"https://as.test/\",\"aud\":\"https://cloche.test/"
         "mcp\",\"sub\":\"a\",\"org\":\"acme\",\"exp\":1800000100}",
         "issuer"},
        {"{\"aud\":\"https://cloche.test/mcp\",\"sub\":\"a\",\"org\":\"acme\",\"exp\":1800000100}",
         "issuer"},
        {"{\"iss\":\"https://as.test\",\"aud\":\"other\",\"sub\":\"a\",\"exp\":1800000100}",
         "audience"},
        {"{\"iss\":\"https://as.test\",\"aud\":[\"other\"],\"sub\":\"a\",\"exp\":1800000100}",
         "audience"},
        {"{\"iss\":\"https://as.test\",\"sub\":\"a\",\"exp\":1800000100}", "audience"},
        {"{" WHO "}", "'exp'"},
        {"{" WHO ",\"exp\":\"1800000100\"}", "'exp'"},
        {"{" WHO ",\"exp\":-1}", "'exp'"},
        {"{" WHO ",\"exp\":1e300}", "'exp'"},
        {"{" WHO ",\"exp\":1799999970}", "expired"},
        {"{" WHO ",\"exp\":1800000100,\"nbf\":1800000031}", "not valid yet"},
        {"{" WHO ",\"exp\":1800000100,\"iat\":1800000031}", "not valid yet"},
        {"{" WHO ",\"sub\":\"b\",\"exp\":1800000100}", "cannot be read"}, /* twice */
        {"{\"iss\":\"https://as.test\",\"aud\":\"https://cloche.test/mcp\",\"exp\":1800000100}",
         "'sub'"},
        {"{\"iss\":\"https://as.test\",\"aud\":\"https://cloche.test/"
         "mcp\",\"sub\":\"a\\nb\",\"exp\":1800000100}",
         "'sub'"},
        {"[1]", "cannot be read"},
        {"{", "cannot be read"},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++)
        refused(token(ed, ED, rows[i].claims), CL_E_UNAUTH, rows[i].why);
    /* within the skew, and `aud` as a list */
    assert_int_equal(
        verify(token(ed, ED,
                     "{\"iss\":\"https://as.test\",\"aud\":[\"x\",\"https://cloche.test/mcp\"],"
                     "\"sub\":\"a\",\"org\":\"acme\",\"scp\":[\"sandbox:run\"],\"exp\":1799999971,"
                     "\"nbf\":1800000030}")),
        0);
}

static void test_an_unmapped_tenant_or_scope_is_denied(void **state)
{
    (void)state;
    refused(token(ed, ED, "{" WHO ",\"scope\":\"sandbox:run\",\"exp\":1800000100}"), CL_E_DENIED,
            "'org' names no tenant");
    refused(token(ed, ED, "{" WHO ",\"org\":\"Not A Name\",\"exp\":1800000100}"), CL_E_DENIED,
            "names no tenant");
    refused(token(ed, ED, "{" WHO ",\"org\":\"acme\",\"exp\":1800000100}"), CL_E_DENIED, "scopes");
    refused(token(ed, ED,
                  "{" WHO ",\"org\":\"acme\",\"scope\":\"admin sandbox:runs\",\"exp\":1800000100}"),
            CL_E_DENIED, "scopes");
    assert_int_equal(
        verify(token(ed, ED, "{" WHO ",\"org\":\"acme\",\"scope\":\"both\",\"exp\":1800000100}")),
        0);
    assert_int_equal(who.scopes, SCOPE_READ | SCOPE_AUDIT);
}

static void test_long_subjects_stay_different(void **state)
{
    (void)state;
    char claims[1024], a[PRINCIPAL_NAME];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(claims, sizeof claims,
                       "{\"iss\":\"https://as.test\",\"aud\":\"https://cloche.test/mcp\","
                       "\"sub\":\"%0200d\",\"org\":\"acme\",\"scope\":\"both\",\"exp\":1800000100}",
                       i);
        assert_int_equal(verify(token(ed, ED, claims)), 0);
        assert_true(strlen(who.subject) < PRINCIPAL_NAME);
        if (i == 0)
            (void)snprintf(a, sizeof a, "%s", who.subject);
    }
    assert_string_not_equal(a, who.subject);
}

static void test_bad_key_sets_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "line 1"},
        {"{}", "'keys' is no array"},
        {"{\"keys\":[]}", "no key"},
        {"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}", "no key"},
        {"{\"keys\":[],\"keys\":[]}", "duplicate"},
        {"{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}", "2048"},
        {"{\"keys\":[{\"kty\":\"RSA\",\"e\":\"AQAB\"}]}", "'n'"},
        {"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\"}]}", "32 bytes"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
         "\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\","
         "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}]}",
         "no EC key"},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct jwks *k;
        err = (struct cl_err){0};
        assert_int_equal(jwks_parse(rows[i].text, strlen(rows[i].text), &k, &err), -1);
        if (!strstr(err.text, rows[i].why))
            fail_msg("want '%s', got '%s'", rows[i].why, err.text);
    }
}

static void test_base64url_has_one_form(void **state)
{
    (void)state;
    unsigned char out[8];
    size_t n;
    assert_true(base64url_decode("_-8", 3, out, sizeof out, &n) && n == 2 && out[0] == 0xff);
    assert_true(base64url_decode("", 0, out, sizeof out, &n) && n == 0);
    assert_false(base64url_decode("_-9", 3, out, sizeof out, &n)); /* stray bits */
    assert_false(base64url_decode("A", 1, out, sizeof out, &n));
    assert_false(base64url_decode("AA==", 4, out, sizeof out, &n));
    assert_false(base64url_decode("A+/A", 4, out, sizeof out, &n));
    assert_false(base64url_decode("AAAAAAAA", 8, out, 5, &n));
}

static void test_scope_maps_are_checked(void **state)
{
    (void)state;
    struct jwt_rules r;
    assert_int_equal(jwt_scope_map_parse("a=read,b=run", &r, &err), 0);
    assert_int_equal(r.n_scopes, 2);
    assert_int_equal(jwt_scope_map_parse("a", &r, &err), -1);
    assert_int_equal(jwt_scope_map_parse("=run", &r, &err), -1);
    assert_int_equal(jwt_scope_map_parse("a=root", &r, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_algorithm_is_taken),
        cmocka_unit_test(test_any_changed_byte_is_refused),
        cmocka_unit_test(test_the_token_does_not_choose_how_it_is_checked),
        cmocka_unit_test(test_claims_must_be_for_us_and_now),
        cmocka_unit_test(test_an_unmapped_tenant_or_scope_is_denied),
        cmocka_unit_test(test_long_subjects_stay_different),
        cmocka_unit_test(test_bad_key_sets_are_refused),
        cmocka_unit_test(test_base64url_has_one_form),
        cmocka_unit_test(test_scope_maps_are_checked),
    };
    make_keys();
    if (jwt_scope_map_parse("sandbox:run=run,both=read,both=audit", &rules, &err) < 0 ||
        jwks_parse(set_text, strlen(set_text), &keys, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    jwks_free(keys);
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(p256);
    EVP_PKEY_free(ed);
    return rc;
}
