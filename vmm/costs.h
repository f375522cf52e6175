/* vmm/costs.h - what this host's KVM takes for what a guest does most: two figures, measured.
 *
 * A tiny guest, all of it at CPL3 in 64-bit mode, reads the TSC before and after each of
 * COSTS_SAMPLES events; the figures are the medians.
 *
 *     transition  one instruction that KVM must serve, out of the guest and back: SYSCALL where KVM
 *                 interprets ring 0 (no processor has VMX or SVM there), which is what each system
 *                 call of a Xen-PV guest takes; else CPUID, which VMX and SVM intercept.
 *     page fault  one byte written to a page that neither the guest's page table nor KVM has: #PF
 *                 to a gate at CPL0, on from there to a handler at CPL3 that fills the entry in,
 *                 and the write again, for which KVM maps the page.  The host has it already, so
 *                 no time of the host's own page fault is in it.
 *
 * The second has the shape of a Xen-PV guest's page fault without what its kernel does.
 *
 * Owns:    its tiny machine, for the call.
 * Thread:  any.
 */
#ifndef CL_VMM_COSTS_H
#define CL_VMM_COSTS_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum { COSTS_SAMPLES = 255 }; /* of each */

struct costs {
    uint64_t transition_ns, fault_ns;
    const char *by; /* static: "SYSCALL" or "CPUID" */
};

/* kvm_fd is /dev/kvm.  A guest that does not end is not waited for here: the caller has a limit. */
int costs_measure(int kvm_fd, struct costs *ret_costs, struct cl_err *err) CL_MUST;

#endif
