/* worker/clock_watch.h - hear at once that the host's wall clock was set, or that the host slept.
 *
 * Owns:    a timer that never expires, but is cancelled by either (timerfd_create(2),
 *          TFD_TIMER_CANCEL_ON_SET).
 * Thread:  the loop's.
 */
#ifndef CL_WORKER_CLOCK_WATCH_H
#define CL_WORKER_CLOCK_WATCH_H

#include "base/loop.h"

struct clock_watch {
    int fd; /* owned */
    struct cl_fd_watch watch;
    void (*on_set)(void *arg);
    void *arg;
};

/* Zeroed before. */
int clock_watch_init(struct clock_watch *w, struct cl_loop *loop, void (*on_set)(void *arg),
                     void *arg, struct cl_err *err) CL_MUST;
/* A zeroed one is a no-op. */
void clock_watch_fini(struct clock_watch *w);

#endif
