/* vmm/xenpv_priv.h - the two halves of a Xen-PV guest's memory to each other. */
#ifndef CL_VMM_XENPV_PRIV_H
#define CL_VMM_XENPV_PRIV_H

#include "vmm/shim/state.h"
#include "vmm/xenpv.h"

enum { XENPV_PAGE = 4096 };

/* How the guest's memory is divided.  All guest-physical; from `area` on it is the shim's. */
struct xenpv_plan {
    uint64_t area;
    uint64_t console; /* the page of the console's ring */
    uint64_t root;    /* the page tables that the kernel begins with */
};

/* Where the area begins in such a memory; INVALID when there is no room, or too much memory. */
int xenpv_divide(const struct guest_mem *mem, uint64_t *ret_area, struct cl_err *err) CL_MUST;
/* The area: shim, its state, descriptor and page tables, m2p.  Gives the
 * entries of the top-level table that are the shim's, and where the processor enters it. */
int xenpv_put_area(const struct guest_mem *mem, const struct xenpv_plan *plan,
                   const struct xenpv_input *input, uint64_t ret_slots[static SHIM_SLOTS],
                   struct shim_head *ret_head, struct cl_err *err) CL_MUST;
/* Make hypercalls in n bytes of a kernel's code calls of the shim.  How many of two places. */
unsigned xenpv_patch(uint8_t *text, size_t n, const struct shim_head *head);

#endif
