/* worker/kvm.h - the drivers `kvm` and `kvm/xenpv`: cloche-vmm, the project's own monitor.
 *
 * `kvm` wants VMX or SVM.  `kvm/xenpv` is for hosts without: the same kernel, entered by Xen PV
 * (vmm/xenpv.h), in one of two modes.  Isolated is for every tenant; in shared, which is faster,
 * the guests' user code can reach their kernel.
 *
 * Each VM is one jailed cloche-vmm with an empty root: it opens nothing, everything comes to it as
 * fds over its control socket (vmm/control.h).  What it answers is as hostile as its guest.  The
 * program is its template's (worker/monitor_build.h): the build that made what it is cloned from.
 */
#ifndef CL_WORKER_KVM_H
#define CL_WORKER_KVM_H

#include "worker/state_mac.h"
#include "worker/vm_driver.h"
#include "worker/vm_process.h"

struct kvm_settings {
    struct vm_host host;
    struct state_mac_key key; /* of this run of the worker: a snapshot that is read from the cache
                                 gets a new MAC (worker/snapshot_cache.h) */
};

enum kvm_entry { KVM_ENTRY_NATIVE = 0, KVM_ENTRY_XENPV, KVM_ENTRY_XENPV_SHARED };

/* The settings, the same ones for all entries, must outlive every VM.  Before the first start. */
const struct vm_driver *kvm_driver(const struct kvm_settings *settings, enum kvm_entry entry);

#endif
