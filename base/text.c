/* base/text.c - see base/text.h. */
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

void cl_text_bytes(uint64_t bytes, char out[static CL_TEXT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    uint64_t rest = 0;
    while (bytes >= 1024 && u + 1 < CL_COUNT(units)) {
        rest = bytes % 1024 * 10 / 1024;
        bytes /= 1024;
        u++;
    }
    if (rest && bytes < 100)
        (void)snprintf(out, CL_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " %s", bytes, rest, units[u]);
    else
        (void)snprintf(out, CL_TEXT_BYTES, "%" PRIu64 " %s", bytes, units[u]);
}

void cl_text_clean(const char *s, char *out, size_t size)
{
    size_t n = strnlen(s, size - 1);
    memmove(out, s, n);
    out[n] = '\0';
    for (unsigned char *p = (unsigned char *)out; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
        else if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
            p[0] = p[1] = '?';
    }
}
