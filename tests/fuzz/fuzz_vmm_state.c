/* A machine's state as an attack: blk, vsock, rng and the list of written pages load it or refuse
 * it; what was loaded can run, and saves to what loads again. */
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/blk.h"
#include "vmm/rng.h"
#include "vmm/vsock.h"
#include "vmm/written.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct drv drv;
static struct blk blk;
static struct vsock vsock;
static struct rng rng;
static struct written written;
static int file = -1;

static int load(const uint8_t *data, size_t n, int channel)
{
    struct state_reader r;
    struct state_head head;
    CL_ASSERT(blk_init(&blk, file, false, "fuzz", &drv.mem, drv_irq(&drv)) == 0);
    CL_ASSERT(vsock_init(&vsock, 3, &drv.mem, drv_irq(&drv), channel) == 0);
    rng_init(&rng, &drv.mem, drv_irq(&drv));
    if (state_reader_init(&r, data, n, &head, NULL) < 0 || blk_load(&blk, &r, NULL) < 0 ||
        vsock_load(&vsock, &r, NULL) < 0 || rng_load(&rng, &r, NULL) < 0 ||
        written_load(&written, DRV_RAM, &r, NULL) < 0)
        return -1;
    return state_reader_finish(&r, NULL);
}

static size_t save(uint8_t *data, size_t cap)
{
    struct state_writer w;
    size_t n = 0;
    drv_state_begin(&w, data, cap);
    blk_save(&blk, &w);
    vsock_save(&vsock, &w);
    rng_save(&rng, &w);
    written_save(&written, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    return n;
}

static void run(void)
{
    virtio_kick(&blk.v);
    virtio_kick(&vsock.v);
    virtio_kick(&rng.v);
    vsock_on_host(&vsock, vsock_poll_events(&vsock));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t image[VSOCK_STATE_MAX + 1024 + sizeof(struct written)];
    int channel[2];
    if (file < 0) {
        drv_init_alone(&drv);
        file = memfd_create("disk", MFD_CLOEXEC);
        CL_ASSERT(file >= 0 && ftruncate(file, 64 * 1024) == 0);
    }
    drv_clear(&drv);
    CL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
    if (load(data, size, channel[0]) == 0) {
        run();
        size_t n = save(image, sizeof image);
        CL_ASSERT(load(image, n, channel[0]) == 0);
        run();
    }
    CL_ASSERT(close(channel[0]) == 0 && close(channel[1]) == 0);
    return 0;
}
