/* policy/jwt.c - see policy/jwt.h. */
#include "policy/jwt.h"

#include <jansson.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/id.h"

enum {
    ES256_BYTES = 64,   /* r and s, RFC 7518 §3.4 */
    ES256_DER_MAX = 80, /* the same in DER */
    SIGNATURE_MAX = 1024,
    TENANT_NAME_MAX = PRINCIPAL_NAME - 1,
};

/* --- rules ---------------------------------------------------------------------------------- */

static int add_scope(struct jwt_rules *rules, const char *word, size_t n, struct cl_err *err)
{
    const char *eq = memchr(word, '=', n);
    size_t left = eq ? (size_t)(eq - word) : 0;
    char ours[SCOPES_TEXT];
    if (rules->n_scopes == JWT_SCOPES)
        return cl_fail(err, CL_E_INVALID, 0, "more than %d scopes", JWT_SCOPES);
    if (left == 0 || left >= JWT_SCOPE || n - left - 1 >= sizeof ours)
        return cl_fail(err, CL_E_INVALID, 0, "'%.*s': want THEIRS=OURS", (int)CL_MIN(n, (size_t)80),
                       word);
    (void)snprintf(ours, sizeof ours, "%.*s", (int)(n - left - 1), eq + 1);
    if (scopes_parse(ours, &rules->scopes[rules->n_scopes].ours, err) < 0)
        return -1;
    (void)snprintf(rules->scopes[rules->n_scopes].theirs, JWT_SCOPE, "%.*s", (int)left, word);
    rules->n_scopes++;
    return 0;
}

int jwt_scope_map_parse(const char *text, struct jwt_rules *rules, struct cl_err *err)
{
    rules->n_scopes = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        if (add_scope(rules, at, n, err) < 0)
            return cl_wrap(err, "scope map");
        at += n + (at[n] == ',');
    }
    return 0;
}

/* --- the three parts ------------------------------------------------------------------------ */

struct part {
    const char *at;
    size_t n;
};

/* Header, claims and signature; false unless there are exactly three. */
static bool split(const char *token, struct part parts[static 3])
{
    const char *at = token;
    for (size_t i = 0; i < 3; i++) {
        parts[i] = (struct part){at, strcspn(at, ".")};
        at += parts[i].n;
        if ((i < 2 && *at++ != '.') || (i == 2 && *at != '\0') || parts[i].n == 0)
            return false;
    }
    return true;
}

bool jwt_is_like(const char *text)
{
    struct part parts[3];
    return split(text, parts);
}

static json_t *read_json(const struct part *p)
{
    uint8_t text[JWT_MAX];
    size_t n;
    if (!base64url_decode(p->at, p->n, text, sizeof text, &n))
        return NULL;
    json_t *v = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, NULL);
    if (v && json_is_object(v))
        return v;
    json_decref(v);
    return NULL;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* --- header --------------------------------------------------------------------------------- */

static enum jwt_alg alg_of(const char *name)
{
    static const struct {
        const char *name;
        enum jwt_alg alg;
    } rows[] = {{"RS256", JWT_RS256}, {"ES256", JWT_ES256}, {"EdDSA", JWT_EDDSA}};
    for (size_t i = 0; name && i < CL_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].alg;
    }
    return 0;
}

static int read_header(const struct part *p, enum jwt_alg *ret_alg, char kid[static JWK_KID],
                       bool *ret_has_kid, struct cl_err *err)
{
    json_t *h = read_json(p);
    const char *typ = h ? text_of(h, "typ") : NULL;
    const json_t *id = h ? json_object_get(h, "kid") : NULL;
    int rc = 0;
    *ret_alg = h ? alg_of(text_of(h, "alg")) : 0;
    *ret_has_kid = id != NULL;
    if (!h)
        rc = cl_fail(err, CL_E_UNAUTH, 0, "the token's header cannot be read");
    else if (!*ret_alg)
        rc = cl_fail(err, CL_E_UNAUTH, 0, "the token is not signed with RS256, ES256 or EdDSA");
    else if (json_object_get(h, "crit")) /* RFC 7515 §4.1.11: extensions that we do not know */
        rc = cl_fail(err, CL_E_UNAUTH, 0, "the token needs extensions that are not understood");
    else if (typ && strcasecmp(typ, "JWT") != 0 && strcasecmp(typ, "at+jwt") != 0)
        rc = cl_fail(err, CL_E_UNAUTH, 0, "the token is of another type");
    else if (id && (!json_is_string(id) || json_string_length(id) >= JWK_KID))
        rc = cl_fail(err, CL_E_UNAUTH, 0, "the token's 'kid' is no short text");
    else
        (void)snprintf(kid, JWK_KID, "%s", id ? json_string_value(id) : "");
    json_decref(h);
    return rc;
}

/* --- signature ------------------------------------------------------------------------------ */

/* r and s side by side -> DER, which OpenSSL wants; 0 = they are no numbers. */
static size_t es256_to_der(const uint8_t *raw, size_t n, uint8_t out[static ES256_DER_MAX])
{
    int len = 0;
    if (n != ES256_BYTES)
        return 0;
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(raw, ES256_BYTES / 2, NULL);
    BIGNUM *s = BN_bin2bn(raw + ES256_BYTES / 2, ES256_BYTES / 2, NULL);
    if (sig && r && s && ECDSA_SIG_set0(sig, r, s)) {
        uint8_t *p = out;
        r = s = NULL; /* the signature's now */
        if (i2d_ECDSA_SIG(sig, NULL) <= ES256_DER_MAX)
            len = i2d_ECDSA_SIG(sig, &p);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return len > 0 ? (size_t)len : 0;
}

static bool signature_is_good(EVP_PKEY *key, enum jwt_alg alg, const struct part *signed_text,
                              const struct part *signature)
{
    uint8_t raw[SIGNATURE_MAX], der[ES256_DER_MAX];
    const uint8_t *sig = raw;
    size_t n;
    if (!base64url_decode(signature->at, signature->n, raw, sizeof raw, &n))
        return false;
    if (alg == JWT_ES256) {
        n = es256_to_der(raw, n, der);
        sig = der;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const EVP_MD *md = alg == JWT_EDDSA ? NULL : EVP_sha256();
    bool good =
        n > 0 && ctx && EVP_DigestVerifyInit(ctx, NULL, md, NULL, key) == 1 &&
        EVP_DigestVerify(ctx, sig, n, (const uint8_t *)signed_text->at, signed_text->n) == 1;
    EVP_MD_CTX_free(ctx);
    return good;
}

static int check_signature(const struct jwks *keys, const struct part parts[static 3],
                           struct cl_err *err)
{
    enum jwt_alg alg;
    char kid[JWK_KID];
    bool has_kid;
    if (read_header(&parts[0], &alg, kid, &has_kid, err) < 0)
        return -1;
    EVP_PKEY *key = jwks_find(keys, alg, has_kid ? kid : NULL);
    if (!key) {
        (void)cl_fail(err, CL_E_UNAUTH, 0, "no key of the issuer has the token's 'kid' and 'alg'");
        (void)snprintf(err->subject, sizeof err->subject, "kid");
        return -1;
    }
    struct part text = {parts[0].at, parts[0].n + 1 + parts[1].n};
    if (!signature_is_good(key, alg, &text, &parts[2]))
        return cl_fail(err, CL_E_UNAUTH, 0, "the token's signature is wrong");
    return 0;
}

/* --- claims --------------------------------------------------------------------------------- */

static bool is_for(const json_t *aud, const char *audience)
{
    size_t i;
    const json_t *v;
    if (json_is_string(aud))
        return strcmp(json_string_value(aud), audience) == 0;
    json_array_foreach(aud, i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), audience) == 0)
            return true;
    }
    return false;
}

/* A NumericDate (RFC 7519 §2); false = it is there and is none. */
static bool date_of(const json_t *claims, const char *name, double absent, double *ret)
{
    const json_t *v = json_object_get(claims, name);
    *ret = v ? json_number_value(v) : absent;
    return !v || (json_is_number(v) && *ret >= 0 && *ret < 1e12);
}

static int check_time(const json_t *claims, double skew, double now, struct cl_err *err)
{
    double exp, nbf, iat;
    if (!json_object_get(claims, "exp") || !date_of(claims, "exp", 0, &exp) ||
        !date_of(claims, "nbf", 0, &nbf) || !date_of(claims, "iat", 0, &iat))
        return cl_fail(err, CL_E_UNAUTH, 0, "the token's 'exp', 'nbf' or 'iat' is missing or bad");
    if (now >= exp + skew)
        return cl_fail(err, CL_E_UNAUTH, 0, "the token has expired; get a fresh one");
    if (now + skew < nbf || now + skew < iat)
        return cl_fail(err, CL_E_UNAUTH, 0, "the token is not valid yet; compare the clocks");
    return 0;
}

/* One word of the token's scopes, in our terms. */
static uint32_t scope_of(const struct jwt_rules *rules, const char *word, size_t n)
{
    uint32_t ours = 0;
    for (size_t i = 0; i < rules->n_scopes; i++) {
        if (strlen(rules->scopes[i].theirs) == n && memcmp(rules->scopes[i].theirs, word, n) == 0)
            ours |= rules->scopes[i].ours;
    }
    return ours;
}

/* `scope` (RFC 8693 §4.2), words with spaces between; or `scp`, the same or a list. */
static uint32_t scopes_of(const json_t *claims, const struct jwt_rules *rules)
{
    const json_t *v = json_object_get(claims, "scope"), *one;
    uint32_t ours = 0;
    size_t i;
    if (!v)
        v = json_object_get(claims, "scp");
    json_array_foreach(v, i, one)
    {
        if (json_is_string(one))
            ours |= scope_of(rules, json_string_value(one), json_string_length(one));
    }
    for (const char *at = json_string_value(v); at && *at;) {
        size_t n = strcspn(at, " ");
        ours |= scope_of(rules, at, n);
        at += n + (at[n] == ' ');
    }
    return ours;
}

/* Subjects go into logs and lists: no control characters. */
static bool is_printable(const char *s)
{
    for (const char *at = s; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    }
    return s[0] != '\0';
}

/* "jwt:" keeps it apart from the subjects that API keys are made for. */
static void name_subject(const char *sub, char out[static PRINCIPAL_NAME])
{
    uint8_t digest[32];
    char hex[2 * sizeof digest + 1];
    int n = snprintf(out, PRINCIPAL_NAME, "jwt:%s", sub);
    if (n < PRINCIPAL_NAME)
        return;
    CL_ASSERT(EVP_Digest(sub, strlen(sub), digest, NULL, EVP_sha256(), NULL) == 1);
    cl_hex(digest, sizeof digest, hex);
    (void)snprintf(out, PRINCIPAL_NAME, "jwt#%.48s", hex);
}

static int check_claims(const json_t *claims, const struct jwt_rules *rules, double now,
                        struct principal *ret, struct cl_err *err)
{
    const char *iss = text_of(claims, "iss"), *sub = text_of(claims, "sub");
    const char *tenant = text_of(claims, rules->tenant_claim);
    if (!iss || strcmp(iss, rules->issuer) != 0)
        return cl_fail(err, CL_E_UNAUTH, 0, "the token is of another issuer");
    if (!is_for(json_object_get(claims, "aud"), rules->audience))
        return cl_fail(err, CL_E_UNAUTH, 0, "the token is for another audience");
    if (check_time(claims, (double)rules->skew_s, now, err) < 0)
        return -1;
    if (!sub || !is_printable(sub))
        return cl_fail(err, CL_E_UNAUTH, 0, "the token's 'sub' is missing or not printable");
    if (!tenant || !cl_name_is_valid(tenant) || strlen(tenant) > TENANT_NAME_MAX)
        return cl_fail(err, CL_E_DENIED, 0, "the token's claim '%s' names no tenant",
                       rules->tenant_claim);
    *ret = (struct principal){.scopes = scopes_of(claims, rules)};
    if (!ret->scopes)
        return cl_fail(err, CL_E_DENIED, 0, "the token has none of the scopes that count here");
    (void)snprintf(ret->tenant, sizeof ret->tenant, "%s", tenant);
    (void)snprintf(ret->key_id, sizeof ret->key_id, PRINCIPAL_BY_TOKEN);
    name_subject(sub, ret->subject);
    return 0;
}

int jwt_verify(const struct jwks *keys, const struct jwt_rules *rules, const char *token,
               uint64_t now_s, struct principal *ret, struct cl_err *err)
{
    struct part parts[3];
    if (strlen(token) > JWT_MAX)
        return cl_fail(err, CL_E_UNAUTH, 0, "a token of more than %d bytes", JWT_MAX);
    if (!split(token, parts))
        return cl_fail(err, CL_E_UNAUTH, 0, "a token has three parts");
    if (check_signature(keys, parts, err) < 0)
        return -1;
    json_t *claims = read_json(&parts[1]);
    if (!claims)
        return cl_fail(err, CL_E_UNAUTH, 0, "the token's claims cannot be read");
    int rc = check_claims(claims, rules, (double)now_s, ret, err);
    json_decref(claims);
    return rc;
}
