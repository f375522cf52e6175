/* observability/traceparent.c - see observability/traceparent.h. */
#include "observability/traceparent.h"

#include <string.h>

enum { VERSION_HEX = 2, FLAGS_HEX = 2, FLAGS_AT = TRACEPARENT_SPAN + SPAN_ID_HEX + 1 };

/* Small letters alone are allowed. */
static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

static bool is_id(const char *text, size_t n)
{
    return is_hex(text, n) && strspn(text, "0") < n;
}

static bool is_one(const char *text)
{
    if (!is_hex(text, VERSION_HEX) || memcmp(text, "ff", VERSION_HEX) == 0 || text[2] != '-' ||
        !is_id(text + TRACEPARENT_TRACE, TRACE_ID_HEX) || text[TRACEPARENT_SPAN - 1] != '-' ||
        !is_id(text + TRACEPARENT_SPAN, SPAN_ID_HEX) || text[FLAGS_AT - 1] != '-' ||
        !is_hex(text + FLAGS_AT, FLAGS_HEX))
        return false;
    char behind = text[FLAGS_AT + FLAGS_HEX];
    return behind == '\0' || (behind == '-' && memcmp(text, "00", VERSION_HEX) != 0);
}

bool traceparent_read(const char *text, char out[static TRACEPARENT_TEXT])
{
    out[0] = '\0';
    if (!text || !is_one(text))
        return false;
    memcpy(out, text, TRACEPARENT_TEXT - 1);
    memcpy(out, "00", VERSION_HEX);
    out[TRACEPARENT_TEXT - 1] = '\0';
    return true;
}
