/* vmm/snapshot.c - a machine's state into a file and out of it (vmm/vm.h: vm_save, vm_restore).
 *
 * Sections: the processor, the vCPUs, the clock, the interrupt chip, serial port, ports, then the
 * devices that the machine has, in the order of the MMIO map, then the pages that a clone is about
 * to write.
 *
 * Time stands still for the guest between save and restore: its TSC and its kvm-clock go on from
 * where they were.  Wall time is told to it by its agent.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <x86intrin.h>

#include "vmm/cpuid.h"
#include "vmm/delta.h"
#include "vmm/file.h"
#include "vmm/sha256.h"
#include "vmm/vcpu_state.h"
#include "vmm/vm_priv.h"

/* A clock and the host's TSC of the same moment. */
struct clock_state {
    uint64_t kvmclock_ns;
    uint64_t host_tsc;
};

static int get_clock(int vm_fd, struct clock_state *ret_clock, struct cl_err *err)
{
    struct kvm_clock_data data = {0};
    if (KVM_CALL(vm_fd, KVM_GET_CLOCK, &data, err) < 0)
        return -1;
    ret_clock->kvmclock_ns = data.clock;
    ret_clock->host_tsc = __rdtsc();
    return 0;
}

/* Without KVM_CLOCK_REALTIME: with it the guest's monotonic clock would jump by the time between.
 */
static int set_clock(int vm_fd, const struct clock_state *clock, struct cl_err *err)
{
    struct kvm_clock_data data = {.clock = clock->kvmclock_ns};
    return KVM_CALL(vm_fd, KVM_SET_CLOCK, &data, err);
}

static void save_clock(const struct clock_state *clock, struct state_writer *out)
{
    state_begin(out, STATE_CLOCK);
    state_put_u64(out, clock->kvmclock_ns);
    state_put_u64(out, clock->host_tsc);
    state_end(out);
}

static int load_clock(struct state_reader *in, struct clock_state *ret_clock, struct cl_err *err)
{
    if (state_enter(in, STATE_CLOCK, err) < 0)
        return -1;
    ret_clock->kvmclock_ns = state_get_u64(in);
    ret_clock->host_tsc = state_get_u64(in);
    return state_leave(in, err);
}

/* What a state depends on of this host: what its guests know of the processor, which registers
 * there are, whether the guest has a ring 0, and whether its user code is apart from its kernel. */
static void baseline_of(const struct vm *vm, uint8_t ret_digest[static SHA256_BYTES])
{
    struct sha256 sha;
    const uint8_t mode = vm->config.entry != VM_ENTRY_XENPV ? 0 : vm->config.is_isolated ? 2 : 1;
    sha256_init(&sha);
    for (unsigned i = 0; i < vm->n_vcpus; i++)
        sha256_add(&sha, vm->cpuid[i].entries, vm->cpuid[i].nent * sizeof vm->cpuid[i].entries[0]);
    for (uint32_t i = 0; i < vm->msrs.nmsrs; i++)
        sha256_add(&sha, &vm->msrs.entries[i].index, sizeof vm->msrs.entries[i].index);
    sha256_add(&sha, &mode, sizeof mode);
    sha256_end(&sha, ret_digest);
}

static struct state_head head_of(const struct vm *vm)
{
    struct state_head head = {.mem_bytes = vm->config.mem_bytes, .vcpus = vm->n_vcpus};
    _Static_assert((int)SHA256_BYTES == (int)STATE_BASELINE_BYTES, "the baseline is a SHA-256");
    baseline_of(vm, head.baseline);
    return head;
}

/* --- save ---------------------------------------------------------------------------------- */

static int save_vcpus(const struct vm *vm, struct state_writer *out, struct cl_err *err)
{
    struct vcpu_state state;
    for (unsigned i = 0; i < vm->n_vcpus; i++) {
        if (vcpu_state_get(vm->vcpus[i].fd, &vm->msrs, &state, err) < 0)
            return cl_wrap(err, "save vCPU %u", i);
        vcpu_state_save(&state, out);
    }
    return 0;
}

static void save_devices(const struct vm *vm, struct state_writer *out)
{
    ioapic_save(&vm->ioapic, out);
    serial_save(&vm->serial, out);
    ports_save(&vm->ports, out);
    if (vm->slots[VM_ROOT])
        blk_save(&vm->root, out);
    if (vm->slots[VM_SCRATCH])
        blk_save(&vm->scratch, out);
    if (vm->slots[VM_VSOCK])
        vsock_save(&vm->vsock, out);
    rng_save(&vm->rng, out);
    balloon_save(&vm->balloon, out);
    if (vm->slots[VM_NET])
        net_save(&vm->net, out);
}

static int write_state(int fd, const uint8_t *data, size_t n, struct cl_err *err)
{
    if (file_put(fd, data, n, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "write the machine's state");
    return ftruncate(fd, (off_t)n) < 0 ? cl_fail(err, CL_E_SYS, errno, "cut the state's file") : 0;
}

int vm_record(struct vm *vm, struct cl_err *err)
{
    if (!vm->config.own_ram)
        return cl_fail(err, CL_E_STATE, 0, "the machine's memory is in its file already");
    if (vm_show_memory(vm, KVM_MEM_LOG_DIRTY_PAGES, err) < 0)
        return -1;
    vm->is_recording = true;
    return gm_store(&vm->mem, vm->config.ram_fd, err);
}

/* The guest's writes are in KVM's log, those of devices are not, unless they changed something. */
static int store_again(struct vm *vm, int to, struct cl_err *err)
{
    const struct guest_mem *mem = &vm->mem;
    if (kvm_dirty_log(vm->vm_fd, VM_MEMORY_LOW, vm->dirty, err) < 0)
        return -1;
    if (mem->high > 0 &&
        kvm_dirty_log(vm->vm_fd, VM_MEMORY_HIGH, vm->dirty + gm_dirty_words(mem->low), err) < 0)
        return -1;
    return gm_store_again(mem, to, vm->dirty, &vm->written, err);
}

static int store_memory(struct vm *vm, struct cl_err *err)
{
    int to = vm->config.ram_fd;
    if (!vm->config.own_ram)
        return 0;
    if ((vm->is_recording ? store_again(vm, to, err) : gm_store(&vm->mem, to, err)) < 0)
        return -1;
    gm_make_huge(vm->constants);
    return gm_find_holes(&vm->mem, to, &vm->holes, err);
}

/* All but memory, which is stored by then. */
static int save_state(struct vm *vm, int state_fd, struct cl_err *err)
{
    struct state_writer out;
    struct clock_state clock;
    size_t n;
    struct state_head head = head_of(vm);
    state_writer_init(&out, vm->state, sizeof vm->state, &head);
    cpuid_save(&vm->processor, &out);
    if (get_clock(vm->vm_fd, &clock, err) < 0 || save_vcpus(vm, &out, err) < 0)
        return -1;
    save_clock(&clock, &out);
    (void)pthread_mutex_lock(&vm->devices);
    save_devices(vm, &out);
    (void)pthread_mutex_unlock(&vm->devices);
    page_runs_save(&vm->written, STATE_WRITTEN, &out);
    page_runs_save(&vm->holes, STATE_HOLES, &out);
    if (state_finish(&out, &n, err) < 0)
        return -1;
    return write_state(state_fd, vm->state, n, err);
}

int vm_save(struct vm *vm, int state_fd, struct cl_err *err)
{
    return store_memory(vm, err) < 0 ? -1 : save_state(vm, state_fd, err);
}

int vm_save_clone(struct vm *vm, int delta_fd, int state_fd, struct cl_err *err)
{
    if (!vm->config.restore)
        return cl_fail(err, CL_E_STATE, 0, "the machine was booted, it is no clone");
    vm->written.n = 0; /* of the template: what it foretold has been written */
    if (delta_store(&vm->mem, vm->before.iov_base, &vm->holes, delta_fd, err) < 0)
        return -1;
    return save_state(vm, state_fd, err);
}

/* --- restore ------------------------------------------------------------------------------- */

static int read_state(struct vm *vm, size_t *ret_n, struct cl_err *err)
{
    size_t n = 0;
    for (ssize_t got = 1; got != 0 && n < sizeof vm->state;) {
        got = pread(vm->config.state_fd, vm->state + n, sizeof vm->state - n, (off_t)n);
        if (got < 0 && errno != EINTR)
            return cl_fail(err, CL_E_SYS, errno, "read the machine's state");
        n += got > 0 ? (size_t)got : 0;
    }
    if (n == sizeof vm->state)
        return cl_fail(err, CL_E_TOOBIG, 0, "a state of more than %zu bytes", n);
    *ret_n = n;
    return 0;
}

int vm_open_state(struct vm *vm, struct cl_err *err)
{
    size_t n = 0;
    if (read_state(vm, &n, err) < 0 ||
        state_reader_init(&vm->in, vm->state, n, &vm->saved, err) < 0)
        return -1;
    return cpuid_load(&vm->processor, &vm->in, err);
}

static int check_head(const struct vm *vm, struct cl_err *err)
{
    const struct state_head *head = &vm->saved, want = head_of(vm);
    if (head->mem_bytes != want.mem_bytes || head->vcpus != want.vcpus)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the state is of a machine of %" PRIu32 " vCPUs and %" PRIu64
                       " bytes; this one has %" PRIu32 " and %" PRIu64,
                       head->vcpus, head->mem_bytes, want.vcpus, want.mem_bytes);
    if (memcmp(head->baseline, want.baseline, sizeof want.baseline) != 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the state was made on another kind of host (processor or kernel)");
    return 0;
}

static int load_vcpus(struct state_reader *in, const struct vm *vm, struct vcpu_state *states,
                      struct cl_err *err)
{
    for (unsigned i = 0; i < vm->n_vcpus; i++) {
        if (vcpu_state_load(in, &vm->msrs, &states[i], err) < 0)
            return cl_wrap(err, "vCPU %u", i);
    }
    return 0;
}

/* Every TSC goes on from the moment of the save, all by the same step; a Xen-PV guest's is the
 * host's, and its time is moved instead. */
static int set_vcpus(struct vm *vm, struct vcpu_state *states, const struct clock_state *clock,
                     struct cl_err *err)
{
    bool is_xenpv = vm->config.entry == VM_ENTRY_XENPV;
    uint64_t slept = __rdtsc() - clock->host_tsc;
    if (is_xenpv && xenpv_wake(&vm->mem, vm->n_vcpus, slept, &vm->xenpv, err) < 0)
        return -1;
    for (unsigned i = 0; i < vm->n_vcpus; i++) {
        states[i].tsc_offset -= is_xenpv ? 0 : slept;
        if (vcpu_state_set(vm->vcpus[i].fd, &states[i], err) < 0)
            return cl_wrap(err, "restore vCPU %u", i);
    }
    return set_clock(vm->vm_fd, clock, err);
}

static int load_devices(struct vm *vm, struct state_reader *in, struct cl_err *err)
{
    if (ioapic_load(&vm->ioapic, in, err) < 0 || serial_load(&vm->serial, in, err) < 0 ||
        ports_load(&vm->ports, in, err) < 0)
        return -1;
    if (vm->slots[VM_ROOT] && blk_load(&vm->root, in, err) < 0)
        return cl_wrap(err, "root disk");
    if (vm->slots[VM_SCRATCH] && blk_load(&vm->scratch, in, err) < 0)
        return cl_wrap(err, "scratch disk");
    if (vm->slots[VM_VSOCK] && vsock_load(&vm->vsock, in, err) < 0)
        return cl_wrap(err, "vsock");
    if (rng_load(&vm->rng, in, err) < 0 || balloon_load(&vm->balloon, in, err) < 0)
        return -1;
    return vm->slots[VM_NET] ? net_load(&vm->net, in, err) : 0;
}

/* Notifications of the moment of the save, in either direction, are not lost but repeated. */
static void kick_devices(struct vm *vm)
{
    for (unsigned i = 0; i < VM_SLOTS_NR; i++) {
        if (vm->slots[i])
            virtio_kick(vm->slots[i]);
    }
}

int vm_restore(struct vm *vm, struct cl_err *err)
{
    struct clock_state clock;
    struct vcpu_state states[VM_VCPUS_MAX];
    if (check_head(vm, err) < 0 || load_vcpus(&vm->in, vm, states, err) < 0 ||
        load_clock(&vm->in, &clock, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&vm->devices);
    int rc = load_devices(vm, &vm->in, err);
    if (rc == 0)
        rc = page_runs_load(&vm->written, STATE_WRITTEN, vm->config.mem_bytes, &vm->in, err);
    if (rc == 0)
        rc = page_runs_load(&vm->holes, STATE_HOLES, vm->config.mem_bytes, &vm->in, err);
    if (rc == 0)
        rc = gm_fill_holes(&vm->mem, &vm->holes, err);
    if (rc == 0 && vm->config.delta_fd >= 0)
        rc = delta_load(&vm->mem, vm->config.delta_fd, err);
    if (rc == 0)
        rc = state_reader_finish(&vm->in, err);
    if (rc == 0)
        rc = set_vcpus(vm, states, &clock, err);
    if (rc == 0) {
        gm_copy_ahead(&vm->mem, &vm->written);
        kick_devices(vm);
    }
    (void)pthread_mutex_unlock(&vm->devices);
    return rc;
}
