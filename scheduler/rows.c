/* scheduler/rows.c - see scheduler/rows.h. */
#include "scheduler/rows.h"

#include "base/clock.h"
#include "policy/quota.h"
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
