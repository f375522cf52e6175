/* scheduler/rows.c - see scheduler/rows.h. */
#include "scheduler/rows.h"

#include "base/clock.h"
#include "policy/quota.h"
#include "scheduler/receipts.h"
#include "scheduler/sched_priv.h"

enum {
    /* Of the producer's 16,384: guests must not be able to take the place of the records without
     * which no call is answered. */
    WAITING_MAX = 4096,
};

void rows_add(struct rows *r, struct audit_field field)
{
    CL_ASSERT(r->n < ROWS_MAX);
    r->field[r->n++] = field;
}

struct rows rows_begin(const Cloche__V1__UnitWatched *m, struct receipt *receipt)
{
    struct rows r = {.receipt = receipt};
    if (m->again)
        rows_add(&r, (struct audit_field)AUDIT_BOOL("again", true));
    return r;
}

int rows_emit(const struct rows *r, const struct unit *u, enum audit_assurance assurance,
              enum audit_event ev, struct cl_err *err)
{
    if (audit_emit_as(u->sched->audit, assurance, u->tenant->name, ev, r->field, r->n,
                      r->receipt ? receipt_written : NULL, r->receipt, err) < 0)
        return -1;
    if (r->receipt)
        receipt_awaits(r->receipt);
    return 0;
}

const char *rows_text(const char *s)
{
    return s[0] ? s : NULL;
}

bool rows_have_room(const struct unit *u, uint64_t *tat_us)
{
    const struct sched_options *o = u->sched->o;
    uint64_t retry_us;
    return audit_producer_waiting(u->sched->audit) < WAITING_MAX && o->guest_events_burst > 0 &&
           gcra_step(tat_us, cl_now_ns() / CL_NS_PER_US,
                     CL_NS_PER_S / CL_NS_PER_US / o->guest_events_rate, o->guest_events_burst,
                     &retry_us);
}
