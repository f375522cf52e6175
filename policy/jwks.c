/* policy/jwks.c - see policy/jwks.h. */
#include "policy/jwks.h"

#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, P256_BYTES = 32, ED25519_BYTES = 32 };

struct jwk {
    enum jwt_alg alg;
    char kid[JWK_KID]; /* "" = none */
    EVP_PKEY *key;     /* owned */
};

struct jwks {
    size_t n;
    struct jwk keys[JWKS_KEYS];
};

/* --- base64url ------------------------------------------------------------------------------ */

static int sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool base64url_decode(const char *in, size_t n, unsigned char *out, size_t max, size_t *ret_n)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        int v = sextet(in[i]);
        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        held += 6;
        if (held < 8)
            continue;
        if (done == max)
            return false;
        held -= 8;
        out[done++] = (unsigned char)(bits >> held);
        bits &= (1U << held) - 1;
    }
    *ret_n = done;
    return held < 6 && bits == 0;
}

/* --- numbers -> keys ------------------------------------------------------------------------ */

static int member(const json_t *jwk, const char *name, uint8_t *out, size_t max, size_t *ret_n,
                  struct cl_err *err)
{
    const json_t *v = json_object_get(jwk, name);
    if (!json_is_string(v) ||
        !base64url_decode(json_string_value(v), json_string_length(v), out, max, ret_n))
        return cl_fail(err, CL_E_INVALID, 0, "'%s' is no base64url of at most %zu bytes", name,
                       max);
    return 0;
}

/* The public key of `type` with these parameters; takes them. */
static EVP_PKEY *key_from(const char *type, OSSL_PARAM *params)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!params || !ctx || EVP_PKEY_fromdata_init(ctx) <= 0 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) <= 0)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return key;
}

static bool is_sound(EVP_PKEY *key)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    bool sound = ctx && EVP_PKEY_public_check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return sound;
}

static int read_rsa(const json_t *jwk, EVP_PKEY **ret_key, struct cl_err *err)
{
    uint8_t n[RSA_BITS_MAX / 8], e[8];
    size_t n_n, e_n;
    if (member(jwk, "n", n, sizeof n, &n_n, err) < 0 ||
        member(jwk, "e", e, sizeof e, &e_n, err) < 0)
        return -1;
    BIGNUM *modulus = BN_bin2bn(n, (int)n_n, NULL), *exponent = BN_bin2bn(e, (int)e_n, NULL);
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    bool big = modulus && BN_num_bits(modulus) >= RSA_BITS_MIN;
    if (big && exponent && bld && OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_N, modulus) &&
        OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_E, exponent))
        *ret_key = key_from("RSA", OSSL_PARAM_BLD_to_param(bld));
    OSSL_PARAM_BLD_free(bld);
    BN_free(modulus);
    BN_free(exponent);
    if (!big)
        return cl_fail(err, CL_E_INVALID, 0, "an RSA key must have %d to %d bits", RSA_BITS_MIN,
                       RSA_BITS_MAX);
    return 0;
}

static int read_p256(const json_t *jwk, EVP_PKEY **ret_key, struct cl_err *err)
{
    uint8_t point[1 + 2 * P256_BYTES] = {POINT_CONVERSION_UNCOMPRESSED};
    size_t x, y;
    if (member(jwk, "x", point + 1, P256_BYTES, &x, err) < 0 ||
        member(jwk, "y", point + 1 + P256_BYTES, P256_BYTES, &y, err) < 0)
        return -1;
    if (x != P256_BYTES || y != P256_BYTES)
        return cl_fail(err, CL_E_INVALID, 0, "'x' and 'y' of P-256 have %d bytes", P256_BYTES);
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    if (bld && OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point))
        *ret_key = key_from("EC", OSSL_PARAM_BLD_to_param(bld));
    OSSL_PARAM_BLD_free(bld);
    return 0;
}

static int read_ed25519(const json_t *jwk, EVP_PKEY **ret_key, struct cl_err *err)
{
    uint8_t x[ED25519_BYTES];
    size_t n;
    if (member(jwk, "x", x, sizeof x, &n, err) < 0)
        return -1;
    if (n != sizeof x)
        return cl_fail(err, CL_E_INVALID, 0, "'x' of Ed25519 has %d bytes", ED25519_BYTES);
    *ret_key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, n);
    return 0;
}

/* --- the set -------------------------------------------------------------------------------- */

static const struct {
    const char *kty, *crv, *alg;
    enum jwt_alg id;
    int (*read)(const json_t *jwk, EVP_PKEY **ret_key, struct cl_err *err);
} kinds[] = {
    {"RSA", NULL, "RS256", JWT_RS256, read_rsa},
    {"EC", "P-256", "ES256", JWT_ES256, read_p256},
    {"OKP", "Ed25519", "EdDSA", JWT_EDDSA, read_ed25519},
};

static bool says(const json_t *jwk, const char *name, const char *want)
{
    const char *v = json_string_value(json_object_get(jwk, name));
    return v && strcmp(v, want) == 0;
}

/* Does the member allow it, by being absent or by its value? */
static bool allows(const json_t *jwk, const char *name, const char *want)
{
    return !json_object_get(jwk, name) || says(jwk, name, want);
}

static int add(struct jwks *set, const json_t *jwk, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(kinds); i++) {
        if (!says(jwk, "kty", kinds[i].kty) || (kinds[i].crv && !says(jwk, "crv", kinds[i].crv)) ||
            !allows(jwk, "alg", kinds[i].alg) || !allows(jwk, "use", "sig"))
            continue;
        struct jwk *k = &set->keys[set->n];
        const json_t *kid = json_object_get(jwk, "kid");
        if (kid && json_string_length(kid) >= sizeof k->kid)
            return cl_fail(err, CL_E_INVALID, 0, "'kid' has more than %zu bytes",
                           sizeof k->kid - 1);
        if (kinds[i].read(jwk, &k->key, err) < 0)
            return -1;
        if (!k->key || !is_sound(k->key)) {
            EVP_PKEY_free(k->key);
            k->key = NULL;
            return cl_fail(err, CL_E_INVALID, 0, "its numbers are no %s key", kinds[i].kty);
        }
        (void)snprintf(k->kid, sizeof k->kid, "%s", kid ? json_string_value(kid) : "");
        k->alg = kinds[i].id;
        set->n++;
        return 0;
    }
    return 0;
}

static int add_all(struct jwks *set, const json_t *root, struct cl_err *err)
{
    const json_t *keys = json_object_get(root, "keys");
    size_t i;
    json_t *jwk;
    if (!json_is_array(keys))
        return cl_fail(err, CL_E_INVALID, 0, "JWK set: 'keys' is no array");
    if (json_array_size(keys) > JWKS_KEYS)
        return cl_fail(err, CL_E_INVALID, 0, "JWK set: %zu keys, at most %d", json_array_size(keys),
                       JWKS_KEYS);
    json_array_foreach(keys, i, jwk)
    {
        if (add(set, jwk, err) < 0)
            return cl_wrap(err, "JWK set: key %zu", i);
    }
    return set->n ? 0
                  : cl_fail(err, CL_E_INVALID, 0,
                            "JWK set: no key for RS256, ES256 or EdDSA with use 'sig'");
}

int jwks_parse(const char *text, size_t n, struct jwks **ret_keys, struct cl_err *err)
{
    json_error_t where;
    if (n > JWKS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "JWK set of %zu bytes, at most %d", n, JWKS_MAX);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return cl_fail(err, CL_E_INVALID, 0, "JWK set: line %d: %s", where.line, where.text);
    struct jwks *set = cl_zalloc(sizeof *set);
    int rc = set ? add_all(set, root, err) : cl_fail(err, CL_E_NOMEM, 0, "JWK set");
    json_decref(root);
    if (rc < 0) {
        jwks_free(set);
        return -1;
    }
    *ret_keys = set;
    return 0;
}

void jwks_free(struct jwks *keys)
{
    for (size_t i = 0; keys && i < keys->n; i++)
        EVP_PKEY_free(keys->keys[i].key);
    cl_free(keys);
}

size_t jwks_count(const struct jwks *keys)
{
    return keys->n;
}

EVP_PKEY *jwks_find(const struct jwks *keys, enum jwt_alg alg, const char *kid)
{
    const struct jwk *found = NULL;
    for (size_t i = 0; i < keys->n; i++) {
        const struct jwk *k = &keys->keys[i];
        if (k->alg != alg || (kid && strcmp(k->kid, kid) != 0))
            continue;
        if (found)
            return NULL; /* which one?  Trying all would let a token choose */
        found = k;
    }
    return found ? found->key : NULL;
}
