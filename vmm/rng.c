/* vmm/rng.c - see rng.h. */
#include "vmm/rng.h"

#include <errno.h>
#include <sys/random.h>

enum { QUEUE_LEN = 8 }; /* the Linux driver has one request at a time */

/* After the host's start-up getrandom() blocks no more; should it fail, the guest gets less. */
static uint32_t fill(struct span *in)
{
    uint32_t done = 0;
    span_limit(in, RNG_REQUEST_MAX);
    while (in->n > 0) {
        ssize_t n = getrandom(in->iov->iov_base, in->iov->iov_len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (uint32_t)n;
        span_skip(in, (size_t)n);
    }
    return done;
}

static void rng_notify(void *dev, unsigned queue)
{
    struct rng *r = dev;
    for (int i = 0; i < QUEUE_LEN && virtio_pop(&r->v, queue, &r->chain); i++) {
        if (r->chain.out.n > 0 || r->chain.in.n == 0) { /* §5.4.6.1 */
            virtio_fail(&r->v, VIRTQ_FAULT_SHAPE);
            return;
        }
        virtio_push(&r->v, queue, &r->chain, fill(&r->chain.in));
    }
    virtio_signal(&r->v, queue);
}

static const struct virtio_ops rng_ops = {
    .id = VIRTIO_RNG, .n_queues = 1, .queue_max = QUEUE_LEN, .notify = rng_notify};

void rng_init(struct rng *r, const struct guest_mem *mem, struct irq_line irq)
{
    virtio_init(&r->v, &rng_ops, r, mem, irq);
}

void rng_save(const struct rng *r, struct state_writer *w)
{
    state_begin(w, STATE_RNG);
    virtio_save(&r->v, w);
    state_end(w);
}

int rng_load(struct rng *r, struct state_reader *in, struct cl_err *err)
{
    if (state_enter(in, STATE_RNG, err) < 0 || virtio_load(&r->v, in, err) < 0)
        return -1;
    return state_leave(in, err);
}
