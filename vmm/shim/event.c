/* vmm/shim/event.c - event channels of two levels, and waiting for them. */
#include "vmm/ports.h"
#include "vmm/shim/shim.h"

/* Pending for the kernel, unless the port is masked: then its unmasking does it. */
void event_raise(uint32_t port)
{
    struct xen_shared_info *info = shared_info();
    struct xen_vcpu_info *v = vcpu_info();
    uint64_t word = port / 64, bit = UINT64_C(1) << port % 64;
    __atomic_fetch_or(&info->pending[word], bit, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&info->mask[word], __ATOMIC_SEQ_CST) & bit)
        return;
    __atomic_fetch_or(&v->pending_sel, UINT64_C(1) << word, __ATOMIC_SEQ_CST);
    __atomic_store_n(&v->upcall_pending, 1, __ATOMIC_SEQ_CST);
}

void event_devices(void)
{
    struct shim_mail *mail = (struct shim_mail *)(SHIM_VA + SHIM_MAIL);
    uint64_t news = __atomic_exchange_n(&mail->devices, 0, __ATOMIC_SEQ_CST);
    for (uint32_t n = 0; n < SHIM_DEVICES; n++) {
        if (news >> n & 1)
            event_raise(SHIM_DEVICE_PORT + n);
    }
}

static bool is_open(uint32_t port)
{
    return port < SHIM_CHANNELS && shim()->channels[port] != CHANNEL_FREE;
}

/* A port of this kind into *ret_port. */
static int open_port(enum shim_channel kind, uint32_t *ret_port)
{
    struct shim_state *s = shim();
    for (uint32_t port = XEN_PORT_FIRST_FREE; port < SHIM_CHANNELS; port++) {
        if (s->channels[port] == CHANNEL_FREE) {
            s->channels[port] = (uint8_t)kind;
            *ret_port = port;
            return 0;
        }
    }
    return -XEN_ENOSPC;
}

static int bind_virq(uint32_t virq, uint32_t *ret_port)
{
    struct shim_state *s = shim();
    if (virq >= SHIM_VIRQS)
        return -XEN_EINVAL;
    int rc = open_port(CHANNEL_VIRQ, ret_port);
    if (rc == 0)
        s->virqs[virq] = *ret_port;
    return rc;
}

static int close_port(uint32_t port)
{
    struct shim_state *s = shim();
    if (!is_open(port))
        return -XEN_EINVAL;
    for (unsigned i = 0; i < SHIM_VIRQS; i++) {
        if (s->virqs[i] == port)
            s->virqs[i] = 0;
    }
    s->channels[port] = CHANNEL_FREE;
    __atomic_fetch_and(&shared_info()->pending[port / 64], ~(UINT64_C(1) << port % 64),
                       __ATOMIC_SEQ_CST);
    return 0;
}

static int send(uint32_t port)
{
    if (!is_open(port))
        return -XEN_EINVAL;
    if (port == XEN_PORT_CONSOLE)
        console_drain();
    else if (shim()->channels[port] == CHANNEL_IPI)
        event_raise(port);
    return 0; /* a port whose other end is nobody's */
}

static int unmask(uint32_t port)
{
    struct xen_shared_info *info = shared_info();
    if (port >= SHIM_CHANNELS)
        return -XEN_EINVAL;
    uint64_t bit = UINT64_C(1) << port % 64;
    __atomic_fetch_and(&info->mask[port / 64], ~bit, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&info->pending[port / 64], __ATOMIC_SEQ_CST) & bit)
        event_raise(port);
    return 0;
}

/* public/event_channel.h: the first words of each operation's structure. */
int64_t event_op(uint64_t op, uint64_t arg)
{
    enum {
        BIND_VIRQ = 1, /* virq, vcpu, port */
        CLOSE = 3,     /* port */
        SEND = 4,
        ALLOC_UNBOUND = 6, /* two domains of 16 bits, port */
        BIND_IPI = 7,      /* vcpu, port */
        BIND_VCPU = 8,     /* port, vcpu */
        UNMASK = 9,
    };
    uint32_t *words = guest(arg);
    switch (op) {
    case BIND_VIRQ:
        return words[1] == 0 ? bind_virq(words[0], &words[2]) : -XEN_ENOENT;
    case BIND_IPI:
        return words[0] == 0 ? open_port(CHANNEL_IPI, &words[1]) : -XEN_ENOENT;
    case ALLOC_UNBOUND:
        return open_port(CHANNEL_REMOTE, &words[1]);
    case BIND_VCPU:
        return words[1] == 0 ? 0 : -XEN_ENOENT;
    case CLOSE:
        return close_port(words[0]);
    case SEND:
        return send(words[0]);
    case UNMASK:
        return unmask(words[0]);
    default: /* among them the FIFO's: Linux then takes these two levels */
        return -XEN_ENOSYS;
    }
}

/* --- waiting, and the end ------------------------------------------------------------------- */

static void block(void)
{
    struct xen_vcpu_info *v = vcpu_info();
    v->upcall_mask = 0;
    if (!__atomic_load_n(&v->upcall_pending, __ATOMIC_SEQ_CST))
        wait_for_irq();
}

/* By the ports by which any guest of this machine ends. */
static void shut_down(uint32_t reason)
{
    enum { POWER_OFF = 0, REBOOT = 1, SLEEP_ENABLE = 0x20, SLEEP_SHIFT = 2, PANICKED = 1 };
    for (;;) {
        if (reason == POWER_OFF)
            write_port(PORT_SLEEP_CONTROL, PORT_SLEEP_S5 << SLEEP_SHIFT | SLEEP_ENABLE);
        else if (reason == REBOOT)
            write_port(PORT_RESET, PORT_RESET_VALUE);
        else
            write_port(PORT_PANIC, PANICKED);
    }
}

int64_t sched_op(uint64_t op, uint64_t arg)
{
    enum { YIELD = 0, BLOCK = 1, SHUTDOWN = 2, POLL = 3 };
    switch (op) {
    case YIELD:
    case POLL: /* of ports, in a lock's slow path: there is nobody else to wait for */
        return 0;
    case BLOCK:
        block();
        return 0;
    case SHUTDOWN:
        console_drain();
        shut_down(*(const uint32_t *)guest(arg));
        return 0;
    default:
        return -XEN_ENOSYS;
    }
}
