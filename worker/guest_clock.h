/* worker/guest_clock.h - how wrong a guest's wall clock is, by one question and its answer.
 *
 * A guest's clock is set when it is claimed and then goes by itself: it follows neither NTP's slew
 * of the host's (20 ppm are 1.7 s a day) nor its steps, nor does it see a host's suspend.  A TLS
 * handshake or a make(1) in a sandbox of many hours would fail by that.
 *
 * Pure: no I/O, no clock.
 */
#ifndef CL_WORKER_GUEST_CLOCK_H
#define CL_WORKER_GUEST_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct guest_clock_reading {
    uint64_t asked_ns, answered_ns; /* CLOCK_MONOTONIC of the host */
    uint64_t host_ns;               /* CLOCK_REALTIME of the host, at the answer */
    uint64_t guest_ns;              /* what the guest says; it may say anything */
};

/* Less is left alone: it is what a busy host adds to any answer. */
#define GUEST_CLOCK_SLACK_NS (5 * UINT64_C(1000000))

/* What the guest's clock surely lacks, ns; negative when it is ahead.  The answer was given
 * somewhere between question and arrival, so a guest or a host that stood still meanwhile leaves
 * much unsure: of the lags that fit, this is the nearest to none.  So a right clock is never made
 * wrong, nor one that is a little ahead set back by what only the wait had added; the next reading
 * tells the rest. 0 when the clock may well be right. */
int64_t guest_clock_lag(const struct guest_clock_reading *r);

/* Whoever sets or reads a clock by a message whose answer took longer should ask again soon: as
 * much may be wrong, and is not seen. */
#define GUEST_CLOCK_TRIP_NS (40 * UINT64_C(1000000))
bool guest_clock_is_unsure(uint64_t asked_ns, uint64_t answered_ns);

#endif
