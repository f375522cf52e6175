/* vmm/vm.c - see vmm/vm.h. */
#include "vmm/vm.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include "base/clock.h"
#include "base/mem.h"
#include "vmm/boot.h"
#include "vmm/cpuid.h"
#include "vmm/loader.h"
#include "vmm/msr.h"
#include "vmm/shim/layout.h"
#include "vmm/vcpu_state.h"
#include "vmm/vm_priv.h"

#define KVM_TSS_BASE UINT64_C(0xfffbd000)

enum { FIRST_GSI = 5 };
#define MSI_TO_FIRST UINT32_C(0xfee00000) /* Intel SDM 3A §11.11.1: to local APIC 0 */
_Static_assert((int)FIRST_GSI + (int)VM_DEVICES_MAX <= (int)IOAPIC_PINS, "a pin for each device");

/* --- interrupts ---------------------------------------------------------------------------- */

/* One message, one ioctl: KVM_IRQFD and KVM_IOEVENTFD would make the end of the VM wait 15 ms for a
 * grace period of the host's kernel. */
static void send_interrupt(void *arg, uint32_t address, uint32_t data)
{
    struct vm *vm = arg;
    if (kvm_signal_msi(vm->vm_fd, address, data, NULL) < 0)
        vm->lost_interrupts++; /* a guest that asks for nonsense loses its own interrupt */
}

static void raise_pin(void *arg, unsigned gsi)
{
    struct vm *vm = arg;
    vm->raised[gsi < FIRST_GSI ? VM_SLOTS_NR : gsi - FIRST_GSI]++;
    ioapic_raise(&vm->ioapic, gsi);
}

/* A Xen-PV guest has no interrupt controller, but its shim, and its serial port no interrupt. */
static void raise_event(void *arg, unsigned gsi)
{
    struct vm *vm = arg;
    if (gsi < FIRST_GSI)
        return;
    vm->raised[(gsi - FIRST_GSI) % SHIM_DEVICES]++;
    xenpv_note(&vm->xenpv, &vm->mem, gsi - FIRST_GSI);
    send_interrupt(vm, MSI_TO_FIRST, SHIM_IRQ_VECTOR);
}

static struct irq_line line_of(struct vm *vm, unsigned gsi)
{
    if (vm->config.entry != VM_ENTRY_XENPV)
        return (struct irq_line){.raise = raise_pin, .chip = vm, .gsi = gsi, .config_gsi = gsi};
    return (struct irq_line){.raise = raise_event,
                             .chip = vm,
                             .gsi = gsi,
                             .config_gsi = gsi + SHIM_DEVICES,
                             .is_lasting = true};
}

/* --- how it ended ---------------------------------------------------------------------------- */

static enum vm_end end_of_ports(enum ports_end end)
{
    switch (end) {
    case PORTS_OFF:
        return VM_OFF;
    case PORTS_RESET:
        return VM_RESET;
    case PORTS_EXIT:
        return VM_EXIT;
    case PORTS_PANIC:
        return VM_PANIC;
    case PORTS_BROKEN:
    case PORTS_RUNNING:
        break;
    }
    return VM_FAILED;
}

static enum vm_end end_of(struct vm *vm, enum vcpu_end end)
{
    switch (end) {
    case VCPU_RUNS:
        return VM_RUNS;
    case VCPU_STOPPED:
        return VM_STOPPED;
    case VCPU_BUS:
        return end_of_ports(vm->ports.end);
    case VCPU_RESET:
        return VM_RESET;
    case VCPU_FAILED:
        break;
    }
    return VM_FAILED;
}

void vm_report(struct vm *vm, struct vm_report *ret_report)
{
    enum vcpu_end end = vcpu_gate_end(&vm->gate, &ret_report->err);
    (void)pthread_mutex_lock(&vm->devices);
    ret_report->end = end_of(vm, end);
    ret_report->status = vm->ports.exit_status;
    if (vm->xenpv.gave_up)
        (void)xenpv_explain(&vm->xenpv, &ret_report->err);
    (void)pthread_mutex_unlock(&vm->devices);
}

/* --- assembly ------------------------------------------------------------------------------ */

/* Where ring 0 is native SYSCALL leads there, and the shim has no way back from it. */
static int check_xenpv(const struct vm_config *config, struct cl_err *err)
{
    if (!config->is_here && cpuid_host_virtualizes())
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "a kernel is entered by Xen PV only where KVM interprets ring 0; this "
                       "processor has VMX or SVM, boot it the ordinary way");
    if (config->vcpus > XENPV_VCPUS_MAX)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "%u vCPUs; a machine that is entered by Xen PV has at most %d",
                       config->vcpus, XENPV_VCPUS_MAX);
    return 0;
}

static int check_config(const struct vm_config *config, struct cl_err *err)
{
    if (config->entry == VM_ENTRY_XENPV && check_xenpv(config, err) < 0)
        return -1;
    if (config->vcpus == 0 || config->vcpus > VM_VCPUS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%u vCPUs; want 1 to %d", config->vcpus, VM_VCPUS_MAX);
    return kvm_check(config->kvm_fd, err);
}

int vm_show_memory(struct vm *vm, uint32_t flags, struct cl_err *err)
{
    const struct guest_mem *mem = &vm->mem;
    struct kvm_slot low = {VM_MEMORY_LOW, flags, 0, mem->base, mem->low};
    struct kvm_slot high = {VM_MEMORY_HIGH, flags, mem->high_at, mem->base + mem->low, mem->high};
    if (kvm_set_slot(vm->vm_fd, &low, err) < 0)
        return -1;
    return mem->high > 0 ? kvm_set_slot(vm->vm_fd, &high, err) : 0;
}

/* For vm_record(), when nothing can be allocated any more. */
static int add_dirty(struct vm *vm, struct cl_err *err)
{
    uint64_t words = gm_dirty_words(vm->mem.low) + gm_dirty_words(vm->mem.high);
    vm->dirty = cl_zalloc(words * sizeof *vm->dirty);
    return vm->dirty ? 0 : cl_fail(err, CL_E_NOMEM, 0, "a bit for each page");
}

/* For vm_save_clone(), when nothing can be mapped any more.  What the clone has not written is at
 * both places the same page. */
static int view_file(struct vm *vm, struct cl_err *err)
{
    const struct vm_config *c = &vm->config;
    void *at = mmap(NULL, c->mem_bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, c->ram_fd, 0);
    if (at == MAP_FAILED)
        return cl_fail(err, CL_E_SYS, errno, "map a view of guest memory");
    vm->before = (struct iovec){at, c->mem_bytes};
    (void)madvise(at, c->mem_bytes, MADV_DONTDUMP);
    return 0;
}

/* Before the interrupt chip and the vCPUs: see vmm/kvm.h. */
static int add_memory(struct vm *vm, struct cl_err *err)
{
    const struct vm_config *c = &vm->config;
    bool alone = c->own_ram && !c->restore;
    if ((alone ? gm_alloc(c->mem_bytes, &vm->mem, err)
               : gm_map(c->ram_fd, c->mem_bytes, c->restore, &vm->mem, err)) < 0)
        return -1;
    struct guest_mem *mem = &vm->mem;
    if (c->entry == VM_ENTRY_XENPV)
        gm_set_hole(mem, XENPV_HOLE, XENPV_HOLE_END);
    if ((alone && add_dirty(vm, err) < 0) || (c->restore && view_file(vm, err) < 0))
        return -1;
    if (vm_show_memory(vm, 0, err) < 0)
        return -1;
    /* Three pages that older Intel processors need for the guest's real mode. */
    if (ioctl(vm->vm_fd, KVM_SET_TSS_ADDR, (unsigned long)KVM_TSS_BASE) < 0)
        return cl_fail(err, CL_E_SYS, errno, "KVM_SET_TSS_ADDR");
    return 0;
}

/* A KVM that interprets ring 0 lists what its interpreter can do.  A Xen-PV guest has no ring 0,
 * and all of the processor at CPL3. */
static int learn_processor(struct vm *vm, struct cl_err *err)
{
    if (vm->config.is_here)
        return 0; /* vm_open_state() has it */
    if (kvm_supported_cpuid(vm->config.kvm_fd, &vm->processor, err) < 0)
        return -1;
    if (vm->config.entry == VM_ENTRY_XENPV && !cpuid_has_xsave(&vm->processor))
        cpuid_host(&vm->processor);
    return 0;
}

/* CPUID comes first: what the other calls accept depends on it. */
static int add_vcpus(struct vm *vm, struct cl_err *err)
{
    if (learn_processor(vm, err) < 0 || msr_probe(vm->config.kvm_fd, &vm->msrs, err) < 0)
        return -1;
    for (unsigned i = 0; i < vm->config.vcpus; i++) {
        struct cpuid_shape shape = {
            .vcpu = i,
            .vcpus = vm->config.vcpus,
            .tsc_deadline = kvm_extension(vm->config.kvm_fd, KVM_CAP_TSC_DEADLINE_TIMER) != 0,
        };
        if (vcpu_open(&vm->vcpus[i], vm->config.kvm_fd, vm->vm_fd, i, err) < 0)
            return -1;
        vm->n_vcpus++;
        if (cpuid_filter(&vm->processor, &shape, &vm->cpuid[i], err) < 0 ||
            KVM_CALL(vm->vcpus[i].fd, KVM_SET_CPUID2, &vm->cpuid[i], err) < 0)
            return -1;
    }
    return 0;
}

static int add_disk(struct vm *vm, enum vm_slot slot, struct blk *disk, int fd, struct cl_err *err)
{
    const char *name = slot == VM_ROOT ? "root" : "scratch";
    if (fd < 0)
        return 0;
    int rc = blk_init(disk, fd, slot == VM_ROOT, name, &vm->mem,
                      line_of(vm, FIRST_GSI + (unsigned)slot));
    if (rc < 0)
        return cl_fail(err, CL_E_INVALID, -rc, "the %s disk", name);
    vm->slots[slot] = &disk->v;
    return 0;
}

static int add_vsock(struct vm *vm, struct cl_err *err)
{
    if (vm->config.channel_fd < 0)
        return 0;
    int rc = vsock_init(&vm->vsock, VM_GUEST_CID, &vm->mem, line_of(vm, FIRST_GSI + VM_VSOCK),
                        vm->config.channel_fd);
    if (rc < 0)
        return cl_fail(err, CL_E_SYS, -rc, "the agent's channel");
    vm->slots[VM_VSOCK] = &vm->vsock.v;
    return 0;
}

static void add_net(struct vm *vm)
{
    if (vm->config.net_fd < 0)
        return;
    net_init(&vm->net, vm->config.net_fd, vm->config.mac, &vm->mem,
             line_of(vm, FIRST_GSI + VM_NET));
    vm->slots[VM_NET] = &vm->net.v;
}

static int add_devices(struct vm *vm, struct cl_err *err)
{
    ioapic_init(&vm->ioapic, send_interrupt, vm);
    console_init(&vm->console, vm->config.console_fd, cl_now_ns());
    serial_init(&vm->serial, line_of(vm, SERIAL_GSI), console_write, &vm->console);
    ports_init(&vm->ports, &vm->serial);
    if (add_disk(vm, VM_ROOT, &vm->root, vm->config.root_fd, err) < 0 ||
        add_disk(vm, VM_SCRATCH, &vm->scratch, vm->config.scratch_fd, err) < 0)
        return -1;
    if (add_vsock(vm, err) < 0)
        return -1;
    rng_init(&vm->rng, &vm->mem, line_of(vm, FIRST_GSI + VM_RNG));
    vm->slots[VM_RNG] = &vm->rng.v;
    balloon_init(&vm->balloon, &vm->mem, line_of(vm, FIRST_GSI + VM_BALLOON));
    vm->slots[VM_BALLOON] = &vm->balloon.v;
    add_net(vm);
    vm_defer_devices(vm);
    return 0;
}

static int add_gate(struct vm *vm, struct cl_err *err)
{
    vm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (vm->wake_fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "eventfd");
    if (vcpu_gate_init(&vm->gate, vm->vcpus, vm->n_vcpus, vm->wake_fd, err) < 0)
        return -1;
    vm->gate.filter = vm->config.vcpu_filter;
    vm->gate_ready = true;
    return 0;
}

static int assemble(struct vm *vm, struct cl_err *err)
{
    if (check_config(&vm->config, err) < 0 || (vm->config.restore && vm_open_state(vm, err) < 0) ||
        kvm_create_vm(vm->config.kvm_fd, &vm->vm_fd, err) < 0 || add_memory(vm, err) < 0 ||
        kvm_split_irqchip(vm->vm_fd, err) < 0 || add_vcpus(vm, err) < 0 || add_gate(vm, err) < 0)
        return -1;
    return add_devices(vm, err);
}

int vm_create(const struct vm_config *config, struct vm **ret_vm, struct cl_err *err)
{
    CL_AUTO(vm_freep) struct vm *vm = cl_zalloc(sizeof *vm);
    if (!vm)
        return cl_fail(err, CL_E_NOMEM, 0, "a machine");
    vm->config = *config;
    vm->vm_fd = vm->wake_fd = -1;
    if (pthread_mutex_init(&vm->devices, NULL) != 0)
        return cl_fail(err, CL_E_NOMEM, 0, "the device lock");
    if (assemble(vm, err) < 0)
        return -1;
    *ret_vm = CL_STEAL(&vm);
    return 0;
}

void vm_free(struct vm *vm)
{
    if (!vm)
        return;
    if (vm->gate_ready) {
        vm_stop(vm);
        vcpu_gate_fini(&vm->gate);
    }
    for (unsigned i = 0; i < vm->n_vcpus; i++)
        vcpu_close(&vm->vcpus[i]);
    cl_closep(&vm->vm_fd);
    cl_closep(&vm->wake_fd);
    if (vm->constants.iov_base)
        (void)munmap(vm->constants.iov_base, vm->constants.iov_len);
    if (vm->before.iov_base)
        (void)munmap(vm->before.iov_base, vm->before.iov_len);
    gm_unmap(&vm->mem);
    (void)pthread_mutex_destroy(&vm->devices);
    cl_free(vm->dirty);
    cl_free(vm);
}

static struct acpi_machine machine_of(const struct vm *vm)
{
    struct acpi_machine machine = {.vcpus = vm->config.vcpus};
    for (unsigned i = 0; i < VM_SLOTS_NR; i++) {
        if (vm->slots[i])
            machine.devices[machine.n_devices++] =
                (struct acpi_device){.base = (uint32_t)(VM_DEVICES_BASE + i * VIRTIO_MMIO_BYTES),
                                     .bytes = VIRTIO_MMIO_BYTES,
                                     .gsi = FIRST_GSI + i};
    }
    return machine;
}

/* Such a kernel works, but several times as slowly: whoever reads its console shall know. */
static void tell_of_transitions(struct serial *serial, int patched)
{
    char line[128];
    if (patched == XENPV_PLACES)
        return;
    int n = snprintf(line, sizeof line,
                     "cloche-vmm: this kernel's hypercalls are slow: %d of the %d known places "
                     "that make them were found\n",
                     patched, XENPV_PLACES);
    serial_print(serial, (const uint8_t *)line, (size_t)n);
}

static int boot_xenpv(struct vm *vm, struct cl_err *err)
{
    struct xenpv_entry entries[XENPV_VCPUS_MAX];
    struct xenpv_input input = {.kernel_fd = vm->config.kernel_fd,
                                .initrd_fd = vm->config.initrd_fd,
                                .cmdline = vm->config.cmdline,
                                .cpuids = vm->cpuid,
                                .vcpus = vm->n_vcpus,
                                .is_isolated = vm->config.is_isolated,
                                .now_ns = cl_wall_ns(),
                                .tsc = __rdtsc()};
    if (vcpu_state_tsc_khz(vm->vcpus[0].fd, &input.tsc_khz, err) < 0)
        return -1;
    int patched = xenpv_load(&vm->mem, &input, &vm->xenpv, entries, err);
    if (patched < 0)
        return -1;
    tell_of_transitions(&vm->serial, patched);
    for (unsigned i = 0; i < vm->n_vcpus; i++) {
        if (xenpv_set_registers(vm->vcpus[i].fd, &entries[i], &vm->cpuid[i], err) < 0)
            return -1;
    }
    return 0;
}

static int boot_ordinary(struct vm *vm, struct cl_err *err)
{
    struct boot_entry entry;
    struct boot_input input = {.kernel_fd = vm->config.kernel_fd,
                               .initrd_fd = vm->config.initrd_fd,
                               .pvh = vm->config.entry == VM_ENTRY_PVH,
                               .cmdline = vm->config.cmdline,
                               .machine = machine_of(vm)};
    if (boot_load(&vm->mem, &input, &entry, err) < 0)
        return -1;
    for (unsigned i = 0; i < vm->n_vcpus; i++) {
        if (msr_boot(vm->vcpus[i].fd, err) < 0)
            return -1;
    }
    return boot_set_registers(vm->vcpus[0].fd, &entry, err);
}

/* A save of memory that is in no file yet will make huge pages of it there: such a machine boots
 * once a template, so that the kernel's head is read twice costs nobody anything. */
static int view_constants(struct vm *vm, struct cl_err *err)
{
    const struct vm_config *c = &vm->config;
    struct loader_extent constants;
    if (!c->own_ram)
        return 0;
    if (loader_constants(c->kernel_fd, &constants, err) < 0)
        return -1;
    return gm_view(&vm->mem, c->ram_fd, constants.at, constants.bytes, &vm->constants, err);
}

int vm_boot(struct vm *vm, struct cl_err *err)
{
    int rc = vm->config.entry == VM_ENTRY_XENPV ? boot_xenpv(vm, err) : boot_ordinary(vm, err);
    return rc < 0 ? -1 : view_constants(vm, err);
}

/* --- running ------------------------------------------------------------------------------- */

int vm_ready(struct vm *vm, struct cl_err *err)
{
    struct vcpu_bus bus = {.access = vm_access, .arg = vm};
    return vcpu_start(&vm->gate, bus, err);
}

int vm_run(struct vm *vm, struct cl_err *err)
{
    if (vm_ready(vm, err) < 0)
        return -1;
    vm_resume(vm);
    return 0;
}

int vm_pause(struct vm *vm, struct cl_err *err)
{
    return vcpu_gate_park(&vm->gate, err);
}

bool vm_is_idle(const struct vm *vm)
{
    for (unsigned i = 0; i < vm->config.vcpus; i++) {
        struct kvm_mp_state mp;
        struct cl_err ignored = {0};
        if (KVM_CALL(vm->vcpus[i].fd, KVM_GET_MP_STATE, &mp, &ignored) < 0 ||
            mp.mp_state == KVM_MP_STATE_RUNNABLE)
            return false;
    }
    return true;
}

void vm_resume(struct vm *vm)
{
    vcpu_gate_open(&vm->gate);
}

void vm_stop(struct vm *vm)
{
    vcpu_gate_stop(&vm->gate);
    (void)pthread_mutex_lock(&vm->devices);
    serial_flush(&vm->serial);
    (void)pthread_mutex_unlock(&vm->devices);
}

void vm_set_balloon(struct vm *vm, uint64_t bytes)
{
    (void)pthread_mutex_lock(&vm->devices);
    balloon_set_target(&vm->balloon,
                       (uint32_t)(CL_MIN(bytes, vm->config.mem_bytes) / BALLOON_PAGE));
    (void)pthread_mutex_unlock(&vm->devices);
}

uint64_t vm_freed_bytes(struct vm *vm)
{
    (void)pthread_mutex_lock(&vm->devices);
    uint64_t bytes = vm->balloon.reported_bytes + vm->balloon.taken_bytes;
    (void)pthread_mutex_unlock(&vm->devices);
    return bytes;
}

void vm_count(struct vm *vm, struct vm_counts *sums)
{
    for (unsigned i = 0; i < vm->n_vcpus; i++)
        vcpu_count(&vm->vcpus[i], sums);
    (void)pthread_mutex_lock(&vm->devices);
    for (unsigned i = 0; i < VM_LINES; i++)
        vm_counts_add(sums, (enum vm_count)(COUNT_IRQ_ROOT + i), vm->raised[i]);
    (void)pthread_mutex_unlock(&vm->devices);
}

int vm_grow_scratch(struct vm *vm, struct cl_err *err)
{
    if (!vm->slots[VM_SCRATCH])
        return cl_fail(err, CL_E_STATE, 0, "the machine has no scratch disk");
    (void)pthread_mutex_lock(&vm->devices);
    int rc = blk_grow(&vm->scratch);
    (void)pthread_mutex_unlock(&vm->devices);
    return rc < 0 ? cl_fail(err, CL_E_INVALID, -rc, "the scratch disk does not grow") : 0;
}
