/* vmm/kvm.c - see vmm/kvm.h. */
#include "vmm/kvm.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/own.h"

enum { API_VERSION = 12 }; /* "stable" since Linux 2.6.22, api.rst §4.1 */

static const struct need {
    int extension;
    const char *name, *why;
} needs[] = {
    {KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY", "guest memory is memory of this process"},
    {KVM_CAP_SPLIT_IRQCHIP, "KVM_CAP_SPLIT_IRQCHIP", "local APICs without PIC, PIT and IOAPIC"},
    {KVM_CAP_SIGNAL_MSI, "KVM_CAP_SIGNAL_MSI", "the way of every interrupt"},
    {KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT", "pausing without a race"},
    {KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE", "processors that wait are saved"},
    {KVM_CAP_XSAVE, "KVM_CAP_XSAVE", "vector registers are saved"},
    {KVM_CAP_XCRS, "KVM_CAP_XCRS", "vector registers are saved"},
    {KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS", "pending interrupts are saved"},
    {KVM_CAP_DEBUGREGS, "KVM_CAP_DEBUGREGS", "debug registers are saved"},
    {KVM_CAP_ADJUST_CLOCK, "KVM_CAP_ADJUST_CLOCK", "the guest's clock is saved"},
};

int kvm_call(int fd, unsigned long request, const char *name, void *arg, struct cl_err *err)
{
    if (ioctl(fd, request, arg) < 0)
        return cl_fail(err, CL_E_SYS, errno, "%s", name);
    return 0;
}

int kvm_extension(int fd, int extension)
{
    int value = ioctl(fd, KVM_CHECK_EXTENSION, (unsigned long)extension);
    return value < 0 ? 0 : value;
}

int kvm_check(int kvm_fd, struct cl_err *err)
{
    int version = ioctl(kvm_fd, KVM_GET_API_VERSION, 0UL);
    if (version < 0)
        return cl_fail(err, CL_E_SYS, errno, "the file is not /dev/kvm: KVM_GET_API_VERSION");
    if (version != API_VERSION)
        return cl_fail(err, CL_E_UNIMPL, 0, "KVM's API has version %d; want %d", version,
                       API_VERSION);
    for (size_t i = 0; i < CL_COUNT(needs); i++) {
        if (kvm_extension(kvm_fd, needs[i].extension) == 0)
            return cl_fail(err, CL_E_UNIMPL, 0, "this host's KVM lacks %s (%s)", needs[i].name,
                           needs[i].why);
    }
    return 0;
}

int kvm_create_vm(int kvm_fd, int *ret_vm_fd, struct cl_err *err)
{
    int fd = ioctl(kvm_fd, KVM_CREATE_VM, 0UL);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "KVM_CREATE_VM");
    *ret_vm_fd = fd;
    return 0;
}

int kvm_set_slot(int vm_fd, const struct kvm_slot *slot, struct cl_err *err)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot->number,
        .flags = slot->flags,
        .guest_phys_addr = slot->gpa,
        .memory_size = slot->bytes,
        .userspace_addr = (uint64_t)(uintptr_t)slot->host,
    };
    return KVM_CALL(vm_fd, KVM_SET_USER_MEMORY_REGION, &region, err);
}

int kvm_dirty_log(int vm_fd, uint32_t slot, uint64_t *ret_bits, struct cl_err *err)
{
    struct kvm_dirty_log log = {.slot = slot, .dirty_bitmap = ret_bits};
    return KVM_CALL(vm_fd, KVM_GET_DIRTY_LOG, &log, err);
}

int kvm_split_irqchip(int vm_fd, struct cl_err *err)
{
    struct kvm_enable_cap cap = {.cap = KVM_CAP_SPLIT_IRQCHIP, .args = {KVM_IOAPIC_PINS}};
    if (ioctl(vm_fd, KVM_ENABLE_CAP, &cap) < 0)
        return cl_fail(err, CL_E_SYS, errno, "KVM_ENABLE_CAP(KVM_CAP_SPLIT_IRQCHIP)");
    return 0;
}

int kvm_signal_msi(int vm_fd, uint32_t address, uint32_t data, struct cl_err *err)
{
    struct kvm_msi msi = {.address_lo = address, .data = data};
    return KVM_CALL(vm_fd, KVM_SIGNAL_MSI, &msi, err);
}

int kvm_create_vcpu(int vm_fd, uint32_t id, int *ret_vcpu_fd, struct cl_err *err)
{
    int fd = ioctl(vm_fd, KVM_CREATE_VCPU, (unsigned long)id);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "KVM_CREATE_VCPU %u", id);
    *ret_vcpu_fd = fd;
    return 0;
}

int kvm_map_run(int kvm_fd, int vcpu_fd, struct kvm_run **ret_run, size_t *ret_bytes,
                struct cl_err *err)
{
    int bytes = ioctl(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0UL);
    if (bytes < (int)sizeof(struct kvm_run))
        return cl_fail(err, CL_E_SYS, bytes < 0 ? errno : 0, "KVM_GET_VCPU_MMAP_SIZE: %d", bytes);
    void *run = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu_fd, 0);
    if (run == MAP_FAILED)
        return cl_fail(err, CL_E_SYS, errno, "map a vCPU's run page");
    *ret_run = run;
    *ret_bytes = (size_t)bytes;
    return 0;
}

int kvm_supported_cpuid(int kvm_fd, struct kvm_cpuid_table *ret_table, struct cl_err *err)
{
    ret_table->nent = KVM_CPUID_MAX;
    return KVM_CALL(kvm_fd, KVM_GET_SUPPORTED_CPUID, ret_table, err);
}
