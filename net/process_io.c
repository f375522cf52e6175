/* net/process_io.c - see net/process_io.h. */
#include "net/process_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/drop.h"
#include "net/filter.h"
#include "net/names_io.h"
#include "net/stack_io.h"

enum {
    FRAMES_PER_TURN = 64, /* of the guest; without it a fast one starves its own flows */
    /* To a guest that takes none; without it memory.  TCP sends again what is dropped. */
    QUEUE_MAX = 256,
    POLL_MAX = NET_FILES_MAX + 32,
    CONTROL = 0, /* places in the poll array */
    WIRE = 1,
    OTHERS = 2,
};

struct queued {
    size_t n;
    uint8_t bytes[NET_FRAME_BYTES_MAX];
};

enum process_state {
    PROCESS_RUNS = 1,
    PROCESS_ENDS,
    PROCESS_CUT,
};

struct process {
    int control, wire; /* borrowed */
    enum process_state state;
    struct net_filter *filter; /* owned */
    struct names *names;       /* owned; NULL = no resolver was granted */
    struct stack *stack;       /* owned */
    uint64_t ticked_ns;
    uint64_t faulty, dropped; /* frames of the guest; to it */
    size_t queue_first, queue_n;
    struct queued queue[QUEUE_MAX];
    struct pollfd fds[POLL_MAX];
};

/* A question on its way to a resolver. */
struct asked {
    struct process *p;      /* borrowed: its names end before it */
    struct net_frame frame; /* that it came in */
    struct net_dns_query query;
    uint64_t at_ns;
};

static void cut(struct process *p)
{
    p->state = PROCESS_CUT;
}

static void end(struct process *p)
{
    if (p->state == PROCESS_RUNS)
        p->state = PROCESS_ENDS;
}

/* ---- to the worker ---- */

static void wait_for_room(struct process *p)
{
    struct pollfd fd = {.fd = p->control, .events = POLLOUT};
    if (poll(&fd, 1, -1) < 0 && errno != EINTR)
        cut(p);
}

/* Waits where the socket is full: nothing is taken from the guest before it was told. */
static void tell(void *user, const struct net_event *event)
{
    struct process *p = user;
    while (p->state != PROCESS_CUT) {
        ssize_t n = send(p->control, event, sizeof *event, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == (ssize_t)sizeof *event)
            return;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
            wait_for_room(p);
        else if (n >= 0 || errno != EINTR)
            cut(p);
    }
}

static void on_control(struct process *p)
{
    char byte;
    ssize_t n = recv(p->control, &byte, sizeof byte, MSG_DONTWAIT);
    if (n == 0)
        end(p);
    else if (n > 0 || (errno != EAGAIN && errno != EINTR))
        cut(p); /* it has nothing more to say */
}

int process_receive(int control, struct net_grant *ret_grant, struct cl_err *err)
{
    static struct net_grant grant;
    ssize_t n;
    do
        n = recv(control, &grant, sizeof grant, MSG_TRUNC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return cl_fail(err, CL_E_SYS, errno, "receive the grant");
    if (net_grant_check(&grant, (size_t)n, err) < 0)
        return -1;
    *ret_grant = grant;
    return 0;
}

/* ---- to the guest ---- */

/* False = the wire is full. */
static bool put_on_wire(struct process *p, const uint8_t *frame, size_t n)
{
    if (send(p->wire, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return true;
    if (errno == EAGAIN || errno == ENOBUFS)
        return false;
    if (errno != EINTR)
        end(p);
    return true;
}

static void flush_queue(struct process *p)
{
    while (p->queue_n > 0) {
        const struct queued *q = &p->queue[p->queue_first];
        if (!put_on_wire(p, q->bytes, q->n))
            return;
        p->queue_first = (p->queue_first + 1) % QUEUE_MAX;
        p->queue_n--;
    }
}

static void send_frame(struct process *p, const uint8_t *frame, size_t n)
{
    if (p->state != PROCESS_RUNS || n == 0 || n > NET_FRAME_BYTES_MAX ||
        (p->queue_n == 0 && put_on_wire(p, frame, n)))
        return;
    if (p->queue_n == QUEUE_MAX) {
        p->dropped++;
        return;
    }
    struct queued *q = &p->queue[(p->queue_first + p->queue_n++) % QUEUE_MAX];
    q->n = n;
    memcpy(q->bytes, frame, n);
}

static void on_stack_frame(void *user, const uint8_t *frame, size_t n)
{
    struct process *p = user;
    struct net_frame f;
    if (p->state == PROCESS_RUNS && net_frame_to_guest(frame, n, &f) == NET_FRAME_FINE &&
        net_filter_to_guest(p->filter, &f, cl_now_ns()) == NET_PASS)
        send_frame(p, frame, n);
}

/* ---- names ---- */

static void send_answer(struct process *p, const struct net_frame *frame,
                        const struct net_dns_query *query, const struct net_dns_answer *answer)
{
    uint8_t payload[NET_DNS_BYTES_MAX], out[NET_FRAME_BUILT_MAX];
    size_t n = net_dns_build(query, answer, payload);
    send_frame(p, out, net_frame_build_datagram(frame, payload, n, out));
}

static void on_found(void *user, const struct net_dns_answer *found)
{
    CL_AUTO(cl_freep) struct asked *a = user;
    struct net_dns_answer answer;
    net_filter_resolved(a->p->filter, &a->query, found, a->at_ns, cl_now_ns(), &answer);
    send_answer(a->p, &a->frame, &a->query, &answer);
}

static void look_up(struct process *p, const struct net_frame *frame,
                    const struct net_dns_query *query, uint64_t now_ns)
{
    const struct net_dns_answer failed = {.rcode = NET_DNS_SERVFAIL};
    struct net_dns_answer answer;
    struct asked *a = cl_zalloc(sizeof *a);
    if (!a) {
        net_filter_resolved(p->filter, query, &failed, now_ns, now_ns, &answer);
        send_answer(p, frame, query, &answer);
        return;
    }
    *a = (struct asked){.p = p, .frame = *frame, .query = *query, .at_ns = now_ns};
    names_ask(p->names, query->name, on_found, a);
}

static void on_question(struct process *p, const uint8_t *bytes, const struct net_frame *frame,
                        uint64_t now_ns)
{
    struct net_dns_query query;
    struct net_dns_answer answer;
    if (!net_dns_parse(bytes + frame->payload_at, frame->payload_bytes, &query)) {
        p->faulty++;
        return;
    }
    if (net_filter_question(p->filter, &query, frame, now_ns, &answer))
        look_up(p, frame, &query, now_ns);
    else
        send_answer(p, frame, &query, &answer);
}

/* ---- from the guest ---- */

static void on_frame(struct process *p, const uint8_t *bytes, size_t n)
{
    struct net_frame f;
    uint8_t out[NET_FRAME_BUILT_MAX];
    uint64_t now_ns = cl_now_ns();
    if (net_frame_from_guest(bytes, n, &f) != NET_FRAME_FINE) {
        p->faulty++;
        return;
    }
    switch (net_filter_from_guest(p->filter, &f, f.payload_bytes ? bytes + f.payload_at : NULL,
                                  now_ns)) {
    case NET_PASS: /* unless it could not be told; without what pads it */
        if (p->state != PROCESS_CUT)
            stack_input(p->stack, bytes, f.kind == NET_FRAME_ARP ? n : (size_t)f.bytes + 14);
        return;
    case NET_DROP:
        return;
    case NET_RESET:
        send_frame(p, out, net_frame_build_reset(&f, out));
        return;
    case NET_HANG_UP:
        stack_input(p->stack, out, net_frame_build_hang_up(bytes, &f, out));
        send_frame(p, out, net_frame_build_reset(&f, out));
        return;
    case NET_PROHIBITED:
        send_frame(p, out, net_frame_build_prohibited(bytes, &f, out));
        return;
    case NET_QUESTION:
        on_question(p, bytes, &f, now_ns);
        return;
    }
}

static bool takes_frames(const struct process *p)
{
    return p->state == PROCESS_RUNS && net_filter_paused_until_ns(p->filter) <= cl_now_ns();
}

static void on_wire(struct process *p)
{
    uint8_t bytes[NET_FRAME_BYTES_MAX];
    for (int i = 0; i < FRAMES_PER_TURN && takes_frames(p); i++) {
        ssize_t n = recv(p->wire, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            end(p);
        else if (n > (ssize_t)sizeof bytes)
            p->faulty++;
        else
            on_frame(p, bytes, (size_t)n);
    }
}

/* ---- the loop ---- */

static uint32_t ms_until(uint64_t at_ns, uint64_t now_ns)
{
    return at_ns <= now_ns ? 0 : (uint32_t)((at_ns - now_ns) / CL_NS_PER_MS + 1);
}

static uint32_t most_ms(const struct process *p, uint64_t now_ns)
{
    uint64_t paused_ns = net_filter_paused_until_ns(p->filter);
    uint32_t tick_ms = ms_until(p->ticked_ns + CL_NS_PER_S, now_ns);
    return paused_ns > now_ns ? CL_MIN(tick_ms, ms_until(paused_ns, now_ns)) : tick_ms;
}

static void tick(struct process *p)
{
    uint64_t now_ns = cl_now_ns();
    if (now_ns - p->ticked_ns < CL_NS_PER_S)
        return;
    p->ticked_ns = now_ns;
    net_filter_tick(p->filter, now_ns);
}

static void turn(struct process *p)
{
    uint32_t timeout_ms = most_ms(p, cl_now_ns());
    short wanted = (short)((takes_frames(p) ? POLLIN : 0) | (p->queue_n > 0 ? POLLOUT : 0));
    p->fds[CONTROL] = (struct pollfd){.fd = p->control, .events = POLLIN};
    p->fds[WIRE] = (struct pollfd){.fd = wanted ? p->wire : -1, .events = wanted};
    struct pollfd *names = p->fds + OTHERS;
    size_t n_names = names_fill(p->names, names, POLL_MAX - OTHERS, &timeout_ms);
    struct pollfd *stack = names + n_names;
    size_t n_stack = stack_fill(p->stack, stack, POLL_MAX - OTHERS - n_names, &timeout_ms);
    int rc = poll(p->fds, OTHERS + n_names + n_stack, (int)timeout_ms);
    stack_poll(p->stack, stack, n_stack, rc < 0);
    if (rc >= 0)
        names_poll(p->names, names, n_names);
    if (rc > 0 && p->fds[CONTROL].revents)
        on_control(p);
    if (rc > 0 && p->fds[WIRE].revents) {
        flush_queue(p);
        on_wire(p);
    }
    tick(p);
}

int process_run(struct process *p, struct cl_err *err)
{
    while (p->state == PROCESS_RUNS)
        turn(p);
    names_close(CL_STEAL(&p->names)); /* what was asked for is told */
    net_filter_stop(p->filter);
    return p->state == PROCESS_ENDS
               ? 0
               : cl_fail(err, CL_E_UNAVAILABLE, 0, "the worker is gone: no network without it");
}

/* ---- its life ---- */

static int learn_own_addresses(struct net_filter *filter, struct cl_err *err)
{
    uint32_t own[NET_OWN_ADDRESSES_MAX + 1];
    struct ifaddrs *all;
    size_t n = 0;
    if (getifaddrs(&all) < 0)
        return cl_fail(err, CL_E_SYS, errno, "this host's addresses");
    for (const struct ifaddrs *i = all; i && n < CL_COUNT(own); i = i->ifa_next) {
        struct sockaddr_in in;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&in, i->ifa_addr, sizeof in);
        own[n++] = ntohl(in.sin_addr.s_addr);
    }
    freeifaddrs(all);
    return net_filter_set_own_addresses(filter, own, n, err);
}

int process_new(int control, int wire, const struct net_grant *grant, struct process **ret_process,
                struct cl_err *err)
{
    CL_AUTO(process_freep) struct process *p = cl_zalloc(sizeof *p);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "cloche-net");
    *p = (struct process){.control = control, .wire = wire, .state = PROCESS_RUNS};
    p->ticked_ns = cl_now_ns();
    if (net_filter_new(grant, tell, p, &p->filter, err) < 0 ||
        learn_own_addresses(p->filter, err) < 0)
        return -1;
    if (grant->n_servers > 0 && names_open(grant->servers, grant->n_servers, &p->names, err) < 0)
        return -1;
    if (stack_open(on_stack_frame, p, &p->stack, err) < 0)
        return -1;
    *ret_process = CL_STEAL(&p);
    return 0;
}

void process_free(struct process *p)
{
    if (!p)
        return;
    p->state = PROCESS_CUT; /* nothing is told or sent from here on */
    names_close(p->names);
    stack_close(p->stack);
    net_filter_free(p->filter);
    cl_free(p);
}
