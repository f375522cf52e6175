/* worker/guest.h - the worker's end of the guest protocol: one per VM, many streams.
 *
 * Owns:    its streams and buffers.  Borrows the channel fd and the loop.
 * Thread:  the worker loop.  No callback runs inside a call of this module.
 * Trust:   the guest is hostile: a malformed frame, a frame for a stream that is not open, more
 *          data than it has credit for, or a connection's frames out of their order break the guest
 *          (on_broken), and the VM is ended.
 * Source:  proto/cloche/v1/guest.proto.
 */
#ifndef CL_WORKER_GUEST_H
#define CL_WORKER_GUEST_H

#include "base/loop.h"
#include "cloche/v1/guest.pb-c.h"

enum {
    GUEST_STREAMS_BOOTED = 1,         /* first stream of a booted guest */
    GUEST_STREAMS_RESTORED = 1 << 20, /* and of a clone: above any that the template used */
    GUEST_STREAMS_MAX = 64,           /* at once; the agent has the same limit */
    GUEST_OUT_MAX = 4 * 1024 * 1024,  /* queued towards the guest: one that does not read */
};

struct guest;
struct guest_stream;

/* What an agent that is held has open; a copy of its VM has it open, too. */
struct guest_past {
    uint64_t next_stream; /* above any that it knows */
    size_t n;
    struct guest_past_stream {
        uint64_t id;
        bool ends; /* a file transfer or a connection: nobody could go on with it */
        /* Its windows while it is held, as both ends know them; 0 of those that nobody listens to.
         */
        uint64_t send_credit, recv_credit, consumed;
    } streams[2 * GUEST_STREAMS_MAX]; /* its own, and those of what it was copied from */
};

struct guest_events {
    void (*on_hello)(void *arg, const Cloche__V1__GuestHello *hello);
    void (*on_identity)(void *arg, const Cloche__V1__GuestIdentityDone *done);
    void (*on_stats)(void *arg, const Cloche__V1__GuestStats *stats);
    void (*on_pong)(void *arg, const Cloche__V1__GuestPong *pong);
    /* What user code did; only after an identity that asks for it. */
    void (*on_watched)(void *arg, const Cloche__V1__GuestEvents *batch);
    /* As guest_hold() asked: nothing is on its way in either direction, until guest_release().
     * Valid until it returns. */
    void (*on_held)(void *arg, const struct guest_past *past);
    /* The protocol was broken or the channel closed; nothing works from here on. */
    void (*on_broken)(void *arg, const struct cl_err *why);
};

/* Of one stream.  Frames live until the callback returns. */
struct guest_stream_events {
    void (*on_frame)(void *arg, const Cloche__V1__GuestFrame *frame);
    /* Room again for guest_stream_write(). */
    void (*on_room)(void *arg);
    /* The stream ended: after its last frame, a Reset, or with the guest.  The pointer is dead. */
    void (*on_close)(void *arg, const struct cl_err *why);
};

/* Streams are numbered from first_stream on: a restored agent remembers the numbers of before. */
int guest_new(struct cl_loop *loop, int fd, uint64_t first_stream,
              const struct guest_events *events, void *arg, struct guest **ret_guest,
              struct cl_err *err) CL_MUST;
/* Its VM is put to rest, or goes on. */
void guest_set_resting(struct guest *guest, bool resting);
/* The channel has ended, or its agent broke the protocol. */
bool guest_is_broken(const struct guest *g);
/* Closes all streams (their on_close runs): why, unless it was broken before.  NULL is a no-op. */
void guest_free(struct guest *guest, const struct cl_err *why);
/* Hand the events to another owner (a warm VM is claimed). */
void guest_set_events(struct guest *guest, const struct guest_events *events, void *arg);

int guest_identify(struct guest *guest, const Cloche__V1__GuestIdentity *identity,
                   struct cl_err *err) CL_MUST;
int guest_ask_stats(struct guest *guest, struct cl_err *err) CL_MUST;
/* on_pong follows, with the token; or one that nobody asked for: the guest is hostile. */
int guest_ping(struct guest *guest, uint64_t token, struct cl_err *err) CL_MUST;
/* Only to an agent whose pong has told its clock. */
int guest_shift_clock(struct guest *guest, int64_t lag_ns, struct cl_err *err) CL_MUST;

/* on_held follows, or never: the guest is hostile.  Frames queue up meanwhile; bytes of a client do
 * not, so that none is lost with this process. */
int guest_hold(struct guest *guest, struct cl_err *err) CL_MUST;
/* Let it go on; also before it was held. */
int guest_release(struct guest *guest, struct cl_err *err) CL_MUST;
/* The same for the guest of a copy, before all else: what runs in it and was not adopted runs on,
 * unheard; transfers and connections end. */
int guest_release_copy(struct guest *guest, const struct guest_past *past,
                       struct cl_err *err) CL_MUST;

/* A guest that another process held: what goes to it queues up until guest_release_copy(). */
void guest_take_up(struct guest *guest, const struct guest_past *past);
/* Until then: go on with a stream of that one's past, where it was. */
int guest_adopt(struct guest *guest, uint64_t stream, const struct guest_stream_events *events,
                void *arg, struct guest_stream **ret_stream, struct cl_err *err) CL_MUST;

/* How long its guest was at rest so far, ns: no guest's clock counts that. */
uint64_t guest_stream_rested_ns(const struct guest_stream *s);
/* Its number, as the guest knows it. */
uint64_t guest_stream_id(const struct guest_stream *s);
/* Open a stream with an Exec, a FileOp, a ContextOp, a Cell or a Dial; the frame's stream is filled
 * in. */
int guest_open(struct guest *guest, Cloche__V1__GuestFrame *frame,
               const struct guest_stream_events *events, void *arg,
               struct guest_stream **ret_stream, struct cl_err *err) CL_MUST;
/* False: it is held or at rest, and on_room follows. */
bool guest_stream_takes(struct guest_stream *s);
/* Send bytes of a channel; returns how many were taken (credit and queue allow; none while it is
 * held or at rest), on_room follows when fewer than n.  eof needs all n bytes taken. */
size_t guest_stream_write(struct guest_stream *s, Cloche__V1__GuestChannel channel,
                          const void *data, size_t n, bool eof);
/* The receiver has dealt with n bytes: give the guest credit for as many. */
void guest_stream_consume(struct guest_stream *s, size_t n);
int guest_stream_signal(struct guest_stream *s, int signo, struct cl_err *err) CL_MUST;
int guest_stream_resize(struct guest_stream *s, uint32_t rows, uint32_t columns,
                        struct cl_err *err) CL_MUST;
/* Give it up; on_close follows. */
void guest_stream_reset(struct guest_stream *s, const char *reason);
/* The same for an owner that goes away: none of its events runs any more. */
void guest_stream_forget(struct guest_stream *s, const char *reason);

#endif
