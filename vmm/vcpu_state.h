/* vmm/vcpu_state.h - all that makes a processor, out of KVM and back into it.
 *
 * Owns:    nothing; fixed size, no heap.
 * Thread:  while the vCPU is parked or has not started.
 * The structs of linux/kvm.h are the fields: they are the kernel's ABI, little-endian and without
 * padding that matters.  KVM checks the values that it is given; what it would not check (which
 * registers, how many bytes) is checked here.
 *
 * Order matters in both directions; Linux Documentation/virt/kvm/api.rst names the pairs:
 *     out  MP_STATE first (it may take in a pending INIT or SIPI), VCPU_EVENTS last
 *     in   SREGS before LAPIC (APIC base), TSC and LAPIC before the TSC's deadline, VCPU_EVENTS
 * after REGS (which drops pending exceptions)
 */
#ifndef CL_VMM_VCPU_STATE_H
#define CL_VMM_VCPU_STATE_H

#include <stdint.h>
#include <linux/kvm.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/msr.h"
#include "vmm/state.h"

/* Holds all of CPUID's XCR0_ALLOWED (vmm/cpuid.c). */
enum { VCPU_XSAVE_WORDS = 1024 };
_Static_assert(sizeof(struct kvm_xsave) == VCPU_XSAVE_WORDS * sizeof(uint32_t),
               "KVM reads and writes it");

struct vcpu_state {
    struct kvm_mp_state mp;
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct kvm_xcrs xcrs;
    uint32_t xsave[VCPU_XSAVE_WORDS]; /* a struct kvm_xsave */
    struct kvm_debugregs debug;
    struct kvm_lapic_state lapic;
    struct kvm_vcpu_events events;
    struct msr_set msrs;
    uint64_t tsc_offset; /* guest's TSC - host's */
    uint32_t tsc_khz;
};

/* msrs: which registers, from msr_probe(). */
int vcpu_state_get(int vcpu_fd, const struct msr_set *msrs, struct vcpu_state *ret_state,
                   struct cl_err *err) CL_MUST;
int vcpu_state_set(int vcpu_fd, const struct vcpu_state *state, struct cl_err *err) CL_MUST;

/* What a processor's TSC is ahead of the host's, and its rate. */
int vcpu_state_set_tsc_offset(int vcpu_fd, uint64_t offset, struct cl_err *err) CL_MUST;
int vcpu_state_tsc_khz(int vcpu_fd, uint32_t *ret_khz, struct cl_err *err) CL_MUST;

/* One STATE_VCPU section. */
void vcpu_state_save(const struct vcpu_state *state, struct state_writer *out);
/* msrs: the registers that the state must hold, in that order.  INVALID otherwise. */
int vcpu_state_load(struct state_reader *in, const struct msr_set *msrs,
                    struct vcpu_state *ret_state, struct cl_err *err) CL_MUST;

#endif
