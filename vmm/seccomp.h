/* vmm/seccomp.h - what each thread of a monitor may call once its guest runs, and why.
 *
 * A thread enters the filter that it is for: a vCPU's before its first guest instruction, the main
 * thread's before the first byte that a guest can have written.  A call that is in no row kills the
 * process.
 *
 * Thread: any; vmm_filter_enter() confines the calling one.
 */
#ifndef CL_VMM_SECCOMP_H
#define CL_VMM_SECCOMP_H

#include <stddef.h>
#include <stdint.h>
#include <linux/filter.h>

#include "base/util.h"

enum vmm_thread { VMM_THREAD_VCPU = 0, VMM_THREAD_MAIN, VMM_THREADS };

struct vmm_allow {
    int call;         /* SYS_name */
    const char *name; /* of the call, or of the one ioctl request that is meant */
    uint32_t request; /* 0 = whatever its arguments are */
    const char *why;
};

struct vmm_profile {
    const char *thread;
    const struct vmm_allow *rows;
    size_t n;
};

/* Never NULL. */
const struct vmm_profile *vmm_profile(enum vmm_thread thread);

enum { VMM_FILTER_MAX = 256 /* instructions; the kernel runs them at each call */ };

struct vmm_filter {
    struct sock_filter program[VMM_FILTER_MAX];
    unsigned short n;
};

/* Of the profiles; made when cloche-vmm is built (vmm/filters). */
extern const struct vmm_filter vmm_filters[VMM_THREADS];
/* 0 or -errno.  There is no way back. */
int vmm_filter_enter(const struct vmm_filter *filter) CL_MUST;
/* Print every table on stdout; -1 when that fails. */
int vmm_explain_seccomp(void) CL_MUST;

#endif
