/* agent/clock.h - the guest's wall clock, by the worker's word.
 *
 * A guest counts time with a clock of its own: NTP slews the host's without it, and a host that was
 * suspended is hours ahead.  So the worker asks from time to time and tells what is lacking.
 */
#ifndef CL_AGENT_CLOCK_H
#define CL_AGENT_CLOCK_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

/* To what time it is, ns since 1970. */
int clock_set(uint64_t wall_ns, struct cl_err *err) CL_MUST;
/* By lag_ns: slewed by 500 ppm up to 100 ms, else stepped.  SYS when the kernel refuses, as it does
 * a time before 1970. */
int clock_shift(int64_t lag_ns, struct cl_err *err) CL_MUST;

#endif
