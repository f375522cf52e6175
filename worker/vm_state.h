/* worker/vm_state.h - the state file of one live VM, so that a restarted worker finds it.
 *
 * One small text file a VM, written by rename; `version=1` is its first line.  The worker that
 * starts kills what it finds and reports its leases lost (DECISIONS §4).
 */
#ifndef CL_WORKER_VM_STATE_H
#define CL_WORKER_VM_STATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"
#include "base/util.h"

enum { VM_STATE_VERSION = 1, VM_STATE_MAX = 2048, VM_STATE_CGROUPS = 1024 };

struct vm_state {
    char name[64];
    pid_t guard_pid;
    uint64_t guard_start; /* field 22 of /proc/PID/stat: tells a reused pid */
    char cgroups[VM_STATE_CGROUPS];
    char tenant[64]; /* the rest is empty while the VM waits warm */
    char unit_id[CL_ID_MAX];
    char lease_id[CL_ID_MAX];
    uint64_t fence;
    uint64_t code_started;
};

/* Pure: text of a state file to the struct, and back. */
int vm_state_parse(const char *text, size_t n, struct vm_state *ret_state,
                   struct cl_err *err) CL_MUST;
int vm_state_print(const struct vm_state *state, char *out, size_t size,
                   struct cl_err *err) CL_MUST;

int vm_state_save(const char *dir, const struct vm_state *state, struct cl_err *err) CL_MUST;
void vm_state_forget(const char *dir, const char *name);

/* Kill every VM that a state file in dir names, wait until it is gone, and hand each that held a
 * lease to `lost`.  Unreadable files are reported and left. */
typedef void vm_state_lost_fn(void *arg, const struct vm_state *state);
int vm_state_sweep(const char *dir, vm_state_lost_fn *lost, void *arg, struct cl_err *err) CL_MUST;

#endif
