/* cli/ports.c - the ports of an instance: taken once, before its processes start, and held for
 * them.
 *
 * A port that was only looked for could be another's by the time its process binds it, and a
 * process that starts again would have to win it once more.  So the supervisor listens, and a
 * process finds its sockets as sd_listen_fds(3) has it (base/addr.h).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "cli/plan.h"

enum { METRICS_PORT = 9463, MCP_PORT = 7780, BACKLOG = 128 };

/* The address that was asked for; otherwise the usual port, or any free one when another has it. */
static int take(struct proc *proc, const char *asked, uint16_t usual,
                char out[static ENDPOINT_TEXT], struct cl_err *err)
{
    int fd = -1;
    char wish[32];
    (void)snprintf(wish, sizeof wish, "127.0.0.1:%u", usual);
    if (asked ? cl_tcp_listen(asked, BACKLOG, &fd, err) < 0
              : cl_tcp_listen(wish, BACKLOG, &fd, NULL) < 0 &&
                    cl_tcp_listen("127.0.0.1:0", BACKLOG, &fd, err) < 0)
        return -1;
    CL_ASSERT(proc->n_listeners < PROC_LISTENERS);
    proc->listeners[proc->n_listeners++] = fd;
    const char *address = asked ? asked : wish;
    (void)snprintf(out, ENDPOINT_TEXT, "%.*s:%u", (int)(strrchr(address, ':') - address), address,
                   cl_tcp_port(fd));
    return 0;
}

/* The scheduler's are where --metrics says; the others' are always on loopback. */
static int take_metrics(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    static const enum proc_id in_order[] = {PROC_SCHEDULER, PROC_WORKER, PROC_AUDIT, PROC_GATEWAY};
    if (o->metrics && strcmp(o->metrics, "none") == 0)
        return 0;
    for (size_t i = 0; i < CL_COUNT(in_order); i++) {
        struct proc *proc = &p->procs[in_order[i]];
        if (take(proc, i == 0 ? o->metrics : NULL, (uint16_t)(METRICS_PORT + i), proc->metrics,
                 err) < 0)
            return cl_wrap(err, "metrics of %s", proc->name);
    }
    return 0;
}

int plan_listen(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    if (take_metrics(o, p, err) < 0)
        return -1;
    return take(&p->procs[PROC_GATEWAY], o->mcp, MCP_PORT, p->mcp, err) < 0 ? cl_wrap(err, "MCP")
                                                                            : 0;
}

void plan_close(struct plan *p)
{
    for (size_t i = 0; i < PLAN_PROCS; i++)
        while (p->procs[i].n_listeners > 0)
            (void)close(p->procs[i].listeners[--p->procs[i].n_listeners]);
}
