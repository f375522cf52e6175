/* base/notify.h - tells the service manager that started this process how it is (sd_notify(3)).
 *
 * Owns:    one datagram socket, until the process ends.
 * Thread:  any, once it is open.
 * Without NOTIFY_SOCKET nothing is told, and that is no error: most processes have no such manager.
 */
#ifndef CL_BASE_NOTIFY_H
#define CL_BASE_NOTIFY_H

#include "base/util.h"

enum { CL_NOTIFY_TEXT = 512 };

/* Connect to NOTIFY_SOCKET and forget the variable, so that no child speaks in our name.  Before
 * the process confines itself, and before there are threads. */
void cl_notify_open(void);

/* An assignment of sd_notify(3): "READY=1", "STOPPING=1".  What the manager has no room for is
 * lost: nobody waits for it. */
void cl_notify(const char *assignment);

/* STATUS=: a line for people, which `systemctl status` shows.  Ends at CL_NOTIFY_TEXT or at a new
 * line, with which somebody else's words would be assignments. */
void cl_notify_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
