/* tests/unit/vmm/driver.h - a driver of a few lines: it lays out rings in guest memory, takes a
 * device through its start and puts requests, right or wrong.
 *
 * Guest memory:  queue q at 0x10000 * (q + 1): table +0, avail +0x2000, used +0x4000;
 *                buffers from DRV_DATA on.
 */
#ifndef CL_TESTS_VMM_DRIVER_H
#define CL_TESTS_VMM_DRIVER_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "vmm/virtio_mmio.h"

enum { DRV_RAM = 1 << 20, DRV_DATA = 0x60000, DRV_NEXT = 1, DRV_WRITE = 2, DRV_INDIRECT = 4 };

struct drv_desc {
    uint64_t addr;
    uint32_t len;
    uint16_t flags;
    uint16_t next;
};

struct drv {
    struct guest_mem mem;
    unsigned irqs;
    unsigned config_irqs;              /* of those: by the line for news of the configuration */
    uint16_t avail[VIRTIO_QUEUES_MAX]; /* entries that were made available */
};

enum { DRV_CONFIG_GSI = 6 };

static inline void drv_raise(void *chip, unsigned gsi)
{
    struct drv *d = (struct drv *)chip;
    d->irqs++;
    d->config_irqs += gsi == DRV_CONFIG_GSI;
}

static inline struct irq_line drv_irq(struct drv *d)
{
    return (struct irq_line){.raise = drv_raise, .chip = d, .gsi = 5, .config_gsi = DRV_CONFIG_GSI};
}

static inline void drv_init(struct drv *d)
{
    *d = (struct drv){0};
    int fd = memfd_create("ram", MFD_CLOEXEC);
    CL_ASSERT(fd >= 0 && ftruncate(fd, DRV_RAM) == 0);
    CL_ASSERT(gm_map(fd, DRV_RAM, false, &d->mem, NULL) == 0);
    CL_ASSERT(close(fd) == 0);
}

/* In memory that a child does not share, and that drv_clear() clears fast. */
static inline void drv_init_alone(struct drv *d)
{
    *d = (struct drv){0};
    CL_ASSERT(gm_alloc(DRV_RAM, &d->mem, NULL) == 0);
}

/* All zeros again; costs what was touched, not what there is. */
static inline void drv_clear(struct drv *d)
{
    CL_ASSERT(gm_forget(&d->mem, (struct iovec){d->mem.base, DRV_RAM}) == 0);
}

static inline void drv_fini(struct drv *d)
{
    gm_unmap(&d->mem);
}

static inline uint64_t drv_ring(unsigned q)
{
    return 0x10000 * (uint64_t)(q + 1);
}

static inline struct virtq_setup drv_setup(unsigned q, uint32_t size)
{
    uint64_t at = drv_ring(q);
    return (struct virtq_setup){size, true, {at}, {at + 0x2000}, {at + 0x4000}};
}

static inline void drv_put(struct drv *d, uint64_t at, const void *src, size_t n)
{
    CL_ASSERT(gm_write(&d->mem, (struct gpa){at}, src, n) == 0);
}

static inline void drv_get(struct drv *d, uint64_t at, void *dst, size_t n)
{
    CL_ASSERT(gm_read(&d->mem, (struct gpa){at}, dst, n) == 0);
}

static inline void drv_set_desc(struct drv *d, unsigned q, uint16_t index, struct drv_desc desc)
{
    drv_put(d, drv_ring(q) + index * sizeof desc, &desc, sizeof desc);
}

static inline void drv_set_idx(struct drv *d, unsigned q, uint16_t idx)
{
    d->avail[q] = idx;
    drv_put(d, drv_ring(q) + 0x2002, &idx, sizeof idx);
}

/* Make the chain at `head` available (queues of `size` entries). */
static inline void drv_offer(struct drv *d, unsigned q, uint16_t head, uint16_t size)
{
    drv_put(d, drv_ring(q) + 0x2004 + 2ull * (d->avail[q] % size), &head, sizeof head);
    drv_set_idx(d, q, (uint16_t)(d->avail[q] + 1));
}

/* Pieces as a chain from descriptor `first` on, linked; then offer it. */
static inline void drv_chain(struct drv *d, unsigned q, uint16_t size, uint16_t first,
                             const struct drv_desc *pieces, uint16_t n)
{
    for (uint16_t i = 0; i < n; i++) {
        struct drv_desc desc = pieces[i];
        desc.next = (uint16_t)(first + i + 1);
        desc.flags |= i + 1 < n ? DRV_NEXT : 0;
        drv_set_desc(d, q, (uint16_t)(first + i), desc);
    }
    drv_offer(d, q, first, size);
}

static inline uint16_t drv_used_idx(struct drv *d, unsigned q)
{
    uint16_t idx;
    drv_get(d, drv_ring(q) + 0x4002, &idx, sizeof idx);
    return idx;
}

struct drv_used {
    uint32_t id;
    uint32_t len;
};

static inline struct drv_used drv_used(struct drv *d, unsigned q, uint16_t size, uint16_t position)
{
    struct drv_used u;
    drv_get(d, drv_ring(q) + 0x4004 + sizeof u * (position % size), &u, sizeof u);
    return u;
}

static inline void drv_w(struct virtio *v, uint32_t reg, uint32_t value)
{
    virtio_write(v, reg, 4, value);
}

static inline uint32_t drv_r(struct virtio *v, uint32_t reg)
{
    return virtio_read(v, reg, 4);
}

/* Status up to FEATURES_OK, all features taken. */
static inline void drv_negotiate(struct virtio *v)
{
    drv_w(v, 0x70, 0);
    drv_w(v, 0x70, 1);
    drv_w(v, 0x70, 3);
    for (uint32_t i = 0; i < 2; i++) {
        drv_w(v, 0x14, i);
        drv_w(v, 0x24, i);
        drv_w(v, 0x20, drv_r(v, 0x10));
    }
    drv_w(v, 0x70, 0xb);
}

static inline void drv_set_queue(struct virtio *v, unsigned q, const struct virtq_setup *s)
{
    const uint64_t addr[3] = {s->desc.v, s->driver.v, s->device.v};
    drv_w(v, 0x30, q);
    drv_w(v, 0x38, s->size);
    for (uint32_t i = 0; i < 3; i++) {
        drv_w(v, 0x80 + 0x10 * i, (uint32_t)addr[i]);
        drv_w(v, 0x84 + 0x10 * i, (uint32_t)(addr[i] >> 32));
    }
    drv_w(v, 0x44, s->ready);
}

/* §2.7: so many bytes has a table or ring of a queue. */
static inline void drv_clear_ring(struct drv *d, struct gpa at, size_t n)
{
    static const uint8_t zero[0x2000]; /* up to where the next one starts */
    drv_put(d, at.v, zero, CL_MIN(n, sizeof zero));
}

/* From reset to DRIVER_OK with every queue at `size`. */
static inline void drv_start(struct drv *d, struct virtio *v, uint32_t size)
{
    drv_negotiate(v);
    for (unsigned q = 0; q < v->ops->n_queues; q++) {
        struct virtq_setup s = drv_setup(q, size);
        drv_clear_ring(d, s.desc, 16 * size);
        drv_clear_ring(d, s.driver, 6 + 2 * size);
        drv_clear_ring(d, s.device, 6 + 8 * size);
        d->avail[q] = 0;
        drv_set_queue(v, q, &s);
    }
    drv_w(v, 0x70, 0xf);
}

static inline void drv_notify(struct virtio *v, unsigned q)
{
    drv_w(v, 0x50, q);
}

/* Save v's device by `save`, as a whole state in `data`; returns its length. */
static inline void drv_state_begin(struct state_writer *w, uint8_t *data, size_t cap)
{
    static const struct state_head head = {.mem_bytes = DRV_RAM, .vcpus = 1};
    state_writer_init(w, data, cap, &head);
}

#endif
