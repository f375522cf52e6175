/* vmm/virtq.h - one split virtqueue, from the device's end (virtio 1.2 §2.7).
 *
 * Owns:    its two positions.
 * Borrows: guest memory.
 * Thread:  the device lock.
 * What a driver wrote into registers is checked once, by virtq_start(), and used from then on;
 * what it writes into rings is copied once and checked in the copy.  A driver that breaks a rule
 * gets its queue stopped: `fault` says which rule, and no chain comes out any more.
 * No indirect descriptors, no event index, no packed rings.
 */
#ifndef CL_VMM_VIRTQ_H
#define CL_VMM_VIRTQ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "vmm/mem.h"
#include "vmm/span.h"

/* The longest queue that a device may offer; bounds struct virtq_chain.  Without it a guest would
 * size our tables. */
enum { VIRTQ_SIZE_MAX = 256 };

enum virtq_fault {
    VIRTQ_NO_FAULT = 0,
#define VIRTQ_FAULT(name, rule) VIRTQ_FAULT_##name,
#include "vmm/virtq_faults.def"
#undef VIRTQ_FAULT
    VIRTQ_FAULT_NR
};

/* The rule that was broken, for people; never NULL. */
const char *virtq_fault_name(enum virtq_fault fault);

/* What a driver writes into the transport's registers; nothing in it is checked. */
struct virtq_setup {
    uint32_t size;
    bool ready;
    struct gpa desc;   /* descriptor table: 16 bytes an entry (§2.7.5) */
    struct gpa driver; /* avail ring (§2.7.6) */
    struct gpa device; /* used ring (§2.7.8) */
};

struct virtq {
    const struct guest_mem *mem; /* borrowed; NULL until started */
    uint16_t size;               /* a power of two */
    uint16_t next_avail;         /* free-running, as the ring's own indexes */
    uint16_t next_used;
    uint16_t told; /* next_used at the last virtio_signal() */
    struct gpa desc, driver, device;
    enum virtq_fault fault;
};

/* One request: what the device reads, then what it writes.  Points into itself: never copied. */
struct virtq_chain {
    uint16_t head;
    struct span out; /* device-readable */
    struct span in;  /* device-writable */
    struct iovec iov[VIRTQ_SIZE_MAX];
};

/* Check a set-up and start at position 0.  Returns the fault, which q keeps as well. */
enum virtq_fault virtq_start(struct virtq *q, const struct guest_mem *mem,
                             const struct virtq_setup *setup, uint16_t size_max) CL_MUST;
/* Not started, and no fault. */
void virtq_stop(struct virtq *q);
bool virtq_is_live(const struct virtq *q);

/* The next chain.  False when there is none, the queue is not live, or the driver broke a rule
 * (then q->fault is set). */
bool virtq_pop(struct virtq *q, struct virtq_chain *ret) CL_MUST;
/* Give back the chain that came out last; the next pop reads it anew. */
void virtq_unpop(struct virtq *q);
/* Return a chain with `written` bytes in its writable part. */
void virtq_push(struct virtq *q, const struct virtq_chain *chain, uint32_t written);
/* Does the driver want an interrupt for what was pushed (§2.7.7)? */
bool virtq_wants_irq(const struct virtq *q);

#endif
