/* agent/chan.h - the channel to the worker: bytes of a virtio port or of a vsock connection
 * (port.h), cut into frames.
 *
 * Owns:    the channel's fd and one buffer a direction.
 * Thread:  the agent's only one.
 * It survives a snapshot and restore of the VM, and of one that is held also a copy's start with a
 * channel of its own.  While nobody listens on the host's side it
 * reports hang-up; that is waited out, never an error: the host ends VMs, not the guest.
 */
#ifndef CL_AGENT_CHAN_H
#define CL_AGENT_CHAN_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "proto/guest_frame.h"

enum {
    CHAN_IN_MAX = GUEST_FRAME_HEADER + GUEST_COMMAND_MAX + GUEST_FRAME_MAX,
    /* Output of user code is read only below the first mark, requests below the second; so a
     * worker that sends without reading cannot make the agent hold more than the third. */
    CHAN_OUT_DATA_MARK = 128 * 1024,
    CHAN_OUT_REQUEST_MARK = 512 * 1024,
    CHAN_OUT_EVENTS_MARK = 1024 * 1024, /* what the sensor saw, before the end of an exec */
    CHAN_OUT_MAX = 2 * 1024 * 1024,
};

struct chan {
    int fd;            /* owned */
    bool hung_up;      /* nobody listens at the moment */
    struct cl_buf in;  /* received, not parsed */
    size_t in_used;    /* bytes at the start of `in` that were parsed */
    struct cl_buf out; /* packed, not written */
    bool held;         /* nothing is written behind the first `hold_at` bytes of `out` */
    size_t hold_at;
};

/* Takes the fd. */
void chan_init(struct chan *chan, int fd);
void chan_fini(struct chan *chan);

/* Queue a frame.  Fails only when it is too large or memory is short. */
int chan_send(struct chan *chan, const Cloche__V1__GuestFrame *frame, struct cl_err *err) CL_MUST;
/* May user output, requests, what the sensor saw be taken now? */
bool chan_has_room_for_data(const struct chan *chan);
bool chan_has_room_for_replies(const struct chan *chan);
bool chan_has_room_for_events(const struct chan *chan);

/* Hold back what is not queued yet, until chan_release(); all that comes meanwhile is that. */
void chan_hold(struct chan *chan);
void chan_release(struct chan *chan);
/* Is there something to write now? */
bool chan_has_output(const struct chan *chan);

/* Read what is there (one buffer at most), write what the port takes. */
int chan_fill(struct chan *chan, struct cl_err *err) CL_MUST;
int chan_flush(struct chan *chan, struct cl_err *err) CL_MUST;
/* The next whole frame in the arena, or NULL. */
int chan_next(struct chan *chan, struct cl_arena *arena, const Cloche__V1__GuestFrame **ret_frame,
              struct cl_err *err) CL_MUST;

#endif
