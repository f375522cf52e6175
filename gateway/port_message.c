/* gateway/port_message.c - see gateway/port_message.h. */
#include "gateway/port_message.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "gateway/http.h"

enum { CONNECTION_MAX = 1024 }; /* work: a list of 64 KiB that 200 fields are looked up in */

struct span {
    uint32_t name, value; /* where they begin in the text, each with a NUL behind it */
};

struct port_message {
    llhttp_t ll;
    llhttp_settings_t settings;
    enum port_side side;
    struct cl_buf text; /* target or reason, then names and values */
    struct span *spans; /* owned: max_fields */
    size_t n_fields, max_fields;
    size_t head_bytes, max_head; /* raw */
    size_t first_n;              /* of the target or the reason, with its NUL */
    int status;
    char last; /* byte of the head */
    bool begun, head_done, complete, has_no_body;
};

static struct port_message *of(llhttp_t *ll)
{
    return CL_CONTAINER(ll, struct port_message, ll);
}

static int bad(struct port_message *m, int status)
{
    if (!m->status)
        m->status = m->side == PORT_ANSWER ? 502 : status;
    return HPE_USER;
}

/* --- the head's text ----------------------------------------------------------------------------
 */

/* The text is never longer than the raw head and a NUL for each part, so only memory can be out. */
static int keep(struct port_message *m, const char *at, size_t n)
{
    return cl_buf_append(&m->text, at, n, NULL) < 0 ? bad(m, 431) : 0;
}

static int end_text(struct port_message *m)
{
    return keep(m, "", 1);
}

/* RFC 9112 section 3.2: a target is visible ASCII.  What browsers make of others is their secret.
 */
static bool is_visible(const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] < 0x21 || at[i] > 0x7e)
            return false;
    }
    return true;
}

static int on_target(llhttp_t *ll, const char *at, size_t n)
{
    return is_visible(at, n) ? keep(of(ll), at, n) : bad(of(ll), 400);
}

static int on_reason(llhttp_t *ll, const char *at, size_t n)
{
    return http_value_is_clean(at, n) ? keep(of(ll), at, n) : bad(of(ll), 400);
}

static int on_first_done(llhttp_t *ll)
{
    struct port_message *m = of(ll);
    int rc = end_text(m);
    m->first_n = m->text.len;
    return rc;
}

static int on_name(llhttp_t *ll, const char *at, size_t n)
{
    struct port_message *m = of(ll);
    if (m->head_done) /* a trailer: it passes with the body */
        return 0;
    if (m->first_n == 0 && on_first_done(ll)) /* an answer without a reason */
        return HPE_USER;
    if (m->n_fields == m->max_fields)
        return bad(m, 431);
    if (m->spans[m->n_fields].name == 0)
        m->spans[m->n_fields].name = (uint32_t)m->text.len;
    return keep(m, at, n);
}

static int on_name_done(llhttp_t *ll)
{
    struct port_message *m = of(ll);
    if (m->head_done)
        return 0;
    size_t begin = m->n_fields < m->max_fields ? m->spans[m->n_fields].name : 0;
    if (begin == 0 || begin == m->text.len) /* llhttp takes a field without a name */
        return bad(m, 400);
    int rc = end_text(m);
    m->spans[m->n_fields].value = (uint32_t)m->text.len;
    return rc;
}

static int on_value(llhttp_t *ll, const char *at, size_t n)
{
    struct port_message *m = of(ll);
    if (m->head_done)
        return 0;
    return http_value_is_clean(at, n) && !memchr(at, '\0', n) && !memchr(at, 0x7f, n)
               ? keep(m, at, n)
               : bad(m, 400);
}

static int on_value_done(llhttp_t *ll)
{
    struct port_message *m = of(ll);
    if (m->head_done)
        return 0;
    size_t begin = m->spans[m->n_fields].value;
    while (m->text.len > begin && strchr(" \t", m->text.data[m->text.len - 1]))
        m->text.len--;
    m->n_fields++;
    return end_text(m);
}

/* --- what the head says -------------------------------------------------------------------------
 */

/* Each field of the head is looked up in it. */
static bool connection_is_short(const struct port_message *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_fields; i++) {
        struct port_field f = port_message_field(m, i);
        n += strcasecmp(f.name, "connection") == 0 ? strlen(f.value) : 0;
    }
    return n <= CONNECTION_MAX;
}

/* Of requests and answers alike: the one length that all read. */
static int check_length(struct port_message *m)
{
    size_t lengths = port_message_count(m, "content-length"),
           codings = port_message_count(m, "transfer-encoding");
    const char *coding = port_message_value(m, "transfer-encoding");
    if (lengths > 1 || codings > 1 || (lengths && codings) || !connection_is_short(m))
        return bad(m, 400);
    if (port_message_lists(m, "connection", "content-length", 14) ||
        port_message_lists(m, "connection", "transfer-encoding", 17) ||
        port_message_lists(m, "connection", "host", 4))
        return bad(m, 400);
    if (coding && strcasecmp(coding, "chunked") != 0)
        return bad(m, 501);
    return coding && port_message_is_1_0(m) ? bad(m, 400) : 0;
}

static int check_request(struct port_message *m)
{
    const char *target = port_message_target(m);
    bool is_star = strcmp(target, "*") == 0 && m->ll.method == HTTP_OPTIONS;
    if (target[0] != '/' && !is_star) /* another form, or a tunnel: RFC 9112 section 3.2 */
        return bad(m, 400);
    return port_message_count(m, "host") == 1 ? 0 : bad(m, 400);
}

static int check_answer(struct port_message *m)
{
    int code = m->ll.status_code;
    if (code < 100 || code > 599)
        return bad(m, 502);
    if (m->has_no_body || code < 200 || code == 204 || code == 304)
        m->ll.flags |= F_SKIPBODY; /* RFC 9112 section 6.3, whatever it says of a length */
    return 0;
}

static int on_head_done(llhttp_t *ll)
{
    struct port_message *m = of(ll);
    if (m->first_n == 0 && on_first_done(ll))
        return HPE_USER;
    if (ll->http_major != 1 || ll->http_minor > 1)
        return bad(m, 505);
    if (check_length(m) || (m->side == PORT_REQUEST ? check_request(m) : check_answer(m)))
        return HPE_USER;
    ll->upgrade = 0; /* the message is as long as it says, whatever follows it */
    m->head_done = true;
    return HPE_PAUSED;
}

static int on_complete(llhttp_t *ll)
{
    of(ll)->complete = true;
    return HPE_PAUSED;
}

/* --- bytes --------------------------------------------------------------------------------------
 */

/* CRLF ends a line, and no line goes on in the next one (RFC 9112 sections 2.2 and 5.2). */
static bool lines_are_plain(struct port_message *m, const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool folds = m->last == '\n' && (at[i] == ' ' || at[i] == '\t');
        if (folds || at[i] == '\0' || (m->last == '\r') != (at[i] == '\n'))
            return false;
        m->last = at[i];
    }
    return true;
}

static bool head_is_fine(struct port_message *m, const char *at, size_t n)
{
    m->head_bytes += n;
    if (m->head_bytes > m->max_head)
        return bad(m, 431) == 0;
    return lines_are_plain(m, at, n) || bad(m, 400) == 0;
}

enum port_step port_message_feed(struct port_message *m, const void *data, size_t n,
                                 size_t *ret_used)
{
    const char *at = n ? data : "";
    bool in_head = !m->head_done;
    *ret_used = m->complete ? 0 : n;
    if (m->status || m->complete)
        return m->status ? PORT_BAD : PORT_DONE;
    m->begun = m->begun || n > 0;
    enum llhttp_errno rc = llhttp_execute(&m->ll, at, n);
    if (rc == HPE_PAUSED)
        *ret_used = (size_t)(llhttp_get_error_pos(&m->ll) - at);
    else if (rc != HPE_OK)
        (void)bad(m, rc == HPE_INVALID_VERSION ? 505 : 400);
    if (m->status || (in_head && !head_is_fine(m, at, *ret_used)))
        return PORT_BAD;
    if (m->complete)
        return PORT_DONE;
    llhttp_resume(&m->ll);
    return rc == HPE_PAUSED ? PORT_HEAD : PORT_MORE;
}

enum port_step port_message_eof(struct port_message *m)
{
    if (!m->status && m->head_done)
        (void)llhttp_finish(&m->ll);
    if (!m->complete)
        (void)bad(m, 400);
    return m->status ? PORT_BAD : PORT_DONE;
}

int port_message_status(const struct port_message *m)
{
    return m->status;
}

bool port_message_has_begun(const struct port_message *m)
{
    return m->begun;
}

/* --- facts --------------------------------------------------------------------------------------
 */

void port_message_expect_none(struct port_message *m)
{
    m->has_no_body = true;
}

size_t port_message_fields(const struct port_message *m)
{
    return m->n_fields;
}

struct port_field port_message_field(const struct port_message *m, size_t i)
{
    const char *text = (const char *)m->text.data;
    return (struct port_field){text + m->spans[i].name, text + m->spans[i].value};
}

const char *port_message_value(const struct port_message *m, const char *name)
{
    for (size_t i = 0; i < m->n_fields; i++) {
        struct port_field f = port_message_field(m, i);
        if (strcasecmp(f.name, name) == 0)
            return f.value;
    }
    return NULL;
}

size_t port_message_count(const struct port_message *m, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < m->n_fields; i++)
        count += strcasecmp(port_message_field(m, i).name, name) == 0;
    return count;
}

static bool list_has(const char *list, const char *word, size_t n)
{
    for (const char *at = list; *at; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        size_t len = strcspn(at, ", \t");
        if (len == n && len > 0 && strncasecmp(at, word, n) == 0)
            return true;
    }
    return false;
}

bool port_message_lists(const struct port_message *m, const char *name, const char *word, size_t n)
{
    for (size_t i = 0; i < m->n_fields; i++) {
        struct port_field f = port_message_field(m, i);
        if (strcasecmp(f.name, name) == 0 && list_has(f.value, word, n))
            return true;
    }
    return false;
}

const char *port_message_method(const struct port_message *m)
{
    return llhttp_method_name((llhttp_method_t)m->ll.method);
}

const char *port_message_target(const struct port_message *m)
{
    return (const char *)m->text.data;
}

const char *port_message_reason(const struct port_message *m)
{
    return (const char *)m->text.data;
}

int port_message_code(const struct port_message *m)
{
    return m->ll.status_code;
}

bool port_message_is_1_0(const struct port_message *m)
{
    return m->ll.http_minor == 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static void set_callbacks(llhttp_settings_t *s)
{
    llhttp_settings_init(s);
    s->on_url = on_target;
    s->on_url_complete = on_first_done;
    s->on_status = on_reason;
    s->on_status_complete = on_first_done;
    s->on_header_field = on_name;
    s->on_header_field_complete = on_name_done;
    s->on_header_value = on_value;
    s->on_header_value_complete = on_value_done;
    s->on_headers_complete = on_head_done;
    s->on_message_complete = on_complete;
}

int port_message_new(enum port_side side, struct port_message **ret_message, struct cl_err *err)
{
    bool asks = side == PORT_REQUEST;
    struct port_message *m = cl_zalloc(sizeof *m);
    if (m) {
        m->side = side;
        m->max_fields = asks ? PORT_REQUEST_FIELDS : PORT_ANSWER_FIELDS;
        m->max_head = asks ? PORT_REQUEST_HEAD : PORT_ANSWER_HEAD;
        m->spans = cl_zalloc_array(m->max_fields, sizeof *m->spans);
    }
    if (!m || !m->spans) {
        cl_free(m);
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP message");
    }
    cl_buf_init(&m->text, m->max_head + 2 * m->max_fields + 2);
    set_callbacks(&m->settings);
    llhttp_init(&m->ll, asks ? HTTP_REQUEST : HTTP_RESPONSE, &m->settings);
    *ret_message = m;
    return 0;
}

void port_message_free(struct port_message *m)
{
    if (!m)
        return;
    cl_buf_fini(&m->text);
    cl_free(m->spans);
    cl_free(m);
}
