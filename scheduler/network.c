/* scheduler/network.c - what went over a unit's network becomes records of its tenant's stream. */
#include "observability/log.h"
#include "scheduler/rows.h"
#include "scheduler/sched_priv.h"

static void add_about(struct rows *r, const struct unit *u, const Cloche__V1__NetworkEvent *e)
{
    rows_add(r, (struct audit_field)AUDIT_NUM("number", e->number));
    rows_add(r, (struct audit_field)AUDIT_STR("unit", u->id));
}

/* The guest may have asked for the address without a name. */
static void add_flow(struct rows *r, const Cloche__V1__NetworkEvent *e)
{
    rows_add(r, (struct audit_field)AUDIT_STR("address", rows_text(e->address)));
    rows_add(r, (struct audit_field)AUDIT_STR("name", rows_text(e->name)));
    rows_add(r, (struct audit_field)AUDIT_STR("protocol", rows_text(e->protocol)));
    if (e->port)
        rows_add(r, (struct audit_field)AUDIT_NUM("port", e->port));
}

static int emit(struct unit *u, enum audit_event ev, const struct rows *r, struct cl_err *err)
{
    return rows_emit(r, u, AUDIT_H0, ev, err);
}

static int emit_dns(struct unit *u, struct rows *r, const Cloche__V1__NetworkEvent *e,
                    struct cl_err *err)
{
    const char *addresses[AUDIT_LIST_MAX];
    size_t n = CL_MIN(e->n_addresses, (size_t)AUDIT_LIST_MAX);
    for (size_t i = 0; i < n; i++)
        addresses[i] = e->addresses[i];
    rows_add(r, (struct audit_field)AUDIT_LIST("addresses", addresses, n));
    rows_add(r, (struct audit_field)AUDIT_NUM("duration_us", e->duration_us));
    rows_add(r, (struct audit_field)AUDIT_STR("name", e->name));
    rows_add(r, (struct audit_field)AUDIT_NUM("qtype", e->qtype));
    rows_add(r, (struct audit_field)AUDIT_NUM("rcode", e->rcode));
    rows_add(r, (struct audit_field)AUDIT_STR("reason", rows_text(e->reason)));
    rows_add(r, (struct audit_field)AUDIT_STR("rule", rows_text(e->rule)));
    return emit(u, AUDIT_NET_DNS, r, err);
}

static int emit_open(struct unit *u, struct rows *r, const Cloche__V1__NetworkEvent *e,
                     struct cl_err *err)
{
    add_flow(r, e);
    rows_add(r, (struct audit_field)AUDIT_NUM("flow", e->flow));
    rows_add(r, (struct audit_field)AUDIT_NUM("guest_port", e->guest_port));
    rows_add(r, (struct audit_field)AUDIT_STR("rule", e->rule));
    return emit(u, AUDIT_NET_OPEN, r, err);
}

static int emit_close(struct unit *u, struct rows *r, const Cloche__V1__NetworkEvent *e,
                      struct cl_err *err)
{
    add_flow(r, e);
    rows_add(r, (struct audit_field)AUDIT_NUM("duration_us", e->duration_us));
    rows_add(r, (struct audit_field)AUDIT_STR("end", e->end));
    rows_add(r, (struct audit_field)AUDIT_NUM("flow", e->flow));
    rows_add(r, (struct audit_field)AUDIT_NUM("received_bytes", e->received));
    rows_add(r, (struct audit_field)AUDIT_NUM("sent_bytes", e->sent));
    return emit(u, AUDIT_NET_CLOSE, r, err);
}

static int emit_denied(struct unit *u, struct rows *r, const Cloche__V1__NetworkEvent *e,
                       struct cl_err *err)
{
    add_flow(r, e);
    if (e->guest_port)
        rows_add(r, (struct audit_field)AUDIT_NUM("guest_port", e->guest_port));
    rows_add(r, (struct audit_field)AUDIT_STR("reason", e->reason));
    return emit(u, AUDIT_NET_DENIED, r, err);
}

static int emit_event(struct unit *u, const Cloche__V1__NetworkEvent *e, struct rows r,
                      struct cl_err *err)
{
    add_about(&r, u, e);
    switch ((int)e->kind) { /* of the wire: any value */
    case CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_DNS:
        return emit_dns(u, &r, e, err);
    case CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_OPEN:
        return emit_open(u, &r, e, err);
    case CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_CLOSE:
        return emit_close(u, &r, e, err);
    case CLOCHE__V1__NETWORK_EVENT_KIND__NETWORK_EVENT_KIND_DENIED:
        return emit_denied(u, &r, e, err);
    default:
        return cl_fail(err, CL_E_PEER, 0, "an event of the network of kind %d", (int)e->kind);
    }
}

static void emit_count(struct unit *u, const Cloche__V1__WatchCount *c)
{
    struct cl_err err = {0};
    uint64_t over = c->over + u->unrecorded_network, gone = over + c->missing;
    const struct audit_field fields[] = {
        AUDIT_BOOL("last", c->last), AUDIT_NUM("missing", c->missing),
        AUDIT_NUM("over", over),     AUDIT_NUM("recorded", c->seen > gone ? c->seen - gone : 0),
        AUDIT_NUM("seen", c->seen),  AUDIT_STR("unit", u->id),
    };
    if (audit_emit(u->sched->audit, u->tenant->name, AUDIT_NET_COUNT, fields, CL_COUNT(fields),
                   NULL, NULL, &err) < 0)
        log_event(LOG_AUDIT_REFUSES, "unit=%s text='%s'", u->id, err.text);
}

void unit_network(struct unit *u, const Cloche__V1__UnitWatched *m, struct receipt *receipt)
{
    struct rows rows = rows_begin(m, receipt);
    for (size_t i = 0; i < m->n_network; i++) {
        struct cl_err err = {0};
        if (rows_have_room(u, &u->tenant->network_tat_us) &&
            emit_event(u, m->network[i], rows, &err) == 0)
            continue;
        u->unrecorded_network++;
        if (err.code != CL_OK && err.code != CL_E_PEER)
            log_event(LOG_AUDIT_REFUSES, "unit=%s text='%s'", u->id, err.text);
    }
    if (m->network_count)
        emit_count(u, m->network_count);
}
