/* rpc/client_call.c - a call on the client's side: from request to status.
 *
 * Thread:  the channel's loop.
 * Source:  grpc/doc/PROTOCOL-HTTP2.md, grpc/doc/http-grpc-status-mapping.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/call_priv.h"
#include "rpc/channel_priv.h"
#include "rpc/details.h"
#include "rpc/grpc_wire.h"

/* --- the request
 * ------------------------------------------------------------------------------------ */

void client_call_start(struct rpc_call *call, struct rpc_conn *conn)
{
    struct rpc_channel *channel = call->cli.channel;
    char timeout[GW_TIMEOUT_MAX];
    struct nvs nvs;
    nvs.n = 0;
    nvs_add(&nvs, ":method", "POST");
    nvs_add(&nvs, ":scheme", conn->is_tls ? "https" : "http");
    nvs_add(&nvs, ":path", call->path);
    nvs_add(&nvs, ":authority",
            conn->peer.is_unix ? "localhost" : targets_current(&channel->targets)->text);
    nvs_add(&nvs, "te", "trailers");
    nvs_add(&nvs, "content-type", "application/grpc");
    nvs_add(&nvs, "user-agent", "grpc-c-cloche/" CLOCHE_VERSION);
    if (call->cli.gzip) {
        nvs_add(&nvs, "grpc-encoding", "gzip");
        nvs_add(&nvs, "grpc-accept-encoding", "identity,gzip");
    }
    if (call->deadline_ns != 0) {
        uint64_t now = cl_now_ns();
        gw_timeout_write(call->deadline_ns > now ? call->deadline_ns - now : 1, timeout);
        nvs_add_once(&nvs, "grpc-timeout", timeout);
    }
    nvs_add_metadata(&nvs, &call->headers);
    nghttp2_data_provider data = {.source.ptr = call, .read_callback = call_read_out};
    int32_t id = nghttp2_submit_request(conn->session, NULL, nvs.v, nvs.n, &data, call);
    cl_list_unlink(&call->link);
    if (id < 0) { /* stream ids used up, or out of memory */
        struct cl_err err;
        (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "start a call: %s", nghttp2_strerror(id));
        client_call_fail(call, &err);
        return;
    }
    call->stream_id = id;
    call->submitted = true;
    conn_link_call(conn, call);
    conn_kick(conn);
}

/* --- the end
 * ------------------------------------------------------------------------------------------ */

void client_call_fail(struct rpc_call *call, const struct cl_err *why)
{
    struct cl_err err = *why;
    call->status_set = true;
    call_end(call, &err);
    call_bury_if_dead(call);
}

/* Stop the stream and say so to the user from the work queue. */
static void cut(struct rpc_call *call, const struct cl_err *why)
{
    if (call->ended || call->cut)
        return;
    call->why = *why;
    call->cut = call->status_set = call->out_done = true;
    call_drop_input(call);
    call_reset(call, NGHTTP2_CANCEL);
    call_todo(call, CALL_WORK_END);
}

/* The status that the trailers carry, or the best substitute. */
static void read_status(struct rpc_call *call)
{
    size_t n = 0;
    if (call->status >= 0) {
        const char *details = metadata_get(&call->received, "grpc-status-details-bin", &n);
        if (call->status != GRPC_OK)
            details_decode(call->status, call->cli.message, (const uint8_t *)details, n,
                           &call->why);
        return;
    }
    call->status = GRPC_UNKNOWN;
    if (call->cli.http_status == 200) {
        (void)cl_fail(&call->why, CL_E_PEER, 0, "the response has no grpc-status");
        return;
    }
    call->status = gw_status_from_http(call->cli.http_status);
    (void)cl_fail(&call->why, cl_code_from_grpc(call->status), 0, "HTTP status %d",
                  call->cli.http_status);
}

static void tell_eof(struct rpc_call *call)
{
    read_status(call);
    call->status_set = true;
    struct cl_err why = call->why;
    if (!call->out_done || call->out.bytes > 0) /* our half is still open: nobody reads it now */
        call_reset(call, NGHTTP2_NO_ERROR);
    call->out_done = true;
    call_end(call, call->status == GRPC_OK ? NULL : &why);
}

static void tell_message(struct rpc_call *call, const ProtobufCMessage *msg)
{
    call->cli.events.on_message(call, msg, call->cli.arg);
}

static void tell_drain(struct rpc_call *call)
{
    if (call->cli.events.on_drain)
        call->cli.events.on_drain(call, call->cli.arg);
}

static void tell_end(struct rpc_call *call, const struct cl_err *why)
{
    call->cli.channel->n_calls--;
    if (call->cli.events.on_end)
        call->cli.events.on_end(call, why, call->cli.arg);
}

static void expired(struct rpc_call *call)
{
    struct cl_err err;
    (void)cl_fail(&err, CL_E_DEADLINE, 0, "%s: the deadline passed", call->path);
    call->status_set = call->out_done = true;
    call_reset(call, NGHTTP2_CANCEL);
    call_end(call, &err);
}

static const struct call_role call_role = {
    .message = tell_message,
    .drain = tell_drain,
    .end = tell_end,
    .eof = tell_eof,
    .refuse = cut,
    .expired = expired,
};

/* --- the connection's side
 * ------------------------------------------------------------------------ */

static bool is_header(const char *name, size_t n, const char *want)
{
    return strlen(want) == n && memcmp(name, want, n) == 0;
}

static void on_header(struct rpc_call *call, const char *name, size_t name_len, const char *value,
                      size_t n)
{
    struct cl_err err;
    if (call->ended)
        return;
    if (is_header(name, name_len, ":status")) {
        call->cli.http_status = gw_status_read((const uint8_t *)value, n);
    } else if (is_header(name, name_len, "grpc-status")) {
        int status = gw_status_read((const uint8_t *)value, n);
        call->status = status < 0 ? GRPC_UNKNOWN : status;
    } else if (is_header(name, name_len, "grpc-message")) {
        (void)gw_percent_decode((const uint8_t *)value, n, call->cli.message,
                                sizeof call->cli.message);
    } else if (is_header(name, name_len, "grpc-encoding")) {
        call->in_encoding = call_encoding_of(value, n);
    } else if (is_header(name, name_len, "content-type")) {
        call->cli.is_grpc = gw_is_grpc_content_type((const uint8_t *)value, n);
    } else if (name[0] != ':' && !call_store_header(call, name, name_len, value, n, &err)) {
        cut(call, &err);
    }
}

static void on_headers(struct rpc_call *call, bool trailers, bool end_stream)
{
    struct cl_err err;
    if (call->ended)
        return;
    if (!trailers && call->cli.http_status == 200 && !call->cli.is_grpc) {
        (void)cl_fail(&err, CL_E_PEER, 0, "the response is not gRPC");
        cut(call, &err);
        return;
    }
    if (end_stream) {
        call->in_eof = true;
        call_take(call);
    }
}

static void closed(struct rpc_call *call, uint32_t h2_error)
{
    struct cl_err err;
    struct rpc_channel *channel = call->cli.channel;
    if (call->ended) {
        call_bury_if_dead(call);
        return;
    }
    if (call->in_eof ||
        call->cut) { /* paused with messages to hand over; ended by the work queue */
        cl_list_push(&channel->orphans, &call->link);
        return;
    }
    if (h2_error == NGHTTP2_REFUSED_STREAM && !call->cli.sent) {
        channel_wait_again(call);
        return;
    }
    int status = gw_status_from_h2_error(h2_error);
    (void)cl_fail(&err, cl_code_from_grpc(status), 0, "%s: stream reset (HTTP/2 error %u)",
                  call->path, h2_error);
    client_call_fail(call, &err);
}

static void lost(struct rpc_call *call, const struct cl_err *why)
{
    struct cl_err err = *why;
    struct rpc_channel *channel = call->cli.channel;
    if (call->ended) {
        call_bury_if_dead(call);
    } else if (call->in_eof || call->cut) {
        cl_list_push(&channel->orphans, &call->link);
    } else if (!call->cli.sent && channel->state != CHANNEL_CLOSED) {
        channel_wait_again(call);
    } else {
        if (err.code != CL_E_CANCELLED)
            err.code = CL_E_UNAVAILABLE;
        client_call_fail(call, &err);
    }
}

static struct rpc_call *begin(struct rpc_conn *conn, int32_t stream_id)
{
    (void)conn, (void)stream_id; /* servers do not begin calls: push is off */
    return NULL;
}

const struct conn_role client_role = {
    .is_server = false,
    .begin = begin,
    .header = on_header,
    .headers = on_headers,
    .closed = closed,
    .lost = lost,
    .conn_up = channel_conn_up,
    .conn_going = channel_conn_going,
    .conn_gone = channel_conn_gone,
};

/* --- rpc/channel.h and rpc/call.h, the client's part
 * ---------------------------------------------- */

static bool has_own(const struct rpc_call_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->n_metadata; i++)
        if (strcmp(spec->metadata[i].name, name) == 0)
            return true;
    return false;
}

static int copy_metadata(struct rpc_call *call, const struct rpc_call_spec *spec,
                         struct cl_err *err)
{
    struct metadata_pair p;
    for (size_t at = 0; metadata_next(&call->cli.channel->metadata, &at, &p);)
        if (!has_own(spec, p.name) && metadata_copy(&call->headers, p, err) < 0)
            return -1;
    for (size_t i = 0; i < spec->n_metadata; i++) {
        const struct rpc_metadata *m = &spec->metadata[i];
        if (metadata_add_outgoing(&call->headers, m->name, m->value, err) < 0)
            return -1;
    }
    return 0;
}

int client_call_new(struct rpc_channel *channel, const struct rpc_call_spec *spec,
                    const struct rpc_client_events *events, void *arg, struct rpc_call **ret_call,
                    struct cl_err *err)
{
    struct rpc_call *call = cl_zalloc(sizeof *call);
    if (!call)
        return cl_fail(err, CL_E_NOMEM, 0, "call of %s", spec->path);
    call_init(call, &call_role, channel->work);
    call->cli.channel = channel;
    call->cli.events = *events;
    call->cli.arg = arg;
    call->cli.fail_fast = spec->fail_fast;
    call->cli.gzip = call->peer_gzip = spec->gzip;
    call->status = -1;
    call->type_in = spec->out;
    call->deadline_ns = spec->deadline_ns;
    if (spec->max_message > 0)
        call->max_message = spec->max_message;
    call->own_path = cl_strdup(spec->path);
    call->path = call->own_path;
    int rc = call->path ? 0 : cl_fail(err, CL_E_NOMEM, 0, "call of %s", spec->path);
    if (rc < 0 || copy_metadata(call, spec, err) < 0 || call_arm_deadline(call, err) < 0) {
        call_free(call);
        return -1;
    }
    channel->n_calls++;
    *ret_call = call;
    return 0;
}

void rpc_call_close_send(struct rpc_call *call)
{
    CL_ASSERT(call->role == &call_role);
    if (call->out_done || call->ended)
        return;
    call->out_done = true;
    call_resume(call);
}

void rpc_call_cancel(struct rpc_call *call)
{
    struct cl_err err;
    CL_ASSERT(call->role == &call_role);
    (void)cl_fail(&err, CL_E_CANCELLED, 0, "%s: cancelled", call->path);
    cut(call, &err);
}
