/* tests/integration/rpc/test_service.c - see test_service.h. */
#include "tests/integration/rpc/test_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/integration/rpc/interop.pb-c.h"

enum { RESPONSES_MAX = 4096, BODY_MAX = 8 * 1024 * 1024 };

static uint8_t zeros[BODY_MAX];

/* What a streaming call still has to send. */
struct pending {
    struct {
        int32_t size;
        bool compressed;
    } out[RESPONSES_MAX];
    size_t n, at;
    int64_t received;
    bool half_closed;
    int32_t status;
    char message[256];
};

static bool is_true(const Grpc__Testing__BoolValue *v)
{
    return v && v->value;
}

static size_t body_size(int32_t n)
{
    return n < 0 ? 0 : CL_MIN((size_t)n, (size_t)BODY_MAX);
}

static void echo_metadata(struct rpc_call *call)
{
    const char *initial = rpc_call_metadata(call, "x-grpc-test-echo-initial");
    const char *trailing = rpc_call_metadata(call, "x-grpc-test-echo-trailing-bin");
    if (initial && rpc_call_add_header(call, "x-grpc-test-echo-initial", initial, NULL) < 0)
        (void)fprintf(stderr, "echo of initial metadata failed\n");
    if (trailing && rpc_call_add_trailer(call, "x-grpc-test-echo-trailing-bin", trailing, NULL) < 0)
        (void)fprintf(stderr, "echo of trailing metadata failed\n");
}

static void on_empty(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)msg, (void)service;
    Grpc__Testing__Empty reply;
    grpc__testing__empty__init(&reply);
    rpc_call_reply(call, &reply.base);
}

static bool compression_differs(struct rpc_call *call, const Grpc__Testing__BoolValue *expected)
{
    struct cl_err err;
    if (!expected || expected->value == rpc_call_was_compressed(call))
        return false;
    (void)cl_fail(&err, CL_E_INVALID, 0, "compression is not as expected");
    rpc_call_finish(call, &err);
    return true;
}

static void on_unary(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)service;
    const Grpc__Testing__SimpleRequest *req = (const Grpc__Testing__SimpleRequest *)msg;
    const Grpc__Testing__EchoStatus *status = req->response_status;
    if (compression_differs(call, req->expect_compressed))
        return;
    echo_metadata(call);
    if (status && status->code != 0) {
        rpc_call_finish_status(call, status->code, status->message);
        return;
    }
    Grpc__Testing__Payload payload;
    grpc__testing__payload__init(&payload);
    Grpc__Testing__SimpleResponse reply;
    grpc__testing__simple_response__init(&reply);
    payload.body = (ProtobufCBinaryData){.len = body_size(req->response_size), .data = zeros};
    reply.payload = &payload;
    rpc_call_compress(call, is_true(req->response_compressed));
    rpc_call_reply(call, &reply.base);
}

/* --- streams
 * ---------------------------------------------------------------------------------------- */

static void on_stream_start(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_set_user(call, cl_zalloc(sizeof(struct pending)));
    echo_metadata(call);
    rpc_call_compress(call, true);
}

static void on_stream_end(struct rpc_call *call, const struct cl_err *why, void *service)
{
    (void)why, (void)service;
    cl_free(rpc_call_user(call));
}

static void produce(struct rpc_call *call, struct pending *p)
{
    while (p->at < p->n && !rpc_call_is_full(call)) {
        Grpc__Testing__Payload payload;
        grpc__testing__payload__init(&payload);
        Grpc__Testing__StreamingOutputCallResponse reply;
        grpc__testing__streaming_output_call_response__init(&reply);
        payload.body = (ProtobufCBinaryData){.len = body_size(p->out[p->at].size), .data = zeros};
        reply.payload = &payload;
        rpc_call_compress(call, p->out[p->at].compressed);
        p->at++;
        if (rpc_call_send(call, &reply.base, NULL) < 0)
            return;
    }
    if (p->at == p->n)
        p->at = p->n = 0;
    if (p->status != 0)
        rpc_call_finish_status(call, p->status, p->message);
    else if (p->n == 0 && p->half_closed)
        rpc_call_finish(call, NULL);
}

static void on_output(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)service;
    const Grpc__Testing__StreamingOutputCallRequest *req =
        (const Grpc__Testing__StreamingOutputCallRequest *)msg;
    struct pending *p = rpc_call_user(call);
    for (size_t i = 0; i < req->n_response_parameters && p->n < RESPONSES_MAX; i++, p->n++) {
        p->out[p->n].size = req->response_parameters[i]->size;
        p->out[p->n].compressed = is_true(req->response_parameters[i]->compressed);
    }
    if (req->response_status && req->response_status->code != 0) {
        p->status = req->response_status->code;
        (void)snprintf(p->message, sizeof p->message, "%s", req->response_status->message);
    }
    produce(call, p);
}

static void on_output_only(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    struct pending *p = rpc_call_user(call);
    p->half_closed = true;
    on_output(call, msg, service);
}

static void on_stream_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    struct pending *p = rpc_call_user(call);
    p->half_closed = true;
    produce(call, p);
}

static void on_stream_drain(struct rpc_call *call, void *service)
{
    (void)service;
    produce(call, rpc_call_user(call));
}

static void on_input(struct rpc_call *call, const ProtobufCMessage *msg, void *service)
{
    (void)service;
    const Grpc__Testing__StreamingInputCallRequest *req =
        (const Grpc__Testing__StreamingInputCallRequest *)msg;
    struct pending *p = rpc_call_user(call);
    if (compression_differs(call, req->expect_compressed))
        return;
    p->received += req->payload ? (int64_t)req->payload->body.len : 0;
}

static void on_input_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    struct pending *p = rpc_call_user(call);
    Grpc__Testing__StreamingInputCallResponse reply;
    grpc__testing__streaming_input_call_response__init(&reply);
    reply.aggregated_payload_size = (int32_t)p->received;
    rpc_call_reply(call, &reply.base);
}

static const struct rpc_method methods[] = {
    {
        .path = "/grpc.testing.TestService/EmptyCall",
        .in = &grpc__testing__empty__descriptor,
        .out = &grpc__testing__empty__descriptor,
        .on_message = on_empty,
    },
    {
        .path = "/grpc.testing.TestService/UnaryCall",
        .in = &grpc__testing__simple_request__descriptor,
        .out = &grpc__testing__simple_response__descriptor,
        .on_message = on_unary,
    },
    {
        .path = "/grpc.testing.TestService/StreamingOutputCall",
        .in = &grpc__testing__streaming_output_call_request__descriptor,
        .out = &grpc__testing__streaming_output_call_response__descriptor,
        .server_streams = true,
        .on_start = on_stream_start,
        .on_message = on_output_only,
        .on_drain = on_stream_drain,
        .on_end = on_stream_end,
    },
    {
        .path = "/grpc.testing.TestService/StreamingInputCall",
        .in = &grpc__testing__streaming_input_call_request__descriptor,
        .out = &grpc__testing__streaming_input_call_response__descriptor,
        .client_streams = true,
        .on_start = on_stream_start,
        .on_message = on_input,
        .on_half_close = on_input_half_close,
        .on_end = on_stream_end,
    },
    {
        .path = "/grpc.testing.TestService/FullDuplexCall",
        .in = &grpc__testing__streaming_output_call_request__descriptor,
        .out = &grpc__testing__streaming_output_call_response__descriptor,
        .client_streams = true,
        .server_streams = true,
        .on_start = on_stream_start,
        .on_message = on_output,
        .on_half_close = on_stream_half_close,
        .on_drain = on_stream_drain,
        .on_end = on_stream_end,
    },
};

int test_service_add(struct rpc_server *server, struct cl_err *err)
{
    return rpc_server_add(server, methods, CL_COUNT(methods), NULL, -1, err);
}
