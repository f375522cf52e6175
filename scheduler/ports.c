/* scheduler/ports.c - PortService: connections to programs in a sandbox, relayed to its worker, and
 * links to them.
 *
 *   first message -> RECORDING --ack of port.open--> OPEN --each side's eof, or a failure--> over
 *
 * No record, no connection: the worker is asked when the audit log has port.open.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/port.pb-c.h"
#include "observability/log.h"
#include "policy/link.h"
#include "scheduler/api.h"
#include "scheduler/relays.h"

enum {
    PENDING_MAX = RPC_MESSAGE_MAX + RPC_OUT_HIGH, /* of a client that is told to stop at once */
    PIECE = 65536,
};

struct port_call {
    struct api_call *a; /* held */
    struct relay *relay;
    char unit_id[CL_ID_MAX], id[CL_ID_MAX];
    uint32_t port;
    uint64_t opened_ns, sent, received; /* sent: by the sandbox */
    struct cl_buf pending;              /* until the relay takes it */
    bool known, recorded;               /* the first message has come; port.open is in the log */
    bool eof, eof_sent, heard_all, finished; /* heard_all: the sandbox's eof came */
    struct cl_timer kick;
};

/* --- records ------------------------------------------------------------------------------------
 */

static int record_open(struct port_call *p, audit_ack_fn *on_ack, struct cl_err *err)
{
    const struct principal *who = &p->a->p;
    const struct audit_field fields[] = {AUDIT_STR("by", who->key_id),
                                         AUDIT_STR("connection", p->id),
                                         AUDIT_BOOL("link", who->link_sandbox[0]),
                                         AUDIT_NUM("port", p->port), AUDIT_STR("unit", p->unit_id)};
    return audit_emit(p->a->s->audit, who->tenant, AUDIT_PORT_OPEN, fields, CL_COUNT(fields),
                      on_ack, p, err);
}

static void record_close(struct port_call *p, const char *end, const struct cl_err *why)
{
    struct cl_err ignored = {0};
    const struct audit_field fields[] = {
        AUDIT_STR("connection", p->id),
        AUDIT_NUM("duration_us", (cl_now_ns() - p->opened_ns) / CL_NS_PER_US),
        AUDIT_STR("end", end),
        AUDIT_NUM("port", p->port),
        AUDIT_STR("reason", why ? why->text : NULL),
        AUDIT_NUM("received_bytes", p->received),
        AUDIT_NUM("sent_bytes", p->sent),
        AUDIT_STR("unit", p->unit_id)};
    if (audit_emit(p->a->s->audit, p->a->p.tenant, AUDIT_PORT_CLOSE, fields, CL_COUNT(fields), NULL,
                   NULL, &ignored) < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", ignored.text);
}

/* Of one that has its two records the call itself says nothing more. */
static void finish(struct port_call *p, const char *end, const struct cl_err *why)
{
    if (p->finished)
        return;
    p->finished = true;
    p->a->replied = true;
    if (p->recorded) {
        metrics_add(p->a->s->metrics, METRIC_PORT_CONNECTIONS, end, NULL, 1);
        record_close(p, end, why);
        p->a->audited = true;
    }
    api_audit(p->a, why);
    if (p->a->call)
        rpc_call_finish(p->a->call, why);
}

static void fail(struct port_call *p, const struct cl_err *why)
{
    finish(p, "failed", why);
}

/* --- the relay ----------------------------------------------------------------------------------
 */

static void push(struct port_call *p)
{
    struct cl_err err = {0};
    if (p->finished || !p->a->call || !p->relay || relay_is_full(p->relay))
        return;
    if (p->pending.len > 0 || (p->eof && !p->eof_sent)) {
        size_t n = CL_MIN(p->pending.len, (size_t)PIECE);
        bool last = p->eof && n == p->pending.len;
        if (relay_send(p->relay, p->pending.data, n, last, &err) < 0) {
            fail(p, &err);
            return;
        }
        cl_buf_consume(&p->pending, n);
        p->received += n;
        p->eof_sent = last;
        if (p->pending.len > 0 || (p->eof && !p->eof_sent))
            cl_timer_start(&p->kick, 0);
    }
    rpc_call_pause(p->a->call, p->pending.len > 0);
}

static void on_relay_message(void *arg, const Cloche__V1__RelayRequest *m)
{
    struct port_call *p = arg;
    struct cl_err err = {0};
    Cloche__V1__ConnectResponse out = CLOCHE__V1__CONNECT_RESPONSE__INIT;
    if (p->finished || !p->a->call)
        return;
    if (m->done) {
        if (m->done->code == 0)
            finish(p, "closed", NULL);
        return; /* else on_relay_end() says why */
    }
    out.connected = m->connected;
    out.data = m->data;
    out.eof = m->eof;
    p->sent += m->data.len;
    p->heard_all = p->heard_all || m->eof;
    if (rpc_call_send(p->a->call, &out.base, &err) < 0)
        fail(p, &err);
    else if (rpc_call_is_full(p->a->call))
        relay_pause(p->relay, true);
}

static void on_relay_drain(void *arg)
{
    struct port_call *p = arg;
    cl_timer_start(&p->kick, 0);
}

static void on_relay_end(void *arg, const struct cl_err *why)
{
    struct port_call *p = arg;
    p->relay = NULL;
    if (why)
        fail(p, why);
}

static void on_kick(void *arg)
{
    push(arg);
}

/* --- the connection -----------------------------------------------------------------------------
 */

static int open_relay(struct port_call *p, struct cl_err *err)
{
    static const struct relay_events events = {on_relay_message, on_relay_drain, on_relay_end};
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayDial dial = CLOCHE__V1__RELAY_DIAL__INIT;
    struct unit *u = unit_find(p->a->s, p->a->p.tenant, p->unit_id);
    struct worker *w = u ? unit_worker(u) : NULL;
    if (!w)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the sandbox or its worker left meanwhile");
    dial.port = p->port;
    open.unit_id = p->unit_id;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_DIAL;
    open.dial = &dial;
    return relay_open(w, &open, &events, p, &p->relay, err);
}

static void port_free(struct port_call *p)
{
    struct api_call *a = p->a;
    if (p->relay)
        relay_drop(p->relay);
    cl_buf_fini(&p->pending);
    cl_timer_fini(&p->kick);
    cl_free(p);
    api_release(a);
}

/* Without a record nothing happens, and its client may have left meanwhile. */
static void on_recorded(const struct cl_err *why, void *arg)
{
    struct port_call *p = arg;
    struct cl_err err = {0};
    p->recorded = !why;
    if (!p->a->call) {
        finish(p, "left", NULL);
        port_free(p);
    } else if (why) {
        fail(p, why);
    } else if (open_relay(p, &err) < 0) {
        fail(p, &err);
    }
}

static int check_port(const struct api_call *a, uint32_t port, struct cl_err *err)
{
    if (port < 1 || port > UINT16_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "port %u: 1 to 65535", port);
    if (a->p.link_port && a->p.link_port != port)
        return cl_fail(err, CL_E_DENIED, 0, "the link is to port %u", a->p.link_port);
    return 0;
}

/* The first message names what it is for. */
static bool introduce(struct port_call *p, const Cloche__V1__ConnectRequest *m)
{
    struct cl_err err = {0};
    struct worker *w;
    if (p->known)
        return true;
    if (check_port(p->a, m->port, &err) < 0) {
        fail(p, &err);
        return false;
    }
    const struct unit *u = api_unit(p->a, m->sandbox_id, BOOKS_SANDBOX, &w);
    if (!u) {
        p->finished = true;
        return false;
    }
    p->known = true;
    p->port = m->port;
    p->opened_ns = cl_now_ns();
    (void)snprintf(p->unit_id, sizeof p->unit_id, "%s", u->id);
    cl_id_new("con", p->id);
    if (record_open(p, on_recorded, &err) == 0)
        return true;
    fail(p, &err);
    return false;
}

static void connect_message(struct api_call *a, const ProtobufCMessage *msg)
{
    const Cloche__V1__ConnectRequest *m = (const Cloche__V1__ConnectRequest *)msg;
    struct port_call *p = a->state;
    struct cl_err err = {0};
    if (!p || p->finished || !introduce(p, m))
        return;
    if (p->eof && cl_fail(&err, CL_E_INVALID, 0, "bytes after the end") < 0) {
        fail(p, &err);
        return;
    }
    p->eof = m->eof;
    if (cl_buf_append(&p->pending, m->data.data, m->data.len, &err) < 0) {
        fail(p, &err);
        return;
    }
    rpc_call_pause(a->call, p->pending.len > 0);
    push(p);
}

static void connect_half_close(struct api_call *a)
{
    struct port_call *p = a->state;
    if (!p || p->finished)
        return;
    p->eof = true;
    if (p->known) {
        push(p);
    } else {
        p->finished = true;
        api_fail_with(a, CL_E_INVALID, "the stream ended before its first message");
    }
}

static void port_connect(struct api_call *a)
{
    struct cl_err err = {0};
    struct port_call *p = cl_zalloc(sizeof *p);
    if (!p || cl_timer_init(&p->kick, a->s->loop, on_kick, p, &err) < 0) {
        cl_free(p);
        api_fail_with(a, CL_E_NOMEM, "connection");
        return;
    }
    p->a = a;
    cl_buf_init(&p->pending, PENDING_MAX);
    api_hold(a);
    a->state = p;
}

static void connect_drain(struct api_call *a)
{
    const struct port_call *p = a->state;
    if (p && p->relay)
        relay_pause(p->relay, false);
}

static void connect_gone(struct api_call *a, const struct cl_err *why)
{
    struct port_call *p = a->state;
    if (!p)
        return;
    a->state = NULL;
    bool waits_for_record = p->known && !p->recorded && !p->finished;
    if (waits_for_record)
        return; /* on_recorded() frees it */
    finish(p, p->heard_all ? "closed" : "left", p->recorded ? NULL : why);
    port_free(p);
}

/* --- links --------------------------------------------------------------------------------------
 */

static int make_link(const struct api_call *a, const Cloche__V1__CreateLinkRequest *r,
                     struct link_facts *facts, char text[static LINK_TEXT], struct cl_err *err)
{
    if (r->port > UINT16_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "port %u: 1 to 65535, or 0 for every one", r->port);
    if (strcmp(a->p.key_id, PRINCIPAL_BY_TOKEN) == 0)
        return cl_fail(err, CL_E_STATE, 0,
                       "links are made with an API key, so that revoking it ends them\n"
                       "use a key, or forward the port (`cloche sandbox forward`)");
    *facts = (struct link_facts){.port = r->port};
    uint64_t now_ns = cl_wall_ns();
    if (r->ttl_ns)
        facts->expires_s = (now_ns + CL_MIN(r->ttl_ns, UINT64_MAX - now_ns)) / CL_NS_PER_S;
    (void)snprintf(facts->sandbox, sizeof facts->sandbox, "%s", r->sandbox_id);
    (void)snprintf(facts->key_id, sizeof facts->key_id, "%s", a->p.key_id);
    return link_make(facts, a->s->pepper, sizeof a->s->pepper, text, err);
}

static void port_create_link(struct api_call *a)
{
    const Cloche__V1__CreateLinkRequest *r = (const Cloche__V1__CreateLinkRequest *)a->request;
    Cloche__V1__CreateLinkResponse m = CLOCHE__V1__CREATE_LINK_RESPONSE__INIT;
    Cloche__V1__Time expires = CLOCHE__V1__TIME__INIT;
    struct cl_err err = {0};
    struct link_facts facts = {0};
    char text[LINK_TEXT];
    if (!api_unit(a, r->sandbox_id, BOOKS_SANDBOX, NULL))
        return;
    int rc = make_link(a, r, &facts, text, &err);
    const struct audit_field fields[] = {
        AUDIT_STR("by", a->p.key_id), AUDIT_NUM("expires_ms", facts.expires_s * 1000),
        AUDIT_NUM("port", r->port), AUDIT_STR("unit", r->sandbox_id)};
    if (rc < 0 || audit_emit(a->s->audit, a->p.tenant, AUDIT_PORT_LINK, fields, CL_COUNT(fields),
                             NULL, NULL, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    expires.unix_ns = facts.expires_s * CL_NS_PER_S;
    m.link = text;
    m.expires = facts.expires_s ? &expires : NULL;
    api_reply(a, &m.base);
}

#define METHOD(name) "/cloche.v1.PortService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method port_api[] = {
    {METHOD("Connect"), TYPES(connect_request, connect_response), .scope = SCOPE_RUN, .wakes = true,
     .takes_links = true, .client_streams = true, .server_streams = true, .handle = port_connect,
     .on_message = connect_message, .on_half_close = connect_half_close, .on_drain = connect_drain,
     .on_gone = connect_gone},
    {METHOD("CreateLink"), TYPES(create_link_request, create_link_response), .scope = SCOPE_RUN,
     .changes = true, .handle = port_create_link},
};
const size_t port_api_n = CL_COUNT(port_api);
