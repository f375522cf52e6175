/* worker/guard.h - what the worker and its guardians say to each other.
 *
 * Every VM is the child of a guardian (`cloche-guard`): parent of the VM, one timerfd, one
 * SOCK_SEQPACKET socket.  It makes the VM when it is told the first deadline, which the worker does
 * once its state file names the guardian.  The worker pushes each renewed deadline; at the deadline
 * the guardian kills the VM's process group and cgroup, worker alive or not (DECISIONS §4).
 *
 * Messages are fixed-size.  Deadlines are CLOCK_MONOTONIC ns of this host.
 */
#ifndef CL_WORKER_GUARD_H
#define CL_WORKER_GUARD_H

#include <stdint.h>

enum guard_message_type {
    GUARD_NONE = 0,
    GUARD_DEADLINE =
        1,             /* worker -> guardian: value = the (new) deadline; the first starts the VM */
    GUARD_KILL = 2,    /* worker -> guardian: now */
    GUARD_STARTED = 3, /* guardian -> worker: value = pid of the VM, seen from outside */
    GUARD_ENDED = 4,   /* guardian -> worker: value = wait status; detail = enum guard_cause */
};

enum guard_cause {
    GUARD_CAUSE_EXITED = 1,   /* the VM ended by itself */
    GUARD_CAUSE_KILLED = 2,   /* the worker asked */
    GUARD_CAUSE_DEADLINE = 3, /* the lease ran out */
    GUARD_CAUSE_SETUP = 4,    /* the jail could not be built; value = errno */
};

struct guard_message {
    uint32_t type;
    uint32_t detail;
    uint64_t value;
};
_Static_assert(sizeof(struct guard_message) == 16, "fixed on the wire");

#endif
