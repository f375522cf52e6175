/* base/utf8.c - see base/utf8.h. */
#include "base/utf8.h"

#include <stdint.h>

/* Length of the character at s (1-4), or 0 if the bytes there are not valid UTF-8. */
static size_t char_len(const uint8_t *s, size_t n)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    size_t len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < len)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    /* RFC 3629 §4: the second byte excludes overlong forms, surrogates and > U+10FFFF. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

bool cl_utf8_is_valid(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    for (size_t i = 0; i < n;) {
        size_t len = char_len(p + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

size_t cl_utf8_clip(const char *s, size_t n, size_t max)
{
    if (n <= max)
        return n;
    size_t cut = max;
    while (cut > 0 && ((uint8_t)s[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}
