/* worker/dial_io.c - see worker/dial.h.
 *
 *   dial_start() --a place--> CONNECTING --the guest--> open --both ends, or a failure--> over
 *        └--none--> in line --its turn--┘  (over, too, after DIAL_WAIT_S)
 */
#include "worker/dial.h"

#include <errno.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "proto/guest_frame.h"
#include "rpc/call.h"

enum {
    PENDING_MAX = 4 * RPC_OUT_HIGH,
    DIAL_WAIT_S =
        20, /* for a turn: longer than a page's requests take, shorter than a browser waits */
};
#define TOUCH_EVERY_NS CL_NS_PER_S /* bytes come by the thousand */

struct dial {
    struct unit *unit; /* held while it is in line or the guest has a stream of it */
    struct unit_waiter turn;
    struct cl_timer patience; /* in line */
    struct dial_events on;
    void *arg;
    struct guest_stream *stream; /* from its turn until on_close */
    uint32_t port;
    struct cl_buf pending;   /* towards the guest, what did not fit */
    bool eof, eof_sent;      /* the client's */
    size_t unconsumed;       /* taken, not credited to the guest yet */
    bool paused, over, left; /* left: its owner has freed it */
    uint64_t touched_ns;
};

/* --- the end -------------------------------------------------------------------------------- */

int dial_failure(int error, const char *text, uint32_t port, struct cl_err *err)
{
    switch (error) {
    case ECONNREFUSED:
        return cl_fail(err, CL_E_STATE, 0, "nobody listens on port %u in the sandbox", port);
    case ETIMEDOUT:
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "port %u in the sandbox does not answer: %.120s",
                       port, text);
    case ECONNRESET:
    case EPIPE:
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the connection was reset: %.120s", text);
    case EAGAIN:
        return cl_fail(err, CL_E_TOOBIG, 0, "%.120s in this sandbox", text);
    default:
        return cl_fail(err, cl_code_from_errno(error), 0, "port %u in the sandbox: %.120s", port,
                       text);
    }
}

static void finish(struct dial *d, const struct cl_err *why)
{
    if (d->over)
        return;
    d->over = true;
    d->on.on_end(d->arg, why);
}

/* It is not in line, and the guest has no stream of it: however long its client takes to go, the
 * next one has its place. */
static void leave_unit(struct dial *d)
{
    struct unit *u = d->unit;
    d->unit = NULL;
    cl_timer_stop(&d->patience);
    unit_end_dial(u, &d->turn);
    unit_release(u);
}

static void destroy(struct dial *d)
{
    cl_timer_fini(&d->patience);
    cl_buf_fini(&d->pending);
    cl_free(d);
}

/* --- from the guest ------------------------------------------------------------------------- */

static void touch(struct dial *d)
{
    uint64_t now = cl_now_ns();
    if (now - d->touched_ns < TOUCH_EVERY_NS)
        return;
    d->touched_ns = now;
    unit_touch(d->unit);
}

static void credit(struct dial *d)
{
    if (d->paused || !d->stream || d->unconsumed == 0)
        return;
    size_t n = d->unconsumed;
    d->unconsumed = 0;
    guest_stream_consume(d->stream, n);
}

static void take_data(struct dial *d, const Cloche__V1__GuestData *data)
{
    Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
    m.data = data->bytes;
    m.eof = data->eof;
    d->unconsumed += data->bytes.len;
    touch(d);
    if (m.data.len > 0 || m.eof)
        d->on.on_event(d->arg, &m);
    credit(d);
}

static void take_hung_up(struct dial *d, const Cloche__V1__GuestHungUp *end)
{
    struct cl_err why = {0};
    if (end->error_number != 0)
        (void)dial_failure(end->error_number, end->error, d->port, &why);
    finish(d, why.code ? &why : NULL);
}

static void on_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct dial *d = arg;
    if (d->over)
        return;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA) {
        take_data(d, frame->data);
    } else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DIALED) {
        Cloche__V1__RelayRequest m = CLOCHE__V1__RELAY_REQUEST__INIT;
        m.connected = true;
        d->on.on_event(d->arg, &m);
    } else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_HUNG_UP) {
        take_hung_up(d, frame->hung_up);
    }
}

static void on_room(void *arg)
{
    struct dial *d = arg;
    if (!d->over)
        d->on.on_room(d->arg);
}

static void on_close(void *arg, const struct cl_err *why)
{
    struct dial *d = arg;
    struct cl_err lost = {0};
    d->stream = NULL;
    leave_unit(d);
    if (d->left) {
        destroy(d);
        return;
    }
    (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "%s",
                  why ? why->text : "the agent gave the connection up");
    finish(d, &lost);
}

/* --- to the guest --------------------------------------------------------------------------- */

static size_t push(struct dial *d, const void *data, size_t n)
{
    if (!d->stream)
        return 0;
    size_t taken = guest_stream_write(d->stream, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_SOCKET,
                                      data, n, d->eof);
    d->eof_sent = d->eof && taken == n;
    return taken;
}

int dial_write(struct dial *d, const void *data, size_t n, bool eof, struct cl_err *err)
{
    if (d->over)
        return 0;
    if (d->eof)
        return cl_fail(err, CL_E_PEER, 0, "bytes for a connection after their end");
    d->eof = eof;
    touch(d);
    size_t taken = d->pending.len == 0 ? push(d, data, n) : 0;
    return taken < n ? cl_buf_append(&d->pending, (const uint8_t *)data + taken, n - taken, err)
                     : 0;
}

bool dial_is_full(const struct dial *d)
{
    return d->pending.len > 0 && !d->over;
}

void dial_flush(struct dial *d)
{
    if (d->over || !d->stream || d->eof_sent || (d->pending.len == 0 && !d->eof))
        return;
    cl_buf_consume(&d->pending, push(d, d->pending.data, d->pending.len));
}

/* --- life ------------------------------------------------------------------------------------ */

void dial_pause(struct dial *d, bool paused)
{
    d->paused = paused;
    credit(d);
}

void dial_free(struct dial *d)
{
    if (!d)
        return;
    d->over = d->left = true;
    if (d->stream) {
        guest_stream_reset(d->stream, "the client left"); /* on_close() destroys it */
        return;
    }
    if (d->unit)
        leave_unit(d);
    destroy(d);
}

static int open_stream(struct dial *d, struct cl_err *err)
{
    static const struct guest_stream_events events = {on_frame, on_room, on_close};
    Cloche__V1__GuestDial body = CLOCHE__V1__GUEST_DIAL__INIT;
    body.port = d->port;
    GUEST_FRAME(frame, 0, DIAL, dial, &body);
    return guest_open(machine_guest(d->unit->machine), &frame, &events, d, &d->stream, err);
}

/* One that its guest never had. */
static void fail(struct dial *d, const struct cl_err *why)
{
    leave_unit(d);
    finish(d, why);
}

static void on_turn(void *arg)
{
    struct dial *d = arg;
    struct cl_err why = {0};
    cl_timer_stop(&d->patience);
    if (unit_check_runs(d->unit, &why) < 0 || open_stream(d, &why) < 0)
        fail(d, &why);
    else
        d->on.on_room(d->arg);
}

static void on_patience(void *arg)
{
    struct dial *d = arg;
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_TOOBIG, 0,
                  "%d connections to this sandbox are open, and none ended for %d s",
                  UNIT_DIALS_MAX, DIAL_WAIT_S);
    fail(d, &why);
}

int dial_start(struct unit *u, uint32_t port, const struct dial_events *events, void *arg,
               struct dial **ret_dial, struct cl_err *err)
{
    struct dial *d = cl_zalloc(sizeof *d);
    if (!d)
        return cl_fail(err, CL_E_NOMEM, 0, "connection");
    *d = (struct dial){.turn = {.fn = on_turn, .arg = d},
                       .on = *events,
                       .arg = arg,
                       .port = port,
                       .touched_ns = cl_now_ns()};
    cl_list_init(&d->turn.link);
    cl_buf_init(&d->pending, PENDING_MAX);
    int waits = cl_timer_init(&d->patience, u->units->loop, on_patience, d, err);
    if (waits == 0)
        waits = unit_begin_dial(u, &d->turn, err);
    if (waits < 0) {
        destroy(d);
        return -1;
    }
    d->unit = u;
    unit_hold(u);
    if (waits) {
        cl_timer_start(&d->patience, DIAL_WAIT_S * CL_NS_PER_S);
    } else if (open_stream(d, err) < 0) {
        dial_free(d);
        return -1;
    }
    *ret_dial = d;
    return 0;
}
