/* vmm/xenpv_priv.h - the two halves of a Xen-PV guest's memory to each other. */
#ifndef CL_VMM_XENPV_PRIV_H
#define CL_VMM_XENPV_PRIV_H

#include "vmm/shim/state.h"
#include "vmm/xenpv.h"

enum { XENPV_PAGE = 4096 };
_Static_assert((int)XENPV_VCPUS_MAX == (int)SHIM_CPUS_MAX, "one limit, two names");

/* How the guest's memory is divided.  All guest-physical; from `area` on it is the shim's. */
struct xenpv_plan {
    uint64_t area;
    uint64_t console; /* the page of the console's ring */
    uint64_t root;    /* the page tables that the kernel begins with */
    uint64_t image;   /* linear: where the kernel has guest-physical 0 */
};

/* The kernel's part of such a memory; the area begins where it ends.  INVALID when there is no
 * room, or too much memory. */
int xenpv_divide(const struct guest_mem *mem, struct guest_mem *ret_ram,
                 struct cl_err *err) CL_MUST;
/* What the kernel and the processors need to know of the area that was made. */
struct xenpv_area {
    uint64_t slots[SHIM_SLOTS];                  /* the shim's entries of a top-level table */
    struct shim_head head;                       /* where the first vCPU's code is entered */
    struct xenpv_entry entries[XENPV_VCPUS_MAX]; /* the first one is still to learn of its kernel */
};

/* The area: the vCPUs' slices, what they share, page tables, m2p and levels. */
int xenpv_put_area(const struct guest_mem *mem, const struct xenpv_plan *plan,
                   const struct xenpv_input *input, struct xenpv_area *ret_area,
                   struct cl_err *err) CL_MUST;

#endif
