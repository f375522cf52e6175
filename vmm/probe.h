/* vmm/probe.h - whether this host's KVM can run our machines: asked by `cloche-vmm --probe`.
 *
 * A KVM without VMX or SVM below it (a nested host whose hypervisor offers neither) interprets
 * every instruction of a guest's kernel: a stock kernel then takes minutes to die instead of a
 * second to boot.  So a tiny guest counts down in ring 0, and its pace is the answer. Thread: the
 * only one.
 */
#ifndef CL_VMM_PROBE_H
#define CL_VMM_PROBE_H

#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"

enum {
    PROBE_TEXT = 160,
    PROBE_NS_MAX = 100, /* of a ring-0 instruction; hardware takes about 1, an interpreter 600 */
};

/* ret_text: why, or why not. */
bool probe_kvm(char ret_text[static PROBE_TEXT]);

#endif
