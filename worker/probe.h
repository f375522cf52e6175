/* worker/probe.h - what this host can do: asked by the worker at start and by `cloche doctor`. */
#ifndef CL_WORKER_PROBE_H
#define CL_WORKER_PROBE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/util.h"

struct host_probe {
    bool kvm_node;    /* /dev/kvm can be opened */
    bool kvm_for_vms; /* by the uids of VMs too */
    bool vmx_or_svm;  /* the CPU offers it */
    bool namespaces;  /* VM processes can have namespaces of their own */
    bool cgroups;     /* we may make cgroups */
    bool cgroup_v2;
    bool is_root;
    bool subuid; /* this user has a subordinate uid range */
    uint32_t cpus;
    uint64_t memory_bytes;
    uint64_t tsc_khz; /* measured against CLOCK_MONOTONIC */
    char cpu_model[64];
    char cpu_id[96];     /* model and a digest of its flags: who sees it must not be moved */
    char qemu_build[64]; /* "" = QEMU is not there */
    char drivers[64];    /* what `auto` is here: a list, the preferred first */
    char driver[16];     /* the first of it that has isolated guests */
    char driver_why[160];
    char vmm_build[64]; /* "" = cloche-vmm is not there */
    bool vmm_can;       /* it can run its VMs here: the driver `kvm` */
    char vmm_why[160];  /* … and why, or why not */
    bool xenpv_can;     /* it can run Xen-PV guests: the driver `kvm/xenpv` */
    char xenpv_why[160];
    /* What this KVM takes (vmm/costs.h), each the median of cost_samples; 0 = not measured. */
    uint64_t transition_ns, page_fault_ns;
    uint32_t cost_samples;
    char transition_by[16]; /* the instruction: "SYSCALL", "CPUID" */
    char costs_why[160];    /* why it was not measured */
};

/* Paths of the monitors. */
struct probe_programs {
    const char *qemu, *vmm;
};

/* Whether VMs can have KVM, by what was found out (pure). */
bool host_probe_has_kvm(const struct host_probe *probe);
/* One of the three lines of `cloche-vmm --probe`, from the first on; without its line end (pure).
 */
void host_probe_take_line(struct host_probe *probe, unsigned number, const char *line);
/* Takes about 200 ms.  Never fails: what cannot be found out is false, 0 or "". */
void host_probe(const struct probe_programs *programs, struct host_probe *ret_probe);
/* The path of one of our own programs: `option`, or where that is "" the one beside this program.
 */
int probe_find_program(const char *option, const char *name, char out[static PATH_MAX],
                       struct cl_err *err) CL_MUST;
/* Probe and print one JSON object, for `cloche doctor`; -1 when it cannot be written. */
int host_probe_print(const struct probe_programs *programs, FILE *out) CL_MUST;

#endif
