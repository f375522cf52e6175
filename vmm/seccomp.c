/* vmm/seccomp.c - see vmm/seccomp.h. */
#include "vmm/seccomp.h"

#include <errno.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"

#define CALL(name, why) \
    { \
        SCMP_SYS(name), #name, 0, why \
    }
#define IOCTL(request, why) \
    { \
        SCMP_SYS(ioctl), #request, (uint32_t)request, why \
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
    CALL(getpid, "names the thread for tgkill"),
    CALL(rt_sigprocmask, "libc's frame around tgkill"),
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

static int add_row(scmp_filter_ctx ctx, const struct vmm_allow *row)
{
    /* The kernel looks at the request's lower half only. */
    struct scmp_arg_cmp request = SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, row->request);
    return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, row->call, row->request ? 1 : 0, &request);
}

/* libseccomp writes its program to a file only. */
static int export_program(scmp_filter_ctx ctx, struct vmm_filter *filter)
{
    CL_AUTO(cl_closep) int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0)
        return -EIO;
    ssize_t n = pread(fd, filter->program, sizeof filter->program, 0);
    if (n <= 0 || n == (ssize_t)sizeof filter->program)
        return -E2BIG;
    filter->n = (unsigned short)((size_t)n / sizeof filter->program[0]);
    return 0;
}

static int make(scmp_filter_ctx ctx, const struct vmm_profile *profile, struct vmm_filter *filter)
{
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; i < profile->n && rc == 0; i++)
        rc = add_row(ctx, &profile->rows[i]);
    return rc < 0 ? rc : export_program(ctx, filter);
}

int vmm_filter_make(enum vmm_thread thread, struct vmm_filter *ret_filter, struct cl_err *err)
{
    const struct vmm_profile *profile = vmm_profile(thread);
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc = ctx ? make(ctx, profile, ret_filter) : -ENOMEM;
    seccomp_release(ctx);
    return rc < 0 ? cl_fail(err, CL_E_SYS, -rc, "seccomp filter '%s'", profile->thread) : 0;
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
