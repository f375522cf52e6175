/* vmm/virtio_mmio.h - the registers of a virtio device on a page of MMIO (virtio 1.2 §4.2, v2).
 *
 * Owns:    the registers and the queues.
 * Borrows: guest memory, the device's table and its struct, the chip behind the irq line.
 * Thread:  the device lock.
 *
 * A device is a table of functions (struct virtio_ops) and a struct that starts with a struct
 * virtio.  Its functions run inside virtio_write(), on the vCPU thread that wrote; but `notify` of
 * a deferred one runs inside virtio_serve(), on whichever thread calls that.
 *
 *              1                3                   0xb                0xf
 *   reset ─ACKNOWLEDGE─► ─DRIVER─► features ─FEATURES_OK─► queues ─DRIVER_OK─► live ──► broken
 *     ▲                                                                          │        │
 *     └──────────────────────────── write 0 ─────────────────────────────────────┴────────┘
 *
 * Only these steps exist.  Features are taken between DRIVER and FEATURES_OK, queues between
 * FEATURES_OK and DRIVER_OK, notifies while live: a register that could change under a running
 * queue is how guests have got out of monitors.  What is not allowed is ignored and counted.
 */
#ifndef CL_VMM_VIRTIO_MMIO_H
#define CL_VMM_VIRTIO_MMIO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/irq.h"
#include "vmm/mem.h"
#include "vmm/state.h"
#include "vmm/virtq.h"

enum {
    VIRTIO_QUEUES_MAX = 4,
    VIRTIO_MMIO_BYTES = 0x1000,
    VIRTIO_NOTIFY_AT = 0x50,
    VIRTIO_CONFIG_AT = 0x100
};

/* §2.1 */
enum virtio_status {
    VIRTIO_ACKNOWLEDGE = 1,
    VIRTIO_DRIVER = 2,
    VIRTIO_DRIVER_OK = 4,
    VIRTIO_FEATURES_OK = 8,
    VIRTIO_NEEDS_RESET = 0x40,
    VIRTIO_FAILED = 0x80,
};

/* §5: device types. */
enum virtio_id {
    VIRTIO_NET = 1,
    VIRTIO_BLK = 2,
    VIRTIO_RNG = 4,
    VIRTIO_BALLOON = 5,
    VIRTIO_VSOCK = 19
};

/* §6: the one feature that every driver must take and every device here offers. */
#define VIRTIO_F_VERSION_1 (UINT64_C(1) << 32)

struct virtio_ops {
    uint32_t id;        /* enum virtio_id */
    unsigned n_queues;  /* <= VIRTIO_QUEUES_MAX */
    uint16_t queue_max; /* <= VIRTQ_SIZE_MAX, a power of two */
    uint64_t features;  /* besides VERSION_1 */
    /* The driver put something into a live queue.  Must handle at most one queue length of chains:
     * a driver notifies after each of its additions, so nothing stays behind, and no vCPU can keep
     * another one's exit (or the main loop) waiting for ever. */
    void (*notify)(void *dev, unsigned queue);
    void (*reset)(void *dev);    /* the driver reset the device; NULL = nothing to do */
    void (*activate)(void *dev); /* DRIVER_OK; queues are live; NULL = nothing to do */
    uint32_t config_bytes;
    /* Copy n bytes of the config space from `at`; at + n <= config_bytes. */
    void (*config_read)(void *dev, uint32_t at, void *dst, uint32_t n);
    /* NULL = the config space is read-only. */
    void (*config_write)(void *dev, uint32_t at, const void *src, uint32_t n);
};

struct virtio {
    const struct virtio_ops *ops; /* borrowed: the device's own, constant */
    void *dev;                    /* borrowed: the struct that this one is part of */
    const struct guest_mem *mem;  /* borrowed */
    struct irq_line irq;
    uint32_t status; /* enum virtio_status */
    uint32_t isr;    /* §4.2.2: bit 0 used buffers, bit 1 config change */
    uint32_t features_sel, driver_features_sel, queue_sel;
    uint64_t driver_features;
    uint32_t generation; /* of the config space (§4.2.2): a driver reads again when it moved */
    struct virtq_setup setup[VIRTIO_QUEUES_MAX]; /* the registers */
    struct virtq queue[VIRTIO_QUEUES_MAX];       /* what was latched at DRIVER_OK */
    enum virtq_fault fault;                      /* why status has NEEDS_RESET */
    uint64_t refused;                            /* accesses that the contract forbids */
    bool deferred;                               /* notifications wait for virtio_serve() */
    uint32_t pending;                            /* bit n: queue n waits */
};

/* ops and mem must outlive v; dev is what the functions of ops get. */
void virtio_init(struct virtio *v, const struct virtio_ops *ops, void *dev,
                 const struct guest_mem *mem, struct irq_line irq);

/* For a device whose work a vCPU's thread may not do: from now on its notifications wait. */
void virtio_defer(struct virtio *v);
bool virtio_is_waiting(const struct virtio *v);
void virtio_serve(struct virtio *v);

/* The guest's accesses; offset < VIRTIO_MMIO_BYTES, width in bytes (any; what is not 4 below
 * VIRTIO_CONFIG_AT, or not 1, 2 or 4 above, or not aligned, reads as 0 and writes nothing). */
uint32_t virtio_read(struct virtio *v, uint32_t offset, uint32_t width);
void virtio_write(struct virtio *v, uint32_t offset, uint32_t width, uint32_t value);

/* For devices.  virtio_pop() is virtq_pop(), and breaks the device when the driver broke a rule;
 * all of them do nothing when the device is not live (any more). */
bool virtio_pop(struct virtio *v, unsigned queue, struct virtq_chain *ret) CL_MUST;
void virtio_unpop(struct virtio *v, unsigned queue);
void virtio_push(struct virtio *v, unsigned queue, const struct virtq_chain *chain,
                 uint32_t written);
/* Interrupt for what was pushed since the last time, unless the driver asked for none. */
void virtio_signal(struct virtio *v, unsigned queue);
/* DEVICE_NEEDS_RESET (§2.1.2): tell the driver, and do nothing more until it resets. */
void virtio_fail(struct virtio *v, enum virtq_fault why);
/* The device changed its config space: the driver shall look again. */
void virtio_config_changed(struct virtio *v);
bool virtio_is_live(const struct virtio *v);

/* The registers and ring positions, inside an open section.  Nothing is in flight: every function
 * of a device returns with as many chains pushed as popped. */
void virtio_save(const struct virtio *v, struct state_writer *w);
/* Into a device that was just initialised.  Takes nothing on trust.  Errors: INVALID; then the
 * device must not be used. */
int virtio_load(struct virtio *v, struct state_reader *r, struct cl_err *err) CL_MUST;
/* After a restore, before the vCPUs run: look at each queue once and raise again what the driver
 * has not acknowledged, so that no notification is lost on either side; not on a line that lasts,
 * whose driver may never acknowledge (images/module).  A driver that waits for none is left alone:
 * each is ways out of the guest, and pages that a clone need not touch. */
void virtio_kick(struct virtio *v);

#endif
