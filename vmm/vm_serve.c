/* vmm/vm_serve.c - who does a guest's work: the vCPU's thread that asked for it, or the main loop.
 *
 * A vCPU's thread serves ports, interrupt chip and most devices at once.  It leaves to the main
 * loop what its filter has no calls for, and wakes it when a wire is to be listened on.
 */
#include <poll.h>
#include <unistd.h>

#include "vmm/shim/layout.h"
#include "vmm/vm_priv.h"

/* --- the guest's accesses, on a vCPU's thread ---------------------------------------------- */

static void on_mail(struct vm *vm, uint8_t word)
{
    if (!xenpv_on_mail(&vm->xenpv, &vm->mem, word, &vm->serial))
        ports_break(&vm->ports);
}

static enum vm_count count_port(const struct vm *vm, const struct vcpu_access *a)
{
    if (a->write && a->address == SHIM_PORT && vm->xenpv.on)
        return COUNT_EXIT_MAIL;
    return a->address - SERIAL_PORT < SERIAL_PORTS ? COUNT_EXIT_SERIAL : COUNT_EXIT_PORTS;
}

static void access_port(struct vm *vm, struct vcpu_access *a)
{
    a->why = count_port(vm, a);
    if (a->why == COUNT_EXIT_MAIL)
        on_mail(vm, (uint8_t)a->value);
    else if (a->write)
        ports_write(&vm->ports, (uint16_t)a->address, a->width, a->value);
    else
        a->value = ports_read(&vm->ports, (uint16_t)a->address, a->width);
}

static void access_ioapic(struct vm *vm, struct vcpu_access *a)
{
    uint32_t offset = (uint32_t)(a->address - IOAPIC_BASE);
    a->why = COUNT_EXIT_CHIP;
    if (a->write)
        ioapic_write(&vm->ioapic, offset, a->width, a->value);
    else
        a->value = ioapic_read(&vm->ioapic, offset, a->width);
}

static void access_device(struct vm *vm, enum vm_slot slot, struct vcpu_access *a)
{
    struct virtio *device = vm->slots[slot];
    uint32_t offset = (uint32_t)(a->address % VIRTIO_MMIO_BYTES);
    bool is_kick = a->write && offset == VIRTIO_NOTIFY_AT;
    a->why = (enum vm_count)((is_kick ? COUNT_KICK_ROOT : COUNT_EXIT_ROOT) + slot);
    if (a->write)
        virtio_write(device, offset, a->width, a->value);
    else
        a->value = virtio_read(device, offset, a->width);
}

static void access_nothing(struct vcpu_access *a)
{
    a->why = COUNT_EXIT_NOTHING;
    a->value = UINT32_MAX;
}

static void access_mmio(struct vm *vm, struct vcpu_access *a)
{
    uint64_t slot = (a->address - VM_DEVICES_BASE) / VIRTIO_MMIO_BYTES;
    if (a->address >= IOAPIC_BASE && a->address - IOAPIC_BASE < IOAPIC_BYTES)
        access_ioapic(vm, a);
    else if (a->address >= VM_DEVICES_BASE && slot < VM_SLOTS_NR && vm->slots[slot])
        access_device(vm, (enum vm_slot)slot, a);
    else
        access_nothing(a);
}

static void wake_main(struct vm *vm)
{
    uint64_t one = 1;
    (void)!write(vm->wake_fd, &one, sizeof one); /* it fails only when it is full: awake already */
}

/* What the main loop should poll a wire for; the guest's accesses change it. */
static short wire_events(const struct vm *vm, enum vm_wire wire)
{
    if (wire == VM_CHANNEL)
        return vm->slots[VM_VSOCK] ? vsock_poll_events(&vm->vsock) : 0;
    return vm->slots[VM_NET] ? net_poll_events(&vm->net) : 0;
}

/* Does the main loop wait for something else than it should? */
static bool polls_wrongly(struct vm *vm)
{
    bool wrongly = false;
    for (int i = 0; i < VM_WIRES_NR; i++) {
        short events = wire_events(vm, (enum vm_wire)i);
        wrongly |= events != vm->polled[i];
        vm->polled[i] = events; /* one call is enough: it asks again before it sleeps */
    }
    return wrongly;
}

/* Devices whose work needs calls that a vCPU's thread may not make are served by the main loop. */
static const enum vm_slot served_by_main[] = {VM_BALLOON, VM_NET};

void vm_defer_devices(struct vm *vm)
{
    for (size_t i = 0; i < CL_COUNT(served_by_main); i++) {
        if (vm->slots[served_by_main[i]])
            virtio_defer(vm->slots[served_by_main[i]]);
    }
}

static void serve_devices(struct vm *vm)
{
    for (size_t i = 0; i < CL_COUNT(served_by_main); i++) {
        if (vm->slots[served_by_main[i]])
            virtio_serve(vm->slots[served_by_main[i]]);
    }
}

static bool main_is_needed(const struct vm *vm)
{
    for (size_t i = 0; i < CL_COUNT(served_by_main); i++) {
        const struct virtio *device = vm->slots[served_by_main[i]];
        if (device && virtio_is_waiting(device))
            return true;
    }
    return false;
}

bool vm_access(void *arg, struct vcpu_access *access)
{
    struct vm *vm = arg;
    (void)pthread_mutex_lock(&vm->devices);
    if (access->space == VCPU_PORT)
        access_port(vm, access);
    else
        access_mmio(vm, access);
    bool goes_on = vm->ports.end == PORTS_RUNNING;
    bool news = polls_wrongly(vm) || main_is_needed(vm);
    (void)pthread_mutex_unlock(&vm->devices);
    if (news)
        wake_main(vm);
    return goes_on;
}

/* --- the main loop's side ------------------------------------------------------------------ */

size_t vm_pollfds(struct vm *vm, struct pollfd fds[static VM_POLLFDS])
{
    fds[0] = (struct pollfd){.fd = vm->wake_fd, .events = POLLIN};
    const int wires[VM_WIRES_NR] = {vm->config.channel_fd, vm->config.net_fd};
    (void)pthread_mutex_lock(&vm->devices);
    for (int i = 0; i < VM_WIRES_NR; i++) {
        short events = wire_events(vm, (enum vm_wire)i);
        vm->polled[i] = events;
        fds[1 + i] = (struct pollfd){.fd = events ? wires[i] : -1, .events = events};
    }
    (void)pthread_mutex_unlock(&vm->devices);
    return VM_POLLFDS;
}

void vm_on_poll(struct vm *vm, const struct pollfd *fds, size_t n)
{
    uint64_t count;
    CL_ASSERT(n == VM_POLLFDS);
    if (fds[0].revents)
        (void)!read(vm->wake_fd, &count, sizeof count); /* it only wakes */
    (void)pthread_mutex_lock(&vm->devices);
    if (fds[1 + VM_CHANNEL].revents)
        vsock_on_host(&vm->vsock, fds[1 + VM_CHANNEL].revents);
    if (fds[1 + VM_FRAMES].revents)
        net_on_wire(&vm->net, fds[1 + VM_FRAMES].revents);
    serve_devices(vm);
    (void)pthread_mutex_unlock(&vm->devices);
}
