/* audit/producer_io.c - see audit/producer.h. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "audit/frame.h"
#include "audit/producer.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"

enum {
    RECORDS_DEFAULT = 16384, /* without it a writer that is away would make us hold any amount */
    BYTES_DEFAULT = 16 << 20,
    ACK_TIMEOUT_S = 10,
    RETRY_MIN_MS = 20,
    RETRY_MAX_MS = 1000,
    TICK_MS = 100,
};

struct entry {
    struct cl_list link;
    uint64_t n, at_ns;
    audit_ack_fn *on_ack; /* NULL once answered */
    void *arg;            /* borrowed */
    size_t len;
    uint8_t frame[];
};

struct audit_producer {
    struct cl_loop *loop; /* borrowed */
    char *path;           /* owned */
    char source[AUDIT_SOURCE];
    struct audit_producer_conf conf;
    uint64_t epoch, next_n;
    struct bufferevent *bev; /* owned; NULL while away */
    bool welcome, refused, closing;
    char why[AUDIT_STRING_MAX / 16];
    struct cl_list entries; /* owned; without ack, oldest first */
    size_t n_entries, bytes;
    uint64_t lost, lost_total;
    uint64_t retry_ms;
    struct cl_timer retry, tick;
    struct cl_grave grave;
};

static int keep(struct audit_producer *p, enum audit_assurance assurance, const char *tenant,
                enum audit_event ev, const struct audit_field *fields, size_t n,
                audit_ack_fn *on_ack, void *arg, struct cl_err *err);

bool audit_is_healthy(const struct audit_producer *p, const char **ret_why)
{
    bool ok = p->welcome && !p->refused;
    if (ret_why)
        *ret_why = ok ? "" : p->why;
    return ok;
}

size_t audit_producer_waiting(const struct audit_producer *p)
{
    return p->n_entries;
}

uint64_t audit_producer_lost(const struct audit_producer *p)
{
    return p->lost_total;
}

/* --- entries -------------------------------------------------------------------------------- */

static void entry_drop(struct audit_producer *p, struct entry *e)
{
    cl_list_unlink(&e->link);
    p->n_entries--;
    p->bytes -= e->len;
    cl_free(e);
}

static void entry_answer(struct entry *e, const struct cl_err *err)
{
    audit_ack_fn *fn = e->on_ack;
    e->on_ack = NULL;
    if (fn)
        fn(err, e->arg);
}

static void acknowledge(struct audit_producer *p, uint64_t n)
{
    while (!cl_list_empty(&p->entries) && !p->closing) {
        struct entry *e = CL_LIST_ENTRY(p->entries.next, struct entry, link);
        if (e->n > n)
            return;
        audit_ack_fn *fn = e->on_ack;
        void *arg = e->arg;
        entry_drop(p, e);
        if (fn)
            fn(NULL, arg);
    }
}

static void send_all(struct audit_producer *p)
{
    CL_LIST_FOREACH (it, &p->entries) {
        struct entry *e = CL_LIST_ENTRY(it, struct entry, link);
        (void)bufferevent_write(p->bev, e->frame, e->len);
    }
}

/* --- the connection ------------------------------------------------------------------------- */

static void lose(struct audit_producer *p, const char *why)
{
    if (p->bev)
        bufferevent_free(p->bev);
    p->bev = NULL;
    p->welcome = p->refused = false;
    (void)snprintf(p->why, sizeof p->why,
                   "cloche-audit at %.100s is away (%.60s); start it (`cloche up`)", p->path, why);
    cl_timer_start(&p->retry, p->retry_ms * CL_NS_PER_MS);
    p->retry_ms = CL_MIN(p->retry_ms * 2, (uint64_t)RETRY_MAX_MS);
}

static void tell_gap(struct audit_producer *p)
{
    if (p->lost == 0)
        return;
    struct audit_field f[] = {AUDIT_NUM("count", p->lost), AUDIT_STR("producer", p->source),
                              AUDIT_STR("reason", "the producer's buffer was full")};
    if (keep(p, AUDIT_H0, NULL, AUDIT_GAP, f, CL_COUNT(f), NULL, NULL, NULL) == 0)
        p->lost = 0;
}

static void on_head(struct audit_producer *p, const struct audit_frame *f)
{
    char hash[AUDIT_HASH_TEXT];
    if (f->text_n != AUDIT_HASH_HEX || !p->conf.on_head)
        return;
    memcpy(hash, f->text, AUDIT_HASH_HEX);
    hash[AUDIT_HASH_HEX] = '\0';
    p->conf.on_head(f->number, hash, p->conf.arg);
}

static void on_frame(struct audit_producer *p, const struct audit_frame *f)
{
    switch (f->type) {
    case AUDIT_F_WELCOME:
        p->welcome = true;
        p->retry_ms = RETRY_MIN_MS;
        send_all(p);
        break;
    case AUDIT_F_ACK:
        acknowledge(p, f->number);
        if (!p->closing)
            tell_gap(p);
        break;
    case AUDIT_F_STATE:
        p->refused = f->number == 0;
        (void)snprintf(p->why, sizeof p->why, "%.*s", (int)f->text_n, f->text);
        break;
    case AUDIT_F_HEAD:
        on_head(p, f);
        break;
    case AUDIT_F_HELLO:
    case AUDIT_F_RECORD:
        lose(p, "it speaks like a producer");
        break;
    }
}

static void on_readable(struct bufferevent *bev, void *arg)
{
    struct audit_producer *p = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    while (p->bev && !p->closing) {
        size_t n = CL_MIN(evbuffer_get_length(in), (size_t)AUDIT_FRAME_HEADER + AUDIT_FRAME_MAX),
               used = 0;
        struct audit_frame f;
        struct cl_err err = {0};
        const uint8_t *data = n ? evbuffer_pullup(in, (ssize_t)n) : NULL;
        if (!data)
            return;
        if (audit_frame_parse(data, n, &f, &used, &err) < 0) {
            lose(p, err.text);
            return;
        }
        if (used == 0)
            return;
        on_frame(p, &f);
        if (p->bev)
            (void)evbuffer_drain(in, used);
    }
}

static void say_hello(struct audit_producer *p)
{
    struct cl_buf out;
    struct audit_frame f = {
        .type = AUDIT_F_HELLO, .number = p->epoch, .text = p->source, .text_n = strlen(p->source)};
    cl_buf_init(&out, 512);
    if (audit_frame_pack(&out, &f, NULL) < 0 || bufferevent_write(p->bev, out.data, out.len) < 0)
        lose(p, "out of memory");
    cl_buf_fini(&out);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct audit_producer *p = arg;
    if (what & BEV_EVENT_CONNECTED)
        say_hello(p);
    else
        lose(p, (what & BEV_EVENT_EOF) ? "it closed the connection" : strerror(errno));
}

static void connect_now(void *arg)
{
    struct audit_producer *p = arg;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    memcpy(un.sun_path, p->path, strlen(p->path) + 1);
    p->bev = bufferevent_socket_new(cl_loop_base(p->loop), -1, BEV_OPT_CLOSE_ON_FREE);
    if (!p->bev) {
        lose(p, "out of memory");
        return;
    }
    bufferevent_setcb(p->bev, on_readable, NULL, on_event, p);
    (void)bufferevent_enable(p->bev, EV_READ | EV_WRITE);
    if (bufferevent_socket_connect(p->bev, (struct sockaddr *)&un, (int)sizeof un) < 0 && p->bev)
        lose(p, "cannot connect");
    else if (p->bev)
        cl_fd_cloexec(bufferevent_getfd(p->bev));
}

static void on_tick(void *arg)
{
    struct audit_producer *p = arg;
    uint64_t now = cl_now_ns();
    struct cl_err late = {0};
    (void)cl_fail(&late, CL_E_UNAVAILABLE, 0, "the audit log does not answer in time%s%s",
                  p->why[0] ? ": " : "", p->why);
    for (;;) {
        struct entry *found = NULL;
        CL_LIST_FOREACH (it, &p->entries) {
            struct entry *e = CL_LIST_ENTRY(it, struct entry, link);
            if (now - e->at_ns < p->conf.ack_timeout_ns)
                break; /* they are in the order of their making */
            if (e->on_ack) {
                found = e;
                break;
            }
        }
        if (!found || p->closing)
            return;
        entry_answer(found, &late);
    }
}

/* --- emit ----------------------------------------------------------------------------------- */

static int keep(struct audit_producer *p, enum audit_assurance assurance, const char *tenant,
                enum audit_event ev, const struct audit_field *fields, size_t n,
                audit_ack_fn *on_ack, void *arg, struct cl_err *err)
{
    struct cl_buf text, frame;
    cl_buf_init(&text, 4 * AUDIT_FIELDS_MAX);
    cl_buf_init(&frame, 2 * AUDIT_FRAME_MAX);
    int rc = audit_fields_format(&text, ev, fields, n, err);
    struct audit_frame f = {.type = AUDIT_F_RECORD,
                            .number = p->next_n,
                            .text = tenant ? tenant : "",
                            .text_n = tenant ? strlen(tenant) : 0,
                            .wall_ns = cl_wall_ns(),
                            .event = ev,
                            .assurance = assurance,
                            .fields = (const char *)text.data,
                            .fields_n = text.len};
    if (rc == 0)
        rc = audit_frame_pack(&frame, &f, err);
    if (rc == 0 &&
        (p->n_entries >= p->conf.max_records || p->bytes + frame.len > p->conf.max_bytes))
        rc = cl_fail(err, CL_E_UNAVAILABLE, 0, "%zu audit records wait for cloche-audit%s%s",
                     p->n_entries, p->why[0] ? ": " : "", p->why);
    struct entry *e = rc == 0 ? cl_zalloc(sizeof *e + frame.len) : NULL;
    if (rc == 0 && !e)
        rc = cl_fail(err, CL_E_NOMEM, 0, "audit record");
    if (e) {
        e->n = p->next_n++;
        e->at_ns = cl_now_ns();
        e->on_ack = on_ack;
        e->arg = arg;
        e->len = frame.len;
        memcpy(e->frame, frame.data, frame.len);
        cl_list_push(&p->entries, &e->link);
        p->n_entries++;
        p->bytes += e->len;
        if (p->welcome)
            (void)bufferevent_write(p->bev, e->frame, e->len);
    }
    cl_buf_fini(&text);
    cl_buf_fini(&frame);
    return rc;
}

int audit_emit_as(struct audit_producer *p, enum audit_assurance assurance, const char *tenant,
                  enum audit_event ev, const struct audit_field *fields, size_t n,
                  audit_ack_fn *on_ack, void *arg, struct cl_err *err)
{
    struct cl_err why = {0};
    if (on_ack && p->refused)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the audit log refuses records: %s", p->why);
    if (keep(p, assurance, tenant, ev, fields, n, on_ack, arg, &why) == 0)
        return 0;
    if (!on_ack && why.code != CL_E_INVALID) {
        p->lost++;
        p->lost_total++;
        return 0;
    }
    if (err)
        *err = why;
    return -1;
}

int audit_emit(struct audit_producer *p, const char *tenant, enum audit_event ev,
               const struct audit_field *fields, size_t n, audit_ack_fn *on_ack, void *arg,
               struct cl_err *err)
{
    return audit_emit_as(p, AUDIT_H0, tenant, ev, fields, n, on_ack, arg, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static void destroy(void *obj)
{
    struct audit_producer *p = obj;
    while (!cl_list_empty(&p->entries))
        entry_drop(p, CL_LIST_ENTRY(p->entries.next, struct entry, link));
    cl_timer_fini(&p->retry);
    cl_timer_fini(&p->tick);
    if (p->bev)
        bufferevent_free(p->bev);
    cl_free(p->path);
    cl_free(p);
}

void audit_producer_free(struct audit_producer *p)
{
    if (!p || p->closing)
        return;
    p->closing = true;
    cl_timer_stop(&p->retry);
    cl_timer_stop(&p->tick);
    if (p->bev)
        (void)bufferevent_disable(p->bev, EV_READ | EV_WRITE);
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_CANCELLED, 0, "the audit producer is closing");
    CL_LIST_FOREACH (it, &p->entries)
        entry_answer(CL_LIST_ENTRY(it, struct entry, link), &err);
    cl_loop_bury(p->loop, &p->grave, destroy, p);
}

int audit_producer_new(struct cl_loop *loop, const struct audit_producer_conf *conf,
                       struct audit_producer **ret_producer, struct cl_err *err)
{
    size_t max_path = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (strlen(conf->socket) > max_path)
        return cl_fail(err, CL_E_INVALID, 0,
                       "audit socket '%s': at most %zu bytes; use a shorter run folder",
                       conf->socket, max_path);
    if (conf->source[0] == '\0' || strlen(conf->source) >= AUDIT_SOURCE)
        return cl_fail(err, CL_E_INVALID, 0, "audit source '%s'", conf->source);
    struct audit_producer *p = cl_zalloc(sizeof *p);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "audit producer");
    p->loop = loop;
    p->conf = *conf;
    p->conf.socket = p->conf.source = NULL;
    p->conf.max_records = conf->max_records ? conf->max_records : RECORDS_DEFAULT;
    p->conf.max_bytes = conf->max_bytes ? conf->max_bytes : BYTES_DEFAULT;
    p->conf.ack_timeout_ns =
        conf->ack_timeout_ns ? conf->ack_timeout_ns : ACK_TIMEOUT_S * CL_NS_PER_S;
    (void)snprintf(p->source, sizeof p->source, "%s", conf->source);
    (void)snprintf(p->why, sizeof p->why, "not connected yet");
    cl_random(&p->epoch, sizeof p->epoch);
    p->epoch >>= 12; /* a number that every JSON reader keeps: under 2^53 */
    p->next_n = 1;
    p->retry_ms = RETRY_MIN_MS;
    cl_list_init(&p->entries);
    p->path = cl_strdup(conf->socket);
    if (!p->path || cl_timer_init(&p->retry, loop, connect_now, p, err) < 0 ||
        cl_timer_init(&p->tick, loop, on_tick, p, err) < 0) {
        if (!p->path)
            (void)cl_fail(err, CL_E_NOMEM, 0, "audit producer");
        destroy(p);
        return -1;
    }
    cl_timer_start(&p->retry, 0);
    cl_timer_every(&p->tick, TICK_MS * CL_NS_PER_MS);
    *ret_producer = p;
    return 0;
}
