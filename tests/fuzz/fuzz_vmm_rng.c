/* The entropy device under a guest of fuzz bytes. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz_guest guest;
static struct rng rng;

static void snapshot(void)
{
    static uint8_t image[512];
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    rng_save(&rng, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    rng_init(&rng, &guest.drv.mem, drv_irq(&guest.drv));
    CL_ASSERT(state_reader_init(&r, image, n, &head, NULL) == 0 && rng_load(&rng, &r, NULL) == 0);
    virtio_kick(&rng.v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!guest.drv.mem.base)
        drv_init_alone(&guest.drv);
    guest.v = &rng.v;
    guest.snapshot = snapshot;
    rng_init(&rng, &guest.drv.mem, drv_irq(&guest.drv));
    drv_start(&guest.drv, &rng.v, 8);
    fuzz_run(&guest, data, size);
    return 0;
}
