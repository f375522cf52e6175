/* net/drop.h - what cloche-net gives away before it looks at the first byte of a guest.
 *
 * As root: every mount but an empty, read-only root, and its uid and groups.  As anybody: its
 * capabilities, core dumps, files it could write, other fds than the two it needs.
 * Thread:  the only one, before there is another.
 */
#ifndef CL_NET_DROP_H
#define CL_NET_DROP_H

#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"

enum { NET_FILES_MAX = 1100 }; /* sockets of two for each flow, and what else is open */

/* Close every fd from 3 on but these two. */
void net_drop_files(int one, int other);
/* uid and gid are those to become as root; else they are not looked at. */
int net_drop(uid_t uid, gid_t gid, struct cl_err *err) CL_MUST;

#endif
