/* vmm/seccomp.c - see vmm/seccomp.h. */
#include "vmm/seccomp.h"

#include <linux/kvm.h>
#include <stdio.h>

/* No row for the end of a thread: a vCPU that is done waits for the end of the process. */
static const struct cl_filter_row vcpu_rows[] = {
    CL_IOCTL(KVM_RUN, "the guest"),
    CL_IOCTL(KVM_SIGNAL_MSI, "a device interrupts"),
    CL_IOCTL(KVM_KVMCLOCK_CTRL, "the guest's watchdogs forgive a pause"),
    CL_IOCTL(KVM_GET_REGS, "says where a guest that cannot go on is"),
    CL_CALL(futex, "the device lock, the gate"),
    CL_CALL(preadv, "the guest reads a disk"),
    CL_CALL(pwritev, "the guest writes its scratch disk"),
    CL_CALL(fallocate, "the guest discards what it had on its scratch disk"),
    CL_CALL(sendto, "the agent's bytes to the worker"),
    CL_CALL(recvmsg, "the worker's bytes to the agent"),
    CL_CALL(shutdown, "the agent sends no more"),
    CL_CALL(getrandom, "the random number device"),
    CL_CALL(write, "the console; wakes the main thread"),
    CL_CALL(clock_gettime, "the console's rate, where the vDSO has no clock"),
    CL_CALL(rt_sigreturn, "the signal that calls it out of the guest"),
};

/* A template's machine is one that no tenant's code runs in: its first rows are nobody else's. */
enum { OF_TEMPLATES = 2 };
static const struct cl_filter_row main_rows[] = {
    CL_IOCTL(KVM_SET_USER_MEMORY_REGION,
             "only of a template: the pages that its guest writes from now on"),
    CL_IOCTL(KVM_GET_DIRTY_LOG, "only of a template: which they were"),
    CL_CALL(poll, "waits for the worker, the channel, the vCPUs"),
    CL_CALL(restart_syscall, "the same, after a stop of the whole process"),
    CL_CALL(recvmsg, "commands; the worker's bytes to the agent"),
    CL_CALL(sendmsg, "events to the worker"),
    CL_CALL(sendto, "the agent's bytes to the worker"),
    CL_CALL(shutdown, "the agent sends no more"),
    CL_CALL(read, "the eventfd of the vCPUs"),
    CL_CALL(futex, "the device lock, the gate"),
    CL_CALL(tgkill, "calls a vCPU out of the guest"),
    CL_CALL(clock_gettime, "how long a vCPU may take to come, where the vDSO has no clock"),
    CL_CALL(pwrite64, "a snapshot: the state, and the memory of a boot"),
    CL_CALL(pwritev, "the same: what a clone has changed of its template's memory"),
    CL_CALL(ftruncate, "the same"),
    CL_CALL(lseek, "a snapshot: what memory was never used; the size of a disk that has grown"),
    CL_CALL(madvise, "memory that the guest gives back"),
    CL_CALL(close, "the files that a clone was saved into"),
    CL_CALL(getrusage, "statistics"),
    CL_CALL(pread64, "the same: KVM's, of a vCPU; a snapshot: the memory of a moment before"),
    CL_CALL(exit_group, "the end"),
    CL_IOCTL(KVM_SIGNAL_MSI, "a device interrupts"),
    CL_IOCTL(KVM_GET_MP_STATE, "a snapshot"),
    CL_IOCTL(KVM_GET_REGS, "a snapshot"),
    CL_IOCTL(KVM_GET_SREGS, "a snapshot"),
    CL_IOCTL(KVM_GET_XCRS, "a snapshot"),
    CL_IOCTL(KVM_GET_XSAVE, "a snapshot"),
    CL_IOCTL(KVM_GET_DEBUGREGS, "a snapshot"),
    CL_IOCTL(KVM_GET_LAPIC, "a snapshot"),
    CL_IOCTL(KVM_GET_MSRS, "a snapshot"),
    CL_IOCTL(KVM_GET_VCPU_EVENTS, "a snapshot"),
    CL_IOCTL(KVM_GET_TSC_KHZ, "a snapshot"),
    CL_IOCTL(KVM_GET_DEVICE_ATTR, "a snapshot: the offset of the TSC"),
    CL_IOCTL(KVM_GET_CLOCK, "a snapshot"),
};

const struct cl_filter_profile vmm_profiles[VMM_THREADS] = {
    [VMM_THREAD_VCPU] = {"vcpu", vcpu_rows, CL_COUNT(vcpu_rows)},
    [VMM_THREAD_MAIN] = {"main", main_rows + OF_TEMPLATES, CL_COUNT(main_rows) - OF_TEMPLATES},
    [VMM_THREAD_TEMPLATE] = {"template's main", main_rows, CL_COUNT(main_rows)},
};

int vmm_explain_seccomp(void)
{
    for (int t = 0; t < VMM_THREADS; t++) {
        const struct cl_filter_profile *p = &vmm_profiles[t];
        (void)printf("%s thread, while its guest runs; anything else kills the process\n", p->who);
        for (size_t i = 0; i < p->n; i++)
            (void)printf("  %s%-22s %s\n", p->rows[i].request ? "ioctl " : "      ",
                         p->rows[i].name, p->rows[i].why);
    }
    return fflush(stdout) == 0 ? 0 : -1;
}
