/* vmm/balloon.h - the guest's free pages go back to the host (virtio 1.2 §5.5, page reporting).
 *
 * Owns:    its registers and one chain.
 * Borrows: guest memory and the irq line's chip.
 * Thread:  the device lock.
 * Nothing is ever asked of the guest: the balloon's target is 0, and what a guest puts into the
 * inflate and deflate queues all the same is given back unread.
 */
#ifndef CL_VMM_BALLOON_H
#define CL_VMM_BALLOON_H

#include "vmm/virtio_mmio.h"

struct balloon {
    struct virtio v;
    uint32_t actual;         /* the guest's own word (§5.5.4); nobody believes it */
    uint64_t reported_bytes; /* since the start */
    struct virtq_chain chain;
};

void balloon_init(struct balloon *b, const struct guest_mem *mem, struct irq_line irq);
/* One STATE_BALLOON section. */
void balloon_save(const struct balloon *b, struct state_writer *w);
int balloon_load(struct balloon *b, struct state_reader *r, struct cl_err *err) CL_MUST;

#endif
