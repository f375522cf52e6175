/* vmm/vm_priv.h - the inside of a machine, for vm.c, vm_serve.c and snapshot.c. */
#ifndef CL_VMM_VM_PRIV_H
#define CL_VMM_VM_PRIV_H

#include <pthread.h>

#include "vmm/balloon.h"
#include "vmm/blk.h"
#include "vmm/console.h"
#include "vmm/ioapic.h"
#include "vmm/kvm.h"
#include "vmm/mem.h"
#include "vmm/msr.h"
#include "vmm/net.h"
#include "vmm/page_runs.h"
#include "vmm/ports.h"
#include "vmm/rng.h"
#include "vmm/serial.h"
#include "vmm/vcpu.h"
#include "vmm/vm.h"
#include "vmm/vsock.h"
#include "vmm/xenpv.h"

#define VM_DEVICES_BASE UINT64_C(0xd0000000)

enum vm_slot { VM_ROOT, VM_SCRATCH, VM_VSOCK, VM_RNG, VM_BALLOON, VM_NET, VM_SLOTS_NR };
enum { VM_LINES = VM_SLOTS_NR + 1 };
_Static_assert((int)COUNT_IRQ_SERIAL - (int)COUNT_IRQ_ROOT == (int)VM_SLOTS_NR &&
                   (int)COUNT_EXIT_NET - (int)COUNT_EXIT_ROOT == (int)VM_NET &&
                   (int)COUNT_KICK_NET - (int)COUNT_KICK_ROOT == (int)VM_NET,
               "counters in the order of the slots");
/* Sockets that the main loop listens on for a device. */
enum vm_wire { VM_CHANNEL, VM_FRAMES, VM_WIRES_NR };
/* Of the file: all vCPUs, the devices and the vsock's buffer, with room.  Without it a state could
 * be of any size. */
enum { VM_STATE_MAX = 512 << 10 };
_Static_assert((int)VM_SLOTS_NR <= (int)VM_DEVICES_MAX, "the MMIO map has room");
_Static_assert(VM_DEVICES_BASE >= XENPV_HOLE &&
                   VM_DEVICES_BASE + VM_SLOTS_NR * VIRTIO_MMIO_BYTES <= XENPV_HOLE_END,
               "no guest has RAM where its devices are");
_Static_assert((int)VM_POLLFDS == 1 + (int)VM_WIRES_NR, "a wake-up, and the wires");
_Static_assert((int)VM_MAC_BYTES == (int)NET_MAC_BYTES, "one length, two names");
_Static_assert((int)VM_VCPUS_MAX == (int)VCPUS_MAX, "one limit, two names");

struct vm {
    struct vm_config config;
    struct guest_mem mem;
    int vm_fd;   /* owned */
    int wake_fd; /* owned: an eventfd that wakes the main loop */
    struct vcpu vcpus[VM_VCPUS_MAX];
    unsigned n_vcpus; /* opened so far */
    struct vcpu_gate gate;
    bool gate_ready;
    struct kvm_cpuid_table processor; /* what this host's can do, or the one's of the state */
    struct kvm_cpuid_table cpuid[VM_VCPUS_MAX];
    struct msr_set msrs; /* which registers this host has */

    pthread_mutex_t devices; /* the device lock: of all below */
    struct ioapic ioapic;
    uint64_t lost_interrupts;
    uint64_t raised[VM_LINES]; /* interrupts, by who raised them: the slots, then the serial port */
    struct serial serial;
    struct console console;
    struct ports ports;
    struct xenpv xenpv;
    struct blk root, scratch;
    struct vsock vsock;
    struct rng rng;
    struct balloon balloon;
    struct net net;
    struct virtio *slots[VM_SLOTS_NR]; /* borrowed from the devices above; NULL = absent */
    short polled[VM_WIRES_NR];         /* what the main loop waits for on each */

    struct iovec constants; /* owned: of a boot's RAM file, what the kernel never writes */
    struct iovec before;    /* owned: of a clone, its RAM file as it is (vmm/delta.h) */
    bool is_recording;      /* ram_fd holds the memory of vm_record() */
    uint64_t *dirty;        /* owned: of a boot in memory of its own, for KVM's log of its writes */
    struct page_runs written; /* since then; of a clone: what it will write */
    struct page_runs holes;   /* of the RAM file, in a snapshot and its clones */
    struct state_head saved;  /* of `state`, when the machine is restored */
    struct state_reader in;   /* of `state` */
    uint8_t
        state[VM_STATE_MAX]; /* untouched, so not resident, until vm_open_state() or vm_save() */
};

/* Its memory slots in KVM, of these flags from now on. */
enum { VM_MEMORY_LOW, VM_MEMORY_HIGH };
int vm_show_memory(struct vm *vm, uint32_t flags, struct cl_err *err) CL_MUST;
/* The head of the state that is to be restored, and the processor of its machine. */
int vm_open_state(struct vm *vm, struct cl_err *err) CL_MUST;
/* Once, when all devices are there: some wait for the main loop from now on. */
void vm_defer_devices(struct vm *vm);
/* An access of a guest, on its vCPU's thread; false when it ended the machine.  arg is the vm. */
bool vm_access(void *arg, struct vcpu_access *access);

#endif
