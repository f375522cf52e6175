/* base/clock.c - see base/clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/err.h"
#include "base/util.h"

static _Thread_local uint64_t test_clock; /* 0 = real */
static _Thread_local uint64_t test_seed;  /* 0 = real */

static uint64_t read_clock(clockid_t id)
{
    if (test_clock)
        return test_clock;
    struct timespec ts;
    CL_ASSERT(clock_gettime(id, &ts) == 0);
    return (uint64_t)ts.tv_sec * CL_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t cl_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t cl_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

void cl_rfc3339(uint64_t wall_ns, char out[static CL_RFC3339_LEN])
{
    time_t s = (time_t)(wall_ns / CL_NS_PER_S);
    struct tm tm;
    if (!gmtime_r(&s, &tm) || tm.tm_year > 8099)
        tm = (struct tm){.tm_year = 70, .tm_mday = 1};
    char date[CL_RFC3339_LEN];
    size_t n = strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    CL_ASSERT(n == 19);
    unsigned us = (unsigned)(wall_ns % CL_NS_PER_S / CL_NS_PER_US);
    memcpy(out, date, 19);
    (void)snprintf(out + 19, CL_RFC3339_LEN - 19, ".%06uZ", us % 1000000u);
}

uint64_t cl_rfc3339_ns(const char *text)
{
    struct tm tm = {0};
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t s = at ? (int64_t)timegm(&tm) : 0;
    uint64_t ns = 0, unit = CL_NS_PER_S / 10;
    if (s <= 0)
        return 0;
    for (at += *at == '.'; *at >= '0' && *at <= '9'; at++, unit /= 10)
        ns += (uint64_t)(*at - '0') * unit;
    return strcmp(at, "Z") == 0 ? (uint64_t)s * CL_NS_PER_S + ns : 0;
}

/* splitmix64: deterministic bytes for tests, never used with a real seed. */
static uint64_t test_next(void)
{
    uint64_t z = (test_seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void cl_random(void *p, size_t n)
{
    uint8_t *out = p;
    while (n > 0) {
        if (test_seed) {
            uint64_t word = test_next();
            size_t k = CL_MIN(n, sizeof word);
            memcpy(out, &word, k);
            out += k;
            n -= k;
            continue;
        }
        ssize_t got = getrandom(out, n, 0);
        if (got < 0) {
            CL_ASSERT(errno == EINTR);
            continue;
        }
        out += got;
        n -= (size_t)got;
    }
}

void cl_test_set_clock(uint64_t ns)
{
    test_clock = ns;
}

void cl_test_seed_random(uint64_t seed)
{
    test_seed = seed;
}
