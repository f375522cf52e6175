/* vmm/probe.h - whether this host's KVM can run our machines, and at which price: asked by
 * `cloche-vmm --probe`.
 *
 * A KVM without VMX or SVM below it (a nested host whose hypervisor offers neither) interprets
 * every instruction of a guest's kernel: a stock kernel then takes minutes to die instead of a
 * second to boot.  So a tiny guest counts down in ring 0, and its pace is the answer.
 *
 * Owns:    a child that asks KVM, so that a KVM that hangs does not hang who wants to know.
 * Thread:  the only one.
 */
#ifndef CL_VMM_PROBE_H
#define CL_VMM_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/costs.h"

enum {
    PROBE_TEXT = 160,
    PROBE_NS_MAX = 100, /* of a ring-0 instruction; hardware takes 1, an interpreter 150-600 */
};
/* It takes a tenth of a second where guests' kernels are interpreted; an emulated host that has
 * other work took more than 2 s. */
#define PROBE_LIMIT_NS (20 * CL_NS_PER_S)

struct probe_report {
    bool can;             /* run our machines as they are */
    char why[PROBE_TEXT]; /* ... and why, or why not */
    bool is_measured;
    struct costs costs;         /* when is_measured */
    char costs_why[PROBE_TEXT]; /* ... else: why not */
};

/* Of /dev/kvm.  Back within PROBE_LIMIT_NS, whatever KVM does. */
void probe_kvm(struct probe_report *ret_report);

/* --- its parts, for tests ------------------------------------------------------------------- */

/* Write struct probe_report into a pipe, again when more is known. */
typedef void probe_look_fn(int out_fd);
void probe_look(const char *path, int out_fd);
/* The last report of a child that runs `look`, which is killed after this time. */
void probe_within(probe_look_fn *look, uint64_t limit_ns, struct probe_report *ret_report);

#endif
