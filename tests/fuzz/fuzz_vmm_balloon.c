/* Page reporting under a guest of fuzz bytes, on a clone's memory: the template stays as it was,
 * and the mapping whole. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/balloon.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RAM = 16 << 20, STEP = 1 << 20, MARK = 7 };

static struct fuzz_guest guest;
static struct balloon balloon;
static int template = -1;

static void make_template(void)
{
    uint8_t mark = MARK;
    template = memfd_create("template", MFD_CLOEXEC);
    CL_ASSERT(template >= 0 && ftruncate(template, RAM) == 0);
    for (off_t at = 0; at < RAM; at += STEP)
        CL_ASSERT(pwrite(template, &mark, 1, at) == 1);
}

static void snapshot(void)
{
    static uint8_t image[512];
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    balloon_save(&balloon, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    balloon_init(&balloon, &guest.drv.mem, drv_irq(&guest.drv));
    CL_ASSERT(state_reader_init(&r, image, n, &head, NULL) == 0);
    CL_ASSERT(balloon_load(&balloon, &r, NULL) == 0);
    virtio_kick(&balloon.v);
}

static void check_memory(void)
{
    uint8_t mark;
    for (off_t at = 0; at < RAM; at += STEP) {
        CL_ASSERT(pread(template, &mark, 1, at) == 1 && mark == MARK);
        ((volatile uint8_t *)guest.drv.mem.base)[at] = 1; /* it is there, and ours to write */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (template <0)
        make_template();
    CL_ASSERT(gm_map(template, RAM, true, &guest.drv.mem, NULL) == 0);
    guest.v = &balloon.v;
    guest.snapshot = snapshot;
    balloon_init(&balloon, &guest.drv.mem, drv_irq(&guest.drv));
    drv_start(&guest.drv, &balloon.v, 16);
    fuzz_run(&guest, data, size);
    check_memory();
    drv_fini(&guest.drv);
    return 0;
}
