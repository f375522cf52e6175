/* e2b/multipart.c - see e2b/multipart.h. */
#include "e2b/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { BOUNDARY_MAX = 70 }; /* RFC 2046 section 5.1.1 */

static int bad(struct cl_err *err, const char *what)
{
    return cl_fail(err, CL_E_INVALID, 0, "the uploaded form is malformed: %s", what);
}

static const char *find(const char *in, size_t n, const char *what, size_t what_n)
{
    return what_n <= n ? memmem(in, n, what, what_n) : NULL;
}

int multipart_begin(struct multipart *m, const char *content_type, const char *body, size_t n,
                    struct cl_err *err)
{
    const char *at = strcasestr(content_type, "boundary=");
    if (!at)
        return bad(err, "it has no boundary");
    at += strlen("boundary=");
    size_t quoted = *at == '"', len = strcspn(at + quoted, quoted ? "\"" : "; \t");
    if (len == 0 || len > BOUNDARY_MAX)
        return bad(err, "its boundary is not of 1 to 70 characters");
    *m = (struct multipart){.body = body, .n = n};
    m->delimiter_n =
        (size_t)snprintf(m->delimiter, sizeof m->delimiter, "\r\n--%.*s", (int)len, at + quoted);
    /* The first delimiter may have no line before it. */
    if (n >= m->delimiter_n - 2 && memcmp(body, m->delimiter + 2, m->delimiter_n - 2) == 0) {
        m->at = m->delimiter_n - 2;
        return 0;
    }
    const char *first = find(body, n, m->delimiter, m->delimiter_n);
    if (!first)
        return bad(err, "its boundary never comes");
    m->at = (size_t)(first - body) + m->delimiter_n;
    return 0;
}

/* The value of filename="..." of one field, with \" and \\ taken back. */
static int read_filename(const char *field, size_t n, char *out, struct cl_err *err)
{
    static const char key[] = "filename=\"";
    const char *at = find(field, n, key, sizeof key - 1), *end = field + n;
    size_t m = 0;
    if (!at)
        return 0;
    for (at += sizeof key - 1; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\'))
            at++;
        if (*at == '\0' || m + 1 >= MULTIPART_NAME_MAX)
            return bad(err, "a file's name is too long, or holds NUL");
        out[m++] = *at;
    }
    out[m] = '\0';
    return at < end ? 0 : bad(err, "a file's name does not end");
}

static int read_fields(const char *head, size_t n, struct multipart_part *part, struct cl_err *err)
{
    static const char key[] = "content-disposition:";
    for (const char *at = head, *end = head + n; at < end;) {
        const char *line = find(at, (size_t)(end - at), "\r\n", 2);
        size_t len = line ? (size_t)(line - at) : (size_t)(end - at);
        if (len >= sizeof key - 1 && strncasecmp(at, key, sizeof key - 1) == 0 &&
            read_filename(at, len, part->filename, err) < 0)
            return -1;
        at += len + (line ? 2 : 0);
    }
    return 0;
}

int multipart_next(struct multipart *m, struct multipart_part *ret_part, struct cl_err *err)
{
    const char *at = m->body + m->at;
    size_t left = m->n - m->at;
    if (left >= 2 && memcmp(at, "--", 2) == 0)
        return 0;
    if (left < 2 || memcmp(at, "\r\n", 2) != 0)
        return bad(err, "a boundary does not end its line");
    if (++m->parts > MULTIPART_PARTS_MAX)
        return bad(err, "it has more than 1000 parts");
    const char *end = find(at, left, m->delimiter, m->delimiter_n);
    const char *blank = find(at, left, "\r\n\r\n", 4);
    if (!end || !blank || blank + 4 > end + 2)
        return bad(err, "a part does not end");
    ret_part->filename[0] = '\0';
    if (blank > at && read_fields(at + 2, (size_t)(blank - at - 2), ret_part, err) < 0)
        return -1;
    ret_part->data = blank + 4;
    ret_part->n = end > blank + 4 ? (size_t)(end - blank - 4) : 0;
    m->at = (size_t)(end - m->body) + m->delimiter_n;
    return 1;
}
