/* The register machine under any order of accesses: what a live device uses does not change. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/vmm_guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz_guest guest;
static struct virtio device, back;
static struct virtq_chain chain;
static uint8_t config[13];

static void on_notify(void *dev, unsigned queue)
{
    (void)dev;
    for (int i = 0; i < 64 && virtio_pop(&device, queue, &chain); i++)
        virtio_push(&device, queue, &chain, 0);
    virtio_signal(&device, queue);
}

static void on_config_read(void *dev, uint32_t at, void *dst, uint32_t n)
{
    (void)dev;
    CL_ASSERT(at + n <= sizeof config);
    memcpy(dst, config + at, n);
}

static void on_config_write(void *dev, uint32_t at, const void *src, uint32_t n)
{
    (void)dev;
    CL_ASSERT(at + n <= sizeof config);
    memcpy(config + at, src, n);
}

static const struct virtio_ops ops = {.id = 42,
                                      .n_queues = 3,
                                      .queue_max = 64,
                                      .features = 0x30,
                                      .notify = on_notify,
                                      .config_bytes = sizeof config,
                                      .config_read = on_config_read,
                                      .config_write = on_config_write};

static void snapshot(void)
{
    static uint8_t image[1024];
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    state_begin(&w, STATE_NET);
    virtio_save(&device, &w);
    state_end(&w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    virtio_init(&back, &ops, NULL, &guest.drv.mem, drv_irq(&guest.drv));
    CL_ASSERT(state_reader_init(&r, image, n, &head, NULL) == 0);
    CL_ASSERT(state_enter(&r, STATE_NET, NULL) == 0 && virtio_load(&back, &r, NULL) == 0);
    CL_ASSERT(state_leave(&r, NULL) == 0 && back.status == device.status);
    device = back;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    if (!guest.drv.mem.base)
        drv_init_alone(&guest.drv);
    drv_clear(&guest.drv);
    guest.v = &device;
    guest.snapshot = snapshot;
    virtio_init(&device, &ops, NULL, &guest.drv.mem, drv_irq(&guest.drv));
    for (int i = 0; i < FUZZ_STEPS_MAX && in.left > 0; i++) {
        struct virtio before = device;
        fuzz_step(&guest, &in);
        fuzz_check(&device);
        if (before.status == 0xf && device.status == 0xf && i > 0)
            for (unsigned q = 0; q < ops.n_queues; q++)
                CL_ASSERT(device.queue[q].size == before.queue[q].size ||
                          device.queue[q].next_avail == 0); /* a new start */
    }
    return 0;
}
