/* gateway/api_io.c - an exchange that is a call of E2B's API, or of our own services; see
 * gateway/http_priv.h. */
#include "gateway/http_priv.h"

static void on_reply(void *arg, const struct web_reply *reply)
{
    exchange_answer(arg, &(struct answer){.status = reply->status,
                                          .type = reply->type,
                                          .data = reply->data,
                                          .n = reply->n,
                                          .next_token = reply->next_token,
                                          .is_page = reply->is_page});
}

static void on_begin(void *arg, const char *type)
{
    exchange_begin_raw(arg, type);
}

static void on_send(void *arg, const void *data, size_t n)
{
    struct exchange *x = arg;
    struct iovec piece = {(void *)(uintptr_t)data, n};
    x->wire->send(x, &piece, 1);
}

static void on_end(void *arg)
{
    exchange_end_raw(arg);
}

static void on_cut(void *arg)
{
    exchange_cut_raw(arg);
}

static size_t waiting(void *arg)
{
    struct exchange *x = arg;
    return x->wire->waiting(x);
}

/* Whoever feeds goes on by itself. */
static void on_want_body(void *arg)
{
    struct exchange *x = arg;
    if (!x->is_fed)
        x->wire->feed(x);
}

static enum e2b_verb verb_of(enum http_verb verb)
{
    static const enum e2b_verb verbs[] = {
        [VERB_OTHER] = E2B_OTHER_VERB, [VERB_GET] = E2B_GET,       [VERB_POST] = E2B_POST,
        [VERB_PUT] = E2B_PUT,          [VERB_DELETE] = E2B_DELETE, [VERB_OPTIONS] = E2B_OTHER_VERB};
    return verbs[verb];
}

static const struct web_transport transport = {.reply = on_reply,
                                               .begin = on_begin,
                                               .send = on_send,
                                               .end = on_end,
                                               .cut = on_cut,
                                               .waiting = waiting,
                                               .want_body = on_want_body};

void exchange_take_web(struct exchange *x, const struct http_request *r)
{
    const char *const *f = r->fields;
    struct web_request in = {.is_post = r->verb == VERB_POST,
                             .is_get = r->verb == VERB_GET,
                             .path = r->path,
                             .authorization = f[FIELD_AUTHORIZATION],
                             .content_type = f[FIELD_CONTENT_TYPE],
                             .content_encoding = f[FIELD_CONTENT_ENCODING],
                             .connect_timeout = f[FIELD_CONNECT_TIMEOUT],
                             .grpc_timeout = f[FIELD_GRPC_TIMEOUT],
                             .traceparent = f[FIELD_TRACEPARENT],
                             .body = r->body,
                             .n = r->n,
                             .can_stream = !r->is_1_0};
    if (web_call_new(x->server->conf.web, &in, &transport, x, &x->web, NULL) < 0) {
        exchange_refuse(x, 503, "too many calls at once: retry later");
        return;
    }
    x->state = EXCHANGE_WAITING;
    web_call_run(x->web);
}

void exchange_take_e2b(struct exchange *x, const struct http_request *r)
{
    const char *const *f = r->fields;
    struct e2b_request in = {.verb = verb_of(r->verb),
                             .path = r->path,
                             .query = r->query,
                             .host = f[FIELD_HOST],
                             .api_key = f[FIELD_API_KEY],
                             .authorization = f[FIELD_AUTHORIZATION],
                             .access_token = f[FIELD_ACCESS_TOKEN] ? f[FIELD_ACCESS_TOKEN]
                                                                   : f[FIELD_TRAFFIC_TOKEN],
                             .sandbox_id = f[FIELD_SANDBOX_ID],
                             .sandbox_port = f[FIELD_SANDBOX_PORT],
                             .connect_timeout = f[FIELD_CONNECT_TIMEOUT],
                             .keepalive = f[FIELD_KEEPALIVE],
                             .content_type = f[FIELD_CONTENT_TYPE],
                             .content_encoding = f[FIELD_CONTENT_ENCODING],
                             .idempotency_key = f[FIELD_IDEMPOTENCY],
                             .traceparent = f[FIELD_TRACEPARENT],
                             .body = r->body,
                             .n = r->n,
                             .can_stream = !r->is_1_0};
    if (e2b_call_new(x->server->conf.e2b, &in, &transport, x, &x->e2b, NULL) < 0) {
        exchange_refuse(x, 503, "too many calls at once: retry later");
        return;
    }
    x->state = EXCHANGE_WAITING;
    x->is_fed = true;
    e2b_call_run(x->e2b);
    x->is_fed = false;
}

/* --- uploads ------------------------------------------------------------------------------------
 */

bool exchange_streams(const struct exchange *x, const struct http_request *r)
{
    return endpoint_is_e2b(&x->server->conf.endpoint, r) &&
           e2b_streams_body(verb_of(r->verb), r->path);
}

bool exchange_wants_body(const struct exchange *x)
{
    return x->e2b && e2b_call_wants_body(x->e2b);
}

size_t exchange_feed(struct exchange *x, const void *data, size_t n, bool is_last)
{
    size_t at = 0;
    x->is_fed = true;
    while (at < n && exchange_wants_body(x))
        at += e2b_call_body(x->e2b, (const char *)data + at, n - at);
    if (at == n && is_last && exchange_wants_body(x))
        e2b_call_body_end(x->e2b);
    x->is_fed = false;
    return at;
}
