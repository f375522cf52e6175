/* rpc/server_call.c - a call on the server's side: from request headers to trailers.
 *
 * Thread:  the server's loop.
 * Source:  grpc/doc/PROTOCOL-HTTP2.md.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "rpc/call_priv.h"
#include "rpc/details.h"
#include "rpc/grpc_wire.h"
#include "rpc/server_priv.h"

enum { DETAILS_MAX = 4096, PATH_MAX_LEN = 255 };

/* --- answers ------------------------------------------------------------------------------------
 */

static const char *status_text(int status)
{
    static const char *const texts[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
    return texts[status >= 0 && (size_t)status < CL_COUNT(texts) ? status : GRPC_UNKNOWN];
}

/* Room for the strings of a trailer block until it is submitted. */
struct trailer_text {
    char message[CL_ERR_TEXT * 3 + 1];
    char details[DETAILS_MAX * 4 / 3 + 8];
};

static void add_trailers(struct rpc_call *call, struct nvs *nvs, struct trailer_text *text)
{
    nvs_add(nvs, "grpc-status", status_text(call->status));
    if (call->status != GRPC_OK) {
        struct cl_buf packed;
        cl_buf_init(&packed, DETAILS_MAX);
        (void)gw_percent_encode(call->why.text, text->message, sizeof text->message);
        nvs_add_once(nvs, "grpc-message", text->message);
        if (!call->srv.bare_status && details_encode(&call->why, &packed, NULL) == 0) {
            (void)gw_base64_encode(packed.data, packed.len, text->details);
            nvs_add_once(nvs, "grpc-status-details-bin", text->details);
        }
        cl_buf_fini(&packed);
    }
    nvs_add_metadata(nvs, &call->trailers);
}

static void add_headers(struct rpc_call *call, struct nvs *nvs)
{
    nvs_add(nvs, ":status", "200");
    nvs_add(nvs, "content-type", "application/grpc");
    if (call->srv.said_encoding)
        nvs_add(nvs, "grpc-accept-encoding", "identity,gzip");
    if (call->out_gzip && call->peer_gzip)
        nvs_add(nvs, "grpc-encoding", "gzip");
    nvs_add_metadata(nvs, &call->headers);
}

static void submit(struct rpc_call *call, const struct nvs *nvs, bool body)
{
    nghttp2_data_provider data = {.source.ptr = call, .read_callback = call_read_out};
    call->submitted = true;
    if (nghttp2_submit_response(call->conn->session, call->stream_id, nvs->v, nvs->n,
                                body ? &data : NULL) != 0)
        call_reset(call, NGHTTP2_INTERNAL_ERROR);
    conn_kick(call->conn);
}

static void send_headers(struct rpc_call *call)
{
    struct nvs nvs = {.n = 0};
    if (call->submitted || !call->conn)
        return;
    add_headers(call, &nvs);
    submit(call, &nvs, true);
}

static void send_trailers(struct rpc_call *call)
{
    struct nvs nvs;
    struct trailer_text text;
    nvs.n = 0;
    add_trailers(call, &nvs, &text);
    if (nghttp2_submit_trailer(call->conn->session, call->stream_id, nvs.v, nvs.n) != 0)
        call_reset(call, NGHTTP2_INTERNAL_ERROR);
}

/* A response without messages is one HEADERS frame. */
static void send_trailers_only(struct rpc_call *call)
{
    struct nvs nvs;
    struct trailer_text text;
    nvs.n = 0;
    add_headers(call, &nvs);
    add_trailers(call, &nvs, &text);
    submit(call, &nvs, false);
}

static void finish_as(struct rpc_call *call, int status, const struct cl_err *err)
{
    if (call->status_set || call->ended || !call->conn)
        return;
    call->status_set = true;
    call->out_done = true;
    call->status = status;
    if (err)
        call->why = *err;
    call->finish_ns = cl_now_ns();
    call_drop_input(call);
    if (!call->submitted && call->out.bytes == 0) {
        send_trailers_only(call);
        return;
    }
    send_headers(call);
    call_resume(call);
}

static void finish(struct rpc_call *call, const struct cl_err *err)
{
    finish_as(call, err ? cl_err_info(err->code)->grpc : GRPC_OK, err);
}

/* Answer what is not gRPC; curl and HTTP test tools see a sensible status. */
static void answer_plain(struct rpc_call *call)
{
    static const char not_post[] = "gRPC wants POST\n", not_grpc[] = "gRPC only\n";
    struct nvs nvs = {.n = 0};
    if (call->submitted || !call->conn)
        return;
    const char *text = call->srv.is_post ? not_grpc : not_post;
    nvs_add(&nvs, ":status", call->srv.is_post ? "415" : "405");
    nvs_add(&nvs, "content-type", "text/plain");
    call->out_done = true;
    call->finish_ns = cl_now_ns();
    int rc = outq_push_raw(&call->out, text, strlen(text), NULL);
    submit(call, &nvs, rc == 0);
}

/* The handler did not choose this end: tell the client now and the handler from the work queue. */
static void cut(struct rpc_call *call, const struct cl_err *why)
{
    if (call->plain_http) {
        answer_plain(call);
        return;
    }
    if (call->status_set)
        return;
    outq_drop_unsent(&call->out);
    finish(call, why);
    call->cut = true;
    call_todo(call, CALL_WORK_END);
}

/* --- the handler's side
 * --------------------------------------------------------------------------- */

static void tell_message(struct rpc_call *call, const ProtobufCMessage *msg)
{
    call->srv.got_one = true;
    call->srv.method->on_message(call, msg, call->srv.service);
}

static void tell_drain(struct rpc_call *call)
{
    if (call->srv.method && call->srv.method->on_drain)
        call->srv.method->on_drain(call, call->srv.service);
}

static void tell_eof(struct rpc_call *call)
{
    struct cl_err err;
    if (call->plain_http) {
        answer_plain(call);
        return;
    }
    if (!call->srv.method)
        return;
    if (!call->in_one) {
        if (call->srv.method->on_half_close)
            call->srv.method->on_half_close(call, call->srv.service);
        return;
    }
    if (call->srv.got_one)
        return;
    (void)cl_fail(&err, CL_E_UNIMPL, 0, "the request message is missing");
    cut(call, &err);
}

static void tell_end(struct rpc_call *call, const struct cl_err *why)
{
    struct rpc_server *server = call->srv.server;
    if (call->srv.started && call->srv.method->on_end)
        call->srv.method->on_end(call, why, call->srv.service);
    if (server->observe && !call->plain_http)
        server->observe(server->observe_arg, call,
                        why ? cl_err_info(why->code)->grpc : call->status,
                        cl_now_ns() - call->start_ns);
    server->n_calls--;
    if (call->srv.method)
        server->n_lasting -= call->srv.method->lasts;
}

static void expired(struct rpc_call *call)
{
    struct cl_err err;
    if (call->status_set) { /* finished in time, but the client does not take it */
        call_reset(call, NGHTTP2_CANCEL);
        return;
    }
    (void)cl_fail(&err, CL_E_DEADLINE, 0, "the deadline passed");
    outq_drop_unsent(&call->out);
    finish(call, &err);
    call->cut = true;
    call_end(call, &err);
}

static const struct call_role call_role = {
    .message = tell_message,
    .drain = tell_drain,
    .end = tell_end,
    .eof = tell_eof,
    .refuse = cut,
    .expired = expired,
    .send_headers = send_headers,
    .send_trailers = send_trailers,
};

/* --- the connection's side
 * ------------------------------------------------------------------------ */

static struct rpc_call *begin(struct rpc_conn *conn, int32_t stream_id)
{
    struct rpc_server *server = conn->owner;
    struct rpc_call *call = cl_zalloc(sizeof *call);
    if (!call)
        return NULL;
    call_init(call, &call_role, server->work);
    call->srv.server = server;
    call->stream_id = stream_id;
    conn_link_call(conn, call);
    server->n_calls++;
    return call;
}

static bool is_header(const char *name, size_t n, const char *want)
{
    return strlen(want) == n && memcmp(name, want, n) == 0;
}

static void find_method(struct rpc_call *call, const char *path, size_t n)
{
    const struct method_entry *e =
        server_find(call->srv.server, path, n, call->conn->peer.listener);
    if (!e) {
        (void)cl_fail(&call->why, CL_E_UNIMPL, 0, "unknown method '%.*s'",
                      (int)CL_MIN(n, (size_t)PATH_MAX_LEN), path);
        return;
    }
    call->srv.method = e->method;
    call->srv.server->n_lasting += e->method->lasts;
    call->srv.service = e->service;
    call->path = e->method->path;
    call->type_in = e->method->in;
    call->in_one = !e->method->client_streams;
    if (e->method->max_message > 0)
        call->max_message = e->method->max_message;
}

static void read_timeout(struct rpc_call *call, const char *value, size_t n)
{
    uint64_t ns;
    if (gw_timeout_read((const uint8_t *)value, n, &ns)) {
        ns = CL_MIN(ns, UINT64_MAX / 4);
        call->deadline_ns = call->start_ns + ns;
        return;
    }
    call->srv.bad_head = true;
    (void)cl_fail(&call->why, CL_E_INVALID, 0, "grpc-timeout '%.*s' is malformed",
                  (int)CL_MIN(n, (size_t)16), value);
}

static void on_header(struct rpc_call *call, const char *name, size_t name_len, const char *value,
                      size_t n)
{
    const uint8_t *bytes = (const uint8_t *)value;
    if (call->srv.started || call->srv.bad_head) /* trailers of a request mean nothing */
        return;
    if (is_header(name, name_len, ":path")) {
        find_method(call, value, n);
    } else if (is_header(name, name_len, ":method")) {
        call->srv.is_post = n == 4 && memcmp(value, "POST", 4) == 0;
    } else if (is_header(name, name_len, "content-type")) {
        call->srv.is_grpc = gw_is_grpc_content_type(bytes, n);
    } else if (is_header(name, name_len, "grpc-timeout")) {
        read_timeout(call, value, n);
    } else if (is_header(name, name_len, "grpc-encoding")) {
        call->in_encoding = call_encoding_of(value, n);
        call->srv.said_encoding = true;
    } else if (is_header(name, name_len, "grpc-accept-encoding")) {
        call->peer_gzip = gw_list_has(bytes, n, "gzip");
    } else if (name[0] != ':' && !is_header(name, name_len, "te") &&
               (name_len < 5 || memcmp(name, "grpc-", 5) != 0)) {
        struct cl_err err;
        if (!call_store_header(call, name, name_len, value, n, &err)) {
            call->srv.bad_head = true;
            call->why = err;
        }
    }
}

static void start(struct rpc_call *call)
{
    struct cl_err err;
    if (call->srv.bad_head || !call->srv.method) {
        err = call->why;
        finish(call, &err);
        return;
    }
    if (call->in_encoding == ENCODING_OTHER) {
        (void)cl_fail(&err, CL_E_UNIMPL, 0, "grpc-encoding is not supported");
        finish(call, &err);
        return;
    }
    if (call_arm_deadline(call, &err) < 0) {
        finish(call, &err);
        return;
    }
    call->srv.started = true;
    if (call->srv.method->on_start)
        call->srv.method->on_start(call, call->srv.service);
}

static void on_headers(struct rpc_call *call, bool trailers, bool end_stream)
{
    if (end_stream)
        call->in_eof = true;
    if (!trailers) {
        call->plain_http = !call->srv.is_post || !call->srv.is_grpc;
        if (!call->plain_http)
            start(call);
    }
    if (end_stream)
        call_take(call);
}

static void closed(struct rpc_call *call, uint32_t h2_error)
{
    struct cl_err err;
    if (call->trailers_sent && !call->cut) {
        call_end(call, NULL);
    } else if (call->cut) {
        err = call->why;
        call_end(call, &err);
    } else {
        (void)cl_fail(&err, CL_E_CANCELLED, 0, "reset by the client (HTTP/2 error %u)", h2_error);
        call_end(call, &err);
    }
    call_bury_if_dead(call);
}

static void lost(struct rpc_call *call, const struct cl_err *why)
{
    struct cl_err err = *why;
    err.code = CL_E_UNAVAILABLE;
    call_end(call, call->trailers_sent && !call->cut ? NULL : &err);
    call_bury_if_dead(call);
}

static void conn_up(struct rpc_conn *conn)
{
    (void)conn;
}

static void conn_going(struct rpc_conn *conn)
{
    (void)conn; /* the client will open no more streams; nothing to do */
}

const struct conn_role server_role = {
    .is_server = true,
    .begin = begin,
    .header = on_header,
    .headers = on_headers,
    .closed = closed,
    .lost = lost,
    .conn_up = conn_up,
    .conn_going = conn_going,
    .conn_gone = server_conn_gone,
};

/* --- rpc/call.h, the server's part
 * ---------------------------------------------------------------- */

void rpc_call_finish(struct rpc_call *call, const struct cl_err *err)
{
    CL_ASSERT(call->role == &call_role);
    finish(call, err);
}

void rpc_call_finish_status(struct rpc_call *call, int grpc_status, const char *text)
{
    struct cl_err err;
    CL_ASSERT(call->role == &call_role);
    (void)cl_fail(&err, cl_code_from_grpc(grpc_status), 0, "%s", text);
    if (!call->status_set)
        call->srv.bare_status = true;
    finish_as(call, grpc_status, &err);
}

void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *msg)
{
    struct cl_err err;
    if (rpc_call_send(call, msg, &err) == 0)
        rpc_call_finish(call, NULL);
    else
        rpc_call_finish(call, &err);
}

int rpc_call_add_header(struct rpc_call *call, const char *name, const char *value,
                        struct cl_err *err)
{
    if (call->submitted)
        return cl_fail(err, CL_E_STATE, 0, "%s: the headers are sent", call->path);
    return metadata_add_outgoing(&call->headers, name, value, err);
}

int rpc_call_add_trailer(struct rpc_call *call, const char *name, const char *value,
                         struct cl_err *err)
{
    if (call->status_set)
        return cl_fail(err, CL_E_STATE, 0, "%s: the call is finished", call->path);
    return metadata_add_outgoing(&call->trailers, name, value, err);
}
