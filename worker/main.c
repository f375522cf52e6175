/* worker/main.c - cloche-worker: options, run, end. */
#include <stdio.h>
#include <string.h>

#include "observability/daemon.h"
#include "observability/log.h"
#include "worker/probe.h"
#include "worker/worker.h"

static struct worker_options options;
static bool probe_only;

static void stop(void *worker, void (*done)(void *loop), void *loop)
{
    worker_stop(worker, done, loop);
}

static int reload(void *worker, struct cl_err *err)
{
    return worker_reload(worker, err);
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
    struct cl_loop *loop;
    struct worker *worker;
    if (probe_only)
        return print_probe(err);
    if (cl_loop_new(&loop, err) < 0 || worker_new(loop, &options, &worker, err) < 0 ||
        daemon_take_signals(&(struct daemon_life){loop, worker, stop, reload}, err) < 0)
        return -1;
    cl_loop_run(loop);
    worker_free(worker);
    cl_loop_free(loop);
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
