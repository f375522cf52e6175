/* vmm/vcpu.c - see vmm/vcpu.h.  § are those of Linux Documentation/virt/kvm/api.rst. */
#include "vmm/vcpu.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/own.h"
#include "vmm/kvm.h"

enum {
    KICK_SIGNAL = SIGUSR1,
    PARK_SECONDS = 5,
    STACK_BYTES = 256 << 10, /* handlers of devices; the sanitizers take most of it */
};

int vcpu_open(struct vcpu *vcpu, int kvm_fd, int vm_fd, unsigned id, struct cl_err *err)
{
    *vcpu = (struct vcpu){.id = id, .fd = -1, .stats = {.fd = -1}};
    CL_AUTO(cl_closep) int fd = -1;
    if (kvm_create_vcpu(vm_fd, id, &fd, err) < 0 ||
        kvm_stats_open(kvm_fd, fd, &vcpu->stats, err) < 0)
        return -1;
    if (kvm_map_run(kvm_fd, fd, &vcpu->run, &vcpu->run_bytes, err) < 0) {
        kvm_stats_close(&vcpu->stats);
        return -1;
    }
    vcpu->fd = cl_steal_fd(&fd);
    return 0;
}

void vcpu_close(struct vcpu *vcpu)
{
    CL_ASSERT(!vcpu->started);
    if (!vcpu->run)
        return;
    (void)munmap(vcpu->run, vcpu->run_bytes);
    cl_closep(&vcpu->fd);
    kvm_stats_close(&vcpu->stats);
    vcpu->run = NULL;
}

/* --- counting ------------------------------------------------------------------------------ */

/* No other thread writes it, and one that reads sees the value before or after. */
static void note(struct vcpu *vcpu, enum vm_count why)
{
    __atomic_store_n(&vcpu->exits[why], vcpu->exits[why] + 1, __ATOMIC_RELAXED);
}

void vcpu_count(const struct vcpu *vcpu, struct vm_counts *sums)
{
    for (int i = 0; i < COUNT_EXITS_NR; i++)
        vm_counts_add(sums, (enum vm_count)i, __atomic_load_n(&vcpu->exits[i], __ATOMIC_RELAXED));
    kvm_stats_add(&vcpu->stats, sums);
}

/* --- serving exits ------------------------------------------------------------------------- */

static void finish(struct vcpu *vcpu, enum vcpu_end end)
{
    if (vcpu->end == VCPU_RUNS)
        vcpu->end = end;
}

static void serve(struct vcpu *vcpu, struct vcpu_access *access)
{
    if (!vcpu->bus.access(vcpu->bus.arg, access))
        finish(vcpu, VCPU_BUS);
}

static bool is_served_width(uint32_t width)
{
    return width == 1 || width == 2 || width == 4;
}

/* One access of at most 4 bytes; data is the run page's, what is read lands there.  As what it
 * counts. */
static enum vm_count serve_bytes(struct vcpu *vcpu, struct vcpu_access access, uint8_t *data)
{
    access.value = 0;
    if (access.write)
        memcpy(&access.value, data, access.width);
    serve(vcpu, &access);
    if (!access.write)
        memcpy(data, &access.value, access.width);
    return access.why;
}

/* §5 KVM_EXIT_IO: string instructions bring several items at once. */
static enum vm_count serve_port(struct vcpu *vcpu)
{
    struct kvm_run *run = vcpu->run;
    struct vcpu_access access = {.space = VCPU_PORT,
                                 .write = run->io.direction == KVM_EXIT_IO_OUT,
                                 .width = run->io.size,
                                 .address = run->io.port};
    uint8_t *data = (uint8_t *)run + run->io.data_offset;
    enum vm_count why = COUNT_EXIT_OTHER;
    for (uint32_t i = 0; i < run->io.count && is_served_width(access.width); i++)
        why = serve_bytes(vcpu, access, data + (size_t)i * access.width);
    return why;
}

/* §5 KVM_EXIT_MMIO: eight bytes are two accesses, lower half first; other widths (an access across
 * a page) read as ones and write nothing. */
static enum vm_count serve_mmio(struct vcpu *vcpu)
{
    struct kvm_run *run = vcpu->run;
    uint8_t *data = run->mmio.data;
    uint32_t left = CL_MIN(run->mmio.len, (uint32_t)sizeof run->mmio.data);
    struct vcpu_access access = {.space = VCPU_MMIO,
                                 .write = run->mmio.is_write != 0,
                                 .width = CL_MIN(left, 4U),
                                 .address = run->mmio.phys_addr};
    enum vm_count why = COUNT_EXIT_OTHER;
    if (!is_served_width(left) && left != 8) {
        memset(data, 0xff, access.write ? 0 : left);
        return why;
    }
    for (; left > 0; left -= access.width, data += access.width, access.address += access.width)
        why = serve_bytes(vcpu, access, data);
    return why;
}

static void fail(struct vcpu *vcpu, const struct cl_err *why)
{
    finish(vcpu, VCPU_FAILED);
    (void)pthread_mutex_lock(&vcpu->gate->lock);
    if (vcpu->gate->end == VCPU_RUNS)
        vcpu->gate->err = *why;
    (void)pthread_mutex_unlock(&vcpu->gate->lock);
}

/* What KVM says when it cannot go on, with the place in the guest. */
static void fail_exit(struct vcpu *vcpu)
{
    struct cl_err err = {0};
    struct kvm_regs regs = {0};
    const struct kvm_run *run = vcpu->run;
    uint64_t detail = run->exit_reason == KVM_EXIT_INTERNAL_ERROR ? run->internal.suberror
                      : run->exit_reason == KVM_EXIT_FAIL_ENTRY
                          ? run->fail_entry.hardware_entry_failure_reason
                          : 0;
    (void)ioctl(vcpu->fd, KVM_GET_REGS, &regs);
    (void)cl_fail(&err, CL_E_GUEST, 0, "vCPU %u: KVM exit %u (0x%" PRIx64 ") at rip 0x%" PRIx64,
                  vcpu->id, run->exit_reason, detail, (uint64_t)regs.rip);
    fail(vcpu, &err);
}

static enum vm_count serve_exit(struct vcpu *vcpu)
{
    switch (vcpu->run->exit_reason) {
    case KVM_EXIT_IO:
        return serve_port(vcpu);
    case KVM_EXIT_MMIO:
        return serve_mmio(vcpu);
    case KVM_EXIT_SHUTDOWN:
    case KVM_EXIT_SYSTEM_EVENT:
        finish(vcpu, VCPU_RESET);
        return COUNT_EXIT_END;
    case KVM_EXIT_INTR:
    case KVM_EXIT_IOAPIC_EOI: /* of a level-triggered vector; we send none */
        break;
    default:
        fail_exit(vcpu);
        break;
    }
    return COUNT_EXIT_OTHER;
}

/* --- the gate ------------------------------------------------------------------------------ */

/* §4.77: the guest's watchdogs forgive the time that it did not run.  A guest without kvm-clock
 * has nothing to tell. */
static void forgive_pause(struct vcpu *vcpu)
{
    (void)ioctl(vcpu->fd, KVM_KVMCLOCK_CTRL, 0UL);
}

static void pass_gate(struct vcpu *vcpu)
{
    struct vcpu_gate *gate = vcpu->gate;
    (void)pthread_mutex_lock(&gate->lock);
    if (gate->wish == VCPU_PARK) {
        gate->parked++;
        (void)pthread_cond_broadcast(&gate->changed);
        while (gate->wish == VCPU_PARK)
            (void)pthread_cond_wait(&gate->changed, &gate->lock);
        gate->parked--;
    }
    if (gate->wish == VCPU_STOP)
        finish(vcpu, VCPU_STOPPED);
    else
        forgive_pause(vcpu);
    __atomic_store_n(&vcpu->run->immediate_exit, 0, __ATOMIC_SEQ_CST);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* immediate_exit catches a vCPU on its way into KVM_RUN, the signal one inside.  Without libc's
 * pthread_kill(), whose calls are another libc's other calls. */
static void kick(const struct vcpu *vcpu)
{
    __atomic_store_n(&vcpu->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
    pid_t tid = __atomic_load_n(&vcpu->tid, __ATOMIC_SEQ_CST);
    if (tid > 0)
        (void)syscall(SYS_tgkill, vcpu->gate->pid, tid, KICK_SIGNAL);
}

/* Under the lock. */
static void kick_all(struct vcpu_gate *gate)
{
    for (unsigned i = 0; i < gate->n; i++) {
        if (gate->vcpus[i].started && !gate->vcpus[i].gone)
            kick(&gate->vcpus[i]);
    }
}

/* The first vCPU that ends takes the others with it. */
static void leave(struct vcpu *vcpu)
{
    struct vcpu_gate *gate = vcpu->gate;
    uint64_t one = 1;
    (void)pthread_mutex_lock(&gate->lock);
    gate->alive--;
    vcpu->gone = true;
    if (gate->end == VCPU_RUNS)
        gate->end = vcpu->end;
    gate->wish = VCPU_STOP;
    kick_all(gate);
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
    if (gate->ended_fd >= 0)
        (void)!write(gate->ended_fd, &one, sizeof one); /* it fails only when it is full */
}

static void step(struct vcpu *vcpu)
{
    struct cl_err err = {0};
    if (ioctl(vcpu->fd, KVM_RUN, 0UL) == 0) {
        note(vcpu, serve_exit(vcpu));
    } else if (errno == EINTR) {
        note(vcpu, COUNT_EXIT_CALLED);
        pass_gate(vcpu);
    } else if (errno != EAGAIN) { /* a processor that waits for its start */
        (void)cl_fail(&err, CL_E_SYS, errno, "vCPU %u: KVM_RUN", vcpu->id);
        fail(vcpu, &err);
    }
}

/* Before the first guest instruction: afterwards a hole in a device is worth twelve calls. */
static void confine(struct vcpu *vcpu)
{
    struct cl_err err = {0};
    int rc = vcpu->gate->filter ? cl_filter_enter(vcpu->gate->filter) : 0;
    if (rc == 0)
        return;
    (void)cl_fail(&err, CL_E_SYS, -rc, "vCPU %u: enter the seccomp filter", vcpu->id);
    fail(vcpu, &err);
}

/* The end of a thread is several calls that nothing else needs; the process ends soon. */
static _Noreturn void await_exit(struct vcpu_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    for (;;)
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
}

static void *run_vcpu(void *arg)
{
    struct vcpu *vcpu = arg;
    __atomic_store_n(&vcpu->tid, gettid(), __ATOMIC_SEQ_CST);
    confine(vcpu);
    while (vcpu->end == VCPU_RUNS)
        step(vcpu);
    leave(vcpu);
    if (vcpu->gate->filter)
        await_exit(vcpu->gate);
    return NULL;
}

static void on_kick(CL_UNUSED int sig)
{
    /* KVM_RUN returns; that is all. */
}

int vcpu_gate_init(struct vcpu_gate *gate, struct vcpu *vcpus, unsigned n, int ended_fd,
                   struct cl_err *err)
{
    struct sigaction kick = {.sa_handler = on_kick}; /* without SA_RESTART */
    *gate = (struct vcpu_gate){
        .wish = VCPU_PARK, .pid = getpid(), .ended_fd = ended_fd, .vcpus = vcpus, .n = n};
    pthread_condattr_t attr;
    int rc = pthread_mutex_init(&gate->lock, NULL);
    if (rc == 0)
        rc = pthread_condattr_init(&attr);
    if (rc == 0)
        rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(&gate->changed, &attr);
    if (rc == 0 && sigaction(KICK_SIGNAL, &kick, NULL) < 0)
        rc = errno;
    return rc == 0 ? 0 : cl_fail(err, CL_E_SYS, rc, "prepare the vCPUs");
}

void vcpu_gate_fini(struct vcpu_gate *gate)
{
    CL_ASSERT(gate->alive == 0);
    (void)pthread_cond_destroy(&gate->changed);
    (void)pthread_mutex_destroy(&gate->lock);
}

/* Signals other than the kick are for the main thread. */
static int start_thread(struct vcpu *vcpu, const pthread_attr_t *attr)
{
    sigset_t all, was;
    (void)sigfillset(&all);
    (void)sigdelset(&all, KICK_SIGNAL);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    int rc = pthread_create(&vcpu->thread, attr, run_vcpu, vcpu);
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    return rc;
}

int vcpu_start(struct vcpu_gate *gate, struct vcpu_bus bus, struct cl_err *err)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc == 0)
        rc = pthread_attr_setstacksize(&attr,
                                       CL_MAX((size_t)STACK_BYTES, (size_t)PTHREAD_STACK_MIN));
    (void)pthread_mutex_lock(&gate->lock);
    for (unsigned i = 0; i < gate->n && rc == 0; i++) {
        struct vcpu *vcpu = &gate->vcpus[i];
        vcpu->bus = bus;
        vcpu->gate = gate;
        vcpu->run->immediate_exit = 1; /* the gate comes before the first instruction */
        rc = start_thread(vcpu, &attr);
        vcpu->started = rc == 0;
        gate->alive += rc == 0;
    }
    (void)pthread_mutex_unlock(&gate->lock);
    return rc == 0 ? 0 : cl_fail(err, CL_E_SYS, rc, "start the vCPUs' threads");
}

void vcpu_gate_open(struct vcpu_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    if (gate->wish == VCPU_PARK)
        gate->wish = VCPU_GO;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

int vcpu_gate_park(struct vcpu_gate *gate, struct cl_err *err)
{
    struct timespec until;
    int rc = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PARK_SECONDS;
    (void)pthread_mutex_lock(&gate->lock);
    if (gate->wish != VCPU_STOP) {
        gate->wish = VCPU_PARK;
        kick_all(gate);
    }
    while (gate->wish == VCPU_PARK && gate->parked < gate->alive && rc == 0)
        rc = pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
    bool ended = gate->wish == VCPU_STOP;
    (void)pthread_mutex_unlock(&gate->lock);
    if (ended)
        return cl_fail(err, CL_E_STATE, 0, "the guest has ended");
    return rc == 0 ? 0 : cl_fail(err, CL_E_DEADLINE, rc, "a vCPU does not stop");
}

void vcpu_gate_stop(struct vcpu_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->wish = VCPU_STOP;
    kick_all(gate);
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
    for (unsigned i = 0; i < gate->n; i++) {
        if (gate->vcpus[i].started)
            (void)pthread_join(gate->vcpus[i].thread, NULL);
    }
    for (unsigned i = 0; i < gate->n; i++)
        gate->vcpus[i].started = false; /* when nobody is left who looks at it */
}

enum vcpu_end vcpu_gate_end(struct vcpu_gate *gate, struct cl_err *ret_err)
{
    (void)pthread_mutex_lock(&gate->lock);
    enum vcpu_end end = gate->end;
    if (ret_err)
        *ret_err = gate->err;
    (void)pthread_mutex_unlock(&gate->lock);
    return end;
}
