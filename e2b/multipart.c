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

static bool holds_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 0x20)
            return true;
    }
    return false;
}

int multipart_init(struct multipart *m, const char *content_type, struct cl_err *err)
{
    const char *at = strcasestr(content_type, "boundary=");
    if (!at)
        return bad(err, "it has no boundary");
    at += strlen("boundary=");
    size_t quoted = *at == '"', len = strcspn(at + quoted, quoted ? "\"" : "; \t");
    if (len == 0 || len > BOUNDARY_MAX || holds_control(at + quoted, len))
        return bad(err, "its boundary is not of 1 to 70 characters");
    m->state = FORM_PREAMBLE;
    m->filename[0] = '\0';
    m->n = m->head_n = m->around = m->parts = 0;
    m->delimiter_n =
        (size_t)snprintf(m->delimiter, sizeof m->delimiter, "\r\n--%.*s", (int)len, at + quoted);
    m->matched = m->implied = 2; /* the first delimiter may have no line before it */
    return 0;
}

/* --- the head of a part -------------------------------------------------------------------------
 */

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

static int read_line(struct multipart *m, const char *line, size_t n, struct cl_err *err)
{
    static const char key[] = "content-disposition:";
    size_t dashes_n = m->delimiter_n - 2;
    if (n >= dashes_n && memcmp(line, m->delimiter + 2, dashes_n) == 0)
        return bad(err, "a part does not end");
    if (n < sizeof key - 1 || strncasecmp(line, key, sizeof key - 1) != 0)
        return 0;
    return read_filename(line, n, m->filename, err);
}

static int read_fields(struct multipart *m, struct cl_err *err)
{
    m->filename[0] = '\0';
    for (const char *at = m->head, *end = at + m->head_n; at < end;) {
        const char *line = find(at, (size_t)(end - at), "\r\n", 2);
        size_t n = line ? (size_t)(line - at) : (size_t)(end - at);
        if (read_line(m, at, n, err) < 0)
            return -1;
        at += n + (line ? 2 : 0);
    }
    return 0;
}

/* Is the head complete?  It may have no field. */
static bool ends_head(const struct multipart *m)
{
    static const char blank[] = "\r\n\r\n";
    return (m->head_n == 2 && memcmp(m->head, blank, 2) == 0) ||
           (m->head_n >= 4 && memcmp(m->head + m->head_n - 4, blank, 4) == 0);
}

static enum multipart_step take_head(struct multipart *m, const char *in, size_t n,
                                     size_t *ret_used, struct cl_err *err)
{
    size_t i = 0;
    while (i < n && m->head_n < sizeof m->head) {
        m->head[m->head_n++] = in[i++];
        if (!ends_head(m))
            continue;
        *ret_used = i;
        m->state = FORM_DATA;
        m->matched = m->implied = 2; /* a part without data: its CRLF is the head's */
        if (++m->parts > MULTIPART_PARTS_MAX)
            (void)bad(err, "it has more than 1000 parts");
        else if (read_fields(m, err) == 0)
            return MULTIPART_PART;
        return MULTIPART_BAD;
    }
    *ret_used = i;
    if (i < n)
        (void)bad(err, "the head of a part is too long");
    return i < n ? MULTIPART_BAD : MULTIPART_MORE;
}

/* --- boundaries ---------------------------------------------------------------------------------
 */

/* Behind a boundary: what comes next, and that it was one. */
static enum multipart_step take_line(struct multipart *m, const char *in, size_t n,
                                     size_t *ret_used, struct cl_err *err)
{
    size_t i = 0;
    while (i < n && m->head_n < 2)
        m->head[m->head_n++] = in[i++];
    *ret_used = i;
    if (m->head_n < 2)
        return MULTIPART_MORE;
    m->head_n = 0;
    m->state = memcmp(m->head, "--", 2) == 0 ? FORM_EPILOGUE : FORM_HEAD;
    if (m->state == FORM_EPILOGUE || memcmp(m->head, "\r\n", 2) == 0)
        return m->parts > 0 ? MULTIPART_END : MULTIPART_MORE;
    (void)bad(err, "a boundary does not end its line");
    return MULTIPART_BAD;
}

/* How many of the last bytes may be the beginning of a delimiter?  CR is its first byte alone. */
static size_t count_tail(const struct multipart *m, const char *in, size_t n)
{
    size_t most = CL_MIN(n, m->delimiter_n - 1);
    const char *cr = memrchr(in + n - most, '\r', most);
    size_t tail = cr ? (size_t)(in + n - cr) : 0;
    return tail > 0 && memcmp(cr, m->delimiter, tail) == 0 ? tail : 0;
}

/* The delimiter from m->matched on.  Where it does not go on, what there was of it are data. */
static bool match(struct multipart *m, const char *in, size_t n, size_t *ret_used)
{
    size_t i = 0;
    while (i < n && m->matched < m->delimiter_n && in[i] == m->delimiter[m->matched]) {
        m->matched++;
        i++;
    }
    *ret_used = i;
    bool is_whole = m->matched == m->delimiter_n;
    if (!is_whole && i == n)
        return false;
    m->data = m->delimiter + m->implied;
    m->n = is_whole ? 0 : m->matched - m->implied;
    m->matched = m->implied = 0;
    return is_whole;
}

/* Bytes that are data, or a delimiter: was it that, whole? */
static bool scan(struct multipart *m, const char *in, size_t n, size_t *ret_used)
{
    if (m->matched > 0)
        return match(m, in, n, ret_used);
    const char *at = find(in, n, m->delimiter, m->delimiter_n);
    size_t before = at ? (size_t)(at - in) : n - count_tail(m, in, n);
    if (before == 0)
        return match(m, in, n, ret_used);
    m->data = in;
    m->n = *ret_used = before;
    return false;
}

static bool is_around(struct multipart *m, size_t n)
{
    m->around += n;
    return m->around <= MULTIPART_HEAD_MAX;
}

static enum multipart_step take_data(struct multipart *m, const char *in, size_t n,
                                     size_t *ret_used, struct cl_err *err)
{
    bool in_part = m->state == FORM_DATA;
    if (scan(m, in, n, ret_used)) {
        m->state = FORM_LINE;
        m->head_n = 0;
        return MULTIPART_MORE;
    }
    if (in_part || is_around(m, m->n))
        return in_part && m->n > 0 ? MULTIPART_DATA : MULTIPART_MORE;
    (void)bad(err, "its boundary never comes");
    return MULTIPART_BAD;
}

/* --- all of it ----------------------------------------------------------------------------------
 */

static enum multipart_step step(struct multipart *m, const char *in, size_t n, size_t *ret_used,
                                struct cl_err *err)
{
    switch (m->state) {
    case FORM_LINE:
        return take_line(m, in, n, ret_used, err);
    case FORM_HEAD:
        return take_head(m, in, n, ret_used, err);
    case FORM_PREAMBLE:
    case FORM_DATA:
        return take_data(m, in, n, ret_used, err);
    case FORM_EPILOGUE:
        break;
    }
    *ret_used = n;
    if (is_around(m, n))
        return MULTIPART_MORE;
    (void)bad(err, "it goes on behind its end");
    return MULTIPART_BAD;
}

enum multipart_step multipart_feed(struct multipart *m, const char *in, size_t n, size_t *ret_used,
                                   struct cl_err *err)
{
    enum multipart_step rc = MULTIPART_MORE;
    *ret_used = 0;
    while (rc == MULTIPART_MORE && *ret_used < n) {
        size_t used;
        m->n = 0;
        rc = step(m, in + *ret_used, n - *ret_used, &used, err);
        *ret_used += used;
    }
    return rc;
}

int multipart_finish(const struct multipart *m, struct cl_err *err)
{
    switch (m->state) {
    case FORM_PREAMBLE:
        return bad(err, "its boundary never comes");
    case FORM_LINE:
        return bad(err, "a boundary does not end its line");
    case FORM_HEAD:
    case FORM_DATA:
        return bad(err, "a part does not end");
    case FORM_EPILOGUE:
        break;
    }
    return 0;
}
