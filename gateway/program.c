/* gateway/program.c - cloche-gateway: options, run, end; see gateway/gateway.h. */
#include "gateway/gateway.h"
#include "gateway/seccomp.h"
#include "observability/daemon.h"
#include "observability/log.h"

/* The program's own; like arg_* of a main(), set once. */
static struct gateway_options options;
static const struct mcp_extra *extra;

struct program {
    struct cl_loop *loop;
    struct gateway *gateway;
};

static void stop(void *gateway, void (*done)(void *loop), void *loop)
{
    gateway_stop(gateway, done, loop);
}

static int reload(void *gateway, struct cl_err *err)
{
    return gateway_reload(gateway, err);
}

static int check(const void *values, struct cl_err *err)
{
    return gateway_options_check(values, err);
}

static int open_all(struct program *p, struct cl_err *err)
{
    if (cl_loop_new(&p->loop, err) < 0 ||
        gateway_new(p->loop, &options, extra, &p->gateway, err) < 0 ||
        daemon_take_signals(&(struct daemon_life){p->loop, p->gateway, stop, reload}, err) < 0)
        return -1;
    return options.seccomp ? gateway_seccomp(err) : 0;
}

static int run(struct cl_err *err)
{
    struct program p = {0};
    int rc = open_all(&p, err);
    if (rc == 0)
        cl_loop_run(p.loop);
    gateway_free(p.gateway);
    cl_loop_free(p.loop);
    if (rc == 0)
        log_event(LOG_STOPPED, "status=0");
    return rc;
}

int gateway_main(int argc, char **argv, const struct mcp_extra *more)
{
    struct daemon d = {
        .name = "gateway",
        .brief = "gives MCP clients sandboxes, over HTTP",
        .rows = gateway_conf_rows,
        .n_rows = gateway_conf_count,
        .values = &options,
        .size = sizeof options,
        .log_level = options.log_level,
        .check = check,
        .run = run,
    };
    extra = more;
    return daemon_main(&d, argc, argv);
}
