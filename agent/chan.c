/* agent/chan.c - see agent/chan.h. */
#include "agent/chan.h"

#include <errno.h>
#include <unistd.h>

enum { WRITE_STEP = 32768 /* virtio_console takes no more at once */, READ_STEP = 65536 };

void chan_init(struct chan *chan, int fd)
{
    *chan = (struct chan){.fd = fd};
    cl_buf_init(&chan->in, CHAN_IN_MAX);
    cl_buf_init(&chan->out, CHAN_OUT_MAX);
}

void chan_fini(struct chan *chan)
{
    if (chan->fd >= 0)
        (void)close(chan->fd);
    chan->fd = -1;
    cl_buf_fini(&chan->in);
    cl_buf_fini(&chan->out);
}

int chan_send(struct chan *chan, const Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    return guest_frame_pack(&chan->out, frame, GUEST_FRAME_MAX, err);
}

bool chan_has_room_for_data(const struct chan *chan)
{
    return chan->out.len < CHAN_OUT_DATA_MARK;
}

bool chan_has_room_for_replies(const struct chan *chan)
{
    return chan->held || chan->out.len < CHAN_OUT_REQUEST_MARK;
}

bool chan_has_room_for_events(const struct chan *chan)
{
    return chan->out.len < CHAN_OUT_EVENTS_MARK;
}

void chan_hold(struct chan *chan)
{
    chan->held = true;
    chan->hold_at = chan->out.len;
}

void chan_release(struct chan *chan)
{
    chan->held = false;
}

static size_t writable(const struct chan *chan)
{
    return chan->held ? chan->hold_at : chan->out.len;
}

bool chan_has_output(const struct chan *chan)
{
    return writable(chan) > 0;
}

int chan_fill(struct chan *chan, struct cl_err *err)
{
    /* Small steps: the buffer grows to a command's size only when one is that large. */
    while (chan->in.len < GUEST_FRAME_HEADER + GUEST_COMMAND_MAX) {
        size_t room =
            CL_MIN((size_t)READ_STEP, GUEST_FRAME_HEADER + GUEST_COMMAND_MAX - chan->in.len);
        if (cl_buf_reserve(&chan->in, room, err) < 0)
            return -1;
        ssize_t n = read(chan->fd, chan->in.data + chan->in.len, room);
        chan->hung_up = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        if (n <= 0)
            return 0;
        chan->in.len += (size_t)n;
    }
    return 0;
}

int chan_flush(struct chan *chan, struct cl_err *err)
{
    size_t done = 0, all = writable(chan);
    while (done < all) {
        ssize_t n = write(chan->fd, chan->out.data + done, CL_MIN(all - done, (size_t)WRITE_STEP));
        if (n < 0 && errno == ENODEV)
            return cl_fail(err, CL_E_SYS, errno, "the port was unplugged");
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    cl_buf_consume(&chan->out, done);
    chan->hold_at -= chan->held ? done : 0;
    return 0;
}

int chan_next(struct chan *chan, struct cl_arena *arena, const Cloche__V1__GuestFrame **ret_frame,
              struct cl_err *err)
{
    size_t used = 0;
    if (guest_frame_parse(chan->in.data + chan->in_used, chan->in.len - chan->in_used,
                          GUEST_COMMAND_MAX, arena, ret_frame, &used, err) < 0)
        return -1;
    chan->in_used += used;
    if (!*ret_frame) {
        cl_buf_consume(&chan->in, chan->in_used);
        chan->in_used = 0;
    }
    return 0;
}
