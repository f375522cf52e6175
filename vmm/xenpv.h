/* vmm/xenpv.h - a stock kernel, entered as a Xen-PV guest: natively where KVM interprets ring 0.
 *
 *     xenpv_load ──► xenpv_set_registers ──► the guest runs ──► xenpv_on_mail, now and then
 *     xenpv_wake, in a clone ──────────────────┘
 *
 * All of the guest is at CPL3, the kernel too, so that such a KVM need not interpret it.  The
 * hypervisor that the kernel sees is the shim (vmm/shim), a small program inside the guest; to the
 * monitor it is guest, too.  It asks for two things, by a byte to SHIM_PORT and a letter at a fixed
 * place: print this, and: the guest broke the contract.  No address of the guest's is ever
 * followed. The machine's end, its ports and its local APIC are those of any other guest.
 *
 * Mode "shared": one set of page tables for kernel and user code.  What is user code in the guest
 * can reach the guest's kernel; what it cannot reach is the monitor, as in any guest.
 *
 * Mode "isolated": user code has page tables without kernel and shim, and no ports.  All that it
 * shares with them are the doors of vmm/shim/layout.h, which CPL0 guards: a few interpreted
 * instructions and a load of CR3 for each way in and out.
 *
 * Owns:    struct xenpv; flat, nothing in it is a pointer.
 * Thread:  before the first vCPU runs; xenpv_on_mail() under the device lock.
 * Reference: Xen 4.17, public/xen.h ("start of day"), docs/misc/pv.
 */
#ifndef CL_VMM_XENPV_H
#define CL_VMM_XENPV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/kvm.h"
#include "vmm/mem.h"
#include "vmm/serial.h"

/* Where its memory has the device hole: no more of it than the devices take, because the kernel has
 * a number for each frame up to the last. */
#define XENPV_HOLE UINT64_C(0xd0000000)
#define XENPV_HOLE_END (XENPV_HOLE + (UINT64_C(2) << 20))
#define XENPV_MEM_MAX (UINT64_C(64) << 30) /* what the shim has page tables for */

enum {
    XENPV_VCPUS_MAX = 4,
    XENPV_PLACES = 2, /* of a kernel, from which all of its hypercalls are made */
};

/* What the machine keeps. */
struct xenpv {
    bool on;       /* its guest was entered so */
    bool gave_up;  /* the shim said that it cannot go on, for this reason: */
    uint32_t trap; /* 0 to 31 */
    uint64_t area; /* where the shim's part of memory begins */
    uint64_t ip, address;
};

struct xenpv_input {
    int kernel_fd; /* vmlinux with Xen's notes */
    int initrd_fd; /* -1 = none */
    const char *cmdline;
    const struct kvm_cpuid_table *cpuids; /* KVM's, of each vCPU */
    unsigned vcpus;                       /* 1 to XENPV_VCPUS_MAX */
    bool is_isolated;                     /* mode */
    uint64_t now_ns;                      /* wall clock */
    uint64_t tsc;                         /* the host's, of the same moment */
    uint32_t tsc_khz;
};

/* A vCPU's first registers: the kernel's on the first one, the others wait in the shim until the
 * kernel starts them. */
struct xenpv_entry {
    unsigned vcpu;
    uint64_t rip, rsp, rsi;     /* linear */
    uint64_t root;              /* guest-physical: its page tables */
    uint64_t slice, on_syscall; /* linear: its part of the shim, and where SYSCALL leads to */
};

/* Kernel, initrd, shim and all that Xen would tell the kernel, into memory, which must be zero, at
 * most XENPV_MEM_MAX, and have that hole.  Returns how many places of its code xenpv_patch() found.
 * INVALID names what the kernel lacks. */
int xenpv_load(const struct guest_mem *mem, const struct xenpv_input *input,
               struct xenpv *ret_xenpv, struct xenpv_entry ret_entries[static XENPV_VCPUS_MAX],
               struct cl_err *err) CL_MUST;
/* What xenpv_load() does to the kernel's code: in n bytes of it, at text, hypercalls become calls
 * of the shim, at these two addresses.  How many of XENPV_PLACES were found; what was not stays as
 * it is, and costs a transition each time. */
int xenpv_patch(uint8_t *text, size_t n, uint64_t hypercall, uint64_t iret);
/* A vCPU to its entry, with its local APIC; its TSC becomes the host's. */
int xenpv_set_registers(int vcpu_fd, const struct xenpv_entry *entry,
                        const struct kvm_cpuid_table *cpuid, struct cl_err *err) CL_MUST;
/* In the memory of a clone, before its vCPUs get their registers: what the shim keeps is all there.
 * Its time goes on from where it was, so many ticks of the host's TSC ago; the TSC itself, which
 * CPL3 reads natively, does not.  INVALID when memory has no room for a shim. */
int xenpv_wake(const struct guest_mem *mem, unsigned vcpus, uint64_t slept, struct xenpv *ret_xenpv,
               struct cl_err *err) CL_MUST;
/* The guest wrote this byte to SHIM_PORT: read its letter.  False when it gave up. */
bool xenpv_on_mail(struct xenpv *xenpv, const struct guest_mem *mem, uint8_t word,
                   struct serial *serial);
/* SHIM_DEVICE_PORT + n has news: a note to the shim, which an interrupt of SHIM_IRQ_VECTOR makes it
 * read. */
void xenpv_note(const struct xenpv *xenpv, const struct guest_mem *mem, unsigned n);
/* Why it gave up. */
int xenpv_explain(const struct xenpv *xenpv, struct cl_err *ret_err);

#endif
