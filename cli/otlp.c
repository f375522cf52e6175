/* cli/otlp.c - see cli/otlp.h. */
#include "cli/otlp.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int otlp_url(const char *to, char out[static OTLP_URL], struct cl_err *err)
{
    const char *scheme = strstr(to, "://");
    const char *path = scheme ? strchr(scheme + 3, '/') : NULL;
    if (!scheme || strlen(to) + sizeof "/v1/traces" > OTLP_URL)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%.200s' is no address of a collector: want http[s]://HOST:PORT[/PATH]",
                       to);
    (void)snprintf(out, OTLP_URL, "%s%s", to,
                   !path             ? "/v1/traces"
                   : path[1] == '\0' ? "v1/traces"
                                     : "");
    return 0;
}

/* --- headers ------------------------------------------------------------------------------------
 */

static int hex(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 0x20) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* In place. */
static bool decode(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++, to++) {
        *to = *at;
        if (*at != '%')
            continue;
        int high = hex(at[1]), low = high < 0 ? -1 : hex(at[2]);
        if (low < 0)
            return false;
        *to = (char)(high << 4 | low);
        at += 2;
    }
    *to = '\0';
    return true;
}

static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'); n--)
        text[n - 1] = '\0';
    return text;
}

/* RFC 9110: a token; visible characters and blanks. */
static bool is_header(const char *name, const char *value)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789"
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!name[0] || strspn(name, token) != strlen(name))
        return false;
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || *value == 0x7f)
            return false;
    return true;
}

/* NAME=VALUE, in place. */
static bool take_pair(char *pair, struct otlp_headers *h)
{
    char *value = strchr(pair, '=');
    if (!value || h->n == OTLP_HEADERS)
        return false;
    *value++ = '\0';
    pair = trimmed(pair);
    value = trimmed(value);
    if (!decode(value) || !is_header(pair, value))
        return false;
    h->at[h->n].name = pair;
    h->at[h->n++].value = value;
    return true;
}

int otlp_headers(const char *text, struct otlp_headers *ret, struct cl_err *err)
{
    char *save = NULL;
    *ret = (struct otlp_headers){0};
    if (text && strlen(text) >= sizeof ret->text)
        return cl_fail(err, CL_E_TOOBIG, 0, "headers of more than %d bytes", OTLP_HEADERS_TEXT - 1);
    (void)snprintf(ret->text, sizeof ret->text, "%s", text ? text : "");
    for (char *pair = strtok_r(ret->text, ",", &save); pair; pair = strtok_r(NULL, ",", &save))
        if (!take_pair(pair, ret)) /* of what it is nothing is told: a secret */
            return cl_fail(err, CL_E_INVALID, 0,
                           "header %zu is none: want NAME=VALUE[,NAME=VALUE...], at most %d, "
                           "values percent-encoded",
                           ret->n + 1, OTLP_HEADERS);
    return 0;
}

/* --- answers ------------------------------------------------------------------------------------
 */

enum otlp_verdict otlp_judge(int status)
{
    static const int again[] = {408, 429, 502, 503, 504}, refused[] = {401, 403, 404, 405, 415};
    if (status >= 200 && status < 300)
        return OTLP_TAKEN;
    for (size_t i = 0; i < CL_COUNT(again); i++)
        if (status == again[i])
            return OTLP_AGAIN;
    for (size_t i = 0; i < CL_COUNT(refused); i++)
        if (status == refused[i])
            return OTLP_REFUSED;
    return status < 400 ? OTLP_REFUSED : OTLP_BAD; /* a redirect: that place is not named */
}

size_t otlp_rejected(const char *body, size_t n, char why[static CL_ERR_TEXT])
{
    json_t *root = n ? json_loadb(body, n, 0, NULL) : NULL;
    const json_t *part = json_object_get(root, "partialSuccess");
    const json_t *spans = json_object_get(part, "rejectedSpans");
    const char *text = json_string_value(json_object_get(part, "errorMessage"));
    const char *decimal = json_string_value(spans); /* 64 bits, as text */
    size_t rejected = decimal ? strtoull(decimal, NULL, 10) : (size_t)json_integer_value(spans);
    (void)snprintf(why, CL_ERR_TEXT, "%s", text ? text : "");
    json_decref(root);
    return rejected;
}
