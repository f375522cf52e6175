/* mcp/json.c - see mcp/json.h. */
#include "mcp/json.h"

#include <stdbool.h>
#include <string.h>

struct scan {
    size_t depth, values;
    bool in_string, escaped;
};

static void scan_string(struct scan *s, char c)
{
    if (s->escaped)
        s->escaped = false;
    else if (c == '\\')
        s->escaped = true;
    else if (c == '"')
        s->in_string = false;
}

static void scan_plain(struct scan *s, char c)
{
    if (c == '"')
        s->in_string = true;
    else if (c == '[' || c == '{')
        s->depth++;
    else if ((c == ']' || c == '}') && s->depth > 0)
        s->depth--;
    s->values += c == ',' || c == ':' || c == '[' || c == '{';
}

int mcp_json_scan(const char *text, size_t n, struct cl_err *err)
{
    struct scan s = {0};
    if (n > MCP_JSON_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "a message of more than %d bytes", MCP_JSON_MAX);
    for (size_t i = 0; i < n; i++) {
        if (s.in_string)
            scan_string(&s, text[i]);
        else
            scan_plain(&s, text[i]);
        if (s.depth > MCP_JSON_DEPTH)
            return cl_fail(err, CL_E_TOOBIG, 0, "JSON nested deeper than %d", MCP_JSON_DEPTH);
        if (s.values > MCP_JSON_VALUES)
            return cl_fail(err, CL_E_TOOBIG, 0, "JSON of more than %d values", MCP_JSON_VALUES);
    }
    return 0;
}

int mcp_json_parse(const char *text, size_t n, json_t **ret_value, struct cl_err *err)
{
    json_error_t why;
    if (mcp_json_scan(text, n, err) < 0)
        return -1;
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!value)
        return cl_fail(err, CL_E_INVALID, 0, "not JSON at byte %d: %.120s", why.position, why.text);
    *ret_value = value;
    return 0;
}

const char *mcp_json_text(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

uint64_t mcp_json_u64(const json_t *object, const char *name, uint64_t otherwise)
{
    const json_t *v = json_object_get(object, name);
    if (json_is_real(v) && json_real_value(v) >= 0 && json_real_value(v) < 9e18)
        return (uint64_t)json_real_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
                                                            : otherwise;
}

void mcp_json_set(json_t *object, const char *name, json_t *value)
{
    (void)json_object_set_new(object, name, value);
}
