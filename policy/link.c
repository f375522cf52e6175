/* policy/link.c - see policy/link.h. */
#include "policy/link.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

enum {
    PREFIX_LEN = 4, /* "clp_" */
    ID_LEN = 26,
    SECRET_AT = PREFIX_LEN + ID_LEN + 1,
    SECRET_LEN = LINK_SECRET - 1,
    TEXT_LEN = LINK_TEXT - 1,
    MAC_LEN = 16,
    CLAIMS_LEN = 16,
    BYTES = CLAIMS_LEN + MAC_LEN,
    VERSION = 1,
    BITS_PER_CHAR = 5,
};
_Static_assert(SECRET_LEN == (8 * BYTES + BITS_PER_CHAR - 1) / BITS_PER_CHAR, "base32");

#define LABEL "cloche port link 1"
static const char crockford[] = "0123456789abcdefghjkmnpqrstvwxyz";

/* --- base32, as RFC 4648 packs bits -------------------------------------------------------------
 */

static void encode(const uint8_t bytes[static BYTES], char text[static LINK_SECRET])
{
    uint32_t bits = 0;
    int n = 0;
    size_t at = 0;
    for (size_t i = 0; i < BYTES; i++) {
        bits = bits << 8 | bytes[i];
        for (n += 8; n >= BITS_PER_CHAR; n -= BITS_PER_CHAR)
            text[at++] = crockford[bits >> (n - BITS_PER_CHAR) & 31];
    }
    text[at++] = crockford[bits << (BITS_PER_CHAR - n) & 31];
    text[at] = '\0';
}

/* One text a value: the bits that are left over are zero. */
static bool decode(const char *text, uint8_t bytes[static BYTES])
{
    uint32_t bits = 0;
    int n = 0;
    size_t at = 0;
    for (size_t i = 0; i < SECRET_LEN; i++) {
        const char *c = text[i] ? strchr(crockford, text[i]) : NULL;
        if (!c)
            return false;
        bits = bits << BITS_PER_CHAR | (uint32_t)(c - crockford);
        n += BITS_PER_CHAR;
        if (n >= 8) {
            n -= 8;
            bytes[at++] = (uint8_t)(bits >> n);
        }
    }
    return at == BYTES && (bits & ((1U << n) - 1)) == 0;
}

/* --- claims and their MAC -----------------------------------------------------------------------
 */

static int make_mac(const char *sandbox, const uint8_t claims[static CLAIMS_LEN],
                    const uint8_t *pepper, size_t n, uint8_t mac[static 32], struct cl_err *err)
{
    uint8_t key[32], message[CL_ID_MAX + CLAIMS_LEN] = {0};
    unsigned len = 0;
    (void)snprintf((char *)message, CL_ID_MAX, "%s", sandbox);
    memcpy(message + CL_ID_MAX, claims, CLAIMS_LEN);
    bool good =
        HMAC(EVP_sha256(), pepper, (int)n, (const uint8_t *)LABEL, sizeof LABEL - 1, key, &len) &&
        HMAC(EVP_sha256(), key, sizeof key, message, sizeof message, mac, &len);
    OPENSSL_cleanse(key, sizeof key);
    return good ? 0 : cl_fail(err, CL_E_NOMEM, 0, "HMAC of a link");
}

static void put(uint8_t *to, uint64_t value, size_t n)
{
    for (size_t i = n; i-- > 0; value >>= 8)
        to[i] = (uint8_t)value;
}

static uint64_t get(const uint8_t *from, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | from[i];
    return value;
}

enum { PORT_AT = 1, EXPIRES_AT = 3, KEY_AT = 8, PORT_LEN = 2, EXPIRES_LEN = 5, KEY_LEN = 8 };

int link_make(const struct link_facts *facts, const uint8_t *pepper, size_t n,
              char text[static LINK_TEXT], struct cl_err *err)
{
    uint8_t bytes[CLAIMS_LEN + 32] = {VERSION};
    if (!cl_id_is(facts->sandbox, "sbx") || facts->port > UINT16_MAX ||
        facts->expires_s >> (8 * EXPIRES_LEN) ||
        !cl_unhex(facts->key_id, strlen(facts->key_id), bytes + KEY_AT, KEY_LEN))
        return cl_fail(err, CL_E_INVALID, 0, "a link of these facts");
    put(bytes + PORT_AT, facts->port, PORT_LEN);
    put(bytes + EXPIRES_AT, facts->expires_s, EXPIRES_LEN);
    if (make_mac(facts->sandbox, bytes, pepper, n, bytes + CLAIMS_LEN, err) < 0)
        return -1;
    char secret[LINK_SECRET];
    encode(bytes, secret);
    (void)snprintf(text, LINK_TEXT, "clp_%s_%s", facts->sandbox + PREFIX_LEN, secret);
    return 0;
}

bool link_is_like(const char *text)
{
    return strncmp(text, "clp_", PREFIX_LEN) == 0;
}

int link_open(const char *text, const uint8_t *pepper, size_t n, uint64_t now_s,
              struct link_facts *ret, struct cl_err *err)
{
    uint8_t bytes[BYTES], mac[32];
    struct link_facts facts = {0};
    if (strnlen(text, LINK_TEXT) != TEXT_LEN || !link_is_like(text) || text[SECRET_AT - 1] != '_' ||
        !decode(text + SECRET_AT, bytes))
        goto out_bad;
    (void)snprintf(facts.sandbox, sizeof facts.sandbox, "sbx_%.*s", ID_LEN, text + PREFIX_LEN);
    if (make_mac(facts.sandbox, bytes, pepper, n, mac, err) < 0)
        return -1;
    if (!cl_id_is(facts.sandbox, "sbx") || CRYPTO_memcmp(mac, bytes + CLAIMS_LEN, MAC_LEN) != 0 ||
        bytes[0] != VERSION)
        goto out_bad;
    facts.port = (uint32_t)get(bytes + PORT_AT, PORT_LEN);
    facts.expires_s = get(bytes + EXPIRES_AT, EXPIRES_LEN);
    cl_hex(bytes + KEY_AT, KEY_LEN, facts.key_id);
    if (facts.expires_s && facts.expires_s <= now_s)
        return cl_fail(err, CL_E_UNAUTH, 0, "the link's time is over");
    *ret = facts;
    return 0;

out_bad:
    return cl_fail(err, CL_E_UNAUTH, 0, "the link is not valid here");
}
