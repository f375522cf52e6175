/* vmm/kvm_stats.h - what the host's KVM counts of a vCPU (api.rst §4.134, KVM_GET_STATS_FD).
 *
 * Owns:    one fd a vCPU; the kernel's answers are trusted, their sizes are not.
 * Thread:  opened by whoever opens the vCPU; read by any one thread, also while the vCPU runs.
 */
#ifndef CL_VMM_KVM_STATS_H
#define CL_VMM_KVM_STATS_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/counts.h"

enum { KVM_STATS_NR = COUNTS_NR - COUNT_KVM_FIRST };

struct kvm_stats {
    int fd;                    /* owned; -1 = this KVM has no statistics */
    uint32_t at[KVM_STATS_NR]; /* where each value is in it; 0 = this KVM does not count it */
};

/* A KVM without statistics is no error, and then there is nothing to add. */
int kvm_stats_open(int kvm_fd, int vcpu_fd, struct kvm_stats *ret_stats,
                   struct cl_err *err) CL_MUST;
void kvm_stats_close(struct kvm_stats *stats);
/* Add to the sums what it counts so far. */
void kvm_stats_add(const struct kvm_stats *stats, struct vm_counts *sums);

#endif
