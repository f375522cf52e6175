/* audit/redact.c - see audit/redact.h. */
#include "audit/redact.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/id.h"

static const char *const words[] = {"token",       "password",   "passwd",       "secret",
                                    "api_key",     "apikey",     "credential",   "bearer",
                                    "private_key", "auth_token", "authorization"};

/* Does s[0..n) hold `word`?  Any case; '-' counts as '_'. */
static bool holds(const char *s, size_t n, const char *word)
{
    size_t len = strlen(word);
    for (size_t at = 0; at + len <= n; at++) {
        size_t i = 0;
        while (i < len && (s[at + i] == '-' ? '_' : tolower((unsigned char)s[at + i])) == word[i])
            i++;
        if (i == len)
            return true;
    }
    return false;
}

bool audit_name_is_secret(const char *name, size_t n)
{
    for (size_t i = 0; i < CL_COUNT(words); i++) {
        if (holds(name, n, words[i]))
            return true;
    }
    return false;
}

static void finish(EVP_MD_CTX *ctx, char out[static AUDIT_DIGEST_TEXT])
{
    uint8_t sum[32];
    unsigned len = 0;
    CL_ASSERT(EVP_DigestFinal_ex(ctx, sum, &len) == 1 && len == sizeof sum);
    EVP_MD_CTX_free(ctx);
    memcpy(out, "sha256:", 7);
    cl_hex(sum, sizeof sum, out + 7);
}

static EVP_MD_CTX *begin(void)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CL_ASSERT(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1);
    return ctx;
}

void audit_digest_salted(const uint8_t salt[static AUDIT_SALT], const char *tenant,
                         const void *data, size_t n, char out[static AUDIT_DIGEST_TEXT])
{
    EVP_MD_CTX *ctx = begin();
    CL_ASSERT(EVP_DigestUpdate(ctx, salt, AUDIT_SALT) == 1);
    CL_ASSERT(EVP_DigestUpdate(ctx, tenant, strlen(tenant) + 1) == 1);
    CL_ASSERT(EVP_DigestUpdate(ctx, data, n) == 1);
    finish(ctx, out);
}

void audit_digest(const void *data, size_t n, char out[static AUDIT_DIGEST_TEXT])
{
    EVP_MD_CTX *ctx = begin();
    CL_ASSERT(EVP_DigestUpdate(ctx, data, n) == 1);
    finish(ctx, out);
}

/* `--password` and friends announce a secret in the next element. */
static bool announces(const char *arg)
{
    return arg[0] == '-' && !strchr(arg, '=') && audit_name_is_secret(arg, strlen(arg));
}

int audit_redact_argv(struct cl_arena *arena, const uint8_t salt[static AUDIT_SALT],
                      const char *tenant, const char *const *argv, size_t n, const char ***ret_argv,
                      struct cl_err *err)
{
    const char **out = cl_arena_alloc(arena, (n + 1) * sizeof *out);
    bool next_is_secret = false;
    for (size_t i = 0; out && i < n; i++) {
        bool secret = next_is_secret;
        next_is_secret = announces(argv[i]);
        if (!secret && (next_is_secret || !audit_name_is_secret(argv[i], strlen(argv[i])))) {
            out[i] = argv[i];
            continue;
        }
        char *digest = cl_arena_alloc(arena, AUDIT_DIGEST_TEXT);
        if (!digest)
            return cl_fail(err, CL_E_NOMEM, 0, "redact %zu arguments", n);
        audit_digest_salted(salt, tenant, argv[i], strlen(argv[i]), digest);
        out[i] = digest;
    }
    if (!out)
        return cl_fail(err, CL_E_NOMEM, 0, "redact %zu arguments", n);
    *ret_argv = out;
    return 0;
}
