/* tests/e2e/host_clock.c - a host whose wall clock was stepped: preloaded, CLOCK_REALTIME is ahead
 * by the nanoseconds (int64_t) that the file HOST_CLOCK holds, which may change at any time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int (*real_gettime)(clockid_t clock, struct timespec *ts);
static const volatile int64_t *ahead_ns;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("HOST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, fd, 0);
    ahead_ns = p == MAP_FAILED ? NULL : p;
    if (fd >= 0)
        (void)close(fd);
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    if (!real_gettime)
        begin(); /* somebody's constructor came first */
    int rc = real_gettime(clock, ts);
    if (rc == 0 && clock == CLOCK_REALTIME && ahead_ns) {
        int64_t ns = ts->tv_sec * INT64_C(1000000000) + ts->tv_nsec + *ahead_ns;
        *ts = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    }
    return rc;
}
