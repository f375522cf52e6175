/* cli/forward_io.c - see cli/forward.h: listeners, and one call of PortService.Connect for each
 * connection that comes.
 *
 *   accepted --call--> OPEN --each side's end, or a failure--> closed
 *
 * Whoever is slow stops the other side: a full call is not read for, and a full socket pauses its
 * call.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/mem.h"
#include "cli/forward.h"
#include "cli/output.h"
#include "cloche/v1/port.pb-c.h"

enum {
    TUNNELS_MAX = 128, /* connections at once: fds, and more than a sandbox takes */
    WAITING_MAX = 256 * 1024,
    READ_AHEAD = 64 * 1024,
    BACKLOG = 64,
};

struct door {
    struct forward *f;
    uint32_t port;
    struct evconnlistener *listener; /* owned */
};

struct forward {
    struct client *client; /* borrowed */
    const char *sandbox;
    struct door doors[FORWARD_PORTS];
    size_t n_doors, n_tunnels;
    struct cl_list tunnels;
    bool stopping, gone;
    struct cl_err why; /* gone */
};

struct tunnel {
    struct cl_list link;
    struct forward *f;
    uint32_t port;
    struct bufferevent *bev; /* owned */
    struct rpc_call *call;   /* NULL once it is over */
    bool ended, eof_out;     /* the call is over; the sandbox has sent all */
    bool eof_in, eof_sent;   /* the client has sent all; and the sandbox was told */
    struct cl_grave grave;
};

/* --- the end of one -----------------------------------------------------------------------------
 */

static void tunnel_destroy(void *obj)
{
    struct tunnel *t = obj;
    bufferevent_free(t->bev);
    cl_free(t);
}

/* With a reset where not all has come, so that nobody takes it for all. */
static void tunnel_close(struct tunnel *t, bool reset)
{
    static const struct linger at_once = {.l_onoff = 1};
    if (cl_list_empty(&t->link))
        return;
    if (reset)
        (void)setsockopt(bufferevent_getfd(t->bev), SOL_SOCKET, SO_LINGER, &at_once,
                         sizeof at_once);
    bufferevent_setcb(t->bev, NULL, NULL, NULL, NULL);
    (void)bufferevent_disable(t->bev, EV_READ | EV_WRITE);
    cl_list_unlink(&t->link);
    t->f->n_tunnels--;
    if (t->call)
        rpc_call_cancel(t->call); /* its on_end comes later, and buries */
    else
        cl_loop_bury(client_loop(t->f->client), &t->grave, tunnel_destroy, t);
}

static struct evbuffer *out_of(const struct tunnel *t)
{
    return bufferevent_get_output(t->bev);
}

/* What has been written: let the sandbox go on, pass its end on, or close. */
static void on_written(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct tunnel *t = arg;
    if (t->call)
        rpc_call_pause(t->call, false);
    if (evbuffer_get_length(out_of(t)) > 0)
        return;
    if (t->ended)
        tunnel_close(t, false);
    else if (t->eof_out)
        (void)shutdown(bufferevent_getfd(t->bev), SHUT_WR);
}

/* --- from the sandbox ---------------------------------------------------------------------------
 */

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    const Cloche__V1__ConnectResponse *m = (const Cloche__V1__ConnectResponse *)msg;
    struct tunnel *t = arg;
    if (cl_list_empty(&t->link))
        return;
    if (m->connected)
        (void)bufferevent_enable(t->bev, EV_READ);
    if (m->data.len > 0)
        (void)bufferevent_write(t->bev, m->data.data, m->data.len);
    t->eof_out = t->eof_out || m->eof;
    if (evbuffer_get_length(out_of(t)) > WAITING_MAX)
        rpc_call_pause(call, true);
    if (m->eof && evbuffer_get_length(out_of(t)) == 0)
        on_written(t->bev, t);
}

static void on_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct tunnel *t = arg;
    struct forward *f = t->f;
    t->call = NULL;
    t->ended = true;
    if (cl_list_empty(&t->link)) { /* closed before */
        cl_loop_bury(client_loop(f->client), &t->grave, tunnel_destroy, t);
        return;
    }
    if (!status) {
        on_written(t->bev, t);
        return;
    }
    cli_say("port %u: %s", t->port, status->text);
    tunnel_close(t, true);
    if (status->code == CL_E_NOTFOUND || status->code == CL_E_UNAUTH ||
        status->code == CL_E_DENIED) {
        f->gone = true;
        f->why = *status;
        cl_loop_stop(client_loop(f->client));
    }
}

/* --- to the sandbox -----------------------------------------------------------------------------
 */

static int send_first(struct tunnel *t, struct cl_err *err)
{
    Cloche__V1__ConnectRequest m = CLOCHE__V1__CONNECT_REQUEST__INIT;
    m.sandbox_id = pb_text(t->f->sandbox);
    m.port = t->port;
    return rpc_call_send(t->call, &m.base, err);
}

static int send_data(struct tunnel *t, const void *data, size_t n)
{
    Cloche__V1__ConnectRequest m = CLOCHE__V1__CONNECT_REQUEST__INIT;
    m.data = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)data};
    m.eof = n == 0;
    return rpc_call_send(t->call, &m.base, NULL);
}

static int send_waiting(struct tunnel *t)
{
    struct evbuffer *in = bufferevent_get_input(t->bev);
    while (t->call && !rpc_call_is_full(t->call) && evbuffer_get_length(in) > 0) {
        size_t n = evbuffer_get_contiguous_space(in);
        if (send_data(t, evbuffer_pullup(in, (ev_ssize_t)n), n) < 0)
            return -1;
        (void)evbuffer_drain(in, n);
    }
    if (!t->call || !t->eof_in || t->eof_sent || evbuffer_get_length(in) > 0)
        return 0;
    t->eof_sent = true;
    return send_data(t, NULL, 0);
}

static void on_readable(struct bufferevent *bev, void *arg)
{
    struct tunnel *t = arg;
    if (send_waiting(t) < 0)
        tunnel_close(t, true);
    else if (t->eof_in || (t->call && rpc_call_is_full(t->call)))
        (void)bufferevent_disable(bev, EV_READ);
}

static void on_drain(struct rpc_call *call, void *arg)
{
    (void)call;
    struct tunnel *t = arg;
    if (cl_list_empty(&t->link))
        return;
    if (!t->eof_in)
        (void)bufferevent_enable(t->bev, EV_READ);
    on_readable(t->bev, t);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct tunnel *t = arg;
    if (!(what & BEV_EVENT_EOF)) {
        tunnel_close(t, true);
        return;
    }
    t->eof_in = true;
    on_readable(bev, t);
}

/* --- the beginning of one -----------------------------------------------------------------------
 */

static void refuse(int fd, const struct cl_err *err)
{
    cli_say("a connection was refused: %s", err->text);
    (void)close(fd);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                      int from_n, void *arg)
{
    (void)listener, (void)from, (void)from_n;
    static const struct rpc_client_events events = {on_message, on_drain, on_end};
    static const struct rpc_call_spec spec = {.path = "/cloche.v1.PortService/Connect",
                                              .out = &cloche__v1__connect_response__descriptor,
                                              .fail_fast = true};
    struct door *d = arg;
    struct forward *f = d->f;
    struct cl_err err = {0};
    int on = 1;
    struct tunnel *t = f->n_tunnels < TUNNELS_MAX ? cl_zalloc(sizeof *t) : NULL;
    struct bufferevent *bev =
        t ? bufferevent_socket_new(cl_loop_base(client_loop(f->client)), (int)fd,
                                   BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS)
          : NULL;
    if (!bev) {
        cl_free(t);
        (void)cl_fail(&err, CL_E_TOOBIG, 0, "%d are open already", TUNNELS_MAX);
        refuse((int)fd, &err);
        return;
    }
    *t = (struct tunnel){.f = f, .port = d->port, .bev = bev};
    (void)setsockopt((int)fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    cl_list_push(&f->tunnels, &t->link);
    f->n_tunnels++;
    bufferevent_setcb(bev, on_readable, on_written, on_event, t);
    bufferevent_setwatermark(bev, EV_READ, 0, READ_AHEAD);
    bufferevent_setwatermark(bev, EV_WRITE, WAITING_MAX / 2, 0);
    if (rpc_channel_call(client_channel(f->client), &spec, &events, t, &t->call, &err) < 0 ||
        send_first(t, &err) < 0) {
        cli_say("port %u: %s", t->port, err.text);
        tunnel_close(t, true);
    }
}

/* --- the whole ----------------------------------------------------------------------------------
 */

static void on_signal(int signo, void *arg)
{
    (void)signo;
    struct forward *f = arg;
    f->stopping = true;
    cl_loop_stop(client_loop(f->client));
}

static int open_door(struct forward *f, const struct forward_port *p, json_t *rows,
                     struct cl_err *err)
{
    struct door *d = &f->doors[f->n_doors];
    int fd;
    if (cl_tcp_listen(p->address, BACKLOG, &fd, err) < 0)
        return -1;
    *d = (struct door){.f = f, .port = p->port};
    int host_n = (int)(strrchr(p->address, ':') - p->address);
    unsigned port = cl_tcp_port(fd);
    d->listener = evconnlistener_new(cl_loop_base(client_loop(f->client)), on_accept, d,
                                     LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, -1, fd);
    if (!d->listener) {
        (void)close(fd);
        return cl_fail(err, CL_E_NOMEM, 0, "listener");
    }
    f->n_doors++;
    (void)json_array_append_new(rows, json_pack("{s:o, s:i}", "listen",
                                                json_sprintf("%.*s:%u", host_n, p->address, port),
                                                "port", (int)p->port));
    return 0;
}

static void say_doors(const struct forward *f, json_t *rows, bool json)
{
    size_t i;
    json_t *row;
    if (json) {
        (void)out_json(json_incref(rows));
        (void)fflush(stdout);
        return;
    }
    json_array_foreach(rows, i, row)
        cli_say("%s -> port %u of %s", json_string_value(json_object_get(row, "listen")),
                f->doors[i].port, f->sandbox);
}

static void close_all(struct forward *f)
{
    for (size_t i = 0; i < f->n_doors; i++)
        evconnlistener_free(f->doors[i].listener);
    CL_LIST_FOREACH (node, &f->tunnels)
        tunnel_close(CL_LIST_ENTRY(node, struct tunnel, link), true);
    for (int i = 0; i < 50 && rpc_channel_calls(client_channel(f->client)) > 0; i++)
        cl_loop_turn(client_loop(f->client), 10 * CL_NS_PER_MS);
}

int forward_run(struct client *c, const char *sandbox, const struct forward_port *ports, size_t n,
                bool json, struct cl_err *err)
{
    struct forward f = {.client = c, .sandbox = sandbox};
    json_t *rows = json_array();
    int rc = 0;
    cl_list_init(&f.tunnels);
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = open_door(&f, &ports[i], rows, err);
    if (rc == 0 && (cl_loop_on_signal(client_loop(c), SIGINT, on_signal, &f, err) < 0 ||
                    cl_loop_on_signal(client_loop(c), SIGTERM, on_signal, &f, err) < 0))
        rc = -1;
    if (rc == 0) {
        say_doors(&f, rows, json);
        while (!f.stopping && !f.gone)
            cl_loop_run(client_loop(c));
    }
    json_decref(rows);
    close_all(&f);
    (void)signal(SIGINT, SIG_IGN); /* their handler points to f */
    (void)signal(SIGTERM, SIG_IGN);
    if (rc == 0 && f.gone && err)
        *err = f.why;
    return rc < 0 || f.gone ? -1 : 0;
}
