/* trail/rules.c - see trail/rules.h. */
#include "trail/rules.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "audit/record.h"
#include "base/buf.h"
#include "base/fs.h"
#include "base/mem.h"

struct field_rule {
    const char *field; /* all of these are the JSON's */
    const char *pattern[RULE_PATTERNS];
    size_t n;
};

struct rule {
    struct detection about;
    enum audit_event event;
    struct field_rule where[RULE_FIELDS];
    size_t n_where;
    const char *subject, *value;
};

struct rules {
    size_t users; /* references */
    json_t *root; /* owned: all texts are its */
    struct rule rule[RULES_MAX];
    size_t n;
};

/* --- reading ------------------------------------------------------------------------------------
 */

struct reading {
    const char *file, *rule;
    struct cl_err *err;
};

static int bad(const struct reading *rd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int bad(const struct reading *rd, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cl_fail(rd->err, CL_E_INVALID, 0, "'%s': rule '%.40s': %s", rd->file, rd->rule, text);
}

/* A string of 1 to `max` bytes, or `otherwise` where there is none; NULL = must be there. */
static int read_text(const struct reading *rd, const json_t *m, const char *key, size_t max,
                     const char *otherwise, const char **ret)
{
    const json_t *v = json_object_get(m, key);
    const char *s = v ? json_string_value(v) : otherwise;
    if (!s && !v)
        return bad(rd, "'%s' is missing", key);
    if (!s || (v && (!s[0] || json_string_length(v) > max || strlen(s) != json_string_length(v))))
        return bad(rd, "'%s': a text of 1 to %zu bytes", key, max);
    *ret = s;
    return 0;
}

static int read_number(const struct reading *rd, const json_t *m, const char *key, json_int_t max,
                       json_int_t otherwise, json_int_t *ret)
{
    const json_t *v = json_object_get(m, key);
    *ret = v ? json_integer_value(v) : otherwise;
    if (v && (!json_is_integer(v) || *ret < 0 || *ret > max))
        return bad(rd, "'%s': a number up to %" JSON_INTEGER_FORMAT, key, max);
    return 0;
}

static int check_keys(const struct reading *rd, const json_t *m)
{
    static const char *const known[] = {"name", "severity",  "event",   "where",
                                        "of",   "within_s",  "subject", "value",
                                        "what", "technique", "then"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)m, key, v)
    {
        size_t i = 0;
        while (i < CL_COUNT(known) && strcmp(known[i], key) != 0)
            i++;
        if (i == CL_COUNT(known))
            return bad(rd, "'%.40s' is no part of a rule", key);
    }
    return 0;
}

static int check_name(const struct reading *rd, const struct rules *rules, const char *name)
{
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name) || name[0] == '-')
        return bad(rd, "a name has small letters, digits and '-'");
    if (detect_is_built_in(name))
        return bad(rd, "a detection of Cloche has that name");
    for (size_t i = 0; i < rules->n; i++)
        if (strcmp(rules->rule[i].about.name, name) == 0)
            return bad(rd, "another rule has that name");
    return 0;
}

static int check_field(const struct reading *rd, enum audit_event event, const char *field)
{
    if (audit_event_has(event, field))
        return 0;
    return bad(rd, "the event '%s' has no field '%.40s'; it has %s", audit_event_name(event), field,
               audit_event_fields(event));
}

static int read_patterns(const struct reading *rd, const json_t *v, struct field_rule *f)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n == 0 || n > RULE_PATTERNS)
        return bad(rd, "'%s': 1 to %d patterns", f->field, RULE_PATTERNS);
    for (; f->n < n; f->n++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, f->n) : v;
        f->pattern[f->n] = json_string_value(one);
        if (!f->pattern[f->n] || json_string_length(one) > RULE_TEXT)
            return bad(rd, "'%s': a pattern is a text of up to %d bytes", f->field, RULE_TEXT);
    }
    return 0;
}

static int read_where(const struct reading *rd, const json_t *m, struct rule *r)
{
    const json_t *where = json_object_get(m, "where");
    const char *field;
    json_t *v;
    if (where && !json_is_object(where))
        return bad(rd, "'where': an object of fields and patterns");
    if (json_object_size(where) > RULE_FIELDS)
        return bad(rd, "'where': at most %d fields", RULE_FIELDS);
    json_object_foreach((json_t *)(uintptr_t)where, field, v)
    {
        struct field_rule *f = &r->where[r->n_where++];
        f->field = field;
        if (check_field(rd, r->event, field) < 0 || read_patterns(rd, v, f) < 0)
            return -1;
    }
    return 0;
}

/* What is not said of it: whose unit it is, where the event has one, and what it looks at. */
static int read_counted(const struct reading *rd, const json_t *m, struct rule *r)
{
    json_int_t of, within;
    const char *subject = audit_event_has(r->event, "unit") ? "unit" : NULL;
    const char *value = r->n_where ? r->where[0].field : subject;
    if (read_text(rd, m, "subject", RULE_FIELD, subject, &r->subject) < 0 ||
        check_field(rd, r->event, r->subject) < 0 ||
        read_text(rd, m, "value", RULE_FIELD, value ? value : r->subject, &r->value) < 0 ||
        check_field(rd, r->event, r->value) < 0 ||
        read_number(rd, m, "of", DETECT_OF_MAX, 1, &of) < 0 ||
        read_number(rd, m, "within_s", RULE_WITHIN_MAX, 0, &within) < 0)
        return -1;
    if (of < 1 || (of > 1 && within < 1))
        return bad(rd,
                   "'of': 1 to %d different values; of more than 1 'within_s' says in how many "
                   "seconds, 1 to %d",
                   DETECT_OF_MAX, RULE_WITHIN_MAX);
    r->about.threshold = (unsigned)of;
    r->about.window_s = within;
    return 0;
}

static int read_rule(struct reading *rd, const json_t *m, struct rules *rules)
{
    struct rule *r = &rules->rule[rules->n];
    const char *severity = "", *event = "";
    rd->rule = json_string_value(json_object_get(m, "name"));
    if (!rd->rule)
        return cl_fail(rd->err, CL_E_INVALID, 0, "'%s': rule %zu has no name", rd->file,
                       rules->n + 1);
    if (check_keys(rd, m) < 0 || read_text(rd, m, "name", RULE_NAME, NULL, &r->about.name) < 0 ||
        check_name(rd, rules, r->about.name) < 0 ||
        read_text(rd, m, "severity", RULE_FIELD, NULL, &severity) < 0 ||
        read_text(rd, m, "event", RULE_FIELD, NULL, &event) < 0 ||
        read_text(rd, m, "what", RULE_TEXT, NULL, &r->about.what) < 0 ||
        read_text(rd, m, "then", RULE_TEXT, "", &r->about.then) < 0 ||
        read_text(rd, m, "technique", RULE_FIELD, "", &r->about.technique) < 0)
        return -1;
    if (detect_severity_parse(severity, &r->about.severity, NULL) < 0)
        return bad(rd, "'severity': low, medium or high");
    r->event = audit_event_by_name(event, strlen(event));
    if (r->event == AUDIT_EVENT_NR)
        return bad(rd, "there is no event '%.40s'; docs/audit-events.md has all", event);
    if (read_where(rd, m, r) < 0 || read_counted(rd, m, r) < 0)
        return -1;
    rules->n++;
    return 0;
}

int rules_parse(const char *name, const char *text, size_t n, struct rules **ret_rules,
                struct cl_err *err)
{
    json_error_t why;
    struct reading rd = {.file = name, .err = err};
    CL_AUTO(rules_freep) struct rules *rules = cl_zalloc(sizeof *rules);
    if (!rules)
        return cl_fail(err, CL_E_NOMEM, 0, "rules");
    rules->users = 1;
    if (n > RULES_BYTES)
        return cl_fail(err, CL_E_TOOBIG, 0, "'%s': more than %d bytes", name, RULES_BYTES);
    rules->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    const json_t *list = json_object_get(rules->root, "rules");
    if (!rules->root)
        return cl_fail(err, CL_E_INVALID, 0, "'%s', line %d: %s", name, why.line, why.text);
    if (!json_is_array(list) || json_object_size(rules->root) != 1)
        return cl_fail(err, CL_E_INVALID, 0, "'%s': {\"rules\": [...]} and nothing else", name);
    if (json_array_size(list) > RULES_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "'%s': more than %d rules", name, RULES_MAX);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_rule(&rd, json_array_get(list, i), rules) < 0)
            return -1;
    *ret_rules = CL_STEAL(&rules);
    return 0;
}

int rules_load(const char *path, struct rules **ret_rules, struct cl_err *err)
{
    CL_AUTO(cl_buf_fini) struct cl_buf text;
    cl_buf_init(&text, RULES_BYTES + 1);
    *ret_rules = NULL;
    if (!path[0])
        return 0;
    if (cl_file_read(AT_FDCWD, path, &text, err) < 0)
        return -1;
    return rules_parse(path, (const char *)text.data, text.len, ret_rules, err);
}

struct rules *rules_share(struct rules *rules)
{
    if (rules)
        rules->users++;
    return rules;
}

void rules_free(struct rules *rules)
{
    if (!rules || --rules->users > 0)
        return;
    json_decref(rules->root);
    cl_free(rules);
}

size_t rules_count(const struct rules *rules)
{
    return rules->n;
}

const struct detection *rules_at(const struct rules *rules, size_t i)
{
    return &rules->rule[i].about;
}

/* --- matching -----------------------------------------------------------------------------------
 */

/* In at most strlen(pattern) * strlen(text) steps: the text is hostile. */
static bool is_like(const char *pattern, const char *text)
{
    const char *star = NULL, *from = text;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern && (*pattern == '?' || *pattern == *text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* A field as text, cut to fit; a list with spaces between. */
static void text_of(const json_t *v, char *out, size_t n)
{
    out[0] = '\0';
    if (json_is_string(v))
        (void)snprintf(out, n, "%s", json_string_value(v));
    else if (json_is_integer(v))
        (void)snprintf(out, n, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_boolean(v))
        (void)snprintf(out, n, "%s", json_is_true(v) ? "true" : "false");
    size_t at = 0;
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v) && at < n; i++) {
        const char *s = json_string_value(json_array_get(v, i));
        at += (size_t)snprintf(out + at, n - at, "%s%s", i ? " " : "", s ? s : "");
    }
}

static bool holds(const struct field_rule *f, const json_t *fields)
{
    char text[AUDIT_STRING_MAX];
    const json_t *v = json_object_get(fields, f->field);
    if (!v)
        return false;
    text_of(v, text, sizeof text);
    for (size_t i = 0; i < f->n; i++)
        if (is_like(f->pattern[i], text))
            return true;
    return false;
}

bool rules_match(const struct rules *rules, size_t i, const struct detect_record *r,
                 char subject[static DETECT_SUBJECT], char value[static DETECT_VALUE])
{
    const struct rule *rule = &rules->rule[i];
    if (strcmp(audit_event_name(rule->event), r->event) != 0)
        return false;
    for (size_t k = 0; k < rule->n_where; k++)
        if (!holds(&rule->where[k], r->fields))
            return false;
    text_of(json_object_get(r->fields, rule->subject), subject, DETECT_SUBJECT);
    text_of(json_object_get(r->fields, rule->value), value, DETECT_VALUE);
    return true;
}
