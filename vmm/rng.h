/* vmm/rng.h - entropy for the guest (virtio 1.2 §5.4): every request is filled by getrandom(2).
 *
 * Owns:    its registers and one chain.
 * Borrows: guest memory and the irq line's chip.
 * Thread:  the device lock.
 */
#ifndef CL_VMM_RNG_H
#define CL_VMM_RNG_H

#include "vmm/virtio_mmio.h"

/* Bytes a request gets at the most.  Without it one notify could make us draw gigabytes, with the
 * device lock held. */
enum { RNG_REQUEST_MAX = 64 * 1024 };

struct rng {
    struct virtio v;
    struct virtq_chain chain;
};

void rng_init(struct rng *r, const struct guest_mem *mem, struct irq_line irq);
/* One STATE_RNG section. */
void rng_save(const struct rng *r, struct state_writer *w);
int rng_load(struct rng *r, struct state_reader *in, struct cl_err *err) CL_MUST;

#endif
