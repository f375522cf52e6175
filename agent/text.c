/* agent/text.c - see agent/text.h. */
#include "agent/text.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "base/util.h"

enum { UTF8_MAX = 4 };

/* Bytes of the valid character at s, or 0. */
static size_t char_len(const char *s, size_t left)
{
    for (size_t n = 1; n <= CL_MIN(left, (size_t)UTF8_MAX); n++)
        if (cl_utf8_is_valid(s, n))
            return n;
    return 0;
}

void text_escape(const char *s, char *out, size_t size)
{
    size_t left = strlen(s), at = 0;
    while (left > 0) {
        size_t n = char_len(s, left);
        if (at + CL_MAX(n, (size_t)UTF8_MAX) >= size)
            break;
        if (n > 0)
            memcpy(out + at, s, n);
        else
            (void)snprintf(out + at, size - at, "\\x%02x", (unsigned char)*s);
        at += n > 0 ? n : UTF8_MAX;
        s += CL_MAX(n, (size_t)1);
        left -= CL_MAX(n, (size_t)1);
    }
    out[at] = '\0';
}

void text_repair(char *s)
{
    for (size_t left = strlen(s); left > 0;) {
        size_t n = char_len(s, left);
        if (n == 0)
            *s = '?';
        n = CL_MAX(n, (size_t)1);
        s += n;
        left -= n;
    }
}
