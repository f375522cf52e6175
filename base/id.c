/* base/id.c - see base/id.h. */
#include "base/id.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"

enum { ID_BITS_PER_CHAR = 5, ID_TIME_CHARS = 10, ID_NS_CHARS = 4, ID_NOISE_CHARS = 12 };
enum { ID_CHARS = ID_TIME_CHARS + ID_NS_CHARS + ID_NOISE_CHARS };

static const char crockford[] = "0123456789abcdefghjkmnpqrstvwxyz";

/* Later than the one before, also where the clock is coarse. */
static uint64_t next_ns(void)
{
    static _Thread_local uint64_t last;
    uint64_t now = cl_wall_ns();
    bool is_same_ms = now <= last && last - now < CL_NS_PER_MS;
    return last = is_same_ms ? last + 1 : now;
}

static char *put_chars(char *out, uint64_t value, int n)
{
    for (int i = n - 1; i >= 0; i--, value >>= ID_BITS_PER_CHAR)
        out[i] = crockford[value & 31];
    return out + n;
}

void cl_id_new(const char *prefix, char out[static CL_ID_MAX])
{
    char chars[ID_CHARS + 1] = {0}, *at = chars;
    uint64_t ns = next_ns(), noise;
    cl_random(&noise, sizeof noise);
    at = put_chars(at, ns / CL_NS_PER_MS, ID_TIME_CHARS);
    at = put_chars(at, ns % CL_NS_PER_MS, ID_NS_CHARS);
    (void)put_chars(at, noise, ID_NOISE_CHARS);
    int n = snprintf(out, CL_ID_MAX, "%s_%s", prefix, chars);
    CL_ASSERT(n > 0 && n < CL_ID_MAX);
}

bool cl_id_is(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(s, prefix, n) != 0 || s[n] != '_')
        return false;
    const char *chars = s + n + 1;
    return strlen(chars) == ID_CHARS && strspn(chars, crockford) == ID_CHARS;
}

uint64_t cl_id_time_ms(const char *id)
{
    const char *c = strchr(id, '_');
    uint64_t ms = 0;
    for (int i = 1; c && i <= ID_TIME_CHARS && c[i]; i++) {
        const char *digit = strchr(crockford, c[i]);
        ms = ms << ID_BITS_PER_CHAR | (uint64_t)(digit ? digit - crockford : 0);
    }
    return ms;
}

void cl_hex(const void *data, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = data;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[in[i] >> 4];
        out[2 * i + 1] = digits[in[i] & 15];
    }
    out[2 * n] = '\0';
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool cl_unhex(const char *hex, size_t hex_len, void *out, size_t n)
{
    if (hex_len != 2 * n)
        return false;
    uint8_t *bytes = out;
    for (size_t i = 0; i < n; i++) {
        int hi = nibble(hex[2 * i]), lo = nibble(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        bytes[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

bool cl_name_is_valid(const char *s)
{
    static const char tail[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t n = strlen(s);
    return n >= 1 && n <= 63 && s[0] >= 'a' && s[0] <= 'z' && strspn(s, tail) == n;
}
