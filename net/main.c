/* net/main.c - cloche-net: the network of one VM, as far as its grant goes.
 *
 * Usage: cloche-net CONTROL_FD WIRE_FD UID GID
 *   CONTROL_FD  a SOCK_SEQPACKET socket: the grant comes in, events go out (net/control.h)
 *   WIRE_FD     the other end of the guest's network card (vmm/net.h)
 *   UID, GID    whom to become, as root
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/drop.h"
#include "net/process_io.h"
#include "net/seccomp.h"

enum { ARGS = 4, EXIT_USAGE = 2 };

static const char usage[] = "usage: cloche-net CONTROL_FD WIRE_FD UID GID\n"
                            "started by cloche-worker, not by hand\n";

struct arguments {
    int control, wire; /* borrowed: open as long as the process is */
    uid_t uid;
    gid_t gid;
};

static int parse(char **argv, struct arguments *ret_args, struct cl_err *err)
{
    unsigned long v[ARGS];
    for (int i = 0; i < ARGS; i++) {
        const char *text = argv[1 + i];
        char *rest;
        v[i] = strtoul(text, &rest, 10);
        if (text[0] < '0' || text[0] > '9' || *rest || v[i] > INT32_MAX)
            return cl_fail(err, CL_E_INVALID, 0, "'%.32s' is no number", text);
    }
    if (v[0] <= STDERR_FILENO || v[1] <= STDERR_FILENO || v[0] == v[1])
        return cl_fail(err, CL_E_INVALID, 0, "two fds beyond stderr are wanted");
    *ret_args = (struct arguments){(int)v[0], (int)v[1], (uid_t)v[2], (gid_t)v[3]};
    return 0;
}

static int run(const struct arguments *args, struct cl_err *err)
{
    static struct net_grant grant;
    CL_AUTO(process_freep) struct process *p = NULL;
    net_drop_files(args->control, args->wire);
    (void)signal(SIGPIPE, SIG_IGN);
    if (process_receive(args->control, &grant, err) < 0 ||
        process_new(args->control, args->wire, &grant, &p, err) < 0 ||
        net_drop(args->uid, args->gid, err) < 0 || net_seccomp(err) < 0)
        return -1;
    return process_run(p, err);
}

/* stdio and dprintf(3) look at the file first, which the filter does not allow. */
static void complain(const char *text)
{
    char line[CL_ERR_TEXT + 32];
    int n = snprintf(line, sizeof line, "cloche-net: %s\n", text);
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* there is nobody else to tell */
}

int main(int argc, char **argv)
{
    struct arguments args = {.control = -1, .wire = -1};
    struct cl_err err = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        (void)fputs(usage, stdout);
        return 0;
    }
    if (argc != 1 + ARGS) {
        (void)fputs(usage, stderr);
        return EXIT_USAGE;
    }
    int rc = parse(argv, &args, &err) < 0 ? EXIT_USAGE : run(&args, &err) < 0;
    if (rc)
        complain(err.text);
    _exit(rc); /* what libraries do at an exit is more than the filter allows */
}
