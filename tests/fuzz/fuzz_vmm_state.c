/* A machine's state as an attack: processor, blk, vsock, rng and the lists of pages load it
 * or refuse it; what was loaded can run, and saves to what loads again.  The input is a state, and
 * it is what is changed in one that is good: three bytes a change, where and what. */
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/blk.h"
#include "vmm/cpuid.h"
#include "vmm/rng.h"
#include "vmm/vsock.h"
#include "vmm/page_runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct drv drv;
static struct blk blk;
static struct vsock vsock;
static struct rng rng;
static struct page_runs written, holes;
static struct kvm_cpuid_table processor;
static int file = -1;

enum { IMAGE_MAX = VSOCK_STATE_MAX + 1024 + sizeof written + sizeof holes + sizeof processor };

/* Devices as they are before a driver comes. */
static void make(int channel)
{
    CL_ASSERT(blk_init(&blk, file, false, "fuzz", &drv.mem, drv_irq(&drv)) == 0);
    CL_ASSERT(vsock_init(&vsock, 3, &drv.mem, drv_irq(&drv), channel) == 0);
    rng_init(&rng, &drv.mem, drv_irq(&drv));
    written.n = holes.n = 0;
    processor.nent = 0;
}

static int load(const uint8_t *data, size_t n, int channel)
{
    struct state_reader r;
    struct state_head head;
    make(channel);
    if (state_reader_init(&r, data, n, &head, NULL) < 0 || cpuid_load(&processor, &r, NULL) < 0 ||
        blk_load(&blk, &r, NULL) < 0 || vsock_load(&vsock, &r, NULL) < 0 ||
        rng_load(&rng, &r, NULL) < 0 ||
        page_runs_load(&written, STATE_WRITTEN, DRV_RAM, &r, NULL) < 0 ||
        page_runs_load(&holes, STATE_HOLES, DRV_RAM, &r, NULL) < 0)
        return -1;
    return state_reader_finish(&r, NULL);
}

static size_t save(uint8_t *data, size_t cap)
{
    struct state_writer w;
    size_t n = 0;
    drv_state_begin(&w, data, cap);
    cpuid_save(&processor, &w);
    blk_save(&blk, &w);
    vsock_save(&vsock, &w);
    rng_save(&rng, &w);
    page_runs_save(&written, STATE_WRITTEN, &w);
    page_runs_save(&holes, STATE_HOLES, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    return n;
}

static void run(void)
{
    const struct cpuid_shape shape = {.vcpu = 1, .vcpus = 3};
    struct kvm_cpuid_table of_guest;
    CL_ASSERT(cpuid_filter(&processor, &shape, &of_guest, NULL) == 0);
    virtio_kick(&blk.v);
    virtio_kick(&vsock.v);
    virtio_kick(&rng.v);
    vsock_on_host(&vsock, vsock_poll_events(&vsock));
}

static void open_channel(int ret_ends[static 2])
{
    drv_clear(&drv);
    CL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_ends) == 0);
}

static void close_channel(const int ends[static 2])
{
    CL_ASSERT(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void try_state(const uint8_t *data, size_t size)
{
    static uint8_t image[IMAGE_MAX];
    int channel[2];
    open_channel(channel);
    if (load(data, size, channel[0]) == 0) {
        run();
        size_t n = save(image, sizeof image);
        CL_ASSERT(load(image, n, channel[0]) == 0);
        run();
    }
    close_channel(channel);
}

/* Of devices that are at work.  A corpus of good states would be one of bad states when what they
 * hold changes, and nobody would notice. */
static size_t make_good(uint8_t *image, size_t cap)
{
    int channel[2];
    open_channel(channel);
    make(channel[0]);
    drv_start(&drv, &blk.v, 8);
    drv_start(&drv, &vsock.v, 8);
    drv_start(&drv, &rng.v, 8);
    processor.nent = 3;
    processor.entries[1].function = 0xd;
    page_runs_add(&written, 1);
    page_runs_add(&written, 7);
    page_runs_add(&holes, 3);
    size_t n = save(image, cap);
    CL_ASSERT(load(image, n, channel[0]) == 0);
    close_channel(channel);
    return n;
}

static void set_up(void)
{
    drv_init_alone(&drv);
    file = memfd_create("disk", MFD_CLOEXEC);
    CL_ASSERT(file >= 0 && ftruncate(file, 64 * 1024) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t good[IMAGE_MAX], changed[IMAGE_MAX];
    static size_t n;
    if (file < 0) {
        set_up();
        n = make_good(good, sizeof good);
    }
    try_state(data, size);
    memcpy(changed, good, n);
    for (size_t i = 0; i + 3 <= size; i += 3)
        changed[((size_t)data[i + 1] << 8 | data[i]) % n] = data[i + 2];
    try_state(changed, n);
    return 0;
}
