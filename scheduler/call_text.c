/* scheduler/call_text.c - see scheduler/call_text.h. */
#include "scheduler/call_text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* scheduler/callers/, by cmake/embed.cmake */
extern const uint8_t caller_python[], caller_javascript[];
extern const size_t caller_python_size, caller_javascript_size;

int call_check_language(Cloche__V1__Language language, struct cl_err *err)
{
    if (language == CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON ||
        language == CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT)
        return 0;
    return cl_fail(err, CL_E_INVALID, 0, "language: functions are PYTHON or JAVASCRIPT");
}

/* --- entries -----------------------------------------------------------------------------------
 */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int call_check_entry(const char *entry, struct cl_err *err)
{
    size_t n = strlen(entry);
    bool starts = true, good = n > 0 && n <= CALL_ENTRY_MAX;
    for (size_t i = 0; good && i < n; i++) {
        bool dot = entry[i] == '.';
        good = is_letter(entry[i]) || (!starts && (dot || is_digit(entry[i])));
        starts = dot;
    }
    if (good && !starts)
        return 0;
    return cl_fail(err, CL_E_INVALID, 0,
                   "entry '%.40s': a name as of a variable, with dots for what is in something "
                   "else; at most %d bytes",
                   entry, CALL_ENTRY_MAX);
}

void call_entry_of_name(const char *name, char entry[static CALL_ENTRY_MAX + 1])
{
    const char *digit = is_digit(name[0]) ? "_" : "";
    (void)snprintf(entry, CALL_ENTRY_MAX + 1, "%s%s", digit, name);
    for (char *c = entry; *c; c++)
        if (!is_letter(*c) && !is_digit(*c))
            *c = '_';
}

/* --- arguments ---------------------------------------------------------------------------------
 */

/* Recursion ends: jansson reads nothing that is deeper than 2048. */
static bool is_deeper(const json_t *v, unsigned levels)
{
    const json_t *each;
    const char *key;
    size_t i;
    if (!json_is_array(v) && !json_is_object(v))
        return false;
    if (levels == 0)
        return true;
    json_array_foreach(v, i, each) if (is_deeper(each, levels - 1)) return true;
    json_object_foreach((json_t *)(uintptr_t)v, key,
                        each) if (is_deeper(each, levels - 1)) return true;
    return false;
}

int call_check_arguments(const char *json, struct cl_err *err)
{
    size_t n = strlen(json);
    json_error_t why;
    if (n > CALL_ARGUMENTS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "arguments: at most %d bytes of JSON",
                       CALL_ARGUMENTS_MAX);
    if (n == 0)
        return 0;
    /* An integer is as long as it likes: the function's language reads it, not this. */
    json_t *v = json_loadb(json, n,
                           JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!v)
        return cl_fail(err, CL_E_INVALID, 0,
                       "arguments: no JSON array or object, at byte %d: %.120s", why.position,
                       why.text);
    bool deep = is_deeper(v, CALL_DEPTH);
    json_decref(v);
    return deep ? cl_fail(err, CL_E_INVALID, 0, "arguments: nested deeper than %d", CALL_DEPTH) : 0;
}

/* --- text --------------------------------------------------------------------------------------
 */

/* As a string literal of both languages: checked JSON has no other controls than these. */
static int quote(struct cl_buf *out, const char *text, struct cl_err *err)
{
    static const char special[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    int rc = cl_buf_append(out, "\"", 1, err);
    while (rc == 0 && *text) {
        size_t plain = strcspn(text, special);
        rc = cl_buf_append(out, text, plain, err);
        text += plain;
        if (rc == 0 && *text)
            rc = cl_buf_printf(out, err, "\\%c", letters[strchr(special, *text++) - special]);
    }
    return rc < 0 ? -1 : cl_buf_append(out, "\"", 1, err);
}

static int put_python(struct cl_buf *out, const char *entry, struct cl_err *err)
{
    if (cl_buf_append(out, caller_python, caller_python_size, err) < 0)
        return -1;
    return cl_buf_printf(out, err, "__cloche_call__(\"%s\", ", entry);
}

static int put_javascript(struct cl_buf *out, const char *entry, struct cl_err *err)
{
    size_t first = strcspn(entry, ".");
    if (cl_buf_append(out, caller_javascript, caller_javascript_size, err) < 0)
        return -1;
    return cl_buf_printf(out, err, "\"%s\", () => typeof %.*s === \"undefined\" ? undefined : %s, ",
                         entry, (int)first, entry, entry);
}

int call_text(Cloche__V1__Language language, const char *entry, const char *arguments,
              struct cl_buf *out, struct cl_err *err)
{
    bool python = language == CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON;
    if ((python ? put_python(out, entry, err) : put_javascript(out, entry, err)) < 0)
        return -1;
    int rc = arguments ? quote(out, arguments, err)
                       : cl_buf_printf(out, err, "%s", python ? "None" : "null");
    return rc < 0 ? -1 : cl_buf_append(out, ")\n", sizeof ")\n", err);
}
