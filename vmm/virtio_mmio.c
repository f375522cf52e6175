/* vmm/virtio_mmio.c - see virtio_mmio.h. */
#include "vmm/virtio_mmio.h"

#include <string.h>

/* §4.2.2 */
enum reg {
    REG_MAGIC = 0x000,
    REG_VERSION = 0x004,
    REG_DEVICE_ID = 0x008,
    REG_VENDOR_ID = 0x00c,
    REG_DEVICE_FEATURES = 0x010,
    REG_DEVICE_FEATURES_SEL = 0x014,
    REG_DRIVER_FEATURES = 0x020,
    REG_DRIVER_FEATURES_SEL = 0x024,
    REG_QUEUE_SEL = 0x030,
    REG_QUEUE_NUM_MAX = 0x034,
    REG_QUEUE_NUM = 0x038,
    REG_QUEUE_READY = 0x044,
    REG_QUEUE_NOTIFY = VIRTIO_NOTIFY_AT,
    REG_INTERRUPT_STATUS = 0x060,
    REG_INTERRUPT_ACK = 0x064,
    REG_STATUS = 0x070,
    REG_QUEUE_DESC_LOW = 0x080,
    REG_QUEUE_DESC_HIGH = 0x084,
    REG_QUEUE_DRIVER_LOW = 0x090,
    REG_QUEUE_DRIVER_HIGH = 0x094,
    REG_QUEUE_DEVICE_LOW = 0x0a0,
    REG_QUEUE_DEVICE_HIGH = 0x0a4,
    REG_SHM_SEL = 0x0ac,
    REG_SHM_LEN_LOW = 0x0b0,
    REG_SHM_BASE_HIGH = 0x0bc,
    REG_CONFIG_GENERATION = 0x0fc,
};

enum {
    MAGIC = 0x74726976, /* "virt" */
    VERSION = 2,
    VENDOR = 0x434c4f43, /* "CLOC" */
    ISR_USED = 1,
    ISR_CONFIG = 2,
};

/* The four steps of §3.1.1, each by its status. */
enum { ST_RESET = 0, ST_SEEN = 1, ST_FEATURES = 3, ST_QUEUES = 0xb, ST_LIVE = 0xf };

void virtio_init(struct virtio *v, const struct virtio_ops *ops, void *dev,
                 const struct guest_mem *mem, struct irq_line irq)
{
    CL_ASSERT(ops->n_queues <= VIRTIO_QUEUES_MAX && ops->queue_max <= VIRTQ_SIZE_MAX);
    *v = (struct virtio){.ops = ops, .dev = dev, .mem = mem, .irq = irq};
}

static void tell_of_config(struct virtio *v)
{
    v->isr |= ISR_CONFIG;
    irq_raise_config(&v->irq);
}

bool virtio_is_live(const struct virtio *v)
{
    return v->status == ST_LIVE;
}

void virtio_fail(struct virtio *v, enum virtq_fault why)
{
    if (!virtio_is_live(v))
        return;
    for (unsigned i = 0; i < v->ops->n_queues; i++)
        virtq_stop(&v->queue[i]);
    v->fault = why;
    v->status |= VIRTIO_NEEDS_RESET;
    tell_of_config(v);
}

void virtio_config_changed(struct virtio *v)
{
    v->generation++;
    if (virtio_is_live(v))
        tell_of_config(v);
}

bool virtio_pop(struct virtio *v, unsigned queue, struct virtq_chain *ret)
{
    struct virtq *q = &v->queue[queue];
    if (!virtio_is_live(v))
        return false;
    bool got = virtq_pop(q, ret);
    if (q->fault != VIRTQ_NO_FAULT)
        virtio_fail(v, q->fault);
    return got;
}

void virtio_unpop(struct virtio *v, unsigned queue)
{
    if (virtio_is_live(v))
        virtq_unpop(&v->queue[queue]);
}

void virtio_push(struct virtio *v, unsigned queue, const struct virtq_chain *chain,
                 uint32_t written)
{
    if (virtio_is_live(v))
        virtq_push(&v->queue[queue], chain, written);
}

void virtio_signal(struct virtio *v, unsigned queue)
{
    struct virtq *q = &v->queue[queue];
    if (!virtio_is_live(v) || q->told == q->next_used)
        return;
    q->told = q->next_used;
    if (!virtq_wants_irq(q))
        return;
    v->isr |= ISR_USED;
    irq_raise(&v->irq);
}

/* ---- registers ---- */

static uint64_t offered(const struct virtio *v)
{
    return v->ops->features | VIRTIO_F_VERSION_1;
}

/* §3.1.1 step 5, §6.1: a subset of what is offered, and never a legacy driver. */
static bool features_are_fine(const struct virtio *v)
{
    return (v->driver_features & ~offered(v)) == 0 &&
           (v->driver_features & VIRTIO_F_VERSION_1) != 0;
}

static uint32_t half(uint64_t v, uint32_t which)
{
    return which > 1 ? 0 : (uint32_t)(v >> 32 * which);
}

static void set_half(uint64_t *v, uint32_t which, uint32_t value)
{
    uint64_t mask = UINT64_C(0xffffffff) << 32 * which;
    *v = (*v & ~mask) | (uint64_t)value << 32 * which;
}

static void refuse(struct virtio *v)
{
    v->refused++;
}

static void reset(struct virtio *v)
{
    struct virtio fresh = {.ops = v->ops, .dev = v->dev, .mem = v->mem, .irq = v->irq};
    fresh.generation = v->generation;
    fresh.refused = v->refused;
    fresh.deferred = v->deferred;
    *v = fresh;
    if (v->ops->reset)
        v->ops->reset(v->dev);
}

/* DRIVER_OK: take the queues over from the registers, checked. */
static enum virtq_fault latch_queues(struct virtio *v)
{
    for (unsigned i = 0; i < v->ops->n_queues; i++) {
        enum virtq_fault fault = VIRTQ_NO_FAULT;
        if (v->setup[i].ready)
            fault = virtq_start(&v->queue[i], v->mem, &v->setup[i], v->ops->queue_max);
        if (fault != VIRTQ_NO_FAULT)
            return fault;
    }
    return VIRTQ_NO_FAULT;
}

static void go_live(struct virtio *v)
{
    v->status = ST_LIVE;
    enum virtq_fault fault = latch_queues(v);
    if (fault != VIRTQ_NO_FAULT)
        virtio_fail(v, fault);
    else if (v->ops->activate)
        v->ops->activate(v->dev);
}

static bool is_next_step(uint32_t from, uint32_t to)
{
    return (from == ST_RESET && to == ST_SEEN) || (from == ST_SEEN && to == ST_FEATURES) ||
           (from == ST_FEATURES && to == ST_QUEUES) || (from == ST_QUEUES && to == ST_LIVE);
}

/* §2.1, §3.1.1.  A driver that gives up says FAILED; nobody listens to it then until a reset. */
static void write_status(struct virtio *v, uint32_t value)
{
    if (value == ST_RESET)
        reset(v);
    else if (value == v->status ||
             (value == ST_QUEUES && v->status == ST_FEATURES && !features_are_fine(v)))
        return; /* §3.1.1 step 6: the driver finds FEATURES_OK not set */
    else if (value == (v->status | VIRTIO_FAILED))
        v->status = value;
    else if (!is_next_step(v->status, value))
        refuse(v);
    else if (value == ST_LIVE)
        go_live(v);
    else
        v->status = value;
}

static void write_features(struct virtio *v, uint32_t value)
{
    if (v->status != ST_FEATURES || (v->driver_features_sel > 1 && value != 0))
        refuse(v);
    else if (v->driver_features_sel <= 1)
        set_half(&v->driver_features, v->driver_features_sel, value);
}

static struct virtq_setup *selected(struct virtio *v)
{
    return v->queue_sel < v->ops->n_queues ? &v->setup[v->queue_sel] : NULL;
}

/* §4.2.2.2: before QueueReady only.  A driver that takes a queue down that is down does no harm. */
static void write_ready(struct virtio *v, uint32_t value)
{
    struct virtq_setup *s = selected(v);
    if (s && v->status == ST_QUEUES)
        s->ready = value == 1;
    else if (value != 0 || (s && s->ready))
        refuse(v);
}

static void write_queue(struct virtio *v, uint32_t offset, uint32_t value)
{
    struct virtq_setup *s = selected(v);
    if (!s || v->status != ST_QUEUES || s->ready) {
        refuse(v);
        return;
    }
    uint32_t high = offset / 4 % 2;
    if (offset == REG_QUEUE_NUM)
        s->size = value;
    else if (offset <= REG_QUEUE_DESC_HIGH)
        set_half(&s->desc.v, high, value);
    else if (offset <= REG_QUEUE_DRIVER_HIGH)
        set_half(&s->driver.v, high, value);
    else
        set_half(&s->device.v, high, value);
}

static bool is_at_work(const struct virtio *v, unsigned queue)
{
    return virtio_is_live(v) && virtq_is_live(&v->queue[queue]);
}

static void write_notify(struct virtio *v, uint32_t queue)
{
    if (queue >= v->ops->n_queues || !is_at_work(v, queue))
        refuse(v);
    else if (v->deferred)
        v->pending |= 1U << queue;
    else
        v->ops->notify(v->dev, queue);
}

void virtio_defer(struct virtio *v)
{
    v->deferred = true;
}

bool virtio_is_waiting(const struct virtio *v)
{
    return v->pending != 0;
}

void virtio_serve(struct virtio *v)
{
    uint32_t pending = v->pending;
    v->pending = 0;
    for (unsigned i = 0; i < v->ops->n_queues; i++)
        if (pending & 1U << i && is_at_work(v, i))
            v->ops->notify(v->dev, i);
}

static void write_register(struct virtio *v, uint32_t offset, uint32_t value)
{
    switch (offset) {
    case REG_DEVICE_FEATURES_SEL:
        v->features_sel = value;
        break;
    case REG_DRIVER_FEATURES:
        write_features(v, value);
        break;
    case REG_DRIVER_FEATURES_SEL:
        v->driver_features_sel = value;
        break;
    case REG_QUEUE_SEL:
        v->queue_sel = value;
        break;
    case REG_QUEUE_READY:
        write_ready(v, value);
        break;
    case REG_QUEUE_NUM:
    case REG_QUEUE_DESC_LOW:
    case REG_QUEUE_DESC_HIGH:
    case REG_QUEUE_DRIVER_LOW:
    case REG_QUEUE_DRIVER_HIGH:
    case REG_QUEUE_DEVICE_LOW:
    case REG_QUEUE_DEVICE_HIGH:
        write_queue(v, offset, value);
        break;
    case REG_QUEUE_NOTIFY:
        write_notify(v, value);
        break;
    case REG_INTERRUPT_ACK:
        v->isr &= ~value;
        break;
    case REG_STATUS:
        write_status(v, value);
        break;
    case REG_SHM_SEL: /* there is no shared memory to select (§4.2.2) */
        break;
    default:
        refuse(v);
    }
}

static uint32_t read_register(struct virtio *v, uint32_t offset)
{
    const struct virtq_setup *s = selected(v);
    switch (offset) {
    case REG_MAGIC:
        return MAGIC;
    case REG_VERSION:
        return VERSION;
    case REG_DEVICE_ID:
        return v->ops->id;
    case REG_VENDOR_ID:
        return VENDOR;
    case REG_DEVICE_FEATURES:
        return half(offered(v), v->features_sel);
    case REG_QUEUE_NUM_MAX:
        return s ? v->ops->queue_max : 0;
    case REG_QUEUE_READY:
        return s && s->ready;
    case REG_INTERRUPT_STATUS:
        return v->isr;
    case REG_STATUS:
        return v->status;
    case REG_CONFIG_GENERATION:
        return v->generation;
    default:
        if (offset >= REG_SHM_LEN_LOW && offset <= REG_SHM_BASE_HIGH)
            return UINT32_MAX; /* §4.2.2: no such region */
        refuse(v);
        return 0;
    }
}

/* ---- accesses ---- */

/* §4.2.2.2: 32 bits below the config space; there whatever the field has, but no 64. */
static bool access_is_fine(uint32_t offset, uint32_t width)
{
    if (offset >= VIRTIO_MMIO_BYTES || (width != 1 && width != 2 && width != 4) || offset % width)
        return false;
    return width == 4 || offset >= VIRTIO_CONFIG_AT;
}

static bool config_has(const struct virtio *v, uint32_t at, uint32_t width)
{
    return v->ops->config_bytes >= width && at <= v->ops->config_bytes - width;
}

static uint32_t read_config(struct virtio *v, uint32_t at, uint32_t width)
{
    uint32_t value = 0;
    if (config_has(v, at, width))
        v->ops->config_read(v->dev, at, &value, width);
    else
        refuse(v);
    return value;
}

static void write_config(struct virtio *v, uint32_t at, uint32_t width, uint32_t value)
{
    if (config_has(v, at, width) && v->ops->config_write)
        v->ops->config_write(v->dev, at, &value, width);
    else
        refuse(v);
}

uint32_t virtio_read(struct virtio *v, uint32_t offset, uint32_t width)
{
    if (access_is_fine(offset, width))
        return offset < VIRTIO_CONFIG_AT ? read_register(v, offset)
                                         : read_config(v, offset - VIRTIO_CONFIG_AT, width);
    refuse(v);
    return 0;
}

void virtio_write(struct virtio *v, uint32_t offset, uint32_t width, uint32_t value)
{
    if (!access_is_fine(offset, width))
        refuse(v);
    else if (offset < VIRTIO_CONFIG_AT)
        write_register(v, offset, value);
    else
        write_config(v, offset - VIRTIO_CONFIG_AT, width, value);
}

/* ---- state ---- */

static void save_queue(const struct virtio *v, unsigned i, struct state_writer *w)
{
    const struct virtq_setup *s = &v->setup[i];
    state_put_u32(w, s->size);
    state_put_u8(w, s->ready);
    state_put_u64(w, s->desc.v);
    state_put_u64(w, s->driver.v);
    state_put_u64(w, s->device.v);
    state_put_u16(w, v->queue[i].next_avail);
    state_put_u16(w, v->queue[i].next_used);
}

void virtio_save(const struct virtio *v, struct state_writer *w)
{
    state_put_u32(w, v->ops->id);
    state_put_u32(w, v->status);
    state_put_u32(w, v->isr);
    state_put_u32(w, v->features_sel);
    state_put_u32(w, v->driver_features_sel);
    state_put_u32(w, v->queue_sel);
    state_put_u64(w, v->driver_features);
    state_put_u32(w, v->generation);
    state_put_u32(w, v->fault);
    state_put_u8(w, (uint8_t)v->ops->n_queues);
    for (unsigned i = 0; i < v->ops->n_queues; i++)
        save_queue(v, i, w);
}

/* The set-up goes the way of a driver's; of the positions only their distance can be checked:
 * nothing is in flight.  A wrong position shows at the next pop. */
static int load_queue(struct virtio *v, unsigned i, struct state_reader *r, struct cl_err *err)
{
    struct virtq_setup *s = &v->setup[i];
    s->size = state_get_u32(r);
    uint8_t ready = state_get_u8(r);
    s->desc.v = state_get_u64(r);
    s->driver.v = state_get_u64(r);
    s->device.v = state_get_u64(r);
    uint16_t next_avail = state_get_u16(r);
    uint16_t next_used = state_get_u16(r);
    if (ready > 1 || next_avail != next_used)
        return cl_fail(err, CL_E_INVALID, 0, "saved queue %u is not one that can be", i);
    s->ready = ready == 1;
    if (!virtio_is_live(v) || !s->ready)
        return 0;
    enum virtq_fault fault = virtq_start(&v->queue[i], v->mem, s, v->ops->queue_max);
    if (fault != VIRTQ_NO_FAULT)
        return cl_fail(err, CL_E_INVALID, 0, "saved queue %u: %s", i, virtq_fault_name(fault));
    v->queue[i].next_avail = next_avail;
    v->queue[i].next_used = v->queue[i].told = next_used;
    return 0;
}

static bool status_can_be(const struct virtio *v)
{
    uint32_t step = v->status & ~(uint32_t)(VIRTIO_NEEDS_RESET | VIRTIO_FAILED);
    bool broken = (v->status & VIRTIO_NEEDS_RESET) != 0;
    if (step != ST_RESET && step != ST_SEEN && step != ST_FEATURES && step != ST_QUEUES &&
        step != ST_LIVE)
        return false;
    if ((step == ST_QUEUES || step == ST_LIVE) && !features_are_fine(v))
        return false;
    return broken == (v->fault != VIRTQ_NO_FAULT) && (!broken || step == ST_LIVE);
}

static int load_registers(struct virtio *v, struct state_reader *r, struct cl_err *err)
{
    uint32_t id = state_get_u32(r);
    v->status = state_get_u32(r);
    v->isr = state_get_u32(r);
    v->features_sel = state_get_u32(r);
    v->driver_features_sel = state_get_u32(r);
    v->queue_sel = state_get_u32(r);
    v->driver_features = state_get_u64(r);
    v->generation = state_get_u32(r);
    uint32_t fault = state_get_u32(r);
    uint8_t n_queues = state_get_u8(r);
    if (id != v->ops->id || n_queues != v->ops->n_queues)
        return cl_fail(err, CL_E_INVALID, 0, "saved device %u with %u queues; want %u with %u", id,
                       n_queues, v->ops->id, v->ops->n_queues);
    if (fault >= VIRTQ_FAULT_NR)
        return cl_fail(err, CL_E_INVALID, 0, "saved device %u has the fault %u", id, fault);
    v->fault = (enum virtq_fault)fault;
    if (!status_can_be(v) || (v->isr & ~(uint32_t)(ISR_USED | ISR_CONFIG)) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "saved device %u has the status 0x%x", id, v->status);
    return 0;
}

int virtio_load(struct virtio *v, struct state_reader *r, struct cl_err *err)
{
    if (load_registers(v, r, err) < 0)
        return -1;
    for (unsigned i = 0; i < v->ops->n_queues; i++)
        if (load_queue(v, i, r, err) < 0)
            return -1;
    return 0;
}

void virtio_kick(struct virtio *v)
{
    if (v->isr != 0 && !v->irq.is_lasting)
        irq_raise(&v->irq);
    for (unsigned i = 0; i < v->ops->n_queues; i++)
        if (is_at_work(v, i))
            v->ops->notify(v->dev, i);
}
