/* vmm/vcpu_state.c - see vmm/vcpu_state.h. */
#include "vmm/vcpu_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "vmm/kvm.h"

/* Without TSC scaling a guest's TSC runs at the host's rate; Linux accepts this much difference
 * between what a guest was told and what is (tsc_tolerance_ppm of kvm). */
enum { TSC_TOLERANCE_PPM = 250 };

/* Linux Documentation/virt/kvm/devices/vcpu.rst §4.1: an offset, unlike a value of IA32_TSC, is the
 * same however long the call takes, and KVM does not take it for an attempt to synchronise. */
static int tsc_offset_call(int vcpu_fd, unsigned long request, const char *name, uint64_t *offset,
                           struct cl_err *err)
{
    struct kvm_device_attr attr = {.group = KVM_VCPU_TSC_CTRL,
                                   .attr = KVM_VCPU_TSC_OFFSET,
                                   .addr = (uint64_t)(uintptr_t)offset};
    return kvm_call(vcpu_fd, request, name, &attr, err);
}

int vcpu_state_set_tsc_offset(int vcpu_fd, uint64_t offset, struct cl_err *err)
{
    return tsc_offset_call(vcpu_fd, KVM_SET_DEVICE_ATTR, "KVM_SET_DEVICE_ATTR(TSC offset)", &offset,
                           err);
}

int vcpu_state_tsc_khz(int vcpu_fd, uint32_t *ret_khz, struct cl_err *err)
{
    int khz = ioctl(vcpu_fd, KVM_GET_TSC_KHZ, 0UL);
    if (khz <= 0)
        return cl_fail(err, CL_E_SYS, khz < 0 ? errno : 0, "KVM_GET_TSC_KHZ: %d", khz);
    *ret_khz = (uint32_t)khz;
    return 0;
}

static int get_tsc(int vcpu_fd, struct vcpu_state *s, struct cl_err *err)
{
    if (vcpu_state_tsc_khz(vcpu_fd, &s->tsc_khz, err) < 0)
        return -1;
    return tsc_offset_call(vcpu_fd, KVM_GET_DEVICE_ATTR, "KVM_GET_DEVICE_ATTR(TSC offset)",
                           &s->tsc_offset, err);
}

static int set_tsc(int vcpu_fd, const struct vcpu_state *s, struct cl_err *err)
{
    int khz = ioctl(vcpu_fd, KVM_GET_TSC_KHZ, 0UL);
    int64_t apart = (int64_t)khz - (int64_t)s->tsc_khz;
    if (khz <= 0 || llabs(apart) * 1000000 > (int64_t)s->tsc_khz * TSC_TOLERANCE_PPM)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the state was made with a TSC of %" PRIu32 " kHz, this host's has %d",
                       s->tsc_khz, khz);
    return vcpu_state_set_tsc_offset(vcpu_fd, s->tsc_offset, err);
}

int vcpu_state_get(int vcpu_fd, const struct msr_set *msrs, struct vcpu_state *ret_state,
                   struct cl_err *err)
{
    struct vcpu_state *s = ret_state;
    memset(s, 0, sizeof *s);
    s->msrs = *msrs;
    if (KVM_CALL(vcpu_fd, KVM_GET_MP_STATE, &s->mp, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_GET_REGS, &s->regs, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_GET_SREGS, &s->sregs, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_GET_XCRS, &s->xcrs, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_GET_XSAVE, s->xsave, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_GET_DEBUGREGS, &s->debug, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_GET_LAPIC, &s->lapic, err) < 0 || get_tsc(vcpu_fd, s, err) < 0 ||
        msr_read(vcpu_fd, &s->msrs, err) < 0)
        return -1;
    return KVM_CALL(vcpu_fd, KVM_GET_VCPU_EVENTS, &s->events, err);
}

int vcpu_state_set(int vcpu_fd, const struct vcpu_state *state, struct cl_err *err)
{
    struct vcpu_state s = *state; /* the calls take no const */
    if (KVM_CALL(vcpu_fd, KVM_SET_MP_STATE, &s.mp, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_SET_REGS, &s.regs, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_SET_SREGS, &s.sregs, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_SET_XCRS, &s.xcrs, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_SET_XSAVE, s.xsave, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_SET_DEBUGREGS, &s.debug, err) < 0 || set_tsc(vcpu_fd, &s, err) < 0 ||
        KVM_CALL(vcpu_fd, KVM_SET_LAPIC, &s.lapic, err) < 0 || msr_write(vcpu_fd, &s.msrs, err) < 0)
        return -1;
    return KVM_CALL(vcpu_fd, KVM_SET_VCPU_EVENTS, &s.events, err);
}

void vcpu_state_save(const struct vcpu_state *s, struct state_writer *out)
{
    state_begin(out, STATE_VCPU);
    state_put_bytes(out, &s->mp, sizeof s->mp);
    state_put_bytes(out, &s->regs, sizeof s->regs);
    state_put_bytes(out, &s->sregs, sizeof s->sregs);
    state_put_bytes(out, &s->xcrs, sizeof s->xcrs);
    state_put_bytes(out, s->xsave, sizeof s->xsave);
    state_put_bytes(out, &s->debug, sizeof s->debug);
    state_put_bytes(out, &s->lapic, sizeof s->lapic);
    state_put_bytes(out, &s->events, sizeof s->events);
    state_put_u64(out, s->tsc_offset);
    state_put_u32(out, s->tsc_khz);
    state_put_u32(out, s->msrs.nmsrs);
    for (uint32_t i = 0; i < s->msrs.nmsrs; i++) {
        state_put_u32(out, s->msrs.entries[i].index);
        state_put_u64(out, s->msrs.entries[i].data);
    }
    state_end(out);
}

/* The values for exactly the registers of our list: a state that could name its own would set any
 * register that KVM lets us. */
static int load_msrs(struct state_reader *in, const struct msr_set *msrs, struct msr_set *ret_msrs,
                     struct cl_err *err)
{
    uint32_t n = state_get_u32(in);
    *ret_msrs = *msrs;
    if (n != msrs->nmsrs)
        return cl_fail(err, CL_E_INVALID, 0, "%" PRIu32 " model-specific registers; want %" PRIu32,
                       n, msrs->nmsrs);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = state_get_u32(in);
        if (index != msrs->entries[i].index)
            return cl_fail(err, CL_E_INVALID, 0,
                           "model-specific register 0x%" PRIx32 "; want 0x%" PRIx32, index,
                           msrs->entries[i].index);
        ret_msrs->entries[i].data = state_get_u64(in);
    }
    return 0;
}

int vcpu_state_load(struct state_reader *in, const struct msr_set *msrs,
                    struct vcpu_state *ret_state, struct cl_err *err)
{
    struct vcpu_state *s = ret_state;
    if (state_enter(in, STATE_VCPU, err) < 0)
        return -1;
    state_get_bytes(in, &s->mp, sizeof s->mp);
    state_get_bytes(in, &s->regs, sizeof s->regs);
    state_get_bytes(in, &s->sregs, sizeof s->sregs);
    state_get_bytes(in, &s->xcrs, sizeof s->xcrs);
    state_get_bytes(in, s->xsave, sizeof s->xsave);
    state_get_bytes(in, &s->debug, sizeof s->debug);
    state_get_bytes(in, &s->lapic, sizeof s->lapic);
    state_get_bytes(in, &s->events, sizeof s->events);
    s->tsc_offset = state_get_u64(in);
    s->tsc_khz = state_get_u32(in);
    if (load_msrs(in, msrs, &s->msrs, err) < 0)
        return cl_wrap(err, "vCPU");
    return state_leave(in, err);
}
