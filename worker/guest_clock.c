/* worker/guest_clock.c - see worker/guest_clock.h.  The offset and how far it may be off are those
 * of RFC 5905, section 8. */
#include "worker/guest_clock.h"

#include "base/util.h"

int64_t guest_clock_lag(const struct guest_clock_reading *r)
{
    uint64_t unsure = (r->answered_ns - r->asked_ns) / 2;
    uint64_t offset = r->host_ns - unsure - r->guest_ns; /* modulo 2^64: two's complement */
    bool ahead = offset >> 63;
    uint64_t apart = ahead ? -offset : offset;
    if (apart <= unsure + GUEST_CLOCK_SLACK_NS)
        return 0;
    uint64_t sure = apart - unsure;
    return (int64_t)(ahead ? -sure : sure);
}

bool guest_clock_is_unsure(uint64_t asked_ns, uint64_t answered_ns)
{
    return answered_ns - asked_ns > GUEST_CLOCK_TRIP_NS;
}
