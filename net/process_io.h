/* net/process_io.h - cloche-net's loop: the guest's wire, the worker's socket, the stack, the
 * resolvers.
 *
 * Owns:    all of them but the two fds.
 * Borrows: the fds, until process_free().
 * Thread:  the only one.
 *
 *     RUNS --the worker says so, or the VM has gone--> ENDS (what is open is told; then done)
 *       `----------nobody reads what is told---------> CUT  (at once: no network without a record)
 */
#ifndef CL_NET_PROCESS_IO_H
#define CL_NET_PROCESS_IO_H

#include "base/own.h"
#include "net/control.h"

struct process;

/* Wait for the worker's grant. */
int process_receive(int control, struct net_grant *ret_grant, struct cl_err *err) CL_MUST;
int process_new(int control, int wire, const struct net_grant *grant, struct process **ret_process,
                struct cl_err *err) CL_MUST;
void process_free(struct process *p);
CL_DEFINE_AUTO(struct process, process_free)
/* Until the end.  UNAVAILABLE when the worker has gone before everything was told. */
int process_run(struct process *p, struct cl_err *err) CL_MUST;

#endif
