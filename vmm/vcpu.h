/* vmm/vcpu.h - processors of a machine, each a thread in KVM_RUN, and the gate that stops them all.
 *
 * Owns:    a struct vcpu: its fd, run page and thread; a struct vcpu_gate: its lock.
 * Borrows: gate and bus, for the vCPU's life.
 * Thread:  the owner's, but for what the bus's function does: that runs on the vCPU's thread.
 *
 *                   kick                     open
 *     KVM_RUN ──────────────► at the gate ──────────► KVM_RUN
 *        │                        │ stop
 *        └──── end of the guest ──┴──────────────────► thread ends
 *
 * A vCPU looks at the gate only when KVM_RUN says EINTR.  By then KVM has finished the instruction
 * whose exit we served last (api.rst §5, immediate_exit), so a parked vCPU can be saved as it is.
 */
#ifndef CL_VMM_VCPU_H
#define CL_VMM_VCPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/kvm.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/counts.h"
#include "vmm/kvm_stats.h"
#include "vmm/seccomp.h"

enum { VCPUS_MAX = 8 };

/* One access of the guest outside RAM. */
struct vcpu_access {
    enum vcpu_space { VCPU_PORT, VCPU_MMIO } space;
    bool write;
    uint32_t width;    /* 1, 2 or 4 bytes */
    uint64_t address;  /* port, or guest-physical */
    uint32_t value;    /* written, or to be filled in */
    enum vm_count why; /* to be filled in: as what the exit is counted */
};
/* Serve it; false ends the guest. */
typedef bool vcpu_access_fn(void *arg, struct vcpu_access *access);

struct vcpu_bus {
    vcpu_access_fn *access;
    void *arg; /* borrowed */
};

enum vcpu_end {
    VCPU_RUNS = 0,
    VCPU_STOPPED, /* by vcpu_gate_stop() */
    VCPU_BUS,     /* the bus's function said so */
    VCPU_RESET,   /* triple fault (Intel SDM 3A §6.15), or the guest asked for it */
    VCPU_FAILED,  /* KVM could not go on; the gate's err says why */
};

struct vcpu {
    unsigned id;
    int fd;              /* owned */
    struct kvm_run *run; /* owned */
    size_t run_bytes;
    enum vcpu_end end;              /* its thread's */
    uint64_t exits[COUNT_EXITS_NR]; /* written by its thread only: see vcpu_count() */
    struct kvm_stats stats;         /* owned */
    struct vcpu_bus bus;
    struct vcpu_gate *gate; /* borrowed */
    pthread_t thread;
    pid_t tid; /* atomic: set by its thread, before its first way into the guest */
    bool started;
    bool gone; /* its thread will not run again; under the gate's lock */
};

struct vcpu_gate {
    pthread_mutex_t lock; /* of all below; never held in KVM_RUN or around the bus */
    pthread_cond_t changed;
    enum vcpu_wish { VCPU_GO, VCPU_PARK, VCPU_STOP } wish;
    unsigned alive, parked;
    pid_t pid;                      /* of this process, whose threads are kicked */
    enum vcpu_end end;              /* of the vCPU that ended first */
    struct cl_err err;              /* of VCPU_FAILED */
    int ended_fd;                   /* borrowed: an eventfd that tells the owner; -1 = none */
    struct vcpu *vcpus;             /* borrowed: the array of all */
    const struct cl_filter *filter; /* borrowed: each thread enters it first, and then never
                                        ends but with the process; NULL = none */
    unsigned n;
};

int vcpu_open(struct vcpu *vcpu, int kvm_fd, int vm_fd, unsigned id, struct cl_err *err) CL_MUST;
/* The thread must not run (any more).  A zeroed struct is fine. */
void vcpu_close(struct vcpu *vcpu);

/* Add how often it came out of its guest, and why, from any thread. */
void vcpu_count(const struct vcpu *vcpu, struct vm_counts *sums);

/* The array must not move.  Installs the handler of the signal that kicks. */
int vcpu_gate_init(struct vcpu_gate *gate, struct vcpu *vcpus, unsigned n, int ended_fd,
                   struct cl_err *err) CL_MUST;
void vcpu_gate_fini(struct vcpu_gate *gate);
/* Threads for all, parked at the gate. */
int vcpu_start(struct vcpu_gate *gate, struct vcpu_bus bus, struct cl_err *err) CL_MUST;
void vcpu_gate_open(struct vcpu_gate *gate);
/* Back when no vCPU is in the guest any more; DEADLINE when one did not come within 5 s, STATE when
 * the guest has ended. */
int vcpu_gate_park(struct vcpu_gate *gate, struct cl_err *err) CL_MUST;
/* End all threads and wait for them. */
void vcpu_gate_stop(struct vcpu_gate *gate);
/* How the guest ended, VCPU_RUNS while it has not; *ret_err (may be NULL) says why it failed. */
enum vcpu_end vcpu_gate_end(struct vcpu_gate *gate, struct cl_err *ret_err);

#endif
