/* vmm/cpuid.h - what a guest may know of its processor.
 *
 * An allow-list: a leaf or a bit that no row names does not exist for the guest, so that a newer
 * host shows nothing that we do not save in a snapshot or have not thought about.  The same host
 * and shape give the same table, which a snapshot holds and a clone must match byte for byte.
 *
 * Pure, but for cpuid_host…().  Reference: Intel SDM 2A, CPUID; AMD APM 3, appendix E; Linux
 * Documentation/virt/kvm/x86/cpuid.rst.
 */
#ifndef CL_VMM_CPUID_H
#define CL_VMM_CPUID_H

#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/kvm.h"
#include "vmm/state.h"

struct cpuid_shape {
    unsigned vcpu, vcpus; /* APIC id of this one, how many there are: one socket, no threads */
    bool tsc_deadline; /* KVM_CAP_TSC_DEADLINE_TIMER; older kernels do not put it in their table */
};

/* A table as a section of a state; hostile when it is loaded: INVALID. */
void cpuid_save(const struct kvm_cpuid_table *table, struct state_writer *out);
int cpuid_load(struct kvm_cpuid_table *ret_table, struct state_reader *in,
               struct cl_err *err) CL_MUST;

/* The guest's table from what the host's KVM can do. */
int cpuid_filter(const struct kvm_cpuid_table *supported, const struct cpuid_shape *shape,
                 struct kvm_cpuid_table *ret_table, struct cl_err *err) CL_MUST;

/* What CPUID says here, of the leaves that the list names: for guests whose CPL3 is native on a KVM
 * that knows of less than the processor has, because it interprets ring 0. */
void cpuid_host(struct kvm_cpuid_table *ret_table);
/* Does such a table have XSAVE, which such a KVM lacks and every processor of these years has? */
bool cpuid_has_xsave(const struct kvm_cpuid_table *table);

/* Has this processor VMX or SVM, so that its KVM runs ring 0 natively? */
bool cpuid_host_virtualizes(void);

/* What of such a table the kernel of a Xen-PV guest sees, which has no ring 0: no features that
 * need it, and Xen's leaves instead of KVM's.  CPL3 is told the truth by the processor, or
 * `of_kvm`, as the host has it. */
void cpuid_xenpv(const struct kvm_cpuid_table *of_kvm, struct kvm_cpuid_table *ret_table);

#endif
