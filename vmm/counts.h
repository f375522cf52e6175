/* vmm/counts.h - how often, and why, a machine's vCPUs left their guest: one table of counters, for
 * the monitor that counts and the worker that tells.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_VMM_COUNTS_H
#define CL_VMM_COUNTS_H

#include <stdint.h>

#include "base/util.h"

enum vm_count {
#define COUNT(name, text, meaning) COUNT_##name,
#include "vmm/counts.def"
#undef COUNT
    COUNTS_NR,
    COUNT_EXITS_NR = COUNT_IRQ_ROOT, /* those that vCPUs count themselves come first */
    COUNT_KVM_FIRST = COUNT_KVM_EXITS,
};

enum { COUNTS_MAX = 64 }; /* room on the wire, and bits in vm_counts.known */
_Static_assert((int)COUNTS_NR <= (int)COUNTS_MAX, "room on the wire");

struct vm_counts {
    uint64_t known; /* bit n: counter n is counted here */
    uint64_t of[COUNTS_MAX];
};

static inline void vm_counts_add(struct vm_counts *counts, enum vm_count which, uint64_t n)
{
    counts->known |= UINT64_C(1) << which;
    counts->of[which] += n;
}

/* "exits.vsock".  Never NULL. */
const char *vm_count_name(enum vm_count which);

#endif
