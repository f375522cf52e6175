/* cli/run.h - the commands that follow a process; their rows are in jobs.c and sandboxes.c.
 *
 * Owns:    nothing.
 * Thread:  the only one.
 */
#ifndef CL_CLI_RUN_H
#define CL_CLI_RUN_H

#include "cli/cli.h"

int cmd_run(const struct cli_opts *o, const struct args *a);
int cmd_exec(const struct cli_opts *o, const struct args *a);

/* What both take. */
#define OPTS_COMMAND \
    OPT_JSON, {"interactive",    'i',  ARG_FLAG, \
               OPT(interactive), NULL, "open stdin even when it is /dev/null"}, \
        {"tty", 't', ARG_FLAG, OPT(tty), NULL, "a terminal instead of pipes"}, \
        {"detach", 'd', ARG_FLAG, OPT(detach), NULL, "print the id and leave"}, \
        {"timeout",    0,     ARG_DURATION, \
         OPT(timeout), "30s", "end it after this long (default 300 s, at most 24 h)"}, \
        {"env", 'e', ARG_LIST, OPT(env), "K=V", "a variable of its environment; repeatable"}, \
        {"workdir",    'w',   ARG_STRING, \
         OPT(workdir), "DIR", "working folder (default: the user's home)"}, \
        {"label", 'l', ARG_LIST, OPT(labels), "k=v", "a label; repeatable"}, \
        {"user", 'u', ARG_STRING, OPT(user), "NAME", "user (default) or root"}, \
    { \
        "output-max", 0, ARG_BYTES, OPT(output_max), "64MiB", \
            "output that is kept (at most 1 GiB)" \
    }

#define OPTS_RESOURCES \
    {"cpus", 0, ARG_U64, OPT(cpus), "N", "virtual CPUs, 1-4"}, \
        {"net", \
         0, \
         ARG_LIST, \
         OPT(net), \
         "RULES", \
         "what of the network it may reach, as example.org,*.example.org:80-443,public; " \
         "repeatable; none: nothing, whatever the snapshot had"}, \
        {"egress",    0,        ARG_BYTES, \
         OPT(egress), "100MiB", "most that it may send over the network (default 1 GiB)"}, \
        {"memory", 'm', ARG_BYTES, OPT(memory), "512MiB", "memory, at most 4 GiB"}, \
        {"snapshot", \
         0, \
         ARG_STRING, \
         OPT(snapshot), \
         "NAME", \
         "begin with this snapshot (id or name) instead of a TEMPLATE: with its memory, " \
         "processes " \
         "and files, its size and, unless --net says otherwise, its network"}, \
    { \
        "disk", 0, ARG_BYTES, OPT(disk), "1GiB", "writable space, at most 8 GiB" \
    }

#endif
