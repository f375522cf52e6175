/* agent/person.h - becoming a user of the guest: the user namespace and the steps into it.
 *
 * Owns:    the namespace, by fd.
 * person_become() runs in a child process only: there is no way back.
 */
#ifndef CL_AGENT_PERSON_H
#define CL_AGENT_PERSON_H

#include "agent/ids.h"
#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

struct person {
    const char *name, *home, *path;
    unsigned id; /* uid and gid in the namespace */
};

/* NULL for a user that the protocol does not know. */
const struct person *person_find(Cloche__V1__GuestUser user);

/* The user namespace of all user code (agent/ids.h). */
int person_namespace_open(int *ret_fd, struct cl_err *err) CL_MUST;

/* In a child: enter the namespace, drop every capability that `who` has no use for, change ids.
 * Afterwards no exec can gain privileges.  0 or -errno. */
int person_become(const struct person *who, int userns_fd) CL_MUST;

#endif
