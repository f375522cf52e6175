/* agent/dial.c - see agent/dial.h. */
#include "agent/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pump.h"
#include "agent/text.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    DIAL_CONNECT_S =
        10, /* a program that does not accept lets its queue fill, then SYNs get lost */
    DIAL_TURN_MAX = 4 * GUEST_DATA_MAX,
    /* A direction, in the kernel: by itself it would take MiBs, and those are not the user's. */
    DIAL_SOCKET_BYTES = 256 * 1024,
};

enum dial_state { DIAL_CONNECTING = 1, DIAL_CONNECTED, DIAL_GONE };

struct dial {
    uint64_t stream;
    enum dial_state state;
    uint16_t port;
    int family;           /* of the address that is tried */
    int refused;          /* errno of 127.0.0.1, once ::1 is tried */
    uint64_t deadline_ns; /* for connecting */
    struct inlet in;      /* its fd is the socket from the start: what comes early is kept */
    struct outlet out;
};

void dial_free(struct dial *dial)
{
    if (!dial)
        return;
    inlet_fini(&dial->in);
    outlet_fini(&dial->out);
    cl_free(dial);
}
CL_DEFINE_AUTO(struct dial, dial_free)

uint64_t dial_stream(const struct dial *dial)
{
    return dial->stream;
}

bool dial_is_gone(const struct dial *dial)
{
    return dial->state == DIAL_GONE;
}

/* --- start ------------------------------------------------------------------------------------ */

/* Open the socket; 0 or an errno. */
static int open_socket(struct dial *dial, int family)
{
    int on = 1, bytes = DIAL_SOCKET_BYTES;
    dial->family = family;
    dial->in.fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->in.fd < 0 || setsockopt(dial->in.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
        setsockopt(dial->in.fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) < 0 ||
        setsockopt(dial->in.fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) < 0)
        return errno;
    return 0;
}

int dial_start(uint64_t stream, const Cloche__V1__GuestDial *req, struct dial **ret_dial,
               struct cl_err *err)
{
    if (req->port == 0 || req->port > UINT16_MAX)
        return cl_fail(err, CL_E_INVALID, EINVAL, "port %" PRIu32, req->port);
    CL_AUTO(dial_freep) struct dial *dial = cl_zalloc(sizeof *dial);
    if (!dial)
        return cl_fail(err, CL_E_NOMEM, ENOMEM, "connection");
    *dial = (struct dial){.stream = stream,
                          .state = DIAL_CONNECTING,
                          .port = (uint16_t)req->port,
                          .deadline_ns = cl_now_ns() + DIAL_CONNECT_S * CL_NS_PER_S};
    inlet_init(&dial->in, -1);
    outlet_init(&dial->out, -1, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_SOCKET);
    dial->in.is_socket = dial->out.is_socket = true;
    int error = open_socket(dial, AF_INET);
    if (error != 0)
        return cl_fail(err, CL_E_SYS, error, "socket");
    *ret_dial = CL_STEAL(&dial);
    return 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

int dial_hang_up(uint64_t stream, int error, char *why, struct gate *gate, struct chan *chan,
                 struct cl_err *err)
{
    Cloche__V1__GuestHungUp body = CLOCHE__V1__GUEST_HUNG_UP__INIT;
    text_repair(why);
    body.error_number = error;
    body.error = why;
    GUEST_FRAME(frame, stream, HUNG_UP, hung_up, &body);
    gate_close(gate, stream);
    return chan_send(chan, &frame, err);
}

/* Close the socket with nothing more to say: what it still has to send is dropped. */
static void drop(struct dial *dial)
{
    struct linger reset = {.l_onoff = 1};
    int fd = dial->in.fd >= 0 ? dial->in.fd : dial->out.fd;
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    cl_closep(&dial->in.fd);
    cl_closep(&dial->out.fd);
}

void dial_abort(struct dial *dial)
{
    drop(dial);
    dial->state = DIAL_GONE;
}

static int finish(struct dial *dial, int error, struct gate *gate, struct chan *chan,
                  struct cl_err *err)
{
    char why[CL_ERR_TEXT] = "";
    if (error != 0) {
        drop(dial);
        (void)snprintf(why, sizeof why, "%s", strerror(error));
    }
    dial->state = DIAL_GONE;
    return dial_hang_up(dial->stream, error, why, gate, chan, err);
}

/* --- connect ---------------------------------------------------------------------------------- */

/* The kernel may choose the very port that is dialed for the caller's own, when nobody listens: TCP
 * then connects it to itself (RFC 9293 §3.5, simultaneous open). */
static bool is_its_own_peer(int fd)
{
    struct sockaddr_in6 ours = {0}, theirs = {0}; /* the port is where sockaddr_in has it */
    socklen_t n = sizeof ours, m = sizeof theirs;
    return getsockname(fd, (struct sockaddr *)&ours, &n) == 0 &&
           getpeername(fd, (struct sockaddr *)&theirs, &m) == 0 &&
           ours.sin6_port == theirs.sin6_port;
}

/* Connect, or look how far that is: 0, EINPROGRESS, or why not. */
static int knock(const struct dial *dial)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_port = htons(dial->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons(dial->port),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool is_v4 = dial->family == AF_INET;
    int rc = is_v4 ? connect(dial->in.fd, (const struct sockaddr *)&v4, sizeof v4)
                   : connect(dial->in.fd, (const struct sockaddr *)&v6, sizeof v6);
    if (rc == 0 || errno == EISCONN)
        return is_its_own_peer(dial->in.fd) ? ECONNREFUSED : 0;
    return errno == EALREADY ? EINPROGRESS : errno;
}

/* The same over both addresses; the guest's kernel may have no IPv6, so the first one's answer
 * counts. */
static int connect_on(struct dial *dial)
{
    int error = knock(dial);
    while (error != 0 && error != EINPROGRESS) {
        drop(dial);
        if (dial->family == AF_INET6)
            return dial->refused;
        dial->refused = error;
        error = open_socket(dial, AF_INET6);
        error = error != 0 ? error : knock(dial);
    }
    return error == EINPROGRESS && cl_now_ns() >= dial->deadline_ns ? ETIMEDOUT : error;
}

static int send_dialed(struct dial *dial, struct chan *chan, struct cl_err *err)
{
    Cloche__V1__GuestDialed body = CLOCHE__V1__GUEST_DIALED__INIT;
    GUEST_FRAME(frame, dial->stream, DIALED, dialed, &body);
    dial->state = DIAL_CONNECTED;
    return chan_send(chan, &frame, err);
}

static int turn_connecting(struct dial *dial, struct gate *gate, struct chan *chan,
                           struct cl_err *err)
{
    int error = connect_on(dial);
    if (error == EINPROGRESS)
        return 0;
    if (error == 0) {
        dial->out.fd = fcntl(dial->in.fd, F_DUPFD_CLOEXEC, 3);
        error = dial->out.fd < 0 ? errno : 0;
    }
    return error != 0 ? finish(dial, error, gate, chan, err) : send_dialed(dial, chan, err);
}

/* --- life ------------------------------------------------------------------------------------- */

int dial_data(struct dial *dial, const Cloche__V1__GuestData *data, struct cl_err *err)
{
    return inlet_push(&dial->in, data->bytes.data, data->bytes.len, data->eof, err);
}

/* With its FIN taken and nothing to write, nothing else would tell of a reset. */
static void look_for_reset(struct dial *dial)
{
    int error = 0;
    socklen_t n = sizeof error;
    if (dial->out.fd >= 0 || dial->in.fd < 0 ||
        getsockopt(dial->in.fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error == 0)
        return;
    dial->in.error = error;
    cl_closep(&dial->in.fd);
}

static int move_data(struct dial *dial, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = gate_find(gate, dial->stream);
    bool dry;
    look_for_reset(dial);
    if (inlet_turn(&dial->in, stream, chan, err) < 0)
        return -1;
    /* What the program had sent before it broke is still there to be read; the end is not. */
    if (dial->in.error != 0 && dial->out.error == 0)
        dial->out.error = dial->in.error;
    return outlet_turn(&dial->out, stream, chan, DIAL_TURN_MAX, &dry, err);
}

int dial_turn(struct dial *dial, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    if (dial->state == DIAL_CONNECTING && turn_connecting(dial, gate, chan, err) < 0)
        return -1;
    if (dial->state != DIAL_CONNECTED)
        return 0;
    /* At once: an end that came meanwhile is an event that comes no more. */
    if (move_data(dial, gate, chan, err) < 0)
        return -1;
    int error = dial->out.error != 0 ? dial->out.error : dial->in.error;
    if (dial->out.fd >= 0 || (dial->in.fd >= 0 && error == 0))
        return 0;
    return finish(dial, error, gate, chan, err);
}

void dial_wait(const struct dial *dial, struct gate *gate, const struct chan *chan,
               struct waits *waits)
{
    if (dial->state == DIAL_GONE)
        return;
    if (dial->state == DIAL_CONNECTING) {
        waits_add(waits, dial->in.fd, POLLOUT);
        waits_until(waits, dial->deadline_ns);
        return;
    }
    bool writes = inlet_wants_write(&dial->in);
    if (writes || (dial->in.fd >= 0 && dial->out.fd < 0)) /* a reset comes unasked */
        waits_add(waits, dial->in.fd, writes ? POLLOUT : 0);
    if (outlet_wants_read(&dial->out, gate_find(gate, dial->stream), chan))
        waits_add(waits, dial->out.fd, POLLIN);
}
