/* agent/identity.h - what makes this VM unlike its siblings of the same snapshot.
 *
 * Applies: entropy, clock, host name, machine id, bounds.  May come again at any time.
 * Owns:    what it opened for one identity and keeps for the next: a template has one before its
 *          snapshot, so a claim opens nothing, and each call spared is a page or two that a fresh
 *          clone need not have, and a way into the kernel, which is dear in an isolated guest.
 * Files under /etc may be the user's root's by then: then nothing that was kept is trusted, and
 * they are replaced through a path without links, never written through.
 */
#ifndef CL_AGENT_IDENTITY_H
#define CL_AGENT_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/cgroup.h"
#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

enum { IDENTITY_ENTROPY_MIN = 32, IDENTITY_ENTROPY_MAX = 512 };

enum identity_name { IDENTITY_HOSTNAME, IDENTITY_HOSTS, IDENTITY_MACHINE_ID, IDENTITY_NAMES };

struct identity {
    struct identity_file {
        int fd; /* owned; -1 = to be opened */
        size_t len;
    } names[IDENTITY_NAMES];
    bool etc_is_ours; /* the user's root has not run: what is kept of /etc is what it was */
    int random_fd;    /* owned; -1 = to be opened */
    uint32_t pids;    /* the bound that is set; 0 = that of cgroups_open() */
};

void identity_init(struct identity *identity);
/* Everything is tried; err tells the first thing that failed. */
int identity_apply(struct identity *identity, const Cloche__V1__GuestIdentity *id,
                   const struct cgroups *groups, int scratch_fd, struct cl_err *err) CL_MUST;
/* From now on, and for ever, somebody but the agent may change /etc. */
void identity_distrust(struct identity *identity);

#endif
