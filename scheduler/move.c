/* scheduler/move.c - see scheduler/move.h. */
#include "scheduler/move.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "scheduler/relays.h"

enum {
    STALL_S = 60,         /* without a piece or an answer */
    BOOKS_AGAIN_MS = 500, /* they may have done it already: asked until they say */
};

enum step {
    OPENING = 1, /* the taker is to dial */
    PIPING,      /* until all is on the taker's disk */
    COMMITTING,  /* the books are told */
    TELLING,     /* they have noted it, and the taker is to say that it knows */
    CLOSING,     /* done: until both relays are over */
};

struct move {
    struct sched *s;
    struct unit *u; /* borrowed; NULL once it has ended, or the move */
    enum step step;
    struct relay *give, *take; /* NULL before and after */
    char from[BOOKS_NAME], to[BOOKS_NAME];
    char lease[CL_ID_MAX], old_lease[CL_ID_MAX];
    uint64_t old_fence;
    uint64_t bytes; /* of files */
    struct cl_timer timer;
    Cloche__V1__UnitEnded *ended; /* owned: its worker's word, which waits for the books' */
    move_done_fn *done;           /* NULL once it was called */
    void *arg;
};

/* --- life --------------------------------------------------------------------------------------
 */

/* It is over, and so are its relays. */
static void free_if_over(struct move *m)
{
    if (m->step != CLOSING || m->give || m->take)
        return;
    cl_timer_fini(&m->timer);
    if (m->ended)
        pb_free(&m->ended->base);
    cl_free(m);
}

static void wait_for_more(struct move *m)
{
    cl_timer_start(&m->timer, STALL_S * CL_NS_PER_S);
}

static void drop(struct relay **r)
{
    struct relay *relay = *r;
    *r = NULL;
    if (relay)
        relay_drop(relay);
}

static void tell(struct move *m, const struct cl_err *why)
{
    move_done_fn *done = m->done;
    m->done = NULL;
    m->u = NULL;
    if (done)
        done(m->arg, why);
}

static void close_now(struct move *m)
{
    m->step = CLOSING;
    drop(&m->give);
    drop(&m->take);
    cl_timer_start(&m->timer, 0); /* freed outside of every callback */
}

static void fail(struct move *m, const struct cl_err *why)
{
    struct cl_err text = *why; /* it may be a relay's */
    if (m->u)
        log_event(LOG_MOVE_FAILED, "unit=%s from=%s to=%s text='%s'", m->u->id, m->from, m->to,
                  text.text);
    close_now(m);
    tell(m, &text);
}

static void fail_with(struct move *m, enum cl_code code, const char *text)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, code, 0, "%s", text);
    fail(m, &why);
}

/* --- the books ---------------------------------------------------------------------------------
 */

static void send_moved(struct relay *r)
{
    Cloche__V1__RelayResponse m = CLOCHE__V1__RELAY_RESPONSE__INIT;
    m.moved = true;
    if (r)
        (void)!relay_send_message(r, &m, NULL); /* unsent: it finds out by its lease */
}

static void conclude(struct move *m)
{
    m->step = CLOSING;
    wait_for_more(m);
    tell(m, NULL);
}

static void become_moved(struct move *m)
{
    struct unit *u = m->u;
    struct cl_err err = {0};
    (void)snprintf(u->worker_id, sizeof u->worker_id, "%s", m->to);
    u->stuck_until_ns = 0;
    u->fence = m->old_fence + 1;
    if (unit_set_lease(u, m->lease, &err) < 0)
        log_event(LOG_MOVE_FAILED, "unit=%s text='%s'", u->id, err.text);
    const struct audit_field fields[] = {AUDIT_NUM("bytes", m->bytes), AUDIT_NUM("fence", u->fence),
                                         AUDIT_STR("from", m->from),   AUDIT_STR("lease", u->lease),
                                         AUDIT_STR("to", m->to),       AUDIT_STR("unit", u->id)};
    unit_emit(u, AUDIT_UNIT_MOVE, fields, CL_COUNT(fields));
    metrics_add(m->s->metrics, METRIC_SANDBOXES_MOVED, NULL, NULL, 1);
    log_event(LOG_SANDBOX_MOVED, "unit=%s from=%s to=%s bytes=%llu", u->id, m->from, m->to,
              (unsigned long long)m->bytes);
    m->step = TELLING;
    send_moved(m->give);
    send_moved(m->take);
    if (m->take)
        wait_for_more(m);
    else
        conclude(m);
}

/* What came while nobody knew whose it is. */
static void catch_up(struct move *m, struct unit *u)
{
    struct worker *w = cl_map_get(m->s->workers, m->from);
    if (u->cancel)
        unit_cancel(u, CLOCHE__V1__REASON__REASON_REQUESTED);
    if (m->ended && w)
        worker_unit_ended(w, m->ended);
}

static void on_noted(enum books_verdict verdict, const struct cl_err *err, void *arg)
{
    struct move *m = arg;
    struct unit *u = m->u;
    if (!u) {
        close_now(m);
        return;
    }
    if (err && err->code == CL_E_UNAVAILABLE) {
        cl_timer_start(&m->timer, BOOKS_AGAIN_MS * CL_NS_PER_MS);
        return;
    }
    u->moving = NULL;
    if (err || verdict == BOOKS_STALE)
        fail_with(m, CL_E_STATE, err ? err->text : "its lease is gone: it ends");
    else
        become_moved(m);
    catch_up(m, u);
}

static void on_looked(const struct books_unit *rows, size_t n, const char *next,
                      const struct cl_err *err, void *arg)
{
    (void)next;
    const struct move *m = arg;
    bool is_noted = n == 1 && strcmp(rows[0].lease, m->lease) == 0;
    on_noted(is_noted ? BOOKS_ALREADY : BOOKS_STALE, err, arg);
}

/* The taker has left, and gives up before long: what the books have not done by now they never do.
 */
static int look(struct move *m, struct cl_err *err)
{
    return books_get(m->s->books, m->u->tenant->name, m->u->id, 0, on_looked, m, err);
}

static void commit(struct move *m)
{
    struct cl_err err = {0};
    const struct books_hold hold = {m->u->tenant->name, m->u->id, m->old_lease, m->old_fence};
    const struct books_move to = {.lease = m->lease, .worker = m->to};
    m->step = COMMITTING;
    m->u->moving = m;
    cl_timer_stop(&m->timer);
    int rc = m->take ? books_move(m->s->books, &hold, &to, on_noted, m, &err) : look(m, &err);
    if (rc < 0)
        cl_timer_start(&m->timer, BOOKS_AGAIN_MS * CL_NS_PER_MS);
}

void move_note_end(struct move *m, const Cloche__V1__UnitEnded *ended)
{
    struct cl_err err = {0};
    ProtobufCMessage *copy;
    if (!m->ended && pb_copy(&ended->base, &copy, &err) == 0)
        m->ended = (Cloche__V1__UnitEnded *)copy;
}

static void on_timer(void *arg)
{
    struct move *m = arg;
    switch (m->step) {
    case OPENING:
    case PIPING:
        fail_with(m, CL_E_UNAVAILABLE, "nothing came or went for a minute");
        break;
    case COMMITTING:
        if (m->u)
            commit(m);
        else
            close_now(m);
        break;
    case TELLING:
        conclude(m);
        break;
    case CLOSING:
        drop(&m->give);
        drop(&m->take);
        free_if_over(m);
        break;
    }
}

/* --- the giver ---------------------------------------------------------------------------------
 */

static void give_message(void *arg, const Cloche__V1__RelayRequest *r)
{
    struct move *m = arg;
    struct cl_err err = {0};
    Cloche__V1__RelayResponse to = CLOCHE__V1__RELAY_RESPONSE__INIT;
    if (m->step != PIPING || !r->move || !m->take)
        return;
    wait_for_more(m);
    to.move = r->move;
    if (r->move->what_case == CLOCHE__V1__MOVE_PIECE__WHAT_DATA)
        m->bytes += r->move->data->data.len;
    if (relay_send_message(m->take, &to, &err) < 0)
        fail(m, &err);
    else if (relay_is_full(m->take))
        relay_pause(m->give, true);
}

static void give_drain(void *arg)
{
    (void)arg; /* what goes there is small */
}

static void give_end(void *arg, const struct cl_err *why)
{
    struct move *m = arg;
    m->give = NULL;
    if (m->step == PIPING && why)
        fail(m, why);
    else if (m->step == PIPING)
        fail_with(m, CL_E_PEER, "its worker ended the transfer too early");
    else
        free_if_over(m);
}

static int open_give(struct move *m, struct cl_err *err)
{
    static const struct relay_events events = {give_message, give_drain, give_end};
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayGive give = CLOCHE__V1__RELAY_GIVE__INIT;
    struct worker *from = cl_map_get(m->s->workers, m->from);
    if (!from)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "its worker is not connected");
    give.lease_id = m->old_lease;
    give.fence = m->old_fence;
    open.unit_id = m->u->id;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_GIVE;
    open.give = &give;
    return relay_open(from, &open, &events, m, &m->give, err);
}

/* --- the taker ---------------------------------------------------------------------------------
 */

static void take_message(void *arg, const Cloche__V1__RelayRequest *r)
{
    struct move *m = arg;
    struct cl_err err = {0};
    Cloche__V1__RelayResponse to = CLOCHE__V1__RELAY_RESPONSE__INIT;
    if (m->step == TELLING && r->done) {
        conclude(m);
        return;
    }
    if (m->step != PIPING)
        return;
    wait_for_more(m);
    to.missing = r->missing;
    if (r->taken)
        commit(m);
    else if (r->missing && m->give && relay_send_message(m->give, &to, &err) < 0)
        fail(m, &err);
}

/* It has dialled, or has room again. */
static void take_drain(void *arg)
{
    struct move *m = arg;
    struct cl_err err = {0};
    if (m->step == OPENING) {
        m->step = PIPING;
        wait_for_more(m);
        if (open_give(m, &err) < 0)
            fail(m, &err);
    } else if (m->give) {
        relay_pause(m->give, false);
    }
}

static void take_end(void *arg, const struct cl_err *why)
{
    struct move *m = arg;
    m->take = NULL;
    if ((m->step == OPENING || m->step == PIPING) && why)
        fail(m, why);
    else if (m->step == OPENING || m->step == PIPING)
        fail_with(m, CL_E_PEER, "the other worker ended the transfer too early");
    else if (m->step == TELLING)
        conclude(m); /* it finds out by the lease */
    else
        free_if_over(m);
}

int move_begin(struct unit *u, struct worker *to, move_done_fn *done, void *arg,
               struct move **ret_move, struct cl_err *err)
{
    static const struct relay_events events = {take_message, take_drain, take_end};
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayTake take = CLOCHE__V1__RELAY_TAKE__INIT;
    struct assignment assign;
    struct move *m = cl_zalloc(sizeof *m);
    if (!m)
        return cl_fail(err, CL_E_NOMEM, 0, "move");
    *m = (struct move){
        .s = u->sched, .u = u, .step = OPENING, .old_fence = u->fence, .done = done, .arg = arg};
    cl_id_new("lease", m->lease);
    (void)snprintf(m->old_lease, sizeof m->old_lease, "%s", u->lease);
    (void)snprintf(m->from, sizeof m->from, "%s", u->worker_id);
    (void)snprintf(m->to, sizeof m->to, "%s", to->id);
    unit_assignment(u, &assign);
    assign.m.lease_id = m->lease;
    assign.m.fence = u->fence + 1;
    take.assign = &assign.m;
    open.unit_id = u->id;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_TAKE;
    open.take = &take;
    if (cl_timer_init(&m->timer, u->sched->loop, on_timer, m, err) < 0 ||
        relay_open(to, &open, &events, m, &m->take, err) < 0) {
        cl_timer_fini(&m->timer);
        cl_free(m);
        return -1;
    }
    wait_for_more(m);
    *ret_move = m;
    return 0;
}

void move_abandon(struct move *m)
{
    m->u->moving = NULL;
    m->u = NULL;
    m->done = NULL;
    if (m->step != COMMITTING) /* then the books' answer, or the timer, closes it */
        close_now(m);
}
