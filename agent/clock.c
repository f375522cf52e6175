/* agent/clock.c - see agent/clock.h. */
#include "agent/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/timex.h>
#include <time.h>

#include "base/util.h"

#define SLEW_MAX_NS (100 * (int64_t)CL_NS_PER_MS) /* 200 s of slewing */

int clock_set(uint64_t wall_ns, struct cl_err *err)
{
    struct timespec ts = {.tv_sec = (time_t)(wall_ns / CL_NS_PER_S),
                          .tv_nsec = (long)(wall_ns % CL_NS_PER_S)};
    if (clock_settime(CLOCK_REALTIME, &ts) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set the clock");
    return 0;
}

/* adjtimex(2): a slew takes microseconds; a step seconds and nanoseconds, of which only the first
 * may be negative. */
int clock_shift(int64_t lag_ns, struct cl_err *err)
{
    const int64_t second = (int64_t)CL_NS_PER_S;
    struct timex by = {.modes = ADJ_OFFSET_SINGLESHOT, .offset = lag_ns / 1000};
    if (lag_ns < -SLEW_MAX_NS || lag_ns > SLEW_MAX_NS) {
        bool borrow = lag_ns % second < 0;
        by = (struct timex){.modes = ADJ_SETOFFSET | ADJ_NANO,
                            .time = {.tv_sec = lag_ns / second - borrow,
                                     .tv_usec = lag_ns % second + borrow * second}};
    }
    if (adjtimex(&by) < 0)
        return cl_fail(err, CL_E_SYS, errno, "shift the clock by %lld ns", (long long)lag_ns);
    return 0;
}
