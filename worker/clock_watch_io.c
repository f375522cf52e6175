/* worker/clock_watch_io.c - see worker/clock_watch.h. */
#include "worker/clock_watch.h"

#include <errno.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Far is the year 2200: the kernel takes no later one. */
static int arm(int fd)
{
    struct itimerspec far = {.it_value.tv_sec = 7258118400};
    return timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &far, NULL);
}

static void on_event(int fd, int what, void *arg)
{
    (void)what;
    struct clock_watch *w = arg;
    uint64_t expirations;
    if (read(fd, &expirations, sizeof expirations) < 0 && errno != ECANCELED)
        return;
    /* ECANCELED: set once more meanwhile; it is armed, and told below.  Otherwise the regular look
     * at each clock goes on without it. */
    if (arm(fd) < 0 && errno != ECANCELED)
        cl_fd_watch_set(&w->watch, false);
    w->on_set(w->arg);
}

int clock_watch_init(struct clock_watch *w, struct cl_loop *loop, void (*on_set)(void *arg),
                     void *arg, struct cl_err *err)
{
    int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0 || arm(fd) < 0) {
        int sys = errno;
        if (fd >= 0)
            (void)close(fd);
        return cl_fail(err, CL_E_SYS, sys, "watch the host's clock");
    }
    *w = (struct clock_watch){.fd = fd, .on_set = on_set, .arg = arg};
    if (cl_fd_watch_init(&w->watch, loop, fd, CL_READ, on_event, w, err) < 0) {
        (void)close(fd);
        *w = (struct clock_watch){0};
        return -1;
    }
    return 0;
}

void clock_watch_fini(struct clock_watch *w)
{
    if (!w->on_set)
        return;
    cl_fd_watch_fini(&w->watch);
    (void)close(w->fd);
    *w = (struct clock_watch){0};
}
