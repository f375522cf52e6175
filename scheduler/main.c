/* scheduler/main.c - cloche-scheduler: options, run, end. */
#include "observability/daemon.h"
#include "observability/log.h"
#include "scheduler/scheduler.h"
#include "scheduler/seccomp.h"

static struct sched_options options;

static void stop(void *sched, void (*done)(void *loop), void *loop)
{
    sched_stop(sched, done, loop);
}

static int reload(void *sched, struct cl_err *err)
{
    return sched_reload(sched, err);
}

static int check(const void *values, struct cl_err *err)
{
    return sched_options_check(values, err);
}

static int run(struct cl_err *err)
{
    struct cl_loop *loop;
    struct sched *sched;
    if (cl_loop_new(&loop, err) < 0 || sched_new(loop, &options, &sched, err) < 0 ||
        daemon_take_signals(&(struct daemon_life){loop, sched, stop, reload}, err) < 0 ||
        (options.seccomp && sched_seccomp(err) < 0))
        return -1;
    cl_loop_run(loop);
    int rc = sched_check(sched, err);
    sched_free(sched);
    cl_loop_free(loop);
    log_event(LOG_STOPPED, "status=%d", rc < 0);
    return rc;
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
