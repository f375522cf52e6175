/* worker/guest_clock.c - see worker/guest_clock.h.  The estimate is that of RFC 5905, section 8. */
#include "worker/guest_clock.h"

#include "base/util.h"

int64_t guest_clock_lag(const struct guest_clock_reading *r)
{
    uint64_t took = r->answered_ns - r->asked_ns;
    uint64_t lag = r->host_ns - took / 2 - r->guest_ns; /* modulo 2^64: two's complement */
    uint64_t apart = lag >> 63 ? -lag : lag;
    return apart > CL_MAX(took, GUEST_CLOCK_SLACK_NS) ? (int64_t)lag : 0;
}
