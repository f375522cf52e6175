/* vmm/vm.h - the machine: memory, processors, devices, and the order in which they come to be.
 *
 *     vm_create ──► vm_boot ─────┐
 *         └───────► vm_restore ──┴─► vm_ready ──► vm_resume ⇄ vm_pause ──► vm_save, vm_save_clone
 *
 * Owns:    everything between /dev/kvm and the devices.
 * Borrows: the fds of struct vm_config, for the machine's life.
 * Thread:  the main thread calls; guests' accesses are served on the vCPUs' threads.  Device state
 * is under one lock, the device lock, which only this file and its parts know.
 *
 *     MMIO   0xd0000000 + n * 0x1000   device n: 0 root disk, 1 scratch disk, 2 vsock, 3 rng,
 *                                      4 balloon, 5 network card
 *            0xfec00000                interrupt controller
 *     GSI    4 serial, 5 + n device n
 */
#ifndef CL_VMM_VM_H
#define CL_VMM_VM_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum { VM_DEVICES_MAX = 8, VM_VCPUS_MAX = 8, VM_POLLFDS = 3, VM_GUEST_CID = 3, VM_MAC_BYTES = 6 };

struct cl_filter;
struct vm_counts;

enum vm_entry {
    VM_ENTRY_ANY = 0, /* in 64-bit mode, or by PVH when the kernel has no such entry */
    VM_ENTRY_PVH,     /* by PVH (vmm/boot.h) */
    VM_ENTRY_XENPV,   /* by Xen PV (vmm/xenpv.h) */
};

struct vm_config {
    uint64_t mem_bytes;
    unsigned vcpus;      /* 1 to VM_VCPUS_MAX */
    const char *cmdline; /* read by vm_boot(); NULL when the machine is restored */
    int kvm_fd;          /* /dev/kvm */
    int ram_fd;   /* memory file of mem_bytes: the memory of a machine that boots, copied from on
                     write by one that is restored */
    bool own_ram; /* vm_boot() in memory of its own, faster (vmm/mem.h: gm_alloc); vm_save() writes
                     it to ram_fd */
    int kernel_fd, initrd_fd; /* read by vm_boot(); initrd_fd -1 = none */
    enum vm_entry entry; /* how vm_boot() enters the kernel, or did before the state was saved */
    bool is_isolated; /* with VM_ENTRY_XENPV: that mode (vmm/xenpv.h), at the save as at the boot */
    int root_fd;      /* read-only disk; -1 = none */
    int scratch_fd;   /* writable disk; -1 = none */
    int channel_fd;   /* host's side of the agent's vsock port; -1 = no vsock */
    int net_fd;       /* the network card's wire (vmm/net.h); -1 = no card */
    uint8_t mac[VM_MAC_BYTES];
    int console_fd; /* serial output; -1 = nowhere */
    int state_fd;   /* read when restore */
    int delta_fd; /* the same: of vm_save_clone(); -1 = the state is that of ram_fd's own machine */
    bool restore; /* vm_restore() follows, not vm_boot() */
    bool is_here; /* with restore: the state was saved on this host since it started, so what its
                     processor can do is taken from there (some 2 ms where CPUID is dear) */
    const struct cl_filter *vcpu_filter; /* borrowed: entered by each vCPU's thread before its
                                             first guest instruction; then there is no vm_stop() and
                                             vm_free(), but exit; NULL = none */
};

enum vm_end {
    VM_RUNS = 0,
    VM_OFF,    /* the guest switched itself off */
    VM_RESET,  /* it asked for a reset, or a processor of it gave up (triple fault) */
    VM_EXIT,   /* it wrote a status to the exit port */
    VM_PANIC,  /* it told of a panic */
    VM_FAILED, /* KVM could not go on; err says why */
    VM_STOPPED /* vm_stop() */
};

struct vm_report {
    enum vm_end end;
    unsigned status;   /* of VM_EXIT */
    struct cl_err err; /* of VM_FAILED */
};

struct vm;

/* Memory, then the interrupt chip, then processors and devices; nothing runs. */
int vm_create(const struct vm_config *config, struct vm **ret_vm, struct cl_err *err) CL_MUST;
/* Stops what still runs.  NULL is a no-op. */
void vm_free(struct vm *vm);
CL_DEFINE_AUTO(struct vm, vm_free)

/* Kernel, initrd and tables into memory, the first processor to its entry. */
int vm_boot(struct vm *vm, struct cl_err *err) CL_MUST;
/* The state of state_fd.  Every byte of it is taken as hostile; INVALID when it does not fit this
 * machine, and then the machine is good for vm_free() only.  vm_create() has read its beginning. */
int vm_restore(struct vm *vm, struct cl_err *err) CL_MUST;

/* Threads for the vCPUs; each confines itself and waits. */
int vm_ready(struct vm *vm, struct cl_err *err) CL_MUST;
void vm_resume(struct vm *vm);
/* Both in one. */
int vm_run(struct vm *vm, struct cl_err *err) CL_MUST;
/* Back when no guest instruction runs and no device is at work. */
int vm_pause(struct vm *vm, struct cl_err *err) CL_MUST;
/* Paused: no vCPU has anything to do until an interrupt comes.  False where KVM cannot say;
 * vm_save() asks it the same, and fails with its answer. */
bool vm_is_idle(const struct vm *vm);
/* A machine with own_ram, paused: vm_save() tells its clones which pages were written from here on.
 * Writes ram_fd. */
int vm_record(struct vm *vm, struct cl_err *err) CL_MUST;
/* Write the state of a paused machine to the start of a file, and its memory to ram_fd if it is not
 * there (own_ram). */
int vm_save(struct vm *vm, int state_fd, struct cl_err *err) CL_MUST;
/* The same of a paused machine that was restored: its memory as what is other than in ram_fd.  It
 * may go on afterwards. */
int vm_save_clone(struct vm *vm, int delta_fd, int state_fd, struct cl_err *err) CL_MUST;
void vm_stop(struct vm *vm);

/* What the main loop polls for the machine, and what it does with the answer.  Ask again before
 * each poll(): what a device waits for changes. */
size_t vm_pollfds(struct vm *vm, struct pollfd fds[static VM_POLLFDS]);
void vm_on_poll(struct vm *vm, const struct pollfd *fds, size_t n);
/* VM_RUNS until the guest has ended; vm_pollfds() tells when to ask. */
void vm_report(struct vm *vm, struct vm_report *ret_report);

/* Ask the guest for so many bytes of its memory, or, with fewer than before, give some back. */
void vm_set_balloon(struct vm *vm, uint64_t bytes);
/* What the guest has given back since this machine was made, by the balloon or as free pages. */
uint64_t vm_freed_bytes(struct vm *vm);
/* Add what is counted (vmm/counts.h); of the running machine, so no two figures are of one moment.
 */
void vm_count(struct vm *vm, struct vm_counts *sums);
/* The scratch disk's file has grown; while paused or before vm_run(). */
int vm_grow_scratch(struct vm *vm, struct cl_err *err) CL_MUST;

#endif
