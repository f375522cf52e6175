/* agent/cmdline.c - see agent/cmdline.h. */
#include "agent/cmdline.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 512 };

/* Digits only, no sign, no overflow. */
static bool parse_number(const char *s, size_t n, uint64_t *ret)
{
    uint64_t v = 0;
    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(s[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *ret = v;
    return true;
}

static bool copy_hex(const char *s, size_t n, char *out, size_t max)
{
    if (n > max || n % 2 != 0 || strspn(s, "0123456789abcdef") < n)
        return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

static int parse_verity(const char *value, struct verity_args *ret, struct cl_err *err)
{
    const char *field[4] = {value};
    size_t len[4];
    for (size_t i = 0; i < CL_COUNT(field); i++) {
        len[i] = strcspn(field[i], ":");
        bool last = i + 1 == CL_COUNT(field);
        if (last != (field[i][len[i]] == '\0'))
            return cl_fail(err, CL_E_INVALID, 0, "cloche.verity: want hash:blocks:start:salt");
        if (!last)
            field[i + 1] = field[i] + len[i] + 1;
    }
    if (len[0] != VERITY_HASH_HEX || !copy_hex(field[0], len[0], ret->root_hash, VERITY_HASH_HEX))
        return cl_fail(err, CL_E_INVALID, 0, "cloche.verity: the root hash is not SHA-256 in hex");
    if (!parse_number(field[1], len[1], &ret->data_blocks) || ret->data_blocks == 0 ||
        ret->data_blocks > UINT64_MAX / 4096 || !parse_number(field[2], len[2], &ret->hash_start))
        return cl_fail(err, CL_E_INVALID, 0, "cloche.verity: block numbers");
    if (!copy_hex(field[3], len[3], ret->salt, VERITY_SALT_HEX_MAX))
        return cl_fail(err, CL_E_INVALID, 0, "cloche.verity: the salt is not hex");
    return 0;
}

static bool parse_address(const char *s, size_t n, uint32_t *ret)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr in;
    if (n >= sizeof text)
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    if (inet_pton(AF_INET, text, &in) != 1 || in.s_addr == 0)
        return false;
    *ret = ntohl(in.s_addr);
    return true;
}

static int parse_card(const char *value, struct card_args *ret, struct cl_err *err)
{
    const char *prefix = value + strcspn(value, "/"), *gateway = value + strcspn(value, ",");
    const char *dns = *gateway ? gateway + 1 + strcspn(gateway + 1, ",") : gateway;
    uint64_t bits = 0;
    if (*prefix != '/' || prefix > gateway || *dns != ',' ||
        !parse_address(value, (size_t)(prefix - value), &ret->address) ||
        !parse_number(prefix + 1, (size_t)(gateway - prefix - 1), &bits) || bits < 1 || bits > 32 ||
        !parse_address(gateway + 1, (size_t)(dns - gateway - 1), &ret->gateway) ||
        !parse_address(dns + 1, strlen(dns + 1), &ret->dns))
        return cl_fail(err, CL_E_INVALID, 0,
                       "cloche.net: want address/prefix,gateway,resolver, of IPv4");
    ret->prefix = (uint8_t)bits;
    return 0;
}

/* What follows `name` in the word; NULL = it is another. */
static const char *value_of(const char *word, const char *name)
{
    size_t n = strlen(name);
    return strncmp(word, name, n) == 0 ? word + n : NULL;
}

static int take_number(const char *name, const char *value, uint64_t *ret, struct cl_err *err)
{
    if (!parse_number(value, strlen(value), ret))
        return cl_fail(err, CL_E_INVALID, 0, "%s: want a number", name);
    return 0;
}

static int take_word(const char *word, struct boot_args *args, struct cl_err *err)
{
    const char *value;
    if ((value = value_of(word, "cloche.verity=")) != NULL) {
        args->has_verity = true;
        return parse_verity(value, &args->verity, err);
    }
    if ((value = value_of(word, "cloche.scratch=")) != NULL)
        return take_number("cloche.scratch", value, &args->scratch_bytes, err);
    if ((value = value_of(word, "cloche.fault_around=")) != NULL)
        return take_number("cloche.fault_around", value, &args->fault_around, err);
    if ((value = value_of(word, "cloche.sensor_us=")) != NULL)
        return take_number("cloche.sensor_us", value, &args->sensor_us, err);
    if ((value = value_of(word, "cloche.net=")) != NULL)
        return parse_card(value, &args->card, err);
    if (strcmp(word, "cloche.disk=1") == 0)
        args->has_disk = true;
    else if (strcmp(word, "cloche.noverity=1") == 0)
        args->noverity = true;
    else if (strncmp(word, "cloche.", 7) == 0)
        return cl_fail(err, CL_E_INVALID, 0, "unknown word '%s'", word);
    return 0;
}

int cmdline_parse(const char *text, struct boot_args *ret_args, struct cl_err *err)
{
    struct boot_args args = {0};
    for (const char *at = text; *at;) {
        at += strspn(at, " \n");
        size_t n = strcspn(at, " \n");
        char word[WORD_MAX];
        if (n >= sizeof word) { /* ours are shorter: verity takes 64 + 128 + 2 * 20 */
            if (strncmp(at, "cloche.", 7) == 0)
                return cl_fail(err, CL_E_INVALID, 0, "a word of %zu bytes", n);
        } else {
            memcpy(word, at, n);
            word[n] = '\0';
            if (take_word(word, &args, err) < 0)
                return -1;
        }
        at += n;
    }
    if (!args.has_verity && !args.noverity)
        return cl_fail(err, CL_E_INVALID, 0, "neither cloche.verity= nor cloche.noverity=1");
    *ret_args = args;
    return 0;
}
