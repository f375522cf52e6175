/* agent/person.h - the users of the guest, and becoming one: the user namespace and the steps into
 * it.
 *
 * Owns:    the namespace, by fd.
 * person_become() runs in a child process only: there is no way back.
 */
#ifndef CL_AGENT_PERSON_H
#define CL_AGENT_PERSON_H

#include "agent/ids.h"
#include "agent/image_conf.h"
#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

enum { PEOPLE_PATH_MAX = 8192 };

struct person {
    const char *name, *home;
    const char *cwd;  /* where its commands begin */
    const char *path; /* where its programs are found */
    unsigned id;      /* uid and gid in the namespace */
};

/* Those that code can run as, and what they have in common. */
struct people {
    struct image_conf image; /* its text is borrowed */
    struct person user, root;
    char user_path[PEOPLE_PATH_MAX];
};

/* Pure.  TOOBIG: the image's PATH.  Stays where it is. */
int people_init(struct people *people, const struct image_conf *image, struct cl_err *err) CL_MUST;
/* NULL for a user that the protocol does not know. */
const struct person *person_find(const struct people *people, Cloche__V1__GuestUser user);

/* The user namespace of all user code (agent/ids.h). */
int person_namespace_open(int *ret_fd, struct cl_err *err) CL_MUST;

/* In a child: enter the namespace, drop every capability that `who` has no use for, change ids.
 * Afterwards no exec can gain privileges.  0 or -errno. */
int person_become(const struct person *who, int userns_fd) CL_MUST;

#endif
