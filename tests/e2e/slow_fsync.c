/* tests/e2e/slow_fsync.c - a slow disk: preloaded into redis-server, every sync takes
 * SLOW_FSYNC_MS longer.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_as_told(void)
{
    const char *text = getenv("SLOW_FSYNC_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

int fsync(int fd)
{
    wait_as_told();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    wait_as_told();
    return (int)syscall(SYS_fdatasync, fd);
}
