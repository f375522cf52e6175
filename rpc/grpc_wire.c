/* rpc/grpc_wire.c - see rpc/grpc_wire.h. */
#include "rpc/grpc_wire.h"

#include <nghttp2/nghttp2.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int gw_prefix_read(const uint8_t in[static GW_PREFIX], struct gw_prefix *ret_prefix,
                   struct cl_err *err)
{
    if (in[0] > 1)
        return cl_fail(err, CL_E_PEER, 0, "message flag is %u, want 0 or 1", in[0]);
    ret_prefix->compressed = in[0] == 1;
    ret_prefix->len = (uint32_t)in[1] << 24 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 8 | in[4];
    return 0;
}

void gw_prefix_write(uint8_t out[static GW_PREFIX], bool compressed, uint32_t len)
{
    out[0] = compressed;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

/* --- grpc-timeout --------------------------------------------------------------------------- */

static const struct unit {
    char name;
    uint64_t ns;
} units[] = {
    {'n', 1},           {'u', CL_NS_PER_US},     {'m', CL_NS_PER_MS},
    {'S', CL_NS_PER_S}, {'M', 60 * CL_NS_PER_S}, {'H', 3600 * CL_NS_PER_S},
};

enum { TIMEOUT_DIGITS = 8, TIMEOUT_LIMIT = 100000000 };

bool gw_timeout_read(const uint8_t *s, size_t n, uint64_t *ret_ns)
{
    if (n < 2 || n > TIMEOUT_DIGITS + 1)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(s[i] - '0');
    }
    for (size_t i = 0; i < CL_COUNT(units); i++) {
        if (s[n - 1] != (uint8_t)units[i].name)
            continue;
        *ret_ns = value * units[i].ns; /* at most 99999999 hours: fits in 64 bits */
        return true;
    }
    return false;
}

void gw_timeout_write(uint64_t ns, char out[static GW_TIMEOUT_MAX])
{
    for (size_t i = 0; i < CL_COUNT(units); i++) {
        uint64_t value = ns / units[i].ns + (ns % units[i].ns != 0);
        if (value >= TIMEOUT_LIMIT)
            continue;
        (void)snprintf(out, GW_TIMEOUT_MAX, "%" PRIu64 "%c", value, units[i].name);
        return;
    }
    (void)snprintf(out, GW_TIMEOUT_MAX, "%dH", TIMEOUT_LIMIT - 1);
}

/* --- percent ---------------------------------------------------------------------------------- */

size_t gw_percent_encode(const char *in, char *out, size_t cap)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t o = 0;
    CL_ASSERT(cap > 0);
    for (; *in; in++) {
        unsigned char c = (unsigned char)*in;
        bool plain = c >= 0x20 && c <= 0x7e && c != '%';
        if (o + (plain ? 1 : 3) >= cap)
            break;
        if (plain) {
            out[o++] = (char)c;
            continue;
        }
        out[o++] = '%';
        out[o++] = hex[c >> 4];
        out[o++] = hex[c & 15];
    }
    out[o] = '\0';
    return o;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

size_t gw_percent_decode(const uint8_t *in, size_t n, char *out, size_t cap)
{
    size_t o = 0;
    CL_ASSERT(cap > 0);
    for (size_t i = 0; i < n && o + 1 < cap; i++) {
        uint8_t c = in[i];
        if (c == '%' && n - i > 2 && hex_digit(in[i + 1]) >= 0 && hex_digit(in[i + 2]) >= 0) {
            c = (uint8_t)(hex_digit(in[i + 1]) << 4 | hex_digit(in[i + 2]));
            i += 2;
        }
        out[o++] = c ? (char)c : '?';
    }
    out[o] = '\0';
    return o;
}

/* --- base64 ----------------------------------------------------------------------------------- */

size_t gw_base64_size(size_t n)
{
    return (n + 2) / 3 * 4 + 1;
}

size_t gw_base64_encode(const uint8_t *in, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t o = 0;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = CL_MIN(n - i, (size_t)3);
        uint32_t v = (uint32_t)in[i] << 16;
        v |= left > 1 ? (uint32_t)in[i + 1] << 8 : 0;
        v |= left > 2 ? in[i + 2] : 0;
        for (size_t d = 0; d <= left; d++)
            out[o++] = digits[v >> (18 - 6 * d) & 63];
    }
    out[o] = '\0';
    return o;
}

static int base64_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-') /* some clients use the URL alphabet */
        return 62;
    if (c == '/' || c == '_')
        return 63;
    return -1;
}

bool gw_base64_decode(const uint8_t *in, size_t n, uint8_t *out, size_t *ret_n)
{
    for (int pad = 0; pad < 2 && n > 0 && in[n - 1] == '='; pad++)
        n--;
    if (n % 4 == 1)
        return false;
    size_t o = 0;
    uint32_t bits = 0;
    int have = 0;
    for (size_t i = 0; i < n; i++) {
        int d = base64_digit(in[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        out[o++] = (uint8_t)(bits >> have);
    }
    *ret_n = o;
    return true;
}

/* --- header values ---------------------------------------------------------------------------- */

bool gw_is_grpc_content_type(const uint8_t *s, size_t n)
{
    static const char name[] = "application/grpc";
    size_t len = sizeof name - 1;
    if (n < len || memcmp(s, name, len) != 0)
        return false;
    return n == len || s[len] == ';' || (n - len >= 6 && memcmp(s + len, "+proto", 6) == 0);
}

bool gw_list_has(const uint8_t *s, size_t n, const char *token)
{
    size_t want = strlen(token);
    size_t i = 0;
    while (i < n) {
        while (i < n && (s[i] == ' ' || s[i] == ','))
            i++;
        size_t start = i;
        while (i < n && s[i] != ' ' && s[i] != ',')
            i++;
        if (i - start == want && memcmp(s + start, token, want) == 0)
            return true;
    }
    return false;
}

int gw_status_read(const uint8_t *s, size_t n)
{
    if (n == 0 || n > 3)
        return -1;
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        status = status * 10 + (s[i] - '0');
    }
    return status;
}

bool gw_is_metadata_name(const char *name)
{
    if (!*name || strncmp(name, "grpc-", 5) == 0)
        return false;
    for (const char *c = name; *c; c++) {
        bool ok = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '_' ||
                  *c == '.';
        if (!ok)
            return false;
    }
    return true;
}

bool gw_is_metadata_value(const char *value)
{
    for (const char *c = value; *c; c++)
        if (*c < 0x20 || *c > 0x7e)
            return false;
    return true;
}

bool gw_is_binary_name(const char *name, size_t n)
{
    return n > 4 && memcmp(name + n - 4, "-bin", 4) == 0;
}

/* --- status maps ------------------------------------------------------------------------------ */

int gw_status_from_http(int http)
{
    switch (http) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

int gw_status_from_h2_error(uint32_t h2_error)
{
    switch (h2_error) {
    case NGHTTP2_REFUSED_STREAM:
        return GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return GRPC_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return GRPC_PERMISSION_DENIED;
    default:
        return GRPC_INTERNAL;
    }
}
