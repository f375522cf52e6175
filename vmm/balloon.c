/* vmm/balloon.c - see balloon.h. */
#include "vmm/balloon.h"

#include <string.h>

/* §5.5.2: the queues of features that are not offered do not count, so reporting is the third. */
enum { QUEUE_INFLATE, QUEUE_DEFLATE, QUEUE_REPORTING, QUEUE_NR, QUEUE_LEN = 32 };

#define F_PAGE_REPORTING (UINT64_C(1) << 5) /* §5.5.3 */

/* §5.5.4 */
struct balloon_config {
    uint32_t num_pages; /* what we want */
    uint32_t actual;
};
_Static_assert(sizeof(struct balloon_config) == 8, "virtio 1.2 §5.5.4");

/* §5.5.6, free page reporting: the pieces are free pages; the guest uses them again, as ones whose
 * content it does not know, when the chain comes back. */
static void take_report(struct balloon *b)
{
    for (unsigned i = 0; i < b->chain.in.n; i++)
        if (gm_forget(b->v.mem, b->chain.in.iov[i]) == 0)
            b->reported_bytes += b->chain.in.iov[i].iov_len;
}

/* §5.5.6, inflate: page numbers.  One that is not of RAM is a guest's mistake that harms nobody,
 * so it is passed over; more than anybody sends at once break the device. */
static void take_pages(struct balloon *b)
{
    struct span *pages = &b->chain.out;
    uint32_t pfn;
    if (pages->bytes > BALLOON_PAGES_MAX * sizeof pfn) {
        virtio_fail(&b->v, VIRTQ_FAULT_SHAPE);
        return;
    }
    while (span_take(pages, &pfn, sizeof pfn)) {
        struct gpa at = {(uint64_t)pfn * BALLOON_PAGE};
        struct iovec page;
        if (gm_iov(b->v.mem, at, BALLOON_PAGE, &page) == 0 && gm_forget(b->v.mem, page) == 0)
            b->taken_bytes += BALLOON_PAGE;
    }
}

static void balloon_notify(void *dev, unsigned queue)
{
    struct balloon *b = dev;
    for (int i = 0; i < QUEUE_LEN && virtio_pop(&b->v, queue, &b->chain); i++) {
        if (queue == QUEUE_REPORTING)
            take_report(b);
        else if (queue == QUEUE_INFLATE)
            take_pages(b);
        virtio_push(&b->v, queue, &b->chain, 0);
    }
    virtio_signal(&b->v, queue);
}

static void balloon_reset(void *dev)
{
    ((struct balloon *)dev)->actual = 0;
}

static void balloon_config_read(void *dev, uint32_t at, void *dst, uint32_t n)
{
    const struct balloon *b = dev;
    struct balloon_config c = {.num_pages = b->target, .actual = b->actual};
    memcpy(dst, (const uint8_t *)&c + at, n);
}

static void balloon_config_write(void *dev, uint32_t at, const void *src, uint32_t n)
{
    struct balloon *b = dev;
    struct balloon_config c = {.actual = b->actual};
    memcpy((uint8_t *)&c + at, src, n);
    b->actual = c.actual;
}

static const struct virtio_ops balloon_ops = {
    .id = VIRTIO_BALLOON,
    .n_queues = QUEUE_NR,
    .queue_max = QUEUE_LEN,
    .features = F_PAGE_REPORTING,
    .notify = balloon_notify,
    .reset = balloon_reset,
    .config_bytes = sizeof(struct balloon_config),
    .config_read = balloon_config_read,
    .config_write = balloon_config_write,
};

void balloon_init(struct balloon *b, const struct guest_mem *mem, struct irq_line irq)
{
    *b = (struct balloon){0};
    virtio_init(&b->v, &balloon_ops, b, mem, irq);
}

void balloon_set_target(struct balloon *b, uint32_t pages)
{
    b->target = pages;
    virtio_config_changed(&b->v);
}

void balloon_save(const struct balloon *b, struct state_writer *w)
{
    state_begin(w, STATE_BALLOON);
    state_put_u32(w, b->target);
    state_put_u32(w, b->actual);
    virtio_save(&b->v, w);
    state_end(w);
}

int balloon_load(struct balloon *b, struct state_reader *r, struct cl_err *err)
{
    if (state_enter(r, STATE_BALLOON, err) < 0)
        return -1;
    b->target = state_get_u32(r);
    b->actual = state_get_u32(r);
    return virtio_load(&b->v, r, err) < 0 ? -1 : state_leave(r, err);
}
