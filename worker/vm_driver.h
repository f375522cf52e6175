/* worker/vm_driver.h - what the worker asks of a virtual machine monitor, whichever it is.
 *
 * A driver turns a template into VMs.  `qemu` is the first; the project's own vmm comes behind
 * the same interface.  A VM is born from a template's snapshot, or by a boot when it is the one
 * that the snapshot is made of.
 *
 * Owns:    a VM owns its process (through a guardian).
 * Borrows: the template and the body, until the VM's on_end returned.
 * Thread:  the worker loop; callbacks come from it, never from inside a driver call.
 * Trust:   once the guest has run, everything that comes out of a VM is hostile (ARCHITECTURE B2).
 */
#ifndef CL_WORKER_VM_DRIVER_H
#define CL_WORKER_VM_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/util.h"
#include "vmm/counts.h"

struct vm;
struct vm_body;
struct template;

enum vm_origin {
    VM_BOOT = 1,  /* from the kernel: makes the template's snapshot */
    VM_CLONE = 2, /* from the snapshot, copy-on-write */
};

/* What a clone that is put to rest leaves, beside its body: two memfds, the keeper's. */
struct vm_rest {
    int memory; /* what is other than in its template's snapshot; empty: all of it is in the state
                 */
    int state;
};

struct vm_spec {
    const char *name;          /* unique on this worker: state file, cgroup, logs */
    struct template *template; /* borrowed until on_end */
    enum vm_origin origin;
    uid_t uid;                  /* 0 = the worker's own */
    const char *cgroups;        /* "DIR:DIR" that it joins; NULL = none */
    struct vm_body *body;       /* borrowed until on_end */
    const struct vm_rest *rest; /* a clone goes on from there; NULL = as its snapshot is.  Borrowed
                                   during the call */
    bool is_elsewhere;          /* that was saved by another process, perhaps before the host
                                   started */
};

struct vm_events {
    /* The guest runs (booting or restored) and the channel may be used. */
    void (*on_up)(void *arg);
    /* The VM is gone; why says how.  Last event; the vm is freed after it returns. */
    void (*on_end)(void *arg, const struct cl_err *why);
};

struct vm_stats {
    uint64_t cpu_ns; /* host CPU time of the VM's process */
    uint64_t rss_bytes;
    uint64_t pss_bytes; /* 0 where the host does not tell */
};

/* Who wants to know what the monitor counts; the caller's storage.  fn is called once, from the
 * loop, with counts or with err; not any more once `link` is unlinked. */
struct vm_counts_query {
    struct cl_list link;
    void (*fn)(void *arg, const struct vm_counts *counts, const struct cl_err *err);
    void *arg;
};

typedef void vm_done_fn(void *arg, const struct cl_err *err); /* err == NULL: done */

struct vm_driver {
    const char *name; /* "qemu/tcg", "qemu/kvm", "kvm", "kvm/xenpv" */
    bool is_shared; /* user code in a guest can reach the guest's kernel: GUEST_SEPARATION_SHARED */
    uint32_t vcpus_max, memory_max_mib; /* of one VM; 0 = as many as the host has */
    /* A VM that boots has RAM of its own beside what the snapshot gets, and a clone has RAM of its
     * own where the snapshot has holes.  Without it a page there that a clone uses is made in the
     * snapshot's file, too. */
    bool snapshot_is_copy;
    /* Make a VM's guardian; the VM itself starts with the first set_deadline. */
    int (*start)(struct cl_loop *loop, const struct vm_spec *spec, const struct vm_events *events,
                 void *arg, struct vm **ret_vm, struct cl_err *err) CL_MUST;
    /* The wire of its network card, once: a socket, a frame a message.  The caller's from now on;
     * -1 = it has no card.  Until then frames wait in it. */
    int (*take_wire)(struct vm *vm);
    /* Freeze and thaw the guest; a frozen one costs no CPU. */
    int (*pause)(struct vm *vm, struct cl_err *err) CL_MUST;
    int (*resume)(struct vm *vm, struct cl_err *err) CL_MUST;
    /* Enlarge the scratch disk (DISK_DEFAULT_MIB at birth), before the guest is told of it. */
    int (*grow_disk)(struct vm *vm, uint64_t bytes, struct cl_err *err) CL_MUST;
    /* When the guardian kills it, on the monotonic clock.  The first one is the order to start: by
     * then whoever comes after this worker must be able to find the guardian. */
    void (*set_deadline)(struct vm *vm, uint64_t deadline_ns);
    /* What a clone does first is rehearsed from now on: the snapshot will know which memory that
     * takes. NULL = this kind of snapshot does not. */
    int (*record)(struct vm *vm, struct cl_err *err) CL_MUST;
    /* Freeze a clone that runs and write what it is into `rest`, empty memfds; done runs once. Then
     * it is as frozen as by pause(): stop it, or, whether or not it was written, let it resume().
     */
    int (*save)(struct vm *vm, const struct vm_rest *rest, vm_done_fn *done, void *arg,
                struct cl_err *err) CL_MUST;
    /* A sealed snapshot that an earlier process made, just read from its file: clones may be made
     * of it as of one that was made here.  NULL = nothing is to be done for that. */
    int (*adopt)(struct template *t, struct cl_err *err) CL_MUST;
    /* Write the VM's state into the template and end the VM; done runs before on_end. */
    int (*snapshot)(struct vm *vm, vm_done_fn *done, void *arg, struct cl_err *err) CL_MUST;
    /* Kill; on_end follows. */
    void (*stop)(struct vm *vm);
    int (*stats)(const struct vm *vm, struct vm_stats *ret_stats, struct cl_err *err) CL_MUST;
    /* Ask the monitor for its counters; NULL = this kind of monitor has none.  Hostile: below
     * CONTROL_STAT_MAX, but else whatever it likes, and it may never answer. */
    int (*ask_counts)(struct vm *vm, struct vm_counts_query *query, struct cl_err *err) CL_MUST;
    pid_t (*pid)(const struct vm *vm);
    pid_t (*guard_pid)(const struct vm *vm);
};

#endif
