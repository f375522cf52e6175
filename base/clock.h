/* base/clock.h - time and randomness, injectable.
 *
 * Time inside the program is uint64_t monotonic nanoseconds; wall time is for people and records.
 * Thread: any.  The test hooks are per thread.
 */
#ifndef CL_BASE_CLOCK_H
#define CL_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

uint64_t cl_now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t cl_wall_ns(void); /* CLOCK_REALTIME, ns since 1970 */

enum { CL_RFC3339_LEN = 28 }; /* "2026-01-02T03:04:05.678901Z" and NUL */
/* RFC 3339, UTC, microseconds. */
void cl_rfc3339(uint64_t wall_ns, char out[static CL_RFC3339_LEN]);
/* Back again, of any number of decimals; 0 for what is no such time. */
uint64_t cl_rfc3339_ns(const char *text);

/* Fill with getrandom(2); aborts if the kernel cannot (it cannot fail once booted). */
void cl_random(void *p, size_t n);

/* Tests: freeze both clocks at `ns` (0 = real time again); seed cl_random (0 = real again). */
void cl_test_set_clock(uint64_t ns);
void cl_test_seed_random(uint64_t seed);

#endif
