/* vmm/virtq.c - see virtq.h. */
#include "vmm/virtq.h"

#include "base/err.h"

/* §2.7.5 */
struct desc {
    uint64_t addr;
    uint32_t len;
    uint16_t flags;
    uint16_t next;
};
_Static_assert(sizeof(struct desc) == 16, "virtio 1.2 §2.7.5");
enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4 };

/* §2.7.8 */
struct used {
    uint32_t id;
    uint32_t len;
};
_Static_assert(sizeof(struct used) == 8, "virtio 1.2 §2.7.8");

/* §2.7.6 and §2.7.8: flags, idx, the ring, and the event word that we do not use. */
enum { RING_FLAGS = 0, RING_IDX = 2, RING_ENTRIES = 4, RING_EXTRA = 6, NO_INTERRUPT = 1 };
enum { DESC_ALIGN = 16, DRIVER_ALIGN = 2, DEVICE_ALIGN = 4 }; /* §2.7 */

const char *virtq_fault_name(enum virtq_fault fault)
{
    static const char *const rules[] = {
        [VIRTQ_NO_FAULT] = "no fault",
#define VIRTQ_FAULT(name, rule) [VIRTQ_FAULT_##name] = rule,
#include "vmm/virtq_faults.def"
#undef VIRTQ_FAULT
    };
    return (unsigned)fault < CL_COUNT(rules) ? rules[fault] : "unknown fault";
}

static struct gpa gpa_add(struct gpa at, uint64_t n)
{
    return (struct gpa){at.v + n}; /* may wrap: whoever uses it checks the range */
}

static bool in_ram(const struct guest_mem *mem, struct gpa at, uint32_t n)
{
    struct iovec view;
    return gm_iov(mem, at, n, &view) == 0;
}

static enum virtq_fault check_setup(const struct guest_mem *mem, const struct virtq_setup *s,
                                    uint16_t size_max)
{
    uint32_t n = s->size;
    if (n == 0 || n > size_max || (n & (n - 1)) != 0)
        return VIRTQ_FAULT_SIZE;
    if (s->desc.v % DESC_ALIGN || s->driver.v % DRIVER_ALIGN || s->device.v % DEVICE_ALIGN)
        return VIRTQ_FAULT_ALIGN;
    if (!in_ram(mem, s->desc, n * (uint32_t)sizeof(struct desc)) ||
        !in_ram(mem, s->driver, RING_EXTRA + n * (uint32_t)sizeof(uint16_t)) ||
        !in_ram(mem, s->device, RING_EXTRA + n * (uint32_t)sizeof(struct used)))
        return VIRTQ_FAULT_RANGE;
    return VIRTQ_NO_FAULT;
}

enum virtq_fault virtq_start(struct virtq *q, const struct guest_mem *mem,
                             const struct virtq_setup *setup, uint16_t size_max)
{
    CL_ASSERT(size_max <= VIRTQ_SIZE_MAX);
    *q = (struct virtq){.fault = check_setup(mem, setup, size_max)};
    if (q->fault != VIRTQ_NO_FAULT)
        return q->fault;
    q->mem = mem;
    q->size = (uint16_t)setup->size;
    q->desc = setup->desc;
    q->driver = setup->driver;
    q->device = setup->device;
    return VIRTQ_NO_FAULT;
}

void virtq_stop(struct virtq *q)
{
    *q = (struct virtq){0};
}

bool virtq_is_live(const struct virtq *q)
{
    return q->mem && q->fault == VIRTQ_NO_FAULT;
}

/* False is what every caller returns then. */
static bool break_with(struct virtq *q, enum virtq_fault fault)
{
    q->fault = fault;
    return false;
}

static uint16_t slot(const struct virtq *q, uint16_t position)
{
    return position & (uint16_t)(q->size - 1);
}

/* The head of the next chain.  The index is read once: the entries before it are the driver's
 * promise, and more than `size` of them cannot be (§2.7.13.3). */
static bool next_head(struct virtq *q, uint16_t *ret)
{
    uint16_t idx = 0;
    CL_ASSERT(gm_load16(q->mem, gpa_add(q->driver, RING_IDX), &idx) == 0);
    uint16_t waiting = (uint16_t)(idx - q->next_avail);
    if (waiting == 0)
        return false;
    if (waiting > q->size)
        return break_with(q, VIRTQ_FAULT_AHEAD);
    uint32_t entry = RING_ENTRIES + slot(q, q->next_avail) * (uint32_t)sizeof *ret;
    CL_ASSERT(gm_read(q->mem, gpa_add(q->driver, entry), ret, sizeof *ret) == 0);
    return *ret < q->size || break_with(q, VIRTQ_FAULT_HEAD);
}

/* Copied once; every check below looks at the copy. */
static struct desc read_desc(const struct virtq *q, uint16_t index)
{
    struct desc d;
    CL_ASSERT(gm_read(q->mem, gpa_add(q->desc, index * sizeof d), &d, sizeof d) == 0);
    return d;
}

static bool add_piece(struct virtq *q, const struct desc *d, struct virtq_chain *c)
{
    struct span *s = d->flags & DESC_WRITE ? &c->in : &c->out;
    if (d->flags & DESC_INDIRECT) /* §2.7.5.3.1 */
        return break_with(q, VIRTQ_FAULT_INDIRECT);
    if (s == &c->out && c->in.n > 0) /* §2.7.4.2 */
        return break_with(q, VIRTQ_FAULT_ORDER);
    if (d->len == 0)
        return break_with(q, VIRTQ_FAULT_EMPTY);
    if (c->out.bytes + c->in.bytes + d->len > UINT32_MAX) /* §2.7.5: at most 2^32 bytes */
        return break_with(q, VIRTQ_FAULT_BYTES);
    struct iovec *at = &c->iov[c->out.n + c->in.n];
    if (gm_iov(q->mem, (struct gpa){d->addr}, d->len, at) < 0)
        return break_with(q, VIRTQ_FAULT_BUFFER);
    if (s->n++ == 0)
        s->iov = at;
    s->bytes += d->len;
    return true;
}

/* At most `size` steps (§2.7.5: a chain has no loop), each index inside the table. */
static bool walk(struct virtq *q, uint16_t head, struct virtq_chain *c)
{
    struct desc d = {.flags = DESC_NEXT, .next = head};
    c->head = head;
    c->out = c->in = (struct span){0};
    while (d.flags & DESC_NEXT) {
        if (c->out.n + c->in.n == q->size)
            return break_with(q, VIRTQ_FAULT_LOOP);
        if (d.next >= q->size)
            return break_with(q, VIRTQ_FAULT_NEXT);
        d = read_desc(q, d.next);
        if (!add_piece(q, &d, c))
            return false;
    }
    return true;
}

bool virtq_pop(struct virtq *q, struct virtq_chain *ret)
{
    uint16_t head;
    if (!virtq_is_live(q) || !next_head(q, &head) || !walk(q, head, ret))
        return false;
    q->next_avail++;
    return true;
}

void virtq_unpop(struct virtq *q)
{
    q->next_avail--;
}

void virtq_push(struct virtq *q, const struct virtq_chain *chain, uint32_t written)
{
    struct used u = {.id = chain->head, .len = written};
    uint32_t entry = RING_ENTRIES + slot(q, q->next_used) * (uint32_t)sizeof u;
    CL_ASSERT(gm_write(q->mem, gpa_add(q->device, entry), &u, sizeof u) == 0);
    q->next_used++;
    CL_ASSERT(gm_store16(q->mem, gpa_add(q->device, RING_IDX), q->next_used) == 0);
}

bool virtq_wants_irq(const struct virtq *q)
{
    uint16_t flags = 0;
    /* Our index before their flag, else both sides could miss each other (§2.7.7.2): the door's
     * loads and stores of indexes are in one order that all see. */
    CL_ASSERT(gm_load16(q->mem, gpa_add(q->driver, RING_FLAGS), &flags) == 0);
    return (flags & NO_INTERRUPT) == 0;
}
