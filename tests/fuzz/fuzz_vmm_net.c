/* The network card under a guest and a wire of fuzz bytes: what reaches the wire is a frame. */
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fuzz_guest guest;
static struct net net;
static int wire[2];
static const uint8_t mac[NET_MAC_BYTES] = {2};

static void snapshot(void)
{
    static uint8_t image[512];
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    net_save(&net, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    net_init(&net, wire[0], mac, &guest.drv.mem, drv_irq(&guest.drv));
    CL_ASSERT(state_reader_init(&r, image, n, &head, NULL) == 0 && net_load(&net, &r, NULL) == 0);
    virtio_kick(&net.v);
}

static void host(struct fuzz_in *in)
{
    static uint8_t bytes[4096];
    uint32_t n = fuzz_get(in, 2) % sizeof bytes;
    ssize_t got = 0;
    switch (fuzz_get(in, 1) % 3) {
    case 0:
        (void)send(wire[1], bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case 1:
        got = recv(wire[1], bytes, sizeof bytes, MSG_DONTWAIT);
        CL_ASSERT(got <= 0 || (got >= NET_FRAME_MIN && got <= NET_FRAME_MAX));
        break;
    default:
        (void)shutdown(wire[1], (int)(n % 3));
    }
    net_on_wire(&net, net_poll_events(&net));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!guest.drv.mem.base)
        drv_init_alone(&guest.drv);
    CL_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wire) == 0);
    drv_clear(&guest.drv);
    guest.v = &net.v;
    guest.snapshot = snapshot;
    guest.host = host;
    net_init(&net, wire[0], mac, &guest.drv.mem, drv_irq(&guest.drv));
    drv_start(&guest.drv, &net.v, 16);
    fuzz_run(&guest, data, size);
    CL_ASSERT(close(wire[0]) == 0 && close(wire[1]) == 0);
    return 0;
}
