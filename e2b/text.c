/* e2b/text.c - see e2b/text.h. */
#include "e2b/text.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char replacement[] = "\xef\xbf\xbd";
enum { REPLACEMENT = sizeof replacement - 1 };

/* How long a character is that begins so; 0: none does. */
static size_t length_of(uint8_t lead)
{
    return lead < 0x80   ? 1
           : lead < 0xc2 ? 0
           : lead < 0xe0 ? 2
           : lead < 0xf0 ? 3
           : lead < 0xf5 ? 4
                         : 0;
}

/* Could more bytes make a character of p[0..n)? */
static bool is_begun(const uint8_t *p, size_t n)
{
    if (n >= length_of(p[0]))
        return false;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return false;
    }
    return true;
}

/* p[0..n) into out, which has room for three times as much; what is begun at its end is left, and
 * *ret_used says from where. */
static size_t clean(const uint8_t *p, size_t n, char *out, size_t *ret_used)
{
    size_t at = 0, len = 0;
    while (at < n && !is_begun(p + at, n - at)) {
        size_t c = length_of(p[at]);
        bool good = c > 0 && c <= n - at && cl_utf8_is_valid((const char *)p + at, c);
        memcpy(out + len, good ? (const char *)p + at : replacement, good ? c : REPLACEMENT);
        len += good ? c : REPLACEMENT;
        at += good ? c : 1;
    }
    *ret_used = at;
    return len;
}

json_t *e2b_text_add(struct e2b_text *t, const void *data, size_t n)
{
    size_t all = t->n + n, used = 0;
    uint8_t *bytes = cl_zalloc(all + 1);
    char *out = cl_zalloc(REPLACEMENT * all + 1);
    json_t *text = NULL;
    if (bytes && out) {
        memcpy(bytes, t->held, t->n);
        if (n > 0)
            memcpy(bytes + t->n, data, n);
        size_t len = clean(bytes, all, out, &used);
        t->n = all - used;
        memcpy(t->held, bytes + used, t->n);
        text = json_stringn(out, len);
    }
    cl_free(bytes);
    cl_free(out);
    return text;
}

json_t *e2b_text_end(struct e2b_text *t)
{
    bool is_held = t->n > 0;
    t->n = 0;
    return is_held ? json_string(replacement) : NULL;
}

json_t *e2b_text_json(const void *data, size_t n)
{
    struct e2b_text t = {.n = 0};
    return e2b_text_add(&t, data, n);
}
