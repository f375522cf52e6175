/* base/loop_io.c - see base/loop.h. */
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/mem.h"
#include "base/own.h"

struct loop_signal {
    struct event *ev; /* owned */
    cl_signal_fn *fn;
    void *arg;
};

struct cl_loop {
    struct event_base *base; /* owned */
    struct cl_list graves;
    struct loop_signal signals[CL_LOOP_SIGNALS];
    int n_signals;
    bool stopping;
    pthread_t thread;
};

static void assert_thread(const struct cl_loop *loop)
{
    CL_ASSERT(pthread_equal(loop->thread, pthread_self()));
}

static struct timeval to_timeval(uint64_t ns)
{
    uint64_t us = (ns + CL_NS_PER_US - 1) / CL_NS_PER_US;
    return (struct timeval){.tv_sec = (time_t)(us / 1000000),
                            .tv_usec = (suseconds_t)(us % 1000000)};
}

int cl_loop_new(struct cl_loop **ret_loop, struct cl_err *err)
{
    struct cl_loop *loop = cl_zalloc(sizeof *loop);
    if (!loop)
        return cl_fail(err, CL_E_NOMEM, 0, "event loop");
    struct event_config *cfg = event_config_new();
    if (cfg) {
        (void)event_config_set_flag(cfg, EVENT_BASE_FLAG_PRECISE_TIMER);
        loop->base = event_base_new_with_config(cfg);
        event_config_free(cfg);
    }
    if (!loop->base) {
        cl_free(loop);
        return cl_fail(err, CL_E_NOMEM, 0, "event loop");
    }
    cl_list_init(&loop->graves);
    loop->thread = pthread_self();
    *ret_loop = loop;
    return 0;
}

static void empty_graves(struct cl_loop *loop)
{
    while (!cl_list_empty(&loop->graves)) {
        struct cl_grave *g = CL_LIST_ENTRY(loop->graves.next, struct cl_grave, link);
        cl_list_unlink(&g->link);
        g->destroy(g->obj);
    }
}

void cl_loop_free(struct cl_loop *loop)
{
    if (!loop)
        return;
    assert_thread(loop);
    empty_graves(loop);
    for (int i = 0; i < loop->n_signals; i++)
        event_free(loop->signals[i].ev);
    /* A turn that was broken off has left callbacks to the next; libevent holds on to a freed
     * connection until its own has run, and forgets it without. */
    (void)event_base_loop(loop->base, EVLOOP_NONBLOCK);
    event_base_free(loop->base);
    cl_free(loop);
}

void cl_loop_run(struct cl_loop *loop)
{
    assert_thread(loop);
    loop->stopping = false;
    while (!loop->stopping) {
        (void)event_base_loop(loop->base, EVLOOP_ONCE);
        empty_graves(loop);
    }
}

static void on_turn_timeout(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

void cl_loop_turn(struct cl_loop *loop, uint64_t timeout_ns)
{
    assert_thread(loop);
    struct timeval tv = to_timeval(timeout_ns);
    (void)event_base_once(loop->base, -1, EV_TIMEOUT, on_turn_timeout, NULL, &tv);
    (void)event_base_loop(loop->base, EVLOOP_ONCE);
    empty_graves(loop);
}

void cl_loop_stop(struct cl_loop *loop)
{
    loop->stopping = true;
    (void)event_base_loopbreak(loop->base);
}

struct event_base *cl_loop_base(struct cl_loop *loop)
{
    assert_thread(loop);
    return loop->base;
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

void cl_loop_bury(struct cl_loop *loop, struct cl_grave *grave, cl_bury_fn *destroy, void *obj)
{
    assert_thread(loop);
    CL_ASSERT(!grave->destroy);
    grave->destroy = destroy;
    grave->obj = obj;
    if (cl_list_empty(&loop->graves)) {
        struct timeval now = {0, 0};
        (void)event_base_once(loop->base, -1, EV_TIMEOUT, on_wake, NULL, &now);
    }
    cl_list_push(&loop->graves, &grave->link);
}

/* --- timers --------------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct cl_timer *t = arg;
    if (t->period_ns > 0)
        cl_timer_every(t, t->period_ns);
    t->fn(t->arg);
}

int cl_timer_init(struct cl_timer *t, struct cl_loop *loop, cl_timer_fn *fn, void *arg,
                  struct cl_err *err)
{
    assert_thread(loop);
    struct event *ev = event_new(loop->base, -1, 0, on_timer, t);
    if (!ev)
        return cl_fail(err, CL_E_NOMEM, 0, "timer");
    *t = (struct cl_timer){.ev = ev, .loop = loop, .fn = fn, .arg = arg};
    return 0;
}

void cl_timer_start(struct cl_timer *t, uint64_t delay_ns)
{
    assert_thread(t->loop);
    struct timeval tv = to_timeval(delay_ns);
    t->period_ns = 0;
    CL_ASSERT(event_add(t->ev, &tv) == 0);
}

void cl_timer_every(struct cl_timer *t, uint64_t period_ns)
{
    cl_timer_start(t, period_ns);
    t->period_ns = period_ns;
}

void cl_timer_stop(struct cl_timer *t)
{
    if (!t->ev)
        return;
    assert_thread(t->loop);
    t->period_ns = 0;
    (void)event_del(t->ev);
}

bool cl_timer_is_armed(const struct cl_timer *t)
{
    return t->ev && event_pending(t->ev, EV_TIMEOUT, NULL);
}

void cl_timer_fini(struct cl_timer *t)
{
    if (t->ev)
        event_free(t->ev);
    t->ev = NULL;
}

/* --- signals, children, fds ----------------------------------------------------------------- */

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
    (void)what;
    struct loop_signal *s = arg;
    s->fn((int)signo, s->arg);
}

int cl_loop_on_signal(struct cl_loop *loop, int signo, cl_signal_fn *fn, void *arg,
                      struct cl_err *err)
{
    assert_thread(loop);
    CL_ASSERT(loop->n_signals < CL_LOOP_SIGNALS);
    struct loop_signal *s = &loop->signals[loop->n_signals];
    struct event *ev = evsignal_new(loop->base, signo, on_signal, s);
    if (!ev || event_add(ev, NULL) < 0) {
        if (ev)
            event_free(ev);
        return cl_fail(err, CL_E_NOMEM, 0, "watch signal %d", signo);
    }
    *s = (struct loop_signal){ev, fn, arg};
    loop->n_signals++;
    return 0;
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct cl_child *c = arg;
    int status = 0;
    pid_t got = waitpid(c->pid, &status, WNOHANG);
    if (got == 0)
        return;
    pid_t pid = c->pid;
    cl_child_fini(c);
    c->fn(pid, status, c->arg);
}

int cl_child_watch(struct cl_child *c, struct cl_loop *loop, pid_t pid, cl_child_fn *fn, void *arg,
                   struct cl_err *err)
{
    assert_thread(loop);
    CL_AUTO(cl_closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return cl_fail(err, CL_E_SYS, errno, "pidfd_open of child %d", (int)pid);
    struct event *ev = event_new(loop->base, pidfd, EV_READ | EV_PERSIST, on_child, c);
    if (!ev || event_add(ev, NULL) < 0) {
        if (ev)
            event_free(ev);
        return cl_fail(err, CL_E_NOMEM, 0, "watch child %d", (int)pid);
    }
    *c =
        (struct cl_child){.ev = ev, .pidfd = cl_steal_fd(&pidfd), .pid = pid, .fn = fn, .arg = arg};
    return 0;
}

void cl_child_fini(struct cl_child *c)
{
    if (!c->ev)
        return;
    event_free(c->ev);
    c->ev = NULL;
    cl_closep(&c->pidfd);
}

static void on_fd(evutil_socket_t fd, short what, void *arg)
{
    struct cl_fd_watch *w = arg;
    w->fn((int)fd, (what & EV_READ ? CL_READ : 0) | (what & EV_WRITE ? CL_WRITE : 0), w->arg);
}

int cl_fd_watch_init(struct cl_fd_watch *w, struct cl_loop *loop, int fd, int what, cl_fd_fn *fn,
                     void *arg, struct cl_err *err)
{
    assert_thread(loop);
    short events =
        (short)(EV_PERSIST | (what & CL_READ ? EV_READ : 0) | (what & CL_WRITE ? EV_WRITE : 0));
    struct event *ev = event_new(loop->base, fd, events, on_fd, w);
    if (!ev || event_add(ev, NULL) < 0) {
        if (ev)
            event_free(ev);
        return cl_fail(err, CL_E_NOMEM, 0, "watch fd %d", fd);
    }
    *w = (struct cl_fd_watch){.ev = ev, .fn = fn, .arg = arg};
    return 0;
}

void cl_fd_watch_set(struct cl_fd_watch *w, bool on)
{
    if (!w->ev)
        return;
    if (on)
        (void)event_add(w->ev, NULL);
    else
        (void)event_del(w->ev);
}

void cl_fd_watch_fini(struct cl_fd_watch *w)
{
    if (w->ev)
        event_free(w->ev);
    w->ev = NULL;
}
