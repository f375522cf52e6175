/* gateway/http2.c - see gateway/http2.h. */
#include "gateway/http2.h"

#include <string.h>
#include <strings.h>

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
_Static_assert(sizeof preface - 1 == HTTP2_PREFACE, "RFC 9113 section 3.4");

enum http2_sniff http2_sniff(const void *data, size_t n)
{
    size_t seen = CL_MIN(n, (size_t)HTTP2_PREFACE);
    if (seen > 0 && memcmp(data, preface, seen) != 0)
        return SNIFF_HTTP1;
    return seen < HTTP2_PREFACE ? SNIFF_MORE : SNIFF_HTTP2;
}

static void refuse(struct http2_request *r, int status)
{
    if (!r->status)
        r->status = status;
}

/* --- the head -----------------------------------------------------------------------------------
 */

static bool is(const char *name, size_t n, const char *want)
{
    return n == strlen(want) && memcmp(name, want, n) == 0;
}

/* Everything counts, whether we keep it or not. */
static void count(struct http2_request *r, size_t n, size_t value_n, int status)
{
    r->head_bytes += n + value_n;
    if (r->head_bytes > HTTP_HEAD_MAX)
        refuse(r, status);
}

static void count_field(struct http2_request *r, size_t n, size_t value_n)
{
    count(r, n, value_n, 431);
    if (++r->n_fields > HTTP_FIELDS_MAX)
        refuse(r, 431);
}

static void keep(struct http2_request *r, enum http_field f, const char *value, size_t n)
{
    r->at[f] = r->head.len;
    if (cl_buf_append(&r->head, value, n, NULL) < 0 || cl_buf_append(&r->head, "", 1, NULL) < 0)
        refuse(r, 431);
}

static void keep_query(struct http2_request *r, const char *target, size_t n)
{
    size_t query_n;
    const char *query = http_query_find(target, n, &query_n);
    if (!query)
        return;
    r->query_at = r->head.len;
    if (cl_buf_append(&r->head, query, query_n, NULL) < 0 ||
        cl_buf_append(&r->head, "", 1, NULL) < 0)
        refuse(r, 414);
}

static enum http_verb verb_of(const char *method, size_t n)
{
    static const struct {
        const char *name;
        enum http_verb verb;
    } verbs[] = {{"GET", VERB_GET},
                 {"POST", VERB_POST},
                 {"PUT", VERB_PUT},
                 {"DELETE", VERB_DELETE},
                 {"OPTIONS", VERB_OPTIONS}};
    for (size_t i = 0; i < CL_COUNT(verbs); i++) {
        if (is(method, n, verbs[i].name))
            return verbs[i].verb;
    }
    return VERB_OTHER;
}

static void pseudo(struct http2_request *r, const char *name, size_t n, const char *value,
                   size_t value_n)
{
    if (is(name, n, ":method")) {
        r->request.verb = verb_of(value, value_n);
        if (is(value, value_n, "CONNECT")) /* a tunnel */
            refuse(r, 400);
    } else if (is(name, n, ":path")) {
        count(r, 0, value_n, 414);
        int status = http_path_read(value, value_n, r->request.path);
        if (status)
            refuse(r, status);
        else
            keep_query(r, value, value_n);
    } else if (is(name, n, ":authority")) {
        count(r, 0, value_n, 431);
        if (r->at[FIELD_HOST] != SIZE_MAX)
            refuse(r, 400);
        r->has_authority = true;
        keep(r, FIELD_HOST, value, value_n);
    }
}

/* Host beside :authority must say the same (RFC 9113 section 8.3.1): whoever looks at one of them
 * only must not be led to another place. */
static void host(struct http2_request *r, const char *value, size_t n)
{
    const char *authority = r->has_authority ? (char *)r->head.data + r->at[FIELD_HOST] : NULL;
    if (r->has_host ||
        (authority && (strlen(authority) != n || strncasecmp(authority, value, n) != 0)))
        refuse(r, 400);
    else if (!authority)
        keep(r, FIELD_HOST, value, n);
    r->has_host = true;
}

/* nghttp2 has seen that it is a number, once. */
static void length(struct http2_request *r, const char *value, size_t n)
{
    uint64_t length = 0;
    for (size_t i = 0; i < n && length <= HTTP_BODY_MAX; i++) {
        if (value[i] < '0' || value[i] > '9') {
            refuse(r, 400);
            return;
        }
        length = length * 10 + (uint64_t)(value[i] - '0');
    }
    r->is_long = length > HTTP_BODY_MAX;
}

static void regular(struct http2_request *r, const char *name, size_t n, const char *value,
                    size_t value_n)
{
    enum http_again again = AGAIN_LAST;
    enum http_field f = http_field_find(name, n, &again);
    count_field(r, n, value_n);
    if (r->status)
        return;
    if (is(name, n, "content-length"))
        length(r, value, value_n);
    if (f == FIELD_HOST)
        host(r, value, value_n);
    else if (f != FIELD_NR && r->at[f] != SIZE_MAX && again == AGAIN_BAD)
        refuse(r, 400);
    else if (f != FIELD_NR && r->at[f] != SIZE_MAX && again == AGAIN_NONE)
        keep(r, f, "", 0);
    else if (f != FIELD_NR)
        keep(r, f, value, value_n);
}

void http2_request_field(struct http2_request *r, const char *name, size_t n, const char *value,
                         size_t value_n)
{
    if (r->status)
        return;
    if (!http_value_is_clean(value, value_n) || memchr(value, '\0', value_n))
        refuse(r, 400);
    else if (n > 0 && name[0] == ':')
        pseudo(r, name, n, value, value_n);
    else
        regular(r, name, n, value, value_n);
}

void http2_request_trailer(struct http2_request *r, size_t n, size_t value_n)
{
    count_field(r, n, value_n);
}

void http2_request_bad_field(struct http2_request *r)
{
    refuse(r, 400);
}

int http2_request_head_done(struct http2_request *r)
{
    for (size_t i = 0; i < FIELD_NR; i++)
        r->request.fields[i] = r->at[i] == SIZE_MAX ? NULL : (char *)r->head.data + r->at[i];
    r->request.query = r->query_at == SIZE_MAX ? NULL : (char *)r->head.data + r->query_at;
    const char *expect = r->request.fields[FIELD_EXPECT];
    r->request.wants_continue = expect && strcasecmp(expect, "100-continue") == 0;
    if (!r->request.path[0])
        refuse(r, 400);
    return r->status;
}

/* --- the body and the end -----------------------------------------------------------------------
 */

int http2_request_gather(struct http2_request *r)
{
    if (r->is_long)
        refuse(r, 413);
    return r->status;
}

int http2_request_body(struct http2_request *r, const void *data, size_t n)
{
    if (!r->status && cl_buf_append(&r->body, data, n, NULL) < 0)
        refuse(r, 413);
    return r->status;
}

const struct http_request *http2_request_done(struct http2_request *r)
{
    r->request.body = (const char *)r->body.data;
    r->request.n = r->body.len;
    r->request.keep_alive = true;
    return &r->request;
}

void http2_request_init(struct http2_request *r)
{
    *r = (struct http2_request){0};
    cl_buf_init(&r->head, HTTP_HEAD_MAX + FIELD_NR + 2);
    r->query_at = SIZE_MAX;
    cl_buf_init(&r->body, HTTP_BODY_MAX);
    for (size_t i = 0; i < FIELD_NR; i++)
        r->at[i] = SIZE_MAX;
}

void http2_request_drop_body(struct http2_request *r)
{
    cl_buf_fini(&r->body);
    cl_buf_init(&r->body, HTTP_BODY_MAX);
}

void http2_request_fini(struct http2_request *r)
{
    cl_buf_fini(&r->head);
    cl_buf_fini(&r->body);
}
