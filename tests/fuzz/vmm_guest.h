/* tests/fuzz/vmm_guest.h - fuzz bytes as a guest: each step is an act of a driver on one device.
 *
 *   0 descriptor   queue, index, addr u24, len u16, flags, next     5 poke       addr u24, n, bytes
 *   1 offer        queue, head                                      6 start      size
 *   2 notify       queue                                            7 snapshot   (save, load, kick)
 *   3 write        offset u16, width, value u32                     8 host       the target's own
 *   4 read         offset u16, width                                9 index      queue, u16
 *
 * After each step the device must be in a state that can be.
 */
#ifndef CL_TESTS_FUZZ_VMM_GUEST_H
#define CL_TESTS_FUZZ_VMM_GUEST_H

#include "tests/fuzz/bytes.h"
#include "tests/unit/vmm/driver.h"

struct fuzz_guest {
    struct drv drv;
    struct virtio *v;
    void (*snapshot)(void); /* save the device and go on with what was loaded */
    void (*host)(struct fuzz_in *in);
    unsigned snapshots_left;
};

FUZZ_UNSEEN static inline void fuzz_check(const struct virtio *v)
{
    uint32_t step = v->status & ~0xc0u;
    CL_ASSERT(step == 0 || step == 1 || step == 3 || step == 0xb || step == 0xf);
    CL_ASSERT(((v->status & 0x40) != 0) == (v->fault != VIRTQ_NO_FAULT));
    for (unsigned i = 0; i < v->ops->n_queues; i++) {
        const struct virtq *q = &v->queue[i];
        CL_ASSERT(!virtq_is_live(q) || step == 0xf);
        CL_ASSERT(!virtq_is_live(q) || (q->size > 0 && (q->size & (q->size - 1)) == 0));
        CL_ASSERT(q->next_avail == q->next_used); /* nothing is in flight between two acts */
    }
}

static inline void fuzz_poke(struct fuzz_guest *g, struct fuzz_in *in)
{
    uint64_t at = fuzz_get(in, 3) % DRV_RAM;
    size_t n = fuzz_get(in, 1);
    n = CL_MIN(n, in->left);
    n = CL_MIN(n, DRV_RAM - at);
    drv_put(&g->drv, at, in->data, n);
    in->data += n;
    in->left -= n;
}

static inline void fuzz_descriptor(struct fuzz_guest *g, struct fuzz_in *in)
{
    unsigned queue = fuzz_get(in, 1) % g->v->ops->n_queues;
    uint16_t index = (uint16_t)fuzz_get(in, 1);
    struct drv_desc d;
    d.addr = fuzz_get(in, 3);
    d.len = fuzz_get(in, 2);
    d.flags = (uint16_t)fuzz_get(in, 1);
    d.next = (uint16_t)fuzz_get(in, 1);
    if (d.flags & 0x80) /* a flag of nobody: reach large pieces */
        d.len <<= 8;
    drv_set_desc(&g->drv, queue, index, d);
}

static inline void fuzz_access(struct fuzz_guest *g, struct fuzz_in *in, bool write)
{
    uint32_t offset = fuzz_get(in, 2), width = fuzz_get(in, 1);
    if (write)
        virtio_write(g->v, offset, width, fuzz_get(in, 4));
    else
        (void)virtio_read(g->v, offset, width);
}

static inline void fuzz_step(struct fuzz_guest *g, struct fuzz_in *in)
{
    unsigned queue;
    switch (fuzz_get(in, 1) % 10) {
    case 0:
        fuzz_descriptor(g, in);
        break;
    case 1:
        queue = fuzz_get(in, 1) % g->v->ops->n_queues;
        drv_offer(&g->drv, queue, (uint16_t)fuzz_get(in, 1), CL_MAX(g->v->queue[queue].size, 1));
        break;
    case 2:
        drv_notify(g->v, fuzz_get(in, 1));
        break;
    case 3:
        fuzz_access(g, in, true);
        break;
    case 4:
        fuzz_access(g, in, false);
        break;
    case 5:
        fuzz_poke(g, in);
        break;
    case 6:
        drv_start(&g->drv, g->v, fuzz_get(in, 1));
        break;
    case 7:
        if (g->snapshots_left > 0) {
            g->snapshots_left--;
            g->snapshot();
        }
        break;
    case 8:
        if (g->host)
            g->host(in);
        break;
    default:
        queue = fuzz_get(in, 1) % g->v->ops->n_queues;
        drv_set_idx(&g->drv, queue, (uint16_t)fuzz_get(in, 2));
    }
}

/* Steps without a bound would let one input run for minutes; a snapshot costs as much as twenty
 * other steps, and the fuzzer would make inputs of nothing else. */
enum { FUZZ_STEPS_MAX = 128, FUZZ_SNAPSHOTS_MAX = 4 };

static inline void fuzz_run(struct fuzz_guest *g, const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    g->snapshots_left = FUZZ_SNAPSHOTS_MAX;
    for (int i = 0; i < FUZZ_STEPS_MAX && in.left > 0; i++) {
        fuzz_step(g, &in);
        fuzz_check(g->v);
    }
}

#endif
