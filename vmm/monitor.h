/* vmm/monitor.h - the main thread of a monitor: obeys the worker, serves the machine, tells its
 * end.
 *
 * Owns:    the machine and every fd that the worker sent.
 * Borrows: the control socket.
 * Thread:  the main one.  It sleeps in one poll(): control socket, agent channel, vCPUs.
 * Allocates nothing once the guest runs.
 */
#ifndef CL_VMM_MONITOR_H
#define CL_VMM_MONITOR_H

/* Until the worker says stop, the guest ends, or neither can go on; the worker was told why.
 * Does not return to anything that should be freed: the process ends. */
void monitor_run(int control_fd);

#endif
