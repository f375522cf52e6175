/* agent/main.c - the guest's process 1: boot, then serve the worker until the machine ends. */
#include <stdio.h>
#include <unistd.h>

#include "agent/boot.h"
#include "agent/serve.h"

int main(void)
{
    if (getpid() != 1) {
        (void)fprintf(stderr, "cloche-agent: runs as process 1 of a Cloche guest only\n");
        return 2;
    }
    struct boot boot = {.chan_fd = -1, .scratch_fd = -1};
    struct cl_err err = {0};
    if (boot_run(&boot, &err) == 0)
        (void)serve_run(&boot, &err);
    boot_power_off(err.text);
}
