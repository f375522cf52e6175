/* agent/gate.c - see agent/gate.h.  Protocol: proto/cloche/v1/guest.proto, opening comment. */
#include "agent/gate.h"

#include <inttypes.h>
#include <string.h>

void gate_init(struct gate *gate)
{
    memset(gate, 0, sizeof *gate);
}

struct gate_stream *gate_find(struct gate *gate, uint64_t id)
{
    for (size_t i = 0; i < CL_COUNT(gate->streams); i++)
        if (gate->streams[i].kind != GATE_FREE && gate->streams[i].id == id)
            return &gate->streams[i];
    return NULL;
}

void gate_close(struct gate *gate, uint64_t id)
{
    struct gate_stream *stream = gate_find(gate, id);
    if (stream)
        memset(stream, 0, sizeof *stream);
}

static enum gate_kind kind_of(enum gate_action action)
{
    if (action == GATE_EXEC)
        return GATE_KIND_EXEC;
    if (action == GATE_FILE)
        return GATE_KIND_FILE;
    return action == GATE_DIAL ? GATE_KIND_DIAL : GATE_KIND_CODE;
}

/* `action` is what to do with the frame that opens a stream. */
static int open_stream(struct gate *gate, uint64_t id, enum gate_action action,
                       enum gate_action *ret_action, struct cl_err *err)
{
    if (!gate->identified)
        return cl_fail(err, CL_E_PEER, 0, "stream %" PRIu64 " before the identity", id);
    if (id <= gate->last_id)
        return cl_fail(err, CL_E_PEER, 0, "stream %" PRIu64 " after %" PRIu64, id, gate->last_id);
    gate->last_id = id;
    for (size_t i = 0; i < CL_COUNT(gate->streams); i++) {
        if (gate->streams[i].kind != GATE_FREE)
            continue;
        gate->streams[i] = (struct gate_stream){
            .id = id,
            .kind = kind_of(action),
            .send_credit = GUEST_WINDOW_INITIAL,
            .recv_credit = GUEST_WINDOW_INITIAL,
        };
        *ret_action = action;
        return 0;
    }
    *ret_action = GATE_BUSY;
    return 0;
}

static Cloche__V1__GuestChannel channel_of(enum gate_kind kind)
{
    if (kind == GATE_KIND_EXEC)
        return CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDIN;
    return kind == GATE_KIND_DIAL ? CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_SOCKET
                                  : CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_FILE;
}

static int take_data(struct gate_stream *stream, const Cloche__V1__GuestData *data,
                     enum gate_action *ret_action, struct cl_err *err)
{
    if (stream->kind == GATE_KIND_CODE)
        return cl_fail(err, CL_E_PEER, 0, "data for a code context");
    if (data->channel != channel_of(stream->kind))
        return cl_fail(err, CL_E_PEER, 0, "data on channel %d", (int)data->channel);
    if (stream->recv_eof)
        return cl_fail(err, CL_E_PEER, 0, "data after eof");
    if (data->bytes.len > GUEST_DATA_MAX || data->bytes.len > stream->recv_credit)
        return cl_fail(err, CL_E_PEER, 0, "%zu bytes of data, credit for %" PRIu32, data->bytes.len,
                       stream->recv_credit);
    stream->recv_credit -= (uint32_t)data->bytes.len;
    stream->recv_eof = data->eof;
    *ret_action = GATE_DATA;
    return 0;
}

static int add_credit(struct gate_stream *stream, uint32_t bytes, enum gate_action *ret_action,
                      struct cl_err *err)
{
    if (bytes > GATE_CREDIT_MAX - stream->send_credit)
        return cl_fail(err, CL_E_PEER, 0, "credit over %d bytes", GATE_CREDIT_MAX);
    stream->send_credit += bytes;
    *ret_action = GATE_CREDIT;
    return 0;
}

/* A frame for a stream that was opened before. */
static int admit_on_stream(struct gate *gate, const Cloche__V1__GuestFrame *frame,
                           enum gate_action *ret_action, struct cl_err *err)
{
    if (frame->stream == 0 || frame->stream > gate->last_id)
        return cl_fail(err, CL_E_PEER, 0, "no stream %" PRIu64 " was opened", frame->stream);
    struct gate_stream *stream = gate_find(gate, frame->stream);
    *ret_action = GATE_IGNORE;
    if (!stream)
        return 0;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA)
        return take_data(stream, frame->data, ret_action, err);
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_WINDOW)
        return add_credit(stream, frame->window->bytes, ret_action, err);
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_RESET) {
        gate_close(gate, frame->stream);
        *ret_action = GATE_RESET;
        return 0;
    }
    if (stream->kind != GATE_KIND_EXEC)
        return cl_fail(err, CL_E_PEER, 0, "a signal or resize on a stream that is no exec");
    *ret_action =
        frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_SIGNAL ? GATE_SIGNAL : GATE_RESIZE;
    return 0;
}

static int admit_on_connection(const Cloche__V1__GuestFrame *frame, enum gate_action action,
                               enum gate_action *ret_action, struct cl_err *err)
{
    if (frame->stream != 0)
        return cl_fail(err, CL_E_PEER, 0, "body %d on stream %" PRIu64 ", want 0",
                       (int)frame->body_case, frame->stream);
    *ret_action = action;
    return 0;
}

static int admit_hold(struct gate *gate, const Cloche__V1__GuestFrame *frame, bool hold,
                      enum gate_action *ret_action, struct cl_err *err)
{
    if (gate->held == hold)
        return cl_fail(err, CL_E_PEER, 0, hold ? "a second hold" : "a release without a hold");
    gate->held = hold;
    return admit_on_connection(frame, hold ? GATE_HOLD : GATE_RELEASE, ret_action, err);
}

int gate_admit(struct gate *gate, const Cloche__V1__GuestFrame *frame, enum gate_action *ret_action,
               struct cl_err *err)
{
    if (gate->held && frame->body_case != CLOCHE__V1__GUEST_FRAME__BODY_RELEASE)
        return cl_fail(err, CL_E_PEER, 0, "body %d before the release", (int)frame->body_case);
    switch (frame->body_case) {
    case CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY:
        return admit_on_connection(frame, GATE_IDENTITY, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_HOLD:
        return admit_hold(gate, frame, true, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_RELEASE:
        return admit_hold(gate, frame, false, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_STATS_REQUEST:
        return admit_on_connection(frame, GATE_STATS, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_PING:
        return admit_on_connection(frame, GATE_PING, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_CLOCK:
        return admit_on_connection(frame, GATE_CLOCK, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC:
        return open_stream(gate, frame->stream, GATE_EXEC, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_FILE_OP:
        return open_stream(gate, frame->stream, GATE_FILE, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_OP:
        return open_stream(gate, frame->stream, GATE_CONTEXT, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL:
        return open_stream(gate, frame->stream, GATE_CELL, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_DIAL:
        return open_stream(gate, frame->stream, GATE_DIAL, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY_DATA:
    case CLOCHE__V1__GUEST_FRAME__BODY_WINDOW:
    case CLOCHE__V1__GUEST_FRAME__BODY_SIGNAL:
    case CLOCHE__V1__GUEST_FRAME__BODY_RESIZE:
    case CLOCHE__V1__GUEST_FRAME__BODY_RESET:
        return admit_on_stream(gate, frame, ret_action, err);
    case CLOCHE__V1__GUEST_FRAME__BODY__NOT_SET:
    case CLOCHE__V1__GUEST_FRAME__BODY_HELLO:
    case CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY_DONE:
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC_STARTED:
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC_ENDED:
    case CLOCHE__V1__GUEST_FRAME__BODY_FILE_RESULT:
    case CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_RESULT:
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL_STARTED:
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL_ENDED:
    case CLOCHE__V1__GUEST_FRAME__BODY_STATS:
    case CLOCHE__V1__GUEST_FRAME__BODY_PONG:
    case CLOCHE__V1__GUEST_FRAME__BODY_EVENTS:
    case CLOCHE__V1__GUEST_FRAME__BODY_DIALED:
    case CLOCHE__V1__GUEST_FRAME__BODY_HUNG_UP:
    case CLOCHE__V1__GUEST_FRAME__BODY_HELD:
    case _CLOCHE__V1__GUEST_FRAME__BODY__CASE_IS_INT_SIZE:
        break;
    }
    return cl_fail(err, CL_E_PEER, 0, "body %d is not for the agent", (int)frame->body_case);
}
