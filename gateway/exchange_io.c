/* gateway/exchange_io.c - one request and its answer, whatever carries them; see
 * gateway/http_priv.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http_priv.h"
#include "mcp/message.h"

/* A call that takes longer is answered as a stream, which the client can close to cancel it and
 * which keeps proxies awake. */
#define STREAM_AFTER_NS (1500 * CL_NS_PER_MS)
#define KEEP_ALIVE_NS (15 * CL_NS_PER_S)

#define PIECE(text) ((struct iovec){(void *)(uintptr_t)(text), strlen(text)})

/* --- saying it --------------------------------------------------------------------------------
 */

static void count(struct exchange *x, int status)
{
    char text[8];
    (void)snprintf(text, sizeof text, "%d", status);
    metrics_add(x->server->conf.metrics, METRIC_HTTP_RESPONSES, text, NULL, 1);
}

static void be_idle(struct exchange *x)
{
    x->call = NULL;
    x->e2b = NULL;
    x->web = NULL;
    x->origin = NULL;
    x->state = EXCHANGE_IDLE;
    cl_timer_stop(&x->timer);
}

void exchange_answer(struct exchange *x, const struct answer *a)
{
    struct answer said = *a;
    said.origin = x->origin;
    be_idle(x);
    count(x, a->status);
    x->wire->answer(x, &said);
}

static void begin_stream(struct exchange *x)
{
    x->state = EXCHANGE_STREAMING;
    count(x, 200);
    x->wire->begin_stream(x, "text/event-stream");
    cl_timer_start(&x->timer, KEEP_ALIVE_NS);
}

void exchange_begin_raw(struct exchange *x, const char *type)
{
    count(x, 200);
    x->wire->begin_stream(x, type);
}

void exchange_end_raw(struct exchange *x)
{
    be_idle(x);
    x->wire->end_stream(x);
}

static void event(struct exchange *x, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    if (!text)
        return;
    struct iovec pieces[] = {PIECE("event: message\ndata: "), PIECE(text), PIECE("\n\n")};
    x->wire->send(x, pieces, CL_COUNT(pieces));
    free(text);
}

void exchange_refuse(struct exchange *x, int status, const char *text)
{
    char json[512];
    int n = snprintf(json, sizeof json,
                     "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":%d,\"message\":\"%s\"}}",
                     status < 500 ? MCP_E_REQUEST : MCP_E_INTERNAL, text);
    exchange_answer(
        x, &(struct answer){
               .status = status, .type = "application/json", .data = json, .n = (size_t)n});
}

void exchange_cut_raw(struct exchange *x)
{
    be_idle(x);
    x->wire->cut_stream(x);
}

/* --- answers of MCP -----------------------------------------------------------------------------
 */

static void on_reply(void *arg, const struct mcp_reply *reply)
{
    struct exchange *x = arg;
    if (x->state == EXCHANGE_STREAMING) {
        if (reply->body)
            event(x, reply->body);
        be_idle(x);
        x->wire->end_stream(x);
        return;
    }
    char *text = reply->body ? json_dumps(reply->body, JSON_COMPACT) : NULL;
    exchange_answer(x, &(struct answer){.status = reply->http,
                                        .type = text ? "application/json" : NULL,
                                        .data = text ? text : "",
                                        .n = text ? strlen(text) : 0,
                                        .session = reply->session,
                                        .authenticate = reply->authenticate});
    free(text);
}

static void on_notify(void *arg, const json_t *message)
{
    struct exchange *x = arg;
    if (x->state == EXCHANGE_WAITING && x->takes_stream)
        begin_stream(x);
    if (x->state == EXCHANGE_STREAMING && x->wire->waiting(x) < HTTP_STREAM_QUEUE)
        event(x, message);
}

static void on_timer(void *arg)
{
    struct exchange *x = arg;
    struct iovec comment = PIECE(":\r\n");
    switch (x->state) {
    case EXCHANGE_WAITING:
        if (x->takes_stream)
            begin_stream(x);
        break;
    case EXCHANGE_STREAMING:
        if (x->wire->waiting(x) < HTTP_STREAM_QUEUE)
            x->wire->send(x, &comment, 1);
        cl_timer_start(&x->timer, KEEP_ALIVE_NS);
        break;
    case EXCHANGE_IDLE:
        break;
    }
}

/* --- the request --------------------------------------------------------------------------------
 */

static const struct mcp_transport transport = {on_reply, on_notify};

static void begin_call(struct exchange *x, const struct http_request *r)
{
    struct cl_err err = {0};
    const char *credential = r->fields[FIELD_AUTHORIZATION];
    x->headers = endpoint_headers(r);
    struct mcp_incoming in = {.text = r->body ? r->body : "",
                              .n = r->n,
                              .credential = credential,
                              .headers = &x->headers,
                              .ends_session = r->verb == VERB_DELETE};
    in.http_refusal = endpoint_check_types(r, &in.http_text);
    if (credential && strlen(credential) > MCP_CREDENTIAL_MAX) {
        exchange_refuse(x, 431, "the Authorization header is too long");
        return;
    }
    if (mcp_call_new(x->server->conf.mcp, &in, &transport, x, &x->call, &err) < 0) {
        exchange_refuse(x, 503, "too many calls at once: retry later");
        return;
    }
    x->state = EXCHANGE_WAITING;
    x->takes_stream = endpoint_takes_stream(r);
    cl_timer_start(&x->timer, STREAM_AFTER_NS);
    mcp_call_run(x->call);
}

void exchange_take(struct exchange *x, const struct http_request *r)
{
    const struct http_conf *conf = &x->server->conf;
    const char *text;
    int status = endpoint_check(&conf->endpoint, r, &text);
    x->origin = endpoint_reader(&conf->endpoint, r);
    if (status)
        exchange_refuse(x, status, text);
    else if (endpoint_is_preflight(r))
        exchange_answer(x, &(struct answer){.status = 204,
                                            .data = "",
                                            .is_preflight = true,
                                            .may_send = endpoint_asked_fields(r)});
    else if (endpoint_is_metadata(&conf->endpoint, r))
        exchange_answer(x, &(struct answer){.status = 200,
                                            .type = "application/json",
                                            .data = conf->metadata,
                                            .n = strlen(conf->metadata)});
    else if (endpoint_is_e2b(&conf->endpoint, r))
        exchange_take_e2b(x, r);
    else if (endpoint_is_web(&conf->endpoint, r))
        exchange_take_web(x, r);
    else
        begin_call(x, r);
}

/* --- life ---------------------------------------------------------------------------------------
 */

int exchange_init(struct exchange *x, struct http_server *s, const struct exchange_wire *wire,
                  struct cl_err *err)
{
    *x = (struct exchange){.server = s, .wire = wire};
    return cl_timer_init(&x->timer, s->conf.loop, on_timer, x, err);
}

void exchange_leave(struct exchange *x)
{
    struct mcp_call *call = x->call;
    struct e2b_call *e2b = x->e2b;
    struct web_call *web = x->web;
    be_idle(x);
    if (call)
        mcp_call_leave(call);
    if (e2b)
        e2b_call_leave(e2b);
    if (web)
        web_call_leave(web);
}

void exchange_fini(struct exchange *x)
{
    cl_timer_fini(&x->timer);
}
