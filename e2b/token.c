/* e2b/token.c - see e2b/token.h. */
#include "e2b/token.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { NONCE = 12, TAG = 16, KEY = 32 };
#define PREFIX "cle2b_"
#define LABEL "cloche e2b token 1"

/* sandbox NUL, and the grant's text */
enum { SEALED_MAX = CL_ID_MAX + E2B_PLAIN_MAX };
_Static_assert(sizeof PREFIX + 4 * ((SEALED_MAX + NONCE + TAG + 2) / 3) <= E2B_TOKEN_MAX,
               "a token has room");

static int fail_size(size_t n, struct cl_err *err)
{
    return cl_fail(err, CL_E_TOOBIG, 0,
                   "credential and envVars have %zu bytes; at most %d: give variables to the "
                   "commands that need them",
                   n, E2B_PLAIN_MAX);
}

int e2b_grant_make(const char *sandbox, const char *credential, const char *env,
                   struct e2b_grant *ret_grant, struct cl_err *err)
{
    size_t n = strlen(credential) + 1, m = strlen(env) + 1;
    if (n + m > E2B_PLAIN_MAX)
        return fail_size(n + m, err);
    (void)snprintf(ret_grant->sandbox, sizeof ret_grant->sandbox, "%s", sandbox);
    memcpy(ret_grant->text, credential, n);
    memcpy(ret_grant->text + n, env, m);
    ret_grant->n = n + m;
    ret_grant->credential = ret_grant->text;
    ret_grant->env = ret_grant->text + n;
    ret_grant->user = ret_grant->cwd = "";
    return 0;
}

int e2b_grant_set_place(struct e2b_grant *grant, const char *user, const char *cwd,
                        struct cl_err *err)
{
    size_t n = strlen(user) + 1, m = strlen(cwd) + 1;
    char *to = grant->text + grant->n;
    if (n + m == 2)
        return 0;
    if (grant->n + n + m > E2B_PLAIN_MAX)
        return fail_size(grant->n + n + m, err);
    memcpy(to, user, n);
    memcpy(to + n, cwd, m);
    grant->n += n + m;
    grant->user = to;
    grant->cwd = to + n;
    return 0;
}

/* The secret makes other things, too: each has a key of its own. */
static void derive(const uint8_t secret[static E2B_SECRET], uint8_t key[static KEY])
{
    unsigned n = KEY;
    (void)HMAC(EVP_sha256(), secret, E2B_SECRET, (const uint8_t *)LABEL, sizeof LABEL - 1, key, &n);
}

static int fail_seal(struct cl_err *err)
{
    return cl_fail(err, CL_E_SYS, 0, "seal an access token");
}

static int encrypt(const uint8_t *key, const uint8_t *nonce, const uint8_t *plain, size_t n,
                   uint8_t *to, uint8_t *tag)
{
    int m = 0, last = 0;
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    bool good = x && EVP_EncryptInit_ex(x, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
                EVP_EncryptUpdate(x, to, &m, plain, (int)n) == 1 &&
                EVP_EncryptFinal_ex(x, to + m, &last) == 1 &&
                EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_GCM_GET_TAG, TAG, tag) == 1;
    EVP_CIPHER_CTX_free(x);
    return good ? 0 : -1;
}

static int decrypt(const uint8_t *key, const uint8_t *nonce, const uint8_t *from, size_t n,
                   const uint8_t *tag, uint8_t *plain)
{
    int m = 0, last = 0;
    EVP_CIPHER_CTX *x = EVP_CIPHER_CTX_new();
    bool good = x && EVP_DecryptInit_ex(x, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
                EVP_DecryptUpdate(x, plain, &m, from, (int)n) == 1 &&
                EVP_CIPHER_CTX_ctrl(x, EVP_CTRL_GCM_SET_TAG, TAG, (void *)(uintptr_t)tag) == 1 &&
                EVP_DecryptFinal_ex(x, plain + m, &last) == 1;
    EVP_CIPHER_CTX_free(x);
    return good ? 0 : -1;
}

int e2b_token_seal(const uint8_t secret[static E2B_SECRET], const struct e2b_grant *grant,
                   char token[static E2B_TOKEN_MAX], struct cl_err *err)
{
    uint8_t key[KEY], plain[SEALED_MAX], bytes[NONCE + SEALED_MAX + TAG];
    size_t id_n = strlen(grant->sandbox) + 1, n = id_n + grant->n;
    memcpy(plain, grant->sandbox, id_n);
    memcpy(plain + id_n, grant->text, grant->n);
    derive(secret, key);
    cl_random(bytes, NONCE);
    int rc = encrypt(key, bytes, plain, n, bytes + NONCE, bytes + NONCE + n);
    OPENSSL_cleanse(plain, sizeof plain);
    OPENSSL_cleanse(key, sizeof key);
    if (rc < 0)
        return fail_seal(err);
    memcpy(token, PREFIX, sizeof PREFIX);
    (void)EVP_EncodeBlock((uint8_t *)token + sizeof PREFIX - 1, bytes, (int)(NONCE + n + TAG));
    return 0;
}

enum { TEXTS = 4 };

/* Where each of the texts begins that fill text[0..n), the last one ending with it: how many they
 * are; 0: they do not, or are more. */
static size_t find_texts(const char *text, size_t n, const char *ret[static TEXTS])
{
    size_t found = 0;
    for (const char *at = text, *end = text + n; at < end && found < TEXTS; found++) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        if (!nul)
            return 0;
        ret[found] = at;
        at = nul + 1;
        if (at == end)
            return found + 1;
    }
    return 0;
}

/* The sandbox, then two texts or all four. */
static bool split(const uint8_t *plain, size_t n, struct e2b_grant *ret)
{
    const char *id = (const char *)plain, *credential = memchr(id, '\0', n);
    const char *at[TEXTS] = {NULL, NULL, "", ""};
    if (!credential || ++credential - id > (ptrdiff_t)sizeof ret->sandbox)
        return false;
    ret->n = n - (size_t)(credential - id);
    if (ret->n > E2B_PLAIN_MAX)
        return false;
    memcpy(ret->sandbox, id, (size_t)(credential - id));
    memcpy(ret->text, credential, ret->n);
    size_t texts = find_texts(ret->text, ret->n, at);
    ret->credential = at[0];
    ret->env = at[1];
    ret->user = at[2];
    ret->cwd = at[3];
    return texts == 2 || texts == TEXTS;
}

int e2b_token_open(const uint8_t secret[static E2B_SECRET], const char *token,
                   struct e2b_grant *ret_grant, struct cl_err *err)
{
    uint8_t key[KEY], plain[SEALED_MAX], bytes[NONCE + SEALED_MAX + TAG + 3];
    const char *text = token + sizeof PREFIX - 1;
    int rc = -1;
    size_t n = strlen(token);
    if (n < E2B_TOKEN_MAX && strncmp(token, PREFIX, sizeof PREFIX - 1) == 0 &&
        (n -= sizeof PREFIX - 1) % 4 == 0 && n / 4 * 3 <= sizeof bytes) {
        int got = EVP_DecodeBlock(bytes, (const uint8_t *)text, (int)n);
        got -= got > 0 && n > 1 ? (text[n - 1] == '=') + (text[n - 2] == '=') : 0;
        size_t sealed = got > NONCE + TAG ? (size_t)got - NONCE - TAG : 0;
        derive(secret, key);
        if (sealed > 0 && sealed <= sizeof plain &&
            decrypt(key, bytes, bytes + NONCE, sealed, bytes + NONCE + sealed, plain) == 0 &&
            split(plain, sealed, ret_grant))
            rc = 0;
        OPENSSL_cleanse(plain, sizeof plain);
        OPENSSL_cleanse(key, sizeof key);
    }
    return rc == 0 ? 0
                   : cl_fail(err, CL_E_UNAUTH, 0,
                             "no access token of this gateway: take the one that creating the "
                             "sandbox, or connecting to it, answered");
}
