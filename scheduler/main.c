/* scheduler/main.c - cloche-scheduler: options, run, end. */
#include <signal.h>

#include "observability/daemon.h"
#include "observability/log.h"
#include "scheduler/scheduler.h"
#include "scheduler/seccomp.h"

static struct sched_options options;

struct program {
    struct cl_loop *loop;
    struct sched *sched;
    bool stopping;
};

static void on_stopped(void *arg)
{
    struct program *p = arg;
    cl_loop_stop(p->loop);
}

static void on_signal(int signo, void *arg)
{
    struct program *p = arg;
    log_event(LOG_STOPPING, "signal=%d", signo);
    if (p->stopping)
        cl_loop_stop(p->loop);
    else
        sched_stop(p->sched, on_stopped, p);
    p->stopping = true;
}

static int on_reload(void *arg, struct cl_err *err)
{
    struct program *p = arg;
    return sched_reload(p->sched, err);
}

static int check(const void *values, struct cl_err *err)
{
    return sched_options_check(values, err);
}

static int run(struct cl_err *err)
{
    struct program p = {0};
    if (cl_loop_new(&p.loop, err) < 0 || sched_new(p.loop, &options, &p.sched, err) < 0 ||
        cl_loop_on_signal(p.loop, SIGTERM, on_signal, &p, err) < 0 ||
        cl_loop_on_signal(p.loop, SIGINT, on_signal, &p, err) < 0 ||
        daemon_watch_sighup(p.loop, on_reload, &p, err) < 0 ||
        (options.seccomp && sched_seccomp(err) < 0))
        return -1;
    cl_loop_run(p.loop);
    sched_free(p.sched);
    cl_loop_free(p.loop);
    log_event(LOG_STOPPED, "status=0");
    return 0;
}

int main(int argc, char **argv)
{
    struct daemon d = {
        .name = "scheduler",
        .brief = "admits jobs and sandboxes, and gives them to workers",
        .rows = sched_conf_rows,
        .n_rows = sched_conf_count,
        .values = &options,
        .size = sizeof options,
        .log_level = options.log_level,
        .check = check,
        .run = run,
    };
    return daemon_main(&d, argc, argv);
}
