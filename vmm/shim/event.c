/* vmm/shim/event.c - event channels of two levels, and waiting for them. */
#include "vmm/ports.h"
#include "vmm/shim/shim.h"

static void interrupt_owner(uint64_t cpu)
{
    if (cpu != shim()->cpu)
        cpu_kick(cpu);
}

/* Pending for the kernel on the port's vCPU, unless the port is masked: then its unmasking does it.
 * Whoever makes the first event pending there interrupts it. */
void event_raise(uint32_t port)
{
    struct xen_shared_info *info = shared_info();
    uint64_t cpu = __atomic_load_n(&common()->channels[port].cpu, __ATOMIC_SEQ_CST);
    struct shim_state *s = shim_of(cpu % SHIM_CPUS_MAX);
    uint64_t word = port / 64, bit = UINT64_C(1) << port % 64;
    __atomic_fetch_or(&info->pending[word], bit, __ATOMIC_SEQ_CST);
    bool is_news = __atomic_load_n(&s->polls, __ATOMIC_SEQ_CST) != 0;
    if (!(__atomic_load_n(&info->mask[word], __ATOMIC_SEQ_CST) & bit)) {
        struct xen_vcpu_info *v = (void *)__atomic_load_n(&s->vcpu_info, __ATOMIC_SEQ_CST);
        __atomic_fetch_or(&v->pending_sel, UINT64_C(1) << word, __ATOMIC_SEQ_CST);
        is_news |= __atomic_exchange_n(&v->upcall_pending, 1, __ATOMIC_SEQ_CST) == 0;
    }
    if (is_news)
        interrupt_owner(cpu);
}

void event_raise_virq(uint32_t virq)
{
    uint32_t port = __atomic_load_n(&shim()->virqs[virq], __ATOMIC_SEQ_CST);
    if (port != 0 && port < SHIM_CHANNELS)
        event_raise(port);
}

void event_devices(void)
{
    if (__atomic_load_n(&mail()->devices, __ATOMIC_SEQ_CST) == 0)
        return;
    uint64_t news = __atomic_exchange_n(&mail()->devices, 0, __ATOMIC_SEQ_CST);
    for (uint32_t n = 0; n < SHIM_DEVICE_EVENTS; n++) {
        if (news >> n & 1)
            event_raise(SHIM_DEVICE_PORT + n);
    }
}

static enum shim_channel kind_of(uint32_t port)
{
    return (enum shim_channel)__atomic_load_n(&common()->channels[port].kind, __ATOMIC_SEQ_CST);
}

static bool is_open(uint32_t port)
{
    return port < SHIM_CHANNELS && kind_of(port) != CHANNEL_FREE;
}

/* A port of this kind, for this vCPU, into *ret_port. */
static int open_port(enum shim_channel kind, uint32_t cpu, uint32_t *ret_port)
{
    if (!is_cpu(cpu))
        return -XEN_ENOENT;
    for (uint32_t port = XEN_PORT_FIRST_FREE; port < SHIM_CHANNELS; port++) {
        struct shim_channel_of *c = &common()->channels[port];
        uint8_t free = CHANNEL_FREE;
        if (__atomic_compare_exchange_n(&c->kind, &free, (uint8_t)kind, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&c->cpu, (uint8_t)cpu, __ATOMIC_SEQ_CST);
            *ret_port = port;
            return 0;
        }
    }
    return -XEN_ENOSPC;
}

static int bind_virq(uint32_t virq, uint32_t cpu, uint32_t *ret_port)
{
    if (virq >= SHIM_VIRQS)
        return -XEN_EINVAL;
    int rc = open_port(CHANNEL_VIRQ, cpu, ret_port);
    if (rc == 0)
        __atomic_store_n(&shim_of(cpu)->virqs[virq], *ret_port, __ATOMIC_SEQ_CST);
    return rc;
}

/* Ports of one vCPU stay with it. */
static int bind_vcpu(uint32_t port, uint32_t cpu)
{
    if (!is_cpu(cpu))
        return -XEN_ENOENT;
    if (!is_open(port) || kind_of(port) != CHANNEL_REMOTE)
        return -XEN_EINVAL;
    __atomic_store_n(&common()->channels[port].cpu, (uint8_t)cpu, __ATOMIC_SEQ_CST);
    return 0;
}

static int close_port(uint32_t port)
{
    if (!is_open(port))
        return -XEN_EINVAL;
    for (unsigned i = 0; i < common()->n_cpus * SHIM_VIRQS; i++) {
        uint32_t *virq = &shim_of(i / SHIM_VIRQS)->virqs[i % SHIM_VIRQS];
        if (*virq == port)
            *virq = 0;
    }
    __atomic_fetch_and(&shared_info()->pending[port / 64], ~(UINT64_C(1) << port % 64),
                       __ATOMIC_SEQ_CST);
    __atomic_store_n(&common()->channels[port].kind, CHANNEL_FREE, __ATOMIC_SEQ_CST);
    return 0;
}

static int send(uint32_t port)
{
    if (!is_open(port))
        return -XEN_EINVAL;
    if (port == XEN_PORT_CONSOLE)
        console_drain();
    else if (kind_of(port) == CHANNEL_IPI)
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
        return bind_virq(words[0], words[1], &words[2]);
    case BIND_IPI:
        return open_port(CHANNEL_IPI, words[0], &words[1]);
    case ALLOC_UNBOUND:
        return open_port(CHANNEL_REMOTE, 0, &words[1]);
    case BIND_VCPU:
        return bind_vcpu(words[0], words[1]);
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
    cpu_look();
    if (!__atomic_load_n(&v->upcall_pending, __ATOMIC_SEQ_CST))
        cpu_wait();
}

/* public/sched.h */
struct poll {
    uint64_t ports;
    uint32_t n, pad;
    uint64_t until_ns; /* 0 = for ever */
};

static bool is_any_pending(const struct poll *p)
{
    const uint32_t *ports = guest(p->ports);
    for (uint32_t i = 0; i < p->n && i < SHIM_CHANNELS; i++) {
        uint32_t port = ports[i] % SHIM_CHANNELS;
        if (__atomic_load_n(&shared_info()->pending[port / 64], __ATOMIC_SEQ_CST) >> port % 64 & 1)
            return true;
    }
    return false;
}

/* Until an event is pending at one of the ports, masked or not; or any other interrupt. */
static void poll(const struct poll *p)
{
    uint64_t *polls = &shim()->polls;
    __atomic_store_n(polls, 1, __ATOMIC_SEQ_CST);
    cpu_look();
    if (p->until_ns != 0)
        timer_wake(p->until_ns);
    if (!is_any_pending(p))
        cpu_wait();
    __atomic_store_n(polls, 0, __ATOMIC_SEQ_CST);
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
        return 0;
    case POLL: /* a lock's slow path */
        poll(guest(arg));
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
