/* vmm/kvm.h - the ioctls of /dev/kvm, with errors that name the call.
 *
 * Owns:    nothing; fds belong to who asked for them.
 * Thread:  a VM's ioctls from any thread, a vCPU's only from its own thread or while that is parked
 *          (Documentation/virt/kvm/api.rst §1).
 * Order:   memory slots, then the interrupt chip, then vCPUs.  The other way round every slot waits
 *          for a grace period of the host's kernel (7 ms against 50 us).
 */
#ifndef CL_VMM_KVM_H
#define CL_VMM_KVM_H

#include <stddef.h>
#include <stdint.h>
#include <linux/kvm.h>

#include "base/err.h"
#include "base/util.h"

enum {
    KVM_IOAPIC_PINS = 24,    /* pins of the interrupt chip that we emulate ourselves */
    KVM_CPUID_MAX = 256,     /* KVM_MAX_CPUID_ENTRIES of the host's kernel */
    KVM_MSR_LIST_MAX = 1024, /* indexes that the host's kernel may name; it names about 100 */
};

/* A struct kvm_cpuid2 with room for all that KVM can have (api.rst §4.46). */
struct kvm_cpuid_table {
    uint32_t nent, padding;
    struct kvm_cpuid_entry2 entries[KVM_CPUID_MAX];
};
_Static_assert(offsetof(struct kvm_cpuid_table, entries) == offsetof(struct kvm_cpuid2, entries),
               "KVM reads and writes it");

/* One ioctl whose name is in the error: KVM_CALL(fd, KVM_SET_REGS, &regs, err). */
#define KVM_CALL(fd, request, arg, err) kvm_call((fd), (request), #request, (arg), (err))
/* 0, or -1 with the name of the call and its errno. */
int kvm_call(int fd, unsigned long request, const char *name, void *arg,
             struct cl_err *err) CL_MUST;

/* Refuses what is no KVM of API version 12 or lacks an extension that we cannot do without; the
 * error names it. */
int kvm_check(int kvm_fd, struct cl_err *err) CL_MUST;
/* The value of an extension, 0 when there is none; fd is /dev/kvm or a VM. */
int kvm_extension(int fd, int extension);

int kvm_create_vm(int kvm_fd, int *ret_vm_fd, struct cl_err *err) CL_MUST;
/* `bytes` of this process at `host`, which the guest sees from guest-physical address `gpa` on. */
struct kvm_slot {
    uint32_t number, flags; /* KVM_MEM_...; only they may change later */
    uint64_t gpa;
    void *host;
    uint64_t bytes;
};
int kvm_set_slot(int vm_fd, const struct kvm_slot *slot, struct cl_err *err) CL_MUST;
/* Which pages of a slot of KVM_MEM_LOG_DIRTY_PAGES the guest wrote since it has been one, or since
 * the last time: a bit each, in words of 64 (api.rst §4.8). */
int kvm_dirty_log(int vm_fd, uint32_t slot, uint64_t *ret_bits, struct cl_err *err) CL_MUST;
/* The local APICs stay in the host's kernel; PIC, PIT and IOAPIC do not exist there. */
int kvm_split_irqchip(int vm_fd, struct cl_err *err) CL_MUST;
/* Deliver one message-signalled interrupt (Intel SDM 3A §11.11).  A guest whose local APIC is off
 * or blocks it is no error. */
int kvm_signal_msi(int vm_fd, uint32_t address, uint32_t data, struct cl_err *err) CL_MUST;
int kvm_create_vcpu(int vm_fd, uint32_t id, int *ret_vcpu_fd, struct cl_err *err) CL_MUST;
/* The page(s) through which KVM_RUN talks; unmap with munmap(*ret_run, *ret_bytes). */
int kvm_map_run(int kvm_fd, int vcpu_fd, struct kvm_run **ret_run, size_t *ret_bytes,
                struct cl_err *err) CL_MUST;
/* What this host could show a guest; cpuid_filter() makes a guest's table of it. */
int kvm_supported_cpuid(int kvm_fd, struct kvm_cpuid_table *ret_table, struct cl_err *err) CL_MUST;

#endif
