/* vmm/msr.c - see vmm/msr.h. */
#include "vmm/msr.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>

static const struct row {
    uint32_t index;
    bool unlisted; /* every KVM has it, though KVM_GET_MSR_INDEX_LIST does not say so */
    const char *why;
} rows[] = {
    {0x0000003b, false, "IA32_TSC_ADJUST: the guest's own correction of its TSC"},
    {0x00000048, false, "IA32_SPEC_CTRL: mitigations that the guest has switched on"},
    {0x00000140, false, "MISC_FEATURES_ENABLES: CPUID of its user space may fault"},
    {0x00000174, false, "IA32_SYSENTER_CS: system calls"},
    {0x00000175, false, "IA32_SYSENTER_ESP: the same"},
    {0x00000176, false, "IA32_SYSENTER_EIP: the same"},
    {0x000001a0, false, "IA32_MISC_ENABLE: fast strings, no-execute"},
    {0x00000277, false, "IA32_PAT: memory types of pages"},
    {0x000002ff, true, "IA32_MTRR_DEF_TYPE: memory types; a kernel compares its processors'"},
    {0x4b564d00, false, "kvm-clock: where the page of the wall clock is"},
    {0x4b564d01, false, "kvm-clock: where this processor's page is"},
    {0x4b564d04, false, "KVM's end of interrupt: where its flag is"},
    {0xc0000081, false, "STAR: system calls"},
    {0xc0000082, false, "LSTAR: the same"},
    {0xc0000083, false, "CSTAR: the same"},
    {0xc0000084, false, "SYSCALL_MASK: the same"},
    {0xc0000102, false, "KERNEL_GS_BASE: the kernel's data of this processor"},
    {0xc0000103, false, "TSC_AUX: which processor this is, for user space"},
    {0xc001011f, false, "VIRT_SPEC_CTRL: AMD's mitigation without IA32_SPEC_CTRL"},
    /* Last: written before the local APIC's timer is in deadline mode it is lost, and the guest
     * never ticks again. */
    {MSR_TSC_DEADLINE, false, "IA32_TSC_DEADLINE: the next tick"},
};
_Static_assert(CL_COUNT(rows) <= MSRS_MAX, "a set holds the whole list");

static bool listed(const uint32_t *indexes, size_t n, uint32_t index)
{
    for (size_t i = 0; i < n; i++) {
        if (indexes[i] == index)
            return true;
    }
    return false;
}

void msr_choose(const uint32_t *indexes, size_t n, struct msr_set *ret_set)
{
    memset(ret_set, 0, sizeof *ret_set);
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (rows[i].unlisted || listed(indexes, n, rows[i].index))
            ret_set->entries[ret_set->nmsrs++].index = rows[i].index;
    }
}

int msr_probe(int kvm_fd, struct msr_set *ret_set, struct cl_err *err)
{
    struct { /* a struct kvm_msr_list with room */
        uint32_t nmsrs;
        uint32_t indexes[KVM_MSR_LIST_MAX];
    } list = {.nmsrs = KVM_MSR_LIST_MAX};
    if (KVM_CALL(kvm_fd, KVM_GET_MSR_INDEX_LIST, &list, err) < 0)
        return -1;
    msr_choose(list.indexes, list.nmsrs, ret_set);
    return 0;
}

/* Both calls answer with how many registers they did; the next one is the one that failed. */
static int call_all(int vcpu_fd, unsigned long request, const char *verb, struct msr_set *msrs,
                    struct cl_err *err)
{
    int done = ioctl(vcpu_fd, request, msrs);
    if (done < 0)
        return cl_fail(err, CL_E_SYS, errno, "%s model-specific registers", verb);
    if ((uint32_t)done < msrs->nmsrs)
        return cl_fail(err, CL_E_SYS, 0, "%s model-specific register 0x%x: KVM refused", verb,
                       msrs->entries[done].index);
    return 0;
}

int msr_read(int vcpu_fd, struct msr_set *set, struct cl_err *err)
{
    return call_all(vcpu_fd, KVM_GET_MSRS, "read", set, err);
}

int msr_write(int vcpu_fd, const struct msr_set *set, struct cl_err *err)
{
    struct msr_set copy = *set; /* the call takes no const */
    return call_all(vcpu_fd, KVM_SET_MSRS, "write", &copy, err);
}

int msr_boot(int vcpu_fd, struct cl_err *err)
{
    static const struct msr_set values = {
        .nmsrs = 2,
        .entries = {{.index = 0x1a0, .data = 1},       /* fast strings */
                    {.index = 0x2ff, .data = 0x806}}}; /* MTRRs on, write-back by default */
    return msr_write(vcpu_fd, &values, err);
}

/* --- Xen PV ---------------------------------------------------------------------------------- */

static const struct emulated {
    uint32_t index;
    uint64_t value;
    const char *why;
} emulated[] = {
    {0x0000001b, 0xfee00900, "IA32_APIC_BASE: enabled, of the first processor"},
    {0x0000008b, 0, "IA32_BIOS_SIGN_ID: no microcode known"},
    {0x000000ce, 0, "PLATFORM_INFO: no CPUID faulting, no ratios"},
    {0x00000140, 0, "MISC_FEATURES_ENABLES: nothing to enable"},
    {0x000001a0, 1,
     "IA32_MISC_ENABLE: fast strings; as 0 the kernel takes ERMS from FSRM, and "
     "its memmove() then fails"},
    {0x00000277, UINT64_C(0x0007040600070406), "IA32_PAT: as after power-on"},
    {0xc0000080, 0xd01, "EFER: long mode, SYSCALL, no-execute"},
    {0xc0010015, 0, "HWCR: AMD's, as after power-on"},
};
_Static_assert(CL_COUNT(emulated) <= MSRS_MAX, "a set holds the whole list");

void msr_xenpv(struct msr_set *ret_set)
{
    memset(ret_set, 0, sizeof *ret_set);
    for (size_t i = 0; i < CL_COUNT(emulated); i++)
        ret_set->entries[ret_set->nmsrs++] =
            (struct kvm_msr_entry){.index = emulated[i].index, .data = emulated[i].value};
}
