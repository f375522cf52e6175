/* vmm/msr.h - the model-specific registers that are part of a machine's state.
 *
 * An allow-list with a reason for each row: a snapshot holds these and no others, and a state that
 * names another is refused.  Which of them a host has is asked once, from KVM.
 *
 * The TSC is not among them: vmm/vcpu_state.h restores all processors' together.  EFER and the
 * bases of FS and GS come with KVM_GET_SREGS.
 *
 * Pure, but for msr_probe().  Reference: Intel SDM 4; AMD APM 2, appendix A; Linux
 * Documentation/virt/kvm/x86/msr.rst.
 */
#ifndef CL_VMM_MSR_H
#define CL_VMM_MSR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/kvm.h"

enum { MSRS_MAX = 32 };

#define MSR_TSC_DEADLINE UINT32_C(0x6e0)

/* Values in the order in which they must be set: the deadline of the local APIC's timer last. */
struct msr_set { /* a struct kvm_msrs with room */
    uint32_t nmsrs, padding;
    struct kvm_msr_entry entries[MSRS_MAX];
};
_Static_assert(offsetof(struct msr_set, entries) == offsetof(struct kvm_msrs, entries),
               "KVM reads and writes it");

/* The registers of our list that this host's KVM has; their values are 0. */
int msr_probe(int kvm_fd, struct msr_set *ret_set, struct cl_err *err) CL_MUST;
/* Those of a list of indexes. */
void msr_choose(const uint32_t *indexes, size_t n, struct msr_set *ret_set);
/* Read or write all.  A register that KVM refuses is named. */
int msr_read(int vcpu_fd, struct msr_set *set, struct cl_err *err) CL_MUST;
int msr_write(int vcpu_fd, const struct msr_set *set, struct cl_err *err) CL_MUST;
/* As after power-on, where the firmware that we do not have would set them. */
int msr_boot(int vcpu_fd, struct cl_err *err) CL_MUST;

/* What the kernel of a Xen-PV guest reads: it runs at CPL3, so that each of them is emulated.  All
 * others do not exist for it. */
void msr_xenpv(struct msr_set *ret_set);

#endif
