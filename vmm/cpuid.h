/* vmm/cpuid.h - what a guest may know of its processor.
 *
 * An allow-list: a leaf or a bit that no row names does not exist for the guest, so that a newer
 * host shows nothing that we do not save in a snapshot or have not thought about.  The same host
 * and shape give the same table, which a snapshot holds and a clone must match byte for byte.
 *
 * Pure.  Reference: Intel SDM 2A, CPUID; AMD APM 3, appendix E; Linux
 * Documentation/virt/kvm/x86/cpuid.rst.
 */
#ifndef CL_VMM_CPUID_H
#define CL_VMM_CPUID_H

#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/kvm.h"

struct cpuid_shape {
    unsigned vcpu, vcpus; /* APIC id of this one, how many there are: one socket, no threads */
    bool tsc_deadline; /* KVM_CAP_TSC_DEADLINE_TIMER; older kernels do not put it in their table */
};

/* The guest's table from what the host's KVM can do. */
int cpuid_filter(const struct kvm_cpuid_table *supported, const struct cpuid_shape *shape,
                 struct kvm_cpuid_table *ret_table, struct cl_err *err) CL_MUST;

#endif
