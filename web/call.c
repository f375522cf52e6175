/* web/call.c - see web/server.h.
 *
 *   NEW --method, credential, body--> ASKED --the scheduler's end--> DEAD
 *                                       | first message of a stream
 *                                       v
 *                                    STREAMING --its end--> DEAD
 *
 * The client leaves: DEAD, from any of them, and the gRPC call is cancelled.  A call that has ended
 * is not touched: what says so below is the last of its caller.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "observability/traceparent.h"
#include "proto/unpack.h"
#include "rpc/grpc_wire.h"
#include "web/codec.h"
#include "web/connect.h"
#include "web/grpcweb.h"
#include "web/methods.h"
#include "web/page.h"
#include "web/server.h"

#define LOOK_NS (20 * CL_NS_PER_MS) /* how soon a reader that was slow is noticed */
enum { ANSWER_MAX = 3 * RPC_MESSAGE_MAX /* JSON of one message: base64, quotes, escapes */ };

struct web_server {
    struct web_server_conf conf;
    struct cl_list calls;
    size_t n_calls;
};

struct web_call {
    struct web_server *server; /* borrowed, until it is dead */
    struct cl_loop *loop;      /* borrowed */
    struct cl_list link;
    struct cl_grave grave;
    const struct web_transport *transport;
    void *arg;
    struct web_request in;
    struct web_method method;
    struct web_form form;
    struct cl_buf plain;  /* the request's body, where it was in base64 */
    struct rpc_call *rpc; /* the channel's; NULL = none is open */
    bool is_paused;       /* not read until the client has */
    bool is_streaming;
    bool is_answered;  /* in one piece: it is in `out` */
    struct cl_err bad; /* why it cannot be said */
    struct cl_buf out;
    struct cl_timer timer; /* looks whether it can be read on */
};

/* --- birth and death ----------------------------------------------------------------------------
 */

static void destroy(void *obj)
{
    struct web_call *c = obj;
    cl_timer_fini(&c->timer);
    cl_buf_fini(&c->out);
    cl_buf_fini(&c->plain);
    cl_free(c);
}

/* Once its gRPC call is no more. */
static void bury(struct web_call *c)
{
    cl_loop_bury(c->loop, &c->grave, destroy, c);
}

static void die(struct web_call *c)
{
    c->transport = NULL;
    cl_timer_stop(&c->timer);
    cl_list_unlink(&c->link);
    c->server->n_calls--;
    if (c->rpc)
        rpc_call_cancel(c->rpc); /* its end buries */
    else
        bury(c);
}

void web_call_leave(struct web_call *c)
{
    die(c);
}

static void on_timer(void *arg)
{
    struct web_call *c = arg;
    c->is_paused = c->transport->waiting(c->arg) >= WEB_OUT_HIGH / 2;
    if (c->is_paused)
        cl_timer_start(&c->timer, LOOK_NS);
    else
        rpc_call_pause(c->rpc, false);
}

int web_call_new(struct web_server *s, const struct web_request *in,
                 const struct web_transport *transport, void *arg, struct web_call **ret_call,
                 struct cl_err *err)
{
    if (s->n_calls >= WEB_CALLS_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d calls at once", WEB_CALLS_MAX);
    struct web_call *c = cl_zalloc(sizeof *c);
    if (!c || cl_timer_init(&c->timer, s->conf.loop, on_timer, c, err) < 0) {
        cl_free(c);
        return cl_fail(err, CL_E_NOMEM, 0, "call");
    }
    cl_buf_init(&c->out, ANSWER_MAX);
    cl_buf_init(&c->plain, in->n);
    c->server = s;
    c->loop = s->conf.loop;
    c->transport = transport;
    c->arg = arg;
    c->in = *in;
    cl_list_push(&s->calls, &c->link);
    s->n_calls++;
    *ret_call = c;
    return 0;
}

/* --- answers: each ends the call ----------------------------------------------------------------
 */

static void reply(struct web_call *c, const struct web_reply *what)
{
    const struct web_transport *transport = c->transport;
    void *arg = c->arg;
    die(c);
    transport->reply(arg, what);
}

static void reply_bytes(struct web_call *c, int status, const char *type)
{
    reply(c,
          &(struct web_reply){
              .status = status, .type = type, .data = (const char *)c->out.data, .n = c->out.len});
}

static void reply_error(struct web_call *c, int status, const struct cl_err *err)
{
    json_t *body = connect_error(err);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    reply(c, &(struct web_reply){.status = status,
                                 .type = "application/json",
                                 .data = text ? text : "",
                                 .n = text ? strlen(text) : 0});
    free(text);
}

/* The protocol's envelopes are a stream, also around one answer. */
static bool is_in_pieces(const struct web_call *c)
{
    return c->method.streams || web_codec_is_enveloped(c->form.codec);
}

/* What is in `out`, in the form that was asked for; false without memory. */
static bool send_out(struct web_call *c, const struct web_transport *transport, void *arg)
{
    struct cl_buf text;
    if (!c->form.in_text) {
        transport->send(arg, c->out.data, c->out.len);
        return true;
    }
    cl_buf_init(&text, ANSWER_MAX);
    bool is_written = grpcweb_text_write(c->out.data, c->out.len, &text, NULL) == 0;
    if (is_written)
        transport->send(arg, text.data, text.len);
    cl_buf_fini(&text);
    return is_written;
}

/* The end of a stream that has begun. */
static void end_stream(struct web_call *c, const struct cl_err *err)
{
    const struct web_transport *transport = c->transport;
    void *arg = c->arg;
    bool is_whole = web_codec_end(c->form.codec, err, &c->out, NULL) == 0;
    if (is_whole && c->out.len > 0)
        is_whole = send_out(c, transport, arg);
    die(c);
    if (is_whole)
        transport->end(arg);
    else
        transport->cut(arg);
}

static void begin_stream(struct web_call *c)
{
    c->is_streaming = true;
    c->transport->begin(c->arg, c->form.codec == WEB_JSON ? "application/x-ndjson" : c->form.type);
}

static void fail(struct web_call *c, const struct cl_err *err)
{
    if (!c->is_streaming && !web_codec_is_enveloped(c->form.codec)) {
        reply_error(c, connect_http(err->code), err);
        return;
    }
    if (!c->is_streaming)
        begin_stream(c);
    cl_buf_clear(&c->out);
    end_stream(c, err);
}

/* --- what the scheduler says --------------------------------------------------------------------
 */

static void send_one(struct web_call *c, const ProtobufCMessage *msg)
{
    if (!c->is_streaming)
        begin_stream(c);
    cl_buf_clear(&c->out);
    if (web_codec_write(c->form.codec, msg, true, &c->out, &c->bad) < 0) {
        rpc_call_cancel(c->rpc);
        return;
    }
    if (!send_out(c, c->transport, c->arg)) {
        (void)cl_fail(&c->bad, CL_E_NOMEM, 0, "answer");
        rpc_call_cancel(c->rpc);
        return;
    }
    cl_buf_clear(&c->out);
    if (c->is_paused || c->transport->waiting(c->arg) < WEB_OUT_HIGH)
        return;
    c->is_paused = true;
    rpc_call_pause(c->rpc, true);
    cl_timer_start(&c->timer, LOOK_NS);
}

static void on_message(struct rpc_call *rpc, const ProtobufCMessage *msg, void *arg)
{
    struct web_call *c = arg;
    if (!c->transport || c->bad.code)
        return;
    if (is_in_pieces(c))
        send_one(c, msg);
    else if (!c->is_answered && web_codec_write(c->form.codec, msg, false, &c->out, &c->bad) < 0)
        rpc_call_cancel(rpc);
    c->is_answered = true;
}

static void on_end(struct rpc_call *rpc, const struct cl_err *status, void *arg)
{
    struct web_call *c = arg;
    (void)rpc;
    c->rpc = NULL;
    if (!c->transport) {
        bury(c);
        return;
    }
    const struct cl_err *why = c->bad.code ? &c->bad : status;
    if (!why && !c->method.streams && !c->is_answered) {
        (void)cl_fail(&c->bad, CL_E_PEER, 0, "%s: no answer", c->in.path);
        why = &c->bad;
    }
    if (why) {
        fail(c, why);
    } else if (!is_in_pieces(c)) {
        reply_bytes(c, 200, c->form.type);
    } else {
        if (!c->is_streaming)
            begin_stream(c);
        end_stream(c, NULL);
    }
}

/* --- what is asked ------------------------------------------------------------------------------
 */

/* Without a credential the scheduler would judge us, not the caller. */
static int check_credential(const struct web_call *c, struct cl_err *err)
{
    const char *bearer = c->in.authorization;
    if (!bearer || strncasecmp(bearer, "Bearer ", 7) != 0 || !bearer[7])
        return cl_fail(err, CL_E_UNAUTH, 0,
                       "no credential: send `Authorization: Bearer KEY` (`cloche key create "
                       "TENANT` makes one)");
    size_t n = 0;
    CL_LIST_FOREACH (it, &c->server->calls) {
        const char *other = CL_LIST_ENTRY(it, struct web_call, link)->in.authorization;
        n += other && strcmp(other, bearer) == 0;
    }
    if (n > WEB_CALLS_OF_KEY)
        return cl_fail(err, CL_E_QUEUE, 0, "more than %d calls of one key at once: retry later",
                       WEB_CALLS_OF_KEY);
    return 0;
}

/* Connect: digits, at most ten of them; gRPC: with a unit. */
static int read_timeout(const struct web_call *c, uint64_t *ret_ns, struct cl_err *err)
{
    const char *grpc = web_codec_is_grpc(c->form.codec) ? c->in.grpc_timeout : NULL,
               *ms = web_codec_is_grpc(c->form.codec) ? NULL : c->in.connect_timeout;
    uint64_t longest_ns = (c->method.streams ? WEB_STREAM_S : WEB_ANSWER_S) * CL_NS_PER_S;
    uint64_t asked_ns = longest_ns;
    size_t n = ms ? strlen(ms) : 0;
    if (ms && (n == 0 || n > 10 || strspn(ms, "0123456789") != n))
        return cl_fail(err, CL_E_INVALID, 0, "Connect-Timeout-Ms is no number of ten digits");
    if (grpc && !gw_timeout_read((const uint8_t *)grpc, strlen(grpc), &asked_ns))
        return cl_fail(err, CL_E_INVALID, 0, "grpc-timeout is not as in 100m or 2S");
    if (ms)
        asked_ns = strtoull(ms, NULL, 10) * CL_NS_PER_MS;
    *ret_ns = CL_MIN(asked_ns, (uint64_t)WEB_STREAM_S * CL_NS_PER_S);
    return 0;
}

static int open_rpc(struct web_call *c, struct cl_err *err)
{
    static const struct rpc_client_events events = {on_message, NULL, on_end};
    char trace[TRACEPARENT_TEXT];
    bool is_traced = traceparent_read(c->in.traceparent, trace);
    struct rpc_metadata pairs[] = {{"authorization", c->in.authorization}, {"traceparent", trace}};
    uint64_t ns = 0;
    if (read_timeout(c, &ns, err) < 0)
        return -1;
    struct rpc_call_spec spec = {.path = c->in.path,
                                 .out = c->method.out,
                                 .deadline_ns = cl_now_ns() + ns,
                                 .fail_fast = true,
                                 .metadata = pairs,
                                 .n_metadata = is_traced ? 2 : 1};
    return rpc_channel_call(rpc_pool_pick(c->server->conf.pool), &spec, &events, c, &c->rpc, err);
}

typedef int each_fn(struct web_call *c, const ProtobufCMessage *msg, struct cl_err *err);

static int none(struct web_call *c, const ProtobufCMessage *msg, struct cl_err *err)
{
    (void)c, (void)msg, (void)err;
    return 0;
}

static int send_it(struct web_call *c, const ProtobufCMessage *msg, struct cl_err *err)
{
    return rpc_call_send(c->rpc, msg, err);
}

static int with_one(struct web_call *c, const struct web_body *one, each_fn *each,
                    struct cl_err *err)
{
    struct cl_arena *arena = NULL;
    const ProtobufCMessage *msg = NULL;
    if (cl_arena_new((size_t)PB_ARENA_FACTOR * RPC_MESSAGE_MAX, &arena, err) < 0)
        return -1;
    int rc = web_codec_read(one, c->method.in, arena, &msg, err);
    if (rc == 0)
        rc = each(c, msg, err);
    cl_arena_free(arena);
    return rc;
}

static int with_each(struct web_call *c, each_fn *each, struct cl_err *err)
{
    struct web_body rest = {c->form.codec, c->in.body ? c->in.body : "", c->in.n}, one;
    size_t n = 0;
    int more;
    while ((more = web_body_next(&rest, c->method.takes_many, &one, err)) > 0) {
        if (++n > WEB_MESSAGES_MAX)
            return cl_fail(err, CL_E_TOOBIG, 0, "more than %d messages in one request",
                           WEB_MESSAGES_MAX);
        if (with_one(c, &one, each, err) < 0)
            return n > 1 ? cl_wrap(err, "message %zu", n) : -1;
    }
    if (more == 0 && n != 1 && !c->method.takes_many)
        return cl_fail(err, CL_E_INVALID, 0, "%zu messages: the method takes one", n);
    return more;
}

static int read_text(struct web_call *c, struct cl_err *err)
{
    if (grpcweb_text_read(c->in.body ? c->in.body : "", c->in.n, &c->plain, err) < 0)
        return -1;
    c->in.body = (const char *)c->plain.data;
    c->in.n = c->plain.len;
    return 0;
}

/* All of it is read before any of it is sent: what is wrong further down changes nothing. */
static int send_request(struct web_call *c, struct cl_err *err)
{
    if (with_each(c, none, err) < 0 || open_rpc(c, err) < 0 || with_each(c, send_it, err) < 0)
        return -1;
    rpc_call_close_send(c->rpc);
    return 0;
}

static int ask(struct web_call *c, struct cl_err *err)
{
    const char *encoding = c->in.content_encoding;
    if (check_credential(c, err) < 0)
        return -1;
    if (encoding && strcasecmp(encoding, "identity") != 0)
        return cl_fail(err, CL_E_UNIMPL, 0, "Content-Encoding %.40s: send it plain", encoding);
    if (is_in_pieces(c) && !c->in.can_stream)
        return cl_fail(err, CL_E_INVALID, 0, "HTTP/1.0 has no streams: use HTTP/1.1");
    return c->form.in_text && read_text(c, err) < 0 ? -1 : send_request(c, err);
}

static void run_method(struct web_call *c)
{
    struct cl_err err = {0};
    int rc = web_method_find(c->in.path, &c->method, &err);
    bool is_stream = c->method.takes_many || c->method.streams;
    if (rc < 0) {
        fail(c, &err);
    } else if (!c->in.is_post) {
        (void)cl_fail(&err, CL_E_UNIMPL, 0, "POST a message");
        reply_error(c, 405, &err);
    } else if (!web_codec_find(c->in.content_type, is_stream, &c->form)) {
        c->form = (struct web_form){.codec = WEB_JSON};
        (void)cl_fail(&err, CL_E_INVALID, 0, "Content-Type must be %s, or gRPC-Web's",
                      is_stream ? "application/json (a message a line), application/connect+json, "
                                  "application/connect+proto"
                                : "application/json, application/proto");
        reply_error(c, 415, &err);
    } else if (ask(c, &err) < 0) {
        fail(c, &err);
    }
}

static void run_page(struct web_call *c, const struct web_page *page)
{
    if (c->in.is_get)
        reply(c, &(struct web_reply){.status = 200,
                                     .type = page->type,
                                     .data = (const char *)page->data,
                                     .n = page->n,
                                     .is_page = true});
    else
        reply(c, &(struct web_reply){
                     .status = 405, .type = "text/plain", .data = "only GET\n", .n = 9});
}

static void run_config(struct web_call *c)
{
    char json[WEB_CONFIG_MAX];
    web_page_config(c->server->conf.ports, json);
    run_page(c, &(struct web_page){"application/json", (const uint8_t *)json, strlen(json)});
}

void web_call_run(struct web_call *c)
{
    struct web_page page;
    if (web_page_find(c->in.path, &page))
        run_page(c, &page);
    else if (strcmp(c->in.path, WEB_PAGE_CONFIG) == 0)
        run_config(c);
    else
        run_method(c);
}

/* --- the server ---------------------------------------------------------------------------------
 */

bool web_serves(const char *path)
{
    struct web_page ignored;
    return web_method_serves(path) || web_page_find(path, &ignored) ||
           strcmp(path, WEB_PAGE_CONFIG) == 0;
}

int web_server_new(const struct web_server_conf *conf, struct web_server **ret_server,
                   struct cl_err *err)
{
    struct web_server *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP's calls");
    s->conf = *conf;
    cl_list_init(&s->calls);
    *ret_server = s;
    return 0;
}

void web_server_free(struct web_server *s)
{
    if (!s)
        return;
    CL_LIST_FOREACH (it, &s->calls)
        die(CL_LIST_ENTRY(it, struct web_call, link));
    cl_free(s);
}

size_t web_server_calls(const struct web_server *s)
{
    return s->n_calls;
}
