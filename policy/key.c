/* policy/key.c - see policy/key.h. */
#include "policy/key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"

enum {
    PREFIX_LEN = 4,
    ID_LEN = API_KEY_ID - 1,
    SECRET_AT = PREFIX_LEN + ID_LEN + 1,
    TEXT_LEN = API_KEY_TEXT - 1,
    PEPPER_MIN = 16,
    PEPPER_MAX = 64,
};

void api_key_new(struct api_key *ret)
{
    uint8_t id[ID_LEN / 2];
    cl_random(id, sizeof id);
    cl_hex(id, sizeof id, ret->id);
    cl_random(ret->secret, sizeof ret->secret);
}

void api_key_format(const struct api_key *key, char out[static API_KEY_TEXT])
{
    char secret[2 * API_KEY_SECRET + 1];
    cl_hex(key->secret, sizeof key->secret, secret);
    (void)snprintf(out, API_KEY_TEXT, "clk_%s_%s", key->id, secret);
    OPENSSL_cleanse(secret, sizeof secret);
}

static bool is_lower_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    }
    return true;
}

int api_key_parse(const char *text, struct api_key *ret, struct cl_err *err)
{
    if (strnlen(text, API_KEY_TEXT) != TEXT_LEN || memcmp(text, "clk_", PREFIX_LEN) != 0 ||
        text[SECRET_AT - 1] != '_' || !is_lower_hex(text + PREFIX_LEN, ID_LEN) ||
        !is_lower_hex(text + SECRET_AT, (size_t)2 * API_KEY_SECRET))
        return cl_fail(err, CL_E_UNAUTH, 0, "the credential does not have the form of an API key");
    memcpy(ret->id, text + PREFIX_LEN, ID_LEN);
    ret->id[ID_LEN] = '\0';
    CL_ASSERT(cl_unhex(text + SECRET_AT, (size_t)2 * API_KEY_SECRET, ret->secret, API_KEY_SECRET));
    return 0;
}

int api_key_mac(const struct api_key *key, const uint8_t *pepper, size_t n,
                uint8_t ret_mac[static API_KEY_MAC], struct cl_err *err)
{
    uint8_t message[ID_LEN + API_KEY_SECRET];
    unsigned len = 0;
    if (n < PEPPER_MIN || n > PEPPER_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the pepper has %zu bytes, want %d to %d", n,
                       PEPPER_MIN, PEPPER_MAX);
    memcpy(message, key->id, ID_LEN);
    memcpy(message + ID_LEN, key->secret, API_KEY_SECRET);
    bool ok = HMAC(EVP_sha256(), pepper, (int)n, message, sizeof message, ret_mac, &len) &&
              len == API_KEY_MAC;
    OPENSSL_cleanse(message, sizeof message);
    return ok ? 0 : cl_fail(err, CL_E_NOMEM, 0, "HMAC of an API key");
}

bool api_key_mac_equal(const uint8_t a[static API_KEY_MAC], const uint8_t b[static API_KEY_MAC])
{
    return CRYPTO_memcmp(a, b, API_KEY_MAC) == 0;
}

void api_key_wipe(struct api_key *key)
{
    OPENSSL_cleanse(key, sizeof *key);
}
