/* vmm/shim/console.c - what the kernel prints, to the monitor's mail.
 *
 * Early messages come by hypercall, later ones through the ring of Xen's console
 * (public/io/console.h).  Nothing is ever received.
 */
#include "vmm/shim/shim.h"

static void take_mail(void)
{
    while (__atomic_exchange_n(&common()->mail_lock, 1, __ATOMIC_ACQUIRE) != 0)
        relax();
}

static void release_mail(void)
{
    __atomic_store_n(&common()->mail_lock, 0, __ATOMIC_RELEASE);
}

static void print(uint32_t n)
{
    mail()->n = n;
    write_port(SHIM_PORT, SHIM_PRINT);
}

void console_drain(void)
{
    struct xen_console *ring = frame_at(common()->console_frame);
    take_mail();
    uint32_t cons = ring->out_cons, prod = __atomic_load_n(&ring->out_prod, __ATOMIC_ACQUIRE),
             n = 0;
    _Static_assert((int)SHIM_TEXT_MAX >= (int)XEN_CONSOLE_OUT, "the mail takes a whole ring");
    while (cons != prod && n < XEN_CONSOLE_OUT)
        mail()->text[n++] = ring->out[cons++ % XEN_CONSOLE_OUT];
    __atomic_store_n(&ring->out_cons, prod, __ATOMIC_RELEASE);
    if (n > 0)
        print(n);
    release_mail();
}

int64_t console_io(uint64_t op, uint64_t n, uint64_t text)
{
    enum { WRITE = 0 };
    if (op != WRITE)
        return op == 1 ? 0 : -XEN_ENOSYS; /* nothing to be read */
    const uint8_t *from = guest(text);
    for (uint64_t at = 0; at < n;) {
        uint32_t part = (uint32_t)(n - at < SHIM_TEXT_MAX ? n - at : SHIM_TEXT_MAX);
        take_mail();
        __builtin_memcpy(mail()->text, from + at, part);
        print(part);
        release_mail();
        at += part;
    }
    return (int64_t)n;
}
