/* audit/scan.c - see audit/scan.h. */
#include "audit/scan.h"

#include <string.h>

#include "audit/record.h"
#include "base/utf8.h"

bool scan_lit(struct scan *s, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, text, n) != 0)
        return false;
    s->at += n;
    return true;
}

bool scan_num(struct scan *s, uint64_t *ret)
{
    uint64_t v = 0;
    const char *first = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        uint64_t digit = (uint64_t)(*s->at - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    if (s->at == first || (*first == '0' && s->at - first > 1))
        return false;
    *ret = v;
    return true;
}

bool scan_word(struct scan *s, char *out, size_t size)
{
    size_t n = 0;
    for (; s->at < s->end && *s->at != '"'; s->at++) {
        if (*s->at < ' ' || *s->at > '~' || *s->at == '\\' || n + 1 >= size)
            return false;
        out[n++] = *s->at;
    }
    out[n] = '\0';
    return s->at < s->end;
}

/* After the backslash: the escapes that the writer makes, and no other. */
static bool scan_escape(struct scan *s)
{
    if (s->at < s->end && (*s->at == '"' || *s->at == '\\')) {
        s->at++;
        return true;
    }
    if (s->end - s->at < 5 || memcmp(s->at, "u00", 3) != 0 ||
        (s->at[3] != '0' && s->at[3] != '1') || !strchr("0123456789abcdef", s->at[4]) ||
        s->at[4] == '\0')
        return false;
    s->at += 5;
    return true;
}

bool scan_string(struct scan *s)
{
    if (!scan_lit(s, "\""))
        return false;
    const char *first = s->at;
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < 0x20)
            return false;
        if (*s->at++ == '\\' && !scan_escape(s))
            return false;
    }
    return cl_utf8_is_valid(first, (size_t)(s->at - first)) && scan_lit(s, "\"");
}

static bool scan_list(struct scan *s)
{
    if (!scan_lit(s, "["))
        return false;
    if (scan_lit(s, "]"))
        return true;
    for (int n = 0; n <= AUDIT_LIST_MAX; n++) {
        if (!scan_string(s))
            return false;
        if (!scan_lit(s, ","))
            return scan_lit(s, "]");
    }
    return false;
}

static bool scan_value(struct scan *s)
{
    uint64_t number;
    if (s->at == s->end)
        return false;
    if (*s->at == '"')
        return scan_string(s);
    if (*s->at == '[')
        return scan_list(s);
    if (*s->at == 't')
        return scan_lit(s, "true");
    if (*s->at == 'f')
        return scan_lit(s, "false");
    return scan_num(s, &number);
}

bool scan_object(struct scan *s)
{
    char key[64], before[64] = "";
    if (!scan_lit(s, "{"))
        return false;
    if (scan_lit(s, "}"))
        return true;
    for (;;) {
        if (!scan_lit(s, "\"") || !scan_word(s, key, sizeof key) || strcmp(before, key) >= 0)
            return false;
        memcpy(before, key, sizeof before);
        if (!scan_lit(s, "\":") || !scan_value(s))
            return false;
        if (!scan_lit(s, ","))
            return scan_lit(s, "}");
    }
}

/* --- fields --------------------------------------------------------------------------------- */

bool audit_fields_is_canonical(const char *text, size_t n)
{
    struct scan s = {text, text + n};
    return n <= AUDIT_FIELDS_MAX && scan_object(&s) && s.at == s.end;
}

/* Put the cursor on the value of `name`. */
static bool seek(struct scan *s, const char *name)
{
    char key[64];
    if (!scan_lit(s, "{"))
        return false;
    while (scan_lit(s, "\"") && scan_word(s, key, sizeof key) && scan_lit(s, "\":")) {
        if (strcmp(key, name) == 0)
            return true;
        if (!scan_value(s) || !scan_lit(s, ","))
            return false;
    }
    return false;
}

bool audit_field_str(const char *fields, size_t n, const char *name, char *out, size_t out_n)
{
    struct scan s = {fields, fields + n};
    return seek(&s, name) && scan_lit(&s, "\"") && scan_word(&s, out, out_n);
}

bool audit_field_num(const char *fields, size_t n, const char *name, uint64_t *ret)
{
    struct scan s = {fields, fields + n};
    return seek(&s, name) && scan_num(&s, ret);
}
