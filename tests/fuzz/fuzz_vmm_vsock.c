/* The stream device under a guest and a host of fuzz bytes: its counters stay inside its buffer. */
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/vsock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz_guest guest;
static struct vsock vsock;
static int channel[2];

static void make(void)
{
    CL_ASSERT(vsock_init(&vsock, 3, &guest.drv.mem, drv_irq(&guest.drv), channel[0]) == 0);
}

static void check(void)
{
    CL_ASSERT(vsock.rx_cnt - vsock.fwd_cnt <= VSOCK_BUF_BYTES);
    CL_ASSERT(vsock.n_strangers <= VSOCK_RESETS_MAX);
    CL_ASSERT(vsock.state >= VSOCK_IDLE && vsock.state <= VSOCK_GONE);
    CL_ASSERT(vsock.state != VSOCK_GONE || vsock_poll_events(&vsock) == 0);
}

static void snapshot(void)
{
    static uint8_t image[VSOCK_STATE_MAX];
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    vsock_save(&vsock, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    make();
    CL_ASSERT(state_reader_init(&r, image, n, &head, NULL) == 0);
    CL_ASSERT(vsock_load(&vsock, &r, NULL) == 0 && state_reader_finish(&r, NULL) == 0);
    virtio_kick(&vsock.v);
    check();
}

/* The worker: sends, takes, ends its side, or leaves. */
static void host(struct fuzz_in *in)
{
    static uint8_t bytes[8192];
    uint32_t n = fuzz_get(in, 2) % sizeof bytes;
    switch (fuzz_get(in, 1) % 4) {
    case 0:
        (void)send(channel[1], bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case 1:
        (void)recv(channel[1], bytes, n, MSG_DONTWAIT);
        break;
    case 2:
        (void)shutdown(channel[1], (int)(n % 3));
        break;
    default:
        break;
    }
    vsock_on_host(&vsock, vsock_poll_events(&vsock));
    check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!guest.drv.mem.base)
        drv_init_alone(&guest.drv);
    CL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
    drv_clear(&guest.drv);
    guest.v = &vsock.v;
    guest.snapshot = snapshot;
    guest.host = host;
    make();
    drv_start(&guest.drv, &vsock.v, 16);
    fuzz_run(&guest, data, size);
    check();
    CL_ASSERT(close(channel[0]) == 0 && close(channel[1]) == 0);
    return 0;
}
