/* A frame of the guest, as it is and with its sums put right; what is built in answer is read back.
 */
#include <stdint.h>
#include <string.h>

#include "tests/unit/net/guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_built(const uint8_t *bytes, size_t n, const struct net_frame *to)
{
    struct net_frame f;
    CL_ASSERT(n <= NET_FRAME_BUILT_MAX);
    CL_ASSERT(net_frame_to_guest(bytes, n, &f) == NET_FRAME_FINE);
    CL_ASSERT(n == 14 + (size_t)f.bytes && f.to == NET_GUEST);
    if (f.kind != NET_FRAME_OTHER)
        CL_ASSERT(f.from == to->to && f.from_port == to->to_port && f.to_port == to->from_port);
}

static void answer(const uint8_t *bytes, const struct net_frame *f)
{
    uint8_t out[NET_FRAME_BUILT_MAX];
    size_t n;
    if (f->kind == NET_FRAME_TCP && (n = net_frame_build_reset(f, out)) > 0)
        check_built(out, n, f);
    if (f->kind != NET_FRAME_UDP)
        return;
    check_built(out, net_frame_build_prohibited(bytes, f, out), f);
    n = CL_MIN(f->payload_bytes, NET_FRAME_PAYLOAD_MAX);
    check_built(out, net_frame_build_datagram(f, bytes + f->payload_at, n, out), f);
}

static void try_frame(const struct raw *r)
{
    struct net_frame f;
    enum net_frame_fault fault = net_frame_from_guest(r->bytes, r->n, &f);
    CL_ASSERT(net_frame_fault_text(fault)[0]);
    if (net_frame_to_guest(r->bytes, r->n, &f) == NET_FRAME_FINE)
        CL_ASSERT(f.kind == NET_FRAME_ARP || f.to == NET_GUEST);
    if (fault != NET_FRAME_FINE)
        return;
    CL_ASSERT(net_frame_from_guest(r->bytes, r->n, &f) == NET_FRAME_FINE);
    CL_ASSERT(14 + (size_t)f.bytes <= r->n);
    CL_ASSERT(f.kind == NET_FRAME_ARP || f.from == NET_GUEST);
    if (f.kind == NET_FRAME_TCP || f.kind == NET_FRAME_UDP)
        CL_ASSERT((size_t)f.payload_at + f.payload_bytes == 14 + (size_t)f.bytes);
    answer(r->bytes, &f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct raw r = {.n = CL_MIN(size, sizeof r.bytes)};
    memcpy(r.bytes, data, r.n);
    try_frame(&r);
    raw_seal(&r);
    try_frame(&r);
    return 0;
}
