/* A virtqueue whose set-up and rings are the fuzzer's: what comes out lies in RAM, is bounded, and
 * the walk ends. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/vmm_guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(const struct drv *d, const struct span *s)
{
    size_t sum = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const uint8_t *at = s->iov[i].iov_base;
        CL_ASSERT(s->iov[i].iov_len > 0 && s->iov[i].iov_len <= DRV_RAM);
        CL_ASSERT(at >= d->mem.base && at <= d->mem.base + DRV_RAM - s->iov[i].iov_len);
        sum += s->iov[i].iov_len;
    }
    CL_ASSERT(sum == s->bytes && sum <= UINT32_MAX);
}

static void walk(struct drv *d, struct virtq *q)
{
    static struct virtq_chain chain;
    for (unsigned i = 0; virtq_pop(q, &chain); i++) {
        CL_ASSERT(chain.head < q->size && chain.out.n + chain.in.n <= q->size);
        check_span(d, &chain.out);
        check_span(d, &chain.in);
        virtq_push(q, &chain, 1);
        (void)virtq_wants_irq(q);
        if (i == 2 * VIRTQ_SIZE_MAX) /* a used ring over the avail ring can feed itself */
            return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct drv d;
    struct fuzz_in in = {data, size};
    struct virtq q;
    if (!d.mem.base)
        drv_init(&d);
    memset(d.mem.base, 0, 0x8000);
    struct virtq_setup s = {.size = fuzz_get(&in, 2), .ready = true};
    s.desc.v = fuzz_get(&in, 3);
    s.driver.v = fuzz_get(&in, 3);
    s.device.v = fuzz_get(&in, 3);
    if (virtq_start(&q, &d.mem, &s, VIRTQ_SIZE_MAX) != VIRTQ_NO_FAULT)
        return 0;
    q.next_avail = q.next_used = (uint16_t)fuzz_get(&in, 2);
    drv_put(&d, 0, in.data, CL_MIN(in.left, 0x8000));
    walk(&d, &q);
    CL_ASSERT(virtq_fault_name(q.fault)[0] != 0);
    return 0;
}
