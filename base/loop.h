/* base/loop.h - one event loop a thread, on libevent.
 *
 * Owns:    its event_base, the graves of objects that died in this turn, its signal handlers.
 * Thread:  the one that made it; every call asserts that.
 * Objects never die inside their own callback: cl_loop_bury() frees them when the turn ends.
 */
#ifndef CL_BASE_LOOP_H
#define CL_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "base/util.h"

struct cl_loop;
struct event_base;
struct event;

int cl_loop_new(struct cl_loop **ret_loop, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Empties the graves, then runs a last turn without waiting, for what libevent
 * has put off; no timer or watch of it may still be armed. */
void cl_loop_free(struct cl_loop *loop);
/* Run until cl_loop_stop(). */
void cl_loop_run(struct cl_loop *loop);
/* One turn: wait at most timeout_ns (tests, and programs that wait for one thing). */
void cl_loop_turn(struct cl_loop *loop, uint64_t timeout_ns);
void cl_loop_stop(struct cl_loop *loop);
/* Borrowed, for *_io.c files that make bufferevents and listeners. */
struct event_base *cl_loop_base(struct cl_loop *loop);

/* --- end-of-turn burial -------------------------------------------------------------------- */

typedef void cl_bury_fn(void *obj);
struct cl_grave {
    struct cl_list link;
    cl_bury_fn *destroy;
    void *obj;
};
/* Call destroy(obj) when this turn ends.  `grave` lies inside obj; burying twice is a bug. */
void cl_loop_bury(struct cl_loop *loop, struct cl_grave *grave, cl_bury_fn *destroy, void *obj);

/* --- timers -------------------------------------------------------------------------------- */

typedef void cl_timer_fn(void *arg);
struct cl_timer {
    struct event *ev; /* owned; NULL before init and after fini */
    struct cl_loop *loop;
    cl_timer_fn *fn;
    void *arg;
    uint64_t period_ns; /* 0 = one shot */
};
int cl_timer_init(struct cl_timer *t, struct cl_loop *loop, cl_timer_fn *fn, void *arg,
                  struct cl_err *err) CL_MUST;
/* Fire once after delay_ns; restarts a running timer. */
void cl_timer_start(struct cl_timer *t, uint64_t delay_ns);
/* Fire every period_ns from now on. */
void cl_timer_every(struct cl_timer *t, uint64_t period_ns);
void cl_timer_stop(struct cl_timer *t);
bool cl_timer_is_armed(const struct cl_timer *t);
void cl_timer_fini(struct cl_timer *t);

/* --- signals, children and plain fds ------------------------------------------------------- */

typedef void cl_signal_fn(int signo, void *arg);
/* Deliver signo to fn on the loop.  At most CL_LOOP_SIGNALS a loop. */
enum { CL_LOOP_SIGNALS = 8 };
int cl_loop_on_signal(struct cl_loop *loop, int signo, cl_signal_fn *fn, void *arg,
                      struct cl_err *err) CL_MUST;

/* Watch a child by pidfd; fn runs once, with waitpid()'s status.  The child is reaped. */
typedef void cl_child_fn(pid_t pid, int status, void *arg);
struct cl_child {
    struct event *ev; /* owned; NULL when not watching */
    int pidfd;        /* owned; -1 when not watching */
    pid_t pid;
    cl_child_fn *fn;
    void *arg;
};
int cl_child_watch(struct cl_child *c, struct cl_loop *loop, pid_t pid, cl_child_fn *fn, void *arg,
                   struct cl_err *err) CL_MUST;
/* Forget the child without waiting for it. */
void cl_child_fini(struct cl_child *c);

/* Level-triggered readiness of an fd that the caller owns. */
enum { CL_READ = 1, CL_WRITE = 2 };
typedef void cl_fd_fn(int fd, int what, void *arg);
struct cl_fd_watch {
    struct event *ev; /* owned; NULL when not watching */
    cl_fd_fn *fn;
    void *arg;
};
int cl_fd_watch_init(struct cl_fd_watch *w, struct cl_loop *loop, int fd, int what, cl_fd_fn *fn,
                     void *arg, struct cl_err *err) CL_MUST;
/* Pause and resume; a new watch is running. */
void cl_fd_watch_set(struct cl_fd_watch *w, bool on);
void cl_fd_watch_fini(struct cl_fd_watch *w);

#endif
