/* gateway/http.c - see gateway/http.h. */
#include "gateway/http.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static const struct {
    const char *name;
    enum http_again again;
} known[FIELD_NR] = {
    [FIELD_HOST] = {"host", AGAIN_BAD},
    [FIELD_ORIGIN] = {"origin", AGAIN_BAD},
    [FIELD_AUTHORIZATION] = {"authorization", AGAIN_BAD},
    [FIELD_CONTENT_TYPE] = {"content-type", AGAIN_BAD},
    [FIELD_ACCEPT] = {"accept", AGAIN_LAST},
    [FIELD_EXPECT] = {"expect", AGAIN_BAD},
    [FIELD_MCP_VERSION] = {"mcp-protocol-version", AGAIN_BAD},
    [FIELD_MCP_METHOD] = {"mcp-method", AGAIN_BAD},
    [FIELD_MCP_NAME] = {"mcp-name", AGAIN_BAD},
    [FIELD_MCP_SESSION] = {"mcp-session-id", AGAIN_BAD},
    [FIELD_API_KEY] = {"x-api-key", AGAIN_BAD},
    [FIELD_ACCESS_TOKEN] = {"x-access-token", AGAIN_BAD},
    [FIELD_TRAFFIC_TOKEN] = {"e2b-traffic-access-token", AGAIN_BAD},
    [FIELD_SANDBOX_ID] = {"e2b-sandbox-id", AGAIN_BAD},
    [FIELD_SANDBOX_PORT] = {"e2b-sandbox-port", AGAIN_BAD},
    [FIELD_CONNECT_TIMEOUT] = {"connect-timeout-ms", AGAIN_BAD},
    [FIELD_GRPC_TIMEOUT] = {"grpc-timeout", AGAIN_BAD},
    [FIELD_KEEPALIVE] = {"keepalive-ping-interval", AGAIN_BAD},
    [FIELD_CONTENT_ENCODING] = {"content-encoding", AGAIN_BAD},
    [FIELD_IDEMPOTENCY] = {"idempotency-key", AGAIN_BAD},
    [FIELD_TRACEPARENT] = {"traceparent", AGAIN_NONE}, /* W3C Trace Context, section 3.2.1 */
    [FIELD_CORS_METHOD] = {"access-control-request-method", AGAIN_BAD},
    [FIELD_CORS_HEADERS] = {"access-control-request-headers", AGAIN_BAD},
};

enum http_field http_field_find(const char *name, size_t n, enum http_again *ret_again)
{
    for (size_t i = 0; i < FIELD_NR; i++) {
        if (strlen(known[i].name) != n || strncasecmp(name, known[i].name, n) != 0)
            continue;
        *ret_again = known[i].again;
        return (enum http_field)i;
    }
    return FIELD_NR;
}

bool http_value_is_clean(const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)at[i] < 0x20 && at[i] != '\t')
            return false;
    }
    return true;
}

int http_path_read(const char *target, size_t n, char path[static HTTP_PATH_MAX])
{
    const char *query = n ? memchr(target, '?', n) : NULL;
    n = query ? (size_t)(query - target) : n;
    if (n == 0 || n >= HTTP_PATH_MAX)
        return 414;
    if (target[0] != '/') /* another form of a target, RFC 9112 section 3.2 */
        return 400;
    memcpy(path, target, n);
    path[n] = '\0';
    return 0;
}

const char *http_query_find(const char *target, size_t n, size_t *ret_n)
{
    const char *mark = n ? memchr(target, '?', n) : NULL;
    if (!mark)
        return NULL;
    *ret_n = n - (size_t)(mark + 1 - target);
    return mark + 1;
}

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {{200, "OK"},
                {201, "Created"},
                {202, "Accepted"},
                {204, "No Content"},
                {302, "Found"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {406, "Not Acceptable"},
                {409, "Conflict"},
                {413, "Content Too Large"},
                {414, "URI Too Long"},
                {415, "Unsupported Media Type"},
                {421, "Misdirected Request"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {501, "Not Implemented"},
                {502, "Bad Gateway"},
                {503, "Service Unavailable"},
                {504, "Gateway Timeout"},
                {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (rows[i].status == status)
            return rows[i].text;
    }
    return "Error";
}

struct http_parser {
    llhttp_t ll;
    llhttp_settings_t settings;
    struct http_request request;
    struct cl_buf head; /* query and known values, each with a NUL; before them the target */
    struct cl_buf body;
    size_t head_bytes, n_fields; /* of everything, known or not */
    size_t at[FIELD_NR];         /* where a value begins in head; SIZE_MAX = absent */
    char name[32];               /* of the field that is being read; "" = none of ours */
    size_t name_n;
    size_t value_at;
    int status;
    bool has_query; /* at the beginning of head */
    bool is_long;   /* over HTTP_BODY_MAX, by its Content-Length */
    bool begun, complete, head_done;
    bool body_begun; /* it is known what becomes of it */
    bool streams;
};

static struct http_parser *of(llhttp_t *ll)
{
    return CL_CONTAINER(ll, struct http_parser, ll);
}

static int bad(struct http_parser *p, int status)
{
    if (!p->status)
        p->status = status;
    return HPE_USER;
}

/* Everything in the head counts, whether we keep it or not.  Trailers (RFC 9112 section 7.1.2)
 * count too and are never kept: the fields have been handed out and point into the head. */
static int keep(struct http_parser *p, const char *at, size_t n, int status)
{
    p->head_bytes += n;
    if (p->head_bytes > HTTP_HEAD_MAX)
        return bad(p, status);
    if (p->head_done)
        return 0;
    return cl_buf_append(&p->head, at, n, NULL) < 0 ? bad(p, status) : 0;
}

static int on_begin(llhttp_t *ll)
{
    of(ll)->begun = true;
    return 0;
}

static int on_url(llhttp_t *ll, const char *at, size_t n)
{
    return keep(of(ll), at, n, 414);
}

static int on_url_done(llhttp_t *ll)
{
    struct http_parser *p = of(ll);
    int status = http_path_read((const char *)p->head.data, p->head.len, p->request.path);
    if (status)
        return bad(p, status);
    size_t n = 0;
    const char *query = http_query_find((const char *)p->head.data, p->head.len, &n);
    cl_buf_consume(&p->head, p->head.len - n);
    p->has_query = query != NULL;
    if (query && (memchr(p->head.data, '\0', n) || cl_buf_append(&p->head, "", 1, NULL) < 0))
        return bad(p, 400);
    return 0;
}

static int on_field(llhttp_t *ll, const char *at, size_t n)
{
    struct http_parser *p = of(ll);
    p->head_bytes += n;
    if (p->head_bytes > HTTP_HEAD_MAX)
        return bad(p, 431);
    size_t room = CL_MIN(n, sizeof p->name - 1 - CL_MIN(p->name_n, sizeof p->name - 1));
    if (room > 0)
        memcpy(p->name + p->name_n, at, room);
    p->name_n += n;
    return 0;
}

static int on_field_done(llhttp_t *ll)
{
    struct http_parser *p = of(ll);
    p->name[CL_MIN(p->name_n, sizeof p->name - 1)] = '\0';
    p->value_at = p->head.len;
    return ++p->n_fields > HTTP_FIELDS_MAX ? bad(p, 431) : 0;
}

/* A folded line arrives as one with a space (RFC 9112 section 5.2); other control characters have
 * no place in a value (RFC 9110 section 5.5). */
static int on_value(llhttp_t *ll, const char *at, size_t n)
{
    return http_value_is_clean(at, n) ? keep(of(ll), at, n, 431) : bad(of(ll), 400);
}

static int on_value_done(llhttp_t *ll)
{
    struct http_parser *p = of(ll);
    enum http_again again = AGAIN_LAST;
    enum http_field f = http_field_find(p->name, p->name_n, &again);
    p->name_n = 0;
    if (p->head_done)
        return 0;
    if (f == FIELD_NR) {
        p->head.len = p->value_at; /* not ours: its bytes are counted, not kept */
        return 0;
    }
    if (p->at[f] != SIZE_MAX && again == AGAIN_BAD)
        return bad(p, 400);
    if (p->at[f] != SIZE_MAX && again == AGAIN_NONE)
        p->head.len = p->value_at;
    p->at[f] = p->value_at;
    while (p->head.len > p->value_at && strchr(" \t", p->head.data[p->head.len - 1]))
        p->head.len--;
    return cl_buf_append(&p->head, "", 1, NULL) < 0 ? bad(p, 431) : 0;
}

static int on_head_done(llhttp_t *ll)
{
    static const struct {
        int ll;
        enum http_verb verb;
    } verbs[] = {{HTTP_GET, VERB_GET},
                 {HTTP_POST, VERB_POST},
                 {HTTP_PUT, VERB_PUT},
                 {HTTP_DELETE, VERB_DELETE},
                 {HTTP_OPTIONS, VERB_OPTIONS}};
    struct http_parser *p = of(ll);
    for (size_t i = 0; i < CL_COUNT(verbs); i++) {
        if (verbs[i].ll == ll->method)
            p->request.verb = verbs[i].verb;
    }
    for (size_t i = 0; i < FIELD_NR; i++)
        p->request.fields[i] = p->at[i] == SIZE_MAX ? NULL : (char *)p->head.data + p->at[i];
    p->request.query = p->has_query ? (char *)p->head.data : NULL;
    if (ll->http_major != 1 || ll->http_minor > 1)
        return bad(p, 505);
    if (ll->method == HTTP_CONNECT)
        return bad(p, 400);
    p->is_long = (ll->flags & F_CONTENT_LENGTH) && ll->content_length > HTTP_BODY_MAX;
    ll->upgrade = 0; /* an offer that we do not take, RFC 9110 section 7.8 */
    p->head_done = true;
    p->request.is_1_0 = ll->http_minor == 0;
    p->request.wants_continue = p->request.fields[FIELD_EXPECT] &&
                                strcasecmp(p->request.fields[FIELD_EXPECT], "100-continue") == 0;
    return HPE_PAUSED;
}

static int on_body(llhttp_t *ll, const char *at, size_t n)
{
    struct http_parser *p = of(ll);
    return cl_buf_append(&p->body, at, n, NULL) < 0 ? bad(p, 413) : 0;
}

static int on_complete(llhttp_t *ll)
{
    of(ll)->complete = true;
    return HPE_PAUSED;
}

static void clear_request(struct http_parser *p)
{
    p->request = (struct http_request){0};
    cl_buf_clear(&p->head);
    cl_buf_fini(&p->body); /* a large one must not stay with an idle connection */
    cl_buf_init(&p->body, HTTP_BODY_MAX);
    p->head_bytes = p->n_fields = p->name_n = p->value_at = 0;
    for (size_t i = 0; i < FIELD_NR; i++)
        p->at[i] = SIZE_MAX;
    p->has_query = p->is_long = p->begun = p->complete = p->head_done = false;
    p->body_begun = p->streams = false;
}

int http_parser_new(struct http_parser **ret_parser, struct cl_err *err)
{
    struct http_parser *p = cl_zalloc(sizeof *p);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP parser");
    llhttp_settings_init(&p->settings);
    p->settings.on_message_begin = on_begin;
    p->settings.on_url = on_url;
    p->settings.on_url_complete = on_url_done;
    p->settings.on_header_field = on_field;
    p->settings.on_header_field_complete = on_field_done;
    p->settings.on_header_value = on_value;
    p->settings.on_header_value_complete = on_value_done;
    p->settings.on_headers_complete = on_head_done;
    p->settings.on_body = on_body;
    p->settings.on_message_complete = on_complete;
    llhttp_init(&p->ll, HTTP_REQUEST, &p->settings);
    cl_buf_init(&p->head, HTTP_HEAD_MAX + FIELD_NR + 2);
    cl_buf_init(&p->body, HTTP_BODY_MAX);
    clear_request(p);
    *ret_parser = p;
    return 0;
}

void http_parser_free(struct http_parser *p)
{
    if (!p)
        return;
    cl_buf_fini(&p->head);
    cl_buf_fini(&p->body);
    cl_free(p);
}

static enum http_step paused(struct http_parser *p)
{
    if (!p->complete) {
        llhttp_resume(&p->ll);
        return STEP_HEAD;
    }
    if (!p->streams) {
        p->request.body = (const char *)p->body.data;
        p->request.n = p->body.len;
    }
    p->request.keep_alive = llhttp_should_keep_alive(&p->ll) != 0;
    return STEP_DONE;
}

/* Behind the head: is the body to be gathered, and can it be? */
static enum http_step begin_body(struct http_parser *p)
{
    p->body_begun = true;
    if (p->streams)
        return STEP_MORE;
    if (p->is_long)
        (void)bad(p, 413);
    return p->status ? STEP_BAD : p->request.wants_continue ? STEP_CONTINUE : STEP_MORE;
}

enum http_step http_parser_feed(struct http_parser *p, const void *data, size_t n, size_t *ret_used)
{
    const char *at = n ? data : "";
    *ret_used = n;
    if (p->status)
        return STEP_BAD;
    enum http_step step = p->head_done && !p->body_begun ? begin_body(p) : STEP_MORE;
    if (step != STEP_MORE) {
        *ret_used = 0;
        return step;
    }
    enum llhttp_errno rc = llhttp_execute(&p->ll, at, n);
    if (rc == HPE_OK)
        return STEP_MORE;
    if (rc == HPE_PAUSED) {
        *ret_used = (size_t)(llhttp_get_error_pos(&p->ll) - at);
        return paused(p);
    }
    (void)bad(p, rc == HPE_INVALID_VERSION ? 505 : 400);
    return STEP_BAD;
}

const struct http_request *http_parser_request(const struct http_parser *p)
{
    return &p->request;
}

void http_parser_stream(struct http_parser *p)
{
    p->streams = true;
}

struct cl_buf *http_parser_body(struct http_parser *p)
{
    return &p->body;
}

int http_parser_status(const struct http_parser *p)
{
    return p->status;
}

bool http_parser_is_busy(const struct http_parser *p)
{
    return p->begun;
}

void http_parser_reset(struct http_parser *p)
{
    clear_request(p);
    llhttp_resume(&p->ll);
}
