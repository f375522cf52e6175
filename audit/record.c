/* audit/record.c - see audit/record.h. */
#include "audit/record.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "audit/scan.h"
#include "base/id.h"
#include "base/utf8.h"

static const struct {
    const char *name;
    const char *fields;
} events[AUDIT_EVENT_NR] = {
#define AUDIT_EVENT(id, name, fields, text) [AUDIT_##id] = {name, fields},
#include "audit/events.def"
#undef AUDIT_EVENT
};

static const char *const assurances[AUDIT_ASSURANCE_NR] = {"H0", "G1", "G0"};

const char *audit_event_name(enum audit_event ev)
{
    CL_ASSERT(ev < AUDIT_EVENT_NR);
    return events[ev].name;
}

const char *audit_event_fields(enum audit_event ev)
{
    CL_ASSERT(ev < AUDIT_EVENT_NR);
    return events[ev].fields;
}

bool audit_event_has(enum audit_event ev, const char *field)
{
    size_t n = strlen(field);
    for (const char *at = audit_event_fields(ev); *at; at += strcspn(at, ","), at += *at == ',')
        if (n > 0 && strcspn(at, ":?") == n && memcmp(at, field, n) == 0)
            return true;
    return false;
}

enum audit_event audit_event_by_name(const char *name, size_t n)
{
    int ev = 0;
    while (ev < AUDIT_EVENT_NR &&
           (strlen(events[ev].name) != n || memcmp(events[ev].name, name, n) != 0))
        ev++;
    return (enum audit_event)ev;
}

const char *audit_assurance_name(enum audit_assurance a)
{
    CL_ASSERT(a < AUDIT_ASSURANCE_NR);
    return assurances[a];
}

/* --- fields --------------------------------------------------------------------------------- */

/* How much of long values is kept: first as the header says, then less, so that it always fits. */
static const struct cut {
    size_t string, list;
} cuts[] = {{AUDIT_STRING_MAX, 16384}, {512, 2048}, {64, 512}};

static int put_char(struct cl_buf *out, const char *s, size_t len, struct cl_err *err)
{
    unsigned char c = (unsigned char)s[0];
    if (c == '"' || c == '\\')
        return cl_buf_printf(out, err, "\\%c", c);
    if (c < 0x20)
        return cl_buf_printf(out, err, "\\u%04x", c);
    return cl_buf_append(out, s, len, err);
}

/* Length of the valid character at s[0..n), or 0. */
static size_t char_len(const char *s, size_t n)
{
    for (size_t len = 1; len <= CL_MIN(n, (size_t)4); len++) {
        if (cl_utf8_is_valid(s, len))
            return len;
    }
    return 0;
}

static int put_string(struct cl_buf *out, const char *s, size_t max, struct cl_err *err)
{
    size_t n = strlen(s), at = 0;
    int rc = cl_buf_append(out, "\"", 1, err);
    while (rc == 0 && at < n && at < max) {
        size_t len = char_len(s + at, n - at);
        rc = len ? put_char(out, s + at, len, err) : cl_buf_append(out, "\xef\xbf\xbd", 3, err);
        at += len ? len : 1;
    }
    if (rc == 0 && at < n)
        rc = cl_buf_printf(out, err, "(+%zu bytes)", n - at);
    return rc < 0 ? -1 : cl_buf_append(out, "\"", 1, err);
}

static int put_list(struct cl_buf *out, const struct audit_field *f, const struct cut *cut,
                    struct cl_err *err)
{
    size_t start = out->len, i = 0;
    int rc = cl_buf_append(out, "[", 1, err);
    for (; rc == 0 && i < f->is.l.n && i < AUDIT_LIST_MAX && out->len - start < cut->list; i++) {
        if (i > 0)
            rc = cl_buf_append(out, ",", 1, err);
        if (rc == 0)
            rc = put_string(out, f->is.l.v[i], CL_MIN(cut->string, cut->list), err);
    }
    if (rc == 0 && i < f->is.l.n)
        rc = cl_buf_printf(out, err, "%s\"(+%zu elements)\"", i ? "," : "", f->is.l.n - i);
    return rc < 0 ? -1 : cl_buf_append(out, "]", 1, err);
}

static int put_value(struct cl_buf *out, const struct audit_field *f, const struct cut *cut,
                     struct cl_err *err)
{
    switch (f->type) {
    case AUDIT_S:
        return put_string(out, f->is.s, cut->string, err);
    case AUDIT_U:
        return cl_buf_printf(out, err, "%" PRIu64, f->is.u);
    case AUDIT_B:
        return cl_buf_printf(out, err, "%s", f->is.b ? "true" : "false");
    case AUDIT_L:
        return put_list(out, f, cut, err);
    }
    return -1;
}

static const struct audit_field *find(const struct audit_field *fields, size_t n, const char *name,
                                      size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(fields[i].name) == len && memcmp(fields[i].name, name, len) == 0)
            return fields[i].type == AUDIT_S && !fields[i].is.s ? NULL : &fields[i];
    }
    return NULL;
}

static int put_fields(struct cl_buf *out, enum audit_event ev, const struct audit_field *fields,
                      size_t n, const struct cut *cut, size_t *ret_used, struct cl_err *err)
{
    size_t used = 0;
    int rc = cl_buf_append(out, "{", 1, err);
    for (const char *at = events[ev].fields; rc == 0 && *at;) {
        size_t len = strcspn(at, "?:");
        bool optional = at[len] == '?';
        char type = at[len + (optional ? 2 : 1)];
        const struct audit_field *f = find(fields, n, at, len);
        if (!f && !optional)
            return cl_fail(err, CL_E_INVALID, 0, "audit event %s without field '%.*s'",
                           events[ev].name, (int)len, at);
        if (f && type != "subl"[f->type == AUDIT_S   ? 0
                                : f->type == AUDIT_U ? 1
                                : f->type == AUDIT_B ? 2
                                                     : 3])
            return cl_fail(err, CL_E_INVALID, 0, "audit event %s: field '%s' has another type",
                           events[ev].name, f->name);
        if (f) {
            rc = cl_buf_printf(out, err, "%s\"%.*s\":", used ? "," : "", (int)len, at);
            if (rc == 0)
                rc = put_value(out, f, cut, err);
            used++;
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
    *ret_used = used;
    return rc < 0 ? -1 : cl_buf_append(out, "}", 1, err);
}

int audit_fields_format(struct cl_buf *out, enum audit_event ev, const struct audit_field *fields,
                        size_t n, struct cl_err *err)
{
    CL_ASSERT(ev < AUDIT_EVENT_NR);
    size_t start = out->len, used = 0, given = 0;
    for (size_t i = 0; i < n; i++)
        given += !(fields[i].type == AUDIT_S && !fields[i].is.s);
    for (size_t c = 0; c < CL_COUNT(cuts); c++) {
        out->len = start;
        if (put_fields(out, ev, fields, n, &cuts[c], &used, err) < 0) {
            out->len = start;
            return -1;
        }
        if (used != given) {
            out->len = start;
            return cl_fail(err, CL_E_INVALID, 0,
                           "audit event %s with a field that it does not have", events[ev].name);
        }
        if (out->len - start <= AUDIT_FIELDS_MAX)
            return 0;
    }
    out->len = start;
    return cl_fail(err, CL_E_TOOBIG, 0, "audit event %s is over %d bytes", events[ev].name,
                   AUDIT_FIELDS_MAX);
}

/* --- hash ----------------------------------------------------------------------------------- */

static void hash_parts(const void *a, size_t an, const void *b, size_t bn,
                       char out[static AUDIT_HASH_TEXT])
{
    uint8_t sum[32];
    unsigned len = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    CL_ASSERT(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1);
    CL_ASSERT(EVP_DigestUpdate(ctx, a, an) == 1 && EVP_DigestUpdate(ctx, b, bn) == 1);
    CL_ASSERT(EVP_DigestFinal_ex(ctx, sum, &len) == 1 && len == sizeof sum);
    EVP_MD_CTX_free(ctx);
    cl_hex(sum, sizeof sum, out);
}

/* --- format --------------------------------------------------------------------------------- */

int audit_record_format(struct cl_buf *out, struct audit_record *r, struct cl_err *err)
{
    size_t start = out->len;
    if (cl_buf_printf(out, err,
                      "{\"assurance\":\"%s\",\"epoch\":%" PRIu64 ",\"event\":\"%s\",\"fields\":",
                      audit_assurance_name(r->assurance), r->epoch, r->event) < 0 ||
        cl_buf_append(out, r->fields, r->fields_n, err) < 0 || cl_buf_append(out, ",", 1, err) < 0)
        goto out_cut;
    size_t head_end = out->len;
    char tail[512];
    int n = snprintf(tail, sizeof tail,
                     "\"n\":%" PRIu64 ",\"prev\":\"%s\",\"seq\":%" PRIu64
                     ",\"source\":\"%s\",\"stream\":\"%s\",\"ts\":\"%s\",\"v\":%d}",
                     r->n, r->prev, r->seq, r->source, r->stream, r->ts, AUDIT_VERSION);
    CL_ASSERT(n > 0 && (size_t)n < sizeof tail);
    hash_parts(out->data + start, head_end - start, tail, (size_t)n, r->hash);
    if (cl_buf_printf(out, err, "\"hash\":\"%s\",", r->hash) < 0 ||
        cl_buf_append(out, tail, (size_t)n, err) < 0 || cl_buf_append(out, "\n", 1, err) < 0)
        goto out_cut;
    return 0;
out_cut:
    out->len = start;
    return -1;
}

/* --- parse ---------------------------------------------------------------------------------- */

static bool take_hash(struct scan *s, const char *before, char out[static AUDIT_HASH_TEXT])
{
    return scan_lit(s, before) && scan_word(s, out, AUDIT_HASH_TEXT) &&
           strlen(out) == AUDIT_HASH_HEX && strspn(out, "0123456789abcdef") == AUDIT_HASH_HEX &&
           scan_lit(s, "\"");
}

static bool take_text(struct scan *s, const char *before, char *out, size_t size)
{
    return scan_lit(s, before) && scan_word(s, out, size) && scan_lit(s, "\"");
}

static bool take_assurance(struct scan *s, enum audit_assurance *ret)
{
    char word[4];
    if (!take_text(s, "{\"assurance\":\"", word, sizeof word))
        return false;
    for (int a = 0; a < AUDIT_ASSURANCE_NR; a++) {
        if (strcmp(word, assurances[a]) == 0) {
            *ret = (enum audit_assurance)a;
            return true;
        }
    }
    return false;
}

int audit_record_parse(const char *line, size_t n, struct audit_record *ret, struct cl_err *err)
{
    struct audit_record r = {0};
    struct scan s = {line, line + n};
    uint64_t version = 0;
    if (n > AUDIT_RECORD_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "line of %zu bytes", n);
    if (!take_assurance(&s, &r.assurance) || !scan_lit(&s, ",\"epoch\":") ||
        !scan_num(&s, &r.epoch) || !take_text(&s, ",\"event\":\"", r.event, sizeof r.event) ||
        !scan_lit(&s, ",\"fields\":"))
        return cl_fail(err, CL_E_INVALID, 0, "not a record");
    r.fields = s.at;
    if (!scan_object(&s))
        return cl_fail(err, CL_E_INVALID, 0, "fields are not in canonical form");
    r.fields_n = (size_t)(s.at - r.fields);
    if (!scan_lit(&s, ","))
        return cl_fail(err, CL_E_INVALID, 0, "not a record");
    const char *hash_at = s.at;
    if (!take_hash(&s, "\"hash\":\"", r.hash) || !scan_lit(&s, ","))
        return cl_fail(err, CL_E_INVALID, 0, "no hash");
    const char *tail = s.at;
    if (!scan_lit(&s, "\"n\":") || !scan_num(&s, &r.n) || !take_hash(&s, ",\"prev\":\"", r.prev) ||
        !scan_lit(&s, ",\"seq\":") || !scan_num(&s, &r.seq) ||
        !take_text(&s, ",\"source\":\"", r.source, sizeof r.source) ||
        !take_text(&s, ",\"stream\":\"", r.stream, sizeof r.stream) ||
        !take_text(&s, ",\"ts\":\"", r.ts, sizeof r.ts) || !scan_lit(&s, ",\"v\":") ||
        !scan_num(&s, &version) || !scan_lit(&s, "}") || s.at != s.end)
        return cl_fail(err, CL_E_INVALID, 0, "not a record");
    if (version != AUDIT_VERSION)
        return cl_fail(err, CL_E_INVALID, 0, "record of version %" PRIu64 ", this release knows %d",
                       version, AUDIT_VERSION);
    char hash[AUDIT_HASH_TEXT];
    hash_parts(line, (size_t)(hash_at - line), tail, (size_t)(s.end - tail), hash);
    if (strcmp(hash, r.hash) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "the hash does not fit the record");
    *ret = r;
    return 0;
}

/* --- streams -------------------------------------------------------------------------------- */

bool audit_stream_is_valid(const char *stream)
{
    const char *name = strncmp(stream, "tenant/", 7) == 0 ? stream + 7
                       : strncmp(stream, "host/", 5) == 0 ? stream + 5
                                                          : "";
    return strlen(stream) < AUDIT_STREAM && cl_name_is_valid(name);
}

/* --- chain ---------------------------------------------------------------------------------- */

void audit_chain_init(struct audit_chain *chain, const char *stream)
{
    memset(chain, 0, sizeof *chain);
    (void)snprintf(chain->stream, sizeof chain->stream, "%s", stream);
    memset(chain->head, '0', AUDIT_HASH_HEX);
    chain->next_seq = 1;
}

int audit_chain_append(struct audit_chain *chain, struct audit_record *r, struct cl_buf *out,
                       struct cl_err *err)
{
    r->seq = chain->next_seq;
    memcpy(r->prev, chain->head, sizeof r->prev);
    memcpy(r->stream, chain->stream, sizeof r->stream);
    if (audit_record_format(out, r, err) < 0)
        return -1;
    memcpy(chain->head, r->hash, sizeof chain->head);
    chain->next_seq++;
    return 0;
}

int audit_chain_follow(struct audit_chain *chain, const struct audit_record *r, struct cl_err *err)
{
    if (strcmp(r->stream, chain->stream) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record of stream '%s'", r->stream);
    if (r->seq != chain->next_seq)
        return cl_fail(err, CL_E_INVALID, 0, "number %" PRIu64 " where %" PRIu64 " must follow",
                       r->seq, chain->next_seq);
    if (strcmp(r->prev, chain->head) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "it does not continue the record before it");
    memcpy(chain->head, r->hash, sizeof chain->head);
    chain->next_seq++;
    return 0;
}
