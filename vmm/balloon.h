/* vmm/balloon.h - the guest's pages go back to the host (virtio 1.2 §5.5): those that it reports
 * free, and those that it is asked for.
 *
 * Owns:    its registers and one chain.
 * Borrows: guest memory and the irq line's chip.
 * Thread:  the device lock.
 *
 * A page comes back as gm_forget() says; a guest may count on nothing (§5.5.6).  What leaves the
 * balloon (deflate) needs no work: the host fills it on touch.
 */
#ifndef CL_VMM_BALLOON_H
#define CL_VMM_BALLOON_H

#include "vmm/virtio_mmio.h"

enum {
    BALLOON_PAGE = 4096, /* §5.5.6: whatever the guest's pages are */
    /* Linux sends 256 in one chain; without it a guest could keep the device lock. */
    BALLOON_PAGES_MAX = 1024,
};

struct balloon {
    struct virtio v;
    uint32_t target;         /* pages that we want */
    uint32_t actual;         /* the guest's own word (§5.5.4); nobody believes it */
    uint64_t reported_bytes; /* free pages, since the start */
    uint64_t taken_bytes;    /* pages of the balloon, since the start */
    struct virtq_chain chain;
};

void balloon_init(struct balloon *b, const struct guest_mem *mem, struct irq_line irq);
/* The guest hears of it and gives, or takes back, as it sees fit. */
void balloon_set_target(struct balloon *b, uint32_t pages);
/* One STATE_BALLOON section. */
void balloon_save(const struct balloon *b, struct state_writer *w);
int balloon_load(struct balloon *b, struct state_reader *r, struct cl_err *err) CL_MUST;

#endif
