/* vmm/seccomp.h - what each thread of a monitor may call once its guest runs, and why.
 *
 * A thread enters the filter that it is for: a vCPU's before its first guest instruction, the main
 * thread's before the first byte that a guest can have written, which in a machine that is to be a
 * template's snapshot may do a little more.  A call that is in no row kills the process.
 */
#ifndef CL_VMM_SECCOMP_H
#define CL_VMM_SECCOMP_H

#include "base/filter.h"

enum vmm_thread { VMM_THREAD_VCPU = 0, VMM_THREAD_MAIN, VMM_THREAD_TEMPLATE, VMM_THREADS };

extern const struct cl_filter_profile vmm_profiles[VMM_THREADS];
extern const struct cl_filter vmm_filters[VMM_THREADS]; /* made from them when it is built */

/* Print every table on stdout; -1 when that fails. */
int vmm_explain_seccomp(void) CL_MUST;

#endif
