/* worker/unit_watch_io.c - what a unit's guest and its network tell of it, on to the audit log; see
 * worker/unit.h.
 */
#include "base/clock.h"
#include "worker/net_words.h"
#include "worker/unit_priv.h"

/* --- what user code does ---------------------------------------------------------------------- */

static const char *exec_of_stream(const struct unit *u, uint64_t stream)
{
    for (const struct cl_list *l = u->execs.next; stream && l != &u->execs; l = l->next) {
        const struct exec_slot *slot =
            (const struct exec_slot *)(const void *)l; /* link comes first */
        if (exec_guest_stream(slot->exec) == stream)
            return exec_id(slot->exec);
    }
    return "";
}
_Static_assert(offsetof(struct exec_slot, link) == 0, "exec_of_stream() relies on it");

void unit_fill_count(const struct watch *watch, bool last, Cloche__V1__WatchCount *m)
{
    cloche__v1__watch_count__init(m);
    m->seen = watch->seen;
    m->over = watch->over;
    m->lost = watch->lost;
    m->missing = last ? watch_missing(watch) : 0;
    m->last = last;
}

void unit_watched(void *arg, const Cloche__V1__GuestEvents *batch)
{
    enum { BATCH_MAX = 64 }; /* agents send at most 16 */
    struct unit *u = arg;
    Cloche__V1__WatchedEvent rows[BATCH_MAX], *list[BATCH_MAX];
    Cloche__V1__WatchCount count;
    Cloche__V1__UnitWatched m = CLOCHE__V1__UNIT_WATCHED__INIT;
    uint64_t now_us = cl_now_ns() / CL_NS_PER_US;
    watch_note(&u->watch, batch);
    m.events = list;
    for (size_t i = 0; i < batch->n_events; i++) {
        Cloche__V1__GuestEvent *event = batch->events[i];
        if (m.n_events == BATCH_MAX) {
            watch_unheard(&u->watch, 1);
            continue;
        }
        if (!watch_admits(&u->watch, &u->units->watch_limits, watch_class_of(event), now_us))
            continue;
        Cloche__V1__WatchedEvent *row = list[m.n_events] = &rows[m.n_events];
        m.n_events++;
        cloche__v1__watched_event__init(row);
        row->event = event;
        row->exec_id = (char *)(uintptr_t)exec_of_stream(u, event->stream);
    }
    if (m.n_events == 0)
        return; /* what was left out is told with the next, or at the end */
    if (watch_has_news(&u->watch)) {
        unit_fill_count(&u->watch, false, &count);
        m.count = &count;
    }
    if (!u->units->events.on_watched(u->units->arg, u, &m))
        watch_unheard(&u->watch, m.n_events);
    else if (m.count)
        watch_tell(&u->watch);
}

/* --- its network --------------------------------------------------------------------------------
 */

/* Sums only grow, and what was held for it is the most that it is charged. */
static void note_totals(struct unit *u, const struct net_event *totals)
{
    uint64_t sent = CL_MAX(u->sent_bytes, totals->sent);
    u->sent_bytes = CL_MIN(sent, u->assign->network_grant->egress_bytes);
    u->received_bytes = CL_MAX(u->received_bytes, totals->received);
    u->network.seen = CL_MAX(u->network.seen, totals->number);
}

/* Who asks for names or sends to where he may not hides no flow by it. */
static enum watch_class network_class(const struct net_event *event)
{
    return event->kind == NET_EVENT_OPEN || event->kind == NET_EVENT_CLOSE ? WATCH_FEW : WATCH_MANY;
}

void unit_flowed(void *arg, const struct net_event *event)
{
    struct unit *u = arg;
    struct net_words_row row;
    Cloche__V1__NetworkEvent *list[1] = {&row.m};
    Cloche__V1__WatchCount count;
    Cloche__V1__UnitWatched m = CLOCHE__V1__UNIT_WATCHED__INIT;
    if (event->kind == NET_EVENT_TOTALS) {
        note_totals(u, event);
        return;
    }
    watch_note_number(&u->network, event->number);
    if (!watch_admits(&u->network, &u->units->watch_limits, network_class(event),
                      cl_now_ns() / CL_NS_PER_US))
        return;
    net_words_event(event, u->assign->network_grant, &row);
    m.network = list;
    m.n_network = 1;
    if (watch_has_news(&u->network)) {
        unit_fill_count(&u->network, false, &count);
        m.network_count = &count;
    }
    if (!u->units->events.on_watched(u->units->arg, u, &m))
        watch_unheard(&u->network, 1);
    else if (m.network_count)
        watch_tell(&u->network);
}
