/* mcp/schema.c - see mcp/schema.h. */
#include "mcp/schema.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 160, SCHEMA_DEPTH = 8 };

static const char *type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
        return "integer";
    case JSON_REAL:
        return "number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

static int check_type(const json_t *schema, const json_t *v, const char *at, struct cl_err *err)
{
    const char *want = mcp_json_text(schema, "type"), *got = type_of(v);
    bool whole = json_is_real(v) && json_real_value(v) == trunc(json_real_value(v));
    if (!want || strcmp(want, got) == 0 || (strcmp(want, "number") == 0 && json_is_integer(v)) ||
        (strcmp(want, "integer") == 0 && whole))
        return 0;
    return cl_fail(err, CL_E_INVALID, 0, "argument %s: want %s %s, got %s", at,
                   strchr("aio", want[0]) ? "an" : "a", want, got);
}

static int check_enum(const json_t *schema, const json_t *v, const char *at, struct cl_err *err)
{
    const json_t *all = json_object_get(schema, "enum");
    char words[200] = "";
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *word = json_string_value(json_array_get(all, i));
        if (json_equal(json_array_get(all, i), v))
            return 0;
        if (n < sizeof words)
            n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", n ? ", " : "", word);
    }
    return all ? cl_fail(err, CL_E_INVALID, 0, "argument %s: want one of %s", at, words) : 0;
}

static int check_number(const json_t *schema, const json_t *v, const char *at, struct cl_err *err)
{
    const json_t *min = json_object_get(schema, "minimum"),
                 *max = json_object_get(schema, "maximum");
    double x = json_number_value(v);
    if (!json_is_number(v) ||
        ((!min || x >= json_number_value(min)) && (!max || x <= json_number_value(max))))
        return 0;
    if (!max)
        return cl_fail(err, CL_E_INVALID, 0, "argument %s: at least %g", at,
                       json_number_value(min));
    return cl_fail(err, CL_E_INVALID, 0, "argument %s: between %g and %.10g", at,
                   min ? json_number_value(min) : 0.0, json_number_value(max));
}

static int check_string(const json_t *schema, const json_t *v, const char *at, struct cl_err *err)
{
    size_t n = json_string_length(v);
    if (!json_is_string(v))
        return 0;
    if (strlen(json_string_value(v)) != n)
        return cl_fail(err, CL_E_INVALID, 0, "argument %s: holds U+0000, which nothing here takes",
                       at);
    if (n < mcp_json_u64(schema, "minLength", 0))
        return cl_fail(err, CL_E_INVALID, 0, "argument %s: must not be empty", at);
    if (n > mcp_json_u64(schema, "maxLength", MCP_JSON_MAX))
        return cl_fail(err, CL_E_TOOBIG, 0, "argument %s: at most %llu bytes, these are %zu", at,
                       (unsigned long long)mcp_json_u64(schema, "maxLength", 0), n);
    return 0;
}

static int check(const json_t *schema, const json_t *v, const char *at, int depth,
                 struct cl_err *err);

static int check_array(const json_t *schema, const json_t *v, const char *at, int depth,
                       struct cl_err *err)
{
    char path[PATH];
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return 0;
    if (n < mcp_json_u64(schema, "minItems", 0) || n > mcp_json_u64(schema, "maxItems", n))
        return cl_fail(err, CL_E_INVALID, 0, "argument %s: has %zu items", at, n);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%.120s[%zu]", at, i);
        if (check(json_object_get(schema, "items"), json_array_get(v, i), path, depth, err) < 0)
            return -1;
    }
    return 0;
}

static int check_member(const json_t *schema, const char *key, const json_t *v, const char *at,
                        int depth, struct cl_err *err)
{
    char path[PATH];
    const json_t *own = json_object_get(json_object_get(schema, "properties"), key),
                 *rest = json_object_get(schema, "additionalProperties");
    (void)snprintf(path, sizeof path, "%.80s%s%.64s", at, at[0] ? "." : "", key);
    if (!own && json_is_false(rest))
        return cl_fail(err, CL_E_INVALID, 0, "argument %s: this tool has none of that name", path);
    return check(own ? own : rest, v, path, depth, err);
}

static int check_object(const json_t *schema, const json_t *v, const char *at, int depth,
                        struct cl_err *err)
{
    const json_t *need = json_object_get(schema, "required");
    const char *key;
    json_t *member;
    for (size_t i = 0; json_is_object(v) && i < json_array_size(need); i++) {
        key = json_string_value(json_array_get(need, i));
        if (!json_object_get(v, key))
            return cl_fail(err, CL_E_INVALID, 0, "argument %s%s%s: is missing and required", at,
                           at[0] ? "." : "", key);
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        if (check_member(schema, key, member, at, depth, err) < 0)
            return -1;
    }
    return 0;
}

static int check(const json_t *schema, const json_t *v, const char *at, int depth,
                 struct cl_err *err)
{
    if (!json_is_object(schema))
        return 0;
    if (depth >= SCHEMA_DEPTH)
        return cl_fail(err, CL_E_INVALID, 0, "argument %s: nested too deeply", at);
    if (check_type(schema, v, at, err) < 0 || check_enum(schema, v, at, err) < 0 ||
        check_number(schema, v, at, err) < 0 || check_string(schema, v, at, err) < 0 ||
        check_array(schema, v, at, depth + 1, err) < 0)
        return -1;
    return check_object(schema, v, at, depth + 1, err);
}

int mcp_schema_check(const json_t *schema, const json_t *value, struct cl_err *err)
{
    return check(schema, value, "", 0, err);
}
