/* worker/main.c - cloche-worker: options, run, end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "observability/daemon.h"
#include "observability/log.h"
#include "worker/probe.h"
#include "worker/worker.h"

static struct worker_options options;
static bool probe_only;

struct program {
    struct cl_loop *loop;
    struct worker *worker;
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
    worker_stop(p->worker, on_stopped, p);
}

static int on_reload(void *arg, struct cl_err *err)
{
    struct program *p = arg;
    return worker_reload(p->worker, err);
}

static int print_probe(struct cl_err *err)
{
    char vmm[PATH_MAX];
    if (probe_find_program(options.vmm, "cloche-vmm", vmm, err) < 0)
        return -1;
    return host_probe_print(&(struct probe_programs){options.qemu, vmm}, stdout);
}

static int run(struct cl_err *err)
{
    struct program p = {0};
    if (probe_only)
        return print_probe(err);
    if (cl_loop_new(&p.loop, err) < 0 || worker_new(p.loop, &options, &p.worker, err) < 0 ||
        cl_loop_on_signal(p.loop, SIGTERM, on_signal, &p, err) < 0 ||
        cl_loop_on_signal(p.loop, SIGINT, on_signal, &p, err) < 0 ||
        daemon_watch_sighup(p.loop, on_reload, &p, err) < 0)
        return -1;
    cl_loop_run(p.loop);
    worker_free(p.worker);
    cl_loop_free(p.loop);
    log_event(LOG_STOPPED, "status=0");
    return 0;
}

int main(int argc, char **argv)
{
    struct daemon d = {
        .name = "worker",
        .brief = "runs the sandboxes of one host (--probe: say in JSON what this host can do)",
        .rows = worker_conf_rows,
        .n_rows = worker_conf_count,
        .values = &options,
        .size = sizeof options,
        .log_level = options.log_level,
        .run = run,
    };
    probe_only = argc > 1 && strcmp(argv[1], "--probe") == 0;
    return daemon_main(&d, argc - probe_only, argv + probe_only);
}
