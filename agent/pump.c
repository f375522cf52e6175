/* agent/pump.c - see agent/pump.h. */
#include "agent/pump.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/own.h"

enum {
    CREDIT_STEP = GUEST_WINDOW_INITIAL / 8, /* give credit back in pieces of this, not per byte */
    END_OF_FILE_CHAR = 4,                   /* VEOF of a fresh terminal */
};

void inlet_init(struct inlet *in, int fd)
{
    *in = (struct inlet){.fd = fd};
    cl_buf_init(&in->buf, GUEST_WINDOW_INITIAL + 1);
}

static void inlet_close(struct inlet *in)
{
    if (!in->is_pty)
        cl_closep(&in->fd);
    in->fd = -1;
}

/* The other fds of a socket keep it open, so closing this one would tell its peer nothing. */
static void inlet_end(struct inlet *in)
{
    if (in->is_socket && in->fd >= 0 && shutdown(in->fd, SHUT_WR) < 0)
        in->error = errno == ENOTCONN ? ECONNRESET : errno;
    inlet_close(in);
}

void inlet_fini(struct inlet *in)
{
    inlet_close(in);
    cl_buf_fini(&in->buf);
}

int inlet_push(struct inlet *in, const void *data, size_t n, bool eof, struct cl_err *err)
{
    static const char end = END_OF_FILE_CHAR;
    in->total += n;
    in->eof |= eof;
    if (in->fd < 0) {
        in->returned += (uint32_t)n; /* the reader is gone; let the worker finish sending */
        return 0;
    }
    if (n > 0 && cl_buf_append(&in->buf, data, n, err) < 0)
        return -1;
    if (eof && in->is_pty)
        return cl_buf_append(&in->buf, &end, 1, err);
    return 0;
}

bool inlet_wants_write(const struct inlet *in)
{
    return in->fd >= 0 && in->buf.len > 0;
}

static int give_credit(struct inlet *in, struct gate_stream *stream, struct chan *chan,
                       struct cl_err *err)
{
    if (!stream || stream->recv_eof || in->returned < CREDIT_STEP)
        return 0;
    Cloche__V1__GuestWindow window;
    cloche__v1__guest_window__init(&window);
    window.bytes = in->returned;
    GUEST_FRAME(frame, stream->id, WINDOW, window, &window);
    stream->recv_credit += in->returned;
    in->returned = 0;
    return chan_send(chan, &frame, err);
}

int inlet_turn(struct inlet *in, struct gate_stream *stream, struct chan *chan, struct cl_err *err)
{
    size_t done = 0;
    while (in->fd >= 0 && done < in->buf.len) {
        ssize_t n = write(in->fd, in->buf.data + done, in->buf.len - done);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* EPIPE, EIO: nobody will read this any more */
            done = in->buf.len;
            in->error = in->is_socket ? errno : 0;
            inlet_close(in);
            break;
        }
        done += (size_t)n;
    }
    cl_buf_consume(&in->buf, done);
    in->returned += (uint32_t)done;
    if (in->eof && in->buf.len == 0 && !in->is_pty)
        inlet_end(in);
    return give_credit(in, stream, chan, err);
}

void outlet_init(struct outlet *out, int fd, Cloche__V1__GuestChannel channel)
{
    *out = (struct outlet){.fd = fd, .channel = channel};
}

void outlet_fini(struct outlet *out)
{
    cl_closep(&out->fd);
}

bool outlet_wants_read(const struct outlet *out, const struct gate_stream *stream,
                       const struct chan *chan)
{
    return out->fd >= 0 && stream && stream->send_credit > 0 && chan_has_room_for_data(chan);
}

static int send_data(struct outlet *out, struct gate_stream *stream, struct chan *chan,
                     const uint8_t *data, size_t n, struct cl_err *err)
{
    Cloche__V1__GuestData body;
    cloche__v1__guest_data__init(&body);
    body.channel = out->channel;
    body.bytes.data = (uint8_t *)(uintptr_t)data; /* protobuf-c has no const; packing only reads */
    body.bytes.len = n;
    body.eof = n == 0;
    GUEST_FRAME(frame, stream->id, DATA, data, &body);
    stream->send_credit -= (uint32_t)n;
    out->total += n;
    return chan_send(chan, &frame, err);
}

int outlet_end(struct outlet *out, struct gate_stream *stream, struct chan *chan,
               struct cl_err *err)
{
    if (out->fd < 0)
        return 0;
    cl_closep(&out->fd);
    return stream ? send_data(out, stream, chan, NULL, 0, err) : 0;
}

/* read() has given n <= 0: a terminal reports its end as EIO, a socket that broke has none. */
static int take_end(struct outlet *out, struct gate_stream *stream, struct chan *chan, ssize_t n,
                    struct cl_err *err)
{
    if (out->is_socket && n < 0)
        out->error = errno;
    if (out->error == 0)
        return outlet_end(out, stream, chan, err);
    cl_closep(&out->fd);
    return 0;
}

int outlet_turn(struct outlet *out, struct gate_stream *stream, struct chan *chan, uint64_t max,
                bool *ret_dry, struct cl_err *err)
{
    uint8_t data[GUEST_DATA_MAX];
    *ret_dry = out->fd < 0;
    for (uint64_t moved = 0; moved < max && outlet_wants_read(out, stream, chan);) {
        size_t want = CL_MIN(CL_MIN(sizeof data, (size_t)stream->send_credit), max - moved);
        ssize_t n = read(out->fd, data, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            *ret_dry = true;
            return 0;
        }
        if (n <= 0) {
            *ret_dry = true;
            return take_end(out, stream, chan, n, err);
        }
        if (send_data(out, stream, chan, data, (size_t)n, err) < 0)
            return -1;
        moved += (uint64_t)n;
    }
    return 0;
}
