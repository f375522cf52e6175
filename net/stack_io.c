/* net/stack_io.c - see net/stack_io.h. */
#include "net/stack_io.h"

#include <arpa/inet.h>
#include <glib.h>
#include <slirp/libslirp.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "net/control.h"

struct stack {
    Slirp *slirp; /* owned */
    stack_send_fn *send;
    void *user; /* borrowed: send's */
    /* Of one turn: */
    struct pollfd *filling;      /* borrowed: stack_fill()'s */
    const struct pollfd *filled; /* borrowed: stack_poll()'s */
    size_t n, max;
};

static const struct {
    int slirp;
    short poll;
} events[] = {
    {SLIRP_POLL_IN, POLLIN},   {SLIRP_POLL_OUT, POLLOUT}, {SLIRP_POLL_PRI, POLLPRI},
    {SLIRP_POLL_ERR, POLLERR}, {SLIRP_POLL_HUP, POLLHUP},
};

static ssize_t on_packet(const void *frame, size_t n, void *opaque)
{
    struct stack *s = opaque;
    s->send(s->user, frame, n);
    return (ssize_t)n;
}

/* What the guest does wrong is the filter's to tell. */
static void on_guest_error(const char *text, void *opaque)
{
    (void)text;
    (void)opaque;
}

static int64_t on_clock(void *opaque)
{
    (void)opaque;
    return (int64_t)cl_now_ns();
}

/* Its one timer is of IPv6's router advertisements, which are off. */
static void *on_timer_new(SlirpTimerId id, void *timer_opaque, void *opaque)
{
    (void)id;
    (void)timer_opaque;
    return opaque;
}

static void on_timer_free(void *timer, void *opaque)
{
    (void)timer;
    (void)opaque;
}

static void on_timer_mod(void *timer, int64_t at_ms, void *opaque)
{
    (void)timer;
    (void)at_ms;
    (void)opaque;
}

/* The loop asks before each wait. */
static void on_poll_fd(int fd, void *opaque)
{
    (void)fd;
    (void)opaque;
}

static void on_notify(void *opaque)
{
    (void)opaque;
}

static const SlirpCb callbacks = {
    .send_packet = on_packet,
    .guest_error = on_guest_error,
    .clock_get_ns = on_clock,
    .timer_new_opaque = on_timer_new,
    .timer_free = on_timer_free,
    .timer_mod = on_timer_mod,
    .register_poll_fd = on_poll_fd,
    .unregister_poll_fd = on_poll_fd,
    .notify = on_notify,
};

/* A guest may cause a library's messages: without it, as many as it likes. */
static void ignore_log(const char *domain, GLogLevelFlags level, const char *text, void *user)
{
    (void)domain;
    (void)level;
    (void)text;
    (void)user;
}

int stack_open(stack_send_fn *send, void *user, struct stack **ret_stack, struct cl_err *err)
{
    const SlirpConfig config = {
        .version = 4,
        .in_enabled = true,
        .vnetwork = {htonl(NET_LINK)},
        .vnetmask = {htonl(UINT32_MAX << (32 - NET_LINK_BITS))},
        .vhost = {htonl(NET_GATEWAY)},
        .vdhcp_start = {htonl(NET_GUEST)},
        .vnameserver = {htonl(NET_DNS)},
        .if_mtu = NET_LINK_MTU,
        .if_mru = NET_LINK_MTU,
        .disable_host_loopback = true,
        .disable_dns = true,
        .disable_dhcp = true,
    };
    CL_AUTO(cl_freep) struct stack *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "network stack");
    (void)g_log_set_default_handler(ignore_log, NULL);
    s->send = send;
    s->user = user;
    s->slirp = slirp_new(&config, &callbacks, s);
    if (!s->slirp)
        return cl_fail(err, CL_E_SYS, 0, "libslirp does not start");
    *ret_stack = CL_STEAL(&s);
    return 0;
}

void stack_close(struct stack *s)
{
    if (!s)
        return;
    slirp_cleanup(s->slirp);
    cl_free(s);
}

void stack_input(struct stack *s, const uint8_t *frame, size_t n)
{
    slirp_input(s->slirp, frame, (int)n);
}

/* -1 = it is not waited for: the array has room for as many as this process may open. */
static int on_add_poll(int fd, int wanted, void *opaque)
{
    struct stack *s = opaque;
    short bits = 0;
    if (s->n == s->max)
        return -1;
    for (size_t i = 0; i < CL_COUNT(events); i++) {
        if (wanted & events[i].slirp)
            bits = (short)(bits | events[i].poll);
    }
    s->filling[s->n] = (struct pollfd){.fd = fd, .events = bits};
    return (int)s->n++;
}

static int on_get_revents(int at, void *opaque)
{
    const struct stack *s = opaque;
    int got = 0;
    if (at < 0 || (size_t)at >= s->n)
        return 0;
    for (size_t i = 0; i < CL_COUNT(events); i++) {
        if (s->filled[at].revents & events[i].poll)
            got |= events[i].slirp;
    }
    return got;
}

size_t stack_fill(struct stack *s, struct pollfd *fds, size_t max, uint32_t *timeout_ms)
{
    s->filling = fds;
    s->n = 0;
    s->max = max;
    slirp_pollfds_fill(s->slirp, timeout_ms, on_add_poll, s);
    return s->n;
}

void stack_poll(struct stack *s, const struct pollfd *fds, size_t n, bool failed)
{
    s->filled = fds;
    s->n = n;
    slirp_pollfds_poll(s->slirp, failed, on_get_revents, s);
}
