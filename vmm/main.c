/* vmm/main.c - cloche-vmm: the monitor of one VM.
 *
 * Usage: cloche-vmm CONTROL_FD       started by cloche-worker through cloche-guard
 *        cloche-vmm --probe          three lines: the build; `yes` or `no`, and why; `costs`, two
 *                                    figures in ns, what the first is of, and how many of each
 *                                    were measured; or `nocosts`, and why
 *        cloche-vmm --explain-seccomp
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "vmm/confine.h"
#include "vmm/monitor.h"
#include "vmm/probe.h"
#include "vmm/seccomp.h"

static int print_probe(void)
{
    struct probe_report r;
    probe_kvm(&r);
    (void)printf("cloche-vmm %s %s\n%s %s\n", CLOCHE_VERSION, VMM_SOURCE_DIGEST,
                 r.can ? "yes" : "no", r.why);
    if (r.is_measured)
        (void)printf("costs %llu %llu %s %d\n", (unsigned long long)r.costs.transition_ns,
                     (unsigned long long)r.costs.fault_ns, r.costs.by, COSTS_SAMPLES);
    else
        (void)printf("nocosts %s\n", r.costs_why);
    return fflush(stdout) == 0 ? 0 : 1;
}

static int monitor(int control_fd)
{
    struct cl_err err = {0};
    (void)prctl(PR_SET_NAME, "cloche-vmm", 0, 0, 0); /* an exec by fd left its number there */
    if (confine_process(&err) < 0) {
        (void)fprintf(stderr, "cloche-vmm: %s\n", err.text);
        return 1;
    }
    monitor_run(control_fd);
    return 0;
}

int main(int argc, char **argv)
{
    char *rest = NULL;
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return print_probe();
    if (argc == 2 && strcmp(argv[1], "--explain-seccomp") == 0)
        return vmm_explain_seccomp() < 0 ? 1 : 0;
    long control_fd = argc == 2 ? strtol(argv[1], &rest, 10) : -1;
    if (rest && !*rest && control_fd > STDERR_FILENO && control_fd < INT16_MAX)
        _exit(monitor((int)control_fd)); /* nothing is flushed, freed or asked any more */
    (void)fprintf(stderr, "usage: cloche-vmm --probe | --explain-seccomp\n"
                          "otherwise started by cloche-worker, not by hand\n");
    return 2;
}
