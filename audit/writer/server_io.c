/* audit/writer/server_io.c - see audit/writer/server.h. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "audit/frame.h"
#include "audit/writer/server.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "observability/log.h"

enum {
    FRAMES_PER_TURN = 512, /* one producer must not starve the others */
    OUTPUT_MAX = 1 << 20,  /* of acks that a producer does not read */
    FAILURE_RETRY_MS = 1000,
};

struct peer {
    struct cl_list link;
    struct server *server;   /* borrowed */
    struct bufferevent *bev; /* owned */
    char source[AUDIT_SOURCE];
    uint64_t epoch;
    uint64_t newest, acked; /* producer's numbers: appended, acknowledged */
    bool gone;
    struct cl_grave grave;
};

struct server {
    struct cl_loop *loop; /* borrowed */
    struct store *store;  /* borrowed */
    struct server_conf conf;
    char socket[128];
    int fd; /* owned: listening */
    struct cl_fd_watch accepting;
    struct cl_timer checkpoint, flush;
    struct cl_list peers; /* owned */
    size_t n_peers;
    uint64_t last_checkpoint_ns, told_seq;
    bool refusing;
    char why[160];
};

/* --- telling peers -------------------------------------------------------------------------- */

static void peer_destroy(void *obj)
{
    struct peer *p = obj;
    bufferevent_free(p->bev);
    cl_free(p);
}

static void count_peers(struct server *s, int change)
{
    s->n_peers += (size_t)change;
    metrics_set(s->conf.metrics, METRIC_AUDIT_PRODUCERS, NULL, NULL, s->n_peers);
}

static void peer_drop(struct peer *p, const char *why)
{
    if (p->gone)
        return;
    p->gone = true;
    if (why)
        log_event(LOG_PRODUCER_DROPPED, "source='%s' text='%s'", p->source, why);
    (void)bufferevent_disable(p->bev, EV_READ | EV_WRITE);
    cl_list_unlink(&p->link);
    count_peers(p->server, -1);
    cl_loop_bury(p->server->loop, &p->grave, peer_destroy, p);
}

static void tell(struct peer *p, enum audit_frame_type type, uint64_t number, const char *text)
{
    struct cl_buf out;
    struct audit_frame f = {.type = type, .number = number, .text = text, .text_n = strlen(text)};
    cl_buf_init(&out, 512);
    if (audit_frame_pack(&out, &f, NULL) < 0 || bufferevent_write(p->bev, out.data, out.len) < 0 ||
        evbuffer_get_length(bufferevent_get_output(p->bev)) > OUTPUT_MAX)
        peer_drop(p, "it does not read its answers");
    cl_buf_fini(&out);
}

static void set_refusing(struct server *s, bool refusing, const char *why)
{
    (void)snprintf(s->why, sizeof s->why, "%s", why);
    if (s->refusing == refusing)
        return;
    s->refusing = refusing;
    metrics_set(s->conf.metrics, METRIC_AUDIT_TAKING, NULL, NULL, !refusing);
    if (refusing)
        log_event(LOG_RECORDS_REFUSED, "text='%s'", why);
    else
        log_event(LOG_RECORDS_TAKEN, "dir='%s'", s->conf.dir);
    CL_LIST_FOREACH (it, &s->peers) {
        struct peer *p = CL_LIST_ENTRY(it, struct peer, link);
        tell(p, AUDIT_F_STATE, !refusing, s->why);
        if (p->gone)
            continue;
        if (refusing) { /* what it sends stays in the socket: nothing is lost */
            (void)bufferevent_disable(p->bev, EV_READ);
            continue;
        }
        (void)bufferevent_enable(p->bev, EV_READ);
        bufferevent_trigger(p->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
    }
}

/* Write what this turn brought, then acknowledge it. */
static void on_flush(void *arg)
{
    struct server *s = arg;
    struct cl_err err = {0};
    uint64_t begin_ns = cl_now_ns();
    if (store_flush(s->store, &err) < 0) {
        set_refusing(s, true, err.text);
        cl_timer_start(&s->flush, FAILURE_RETRY_MS * CL_NS_PER_MS);
        return;
    }
    metrics_observe(s->conf.metrics, METRIC_AUDIT_FLUSH_SECONDS, NULL, NULL,
                    cl_now_ns() - begin_ns);
    CL_LIST_FOREACH (it, &s->peers) {
        struct peer *p = CL_LIST_ENTRY(it, struct peer, link);
        if (p->newest == p->acked)
            continue;
        p->acked = p->newest;
        tell(p, AUDIT_F_ACK, p->acked, "");
    }
}

/* --- reading peers -------------------------------------------------------------------------- */

static bool source_is_valid(const char *s)
{
    size_t n = strlen(s);
    return n > 0 &&
           n == strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/.");
}

static void copy_text(const struct audit_frame *f, char *out, size_t size)
{
    size_t n = CL_MIN(f->text_n, size - 1);
    if (n > 0)
        memcpy(out, f->text, n);
    out[n] = '\0';
}

static void on_hello(struct peer *p, const struct audit_frame *f)
{
    struct server *s = p->server;
    copy_text(f, p->source, sizeof p->source);
    if (f->protocol != AUDIT_PROTOCOL || f->number == 0 || !source_is_valid(p->source) ||
        p->epoch != 0) {
        peer_drop(p, "a bad hello");
        return;
    }
    p->epoch = f->number;
    tell(p, AUDIT_F_STATE, !s->refusing, s->why);
    if (!p->gone)
        tell(p, AUDIT_F_WELCOME, 0, "");
    if (s->refusing && !p->gone)
        (void)bufferevent_disable(p->bev, EV_READ);
}

static bool is_ours(enum audit_event ev)
{
    return ev == AUDIT_STREAM_OPEN || ev == AUDIT_RECOVERED || ev == AUDIT_CHECKPOINT ||
           ev == AUDIT_TENANT_CHECKPOINT;
}

static void on_record(struct peer *p, const struct audit_frame *f)
{
    struct server *s = p->server;
    char tenant[AUDIT_STREAM];
    struct cl_err err = {0};
    copy_text(f, tenant, sizeof tenant);
    struct store_record rec = {.tenant = tenant,
                               .source = p->source,
                               .epoch = p->epoch,
                               .n = f->number,
                               .wall_ns = f->wall_ns,
                               .event = f->event,
                               .assurance = f->assurance,
                               .fields = f->fields,
                               .fields_n = f->fields_n};
    if (p->epoch == 0 || is_ours(f->event) || f->number <= p->newest) {
        peer_drop(p, "a record out of turn");
        return;
    }
    if (store_append(s->store, &rec, &err) < 0) {
        peer_drop(p, err.text);
        return;
    }
    p->newest = f->number;
    metrics_add(s->conf.metrics, METRIC_AUDIT_RECORDS, NULL, NULL, 1);
    if (!cl_timer_is_armed(&s->flush))
        cl_timer_start(&s->flush, 0);
}

static void on_readable(struct bufferevent *bev, void *arg)
{
    struct peer *p = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    for (int i = 0; !p->gone && !p->server->refusing; i++) {
        size_t n = CL_MIN(evbuffer_get_length(in), (size_t)AUDIT_FRAME_HEADER + AUDIT_FRAME_MAX),
               used = 0;
        struct audit_frame f;
        struct cl_err err = {0};
        const uint8_t *data = n ? evbuffer_pullup(in, (ssize_t)n) : NULL;
        if (!data)
            return;
        if (i == FRAMES_PER_TURN) {
            bufferevent_trigger(bev, EV_READ,
                                BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
            return;
        }
        if (audit_frame_parse(data, n, &f, &used, &err) < 0) {
            peer_drop(p, err.text);
            return;
        }
        if (used == 0)
            return;
        if (f.type == AUDIT_F_HELLO)
            on_hello(p, &f);
        else if (f.type == AUDIT_F_RECORD)
            on_record(p, &f);
        else
            peer_drop(p, "it speaks like a writer");
        (void)evbuffer_drain(in, used);
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev, (void)what;
    peer_drop(arg, NULL);
}

static bool is_allowed(const struct server *s, int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return false;
    if (audit_uids_have(&s->conf.producers, cred.uid))
        return true;
    log_event(LOG_PRODUCER_REFUSED, "uid=%u", cred.uid);
    return false;
}

static void on_accept(int fd, int what, void *arg)
{
    (void)what;
    struct server *s = arg;
    CL_AUTO(cl_closep) int conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (conn < 0 || s->n_peers >= PRODUCERS_MAX || !is_allowed(s, conn))
        return;
    struct peer *p = cl_zalloc(sizeof *p);
    struct bufferevent *bev =
        p ? bufferevent_socket_new(cl_loop_base(s->loop), conn, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!bev) {
        cl_free(p);
        return;
    }
    (void)cl_steal_fd(&conn);
    p->server = s;
    p->bev = bev;
    cl_list_push(&s->peers, &p->link);
    count_peers(s, 1);
    bufferevent_setcb(bev, on_readable, NULL, on_event, p);
    bufferevent_setwatermark(bev, EV_READ, 0, 4 * (AUDIT_FRAME_HEADER + AUDIT_FRAME_MAX));
    (void)bufferevent_enable(bev, EV_READ | EV_WRITE);
}

/* --- once a second -------------------------------------------------------------------------- */

static void check_reserve(struct server *s)
{
    uint64_t free_bytes = 0;
    struct cl_err err = {0};
    char why[160];
    if (cl_disk_free(s->conf.dir, &free_bytes, &err) < 0) {
        set_refusing(s, true, err.text);
        return;
    }
    (void)snprintf(why, sizeof why,
                   "disk of the audit log: %" PRIu64 " MiB free, reserve %" PRIu64
                   " MiB; free some",
                   (uint64_t)(free_bytes / CL_MIB), (uint64_t)(*s->conf.reserve_bytes / CL_MIB));
    bool low = free_bytes < *s->conf.reserve_bytes;
    if (low || !cl_timer_is_armed(&s->flush))
        set_refusing(s, low, low ? why : "");
}

static void tell_head(struct server *s)
{
    uint64_t seq;
    const char *hash;
    store_head(s->store, &seq, &hash);
    if (seq == s->told_seq)
        return;
    s->told_seq = seq;
    CL_LIST_FOREACH (it, &s->peers)
        tell(CL_LIST_ENTRY(it, struct peer, link), AUDIT_F_HEAD, seq, hash);
}

static void on_checkpoint(void *arg)
{
    struct server *s = arg;
    struct cl_err err = {0};
    uint64_t now = cl_now_ns();
    bool idle = now - s->last_checkpoint_ns >= s->conf.idle_checkpoint_ns;
    if (store_checkpoint(s->store, idle, &err) < 0) {
        set_refusing(s, true, err.text);
        return;
    }
    check_reserve(s);
    uint64_t before = s->told_seq;
    tell_head(s);
    if (s->told_seq == before)
        return;
    s->last_checkpoint_ns = now;
    metrics_set(s->conf.metrics, METRIC_AUDIT_HEAD_SEQ, NULL, NULL, s->told_seq);
    metrics_observe(s->conf.metrics, METRIC_AUDIT_CHECKPOINT_SECONDS, NULL, NULL,
                    cl_now_ns() - now);
}

/* --- life ----------------------------------------------------------------------------------- */

int server_new(struct cl_loop *loop, const struct server_conf *conf, struct store *store,
               struct server **ret_server, struct cl_err *err)
{
    CL_AUTO(server_freep) struct server *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "audit server");
    s->loop = loop;
    s->store = store;
    s->conf = *conf;
    s->fd = -1;
    cl_list_init(&s->peers);
    (void)snprintf(s->socket, sizeof s->socket, "%s", conf->socket);
    if (cl_unix_listen(conf->socket, 0660, &s->fd, err) < 0 ||
        cl_timer_init(&s->flush, loop, on_flush, s, err) < 0 ||
        cl_timer_init(&s->checkpoint, loop, on_checkpoint, s, err) < 0 ||
        cl_fd_watch_init(&s->accepting, loop, s->fd, CL_READ, on_accept, s, err) < 0)
        return -1;
    s->last_checkpoint_ns = cl_now_ns();
    metrics_set(conf->metrics, METRIC_AUDIT_TAKING, NULL, NULL, 1);
    check_reserve(s);
    cl_timer_every(&s->checkpoint, conf->checkpoint_ns);
    *ret_server = CL_STEAL(&s);
    return 0;
}

void server_free(struct server *s)
{
    if (!s)
        return;
    CL_LIST_FOREACH (it, &s->peers)
        peer_drop(CL_LIST_ENTRY(it, struct peer, link), NULL);
    cl_fd_watch_fini(&s->accepting);
    cl_timer_fini(&s->flush);
    cl_timer_fini(&s->checkpoint);
    cl_closep(&s->fd);
    cl_free(s);
}
