/* vmm/seccomp.c - see vmm/seccomp.h. */
#include "vmm/seccomp.h"

#include <errno.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name, why) \
    { \
        SYS_##name, #name, 0, why \
    }
#define IOCTL(request, why) \
    { \
        SYS_ioctl, #request, (uint32_t)request, why \
    }

/* No row for the end of a thread: a vCPU that is done waits for the end of the process. */
static const struct vmm_allow vcpu_rows[] = {
    IOCTL(KVM_RUN, "the guest"),
    IOCTL(KVM_SIGNAL_MSI, "a device interrupts"),
    IOCTL(KVM_KVMCLOCK_CTRL, "the guest's watchdogs forgive a pause"),
    IOCTL(KVM_GET_REGS, "says where a guest that cannot go on is"),
    CALL(futex, "the device lock, the gate"),
    CALL(preadv, "the guest reads a disk"),
    CALL(pwritev, "the guest writes its scratch disk"),
    CALL(fallocate, "the guest discards what it had on its scratch disk"),
    CALL(sendto, "the agent's bytes to the worker"),
    CALL(recvmsg, "the worker's bytes to the agent"),
    CALL(shutdown, "the agent sends no more"),
    CALL(getrandom, "the random number device"),
    CALL(write, "the console; wakes the main thread"),
    CALL(clock_gettime, "the console's rate, where the vDSO has no clock"),
    CALL(rt_sigreturn, "the signal that calls it out of the guest"),
};

static const struct vmm_allow main_rows[] = {
    CALL(poll, "waits for the worker, the channel, the vCPUs"),
    CALL(restart_syscall, "the same, after a stop of the whole process"),
    CALL(recvmsg, "commands; the worker's bytes to the agent"),
    CALL(sendmsg, "events to the worker"),
    CALL(sendto, "the agent's bytes to the worker"),
    CALL(shutdown, "the agent sends no more"),
    CALL(read, "the eventfd of the vCPUs"),
    CALL(futex, "the device lock, the gate"),
    CALL(tgkill, "calls a vCPU out of the guest"),
    CALL(clock_gettime, "how long a vCPU may take to come, where the vDSO has no clock"),
    CALL(pwrite64, "a snapshot: the state, and the memory of a boot"),
    CALL(ftruncate, "the same"),
    CALL(lseek, "the size of a scratch disk that has grown"),
    CALL(madvise, "memory that the guest gives back"),
    CALL(getrusage, "statistics"),
    CALL(pread64, "the same: KVM's, of a vCPU; a snapshot: the memory of a moment before"),
    CALL(exit_group, "the end"),
    IOCTL(KVM_SIGNAL_MSI, "a device interrupts"),
    IOCTL(KVM_GET_MP_STATE, "a snapshot"),
    IOCTL(KVM_GET_REGS, "a snapshot"),
    IOCTL(KVM_GET_SREGS, "a snapshot"),
    IOCTL(KVM_GET_XCRS, "a snapshot"),
    IOCTL(KVM_GET_XSAVE, "a snapshot"),
    IOCTL(KVM_GET_DEBUGREGS, "a snapshot"),
    IOCTL(KVM_GET_LAPIC, "a snapshot"),
    IOCTL(KVM_GET_MSRS, "a snapshot"),
    IOCTL(KVM_GET_VCPU_EVENTS, "a snapshot"),
    IOCTL(KVM_GET_TSC_KHZ, "a snapshot"),
    IOCTL(KVM_GET_DEVICE_ATTR, "a snapshot: the offset of the TSC"),
    IOCTL(KVM_GET_CLOCK, "a snapshot"),
};

const struct vmm_profile *vmm_profile(enum vmm_thread thread)
{
    static const struct vmm_profile profiles[VMM_THREADS] = {
        [VMM_THREAD_VCPU] = {"vcpu", vcpu_rows, CL_COUNT(vcpu_rows)},
        [VMM_THREAD_MAIN] = {"main", main_rows, CL_COUNT(main_rows)},
    };
    return &profiles[thread];
}

int vmm_filter_enter(const struct vmm_filter *filter)
{
    struct sock_fprog program = {.len = filter->n,
                                 .filter = (struct sock_filter *)(uintptr_t)filter->program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return -errno;
    return 0;
}

int vmm_explain_seccomp(void)
{
    for (int t = 0; t < VMM_THREADS; t++) {
        const struct vmm_profile *p = vmm_profile((enum vmm_thread)t);
        (void)printf("%s thread, while its guest runs; anything else kills the process\n",
                     p->thread);
        for (size_t i = 0; i < p->n; i++)
            (void)printf("  %s%-22s %s\n", p->rows[i].request ? "ioctl " : "      ",
                         p->rows[i].name, p->rows[i].why);
    }
    return fflush(stdout) == 0 ? 0 : -1;
}
